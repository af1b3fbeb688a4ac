"""Extension operators that decode sequences and gather embeddings."""

from __future__ import annotations

import numpy as np

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.catalogue.overlaps import as_int64, length, numbers
from converter.graph.extensions import extension
from converter.graph.infer import rank_of
from converter.graph.value import FLOAT, INT64

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
    padded with -1, and their numbers [N].

    lengths and blank (a class, by default the last one) are integers; `merge_repeated`: each run
    counts once. Both results are int64. Source: OpenVINO, CTCGreedyDecoderSeqLen-6.
    """
    label = b.ArgMax(logits, axis=2, keepdims=0)
    nothing = length(b, logits, 2) - 1 if blank is None else as_int64(b, blank)
    ends = b.Cast(lengths, to=INT64)[:, None]
    keep = (numbers(b, length(b, label, 1)) < ends) & ~b.Equal(label, nothing)
    if merge_repeated:
        keep = keep & changes(b, label)
    counts = b.ReduceSum(b.Cast(keep, to=INT64), [1], keepdims=0)
    return move_to_front(b, label, keep, -1), counts


def changes(b: Builder, labels: Value) -> Value:
    """Return which of labels[N, T] differ from the previous one; the first does unless it is -1."""
    return ~b.Equal(labels, b.Pad(labels, [0, 1, 0, 0], -1)[:, :-1])


def move_to_front(b: Builder, labels: Value, keep: Value, fill: int) -> Value:
    """Move those of labels[N, T] that are kept to the front, in order, followed by `fill`."""
    steps = length(b, labels, 1)
    # labels that are dropped go to column T
    position = b.Where(keep, b.CumSum(b.Cast(keep, to=INT64), 1) - 1, steps)
    empty = b.Expand(b.like(labels, fill), b.Shape(labels) + np.array([0, 1]))
    return b.Slice(b.ScatterElements(empty, position, labels, axis=1), [0], steps, [1])


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

    segments[i] is the segment of row i. An empty segment is row `default` of the table, or zero
    without one (or if it is negative). table[E, ...], indices[K] and segments[K] int32 or int64,
    count a scalar, `reduction` "sum" or "mean". Source: OpenVINO, EmbeddingSegmentsSum-3.
    """
    rows = b.Gather(table, b.Cast(indices, to=INT64), axis=0)
    if weights is not None:
        tail = (rank_of(table) or 2) - 1
        rows = rows * b.Unsqueeze(weights, list(range(1, tail + 1)))
    total = as_int64(b, count)
    positions = b.Cast(segments, to=INT64)[:, None]
    zeros = b.Expand(b.like(table, 0), b.Concat(total, b.Shape(table, start=1), axis=0))
    summed = b.ScatterND(zeros, positions, rows, reduction="add")
    ones = b.Expand(b.like(table, 1), b.Shape(indices))
    found = b.ScatterND(b.Expand(b.like(table, 0), total), positions, ones, reduction="add")
    found = b.Unsqueeze(found, list(range(1, rank_of(table) or 2)))
    if reduction == "mean":
        summed = summed / b.Max(found, 1)
    if default is None:
        return summed
    row = as_int64(b, default)
    usual = b.Gather(table, b.Max(row, 0), axis=0)
    usual = b.Where(b.Squeeze(row, [0]) < 0, 0, usual)
    return b.Where(b.Equal(found, 0), usual, summed)


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
    """Return the largest row of each segment: x[K, ...], ascending segments[K] -> [count, ...]; by
    default the last segment determines the count.

    Rows of segments from `count` on are left out. An empty segment is zero, or with "lowest" the
    lowest number of its type (`half`: of float16). Source: OpenVINO, SegmentMax-16.
    """
    dtype = x.dtype or FLOAT
    if not (dtype.is_floating_point() or dtype.is_integer()):
        raise MappingError("the maximum of booleans is not supported", "R105")
    lowest = -float("inf") if dtype.is_floating_point() else int(np.iinfo(dtype.numpy()).min)
    positions = b.Cast(segments, to=INT64)
    total = positions[-1:] + 1 if count is None else as_int64(b, count)
    rows = b.Min(positions, total)[:, None]  # one more row, for rows that are left out
    start = b.Expand(b.like(x, lowest), b.Concat(total + 1, b.Shape(x, start=1), axis=0))
    largest = b.Slice(b.ScatterND(start, rows, x, reduction="max"), [0], total, [0])
    ones = b.Expand(1, b.Shape(segments))
    found = b.ScatterND(b.Expand(0, total + 1), rows, ones, reduction="add")
    empty = b.Equal(b.Slice(found, [0], total, [0]), 0)
    empty = b.Unsqueeze(empty, list(range(1, rank_of(x) or 1)))
    if fill == "lowest" and dtype.is_floating_point():
        lowest = float(np.finfo(np.float16 if half else dtype.numpy()).min)
    return b.Where(empty, 0 if fill == "zero" else lowest, largest)
