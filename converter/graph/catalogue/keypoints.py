"""Extension operators on heat maps, and on boxes that belong to classes. Source: Android's NeuralNetworksTypes.h."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.catalogue.selection import static
from converter.graph.extensions import extension

Value = ir.Value
INT64 = int(ir.DataType.INT64)


def columns(b: Builder, boxes: Value, count: int = 4) -> list[Value]:
    """The last axis apart, each with one element left on it."""
    rank = len(static(boxes))
    return [b.op("Slice", boxes, [i], [i + 1], [rank - 1]) for i in range(count)]


@extension
def TransformBoxes(b: Builder, rois: Value, deltas: Value, index: Value, image: Value) -> Value:
    """rois [n, 4] (x1, y1, x2, y2) moved and scaled by deltas [n, 4c] (dx, dy, log of width and height), one box for each class.

    The result [n, 4c] is clipped to the image of the box: image [batch, 2] has heights and widths, index [n] the entry of the batch.
    """
    n, width = static(deltas)
    sides = b.op("Gather", image, b.op("Cast", index, to=INT64), axis=0)
    limits = b.op("Gather", sides, np.array([1, 0]), axis=1)  # width, height
    low, high = (b.op("Slice", rois, [i], [i + 2], [1]) for i in (0, 2))
    size = b.op("Unsqueeze", b.op("Sub", high, low), [1])  # [n, 1, 2]
    middle = b.op("Unsqueeze", b.op("Mul", b.op("Add", low, high), b.like(rois, 0.5)), [1])
    each = b.op("Reshape", deltas, [n, width // 4, 4])
    each = each if rois.dtype == deltas.dtype else b.op("CastLike", each, rois)
    moved = b.op("Add", middle, b.op("Mul", b.op("Slice", each, [0], [2], [2]), size))
    half = b.op("Mul", b.op("Mul", b.op("Exp", b.op("Slice", each, [2], [4], [2])), size), b.like(rois, 0.5))
    corners = [b.op("Sub", moved, half), b.op("Add", moved, half)]
    bound = b.op("Unsqueeze", limits, [1])
    inside = [b.op("Max", b.op("Min", c, bound), b.like(rois, 0)) for c in corners]
    return b.op("Reshape", b.op("Concat", *inside, axis=2), [n, width])


@extension
def HeatmapKeypoints(b: Builder, x: Value, boxes: Value) -> tuple[Value, Value]:
    """For each map of x [n, k, s, s] the score [n, k] and the place [n, k, 2] (x, y) of its maximum within the box [n, 4] (x1, y1, x2, y2).

    The maximum is that of the parabola through the largest element and its eight neighbours (mirrored at the border), at most 1.5 elements away.
    """
    n, k, height, width = static(x)
    flat = b.op("Reshape", x, [n, k, height * width])
    place = b.op("ArgMax", flat, axis=2, keepdims=1)
    column, row = b.op("Mod", place, b.const(np.int64(width))), b.op("Div", place, b.const(np.int64(width)))
    grid = {(i, j): b.op("GatherElements", flat, _neighbour(b, row, column, i, j, height, width), axis=2) for i in (-1, 0, 1) for j in (-1, 0, 1)}
    dx, dy, score = _peak(b, grid)
    ends = columns(b, boxes)
    found = []
    for at, delta, size, low, high in ((column, dx, width, ends[0], ends[2]), (row, dy, height, ends[1], ends[3])):
        relative = b.op("Div", b.op("Add", b.op("Add", b.op("CastLike", at, x), delta), b.like(x, 0.5)), b.like(x, size))
        first, last = (b.op("CastLike", b.op("Unsqueeze", v, [1]), x) for v in (low, high))
        found.append(b.op("Add", b.op("Mul", relative, b.op("Sub", last, first)), first))
    return b.op("Squeeze", score, [2]), b.op("CastLike", b.op("Concat", *found, axis=2), boxes)


def _neighbour(b: Builder, row: Value, column: Value, i: int, j: int, height: int, width: int) -> Value:
    """The flat place of a neighbour; one row or column outside is mirrored."""
    parts = []
    for at, step, size in ((row, i, height), (column, j, width)):
        moved = b.op("Abs", b.op("Add", at, b.const(np.int64(step))))
        last = b.const(np.int64(size - 1))
        parts.append(b.op("Sub", last, b.op("Abs", b.op("Sub", last, moved))))
    return b.op("Add", b.op("Mul", parts[0], b.const(np.int64(width))), parts[1])


def _peak(b: Builder, g: dict[tuple[int, int], Value]) -> tuple[Value, Value, Value]:
    """Newton's step from the middle of a 3 x 3 grid, and the value there; no step where the curvature has no inverse."""
    middle = g[0, 0]

    def times(v: Value, factor: float) -> Value:
        return b.op("Mul", v, b.like(middle, factor))

    b0, b1 = times(b.op("Sub", g[0, -1], g[0, 1]), 0.5), times(b.op("Sub", g[-1, 0], g[1, 0]), 0.5)
    a00 = b.op("Add", b.op("Sub", g[0, -1], times(middle, 2)), g[0, 1])
    a11 = b.op("Add", b.op("Sub", g[-1, 0], times(middle, 2)), g[1, 0])
    a01 = times(b.op("Add", b.op("Sub", g[1, 1], g[1, -1]), b.op("Sub", g[-1, -1], g[-1, 1])), 0.25)
    first, second = b.op("Mul", a00, a11), b.op("Mul", a01, a01)
    determinant = b.op("Sub", first, second)
    least = b.op("Add", times(b.op("Max", first, second), 1e-5), b.like(middle, 1e-5))
    flat = b.op("Less", b.op("Abs", determinant), least)
    safe = b.op("Where", flat, b.like(middle, 1), determinant)
    steps = [
        b.op("Div", b.op("Sub", b.op("Mul", a11, b0), b.op("Mul", a01, b1)), safe),
        b.op("Div", b.op("Sub", b.op("Mul", a00, b1), b.op("Mul", a01, b0)), safe),
    ]
    longest = b.op("Max", b.op("Max", b.op("Abs", steps[0]), b.op("Abs", steps[1])), b.like(middle, 1.5))
    dx, dy = (b.op("Where", flat, b.like(middle, 0), b.op("Mul", s, b.op("Div", b.like(middle, 1.5), longest))) for s in steps)
    bent = b.op(
        "Add",
        b.op("Mul", b.op("Add", b.op("Mul", a00, dx), b.op("Mul", a01, dy)), dx),
        b.op("Mul", b.op("Add", b.op("Mul", a01, dx), b.op("Mul", a11, dy)), dy),
    )
    slope = b.op("Add", b.op("Mul", b0, dx), b.op("Mul", b1, dy))
    return dx, dy, b.op("Add", b.op("Sub", middle, slope), times(bent, 0.5))
