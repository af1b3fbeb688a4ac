"""Losses of sequences."""

from __future__ import annotations

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.catalogue.overlaps import as_int64, length, numbers
from converter.graph.catalogue.sequences import changes, move_to_front
from converter.graph.extensions import extension
from converter.graph.value import INT64

NEVER = -1e30  # the logarithm of a probability of zero that can still be added and subtracted


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
    each run. A path of steps represents the labels that remain without its blanks (class `blank`,
    by default the last) and, with `merge_repeated`, with only one of each run. The result is
    infinite if no path is long enough. Source: OpenVINO, CTCLoss-4.
    """
    scores = b.LogSoftmax(logits, axis=2)
    last_class = length(b, logits, 2) - 1
    nothing = last_class if blank is None else as_int64(b, blank)
    targets, counts = _decoded(b, labels, label_lengths, bool(collapse_repeated), bool(unique))
    targets = b.Max(b.Min(targets, last_class), 0)
    positions = (
        _interleaved(b, targets, nothing)
        if merge_repeated
        else b.Concat(b.Expand(nothing, _column(b, targets)), targets, axis=1)
    )
    chosen = b.Expand(positions[:, None], b.Concat([1], length(b, logits, 1), [1], axis=0))
    emitted = b.Transpose(b.GatherElements(scores, chosen, axis=2), perm=[1, 0, 2])
    final = _forward(b, emitted, positions, b.Cast(lengths, to=INT64), bool(merge_repeated))
    last = counts * 2 if merge_repeated else counts
    ends = b.GatherElements(final, last, axis=1)
    if merge_repeated:  # the path may end in a blank or in the last label
        before = b.GatherElements(final, b.Max(last - 1, 0), axis=1)
        ends = b.Where(b.Equal(counts, 0), ends, _either(b, ends, before))
    likely = b.Squeeze(ends, [1])
    return b.Where(likely < NEVER / 2, np.inf, -likely)


def _column(b: Builder, v: Value) -> Value:
    """Return the shape [N, 1] of a matrix's column."""
    return b.Concat(length(b, v, 0), [1], axis=0)


def _decoded(
    b: Builder, labels: Value, lengths: Value, collapse: bool, unique: bool
) -> tuple[Value, Value]:
    """Return the decoded labels [N, L], moved to the front, and their number [N, 1]."""
    labels = b.Cast(labels, to=INT64)
    number = numbers(b, length(b, labels, 1))
    keep = number < b.Cast(lengths, to=INT64)[:, None]
    if unique:
        same = b.Equal(labels[:, :, None], labels[:, None])
        earlier = number < number[:, None]
        repeated = b.ReduceMax(b.Cast(same & earlier, to=INT64), [2], keepdims=0)
        keep = keep & b.Equal(repeated, 0)
    elif collapse:
        keep = keep & (b.Equal(number, 0) | changes(b, labels))
    return move_to_front(b, labels, keep, 0), b.ReduceSum(b.Cast(keep, to=INT64), [1])


def _interleaved(b: Builder, targets: Value, nothing: Value) -> Value:
    """Return blank, label, blank, label, .., blank: [N, 2L + 1]."""
    blanks = b.Expand(nothing, b.Shape(targets))
    pairs = b.Concat(blanks[:, :, None], targets[:, :, None], axis=2)
    flat = b.Reshape(pairs, b.Concat(length(b, targets, 0), [-1], axis=0))
    return b.Concat(flat, b.Expand(nothing, _column(b, targets)), axis=1)


def _forward(b: Builder, emitted: Value, positions: Value, lengths: Value, merge: bool) -> Value:
    """Return the logarithms of the probabilities of each state [N, S] after lengths[N] steps of
    emitted[T, N, S].
    """
    number = numbers(b, length(b, positions, 1))
    at_first = b.Expand(b.Equal(number, 0), b.Shape(positions))
    start = b.Where(at_first, b.like(emitted, 0), b.like(emitted, NEVER))
    behind = b.Pad(positions, [0, 2, 0, 0], -1)[:, :-2]
    odd = b.Equal(number % 2, 1)
    skips = odd & ~b.Equal(positions, behind)  # skip the blank between different labels
    steps = b.Squeeze(length(b, emitted, 0), [0])
    with b.loop(steps, start) as body:
        step, (state,) = body.iteration, body.states
        now = body.Gather(emitted, step, axis=0)
        if merge:
            moved = _either(body, state, _shifted(body, state, 1))
            jumped = body.Where(skips, _shifted(body, state, 2), NEVER)
            later = _either(body, moved, jumped) + now
        else:
            blank = now[:, :1]
            later = _either(body, state + blank, _shifted(body, state, 1) + now)
        going = step < lengths[:, None]
        return body.end(body.Where(going, later, state))[0]


def _shifted(b: Builder, state: Value, by: int) -> Value:
    """Shift every state by `by` positions towards the end."""
    return b.Pad(state, [0, by, 0, 0], NEVER)[:, :-by]


def _either(b: Builder, x: Value, y: Value) -> Value:
    """Return log(exp x + exp y)."""
    gap = -b.Abs(x - y)
    return b.Max(x, y) + b.Log(b.Exp(gap) + 1)
