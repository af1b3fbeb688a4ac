"""Embedding bags: rows of a table, summed or averaged."""

from __future__ import annotations

from converter.graph.build import Builder, Value
from converter.graph.catalogue.sequences import EmbeddingSegments
from converter.graph.extensions import extension
from converter.graph.infer import rank_of
from converter.graph.value import INT64


@extension
def EmbeddingBagPacked(
    b: Builder,
    table: Value,
    indices: Value,
    weights: Value | None = None,
    *,
    reduction: str = "sum",
) -> Value:
    """Every row of indices[B, N] is a bag: table[indices] times weights[B, N], summed or averaged
    over N.

    table[E, ...] -> [B, ...]; `reduction` "sum" or "mean". Source: OpenVINO, EmbeddingBagPacked-15.
    """
    rows = b.Gather(table, b.Cast(indices, to=INT64), axis=0)
    if weights is not None:
        rows = rows * b.Unsqueeze(weights, list(range(2, (rank_of(table) or 2) + 1)))
    return b.operator("ReduceSum" if reduction == "sum" else "ReduceMean")(rows, [1], keepdims=0)


@extension
def EmbeddingBagOffsets(
    b: Builder,
    table: Value,
    indices: Value,
    offsets: Value,
    default: Value | None = None,
    weights: Value | None = None,
    *,
    reduction: str = "sum",
) -> Value:
    """Embedding bags of indices[N] that begin at offsets[B].

    An empty bag is row `default` of the table, or zero (as in EmbeddingSegments). table[E, ...],
    default a scalar, weights[N] -> [B, ...]; `reduction` "sum" or "mean". Source: OpenVINO,
    EmbeddingBagOffsets-15.
    """
    starts = b.Cast(offsets, to=INT64)
    count = b.Squeeze(b.Shape(indices), [0])
    numbers = b.Range(0, count, 1)[:, None]
    begun = b.Cast(numbers >= starts[None], to=INT64)
    segments = b.ReduceSum(begun, [1], keepdims=0) - 1
    result: Value = EmbeddingSegments(
        b, table, indices, segments, b.Shape(offsets), default, weights, reduction=reduction
    )
    return result
