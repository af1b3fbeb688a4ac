"""Suppression, proposals and pooling of boxes as the openvino runtime computes them: read and run, and written again as the same operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter

ov: Any = pytest.importorskip("openvino", reason="compares with the openvino runtime")
PRECISE = {"INFERENCE_PRECISION_HINT": "f32"}
Results = list[Any]


def corners(rng: Any, *lead: int, size: float = 1.0) -> Any:
    middle, half = rng.random((*lead, 2)) * size, rng.random((*lead, 2)) * size * 0.3
    return np.concatenate([middle - half, middle + half], -1).astype(np.float32)


def built(path: Path, opset: int, kind: str, feeds: list[Any], attributes: dict[str, Any], constants: tuple[int, ...] = ()) -> Path:
    from openvino.utils.node_factory import NodeFactory  # type: ignore[import-not-found, unused-ignore]

    inputs = {i: ov.op.Parameter(ov.Type(x.dtype), ov.Shape(x.shape)) for i, x in enumerate(feeds) if i not in constants}
    operands = [inputs[i] if i in inputs else ov.op.Constant(x) for i, x in enumerate(feeds)]
    node = NodeFactory(f"opset{opset}").create(kind, [n.output(0) for n in operands], attributes)
    model = ov.Model(node.outputs(), list(inputs.values()), "one")
    for i, p in inputs.items():
        p.output(0).set_names({f"in{i}"})
    ov.serialize(model, path, path.with_suffix(".bin"))
    return path


def infer(path: Path, feeds: list[Any]) -> Results:
    core = ov.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", PRECISE)
    found = compiled(feeds)
    return [np.array(found[o]) for o in compiled.outputs]


def close(got: Results, wanted: Results, tolerance: float) -> None:
    assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in wanted]
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=1e-3, atol=tolerance)


def check(
    folder: Path, opset: int, kind: str, feeds: list[Any], attributes: dict[str, Any], constants: tuple[int, ...] = (), tolerance: float = 1e-4
) -> Results:
    """Our results; the same as the runtime's, as are the runtime's own of the file that is written again."""
    path, again = built(folder / "one.xml", opset, kind, feeds, attributes, constants), folder / "again.xml"
    live = [x for i, x in enumerate(feeds) if i not in constants]
    wanted, model = infer(path, live), converter.load(path)
    got = list(model.run({f"in{i}": x for i, x in enumerate(feeds) if i not in constants}).values())
    close(got, wanted, tolerance)
    model.save(again, "openvino")
    assert f'type="{kind}"' in again.read_text()
    close(infer(again, live), wanted, tolerance)
    return got


# several classes together -------------------------------------------------------------------------------------------------

COMMON = {"output_type": "i64", "background_class": -1, "normalized": True, "nms_top_k": -1, "keep_top_k": -1, "score_threshold": 0.0}
SORTED = [(kind, across) for kind in ("none", "score", "classid") for across in (False, True)]
LIMITS = [{}, {"nms_top_k": 5, "keep_top_k": 7}, {"score_threshold": 0.4, "background_class": 1, "output_type": "i32"}, {"normalized": False}]


@pytest.mark.parametrize(("sort", "across"), SORTED)
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("decay", [{}, {"decay_function": "gaussian", "gaussian_sigma": 0.5, "post_threshold": 0.2}])
def test_matrix_nms(sort: str, across: bool, limits: dict[str, Any], decay: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    boxes = corners(rng, 2, 9) if limits.get("normalized", True) else np.round(corners(rng, 2, 9, size=9))
    scores = rng.random((2, 3, 9), np.float32)
    own = {"decay_function": "linear", "gaussian_sigma": 2.0, "post_threshold": 0.0, "sort_result_type": sort, "sort_result_across_batch": across}
    check(tmp_path, 8, "MatrixNms", [boxes, scores], {**COMMON, **own, **limits, **decay})


@pytest.mark.parametrize(("sort", "across"), SORTED)
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("eta", [1.0, 0.7])
def test_multiclass_nms(sort: str, across: bool, limits: dict[str, Any], eta: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    boxes = corners(rng, 2, 9) if limits.get("normalized", True) else np.round(corners(rng, 2, 9, size=9))
    scores = np.round(rng.random((2, 3, 9)), 1).astype(np.float32)
    own = {"iou_threshold": 0.6, "nms_eta": eta, "sort_result_type": sort, "sort_result_across_batch": across}
    check(tmp_path, 8, "MulticlassNms", [boxes, scores], {**COMMON, **own, **limits})


@pytest.mark.parametrize(("sort", "across"), SORTED)
@pytest.mark.parametrize("numbers", [[3, 9, 0], [12]])
def test_multiclass_nms_with_boxes_of_each_class(sort: str, across: bool, numbers: list[int], tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    feeds = [corners(rng, 2, 12), rng.random((2, 12), np.float32), np.array(numbers, np.int32)]
    own = {"iou_threshold": 0.3, "nms_eta": 1.0, "sort_result_type": sort, "sort_result_across_batch": across, "keep_top_k": 8}
    check(tmp_path, 9, "MulticlassNms", feeds, {**COMMON, **own})


def test_half_precision(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    feeds = [corners(rng, 1, 9).astype(np.float16), rng.random((1, 2, 9)).astype(np.float16)]
    own = {"iou_threshold": 0.3, "nms_eta": 1.0, "sort_result_type": "score", "sort_result_across_batch": False}
    check(tmp_path, 9, "MulticlassNms", feeds, {**COMMON, **own}, tolerance=2e-3)


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
    rows = check(tmp_path, 9, "MulticlassNms", [boxes, scores], {**COMMON, "iou_threshold": threshold, "nms_eta": 1.0, "sort_result_type": "score"})[1]
    assert rows.reshape(-1).tolist() == (wanted if threshold < 1 else [0, 1, 2])


@pytest.mark.parametrize("kind", ["MatrixNms", "MulticlassNms"])
def test_nothing_is_selected(kind: str, tmp_path: Path) -> None:
    """The runtime's MatrixNms refuses to select nothing; the specification says what it means."""
    feeds = [corners(np.random.default_rng(1), 2, 4), np.full((2, 2, 4), 0.5, np.float32)]
    path = built(tmp_path / "one.xml", 8, kind, feeds, {**COMMON, "score_threshold": 2.0, "sort_result_type": "classid", "output_type": "i32"})
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
    text = fixed.read_text().replace('shape="2,7,4"', 'shape="..."').replace('shape="2,3,7"', 'shape="?,?,?"')
    open_ = tmp_path / "open.xml"
    open_.write_text(text)
    fixed.with_suffix(".bin").rename(open_.with_suffix(".bin"))
    close(list(converter.load(open_).run({"in0": feeds[0], "in1": feeds[1]}).values()), wanted, 1e-4)


