"""Sums over segments of rows, and weighted look-ups of an embedding table."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.catalogue.selection import FLOAT, INT64, static
from converter.graph.extensions import extension
from converter.graph.sizes import arange


def _members(b: Builder, ids: ir.Value, rows: int) -> ir.Value:
    """[rows, n]: 1 where ids[n] names the row."""
    n = int(np.prod(static(ids)))
    return b.op("Cast", b.op("Equal", b.op("Cast", b.op("Reshape", ids, [1, n]), to=INT64), b.const(arange(rows).reshape(rows, 1))), to=FLOAT)


@extension
def SegmentSum(b: Builder, x: ir.Value, ids: ir.Value, *, rows: int) -> ir.Value:
    """y[r, ...] = sum of x[i, ...] with ids[i] == r, for `rows` rows."""
    shape = static(x)
    flat = b.op("Cast", b.op("Reshape", x, [shape[0], int(np.prod(shape[1:]))]), to=FLOAT)
    y = b.op("Reshape", b.op("MatMul", _members(b, ids, rows), flat), [rows, *shape[1:]])
    return y if x.dtype in (None, ir.DataType.FLOAT) else b.op("Cast", y, to=int(x.dtype))


@extension
def EmbeddingLookupSparse(b: Builder, params: ir.Value, rows: ir.Value, ids: ir.Value, weights: ir.Value, *, count: int, combiner: str = "MEAN") -> ir.Value:
    """Rows params[ids[i]] * weights[i], summed into row rows[i] (SUM), divided by the sum of weights (MEAN) or the root of that of their squares (SQRTN).

    `rows` is [n] or [n, d], its first column counts. `count` rows come out; one without members is 0.
    """
    n, shape = int(np.prod(static(ids))), static(params)
    if len(static(rows)) > 1:
        rows = b.op("Gather", rows, np.array(0), axis=1)
    members = _members(b, rows, count)
    w = b.op("Reshape", weights, [n, 1])
    found = b.op("Gather", b.op("Reshape", params, [shape[0], int(np.prod(shape[1:]))]), b.op("Reshape", ids, [n]))
    y = b.op("MatMul", members, b.op("Mul", found, w))
    if combiner != "SUM":
        norm = b.op("MatMul", members, w if combiner == "MEAN" else b.op("Mul", w, w))
        norm = norm if combiner == "MEAN" else b.op("Sqrt", norm)
        empty = b.op("Equal", norm, b.like(norm, 0))
        y = b.op("Where", empty, b.like(y, 0), b.op("Div", y, b.op("Where", empty, b.like(norm, 1), norm)))
    return b.op("Reshape", y, [count, *shape[1:]])
