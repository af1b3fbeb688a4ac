"""Losses of sequences."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension

INT64 = int(ir.DataType.INT64)
NEVER = -1e30  # the logarithm of a probability of zero that still can be added and subtracted


@extension
def CTCLoss(
    b: Builder,
    logits: ir.Value,
    lengths: ir.Value,
    labels: ir.Value,
    label_lengths: ir.Value,
    blank: ir.Value | None = None,
    *,
    collapse_repeated: int = 0,
    merge_repeated: int = 1,
    unique: int = 0,
) -> ir.Value:
    """Negative logarithm of the probability of labels[N, L] (label_lengths[N] of them) in logits[N, T, C] over lengths[N] steps: [N].

    The labels are decoded first: `unique` keeps the first of each, else `collapse_repeated` one of a run. A path of steps stands for the labels
    without its blanks (class `blank`, by default the last), with `merge_repeated` also one of each run. Infinite where no path is long enough.
    """
    scores = b.op("LogSoftmax", logits, axis=2)
    nothing = b.op("Sub", b.op("Shape", logits, start=2, end=3), [1]) if blank is None else b.op("Reshape", b.op("Cast", blank, to=INT64), [1])
    targets, counts = _decoded(b, labels, label_lengths, bool(collapse_repeated), bool(unique))
    targets = b.op("Max", b.op("Min", targets, b.op("Sub", b.op("Shape", logits, start=2, end=3), [1])), [0])
    places = _interleaved(b, targets, nothing) if merge_repeated else b.op("Concat", b.op("Expand", nothing, _column(b, targets)), targets, axis=1)
    steps = b.op("Shape", logits, start=1, end=2)
    chosen = b.op("Expand", b.op("Unsqueeze", places, [1]), b.op("Concat", [1], steps, [1], axis=0))
    emitted = b.op("Transpose", b.op("GatherElements", scores, chosen, axis=2), perm=[1, 0, 2])
    final = _forward(b, emitted, places, b.op("Cast", lengths, to=INT64), bool(merge_repeated))
    last = b.op("Mul", counts, [2]) if merge_repeated else counts
    ends = b.op("GatherElements", final, last, axis=1)
    if merge_repeated:  # the path may end in a blank or in the last label
        before = b.op("GatherElements", final, b.op("Max", b.op("Sub", last, [1]), [0]), axis=1)
        ends = b.op("Where", b.op("Equal", counts, [0]), ends, _either(b, ends, before))
    likely = b.op("Squeeze", ends, [1])
    return b.op("Where", b.op("Less", likely, b.like(likely, NEVER / 2)), b.like(likely, np.inf), b.op("Neg", likely))


def _column(b: Builder, v: ir.Value) -> ir.Value:
    """The shape [N, 1] of a matrix's column."""
    return b.op("Concat", b.op("Shape", v, start=0, end=1), [1], axis=0)


def _decoded(b: Builder, labels: ir.Value, lengths: ir.Value, collapse: bool, unique: bool) -> tuple[ir.Value, ir.Value]:
    """Labels [N, L] that count, moved to the front, and how many there are [N, 1]."""
    labels = b.op("Cast", labels, to=INT64)
    size = b.op("Shape", labels, start=1, end=2)
    number = b.op("Range", b.const(np.int64(0)), b.op("Squeeze", size, [0]), b.const(np.int64(1)))
    keep = b.op("Less", number, b.op("Unsqueeze", b.op("Cast", lengths, to=INT64), [1]))
    if unique:
        same = b.op("Equal", b.op("Unsqueeze", labels, [2]), b.op("Unsqueeze", labels, [1]))
        earlier = b.op("Less", number, b.op("Unsqueeze", number, [1]))
        repeated = b.op("ReduceMax", b.op("Cast", b.op("And", same, earlier), to=INT64), [2], keepdims=0)
        keep = b.op("And", keep, b.op("Equal", repeated, b.const(np.int64(0))))
    elif collapse:
        previous = b.op("Slice", b.op("Pad", labels, [0, 1, 0, 0], b.const(np.int64(-1))), [0], [-1], [1])
        first = b.op("Equal", number, b.const(np.int64(0)))
        keep = b.op("And", keep, b.op("Or", first, b.op("Not", b.op("Equal", labels, previous))))
    kept = b.op("Cast", keep, to=INT64)
    place = b.op("Where", keep, b.op("Sub", b.op("CumSum", kept, b.const(np.int64(1))), [1]), size)  # what does not count goes behind the end
    empty = b.op("Expand", b.const(np.int64(0)), b.op("Add", b.op("Shape", labels), [0, 1]))
    moved = b.op("ScatterElements", empty, place, labels, axis=1)
    return b.op("Slice", moved, [0], size, [1]), b.op("ReduceSum", kept, [1], keepdims=1)


