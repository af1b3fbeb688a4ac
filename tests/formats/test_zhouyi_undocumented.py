"""Zhouyi Compass IR: layers that only the vendor's tools know, against the results of its executor,
written in numpy.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_zhouyi_mapping import compute, corners, document, equal, floats

import converter
from converter.errors import UnsupportedError

Array = Any
RNG = np.random.default_rng(3)


def test_nothing_happens(tmp_path: Path) -> None:
    x, y = floats(2, 3), floats(4)
    equal(
        compute(tmp_path, "Dummy", {"x": x, "y": y}, [((2, 3), "float32"), ((4,), "float32")]),
        [x, y],
    )


@pytest.mark.parametrize("mode", ["FLOOR", "TRUNC"])
def test_quotient_and_remainder(mode: str, tmp_path: Path) -> None:
    x, y = np.array([7, -7, 7, -7, 5, 0], np.int32), np.array([2, 2, -2, -2, 0, 3], np.int32)
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.where(y == 0, 0, np.floor(x / y) if mode == "FLOOR" else np.trunc(x / y))
    rest = np.where(y == 0, 0, x - y * quotient)
    equal(
        compute(
            tmp_path, "DivMod", {"x": x, "y": y}, [((6,), "int32"), ((6,), "int32")], mode=mode
        ),
        [quotient, rest],
    )


def test_integer_convolution(tmp_path: Path) -> None:
    x, w = (
        RNG.integers(0, 255, (1, 4, 5, 2), np.uint8),
        RNG.integers(0, 255, (3, 2, 2, 2), np.uint8),
    )
    attrs = {
        "kernel_x": 2,
        "kernel_y": 2,
        "stride_x": 1,
        "stride_y": 1,
        "dilation_x": 1,
        "dilation_y": 1,
        "num_output": 3,
        "group": 1,
    }
    attrs |= {f"pad_{side}": 0 for side in ("left", "right", "top", "bottom")} | {
        "x_zero_point": 23,
        "w_zero_point": 56,
    }
    wanted = np.zeros((1, 3, 4, 3), np.int64)
    for i, j in np.ndindex(3, 4):
        wanted[0, i, j] = np.einsum(
            "yxc,oyxc->o", x[0, i : i + 2, j : j + 2].astype(np.int64) - 23, w.astype(np.int64) - 56
        )
    biases = np.array([1, -2, 3], np.int32)
    equal(
        compute(
            tmp_path,
            "ConvInteger",
            {"x": x},
            [((1, 3, 4, 3), "int32")],
            {"weights": w, "biases": biases},
            **attrs,
        ),
        [wanted + biases],
    )


def test_integer_product(tmp_path: Path) -> None:
    x, y = RNG.integers(-128, 127, (3, 4), np.int8), RNG.integers(-128, 127, (4, 2), np.int8)
    found = compute(
        tmp_path,
        "MatMulInteger",
        {"x": x, "y": y},
        [((3, 2), "int32")],
        a_zero_point=3,
        b_zero_point=-5,
    )
    equal(found, [(x.astype(np.int64) - 3) @ (y.astype(np.int64) + 5)])


def test_overlapping_frames(tmp_path: Path) -> None:
    x = floats(2, 4, 5)
    wanted = np.zeros((2, 11))
    for frame, i in np.ndindex(4, 5):
        wanted[:, 2 * frame + i] += x[:, frame, i]
    equal(compute(tmp_path, "OverlapAdd", {"x": x}, [((2, 11), "float32")], frame_step=2), [wanted])


def test_columns_become_an_image(tmp_path: Path) -> None:
    x = floats(1, 2 * 4, 6)
    attrs = {f"{what}_{axis}": 1 for what in ("stride", "dilation") for axis in "xy"} | {
        f"pad_{side}": 0 for side in ("left", "right", "top", "bottom")
    }
    feeds = {"x": x, "s": np.zeros(2, np.int32), "k": np.zeros(2, np.int32)}
    text = document(tmp_path, "Col2Im", feeds, [((1, 2, 3, 4), "float32")], attrs, {})
    with pytest.raises(UnsupportedError, match="must be constant"):
        converter.load(text)
    lines = text.read_text()
    for i, (name, values) in enumerate((("s", [3, 4]), ("k", [2, 2]))):
        (tmp_path / "m.bin").write_bytes(np.array([3, 4, 2, 2], np.int32).tobytes())
        block = f"layer_name=in_{name}\nlayer_type=Input"
        group = f"weights_type=int32\nweights_offset={8 * i}\nweights_size=8\nweights_shape=[2]"
        assert block in lines and len(values) == 2
        lines = lines.replace(block, f"layer_name=in_{name}\nlayer_type=Constant\n{group}")
    text.write_text(lines.replace("input_tensors=[x,s,k]", "input_tensors=[x]"))
    wanted = np.zeros((1, 2, 3, 4))
    for c, y, q, i, j in np.ndindex(2, 2, 2, 2, 3):
        wanted[0, c, i + y, j + q] += x[0, c * 4 + y * 2 + q, i * 3 + j]
    model = converter.load(text)
    equal(list(model.run({"x": x}).values()), [wanted])
    converter.save(model, tmp_path / "again.txt")
    assert "layer_type=Col2Im" in (tmp_path / "again.txt").read_text()
    equal(list(converter.load(tmp_path / "again.txt").run({"x": x}).values()), [wanted])


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotated_positions(flat: bool, interleaved: int, tmp_path: Path) -> None:
    heads, size, wide = 3, 8, 6
    x, ids = floats(2, heads, 5, size), RNG.integers(0, 7, (2, 5)).astype(np.int32)
    cos, sin = floats(7, wide // 2), floats(7, wide // 2)
    first, second = (
        (x[..., 0:wide:2], x[..., 1:wide:2])
        if interleaved
        else (x[..., : wide // 2], x[..., wide // 2 : wide])
    )
    c, s = cos[ids][:, None], sin[ids][:, None]
    real, other = c * first - s * second, s * first + c * second
    turned = (
        np.stack([real, other], -1).reshape(*x.shape[:3], wide)
        if interleaved
        else np.concatenate([real, other], -1)
    )
    wanted = np.concatenate([turned, x[..., wide:]], -1)
    if flat:
        x, wanted = (
            np.ascontiguousarray(v.transpose(0, 2, 1, 3)).reshape(2, 5, heads * size)
            for v in (x, wanted)
        )
    feeds = {"x": x, "c": cos, "s": sin, "p": ids}
    found = compute(
        tmp_path,
        "RotaryEmbedding",
        feeds,
        [(x.shape, "float32")],
        num_heads=heads,
        rotary_embedding_dim=wide,
        interleaved=interleaved,
    )
    equal(found, [wanted])


def test_slots_and_queries(tmp_path: Path) -> None:
    first, second = np.array([0, 3, 1], np.int32), np.array([2, 3], np.int32)
    x = floats(2, 2, 3, 4)
    wanted = np.zeros((2, 5, 4))
    for view, index in enumerate((first, second)):
        for k, place in enumerate(index):
            wanted[:, place] += x[:, view, k]
    equal(
        compute(
            tmp_path, "SlotUpdate", {"x": x, "a": first, "b": second}, [((2, 5, 4), "float32")]
        ),
        [wanted],
    )
    q = floats(2, 5, 4)
    grouped = np.zeros((2, 2, 3, 4))
    grouped[:, 0], grouped[:, 1, :2] = q[:, first], q[:, second]
    equal(
        compute(
            tmp_path, "QueryRebatch", {"x": q, "a": first, "b": second}, [((2, 2, 3, 4), "float32")]
        ),
        [grouped],
    )


@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("activation", ["TANH", "SIGMOID", "RELU"])
def test_plain_recurrence(direction: str, activation: str, tmp_path: Path) -> None:
    x, state, w, bias = floats(2, 4, 3), floats(2, 5), floats(5, 8) - np.float32(0.5), floats(5)
    f = {
        "TANH": np.tanh,
        "SIGMOID": lambda v: 1 / (1 + np.exp(-v)),
        "RELU": lambda v: np.maximum(v, 0),
    }[activation]
    h, steps = state, np.zeros((2, 4, 5))
    for t in range(4) if direction == "forward" else range(3, -1, -1):
        h = steps[:, t] = f(x[:, t] @ w[:, :3].T + h @ w[:, 3:].T + bias)
    attrs = {
        "time_steps": 4,
        "input_size": 3,
        "cell_size": 5,
        "direction": direction,
        "out_sequence": "[H,Hn]",
        "activations": activation,
    }
    shapes = [((2, 4, 5), "float32"), ((2, 5), "float32")]
    equal(
        compute(
            tmp_path, "RNN", {"x": x, "h": state}, shapes, {"weights": w, "biases": bias}, **attrs
        ),
        [steps, h],
    )
    # the vendor's executor knows no other activations of recurrent layers: they are written out
    assert ("layer_type=RNN" in (tmp_path / "again.txt").read_text()) == (activation != "RELU")


def iou(a: Array, b: Array) -> float:
    side = [max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1)]
    inter = side[0] * side[1]
    return inter / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter)


def soft(
    boxes: Array, scores: Array, most: int, overlap: float, least: float, sigma: float
) -> list[tuple[int, float]]:
    """(box, score when it was kept), as the executor's single_softnms goes through one class."""
    left, kept = {i: float(s) for i, s in enumerate(scores) if s > least}, []
    while left and len(kept) < most:
        best = max(left, key=lambda i: left[i])
        score = left.pop(best)
        if score <= least:
            break
        if any(iou(boxes[best], boxes[k]) >= overlap for k, _ in kept):
            continue
        kept.append((best, score))
        left = {
            i: s * np.exp(-0.5 / sigma * iou(boxes[best], boxes[i]) ** 2) for i, s in left.items()
        }
    return kept


