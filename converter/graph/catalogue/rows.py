"""Operators on groups of rows whose number is only known at run time."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension
from converter.graph.infer import rank_of

INT64 = int(ir.DataType.INT64)


def _count(b: Builder, size: ir.Value) -> ir.Value:
    """0, 1, .., size - 1 of a scalar int64 size."""
    return b.op("Range", b.const(np.int64(0)), size, b.const(np.int64(1)))


@extension
def FillEmptyRows(b: Builder, values: ir.Value, shape: ir.Value, indices: ir.Value, default: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """A sparse matrix of `shape` (rows, columns) as values[n] at indices[n, 2]; each row without an entry gets `default` in column 0.

    Gives the indices by row and column, their values, and which of the rows were empty (bool[rows]).
    """
    size = b.op("Cast", shape, to=INT64)
    where = b.op("Cast", indices, to=INT64)
    row, column = (b.op("Gather", where, b.const(np.int64(i)), axis=1) for i in (0, 1))
    rows = _count(b, b.op("Gather", size, b.const(np.int64(0)), axis=0))
    owned = b.op("Cast", b.op("Equal", b.op("Unsqueeze", rows, [1]), b.op("Unsqueeze", row, [0])), to=INT64)
    empty = b.op("Equal", b.op("ReduceSum", owned, [1], keepdims=0), b.const(np.int64(0)))
    added = b.op("Reshape", b.op("NonZero", b.op("Cast", empty, to=INT64)), [-1])
    every_row = b.op("Concat", row, added, axis=0)
    every_column = b.op("Concat", column, b.op("Mul", added, b.const(np.int64(0))), axis=0)
    filled = b.op("Concat", values, b.op("Expand", b.op("Reshape", default, [1]), b.op("Shape", added)), axis=0)
    width = b.op("Gather", size, b.const(np.int64(1)), axis=0)
    key = b.op("Add", b.op("Mul", every_row, width), every_column)
    order = b.ops("TopK", key, b.op("Shape", key), axis=0, largest=0, sorted=1, outputs=2)[1]
    pairs = b.op("Concat", b.op("Unsqueeze", every_row, [1]), b.op("Unsqueeze", every_column, [1]), axis=1)
    return b.op("CastLike", b.op("Gather", pairs, order, axis=0), indices), b.op("Gather", filled, order, axis=0), empty


@extension
def GroupedMatMul(b: Builder, x: ir.Value, w: ir.Value, ends: ir.Value | None = None) -> ir.Value:
    """x[G, M, K] with w[G, N, K]: a product for each group, [G, M, N]. x[T, K]: row t belongs to the first group whose end[G] lies behind it, [T, N].

    Rows behind the last end are 0.
    """
    turned = b.op("Transpose", w, perm=[0, 2, 1])
    if rank_of(x) == 3 or ends is None:
        return b.op("MatMul", x, turned)
    rows = b.op("Unsqueeze", _count(b, b.op("Squeeze", b.op("Shape", x, start=0, end=1), [0])), [0])
    last = b.op("Unsqueeze", b.op("Cast", ends, to=INT64), [1])
    begun = b.op("Pad", b.op("Slice", last, [0], [-1], [0]), [1, 0, 0, 0])
    mine = b.op("And", b.op("GreaterOrEqual", rows, begun), b.op("Less", rows, last))  # [G, T]
    alone = b.op("Where", b.op("Unsqueeze", mine, [2]), b.op("Unsqueeze", x, [0]), b.like(x, 0))
    return b.op("ReduceSum", b.op("MatMul", alone, turned), [0], keepdims=0)