def _interleaved(b: Builder, targets: ir.Value, nothing: ir.Value) -> ir.Value:
    """blank, label, blank, label, .., blank: [N, 2L + 1]."""
    blanks = b.op("Expand", nothing, b.op("Shape", targets))
    pairs = b.op("Concat", b.op("Unsqueeze", blanks, [2]), b.op("Unsqueeze", targets, [2]), axis=2)
    flat = b.op("Reshape", pairs, b.op("Concat", b.op("Shape", targets, start=0, end=1), [-1], axis=0))
    return b.op("Concat", flat, b.op("Expand", nothing, _column(b, targets)), axis=1)


def _forward(b: Builder, emitted: ir.Value, places: ir.Value, lengths: ir.Value, merge: bool) -> ir.Value:
    """Logarithms of the probabilities to be at each place [N, S] after lengths[N] steps of emitted[T, N, S]."""
    number = b.op("Range", b.const(np.int64(0)), b.op("Squeeze", b.op("Shape", places, start=1, end=2), [0]), b.const(np.int64(1)))
    at_first = b.op("Expand", b.op("Equal", number, b.const(np.int64(0))), b.op("Shape", places))
    start = b.op("Where", at_first, b.like(emitted, 0), b.like(emitted, NEVER))
    behind = b.op("Slice", b.op("Pad", places, [0, 2, 0, 0], b.const(np.int64(-1))), [0], [-2], [1])
    odd = b.op("Equal", b.op("Mod", number, b.const(np.int64(2))), b.const(np.int64(1)))
    skips = b.op("And", odd, b.op("Not", b.op("Equal", places, behind)))  # over the blank between different labels
    body = b.body("step")
    step = body.input("step", ir.DataType.INT64, [])
    body.input("on", ir.DataType.BOOL, [])
    dtype = emitted.dtype or ir.DataType.FLOAT
    state = body.input("state", dtype, None if start.shape is None else list(start.shape))
    now = body.op("Gather", emitted, step, axis=0)
    if merge:
        moved = _either(body, state, _shifted(body, state, 1))
        jumped = body.op("Where", skips, _shifted(body, state, 2), body.like(state, NEVER))
        later = body.op("Add", _either(body, moved, jumped), now)
    else:
        blank = body.op("Slice", now, [0], [1], [1])
        later = _either(body, body.op("Add", state, blank), body.op("Add", _shifted(body, state, 1), now))
    going = body.op("Less", step, body.op("Unsqueeze", lengths, [1]))
    body.output(body.const(np.array(True), "go_on"), body.op("Where", going, later, state))
    steps = b.op("Squeeze", b.op("Shape", emitted, start=0, end=1), [0])
    return b.op("Loop", steps, b.const(np.array(True)), start, body=body.graph)


def _shifted(b: Builder, state: ir.Value, by: int) -> ir.Value:
    """Every place takes what was `by` places in front of it."""
    return b.op("Slice", b.op("Pad", state, [0, by, 0, 0], b.like(state, NEVER)), [0], [-by], [1])


def _either(b: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """log(exp x + exp y)."""
    gap = b.op("Neg", b.op("Abs", b.op("Sub", x, y)))
    return b.op("Add", b.op("Max", x, y), b.op("Log", b.op("Add", b.op("Exp", gap), b.like(x, 1))))