@pytest.mark.parametrize("most", [3, 8])
def test_soft_suppression(most: int, tmp_path: Path) -> None:
    boxes, scores = corners(2, 12), floats(2, 12)
    counts, number = np.array([[7, 5, 0], [12, 0, 0]], np.float32), np.array([[2], [1]], np.float32)
    kept, per, values, places = (
        np.zeros((2, 10, 4)),
        np.zeros((2, 3)),
        np.zeros((2, 10)),
        np.zeros((2, 10)),
    )
    for n in range(2):
        at = 0
        for c, (start, end) in enumerate(pairwise(np.cumsum([0, *counts[n].astype(int)]))):
            for i, score in soft(boxes[n, start:end], scores[n, start:end], most, 0.6, 0.2, 0.4)[
                : 10 - at
            ]:
                kept[n, at], values[n, at], places[n, at] = boxes[n, start + i], score, i
                at, per[n, c] = at + 1, per[n, c] + 1
    shapes = [
        ((2, 10, 4), "float32"),
        ((2, 3), "float32"),
        ((2, 10), "float32"),
        ((2, 10), "float32"),
    ]
    attrs = {
        "method": "GAUSSIAN",
        "max_output_size": most,
        "iou_threshold": 0.6,
        "score_threshold": 0.2,
        "soft_nms_sigma": 0.4,
        "center_point_box": 0,
    }
    equal(
        compute(
            tmp_path, "NMS", {"b": boxes, "n": counts, "t": number, "s": scores}, shapes, **attrs
        ),
        [kept, per, values, places],
    )
    assert "method=GAUSSIAN" in (tmp_path / "again.txt").read_text()


