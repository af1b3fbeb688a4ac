"""Proposals, detections, priors and pooling of regions as the openvino runtime computes them: read
and run, and written again as the same operation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter

pytest.importorskip("openvino", reason="compares with the openvino runtime")
from openvino_runtime import built, check, close, corners, infer


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("image", [[150, 130, 1.5], [150, 130, 2.0, 0.5], [150, 130, 0]])
@pytest.mark.parametrize(
    "limits",
    [{}, {"min_size": 20.0, "post_nms_count": 4}, {"nms_threshold": 0.05, "pre_nms_count": 9}],
)
@pytest.mark.sampled(5)
def test_generate_proposals(
    normalized: bool, image: list[float], limits: dict[str, Any], tmp_path: Path
) -> None:
    rng = np.random.default_rng(21)
    deltas = (rng.standard_normal((2, 12, 3, 4)) * 0.4).astype(np.float32)
    feeds = [
        np.array([image] * 2, np.float32),
        corners(rng, 3, 4, 3, size=120),
        deltas,
        rng.random((2, 3, 3, 4), np.float32),
    ]
    own = {
        "min_size": 1.0,
        "nms_threshold": 0.7,
        "pre_nms_count": 1000,
        "post_nms_count": 100,
        "normalized": normalized,
        "roi_num_type": "i32",
    }
    rois, scores, counts = check(tmp_path, 9, "GenerateProposals", feeds, {**own, **limits})
    assert len(rois) == len(scores) == counts.sum() > 0


def test_generate_proposals_in_half_precision_and_none_at_all(tmp_path: Path) -> None:
    rng = np.random.default_rng(22)
    feeds = [
        np.array([[150, 150, 1]]),
        corners(rng, 2, 2, 3, size=120),
        rng.standard_normal((1, 12, 2, 2)) * 0.1,
        rng.random((1, 3, 2, 2)),
    ]
    own = {
        "nms_threshold": 0.7,
        "pre_nms_count": 1000,
        "post_nms_count": 6,
        "normalized": True,
        "roi_num_type": "i64",
    }
    for size, count in ((1.0, None), (1000.0, 0)):
        found = check(
            tmp_path,
            9,
            "GenerateProposals",
            [x.astype(np.float16) for x in feeds],
            {**own, "min_size": size},
            tolerance=0.2,
        )
        assert count is None or len(found[0]) == count


@pytest.mark.parametrize("clockwise", [False, True])
@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("scale", [0.5, 2.0])
@pytest.mark.sampled(5)
def test_roi_align_rotated(clockwise: bool, ratio: int, scale: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(23)
    middle, size = rng.random((5, 2)) * [9, 7] / scale, rng.random((5, 2)) * [9, 7] / scale
    rois = np.concatenate([middle, size, (rng.random((5, 1)) - 0.5) * 8], -1).astype(
        np.float32
    )  # some reach over the border
    feeds = [
        rng.standard_normal((2, 3, 7, 9)).astype(np.float32),
        rois,
        np.array([0, 1, 1, 0, 0], np.int32),
    ]
    own = {
        "pooled_h": 3,
        "pooled_w": 2,
        "sampling_ratio": ratio,
        "spatial_scale": scale,
        "clockwise_mode": clockwise,
    }
    for constants in ((), (1, 2)):
        check(tmp_path, 15, "ROIAlignRotated", feeds, own, constants)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("aligned", ["", "asymmetric", "half_pixel_for_nn", "half_pixel"])
@pytest.mark.sampled(3)
def test_roi_align(mode: str, ratio: int, aligned: str, tmp_path: Path) -> None:
    """A maximum is never below 0."""
    rng = np.random.default_rng(24)
    feeds = [
        rng.standard_normal((2, 3, 7, 9)).astype(np.float32),
        corners(rng, 4, size=12),
        np.array([0, 1, 1, 0], np.int32),
    ]
    own: dict[str, Any] = {
        "pooled_h": 3,
        "pooled_w": 2,
        "sampling_ratio": ratio,
        "spatial_scale": 0.7,
        "mode": mode,
    }
    check(
        tmp_path,
        9 if aligned else 3,
        "ROIAlign",
        feeds,
        own | ({"aligned_mode": aligned} if aligned else {}),
    )


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [0, 2])
def test_features_of_regions(aligned: bool, ratio: int, tmp_path: Path) -> None:
    """Small regions, large ones, some without an area and some with exchanged corners."""
    rng = np.random.default_rng(25)
    rois = np.concatenate([corners(rng, 4, size=30), corners(rng, 4, size=900)])
    rois[1], rois[5] = rois[1][[2, 1, 0, 3]], rois[5][[2, 3, 0, 1]]
    pyramid = [rng.standard_normal((1, 2, side, side)).astype(np.float32) for side in (32, 16, 8)]
    own = {
        "output_size": 3,
        "sampling_ratio": ratio,
        "pyramid_scales": [4, 8, 16],
        "aligned": aligned,
    }
    check(tmp_path, 6, "ExperimentalDetectronROIFeatureExtractor", [rois, *pyramid], own)


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"post_nms_count": 2},
        {"max_detections_per_image": 4},
        {"class_agnostic_box_regression": True},
    ],
)
def test_detections_of_detectron(limits: dict[str, Any], tmp_path: Path) -> None:
    """Class by class when all of them are shown, else by score."""
    rng = np.random.default_rng(26)
    deltas = (rng.standard_normal((9, 16)) * 0.3).astype(np.float32)
    feeds = [
        corners(rng, 9, size=90),
        deltas,
        rng.random((9, 4), np.float32),
        np.array([[90, 80, 1]], np.float32),
    ]
    own: dict[str, Any] = {
        "score_threshold": 0.2,
        "nms_threshold": 0.5,
        "num_classes": 4,
        "post_nms_count": 100,
        "max_detections_per_image": 50,
    }
    own |= {
        "max_delta_log_wh": 4.135,
        "deltas_weights": [10.0, 10.0, 5.0, 5.0],
        "class_agnostic_box_regression": False,
        **limits,
    }
    labels, scores = check(tmp_path, 6, "ExperimentalDetectronDetectionOutput", feeds, own)[1:]
    real = scores > 0
    assert (np.diff(labels[real]) >= 0).all() == ("max_detections_per_image" not in limits)


def test_each_decoding_divides_by_the_image_size(tmp_path: Path) -> None:
    """DetectionOutput with boxes in pixels and a refinement network: both decodings divide."""
    rng = np.random.default_rng(27)
    boxes = corners(rng, 6) * np.array([60, 50, 60, 50], np.float32)
    priors = np.stack(
        [
            np.concatenate([np.zeros((6, 1), np.float32), boxes], 1).reshape(-1),
            np.full(30, 0.1, np.float32),
        ]
    )[None]
    feeds = [
        rng.standard_normal((2, 24)) * 0.3,
        rng.random((2, 12)),
        priors,
        rng.random((2, 12)),
        rng.standard_normal((2, 24)) * 0.3,
    ]
    own = {
        "background_label_id": 0,
        "top_k": -1,
        "keep_top_k": [5],
        "code_type": "caffe.PriorBoxParameter.CENTER_SIZE",
        "nms_threshold": 0.5,
    }
    own |= {
        "normalized": False,
        "input_height": 50,
        "input_width": 60,
        "objectness_score": 0.3,
        "confidence_threshold": 0.1,
    }
    check(tmp_path, 8, "DetectionOutput", [x.astype(np.float32) for x in feeds], own)


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("sizes", [{}, {"h": 3, "w": 4}, {"stride_x": 4.0, "stride_y": 5.5}])
def test_prior_grid(flatten: bool, sizes: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(28)
    feeds = [
        corners(rng, 2, size=9),
        rng.random((1, 3, 3, 4), np.float32),
        rng.random((1, 3, 30, 50), np.float32),
    ]
    own = {"flatten": flatten, "h": 0, "w": 0, "stride_x": 0.0, "stride_y": 0.0, **sizes}
    check(tmp_path, 6, "ExperimentalDetectronPriorGridGenerator", feeds, own)


def test_a_grid_of_another_size_is_written_as_its_definition(tmp_path: Path) -> None:
    """The runtime's own shape of the result is that of the feature map: it would write after its
    end.
    """
    rng = np.random.default_rng(29)
    feeds = [
        corners(rng, 2, size=9),
        rng.random((1, 3, 3, 4), np.float32),
        rng.random((1, 3, 30, 50), np.float32),
    ]
    own = {"flatten": True, "h": 5, "w": 2, "stride_x": 0.0, "stride_y": 0.0}
    path, again = (
        built(tmp_path / "one.xml", 6, "ExperimentalDetectronPriorGridGenerator", feeds, own),
        tmp_path / "again.xml",
    )
    model = converter.load(path)
    model.save(again, "openvino")
    y, x = np.meshgrid((np.arange(5) + 0.5) * 6, (np.arange(2) + 0.5) * 25, indexing="ij")
    wanted = (np.stack([x, y, x, y], -1)[:, :, None] + feeds[0]).reshape(-1, 4).astype(np.float32)
    close(list(model.run({f"in{i}": v for i, v in enumerate(feeds)}).values()), [wanted], 1e-4)
    close(infer(again, feeds), [wanted], 1e-4)


# every attribute of the others -------------------------------------------------------------------

PRIORS = {
    "min_size": [],
    "max_size": [],
    "aspect_ratio": [],
    "density": [],
    "fixed_ratio": [],
    "fixed_size": [],
}
PRIORS |= {
    "flip": False,
    "clip": False,
    "step": 0.0,
    "offset": 0.5,
    "variance": [],
    "scale_all_sizes": True,
}
PROPOSAL = {
    "base_size": 16,
    "pre_nms_topn": 40,
    "post_nms_topn": 12,
    "nms_thresh": 0.5,
    "feat_stride": 16,
    "min_size": 1,
    "ratio": [0.5, 2.0],
    "scale": [2.0],
}
SSD = {
    "background_label_id": 0,
    "top_k": -1,
    "keep_top_k": [9],
    "code_type": "caffe.PriorBoxParameter.CORNER",
    "nms_threshold": 0.5,
}
SSD |= {"confidence_threshold": 0.2, "share_location": True, "normalized": True}


def regions(images: int, count: int) -> Any:
    rng = np.random.default_rng(31)
    return np.concatenate(
        [rng.integers(0, images, (count, 1)), np.abs(corners(rng, count, size=30))], 1
    ).astype(np.float32)


def noise(*shape: int) -> Any:
    return np.random.default_rng(32).standard_normal(shape).astype(np.float32)


def ssd(prior_rows: int = 2, classes: int = 1, arm: bool = False) -> list[Any]:
    rng = np.random.default_rng(33)
    priors = np.tile(
        np.stack([corners(rng, 7).reshape(-1), np.full(28, 0.1, np.float32)])[None, :prior_rows],
        (2, 1, 1),
    )
    feeds = [noise(2, 28 * classes) * 0.3, rng.random((2, 21), np.float32), priors]
    return (
        [*feeds, rng.random((2, 14), np.float32), noise(2, 28 * classes)[::-1] * 0.2]
        if arm
        else feeds
    )


def proposal(images: int, scales: int = 3) -> list[Any]:
    rng = np.random.default_rng(34)
    return [
        rng.random((images, 4, 5, 6), np.float32),
        noise(images, 8, 5, 6) * 0.3,
        np.array([70, 90, 1, 1.5][:scales], np.float32),
    ]


FOUR = [0.1, 0.1, 0.2, 0.3]
SIZES = [np.array([3, 4], np.int32), np.array([50, 70], np.int32)]
SINGLE = [
    np.array([90, 80, 1], np.float32),
    corners(np.random.default_rng(35), 24, size=90),
    noise(8, 3, 4) * 0.3,
    np.abs(noise(2, 3, 4)),
]
CASES: list[tuple[int, str, list[Any], dict[str, Any]]] = [
    (
        1,
        "PriorBox",
        SIZES,
        {
            **PRIORS,
            "min_size": [16.0, 20.0],
            "max_size": [38.5],
            "aspect_ratio": [2.0, 3.0],
            "flip": True,
            "variance": FOUR,
        },
    ),
    (
        1,
        "PriorBox",
        SIZES,
        {
            **PRIORS,
            "fixed_size": [32.0, 20.0],
            "density": [2.0, 3.0],
            "fixed_ratio": [2.0],
            "step": 8.0,
            "offset": 0.3,
            "clip": True,
        },
    ),
    (
        8,
        "PriorBox",
        SIZES,
        {
            **PRIORS,
            "min_size": [16.0],
            "max_size": [38.5],
            "aspect_ratio": [2.0],
            "min_max_aspect_ratios_order": True,
            "variance": [0.1],
        },
    ),
    (
        1,
        "PriorBoxClustered",
        SIZES,
        {
            "width": [9.0, 30.0],
            "height": [8.0, 41.5],
            "clip": False,
            "step_w": 9.5,
            "step_h": 10.0,
            "offset": 0.5,
            "variance": FOUR,
        },
    ),
    (
        1,
        "PriorBoxClustered",
        SIZES,
        {"width": [9.0], "height": [8.0], "clip": True, "step": 16.0, "offset": 0.3},
    ),
    (
        1,
        "Proposal",
        proposal(1),
        {
            **PROPOSAL,
            "clip_before_nms": False,
            "clip_after_nms": True,
            "box_size_scale": 5.0,
            "box_coordinate_scale": 10.0,
        },
    ),
    (
        4,
        "Proposal",
        proposal(2, 4),
        {**PROPOSAL, "normalize": True, "framework": "tensorflow", "min_size": 0},
    ),
    (1, "DetectionOutput", ssd(), {**SSD, "num_classes": 3, "top_k": 4, "background_label_id": -1}),
    (
        8,
        "DetectionOutput",
        ssd(1, 3),
        {
            **SSD,
            "share_location": False,
            "variance_encoded_in_target": True,
            "clip_before_nms": True,
            "keep_top_k": [-1],
        },
    ),
    (
        8,
        "DetectionOutput",
        ssd(arm=True),
        {
            **SSD,
            "objectness_score": 0.4,
            "clip_after_nms": True,
            "code_type": "caffe.PriorBoxParameter.CENTER_SIZE",
        },
    ),
    (8, "DetectionOutput", ssd(), {**SSD, "decrease_label_id": True}),
    (
        1,
        "PSROIPooling",
        [noise(2, 18, 7, 8), regions(2, 4)],
        {"output_dim": 2, "group_size": 3, "spatial_scale": 0.25, "mode": "average"},
    ),
    (
        1,
        "PSROIPooling",
        [noise(2, 12, 7, 8), regions(2, 4) / np.array([1, 30, 30, 30, 30], np.float32)],
        {
            "output_dim": 2,
            "group_size": 3,
            "spatial_scale": 0.8,
            "mode": "bilinear",
            "spatial_bins_x": 3,
            "spatial_bins_y": 2,
        },
    ),
    (
        1,
        "DeformablePSROIPooling",
        [noise(2, 18, 7, 8), regions(2, 4), noise(4, 2, 2, 2) * 0.3],
        {
            "output_dim": 2,
            "group_size": 3,
            "spatial_scale": 0.25,
            "spatial_bins_x": 3,
            "spatial_bins_y": 2,
            "trans_std": 0.1,
            "part_size": 2,
        },
    ),
    (
        6,
        "ExperimentalDetectronGenerateProposalsSingleImage",
        SINGLE,
        {"min_size": 0.0, "nms_threshold": 0.6, "post_nms_count": 9, "pre_nms_count": 20},
    ),
    (
        6,
        "ExperimentalDetectronTopKROIs",
        [corners(np.random.default_rng(36), 9), noise(9)],
        {"max_rois": 4},
    ),
]


@pytest.mark.parametrize(
    ("opset", "kind", "feeds", "attributes"),
    CASES,
    ids=[f"{kind}-{i}" for i, (_, kind, _, _) in enumerate(CASES)],
)
@pytest.mark.sampled(3)
def test_every_attribute(
    opset: int, kind: str, feeds: list[Any], attributes: dict[str, Any], tmp_path: Path
) -> None:
    check(tmp_path, opset, kind, feeds, attributes, tolerance=1e-3)


@pytest.mark.parametrize(
    "kind", ["GenerateProposals", "NMSRotated", "ROIAlignRotated", "MulticlassNms"]
)
@pytest.mark.sampled(3)
def test_operations_that_ir_v10_lacks_are_written_as_their_definition(
    kind: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(37)
    turned = np.concatenate([rng.random((1, 6, 4)) * 8 + 1, rng.random((1, 6, 1))], -1).astype(
        np.float32
    )
    opset, feeds, own = {
        "GenerateProposals": (
            9,
            [
                np.array([[90, 80, 1]], np.float32),
                corners(rng, 2, 2, 3, size=90),
                noise(1, 12, 2, 2) * 0.2,
                rng.random((1, 3, 2, 2), np.float32),
            ],
            {
                "min_size": 1.0,
                "nms_threshold": 0.6,
                "pre_nms_count": 10,
                "post_nms_count": 6,
                "roi_num_type": "i32",
            },
        ),
        "NMSRotated": (
            13,
            [
                turned,
                rng.random((1, 2, 6), np.float32),
                np.array(5, np.int32),
                np.array(0.3, np.float32),
                np.array(0.1, np.float32),
            ],
            {"output_type": "i32", "sort_result_descending": True, "clockwise": False},
        ),
        "ROIAlignRotated": (
            15,
            [noise(2, 3, 7, 9), turned[0, :4], np.array([0, 1, 1, 0], np.int32)],
            {"pooled_h": 2, "pooled_w": 3, "sampling_ratio": 0},
        ),
        "MulticlassNms": (
            9,
            [corners(rng, 2, 6), rng.random((2, 6), np.float32), np.array([2, 4], np.int32)],
            {"iou_threshold": 0.4, "output_type": "i32"},
        ),
    }[kind]
    if kind == "ROIAlignRotated":
        own |= {"spatial_scale": 0.9, "clockwise_mode": True}
    path, old = built(tmp_path / "one.xml", opset, kind, feeds, own), tmp_path / "old.xml"
    wanted, model = infer(path, feeds), converter.load(path)
    model.save(old, "openvino+ir=10")
    assert f'type="{kind}"' not in old.read_text()
    close(infer(old, feeds), wanted, 1e-4)
    close(
        list(converter.load(old).run({f"in{i}": v for i, v in enumerate(feeds)}).values()),
        wanted,
        1e-4,
    )
