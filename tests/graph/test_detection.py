"""The operators of detection networks against OpenVINO's own kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.graph.build import new_model

openvino: Any = pytest.importorskip("openvino", reason="compares with the openvino runtime")
from openvino_runtime import PRECISE  # noqa: E402

RNG = np.random.default_rng(7)


def ours(
    name: str,
    feeds: list[Any],
    outputs: int = 1,
    constants: tuple[int, ...] = (),
    **attributes: Any,
) -> list[Any]:
    model, b = new_model("m")
    values: list[Any] = [
        x if i in constants else b.input(f"x{i}", ir.DataType.from_numpy(x.dtype), x.shape)
        for i, x in enumerate(feeds)
    ]
    b.output(*b.exts(name, *values, outputs=outputs, **attributes))
    result = Model(model, "onnx").run(
        {f"x{i}": x for i, x in enumerate(feeds) if i not in constants}
    )
    return list(result.values())


def theirs(
    opset: int,
    name: str,
    feeds: list[Any],
    attributes: dict[str, Any],
    constants: tuple[int, ...] = (),
) -> list[Any]:
    from openvino.utils.node_factory import NodeFactory  # type: ignore[import-not-found, unused-ignore]

    params = [
        openvino.op.Parameter(openvino.Type(x.dtype), openvino.Shape(x.shape))
        for i, x in enumerate(feeds)
        if i not in constants
    ]
    rest = iter(params)
    nodes = [openvino.op.Constant(x) if i in constants else next(rest) for i, x in enumerate(feeds)]
    node = NodeFactory(f"opset{opset}").create(name, [n.output(0) for n in nodes], attributes)
    model = openvino.Model(node.outputs(), params, "m")
    compiled = openvino.Core().compile_model(model, "CPU", PRECISE)
    found = compiled([x for i, x in enumerate(feeds) if i not in constants])
    return [found[o] for o in compiled.outputs]


def same(a: list[Any], b: list[Any], tolerance: float = 1e-4) -> None:
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(
            np.asarray(x, np.float64).reshape(y.shape), y, rtol=1e-3, atol=tolerance
        )


PRIORS = [
    {
        "min_size": [16.0],
        "max_size": [38.46],
        "aspect_ratio": [2.0],
        "flip": 1,
        "step": 16.0,
        "offset": 0.5,
        "variance": [0.1, 0.1, 0.2, 0.2],
    },
    {
        "min_size": [16.0, 20.0],
        "max_size": [38.46],
        "aspect_ratio": [2.0, 3.0],
        "clip": 1,
        "step": 0.0,
        "min_max_aspect_ratios_order": 0,
    },
    {
        "min_size": [0.1, 0.141],
        "aspect_ratio": [2.0, 0.5],
        "scale_all_sizes": 0,
        "step": -1.0,
        "offset": 0.5,
    },
    {
        "fixed_size": [32.0, 20.0],
        "density": [2.0, 3.0],
        "fixed_ratio": [2.0],
        "step": 8.0,
        "offset": 0.5,
    },
    {"fixed_size": [32.0], "density": [2.0], "aspect_ratio": [2.0], "step": 8.0, "offset": 0.5},
]


@pytest.mark.parametrize("attributes", PRIORS)
def test_prior_box(attributes: dict[str, Any]) -> None:
    sizes = [np.array([4, 5], np.int64), np.array([60, 80], np.int64)]
    full = {"offset": 0.5, "min_size": [], "max_size": [], "aspect_ratio": [], **attributes}
    flags = {
        k: bool(v)
        for k, v in full.items()
        if k in ("flip", "clip", "scale_all_sizes", "min_max_aspect_ratios_order")
    }
    same(
        ours("PriorBox", sizes, constants=(0, 1), **attributes),
        theirs(8, "PriorBox", sizes, full | flags, (0, 1)),
    )


@pytest.mark.parametrize(
    "attributes", [{"step": 16.0}, {"step_w": 12.0, "step_h": 10.0, "clip": 1}, {}]
)
def test_prior_box_clustered(attributes: dict[str, Any]) -> None:
    sizes = [np.array([4, 5], np.int64), np.array([60, 80], np.int64)]
    full = {
        "width": [10.0, 44.0],
        "height": [20.0, 30.0],
        "offset": 0.5,
        "variance": [0.1, 0.1, 0.2, 0.2],
        **attributes,
    }
    named = {
        "step_widths" if k == "step_w" else "step_heights" if k == "step_h" else k: v
        for k, v in full.items()
    }
    named["clip"] = bool(full.get("clip"))
    same(
        ours("PriorBoxClustered", sizes, constants=(0, 1), **full),
        theirs(1, "PriorBoxClustered", sizes, full | {"clip": bool(full.get("clip"))}, (0, 1)),
    )


DETECTIONS: list[dict[str, Any]] = [
    {
        "code_type": "caffe.PriorBoxParameter.CENTER_SIZE",
        "keep_top_k": [10],
        "top_k": 20,
        "nms_threshold": 0.45,
        "confidence_threshold": 0.1,
    },
    {
        "code_type": "caffe.PriorBoxParameter.CORNER",
        "keep_top_k": [200],
        "top_k": -1,
        "nms_threshold": 0.3,
        "clip_before_nms": True,
    },
    {
        "keep_top_k": [6],
        "top_k": 9,
        "nms_threshold": 0.3,
        "variance_encoded_in_target": True,
        "clip_after_nms": True,
    },
    {
        "keep_top_k": [7],
        "top_k": 12,
        "nms_threshold": 0.45,
        "decrease_label_id": True,
        "confidence_threshold": 0.3,
    },
    {
        "keep_top_k": [9],
        "top_k": 8,
        "nms_threshold": 0.45,
        "share_location": False,
        "background_label_id": -1,
    },
    {
        "keep_top_k": [9],
        "top_k": 8,
        "nms_threshold": 0.45,
        "normalized": False,
        "input_height": 60,
        "input_width": 80,
    },
    {"keep_top_k": [-1], "top_k": 5, "nms_threshold": 0.45},
]


@pytest.mark.parametrize("attributes", DETECTIONS)
@pytest.mark.parametrize("arm", [False, True])
def test_detection_output(attributes: dict[str, Any], arm: bool) -> None:
    n, p, c = 2, 30, 4
    full = {
        "background_label_id": 0,
        "normalized": True,
        "share_location": True,
        "confidence_threshold": 0.0,
        **attributes,
    }
    if arm and not full["normalized"]:
        pytest.skip("the runtime divides the refined boxes once more; no network asks for both")
    low = RNG.uniform(0, 0.6, (p, 2))
    boxes = np.concatenate([low, low + RNG.uniform(0.1, 0.4, (p, 2))], 1)
    if not full["normalized"]:
        boxes = np.concatenate([np.zeros((p, 1)), boxes * [80, 60, 80, 60]], 1)
    rows = [boxes.reshape(-1)]
    if not full.get("variance_encoded_in_target"):
        rows.append(np.resize([0.1, 0.1, 0.2, 0.2], boxes.size))
    location = RNG.normal(size=(n, p * 4 * (1 if full["share_location"] else c))).astype(np.float32)
    feeds = [
        location,
        RNG.uniform(size=(n, p * c)).astype(np.float32),
        np.stack(rows)[None].astype(np.float32),
    ]
    if arm:
        feeds += [
            RNG.uniform(size=(n, p * 2)).astype(np.float32),
            RNG.normal(size=location.shape).astype(np.float32) * 0.3,
        ]
        full["objectness_score"] = 0.4
    mine = {
        k: int(v) if isinstance(v, bool) else v[0] if isinstance(v, list) else v
        for k, v in full.items()
    }
    same(
        ours("DetectionOutput", feeds, num_classes=c, **mine),
        theirs(1, "DetectionOutput", feeds, {"num_classes": c, **full}),
    )


@pytest.mark.parametrize("framework", ["", "tensorflow"])
@pytest.mark.parametrize(
    "flags",
    [{}, {"clip_before_nms": False, "clip_after_nms": True}, {"normalize": True, "min_size": 12}],
)
def test_proposal(framework: str, flags: dict[str, Any]) -> None:
    n, a, h, w = 2, 4, 5, 6
    feeds = [
        RNG.uniform(size=(n, 2 * a, h, w)).astype(np.float32),
        RNG.normal(size=(n, 4 * a, h, w)).astype(np.float32) * 0.3,
        np.array([70, 90, 1.0], np.float32),
    ]
    attributes = {
        "base_size": 16,
        "pre_nms_topn": 40,
        "post_nms_topn": 30,
        "nms_thresh": 0.5,
        "feat_stride": 16,
        "min_size": 4,
    } | flags
    attributes |= {"ratio": [0.5, 2.0], "scale": [1.0, 2.0], "framework": framework}
    attributes |= {"clip_before_nms": flags.get("clip_before_nms", True)}
    mine = {k: int(v) if isinstance(v, bool) else v for k, v in attributes.items()}
    same(ours("Proposal", feeds, outputs=2, **mine), theirs(4, "Proposal", feeds, attributes), 1e-3)


ROIS = np.array(
    [
        [0, 2.2, 3.4, 30.6, 40.1],
        [1, 0, 0, 5, 5],
        [0, 10.5, 11.5, 11, 12],
        [1, 50, 20, 61, 31],
        [-1, 0, 0, 1, 1],
    ],
    np.float32,
)


@pytest.mark.parametrize("method", ["max", "bilinear"])
def test_roi_pooling(method: str) -> None:
    x = RNG.normal(size=(2, 3, 9, 11)).astype(np.float32)
    rois = ROIS.copy()
    if method == "bilinear":
        rois[:, 1:] /= 64
    attributes = {"spatial_scale": 0.2, "method": method}
    same(
        ours("ROIPooling", [x, rois], pooled_h=3, pooled_w=4, **attributes),
        theirs(2, "ROIPooling", [x, rois], {"output_size": [3, 4], **attributes}),
    )


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "average", "group_size": 2},
        {"mode": "bilinear", "group_size": 3, "spatial_bins_x": 2, "spatial_bins_y": 2},
    ],
)
def test_psroi_pooling(attributes: dict[str, Any]) -> None:
    x = RNG.normal(size=(2, 12, 9, 11)).astype(np.float32)
    rois = ROIS[:4].copy()
    if attributes["mode"] == "bilinear":
        rois[:, 1:] /= 64
    scale = {"spatial_scale": 0.2 if attributes["mode"] == "average" else 1.0, "output_dim": 3}
    same(
        ours("PSROIPooling", [x, rois], **attributes, **scale),
        theirs(1, "PSROIPooling", [x, rois], attributes | scale),
    )


def test_darknet() -> None:
    x = RNG.normal(size=(2, 24, 4, 6)).astype(np.float32)
    same(ours("ReorgYolo", [x], stride=2), theirs(2, "ReorgYolo", [x], {"stride": [2]}))
    yolo = {"coords": 4, "classes": 3, "num": 3, "anchors": [1.0] * 6, "axis": 1, "end_axis": 3}
    mine = {k: v for k, v in yolo.items() if k != "anchors"}
    same(
        ours("RegionYolo", [x], **mine, do_softmax=1),
        theirs(1, "RegionYolo", [x], yolo | {"do_softmax": True, "mask": []}),
    )
    same(
        ours("RegionYolo", [x], **mine, do_softmax=0, mask=[0, 1, 2]),
        theirs(1, "RegionYolo", [x], yolo | {"do_softmax": False, "mask": [0, 1, 2]}),
    )


@pytest.mark.parametrize("merge", [0, 1])
def test_ctc(merge: int) -> None:
    x = (
        RNG.integers(0, 3, size=(12, 3, 4)).astype(np.float32)
        + RNG.normal(size=(12, 3, 4)).astype(np.float32) * 0.01
    )
    mask = np.ones((12, 3), np.float32)
    mask[7:, 1] = 0
    same(
        ours("CTCGreedyDecoder", [x, mask], ctc_merge_repeated=merge),
        theirs(1, "CTCGreedyDecoder", [x, mask], {"ctc_merge_repeated": bool(merge)}),
    )


def test_statistics() -> None:
    x = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    axes = np.array([1, 3], np.int64)
    for mode in ("add", "max"):
        expected = theirs(1, "NormalizeL2", [x, axes], {"eps": 1.5, "eps_mode": mode}, (1,))
        same(ours("NormalizeL2", [x], axes=[1, 3], eps=1.5, eps_mode=mode), expected)
    for mode in ("inside_sqrt", "outside_sqrt"):
        expected = theirs(
            6, "MVN", [x, axes], {"eps": 0.1, "eps_mode": mode, "normalize_variance": True}, (1,)
        )
        same(ours("MVN", [x], axes=[1, 3], eps=0.1, eps_mode=mode), expected)
    same(ours("GRN", [x], bias=0.3), theirs(1, "GRN", [x], {"bias": 0.3}))


def test_detectron_generate() -> None:
    a, h, w = 3, 4, 5
    low = RNG.uniform(0, 60, (h * w * a, 2))
    feeds = [
        np.array([70, 90, 1], np.float32),
        np.concatenate([low, low + RNG.uniform(5, 40, low.shape)], 1).astype(np.float32),
        RNG.normal(size=(4 * a, h, w)).astype(np.float32) * 0.5,
        RNG.uniform(size=(a, h, w)).astype(np.float32),
    ]
    attributes = {"min_size": 3.0, "nms_threshold": 0.5, "post_nms_count": 40, "pre_nms_count": 50}
    expected = theirs(6, "ExperimentalDetectronGenerateProposalsSingleImage", feeds, attributes)
    same(ours("DetectronGenerateProposals", feeds, outputs=2, **attributes), expected, 1e-3)


def test_detectron_detection() -> None:
    r, c = 20, 4
    low = RNG.uniform(0, 60, (r, 2))
    feeds = [
        np.concatenate([low, low + RNG.uniform(5, 40, low.shape)], 1).astype(np.float32),
        RNG.normal(size=(r, 4 * c)).astype(np.float32),
        RNG.uniform(size=(r, c)).astype(np.float32),
        np.array([[70, 90, 1]], np.float32),
    ]
    attributes = {
        "score_threshold": 0.3, "nms_threshold": 0.4, "num_classes": c, "post_nms_count": 12,
        "max_detections_per_image": 15, "max_delta_log_wh": 2.0,
        "deltas_weights": [10.0, 10.0, 5.0, 5.0],
    }  # fmt: skip
    expected = theirs(
        6,
        "ExperimentalDetectronDetectionOutput",
        feeds,
        attributes | {"class_agnostic_box_regression": False},
    )
    found = ours("DetectronDetectionOutput", feeds, outputs=3, **attributes)
    order, other = np.argsort(-found[2], kind="stable"), np.argsort(-expected[2], kind="stable")
    same([f[order] for f in found], [e[other] for e in expected], 1e-3)


def test_detectron_priors_and_features() -> None:
    priors, x, image = (
        RNG.normal(size=(3, 4)).astype(np.float32),
        np.zeros((1, 2, 4, 5), np.float32),
        np.zeros((1, 3, 64, 80), np.float32),
    )
    attributes = {"h": 0, "w": 0, "stride_x": 0.0, "stride_y": 0.0}
    expected = theirs(
        6,
        "ExperimentalDetectronPriorGridGenerator",
        [priors, x, image],
        attributes | {"flatten": True},
    )
    same(ours("DetectronPriorGridGenerator", [priors, x, image], **attributes), expected)
    low = RNG.uniform(0, 100, (9, 2))
    rois = np.concatenate([low, low + RNG.uniform(10, 500, low.shape)], 1).astype(np.float32)
    levels = [RNG.normal(size=(1, 2, 64 // s, 64 // s)).astype(np.float32) for s in (1, 2)]
    same(
        ours("DetectronTopKROIs", [rois, low[:, 0].astype(np.float32)], max_rois=5),
        theirs(
            6,
            "ExperimentalDetectronTopKROIs",
            [rois, low[:, 0].astype(np.float32)],
            {"max_rois": 5},
        ),
    )
    roi = {"output_size": 3, "sampling_ratio": 2, "pyramid_scales": [4, 8]}
    expected = theirs(
        6, "ExperimentalDetectronROIFeatureExtractor", [rois, *levels], roi | {"aligned": False}
    )
    same(ours("DetectronROIFeatureExtractor", [rois, *levels], **roi), expected[:1])


def test_binary_convolution() -> None:
    x, w = (RNG.integers(0, 2, s).astype(np.float32) for s in ((1, 8, 5, 5), (4, 8, 3, 3)))
    found = ours(
        "BinaryConvolution",
        [x, w],
        constants=(1,),
        strides=[1, 1],
        pads=[1, 1, 1, 1],
        dilations=[1, 1],
        pad_value=0.0,
    )[0]
    padded = np.pad(x * 2 - 1, ((0, 0), (0, 0), (1, 1), (1, 1)))
    assert found[0, 2, 0, 0] == (padded[0, :, :3, :3] * (w[2] * 2 - 1)).sum()
