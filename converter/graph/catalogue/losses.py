"""Losses of sequences."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension

INT64 = int(ir.DataType.INT64)
NEVER = -1e30  # the logarithm of a probability of zero that still can be added and subtracted


@extension
def CTCLoss(
    b: Builder,
    logits: Value,
    lengths: Value,
    labels: Value,
    label_lengths: Value,
    blank: Value | None = None,
    *,
    collapse_repeated: int = 0,
    merge_repeated: int = 1,
    unique: int = 0,
) -> Value:
    """Negative logarithm of the probability of labels[N, L] (label_lengths[N] of them) in logits[N,
    T, C] over lengths[N] steps: [N].

    The labels are decoded first: `unique` keeps the first of each, else `collapse_repeated` one of
    a run. A path of steps stands for the labels without its blanks (class `blank`, by default the
    last), with `merge_repeated` also one of each run. Infinite where no path is long enough.
    Source: OpenVINO, CTCLoss-4.
    """
    scores = b.LogSoftmax(logits, axis=2)
    nothing = (
        b.Sub(b.Shape(logits, start=2, end=3), [1])
        if blank is None
        else b.Reshape(b.Cast(blank, to=INT64), [1])
    )
    targets, counts = _decoded(b, labels, label_lengths, bool(collapse_repeated), bool(unique))
    targets = b.Max(b.Min(targets, b.Sub(b.Shape(logits, start=2, end=3), [1])), [0])
    places = (
        _interleaved(b, targets, nothing)
        if merge_repeated
        else b.Concat(b.Expand(nothing, _column(b, targets)), targets, axis=1)
    )
    steps = b.Shape(logits, start=1, end=2)
    chosen = b.Expand(b.Unsqueeze(places, [1]), b.Concat([1], steps, [1], axis=0))
    emitted = b.Transpose(b.GatherElements(scores, chosen, axis=2), perm=[1, 0, 2])
    final = _forward(b, emitted, places, b.Cast(lengths, to=INT64), bool(merge_repeated))
    last = b.Mul(counts, [2]) if merge_repeated else counts
    ends = b.GatherElements(final, last, axis=1)
    if merge_repeated:  # the path may end in a blank or in the last label
        before = b.GatherElements(final, b.Max(b.Sub(last, [1]), [0]), axis=1)
        ends = b.Where(b.Equal(counts, [0]), ends, _either(b, ends, before))
    likely = b.Squeeze(ends, [1])
    return b.Where(likely < NEVER / 2, b.like(likely, np.inf), -likely)


def _column(b: Builder, v: Value) -> Value:
    """The shape [N, 1] of a matrix's column."""
    return b.Concat(b.Shape(v, start=0, end=1), [1], axis=0)


def _decoded(
    b: Builder, labels: Value, lengths: Value, collapse: bool, unique: bool
) -> tuple[Value, Value]:
    """Labels [N, L] that count, moved to the front, and how many there are [N, 1]."""
    labels = b.Cast(labels, to=INT64)
    size = b.Shape(labels, start=1, end=2)
    number = b.Range(0, b.Squeeze(size, [0]), 1)
    keep = number < b.Unsqueeze(b.Cast(lengths, to=INT64), [1])
    if unique:
        same = b.Equal(b.Unsqueeze(labels, [2]), b.Unsqueeze(labels, [1]))
        earlier = number < b.Unsqueeze(number, [1])
        repeated = b.ReduceMax(b.Cast(same & earlier, to=INT64), [2], keepdims=0)
        keep = keep & b.Equal(repeated, 0)
    elif collapse:
        previous = b.Slice(b.Pad(labels, [0, 1, 0, 0], -1), [0], [-1], [1])
        first = b.Equal(number, 0)
        keep = keep & (first | ~b.Equal(labels, previous))
    kept = b.Cast(keep, to=INT64)
    place = b.Where(
        keep, b.Sub(b.CumSum(kept, 1), [1]), size
    )  # what does not count goes behind the end
    empty = b.Expand(0, b.Add(b.Shape(labels), [0, 1]))
    moved = b.ScatterElements(empty, place, labels, axis=1)
    return b.Slice(moved, [0], size, [1]), b.ReduceSum(kept, [1], keepdims=1)


def _interleaved(b: Builder, targets: Value, nothing: Value) -> Value:
    """blank, label, blank, label, .., blank: [N, 2L + 1]."""
    blanks = b.Expand(nothing, b.Shape(targets))
    pairs = b.Concat(b.Unsqueeze(blanks, [2]), b.Unsqueeze(targets, [2]), axis=2)
    flat = b.Reshape(pairs, b.Concat(b.Shape(targets, start=0, end=1), [-1], axis=0))
    return b.Concat(flat, b.Expand(nothing, _column(b, targets)), axis=1)


def _forward(b: Builder, emitted: Value, places: Value, lengths: Value, merge: bool) -> Value:
    """Logarithms of the probabilities to be at each place [N, S] after lengths[N] steps of
    emitted[T, N, S].
    """
    number = b.Range(0, b.Squeeze(b.Shape(places, start=1, end=2), [0]), 1)
    at_first = b.Expand(b.Equal(number, 0), b.Shape(places))
    start = b.Where(at_first, b.like(emitted, 0), b.like(emitted, NEVER))
    behind = b.Pad(places, [0, 2, 0, 0], -1)[:, :-2]
    odd = b.Equal(number % 2, 1)
    skips = odd & ~b.Equal(places, behind)  # over the blank between different labels
    steps = b.Squeeze(b.Shape(emitted, start=0, end=1), [0])
    with b.loop(steps, start) as body:
        step, (state,) = body.iteration, body.states
        now = body.Gather(emitted, step, axis=0)
        if merge:
            moved = _either(body, state, _shifted(body, state, 1))
            jumped = body.Where(skips, _shifted(body, state, 2), body.like(state, NEVER))
            later = _either(body, moved, jumped) + now
        else:
            blank = now[:, :1]
            later = _either(body, state + blank, _shifted(body, state, 1) + now)
        going = step < body.Unsqueeze(lengths, [1])
        return body.end(body.Where(going, later, state))[0]


def _shifted(b: Builder, state: Value, by: int) -> Value:
    """Every place takes what was `by` places in front of it."""
    return b.Pad(state, [0, by, 0, 0], b.like(state, NEVER))[:, :-by]


def _either(b: Builder, x: Value, y: Value) -> Value:
    """log(exp x + exp y)."""
    gap = -b.Abs(x - y)
    return b.Max(x, y) + b.Log(b.Exp(gap) + 1)