def test_linear_suppression_is_refused(tmp_path: Path) -> None:
    feeds = {
        "b": corners(1, 4),
        "n": np.array([[4]], np.float32),
        "t": np.array([[1]], np.float32),
        "s": floats(1, 4),
    }
    shapes = [((1, 4, 4), "float32"), ((1, 1), "float32"), ((1, 4), "float32"), ((1, 4), "float32")]
    with pytest.raises(
        UnsupportedError,
        match=(
            "method=LINEAR is not supported: its decay is undocumented, and the vendor's "
            "executor computes HARD instead"
        ),
    ):
        converter.load(
            document(tmp_path, "NMS", feeds, shapes, {"method": "LINEAR", "iou_threshold": 0.5}, {})
        )


@pytest.mark.parametrize("mode", ["default_detect", "caffe_detection"])
@pytest.mark.parametrize("size", [40, 6])
def test_detections_of_proposals(mode: str, size: int, tmp_path: Path) -> None:
    classes, count, height, width = 3, 5, 300.0, 200.0
    scores, deltas = floats(1, count, classes + 1), floats(1, count, classes, 4)
    proposals = (corners(1, count) * 150).astype(np.float32)
    kept, values, counts, labels = (
        np.zeros((1, size, 4)),
        np.zeros((1, size)),
        np.zeros((1, 4)),
        np.zeros((1, 4)),
    )
    at, there = 0, 0
    order = [1, 0] if mode.startswith("caffe") else [0, 1]  # where y stands
    for c in range(classes):
        mine = 0
        for p in range(count):
            if scores[0, p, c + 1] > 0.5 and at < size:
                low, high, move = (
                    proposals[0, p, :2],
                    proposals[0, p, 2:],
                    deltas[0, p, c] / np.array([10, 10, 5, 5]),
                )
                center, half = (
                    (low + high) / 2 + move[:2] * (high - low),
                    np.exp(move[2:]) * (high - low) / 2,
                )
                limit = [(height, width), (width, height)][order[0]]
                box = [np.clip(v, 0, limit)[order] for v in (center - half, center + half)]
                kept[0, at], values[0, at] = np.concatenate(box), scores[0, p, c + 1]
                at, mine = at + 1, mine + 1
        if mine:
            counts[0, there], labels[0, there], there = mine, c, there + 1
    shapes = [
        ((1, size), "float32"),
        ((1, size, 4), "float32"),
        ((1, 4), "float32"),
        ((1, 4), "float32"),
        ((1, 1), "float32"),
    ]
    attrs = {
        "image_height": 300,
        "image_width": 200,
        "score_threshold": 0.5,
        "variance": "[10,10,5,5]",
        "anchor_mode": mode,
    }
    found = compute(
        tmp_path, "DetectionOutput", {"s": scores, "d": deltas, "p": proposals}, shapes, **attrs
    )
    equal(found, [values, kept, counts, labels, [[there]]])


