"""Operators on groups of rows whose number is known only at run time."""

from __future__ import annotations

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension
from converter.graph.infer import rank_of
from converter.graph.value import INT64


def _count(b: Builder, size: Value) -> Value:
    """Return 0, 1, .., size - 1 for a scalar int64 size."""
    return b.Range(0, size, 1)


@extension
def FillEmptyRows(
    b: Builder, values: Value, shape: Value, indices: Value, default: Value
) -> tuple[Value, Value, Value]:
    """Add `default` in column 0 of each empty row of a sparse matrix of `shape` (rows, columns),
    given as values[n] at indices[n, 2].

    Results: the indices ordered by row and column, their values, and which rows were empty
    (bool[rows]).
    """
    size = b.Cast(shape, to=INT64)
    where = b.Cast(indices, to=INT64)
    row, column = (b.Gather(where, i, axis=1) for i in (0, 1))
    rows = _count(b, b.Gather(size, 0, axis=0))
    owned = b.Cast(b.Equal(rows[:, None], row[None]), to=INT64)
    empty = b.Equal(b.ReduceSum(owned, [1], keepdims=0), 0)
    added = b.Reshape(b.NonZero(b.Cast(empty, to=INT64)), [-1])
    every_row = b.Concat(row, added, axis=0)
    every_column = b.Concat(column, added * 0, axis=0)
    filled = b.Concat(values, b.Expand(b.Reshape(default, [1]), b.Shape(added)), axis=0)
    width = b.Gather(size, 1, axis=0)
    key = every_row * width + every_column
    order = b.TopK(key, b.Shape(key), axis=0, largest=0, sorted=1, outputs=2)[1]
    pairs = b.Concat(every_row[:, None], every_column[:, None], axis=1)
    return (
        b.CastLike(b.Gather(pairs, order, axis=0), indices),
        b.Gather(filled, order, axis=0),
        empty,
    )


@extension
def GroupedMatMul(b: Builder, x: Value, w: Value, ends: Value | None = None) -> Value:
    """x[G, M, K] with w[G, N, K]: one product per group, [G, M, N].

    x[T, K]: row t belongs to the first group with t < ends[g], [T, N].

    Rows after the last end are 0. ends[G]: ascending integers.
    """
    transposed = b.Transpose(w, perm=[0, 2, 1])
    if rank_of(x) == 3 or ends is None:
        return x @ transposed
    rows = _count(b, b.Squeeze(b.Shape(x, start=0, end=1), [0]))[None]
    last = b.Cast(ends, to=INT64)[:, None]
    begun = b.Pad(last[:-1], [1, 0, 0, 0])
    mine = (rows >= begun) & (rows < last)  # [G, T]
    alone = b.Where(mine[:, :, None], x[None], 0)
    return b.ReduceSum(alone @ transposed, [0], keepdims=0)
