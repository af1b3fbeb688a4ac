"""Sums over segments of rows, and weighted lookups in an embedding table."""

from __future__ import annotations

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.extensions import SOME, extension
from converter.graph.infer import rank_of
from converter.graph.sizes import arange, static
from converter.graph.value import FLOAT, INT64


def _members(b: Builder, ids: Value, rows: int) -> Value:
    """Return [rows, n]: 1 if ids[n] is the row."""
    given = b.Cast(b.Reshape(ids, [1, -1]), to=INT64)
    return b.Cast(b.Equal(given, arange(rows).reshape(rows, 1)), to=FLOAT)


@extension(x=SOME)
def SegmentSum(b: Builder, x: Value, ids: Value, *, rows: int) -> Value:
    """y[r, ...] = sum of x[i, ...] with ids[i] == r, for `rows` rows.

    x[n, ...], ids[n] integers in any order -> [rows, ...], 0 for a row without members.
    """
    shape = static(x)
    flat = b.Cast(b.Reshape(x, [shape[0], int(np.prod(shape[1:]))]), to=FLOAT)
    y = b.Reshape(_members(b, ids, rows) @ flat, [rows, *shape[1:]])
    return y if x.dtype in (None, FLOAT) else b.Cast(y, to=x.dtype)


@extension(params=SOME)
def EmbeddingLookupSparse(
    b: Builder,
    params: Value,
    rows: Value,
    ids: Value,
    weights: Value,
    *,
    count: int,
    combiner: str = "MEAN",
) -> Value:
    """Rows params[ids[i]] * weights[i], summed into row rows[i] (SUM), divided by the sum of
    weights (MEAN) or the root of that of their squares (SQRTN).

    `rows` is [n] or [n, d], of which the first column is used. The result has `count` rows; one
    without members is 0. params[E, ...], rows, ids and weights[n] -> [count, ...]. Source:
    TensorFlow, embedding_lookup_sparse.
    """
    shape = static(params)
    if rank_of(rows) != 1:
        rows = b.Gather(rows, 0, axis=1)
    members = _members(b, rows, count)
    w = b.Reshape(weights, [-1, 1])
    found = b.Gather(b.Reshape(params, [shape[0], int(np.prod(shape[1:]))]), b.Reshape(ids, [-1]))
    y = members @ (found * w)
    if combiner != "SUM":
        norm = members @ (w if combiner == "MEAN" else w * w)
        norm = norm if combiner == "MEAN" else b.Sqrt(norm)
        empty = b.Equal(norm, 0)
        y = b.Where(empty, 0, y / b.Where(empty, 1, norm))
    return b.Reshape(y, [count, *shape[1:]])
