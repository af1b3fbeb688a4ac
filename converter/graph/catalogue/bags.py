"""Embeddings gathered in bags: rows of a table, summed or averaged."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.catalogue.sequences import EmbeddingSegments
from converter.graph.extensions import extension
from converter.graph.infer import rank_of

INT64 = int(ir.DataType.INT64)


@extension
def EmbeddingBagPacked(b: Builder, table: ir.Value, indices: ir.Value, weights: ir.Value | None = None, *, reduction: str = "sum") -> ir.Value:
    """Every row of indices[B, N] is a bag: table[indices] times weights[B, N], summed or averaged over N."""
    rows = b.op("Gather", table, b.op("Cast", indices, to=INT64), axis=0)
    if weights is not None:
        rows = b.op("Mul", rows, b.op("Unsqueeze", weights, list(range(2, (rank_of(table) or 2) + 1))))
    return b.op("ReduceSum" if reduction == "sum" else "ReduceMean", rows, [1], keepdims=0)


@extension
def EmbeddingBagOffsets(
    b: Builder,
    table: ir.Value,
    indices: ir.Value,
    offsets: ir.Value,
    default: ir.Value | None = None,
    weights: ir.Value | None = None,
    *,
    reduction: str = "sum",
) -> ir.Value:
    """offsets[B] say where in indices[N] each bag begins. An empty bag is row `default` of the table, or zero (as EmbeddingSegments)."""
    starts = b.op("Cast", offsets, to=INT64)
    count = b.op("Squeeze", b.op("Shape", indices), [0])
    numbers = b.op("Unsqueeze", b.op("Range", b.const(np.int64(0)), count, b.const(np.int64(1))), [1])
    begun = b.op("Cast", b.op("GreaterOrEqual", numbers, b.op("Unsqueeze", starts, [0])), to=INT64)
    segments = b.op("Sub", b.op("ReduceSum", begun, [1], keepdims=0), [1])
    result: ir.Value = EmbeddingSegments(b, table, indices, segments, b.op("Shape", offsets), default, weights, reduction=reduction)
    return result
