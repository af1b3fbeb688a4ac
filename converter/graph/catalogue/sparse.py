"""Sparse tensors as lists of indices and values, and other results whose length is only known at run time, in fixed shapes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.catalogue.selection import front, static
from converter.graph.catalogue.suppression import ranked
from converter.graph.extensions import extension
from converter.graph.infer import shape_of
from converter.graph.sizes import arange
from converter.mapping.node import MappingError

INT64, FLOAT = int(ir.DataType.INT64), int(ir.DataType.FLOAT)


def _length(v: ir.Value) -> int:
    shape = shape_of(v)
    if not shape:
        raise MappingError("the operator needs static shapes", "X203", "fix them with --inputs")
    return shape[0]


def _same_row(b: Builder, ids: ir.Value, rows: int, like: ir.Value) -> ir.Value:
    """[rows, n] of 1 where the element belongs to the row, else 0."""
    wide = b.op("Unsqueeze", b.op("Cast", ids, to=INT64), [0])
    return b.op("CastLike", b.op("Equal", wide, arange(rows).reshape(-1, 1)), like)


@extension
def SparseSegment(b: Builder, data: ir.Value, indices: ir.Value, segments: ir.Value, *, rows: int, mode: str = "sum") -> ir.Value:
    """Row s of the result: sum of data[indices[i]] over all i with segments[i] = s, divided by their number ("mean") or its root ("sqrtn")."""
    belongs = _same_row(b, segments, rows, data)
    picked = b.op("Gather", data, b.op("Cast", indices, to=INT64))
    shape = b.op("Shape", data)
    total = b.op("MatMul", belongs, b.op("Reshape", picked, [_length(indices), -1]))
    if mode != "sum":
        count = b.op("Max", b.op("ReduceSum", belongs, [1], keepdims=1), b.like(data, 1))
        total = b.op("Div", total, count if mode == "mean" else b.op("Sqrt", count))
    return b.op("Reshape", total, b.op("Concat", [rows], b.op("Slice", shape, [1], [1 << 30]), axis=0))


@extension
def SparseWeightedSum(
    b: Builder, indices: ir.Value, values: ir.Value, table: ir.Value, default: ir.Value, weights: ir.Value | None = None, *, rows: int
) -> ir.Value:
    """Row r: sum of table[values[i]] * weights[i] over all i with indices[i, 0] = r; table[default] where there is none."""
    owner = b.op("Gather", indices, 0, axis=1)
    belongs = _same_row(b, owner, rows, table)
    some = b.op("Greater", b.op("ReduceMax", belongs, [1], keepdims=1), b.like(table, 0))
    scaled = belongs if weights is None else b.op("Mul", belongs, b.op("Unsqueeze", weights, [0]))
    flat = b.op("Reshape", table, b.op("Concat", b.op("Slice", b.op("Shape", table), [0], [1]), [-1], axis=0))
    total = b.op("MatMul", scaled, b.op("Gather", flat, b.op("Cast", values, to=INT64)))
    missing = b.op("Gather", flat, b.op("Reshape", b.op("Cast", default, to=INT64), [1]))
    tail = b.op("Slice", b.op("Shape", table), [1], [1 << 30])
    return b.op("Reshape", b.op("Where", some, total, missing), b.op("Concat", [rows], tail, axis=0))


@extension
def SparseFillEmptyRows(b: Builder, indices: ir.Value, values: ir.Value, default: ir.Value, *, rows: int, length: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The entries ordered by row, with (row, 0) = default for each of the `rows` rows that has none, and which rows these are.

    indices[n, 2], values[n] -> indices[length, 2] (the end marked by -1, then 0), values[length] (0 behind the end), empty[rows] of 0 and 1.
    Entries from the first negative row on do not count.
    """
    n = _length(values)
    row = b.op("Cast", b.op("Gather", indices, 0, axis=1), to=INT64)
    ended = b.op("CumSum", b.op("Cast", b.op("Less", row, 0), to=INT64), 0)
    row = b.op("Where", b.op("Equal", ended, 0), row, rows)
    empty = b.op("Equal", b.op("ReduceMax", _same_row(b, row, rows, values), [1], keepdims=0), b.like(values, 0))
    key = b.op("Concat", row, b.op("Where", empty, arange(rows), rows), axis=0)
    order = b.ops("TopK", key, [n + rows], outputs=2, axis=0, largest=0)[1]
    own = np.stack([arange(rows), np.zeros(rows, np.int64)], 1)
    where = b.op("Gather", b.op("Concat", indices, b.op("CastLike", b.const(own), indices), axis=0), order)
    what = b.op("Gather", b.op("Concat", values, b.op("Expand", b.op("Reshape", default, [1]), [rows]), axis=0), order)
    valid = b.op("Less", b.op("Gather", key, order), rows)
    found = b.op("ReduceSum", b.op("Cast", valid, to=INT64), keepdims=0)
    where = b.op("Where", b.op("Unsqueeze", valid, [1]), where, b.like(where, 0))
    what = b.op("Where", valid, what, b.like(what, 0))
    extra = max(0, length - n - rows)
    where = b.op("Slice", b.op("Pad", where, [0, 0, extra, 0], b.like(where, 0)), [0], [length])
    what = b.op("Slice", b.op("Pad", what, [0, extra], b.like(what, 0)), [0], [length])
    end = b.op("Unsqueeze", b.op("Equal", arange(length), found), [1])
    return b.op("Where", end, b.like(where, -1), where), what, b.op("CastLike", empty, values)


