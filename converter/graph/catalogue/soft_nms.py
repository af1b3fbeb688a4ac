"""Soft suppression of grouped boxes: a selected box lowers the scores of its neighbors depending on
their overlap.
"""

from __future__ import annotations

import numpy as np

from converter.graph.build import Builder, LoopBody, Value
from converter.graph.catalogue.overlaps import (
    Overlap,
    common_area,
    corner_overlap,
    pairs,
    plain_corners,
)
from converter.graph.catalogue.ssd import class_of, members
from converter.graph.demands import not_zero
from converter.graph.extensions import extension
from converter.graph.sizes import arange, static
from converter.graph.value import FLOAT, INT64

DEAD = -1e38  # removed candidates have the score -inf


@extension(counts=2, scores=2)
def GroupedSoftNMS(
    b: Builder,
    boxes: Value,
    counts: Value,
    number: Value,
    scores: Value,
    *,
    size: int,
    per_class: int,
    iou_threshold: float,
    score_threshold: float,
    sigma: float,
) -> tuple[Value, Value, Value, Value]:
    """Gaussian suppression within each class of a group (see GroupedNMS), boxes as y1, x1, y2, x2.

    In descending order of score, a box is selected unless it overlaps a selected one by
    `iou_threshold` or more; the scores of the others are multiplied by exp(-iou ** 2 / (2 *
    sigma)). Boxes whose score falls to `score_threshold` are removed. Results: boxes[b, size, 4],
    counts[b, C], scores[b, size], indices within the class[b, size]; float, padded with 0.
    """
    not_zero(sigma=sigma)
    batch, n = static(scores)
    c = static(counts)[1]
    label, real, starts = class_of(b, counts, None, number, n)
    own = b.Where(members(b, label, real, c), scores[:, None], -np.inf)
    first = b.Reshape(own, [batch * c, n])
    corners = plain_corners(b, boxes)
    shared, close = (pairs(b, corners, m) for m in (corner_overlap(0.0), _reaches(iou_threshold)))
    beside = [
        b.Reshape(b.Expand(v[:, None], [batch, c, n, n]), [batch * c, n, n])
        for v in (shared, close)
    ]
    zeros, none = (
        b.const(np.zeros([batch * c, n], np.float32)),
        b.const(np.zeros([batch * c, 1], np.float32)),
    )
    turn = b.loop(n, first, zeros, zeros, zeros, none)
    found = _one_candidate(turn, beside, (per_class, score_threshold, sigma))
    kept, order, values = (b.Reshape(v, [batch, c, n]) for v in found[1:4])
    return _packed(b, boxes, (kept, order, values), b.Reshape(found[4], [batch, c]), starts, size)


def _reaches(threshold: float) -> Overlap:
    """Return whether the intersection over union reaches the threshold, as 1 or 0."""

    def reaches(b: Builder, one: Value, many: Value) -> Value:
        _, common, area1, area2 = common_area(b, one, many)
        return b.Cast(common >= (area1 + area2 - common) * threshold, to=FLOAT)

    return reaches


def _one_candidate(
    t: LoopBody, beside: list[Value], limits: tuple[int, float, float]
) -> tuple[Value, ...]:
    """Process one candidate of each group: states scores, kept, order, values [groups, n] and the
    number of selected boxes [groups, 1].
    """
    per_class, least, sigma = limits
    with t:
        scores, kept, order, values, count = t.states
        n = static(scores)[1]
        top = t.ReduceMax(scores, [1], keepdims=1)
        chosen = t.Equal(t.ArgMax(scores, axis=1, keepdims=1), t.const(arange(n).reshape(1, n)))
        one = t.Cast(chosen, to=FLOAT)
        near, close = (t.Squeeze(one[:, None] @ v, [1]) for v in beside)
        alive = (top > least) & (count < per_class)
        taken = alive & t.Equal(t.ReduceMax(kept * close, [1], keepdims=1), 0)
        mark = one * t.Cast(taken, to=FLOAT)
        fade = t.Exp(near * near * (-0.5 / sigma))
        out = chosen & alive | (scores < DEAD)
        weaker = t.Where(taken, scores * fade, scores)
        return t.end(
            t.Where(out, -np.inf, weaker),
            kept + mark,
            order + mark * count,
            t.Where(mark > 0, top, values),
            count + t.Cast(taken, to=FLOAT),
        )


def _packed(
    b: Builder,
    boxes: Value,
    found: tuple[Value, Value, Value],
    counts: Value,
    starts: Value,
    size: int,
) -> tuple[Value, Value, Value, Value]:
    """Concatenate the selected boxes of [b, C, n], class by class, in the order of their
    selection.
    """
    kept, order, values = found
    batch, c, n = static(kept)
    offset = b.CumSum(counts, 1, exclusive=1)[:, :, None]
    position = b.Min(offset + order, size)
    position = b.Cast(b.Where(kept > 0, position, size), to=INT64)
    at = b.Reshape(position, [batch, c * n])

    def scattered(data: Value, tail: list[int]) -> Value:
        index = b.Expand(b.Reshape(at, [batch, c * n, *[1] * len(tail)]), [batch, c * n, *tail])
        spread = b.Reshape(b.Expand(data[:, None], [batch, c, n, *tail]), [batch, c * n, *tail])
        filled = b.ScatterElements(
            np.zeros([batch, size + 1, *tail], np.float32), index, spread, axis=1
        )
        return filled[:, :size]

    inner = b.const(arange(n, dtype=np.float32)) - starts
    score = b.ScatterElements(
        np.zeros([batch, size + 1], np.float32),
        at,
        b.Reshape(values, [batch, c * n]),
        axis=1,
    )
    shown = b.ReduceSum(b.Cast(position < size, to=FLOAT), [2], keepdims=0)
    return scattered(boxes, [4]), shown, score[:, :size], scattered(inner, [])
