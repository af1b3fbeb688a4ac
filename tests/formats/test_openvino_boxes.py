"""Suppression of boxes as the openvino runtime computes them: read and run, and written again as
the same operation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter

pytest.importorskip("openvino", reason="compares with the openvino runtime")
from openvino_runtime import built, check, close, corners, infer

# several classes together ------------------------------------------------------------------------

COMMON = {
    "output_type": "i64",
    "background_class": -1,
    "normalized": True,
    "nms_top_k": -1,
    "keep_top_k": -1,
    "score_threshold": 0.0,
}
SORTED = [(kind, across) for kind in ("none", "score", "classid") for across in (False, True)]
LIMITS = [
    {},
    {"nms_top_k": 5, "keep_top_k": 7},
    {"score_threshold": 0.4, "background_class": 1, "output_type": "i32"},
    {"normalized": False},
]


@pytest.mark.parametrize(("sort", "across"), SORTED)
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize(
    "decay", [{}, {"decay_function": "gaussian", "gaussian_sigma": 0.5, "post_threshold": 0.2}]
)
@pytest.mark.sampled(7)
def test_matrix_nms(
    sort: str, across: bool, limits: dict[str, Any], decay: dict[str, Any], tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    boxes = (
        corners(rng, 2, 9)
        if limits.get("normalized", True)
        else np.round(corners(rng, 2, 9, size=9))
    )
    scores = rng.random((2, 3, 9), np.float32)
    own = {
        "decay_function": "linear",
        "gaussian_sigma": 2.0,
        "post_threshold": 0.0,
        "sort_result_type": sort,
        "sort_result_across_batch": across,
    }
    check(tmp_path, 8, "MatrixNms", [boxes, scores], {**COMMON, **own, **limits, **decay})


@pytest.mark.parametrize(("sort", "across"), SORTED)
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("eta", [1.0, 0.7])
@pytest.mark.sampled(7)
def test_multiclass_nms(
    sort: str, across: bool, limits: dict[str, Any], eta: float, tmp_path: Path
) -> None:
    rng = np.random.default_rng(4)
    boxes = (
        corners(rng, 2, 9)
        if limits.get("normalized", True)
        else np.round(corners(rng, 2, 9, size=9))
    )
    scores = np.round(rng.random((2, 3, 9)), 1).astype(np.float32)
    own = {
        "iou_threshold": 0.6,
        "nms_eta": eta,
        "sort_result_type": sort,
        "sort_result_across_batch": across,
    }
    check(tmp_path, 8, "MulticlassNms", [boxes, scores], {**COMMON, **own, **limits})


@pytest.mark.parametrize(("sort", "across"), SORTED)
@pytest.mark.parametrize("numbers", [[3, 9, 0], [12]])
@pytest.mark.sampled(5)
def test_multiclass_nms_with_boxes_of_each_class(
    sort: str, across: bool, numbers: list[int], tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    feeds = [corners(rng, 2, 12), rng.random((2, 12), np.float32), np.array(numbers, np.int32)]
    own = {
        "iou_threshold": 0.3,
        "nms_eta": 1.0,
        "sort_result_type": sort,
        "sort_result_across_batch": across,
        "keep_top_k": 8,
    }
    check(tmp_path, 9, "MulticlassNms", feeds, {**COMMON, **own})


def test_half_precision(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    feeds = [corners(rng, 1, 9).astype(np.float16), rng.random((1, 2, 9)).astype(np.float16)]
    own = {
        "iou_threshold": 0.3,
        "nms_eta": 1.0,
        "sort_result_type": "score",
        "sort_result_across_batch": False,
    }
    check(tmp_path, 9, "MulticlassNms", feeds, {**COMMON, **own}, tolerance=2e-3)
    limits = [np.array(5), np.array(0.5, np.float16), np.array(0.0, np.float16)]
    single = {"sort_result_descending": False, "output_type": "i32"}
    check(
        tmp_path,
        9,
        "NonMaxSuppression",
        [*feeds, *limits],
        {**single, "box_encoding": "corner"},
        (2, 3, 4),
        tolerance=2e-3,
    )


@pytest.mark.parametrize("threshold", [0.0, 1 / 3, 1.0])
def test_an_overlap_of_the_threshold_itself_suppresses(threshold: float, tmp_path: Path) -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0.5, 1, 1.5], [5, 5, 6, 6], [0, 0, 1, 1]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.7, 0.6]]], np.float32)
    limits = [np.array(4), np.array(threshold, np.float32), np.array(0.6, np.float32)]
    wanted = {0.0: [0], 1 / 3: [0, 2], 1.0: [0, 1, 2]}[threshold]
    own = {"box_encoding": "corner", "sort_result_descending": True, "output_type": "i64"}
    for constants in ((2, 3, 4), ()):
        found = check(tmp_path, 9, "NonMaxSuppression", [boxes, scores, *limits], own, constants)[0]
        assert found[:, 2].tolist() == wanted
    rows = check(
        tmp_path,
        9,
        "MulticlassNms",
        [boxes, scores],
        {**COMMON, "iou_threshold": threshold, "nms_eta": 1.0, "sort_result_type": "score"},
    )[1]
    assert rows.reshape(-1).tolist() == (wanted if threshold < 1 else [0, 1, 2])


@pytest.mark.parametrize("kind", ["MatrixNms", "MulticlassNms"])
def test_nothing_is_selected(kind: str, tmp_path: Path) -> None:
    """The runtime's MatrixNms refuses to select nothing; the specification defines the result."""
    feeds = [corners(np.random.default_rng(1), 2, 4), np.full((2, 2, 4), 0.5, np.float32)]
    path = built(
        tmp_path / "one.xml",
        8,
        kind,
        feeds,
        {**COMMON, "score_threshold": 2.0, "sort_result_type": "classid", "output_type": "i32"},
    )
    rows, indices, counts = converter.load(path).run({"in0": feeds[0], "in1": feeds[1]}).values()
    assert rows.shape == (0, 6)
    assert indices.shape == (0, 1)
    assert counts.tolist() == [0, 0]


