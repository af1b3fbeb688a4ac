"""Soft suppression of grouped boxes: a box that is kept takes from the scores of its neighbours by how much it overlaps them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.catalogue.selection import FLOAT, INT64, static
from converter.graph.catalogue.ssd import class_of
from converter.graph.extensions import extension
from converter.graph.sizes import arange

BOOL = int(ir.DataType.BOOL)
DEAD = -1e38  # candidates that are out have the score -inf


@extension
def GroupedSoftNMS(
    b: Builder, boxes: ir.Value, counts: ir.Value, number: ir.Value, scores: ir.Value, *, size: int, per_class: int, iou_threshold: float,
    score_threshold: float, sigma: float,
) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:  # fmt: skip
    """Gaussian suppression within each class of a group (see GroupedNMS), boxes as y1, x1, y2, x2.

    From the best score down a box is kept unless it overlaps a kept one by `iou_threshold` or more; the scores of those that remain
    are multiplied by exp(-iou ** 2 / (2 * sigma)). What falls to `score_threshold` is out.
    Results: boxes[b, size, 4], counts[b, C], scores[b, size], numbers within the class[b, size]; float, filled with 0.
    """
    batch, n = static(scores)
    c = static(counts)[1]
    label, real, starts = class_of(b, counts, None, number, n)
    member = b.op("Equal", b.op("Unsqueeze", label, [1]), b.const(arange(c, dtype=np.float32).reshape(1, c, 1)))
    member = b.op("And", member, b.op("Unsqueeze", real, [1]))
    first = b.op("Reshape", b.op("Where", member, b.op("Unsqueeze", scores, [1]), b.like(scores, -np.inf)), [batch * c, n])
    shared, close = _overlaps(b, boxes, iou_threshold)
    pairs = [b.op("Reshape", b.op("Expand", b.op("Unsqueeze", v, [1]), [batch, c, n, n]), [batch * c, n, n]) for v in (shared, close)]
    zeros, none = b.const(np.zeros([batch * c, n], np.float32)), b.const(np.zeros([batch * c, 1], np.float32))
    body = _turn(b, pairs, batch * c, n, (per_class, score_threshold, sigma))
    found = b.ops("Loop", b.const(np.array(n)), b.const(np.array(True)), first, zeros, zeros, zeros, none, outputs=5, body=body)
    kept, order, values = (b.op("Reshape", v, [batch, c, n]) for v in found[1:4])
    return _packed(b, boxes, (kept, order, values), b.op("Reshape", found[4], [batch, c]), starts, size)


def _overlaps(b: Builder, boxes: ir.Value, threshold: float) -> tuple[ir.Value, ir.Value]:
    """Of all pairs of boxes [b, n, 4]: the shared part of their union, and whether it reaches the threshold (as floats)."""
    y1, x1, y2, x2 = (b.op("Gather", boxes, np.array([i]), axis=2) for i in range(4))
    low, high = [b.op("Min", y1, y2), b.op("Min", x1, x2)], [b.op("Max", y1, y2), b.op("Max", x1, x2)]
    sides = []
    for a, e in zip(low, high, strict=True):
        across = [b.op("Transpose", v, perm=[0, 2, 1]) for v in (a, e)]
        sides.append(b.op("Max", b.op("Sub", b.op("Min", e, across[1]), b.op("Max", a, across[0])), b.like(boxes, 0)))
    inter = b.op("Mul", sides[0], sides[1])
    area = b.op("Abs", b.op("Mul", b.op("Sub", y2, y1), b.op("Sub", x2, x1)))
    union = b.op("Sub", b.op("Add", area, b.op("Transpose", area, perm=[0, 2, 1])), inter)
    empty = b.op("Equal", union, b.like(union, 0))
    ratio = b.op("Where", empty, b.like(union, 0), b.op("Div", inter, b.op("Where", empty, b.like(union, 1), union)))
    return ratio, b.op("Cast", b.op("GreaterOrEqual", inter, b.op("Mul", union, b.like(union, threshold))), to=FLOAT)


def _turn(b: Builder, pairs: list[ir.Value], groups: int, n: int, limits: tuple[int, float, float]) -> ir.Graph:
    """One candidate of each group is looked at: states scores, kept, order, values [groups, n] and how many are kept [groups, 1]."""
    per_class, least, sigma = limits
    t = b.body("suppression")
    t.input("turn", ir.DataType.INT64, [])
    go = t.input("go", ir.DataType.BOOL, [])
    scores, kept, order, values = (t.input(name, ir.DataType.FLOAT, [groups, n]) for name in ("scores", "kept", "order", "values"))
    count = t.input("count", ir.DataType.FLOAT, [groups, 1])
    top = t.op("ReduceMax", scores, [1], keepdims=1)
    chosen = t.op("Equal", t.op("ArgMax", scores, axis=1, keepdims=1), t.const(arange(n).reshape(1, n)))
    one = t.op("Cast", chosen, to=FLOAT)
    near, close = (t.op("Squeeze", t.op("MatMul", t.op("Unsqueeze", one, [1]), v), [1]) for v in pairs)
    alive = t.op("And", t.op("Greater", top, t.like(top, least)), t.op("Less", count, t.like(count, per_class)))
    taken = t.op("And", alive, t.op("Equal", t.op("ReduceMax", t.op("Mul", kept, close), [1], keepdims=1), t.like(kept, 0)))
    mark = t.op("Mul", one, t.op("Cast", taken, to=FLOAT))
    fade = t.op("Exp", t.op("Mul", t.op("Mul", near, near), t.like(near, -0.5 / sigma)))
    out = t.op("Or", t.op("And", chosen, alive), t.op("Less", scores, t.like(scores, DEAD)))
    weaker = t.op("Where", taken, t.op("Mul", scores, fade), scores)
    t.output(
        t.op("Identity", go), t.op("Where", out, t.like(scores, -np.inf), weaker), t.op("Add", kept, mark), t.op("Add", order, t.op("Mul", mark, count)),
        t.op("Where", t.op("Greater", mark, t.like(mark, 0)), top, values), t.op("Add", count, t.op("Cast", taken, to=FLOAT)),
    )  # fmt: skip
    return t.graph


def _packed(
    b: Builder, boxes: ir.Value, found: tuple[ir.Value, ir.Value, ir.Value], counts: ir.Value, starts: ir.Value, size: int
) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """The kept ones of [b, C, n] behind each other, class by class, in the order in which they were kept."""
    kept, order, values = found
    batch, c, n = static(kept)
    offset = b.op("Unsqueeze", b.op("CumSum", counts, b.const(np.array(1)), exclusive=1), [2])
    place = b.op("Min", b.op("Add", offset, order), b.like(order, size))
    place = b.op("Cast", b.op("Where", b.op("Greater", kept, b.like(kept, 0)), place, b.like(place, size)), to=INT64)
    at = b.op("Reshape", place, [batch, c * n])

    def placed(data: ir.Value, tail: list[int]) -> ir.Value:
        index = b.op("Expand", b.op("Reshape", at, [batch, c * n, *[1] * len(tail)]), [batch, c * n, *tail])
        spread = b.op("Reshape", b.op("Expand", b.op("Unsqueeze", data, [1]), [batch, c, n, *tail]), [batch, c * n, *tail])
        filled = b.op("ScatterElements", b.const(np.zeros([batch, size + 1, *tail], np.float32)), index, spread, axis=1)
        return b.op("Slice", filled, [0], [size], [1])

    inner = b.op("Sub", b.const(arange(n, dtype=np.float32)), starts)
    score = b.op("ScatterElements", b.const(np.zeros([batch, size + 1], np.float32)), at, b.op("Reshape", values, [batch, c * n]), axis=1)
    shown = b.op("ReduceSum", b.op("Cast", b.op("Less", place, b.like(place, size)), to=FLOAT), [2], keepdims=0)
    return placed(boxes, [4]), shown, b.op("Slice", score, [0], [size], [1]), placed(inner, [])
