"""Sparse tensors as lists of indices and values, and other results of data-dependent length, in
fixed shapes.
"""

from __future__ import annotations

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.catalogue.compact import first_true_indices
from converter.graph.catalogue.overlaps import as_int64
from converter.graph.catalogue.suppression import ranked
from converter.graph.extensions import SOME, extension
from converter.graph.sizes import arange, static
from converter.graph.value import INT64


def _same_row(b: Builder, ids: Value, rows: int, like: Value) -> Value:
    """Return [rows, n]: 1 if the element belongs to the row, else 0."""
    wide = b.Cast(ids, to=INT64)[None]
    return b.CastLike(b.Equal(wide, arange(rows).reshape(-1, 1)), like)


@extension(indices=SOME)
def SparseSegment(
    b: Builder, data: Value, indices: Value, segments: Value, *, rows: int, mode: str = "sum"
) -> Value:
    """Row s of the result: sum of data[indices[i]] over all i with segments[i] = s, divided by
    their number ("mean") or the root of it ("sqrtn").
    """
    belongs = _same_row(b, segments, rows, data)
    picked = b.Gather(data, b.Cast(indices, to=INT64))
    shape = b.Shape(data)
    total = belongs @ b.Reshape(picked, [static(indices)[0], -1])
    if mode != "sum":
        count = b.Max(b.ReduceSum(belongs, [1], keepdims=1), 1)
        total = total / (count if mode == "mean" else b.Sqrt(count))
    return b.Reshape(total, b.Concat([rows], shape[1:], axis=0))


@extension
def SparseWeightedSum(
    b: Builder,
    indices: Value,
    values: Value,
    table: Value,
    default: Value,
    weights: Value | None = None,
    *,
    rows: int,
) -> Value:
    """Row r: sum of table[values[i]] * weights[i] over all i with indices[i, 0] = r; table[default]
    if there is none.
    """
    owner = b.Gather(indices, 0, axis=1)
    belongs = _same_row(b, owner, rows, table)
    some = b.ReduceMax(belongs, [1], keepdims=1) > 0
    scaled = belongs if weights is None else belongs * weights[None]
    flat = b.Reshape(table, b.Concat(b.Shape(table)[:1], [-1], axis=0))
    total = scaled @ b.Gather(flat, b.Cast(values, to=INT64))
    missing = b.Gather(flat, as_int64(b, default))
    tail = b.Shape(table)[1:]
    return b.Reshape(b.Where(some, total, missing), b.Concat([rows], tail, axis=0))


@extension(values=SOME)
def SparseFillEmptyRows(
    b: Builder, indices: Value, values: Value, default: Value, *, rows: int, length: int
) -> tuple[Value, Value, Value]:
    """Return the entries ordered by row, with (row, 0) = default added for each of the `rows` rows
    without entries, and which rows these are.

    indices[n, 2], values[n] -> indices[length, 2] (the end is marked by -1, then 0), values[length]
    (0 after the end), empty[rows] of 0 and 1. Entries from the first negative row on are ignored.
    """
    n = static(values)[0]
    row = b.Cast(b.Gather(indices, 0, axis=1), to=INT64)
    ended = b.CumSum(b.Cast(row < 0, to=INT64), 0)
    row = b.Where(b.Equal(ended, 0), row, rows)
    empty = b.Equal(b.ReduceMax(_same_row(b, row, rows, values), [1], keepdims=0), 0)
    key = b.Concat(row, b.Where(empty, arange(rows), rows), axis=0)
    # all keys differ, because IR v10 has no stable sort
    positions = key * (n + rows) + arange(n + rows)
    order = b.TopK(positions, [n + rows], outputs=2, axis=0, largest=0)[1]
    own = np.stack([arange(rows), np.zeros(rows, np.int64)], 1)
    where = b.Gather(b.Concat(indices, b.CastLike(own, indices), axis=0), order)
    what = b.Gather(b.Concat(values, b.Expand(b.Reshape(default, [1]), [rows]), axis=0), order)
    valid = b.Gather(key, order) < rows
    found = b.ReduceSum(b.Cast(valid, to=INT64), keepdims=0)
    where = b.Where(valid[:, None], where, 0)
    what = b.Where(valid, what, 0)
    extra = max(0, length - n - rows)
    where = b.Pad(where, [0, 0, extra, 0], 0)[:length]
    what = b.Pad(what, [0, extra], 0)[:length]
    end = b.Equal(arange(length), found)[:, None]
    return b.Where(end, -1, where), what, b.CastLike(empty, values)


@extension(x=SOME)
def FixedUnique(b: Builder, x: Value, *, sorted: int = 1) -> tuple[Value, Value, Value]:
    """Distinct values of x[n] padded with the last of them, the index of each element among them,
    and their counts padded with 0.
    """
    n = static(x)[0]
    values, _, inverse, counts = b.Unique(x, outputs=4, sorted=sorted)
    found = b.Shape(values)
    positions = b.Min(arange(n), found - 1)
    filled = b.Pad(counts, b.Concat([0], n - found, axis=0), 0)
    return (b.Gather(values, positions), b.Reshape(inverse, [n]), b.Reshape(filled, [n]))


@extension(scores=3)
def FixedNonMaxSuppression(
    b: Builder,
    boxes: Value,
    scores: Value,
    most: Value | None = None,
    iou: Value | None = None,
    least: Value | None = None,
    *,
    rows: int,
    center_point_box: int = 0,
    sort_result_descending: int = 1,
) -> Value:
    """NonMaxSuppression with `rows` rows [batch, class, box], padded with -1; if requested, all
    rows together are in descending order of score.

    The defaults are no limit (`most`), the threshold 1 (`iou`), and scores above 0 (`least`).
    """
    count = static(scores, "the scores")[2]
    high = b.Where(scores > _one(b, least, 0.0), scores, float("-inf"))
    mask = b.SuppressionMask(boxes, high, _one(b, iou, 1.0), center_point_box=center_point_box)
    values, positions, real = ranked(b, mask, high, count)
    if most is not None:
        real = real & b.Less(arange(count), as_int64(b, most))
    return suppressed_rows(b, values, positions, real, rows, bool(sort_result_descending))


def _one(b: Builder, value: Value | None, default: float) -> Value:
    return b.const(np.array([default], np.float32)) if value is None else b.Reshape(value, [1])


def suppressed_rows(
    b: Builder, values: Value, positions: Value, real: Value, count: int, falling: bool
) -> Value:
    """Return [count, 3] of the valid entries among the ranked [B, C, N]: batch, class, box; -1
    after them.
    """
    batch, classes, n = static(positions)
    flat = [b.Reshape(v, [1, -1]) for v in (values, positions, real)]
    if falling:
        found, order = b.TopK(
            b.Where(flat[2], flat[0], float("-inf")),
            [min(count, batch * classes * n)],
            outputs=2,
            axis=1,
        )
        good = found > float("-inf")
    else:
        order, good = first_true_indices(b, flat[2], min(count, batch * classes * n))
    group = order / n
    columns = [group / classes, group % classes, b.GatherElements(flat[1], order, axis=1)]
    table = b.Concat(*(b.Reshape(b.Where(good, c, -1), [-1, 1]) for c in columns), axis=1)
    spare = count - batch * classes * n
    return b.Pad(table, [0, 0, spare, 0], -1) if spare > 0 else table
