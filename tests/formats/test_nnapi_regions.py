"""Operations on boxes and heat maps: read from tables, against formulas in numpy, and written back
as the same operations.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from nnapi_models import F32, I32, constant, scalar, tensor

import converter
from converter.api import Model
from converter.errors import UnsupportedError
from converter.formats.lite.recurrent import reason_against
from converter.formats.nnapi.codec import read_table, write_table
from converter.formats.nnapi.table import OperandType, Operation, Table
from converter.graph.build import attrs_of, new_model
from converter.io.files import Output

REAL, FLAG = OperandType.FLOAT32, OperandType.BOOL
RNG = np.random.default_rng(11)


def boxes(count: int, low: float = 0, high: float = 20) -> np.ndarray:
    ends = RNG.uniform(low, high, (count, 2, 2)).astype(np.float32)
    return np.concatenate([ends.min(1), ends.max(1)], 1)


def again(table: Table, folder: Path) -> Model:
    """The table as a file, read, written and read; it holds the same operations."""
    with Output(folder / "a.nnapi.json") as out:
        write_table(table, out)
    first = converter.load(folder / "a.nnapi.json")
    converter.save(first, folder / "b.nnapi.json")
    assert [o.type for o in read_table(folder / "b.nnapi.json").operations] == [
        o.type for o in table.operations
    ]
    return converter.load(folder / "b.nnapi.json")


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = float(np.prod(np.maximum(sides, 0)))
    return shared / float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared)


def selected(
    scores: np.ndarray,
    rois: np.ndarray,
    index: np.ndarray,
    least: float,
    limit: int,
    kernel: int,
    iou: float,
    sigma: float,
    floor: float,
) -> list:
    """BOX_WITH_NMS_LIMIT, box after box."""
    rows = []
    for image in sorted(set(index.tolist())):
        found = []
        for c in range(1, scores.shape[1]):
            pending = {
                i: float(scores[i, c])
                for i in range(len(index))
                if index[i] == image and scores[i, c] > least
            }
            while pending:
                best = max(pending, key=lambda i: (pending[i], -i))
                found.append((c, pending.pop(best), rois[best, 4 * c : 4 * c + 4]))
                for i in list(pending):
                    o = overlap(found[-1][2], rois[i, 4 * c : 4 * c + 4])
                    factor = (
                        np.exp(-o * o / sigma)
                        if kernel == 2
                        else 1.0
                        if o < iou
                        else 1 - o
                        if kernel == 1
                        else 0.0
                    )
                    pending[i] *= float(factor)
                    if factor == 0 or (kernel and pending[i] <= floor):
                        del pending[i]
        most = sorted((s for _, s, _ in found), reverse=True)[: limit if limit >= 0 else None]
        rows += [(image, c, s, box) for c, s, box in found if most and s >= most[-1]]
    return rows


@pytest.mark.parametrize("kernel", [0, 1, 2])
@pytest.mark.parametrize("limit", [-1, 4])
@pytest.mark.sampled(5)
def test_boxes_are_suppressed_by_class_and_image(kernel: int, limit: int, tmp_path: Path) -> None:
    n, c = 12, 3
    scores, index = (
        RNG.permutation(n * c).reshape(n, c).astype(np.float32) / (n * c),
        np.repeat([0, 1], n // 2).astype(np.int32),
    )
    rois = np.concatenate([boxes(n) for _ in range(c)], 1)
    want = selected(scores, rois, index, 0.2, limit, kernel, 0.3, 0.5, 0.25)
    table = Table()
    table.inputs = [
        tensor(table, [n, c], name="scores"),
        tensor(table, [n, 4 * c], name="rois"),
        tensor(table, [n], I32, "index"),
    ]
    numbers = [
        (0.2, REAL),
        (limit, OperandType.INT32),
        (kernel, OperandType.INT32),
        (0.3, REAL),
        (0.5, REAL),
        (0.25, REAL),
    ]
    m = len(want)
    table.outputs = [
        tensor(table, [m], name="s"),
        tensor(table, [m, 4], name="r"),
        tensor(table, [m], I32, "c"),
        tensor(table, [m], I32, "b"),
    ]
    table.operations = [
        Operation(
            "BOX_WITH_NMS_LIMIT",
            [*table.inputs, *(scalar(table, v, k) for v, k in numbers)],
            list(table.outputs),
        )
    ]
    got = again(table, tmp_path).run({"scores": scores, "rois": rois, "index": index})
    np.testing.assert_allclose(got["s"], [row[2] for row in want], atol=1e-5)
    np.testing.assert_array_equal(got["r"], [row[3] for row in want])
    assert (got["c"].tolist(), got["b"].tolist()) == (
        [row[1] for row in want],
        [row[0] for row in want],
    )


def test_boxes_move_by_deltas_within_their_image(tmp_path: Path) -> None:
    rois, deltas, index = (
        boxes(5),
        RNG.normal(size=(5, 8)).astype(np.float32),
        np.array([0, 1, 1, 0, 1], np.int32),
    )
    image = np.array([[15, 18], [9, 30]], np.float32)
    table = Table()
    table.inputs = [
        tensor(table, [5, 4], name="r"),
        tensor(table, [5, 8], name="d"),
        tensor(table, [5], I32, "i"),
        tensor(table, [2, 2], name="m"),
    ]
    table.outputs = [tensor(table, [5, 8], name="y")]
    table.operations = [
        Operation("AXIS_ALIGNED_BBOX_TRANSFORM", list(table.inputs), list(table.outputs))
    ]
    got = again(table, tmp_path).run({"r": rois, "d": deltas, "i": index, "m": image})["y"]
    size, middle = rois[:, 2:] - rois[:, :2], (rois[:, 2:] + rois[:, :2]) / 2
    for k in range(2):
        d = deltas[:, 4 * k : 4 * k + 4]
        half, at = np.exp(d[:, 2:]) * size / 2, middle + d[:, :2] * size
        want = np.clip(
            np.concatenate([at - half, at + half], 1), 0, np.tile(image[index][:, ::-1], 2)
        )
        np.testing.assert_allclose(got[:, 4 * k : 4 * k + 4], want, rtol=1e-5, atol=1e-5)


def test_the_maximum_of_a_heat_map_lies_between_its_elements(tmp_path: Path) -> None:
    """Of a parabola the maximum itself is found."""
    at = RNG.uniform(1.6, 4.4, (3, 2, 2))
    grid = np.stack(np.meshgrid(np.arange(7), np.arange(7), indexing="xy"), -1)
    maps = 5 - ((grid - at[:, :, None, None]) ** 2 * [1.0, 0.5]).sum(-1)
    frame = boxes(3)
    table = Table()
    table.inputs = [tensor(table, [3, 7, 7, 2], name="x"), tensor(table, [3, 4], name="b")]
    table.outputs = [tensor(table, [3, 2], name="s"), tensor(table, [3, 2, 2], name="p")]
    table.operations = [
        Operation(
            "HEATMAP_MAX_KEYPOINT", [*table.inputs, scalar(table, 1, FLAG)], list(table.outputs)
        )
    ]
    table.operands[table.inputs[0]].dimensions = [3, 2, 7, 7]
    got = again(table, tmp_path).run({"x": maps.astype(np.float32), "b": frame})
    np.testing.assert_allclose(got["s"], np.full((3, 2), 5), atol=1e-4)
    want = frame[:, None, :2] + (at + 0.5) / 7 * (frame[:, None, 2:] - frame[:, None, :2])
    np.testing.assert_allclose(got["p"], want, atol=1e-3)


def proposals(
    scores: np.ndarray,
    deltas: np.ndarray,
    anchors: np.ndarray,
    image: np.ndarray,
    before: int,
    after: int,
    iou: float,
) -> tuple[np.ndarray, ...]:
    """GENERATE_PROPOSALS for one image and ratio 2, NHWC."""
    _, _h, w, a = scores.shape
    flat, moves = scores.reshape(-1), deltas.reshape(-1, 4)
    places = [
        (anchors[i % a] + 2 * np.array([i // a % w, i // a // w] * 2), flat[i], moves[i])
        for i in np.argsort(-flat, kind="stable")[:before]
    ]
    kept: list[tuple[float, np.ndarray]] = []
    for roi, score, d in places:
        size, middle = roi[2:] - roi[:2], (roi[2:] + roi[:2]) / 2
        half, at = np.exp(d[2:]) * size / 2, middle + d[:2] * size
        box = np.clip(np.concatenate([at - half, at + half]), 0, np.tile(image[::-1], 2))
        good = (box[2:] - box[:2] >= 1.5).all() and ((box[2:] + box[:2]) / 2 < image[::-1]).all()
        if good and len(kept) < after and all(overlap(box, other) < iou for _, other in kept):
            kept.append((score, box))
    return np.array([s for s, _ in kept]), np.array([b for _, b in kept])


def test_proposals_come_from_anchors_at_each_pixel(tmp_path: Path) -> None:
    scores, deltas = (
        RNG.permutation(24).reshape(1, 3, 4, 2).astype(np.float32) / 24,
        RNG.normal(0, 0.3, (1, 3, 4, 8)).astype(np.float32),
    )
    anchors, image = (
        np.array([[0, 1, 4, 3], [1, 0, 3, 4]], np.float32),
        np.array([[8, 10]], np.float32),
    )
    want = proposals(scores, deltas, anchors, image[0], 16, 6, 0.4)
    m = len(want[0])
    table = Table()
    table.inputs = [tensor(table, [1, 3, 4, 2], name="s"), tensor(table, [1, 3, 4, 8], name="d")]
    more = [constant(table, anchors), constant(table, image)]
    numbers = [
        (2.0, REAL),
        (2.0, REAL),
        (16, OperandType.INT32),
        (6, OperandType.INT32),
        (0.4, REAL),
        (1.5, REAL),
        (0, FLAG),
    ]
    table.outputs = [
        tensor(table, [m], name="y"),
        tensor(table, [m, 4], name="r"),
        tensor(table, [m], I32, "b"),
    ]
    table.operations = [
        Operation(
            "GENERATE_PROPOSALS",
            [*table.inputs, *more, *(scalar(table, v, k) for v, k in numbers)],
            list(table.outputs),
        )
    ]
    with Output(tmp_path / "a.nnapi.json") as out:
        write_table(table, out)
    got = converter.load(tmp_path / "a.nnapi.json").run({"s": scores, "d": deltas})
    np.testing.assert_allclose(got["y"], want[0], atol=1e-6)
    np.testing.assert_allclose(got["r"], want[1], atol=1e-4)


@pytest.mark.parametrize("per_class", [False, True])
def test_detections_are_decoded_and_suppressed(per_class: bool, tmp_path: Path) -> None:
    """Far apart boxes all stay; two equal ones leave the better."""
    anchors = np.array([[10, 10, 4, 4], [10, 10, 4, 4], [50, 50, 4, 8]], np.float32)
    scores = np.array([[[0, 0.9, 0.1], [0, 0.8, 0.3], [0, 0.2, 0.7]]], np.float32)
    deltas = np.zeros((1, 3, 4), np.float32)
    deltas[0, 2] = [1, 2, np.log(2) * 5, 0]
    count = 4
    table = Table()
    table.inputs = [tensor(table, [1, 3, 3], name="s"), tensor(table, [1, 3, 4], name="d")]
    numbers = [
        (10.0, REAL),
        (10.0, REAL),
        (5.0, REAL),
        (5.0, REAL),
        (per_class, FLAG),
        (count, OperandType.INT32),
        (1, OperandType.INT32),
    ]
    numbers += [(count, OperandType.INT32), (0.15, REAL), (0.5, REAL), (False, FLAG)]
    table.outputs = [
        tensor(table, [1, count], F32, "y"),
        tensor(table, [1, count, 4], name="r"),
        tensor(table, [1, count], I32, "c"),
        tensor(table, [1], I32, "n"),
    ]
    arguments = [
        *table.inputs,
        constant(table, anchors),
        *(scalar(table, v, k) for v, k in numbers),
    ]
    table.operations = [Operation("DETECTION_POSTPROCESSING", arguments, list(table.outputs))]
    got = again(table, tmp_path).run({"s": scores, "d": deltas})
    values, labels, places = (
        ([0.9, 0.7, 0.3, 0.2], [0, 1, 1, 0], [0, 2, 1, 2])
        if per_class
        else ([0.9, 0.7, 0, 0], [0, 1, 0, 0], [0, 2])
    )
    near, far = [8, 8, 12, 12], [50.4 - 4, 51.6 - 4, 50.4 + 4, 51.6 + 4]
    want = [near if p < 2 else far for p in places] + [[0] * 4] * (count - len(places))
    np.testing.assert_allclose(got["y"][0], values, atol=1e-6)
    np.testing.assert_allclose(got["r"][0], want, atol=1e-4)
    assert (got["c"].tolist(), got["n"].tolist()) == ([labels], [len(places)])


def test_regions_are_averaged_with_different_samples_per_axis(tmp_path: Path) -> None:
    """Of a ramp the average of samples is its value in the middle of the bin."""
    ramp = (np.arange(12)[:, None] * 3 + np.arange(10)).astype(np.float32).reshape(1, 12, 10, 1)
    rois = np.array([[1, 2, 7, 10], [2.5, 1, 5.5, 8]], np.float32)
    table = Table()
    table.inputs = [tensor(table, [1, 12, 10, 1], name="x"), tensor(table, [2, 4], name="r")]
    numbers = [
        (2, OperandType.INT32),
        (3, OperandType.INT32),
        (1.0, REAL),
        (1.0, REAL),
        (0, OperandType.INT32),
        (2, OperandType.INT32),
        (0, FLAG),
    ]
    table.outputs = [tensor(table, [2, 2, 3, 1], name="y")]
    arguments = [
        *table.inputs,
        constant(table, [0, 0], I32),
        *(scalar(table, v, k) for v, k in numbers),
    ]
    table.operations = [Operation("ROI_ALIGN", arguments, list(table.outputs))]
    got = again(table, tmp_path).run({"x": ramp, "r": rois})["y"]
    for k, (x1, y1, x2, y2) in enumerate(rois):
        rows, columns = (
            y1 + (np.arange(2) + 0.5) / 2 * (y2 - y1),
            x1 + (np.arange(3) + 0.5) / 3 * (x2 - x1),
        )
        np.testing.assert_allclose(got[k, :, :, 0], rows[:, None] * 3 + columns, rtol=1e-5)


def test_a_slice_whose_bounds_are_data(tmp_path: Path) -> None:
    table = Table()
    table.inputs = [
        tensor(table, [4, 5], name="x"),
        tensor(table, [2], I32, "begin"),
        tensor(table, [2], I32, "size"),
    ]
    table.outputs = [tensor(table, [2, 3], name="y")]
    table.operations = [Operation("SLICE", list(table.inputs), list(table.outputs))]
    with Output(tmp_path / "a.nnapi.json") as out:
        write_table(table, out)
    x = RNG.normal(size=(4, 5)).astype(np.float32)
    got = converter.load(tmp_path / "a.nnapi.json").run(
        {"x": x, "begin": np.array([1, 2]), "size": np.array([2, -1])}
    )["y"]
    np.testing.assert_array_equal(got, x[1:3, 2:])
    ov = pytest.importorskip("openvino")  # chooses as floats, in which 2^31 - 1 is 2^31
    converter.convert(tmp_path / "a.nnapi.json", tmp_path / "a.xml", target="openvino")
    feeds = [x, np.array([1, 2], np.int32), np.array([2, -1], np.int32)]
    (found,) = ov.Core().compile_model(tmp_path / "a.xml", "CPU")(feeds).values()
    np.testing.assert_array_equal(found, x[1:3, 2:])


def test_drawn_classes_keep_their_seeds(tmp_path: Path) -> None:
    table = Table()
    table.inputs = [tensor(table, [2, 5], name="x")]
    table.outputs = [tensor(table, [2, 7], I32, "y")]
    table.operations = [
        Operation(
            "RANDOM_MULTINOMIAL",
            [*table.inputs, scalar(table, 7), constant(table, [-3, 2147483647], I32)],
            list(table.outputs),
        )
    ]
    again(table, tmp_path)
    written = read_table(tmp_path / "b.nnapi.json")
    assert written.operands[written.operations[0].inputs[2]].array().tolist() == [-3, 2147483647]


@pytest.mark.parametrize(("name", "own", "other"), [("logits", 1, 0), ("temperature", 1.0, 2.0)])
def test_classes_are_drawn_from_logits_alone(
    name: str, own: Any, other: Any, tmp_path: Path
) -> None:
    table = Table()
    table.inputs = [tensor(table, [2, 5], name="x")]
    table.outputs = [tensor(table, [2, 7], I32, "y")]
    seeds = constant(table, [1, 2], I32)
    operands = [*table.inputs, scalar(table, 7), seeds]
    table.operations = [Operation("RANDOM_MULTINOMIAL", operands, list(table.outputs))]
    with Output(tmp_path / "a.nnapi.json") as out:
        write_table(table, out)
    model = converter.load(tmp_path / "a.nnapi.json")
    (drawn,) = (n for n in model.ir.graph if n.op_type == "RandomCategorical")
    assert attrs_of(drawn)[name] == own
    kind = ir.AttributeType.FLOAT if isinstance(own, float) else ir.AttributeType.INT
    drawn.attributes[name] = ir.Attr(name, kind, other)
    with pytest.raises(UnsupportedError, match=rf"{name}={other} is not supported"):
        converter.save(model, tmp_path / "b.nnapi.json", "nnapi")


def test_a_plain_recurrent_layer_without_a_named_activation_is_one_of_tanh(tmp_path: Path) -> None:
    made, b = new_model("main")
    x, h = (b.input(n, ir.DataType.FLOAT, d) for n, d in (("x", [4, 2, 3]), ("h", [1, 2, 2])))
    w, r = (RNG.normal(size=sizes).astype(np.float32) for sizes in ((1, 2, 3), (1, 2, 2)))
    bias = b.const(RNG.normal(size=(1, 4)).astype(np.float32))
    b.output(b.op("RNN", x, b.const(w), b.const(r), bias, None, h, hidden_size=2))
    sizes = {"x": (4, 2, 3), "h": (1, 2, 2)}
    feeds = {n: RNG.normal(size=d).astype(np.float32) for n, d in sizes.items()}
    model = Model(made, "onnx")
    (expected,) = model.run(feeds).values()
    converter.save(model, tmp_path / "n.nnapi.json", "nnapi")
    (got,) = converter.load(tmp_path / "n.nnapi.json").run(feeds).values()
    np.testing.assert_allclose(got.reshape(-1), expected.reshape(-1), rtol=1e-4, atol=1e-5)


def test_an_activation_that_is_not_named_is_that_of_the_operator() -> None:
    node = ir.node("RNN", [ir.val("x", ir.DataType.FLOAT, [4, 2, 3])])
    assert reason_against(node, ["Relu"]) == "activations must be ['Relu'], got ['Tanh']"
    assert reason_against(node, ["Tanh"]) == ""