@pytest.mark.parametrize("kind", ["MatrixNms", "MulticlassNms"])
def test_shapes_may_be_left_open(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    feeds = [corners(rng, 2, 7), rng.random((2, 3, 7), np.float32)]
    fixed = built(tmp_path / "one.xml", 8, kind, feeds, COMMON)
    wanted = infer(fixed, feeds)
    text = (
        fixed.read_text()
        .replace('shape="2,7,4"', 'shape="..."')
        .replace('shape="2,3,7"', 'shape="?,?,?"')
    )
    open_ = tmp_path / "open.xml"
    open_.write_text(text)
    fixed.with_suffix(".bin").rename(open_.with_suffix(".bin"))
    close(
        list(converter.load(open_).run({"in0": feeds[0], "in1": feeds[1]}).values()), wanted, 1e-4
    )


# single classes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [1, 3, 4, 5, 9])
@pytest.mark.parametrize("encoding", ["corner", "center"])
@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.sampled(3)
def test_non_max_suppression(opset: int, encoding: str, sort: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(opset)
    scores = (np.round(rng.random((2, 3, 11)) * 6) / 6).astype(
        np.float32
    )  # with equals and with zeros
    limits = [np.array(4, np.int32), np.array(0.3, np.float32), np.array(0.0, np.float32)]
    own: dict[str, Any] = {"box_encoding": encoding, "sort_result_descending": sort}
    if opset >= 3:
        own["output_type"] = "i32"
    for constants in ((2, 3, 4), ()):
        check(
            tmp_path,
            opset,
            "NonMaxSuppression",
            [np.abs(corners(rng, 2, 11)), scores, *limits],
            own,
            constants,
        )


@pytest.mark.parametrize("sigma", [0.0, 0.1, 2.0])
@pytest.mark.parametrize("least", [0.0, 0.3])
@pytest.mark.parametrize("encoding", ["corner", "center"])
@pytest.mark.sampled(5)
def test_soft_suppression(sigma: float, least: float, encoding: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    limits = [
        np.array([6]),
        np.array([0.4], np.float32),
        np.array([least], np.float32),
        np.array([sigma], np.float32),
    ]
    own = {"box_encoding": encoding, "sort_result_descending": least > 0, "output_type": "i64"}
    for constants in ((2, 3, 4, 5), ()):
        check(
            tmp_path,
            9,
            "NonMaxSuppression",
            [np.abs(corners(rng, 2, 9)), rng.random((2, 2, 9), np.float32), *limits],
            own,
            constants,
        )


def test_opset5_drops_overlapping_boxes_for_any_sigma(tmp_path: Path) -> None:
    """As its specification says; written again it stays an operation of opset5, and becomes one in
    IR v10 from opset9.
    """
    boxes = np.array([[[0, 0, 1, 1], [0, 0.3, 1, 1.3], [0, 0.9, 1, 1.9]]], np.float32)
    feeds = [boxes, np.array([[[0.9, 0.8, 0.7]]], np.float32)]
    limits = [
        np.array(v, t)
        for v, t in ((3, np.int64), (0.3, np.float32), (0.01, np.float32), (0.5, np.float32))
    ]
    own = {"box_encoding": "corner", "sort_result_descending": False, "output_type": "i64"}
    kept, versions = {}, {}
    for opset in (5, 9):
        model = converter.load(
            built(
                tmp_path / "one.xml",
                opset,
                "NonMaxSuppression",
                [*feeds, *limits],
                own,
                (2, 3, 4, 5),
            )
        )
        kept[opset] = next(iter(model.run({"in0": feeds[0], "in1": feeds[1]}).values()))[
            :, 2
        ].tolist()
        for target in ("openvino", "openvino+ir=10"):
            again = tmp_path / "again.xml"
            model.save(again, target)
            text = again.read_text()
            versions[opset, target] = text[
                text.index('type="NonMaxSuppression" version="') :
            ].split('"')[3]
            assert (
                next(iter(converter.load(again).run({"in0": feeds[0], "in1": feeds[1]}).values()))[
                    :, 2
                ].tolist()
                == kept[opset]
            )
    assert kept == {5: [0, 2], 9: [0, 2, 1]}
    assert versions == {
        (5, "openvino"): "opset5",
        (5, "openvino+ir=10"): "opset5",
        (9, "openvino"): "opset9",
        (9, "openvino+ir=10"): "opset5",
    }


@pytest.mark.parametrize("clockwise", [False, True])
@pytest.mark.parametrize("angles", ["any", "none", "eighths", "shifted"])
@pytest.mark.sampled(3)
def test_rotated_boxes(clockwise: bool, angles: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    boxes = np.concatenate(
        [
            rng.random((2, 12, 2)) * 10,
            1 + rng.random((2, 12, 2)) * 7,
            (rng.random((2, 12, 1)) - 0.5) * 8,
        ],
        -1,
    ).astype(np.float32)
    if angles == "eighths":  # corners on edges
        boxes = np.round(boxes)
        boxes[..., 4] *= np.float32(np.pi / 4)
    elif angles == "none":
        boxes[..., 4] = 0
    elif angles == "shifted":  # edges on edges, and the same boxes twice
        boxes[..., 2:] = [4, 4, 0.3]
        boxes[:, 6:] = boxes[:, :6]
    limits = [np.array(5), np.array(0.3, np.float32), np.array(0.1, np.float32)]
    own = {"sort_result_descending": clockwise, "output_type": "i32", "clockwise": clockwise}
    check(
        tmp_path,
        13,
        "NMSRotated",
        [boxes, rng.random((2, 2, 12), np.float32), *limits],
        own,
        (2, 3, 4),
    )