@pytest.mark.parametrize("most", [20, 4])
def test_boxes_are_filtered(most: int, tmp_path: Path) -> None:
    boxes, scores = corners(1, 9), floats(1, 9)
    counts, labels, number = (
        np.array([[4, 2, 3]], np.float32),
        np.array([[5, 0, 2]], np.float32),
        np.array([[3]], np.float32),
    )
    scores[0, 4:6] = 0
    kept, values, per, names, at, there = (
        np.zeros((1, most, 4)),
        np.zeros((1, most)),
        np.zeros((1, 3)),
        np.zeros((1, 3)),
        0,
        0,
    )
    for c, (start, end) in enumerate(pairwise([0, 4, 6, 9])):
        good = [
            i
            for i in range(start, end)
            if scores[0, i] > 0.2 and (boxes[0, i, 2:] - boxes[0, i, :2] >= [0.05, 0.1]).all()
        ][: most - at]
        if good:
            kept[0, at : at + len(good)], values[0, at : at + len(good)] = (
                boxes[0, good],
                scores[0, good],
            )
            per[0, there], names[0, there], at, there = (
                len(good),
                labels[0, c],
                at + len(good),
                there + 1,
            )
    feeds = {"b": boxes, "s": scores, "n": counts, "l": labels, "t": number}
    shapes = [
        ((1, most, 4), "float32"),
        ((1, most), "float32"),
        ((1, 3), "float32"),
        ((1, 3), "float32"),
        ((1, 1), "float32"),
    ]
    found = compute(
        tmp_path,
        "FilterBoxes",
        feeds,
        shapes,
        score_threshold=0.2,
        min_size="[0.05,0.1]",
        maxnum=most,
    )
    equal(found, [kept, values, per, names, [[there]]])


def test_boxes_after_a_suppression(tmp_path: Path) -> None:
    boxes = (corners(1, 6) * 100).astype(np.float32)
    keep, counts = np.array([[4, 1, 0, 0, 0]], np.float32), np.array([[3]], np.float32)
    wanted = np.zeros((1, 8, 4))
    wanted[0, :3] = boxes[0, [4, 1, 0]]
    found = compute(
        tmp_path,
        "PostNMS1",
        {"b": boxes, "k": keep, "n": counts},
        [((1, 8, 4), "float32")] * 2,
        proposal_cnt=8,
        image_height=300,
        image_width=200,
    )
    equal(found, [wanted, wanted / 300])
