"""Suppression of overlapping boxes beyond ONNX's own operator: any measure of overlap, adaptive
thresholds, decaying scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension
from converter.graph.value import FLOAT, INT64

Overlap = Callable[[Builder, Value, Value], Value]
NOTHING = float("-inf")  # the score of boxes that are excluded


# sizes that may be known at run time only --------------------------------------------------------


def length(b: Builder, value: Value, axis: int) -> Value:
    """Return one dimension as int64[1]."""
    return b.Shape(value, start=axis, end=axis + 1)


def numbers(b: Builder, count: Value) -> Value:
    """Return 0, 1, .. count-1 for an int64[1]."""
    return b.Range(0, b.Squeeze(count, [0]), 1)


def as_int64(b: Builder, number: Value) -> Value:
    """Return a single number, of any integer type and shape, as int64[1]."""
    return b.Reshape(b.Cast(number, to=INT64), [1])


def ranked(b: Builder, value: Value, rank: int) -> Value:
    """Return `value` with a known rank, for files that leave even that dynamic."""
    return value if value.shape is not None else b.Reshape(value, [0] * (rank - 1) + [-1])


def as_float(b: Builder, value: Value) -> Value:
    """Cast to float32."""
    return value if value.dtype == FLOAT else b.Cast(value, to=FLOAT)


def every(b: Builder, truths: Value) -> Value:
    """Return whether all elements are true along the last axis."""
    return b.Equal(b.ReduceMin(b.Cast(truths, to=INT64), [-1], keepdims=0), 1)


def fullest(b: Builder, usable: Value) -> Value:
    """Return the largest number of true elements in a row of usable[.., N], at least 1:
    int64[1].
    """
    counts = b.ReduceSum(b.Cast(usable, to=INT64), [-1], keepdims=0)
    return b.Reshape(b.Max(b.ReduceMax(counts, keepdims=0), 1), [1])


# overlaps ----------------------------------------------------------------------------------------


def sides(b: Builder, boxes: Value, edge: float) -> tuple[Value, Value, Value]:
    """Return low and high corners [.., 2] of boxes[.., 4] and width times height [..], with sides
    `edge` longer than the difference.
    """
    low, high = b.Split(boxes, [2, 2], outputs=2, axis=-1)
    size = high - low
    return low, high, product(b, size + edge if edge else size)


def around(b: Builder, middle: Value, size: Value) -> Value:
    """Return the corner boxes [.., 4] of a center and size, [.., 2] each."""
    half = size * 0.5
    return b.Concat(middle - half, middle + half, axis=-1)


def decoded(
    b: Builder, middle: Value, size: Value, deltas: Value, largest: float | None = None
) -> Value:
    """Return the corner boxes [.., 4] of a center and a size [.., 2] moved by deltas[.., :2] times
    the size and scaled by exp(deltas[.., 2:]), at most `largest`.
    """
    move, grow = b.Split(deltas, [2, 2], outputs=2, axis=-1)
    grown = b.Exp(grow) * size
    grown = grown if largest is None else b.Min(grown, largest)
    return around(b, middle + move * size, grown)


def upright(b: Builder, boxes: Value) -> Value:
    """Return boxes [.., 4] in which inverted ones have no area."""
    low, high = b.Split(boxes, [2, 2], outputs=2, axis=-1)
    return b.Concat(low, b.Max(low, high), axis=-1)


def scatter_scores(b: Builder, scores: Value, positions: Value, values: Value) -> Value:
    """Return values [.., .., K] at their indices along the last axis of scores, -inf elsewhere."""
    nothing = b.Expand(np.float32(NOTHING), b.Shape(scores))
    return b.ScatterElements(nothing, positions, values, axis=2)


def product(b: Builder, pair: Value) -> Value:
    """Return the product along the last axis, which has two elements."""
    x, y = b.Split(pair, [1, 1], outputs=2, axis=-1)
    return b.Squeeze(x * y, [-1])


def apart(b: Builder, low: Value, high: Value) -> Value:
    """Return whether high[.., 2] is less than low[.., 2] in x or y, that is, whether the box is
    inverted.
    """
    return b.ReduceMin(high - low, [-1], keepdims=0) < 0.0


def common_area(
    b: Builder, one: Value, many: Value, edge: float = 0.0
) -> tuple[Value, Value, Value, Value]:
    """Return width and height [.., 2] of the intersection of two boxes, negative if they are
    disjoint; its area, and those of both boxes.
    """
    (low1, high1, area1), (low2, high2, area2) = sides(b, one, edge), sides(b, many, edge)
    size = b.Min(high1, high2) - b.Max(low1, low2)
    return size, product(b, b.Max(size + edge if edge else size, 0.0)), area1, area2


def over_union(b: Builder, common: Value, area1: Value, area2: Value, real: Value) -> Value:
    """Return the common area over that of the union, 0 where the overlap is not `real`."""
    return b.Where(real, common / (area1 + area2 - common), 0.0)


def pairs(b: Builder, boxes: Value, measure: Overlap) -> Value:
    """Return a measure of each pair of boxes[.., N, 4]: [.., N, N]."""
    return measure(b, boxes[..., None, :], boxes[..., None, :, :])


def corner_overlap(edge: float, *, touching: bool = False) -> Overlap:
    """Return the intersection over union of corner boxes; 0 if one has no area and, with
    `touching`, if they are disjoint (which `edge` could hide).
    """

    def overlap(b: Builder, one: Value, many: Value) -> Value:
        size, common, area1, area2 = common_area(b, one, many, edge)
        real = b.Min(area1, area2) > 0.0
        if touching:
            real = real & ~(b.ReduceMin(size, [-1], keepdims=0) < 0.0)
        return over_union(b, common, area1, area2, real)

    return overlap


# one box after the other -------------------------------------------------------------------------


def greedy(
    b: Builder,
    boxes: Value,
    usable: Value,
    overlap: Overlap,
    threshold: Value | float,
    *,
    most: Value | None = None,
    eta: float = 1.0,
    reached: bool = False,
) -> Value:
    """Return which of boxes[G, K, D] are kept, bool [G, K]: each usable one that no earlier kept
    box overlaps by more than the threshold.

    Boxes are in descending order of score within each of the G groups. `most` (int64[1]) limits the
    number of kept boxes per group. With eta < 1 the threshold of a group is multiplied by it after
    each kept box, as long as it exceeds 0.5. `reached`: an overlap equal to the threshold also
    suppresses.
    """
    rank = numbers(b, length(b, boxes, 1))
    # after the last usable one
    rounds = b.ReduceMax(b.Cast(usable, to=INT64) * (rank + 1), keepdims=0)
    first = usable[:, :1]
    none = usable & False
    limit = b.Expand(threshold, b.Shape(first))
    count = b.Cast(first, to=INT64) * 0
    with b.loop(rounds, none, limit, count) as inner:
        kept, bound, number = inner.states
        position = inner.Reshape(inner.iteration, [1])
        shared = kept & inner.operator("GreaterOrEqual" if reached else "Greater")(
            overlap(inner, inner.Gather(boxes, position, axis=1), boxes), bound
        )
        hit = inner.ReduceMax(inner.Cast(shared, to=FLOAT), [1], keepdims=1)
        stays = inner.Gather(usable, position, axis=1) & inner.Equal(hit, 0.0)
        if most is not None:
            stays = stays & (number < most)
        after = number + inner.Cast(stays, to=INT64)
        moved = inner.Where(stays & (bound > 0.5), bound * eta, bound) if eta < 1 else bound
        result = kept | stays & inner.Equal(rank, position)
        room = None
        if most is not None:
            room = inner.ReduceMin(after, keepdims=0) < inner.Squeeze(most, [0])
        return inner.end(result, moved, after, going=room)[0]


@extension
def SoftNonMaxSuppression(
    b: Builder,
    boxes: Value,
    scores: Value,
    most: Value,
    iou: Value,
    least: Value,
    sigma: Value,
    *,
    center_point_box: int = 0,
    hard: int = 0,
) -> tuple[Value, Value]:
    """Soft suppression (Bodla et al., 2017): boxes are selected in descending order of score, and
    each lowers the scores of those that it overlaps.

    boxes[B, N, 4] any two opposite corners, or center x, y, width, height with center_point_box;
    scores[B, C, N]. A score is multiplied by exp(-overlap^2 / (2*sigma)), and the box is removed if
    it does not exceed `least`. With sigma 0, or with `hard`, boxes whose overlap reaches `iou` are
    removed. At most `most` boxes of each class. Rows [image, class, box] int64 [K, 3] and their
    scores [K], class by class.
    """
    boxes, scores = ranked(b, boxes, 3), ranked(b, scores, 3)
    plain = plain_corners(b, boxes, bool(center_point_box))
    classes, count = length(b, scores, 1), length(b, scores, 2)
    each = b.Reshape(scores, b.Concat([-1], count, axis=0))
    owner = numbers(b, length(b, each, 0)) / classes
    all_boxes = b.Gather(plain, owner, axis=0)
    limits = [b.Reshape(v, [1]) for v in (iou, least, sigma)]
    wanted = as_int64(b, most)
    start = b.Where(each > limits[1], each, NOTHING)
    best, position = _decaying(b, all_boxes, start, b.Min(wanted, count), limits, bool(hard))
    found = (best > NOTHING) & (numbers(b, length(b, best, 1)) < wanted)
    at = b.Transpose(b.NonZero(found), perm=[1, 0])  # group and rank, class by class
    group = at[:, :1]
    box = b.GatherND(position, at)[:, None]
    return b.Concat(group / classes, group % classes, box, axis=1), b.GatherND(best, at)


def plain_corners(b: Builder, boxes: Value, centered: bool = False) -> Value:
    """Return the low and the high corner of boxes[.., 4], given by any two opposite ones or by
    center and size; a negative size stays negative, and such a box overlaps nothing.
    """
    if centered:
        return around(b, *b.Split(boxes, [2, 2], outputs=2, axis=-1))
    first, second = b.Split(boxes, [2, 2], outputs=2, axis=-1)
    return b.Concat(b.Min(first, second), b.Max(first, second), axis=-1)


def _decaying(
    b: Builder, boxes: Value, scores: Value, rounds: Value, limits: Sequence[Value], hard: bool
) -> tuple[Value, Value]:
    """Return the best remaining score in each round [G, T] and its index; boxes[G, N, 4], scores[G,
    N].
    """
    iou, least, sigma = limits
    soft = sigma > 0.0
    scale = b.Where(soft, -0.5 / sigma, 0.0)
    rank = numbers(b, length(b, scores, 1))
    with b.loop(b.Squeeze(b.Max(rounds, [1]), [0]), scores) as inner:
        (left,) = inner.states
        position = inner.ArgMax(left, axis=1, keepdims=1)
        best = inner.ReduceMax(left, [1], keepdims=0)
        one = inner.GatherND(boxes, position, batch_dims=1)[:, None]
        shared = corner_overlap(0.0)(inner, one, boxes)
        weight = inner.Exp(scale * (shared * shared))
        out = shared >= iou
        if not hard:
            out = out & ~soft
        lower = inner.Where(out, NOTHING, left * weight)
        stays = (lower > least) & ~inner.Equal(rank, position)
        after = inner.Where(stays, lower, NOTHING)
        some = inner.ReduceMax(after, keepdims=0) > NOTHING
        _, bests, positions = inner.end(after, best, inner.Squeeze(position, [1]), going=some)
    return b.Transpose(bests, perm=[1, 0]), b.Transpose(positions, perm=[1, 0])