@extension
def FixedUnique(b: Builder, x: ir.Value, *, sorted: int = 1) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Distinct values of x[n] filled up with the last of them, the position of each element among them, and their counts filled up with 0."""
    n = _length(x)
    values, _, inverse, counts = b.ops("Unique", x, outputs=4, sorted=sorted)
    found = b.op("Shape", values)
    places = b.op("Min", arange(n), b.op("Sub", found, 1))
    filled = b.op("Pad", counts, b.op("Concat", [0], b.op("Sub", n, found), axis=0), b.const(np.int64(0)))
    return b.op("Gather", values, places), b.op("Reshape", inverse, [n]), b.op("Reshape", filled, [n])


@extension
def FixedNonMaxSuppression(
    b: Builder, boxes: ir.Value, scores: ir.Value, most: ir.Value | None = None, iou: ir.Value | None = None, least: ir.Value | None = None,
    *, rows: int, center_point_box: int = 0, sort_result_descending: int = 1,
) -> ir.Value:  # fmt: skip
    """NonMaxSuppression in `rows` rows [batch, class, box], filled up with -1; if asked, all rows together fall by score.

    Without `most` every box may stay, without `iou` the threshold is 1, without `least` the score must exceed 0.
    """
    size = shape_of(scores)
    if size is None:
        raise MappingError("the suppression of boxes needs static shapes", "X203", "fix them with --inputs")
    high = b.op("Where", b.op("Greater", scores, _one(b, least, 0.0)), scores, float("-inf"))
    mask = b.ext("SuppressionMask", boxes, high, _one(b, iou, 1.0), center_point_box=center_point_box)
    values, places, real = ranked(b, mask, high, size[2])
    if most is not None:
        real = b.op("And", real, b.op("Less", arange(size[2]), b.op("Reshape", b.op("Cast", most, to=INT64), [1])))
    return _rows(b, values, places, real, rows, bool(sort_result_descending))


def _one(b: Builder, value: ir.Value | None, default: float) -> ir.Value:
    return b.const(np.array([default], np.float32)) if value is None else b.op("Reshape", value, [1])


def _rows(b: Builder, values: ir.Value, places: ir.Value, real: ir.Value, count: int, falling: bool) -> ir.Value:
    """[count, 3] of the real ones among the ranked [B, C, N]: batch, class, box; -1 behind them."""
    batch, classes, n = static(places)
    flat = [b.op("Reshape", v, [1, -1]) for v in (values, places, real)]
    if falling:
        found, order = b.ops("TopK", b.op("Where", flat[2], flat[0], float("-inf")), [min(count, batch * classes * n)], outputs=2, axis=1)
        good = b.op("Greater", found, float("-inf"))
    else:
        order, good = front(b, flat[2], min(count, batch * classes * n))
    group = b.op("Div", order, n)
    columns = [b.op("Div", group, classes), b.op("Mod", group, classes), b.op("GatherElements", flat[1], order, axis=1)]
    table = b.op("Concat", *(b.op("Reshape", b.op("Where", good, c, -1), [-1, 1]) for c in columns), axis=1)
    spare = count - batch * classes * n
    return b.op("Pad", table, [0, 0, spare, 0], b.const(np.int64(-1))) if spare > 0 else table