# single classes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [1, 3, 4, 5, 9])
@pytest.mark.parametrize("encoding", ["corner", "center"])
@pytest.mark.parametrize("sort", [False, True])
def test_non_max_suppression(opset: int, encoding: str, sort: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(opset)
    scores = (np.round(rng.random((2, 3, 11)) * 6) / 6).astype(np.float32)  # with equals and with zeros
    limits = [np.array(4, np.int32), np.array(0.3, np.float32), np.array(0.0, np.float32)]
    own: dict[str, Any] = {"box_encoding": encoding, "sort_result_descending": sort}
    if opset >= 3:
        own["output_type"] = "i32"
    for constants in ((2, 3, 4), ()):
        check(tmp_path, opset, "NonMaxSuppression", [np.abs(corners(rng, 2, 11)), scores, *limits], own, constants)


@pytest.mark.parametrize("sigma", [0.0, 0.1, 2.0])
@pytest.mark.parametrize("least", [0.0, 0.3])
@pytest.mark.parametrize("encoding", ["corner", "center"])
def test_soft_suppression(sigma: float, least: float, encoding: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    limits = [np.array([6]), np.array([0.4], np.float32), np.array([least], np.float32), np.array([sigma], np.float32)]
    own = {"box_encoding": encoding, "sort_result_descending": least > 0, "output_type": "i64"}
    for constants in ((2, 3, 4, 5), ()):
        check(tmp_path, 9, "NonMaxSuppression", [np.abs(corners(rng, 2, 9)), rng.random((2, 2, 9), np.float32), *limits], own, constants)


def test_opset5_drops_what_overlaps_too_much_whatever_sigma_is(tmp_path: Path) -> None:
    """As its specification says; written again it stays an operation of opset5, and becomes one in IR v10 from opset9."""
    boxes = np.array([[[0, 0, 1, 1], [0, 0.3, 1, 1.3], [0, 0.9, 1, 1.9]]], np.float32)
    feeds = [boxes, np.array([[[0.9, 0.8, 0.7]]], np.float32)]
    limits = [np.array(v, t) for v, t in ((3, np.int64), (0.3, np.float32), (0.01, np.float32), (0.5, np.float32))]
    own = {"box_encoding": "corner", "sort_result_descending": False, "output_type": "i64"}
    kept, versions = {}, {}
    for opset in (5, 9):
        model = converter.load(built(tmp_path / "one.xml", opset, "NonMaxSuppression", [*feeds, *limits], own, (2, 3, 4, 5)))
        kept[opset] = next(iter(model.run({"in0": feeds[0], "in1": feeds[1]}).values()))[:, 2].tolist()
        for target in ("openvino", "openvino+ir=10"):
            again = tmp_path / "again.xml"
            model.save(again, target)
            text = again.read_text()
            versions[opset, target] = text[text.index('type="NonMaxSuppression" version="') :].split('"')[3]
            assert next(iter(converter.load(again).run({"in0": feeds[0], "in1": feeds[1]}).values()))[:, 2].tolist() == kept[opset]
    assert kept == {5: [0, 2], 9: [0, 2, 1]}
    assert versions == {(5, "openvino"): "opset5", (5, "openvino+ir=10"): "opset5", (9, "openvino"): "opset9", (9, "openvino+ir=10"): "opset5"}


@pytest.mark.parametrize("clockwise", [False, True])
@pytest.mark.parametrize("angles", ["any", "none", "eighths", "shifted"])
def test_rotated_boxes(clockwise: bool, angles: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    boxes = np.concatenate([rng.random((2, 12, 2)) * 10, 1 + rng.random((2, 12, 2)) * 7, (rng.random((2, 12, 1)) - 0.5) * 8], -1).astype(np.float32)
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
    check(tmp_path, 13, "NMSRotated", [boxes, rng.random((2, 2, 12), np.float32), *limits], own, (2, 3, 4))


# regions ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("image", [[150, 130, 1.5], [150, 130, 2.0, 0.5], [150, 130, 0]])
@pytest.mark.parametrize("limits", [{}, {"min_size": 20.0, "post_nms_count": 4}, {"nms_threshold": 0.05, "pre_nms_count": 9}])
def test_generate_proposals(normalized: bool, image: list[float], limits: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(21)
    deltas = (rng.standard_normal((2, 12, 3, 4)) * 0.4).astype(np.float32)
    feeds = [np.array([image] * 2, np.float32), corners(rng, 3, 4, 3, size=120), deltas, rng.random((2, 3, 3, 4), np.float32)]
    own = {"min_size": 1.0, "nms_threshold": 0.7, "pre_nms_count": 1000, "post_nms_count": 100, "normalized": normalized, "roi_num_type": "i32"}
    rois, scores, counts = check(tmp_path, 9, "GenerateProposals", feeds, {**own, **limits})
    assert len(rois) == len(scores) == counts.sum() > 0


def test_generate_proposals_in_half_precision_and_none_at_all(tmp_path: Path) -> None:
    rng = np.random.default_rng(22)
    feeds = [np.array([[150, 150, 1]]), corners(rng, 2, 2, 3, size=120), rng.standard_normal((1, 12, 2, 2)) * 0.1, rng.random((1, 3, 2, 2))]
    own = {"nms_threshold": 0.7, "pre_nms_count": 1000, "post_nms_count": 6, "normalized": True, "roi_num_type": "i64"}
    for size, count in ((1.0, None), (1000.0, 0)):
        found = check(tmp_path, 9, "GenerateProposals", [x.astype(np.float16) for x in feeds], {**own, "min_size": size}, tolerance=0.2)
        assert count is None or len(found[0]) == count


@pytest.mark.parametrize("clockwise", [False, True])
@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_roi_align_rotated(clockwise: bool, ratio: int, scale: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(23)
    middle, size = rng.random((5, 2)) * [9, 7] / scale, rng.random((5, 2)) * [9, 7] / scale
    rois = np.concatenate([middle, size, (rng.random((5, 1)) - 0.5) * 8], -1).astype(np.float32)  # some reach over the border
    feeds = [rng.standard_normal((2, 3, 7, 9)).astype(np.float32), rois, np.array([0, 1, 1, 0, 0], np.int32)]
    own = {"pooled_h": 3, "pooled_w": 2, "sampling_ratio": ratio, "spatial_scale": scale, "clockwise_mode": clockwise}
    for constants in ((), (1, 2)):
        check(tmp_path, 15, "ROIAlignRotated", feeds, own, constants)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("aligned", ["", "asymmetric", "half_pixel_for_nn", "half_pixel"])
def test_roi_align(mode: str, ratio: int, aligned: str, tmp_path: Path) -> None:
    """A maximum is never below 0."""
    rng = np.random.default_rng(24)
    feeds = [rng.standard_normal((2, 3, 7, 9)).astype(np.float32), corners(rng, 4, size=12), np.array([0, 1, 1, 0], np.int32)]
    own: dict[str, Any] = {"pooled_h": 3, "pooled_w": 2, "sampling_ratio": ratio, "spatial_scale": 0.7, "mode": mode}
    check(tmp_path, 9 if aligned else 3, "ROIAlign", feeds, own | ({"aligned_mode": aligned} if aligned else {}))


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [0, 2])
def test_features_of_regions(aligned: bool, ratio: int, tmp_path: Path) -> None:
    """Small regions, large ones, some without an area and some turned inside out."""
    rng = np.random.default_rng(25)
    rois = np.concatenate([corners(rng, 4, size=30), corners(rng, 4, size=900)])
    rois[1], rois[5] = rois[1][[2, 1, 0, 3]], rois[5][[2, 3, 0, 1]]
    pyramid = [rng.standard_normal((1, 2, side, side)).astype(np.float32) for side in (32, 16, 8)]
    own = {"output_size": 3, "sampling_ratio": ratio, "pyramid_scales": [4, 8, 16], "aligned": aligned}
    check(tmp_path, 6, "ExperimentalDetectronROIFeatureExtractor", [rois, *pyramid], own)


@pytest.mark.parametrize("limits", [{}, {"post_nms_count": 2}, {"max_detections_per_image": 4}, {"class_agnostic_box_regression": True}])
def test_detections_of_detectron(limits: dict[str, Any], tmp_path: Path) -> None:
    """Class by class when all of them are shown, else by score."""
    rng = np.random.default_rng(26)
    deltas = (rng.standard_normal((9, 16)) * 0.3).astype(np.float32)
    feeds = [corners(rng, 9, size=90), deltas, rng.random((9, 4), np.float32), np.array([[90, 80, 1]], np.float32)]
    own: dict[str, Any] = {"score_threshold": 0.2, "nms_threshold": 0.5, "num_classes": 4, "post_nms_count": 100, "max_detections_per_image": 50}
    own |= {"max_delta_log_wh": 4.135, "deltas_weights": [10.0, 10.0, 5.0, 5.0], "class_agnostic_box_regression": False, **limits}
    labels, scores = check(tmp_path, 6, "ExperimentalDetectronDetectionOutput", feeds, own)[1:]
    real = scores > 0
    assert (np.diff(labels[real]) >= 0).all() == ("max_detections_per_image" not in limits)


def test_each_decoding_divides_by_the_image_size(tmp_path: Path) -> None:
    """DetectionOutput with boxes in pixels and a refinement network: both decodings divide."""
    rng = np.random.default_rng(27)
    boxes = corners(rng, 6) * np.array([60, 50, 60, 50], np.float32)
    priors = np.stack([np.concatenate([np.zeros((6, 1), np.float32), boxes], 1).reshape(-1), np.full(30, 0.1, np.float32)])[None]
    feeds = [rng.standard_normal((2, 24)) * 0.3, rng.random((2, 12)), priors, rng.random((2, 12)), rng.standard_normal((2, 24)) * 0.3]
    own = {"background_label_id": 0, "top_k": -1, "keep_top_k": [5], "code_type": "caffe.PriorBoxParameter.CENTER_SIZE", "nms_threshold": 0.5}
    own |= {"normalized": False, "input_height": 50, "input_width": 60, "objectness_score": 0.3, "confidence_threshold": 0.1}
    check(tmp_path, 8, "DetectionOutput", [x.astype(np.float32) for x in feeds], own)
