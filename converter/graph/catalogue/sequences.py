"""Extension operators that decode sequences and gather embeddings."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension
from converter.graph.infer import rank_of

INT64 = ir.DataType.INT64
BEYOND = int(np.iinfo(np.int64).max)


@extension
def CTCGreedyDecoderSeqLen(
    b: Builder,
    logits: Value,
    lengths: Value,
    blank: Value | None = None,
    *,
    merge_repeated: int = 1,
) -> tuple[Value, Value]:
    """Best path of logits[N, T, C] over the first lengths[N] steps: labels without blanks [N, T],
    filled up with -1, and their numbers [N].

    lengths and blank (a class, by default the last one) are integers; `merge_repeated`: one of each
    run counts. Both results are int64. Source: OpenVINO, CTCGreedyDecoderSeqLen-6.
    """
    label = b.ArgMax(logits, axis=2, keepdims=0)
    steps = b.Shape(label, start=1, end=2)
    last = b.Sub(b.Shape(logits, start=2, end=3), [1])
    nothing = last if blank is None else b.Reshape(b.Cast(blank, to=INT64), [1])
    number = b.Range(0, b.Squeeze(steps, [0]), 1)
    ends = b.Unsqueeze(b.Cast(lengths, to=INT64), [1])
    keep = (number < ends) & ~b.Equal(label, nothing)
    if merge_repeated:
        previous = b.Pad(label, [0, 1, 0, 0], -1)[:, :-1]
        keep = keep & ~b.Equal(label, previous)
    kept = b.Cast(keep, to=INT64)
    place = b.Where(keep, b.Sub(b.CumSum(kept, 1), [1]), steps)  # what is dropped goes to column T
    empty = b.Expand(-1, b.Add(b.Shape(label), [0, 1]))
    filled = b.ScatterElements(empty, place, label, axis=1)
    return b.Slice(filled, [0], steps, [1]), b.ReduceSum(kept, [1], keepdims=0)


@extension
def EmbeddingSegments(
    b: Builder,
    table: Value,
    indices: Value,
    segments: Value,
    count: Value,
    default: Value | None = None,
    weights: Value | None = None,
    *,
    reduction: str = "sum",
) -> Value:
    """Rows table[indices[i]], times weights[i], summed (or averaged) per segment: [count, ...].

    segments[i] says where row i goes. An empty segment is row `default` of the table, or zero
    without one (or when it is negative). table[E, ...], indices[K] and segments[K] int32 or int64,
    count a scalar, `reduction` "sum" or "mean". Source: OpenVINO, EmbeddingSegmentsSum-3.
    """
    rows = b.Gather(table, b.Cast(indices, to=INT64), axis=0)
    if weights is not None:
        tail = (rank_of(table) or 2) - 1
        rows = rows * b.Unsqueeze(weights, list(range(1, tail + 1)))
    total = b.Reshape(b.Cast(count, to=INT64), [1])
    places = b.Unsqueeze(b.Cast(segments, to=INT64), [1])
    zeros = b.Expand(b.like(table, 0), b.Concat(total, b.Shape(table, start=1), axis=0))
    summed = b.ScatterND(zeros, places, rows, reduction="add")
    ones = b.Expand(b.like(table, 1), b.Shape(indices))
    found = b.ScatterND(b.Expand(b.like(table, 0), total), places, ones, reduction="add")
    found = b.Unsqueeze(found, list(range(1, rank_of(table) or 2)))
    if reduction == "mean":
        summed = summed / b.Max(found, b.like(table, 1))
    if default is None:
        return summed
    row = b.Reshape(b.Cast(default, to=INT64), [1])
    usual = b.Gather(table, b.Max(row, [0]), axis=0)
    usual = b.Where(b.Squeeze(row, [0]) < 0, b.like(table, 0), usual)
    return b.Where(b.Equal(found, b.like(table, 0)), usual, summed)


@extension
def SegmentMax(
    b: Builder,
    x: Value,
    segments: Value,
    count: Value | None = None,
    *,
    fill: str = "zero",
    half: int = 0,
) -> Value:
    """The largest row of each segment: x[K, ...], segments[K], which ascend, -> [count, ...], by
    default as many as the last segment needs.

    Rows of segments from `count` on are left out. An empty segment is zero, or with "lowest" the
    lowest number of its type (`half`: of float16). Source: OpenVINO, SegmentMax-16.
    """
    dtype = x.dtype or ir.DataType.FLOAT
    lowest = -float("inf") if dtype.is_floating_point() else int(np.iinfo(dtype.numpy()).min)
    places = b.Cast(segments, to=INT64)
    total = (
        b.Reshape(b.Cast(count, to=INT64), [1]) if count is not None else b.Add(places[-1:], [1])
    )
    rows = b.Unsqueeze(b.Min(places, total), [1])  # one row more, for what is left out
    start = b.Expand(b.like(x, lowest), b.Concat(b.Add(total, [1]), b.Shape(x, start=1), axis=0))
    largest = b.Slice(b.ScatterND(start, rows, x, reduction="max"), [0], total, [0])
    ones = b.Expand(1, b.Shape(segments))
    found = b.ScatterND(b.Expand(0, b.Add(total, [1])), rows, ones, reduction="add")
    empty = b.Equal(b.Slice(found, [0], total, [0]), 0)
    floor = (
        float(np.finfo(np.float16 if half else dtype.numpy()).min)
        if dtype.is_floating_point()
        else lowest
    )
    return b.Where(
        b.Unsqueeze(empty, list(range(1, rank_of(x) or 1))),
        b.like(x, 0 if fill == "zero" else floor),
        largest,
    )
