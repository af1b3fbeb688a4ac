"""Extension operators that decode sequences and gather embeddings."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension
from converter.graph.infer import rank_of

INT64 = ir.DataType.INT64
BEYOND = int(np.iinfo(np.int64).max)


@extension
def CTCGreedyDecoderSeqLen(
    b: Builder, logits: ir.Value, lengths: ir.Value, blank: ir.Value | None = None, *, merge_repeated: int = 1
) -> tuple[ir.Value, ir.Value]:
    """Best path of logits[N, T, C] over the first lengths[N] steps: labels without blanks [N, T], filled up with -1, and their numbers [N]."""
    label = b.op("ArgMax", logits, axis=2, keepdims=0)
    steps = b.op("Shape", label, start=1, end=2)
    last = b.op("Sub", b.op("Shape", logits, start=2, end=3), [1])
    nothing = last if blank is None else b.op("Reshape", b.op("Cast", blank, to=int(INT64)), [1])
    number = b.op("Range", b.const(np.int64(0)), b.op("Squeeze", steps, [0]), b.const(np.int64(1)))
    ends = b.op("Unsqueeze", b.op("Cast", lengths, to=int(INT64)), [1])
    keep = b.op("And", b.op("Less", number, ends), b.op("Not", b.op("Equal", label, nothing)))
    if merge_repeated:
        previous = b.op("Slice", b.op("Pad", label, [0, 1, 0, 0], b.const(np.int64(-1))), [0], [-1], [1])
        keep = b.op("And", keep, b.op("Not", b.op("Equal", label, previous)))
    kept = b.op("Cast", keep, to=int(INT64))
    place = b.op("Where", keep, b.op("Sub", b.op("CumSum", kept, b.const(np.int64(1))), [1]), steps)  # what is dropped goes to column T
    empty = b.op("Expand", b.const(np.int64(-1)), b.op("Add", b.op("Shape", label), [0, 1]))
    filled = b.op("ScatterElements", empty, place, label, axis=1)
    return b.op("Slice", filled, [0], steps, [1]), b.op("ReduceSum", kept, [1], keepdims=0)


@extension
def EmbeddingSegments(
    b: Builder,
    table: ir.Value,
    indices: ir.Value,
    segments: ir.Value,
    count: ir.Value,
    default: ir.Value | None = None,
    weights: ir.Value | None = None,
    *,
    reduction: str = "sum",
) -> ir.Value:
    """Rows table[indices[i]], times weights[i], summed (or averaged) per segment: [count, ...].

    segments[i] says where row i goes. An empty segment is row `default` of the table, or zero without one (or when it is negative).
    """
    rows = b.op("Gather", table, b.op("Cast", indices, to=int(INT64)), axis=0)
    if weights is not None:
        tail = (rank_of(table) or 2) - 1
        rows = b.op("Mul", rows, b.op("Unsqueeze", weights, list(range(1, tail + 1))))
    total = b.op("Reshape", b.op("Cast", count, to=int(INT64)), [1])
    places = b.op("Unsqueeze", b.op("Cast", segments, to=int(INT64)), [1])
    zeros = b.op("Expand", b.like(table, 0), b.op("Concat", total, b.op("Shape", table, start=1), axis=0))
    summed = b.op("ScatterND", zeros, places, rows, reduction="add")
    ones = b.op("Expand", b.like(table, 1), b.op("Shape", indices))
    found = b.op("ScatterND", b.op("Expand", b.like(table, 0), total), places, ones, reduction="add")
    found = b.op("Unsqueeze", found, list(range(1, rank_of(table) or 2)))
    if reduction == "mean":
        summed = b.op("Div", summed, b.op("Max", found, b.like(table, 1)))
    if default is None:
        return summed
    row = b.op("Reshape", b.op("Cast", default, to=int(INT64)), [1])
    usual = b.op("Gather", table, b.op("Max", row, [0]), axis=0)
    usual = b.op("Where", b.op("Less", b.op("Squeeze", row, [0]), b.const(np.int64(0))), b.like(table, 0), usual)
    return b.op("Where", b.op("Equal", found, b.like(table, 0)), usual, summed)


@extension
def SegmentMax(b: Builder, x: ir.Value, segments: ir.Value, count: ir.Value | None = None, *, fill: str = "zero", half: int = 0) -> ir.Value:
    """The largest row of each segment: x[K, ...], segments[K], which ascend, -> [count, ...], by default as many as the last segment needs.

    Rows of segments from `count` on are left out. An empty segment is zero, or with "lowest" the lowest number of its type (`half`: of float16).
    """
    dtype = x.dtype or ir.DataType.FLOAT
    lowest = -float("inf") if dtype.is_floating_point() else int(np.iinfo(dtype.numpy()).min)
    places = b.op("Cast", segments, to=int(INT64))
    total = b.op("Reshape", b.op("Cast", count, to=int(INT64)), [1]) if count is not None else b.op("Add", b.op("Slice", places, [-1], [BEYOND], [0]), [1])
    rows = b.op("Unsqueeze", b.op("Min", places, total), [1])  # one row more, for what is left out
    start = b.op("Expand", b.like(x, lowest), b.op("Concat", b.op("Add", total, [1]), b.op("Shape", x, start=1), axis=0))
    largest = b.op("Slice", b.op("ScatterND", start, rows, x, reduction="max"), [0], total, [0])
    ones = b.op("Expand", b.const(np.int64(1)), b.op("Shape", segments))
    found = b.op("ScatterND", b.op("Expand", b.const(np.int64(0)), b.op("Add", total, [1])), rows, ones, reduction="add")
    empty = b.op("Equal", b.op("Slice", found, [0], total, [0]), b.const(np.int64(0)))
    floor = float(np.finfo(np.float16 if half else dtype.numpy()).min) if dtype.is_floating_point() else lowest
    return b.op("Where", b.op("Unsqueeze", empty, list(range(1, rank_of(x) or 1))), b.like(x, 0 if fill == "zero" else floor), largest)
