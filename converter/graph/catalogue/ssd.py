"""Single-shot detection: decoding of boxes, grouping by class, suppression.

Boxes are y1, x1, y2, x2 unless declared otherwise.

Groups are lists of fixed size in which boxes are ordered by class, together with the classes that
occur and the number of boxes of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from converter.graph.build import Builder, Value, writing
from converter.graph.catalogue.compact import first_true_indices, take, total
from converter.graph.catalogue.overlaps import around, decoded
from converter.graph.demands import not_zero, of_length
from converter.graph.extensions import extension
from converter.graph.sizes import arange, static
from converter.graph.value import FLOAT, INT64

Groups = tuple[Value, Value, Value, Value, Value]


def refined(
    b: Builder,
    anchors: tuple[Value, Value],
    deltas: Value,
    factors: Sequence[float],
    *,
    largest: float | None = None,
    clip: bool = True,
) -> Value:
    """Return boxes [.., 4] of anchors (center and size [.., 2]) moved by deltas[.., 4] * factors;
    sides are at most `largest`, and `clip` clips to 0..1.
    """
    moves = deltas * np.array(factors, np.float32)
    boxes = decoded(b, *anchors, moves, largest)
    return b.Clip(boxes, 0.0, 1.0) if clip else boxes


def middles(b: Builder, boxes: Value) -> tuple[Value, Value]:
    """Return center and size, [.., 2] each, of corner boxes [.., 4]."""
    low, high = b.Split(boxes, [2, 2], outputs=2, axis=-1)
    return (low + high) * 0.5, high - low


def grouped(
    b: Builder, scores: Value, boxes: Value, threshold: float, size: int, classes: int
) -> Groups:
    """Group scores[b, C, N] above the threshold with their boxes[b, N, 4]: boxes, counts, number of
    classes, scores, classes.
    """
    batch, c, n = static(scores)
    mask = scores > threshold
    flat = b.Reshape(mask, [batch, c * n])
    positions, real = first_true_indices(b, flat, size)
    kept = take(b, boxes, positions % n, real)
    values = take(b, b.Reshape(scores, [batch, c * n]), positions, real)
    counts = b.ReduceSum(b.Cast(mask, to=FLOAT), [2], keepdims=0)
    return kept, *present(b, counts, classes), values, labels_of(b, counts, classes)


@writing
def present(b: Builder, counts: Value, size: int) -> tuple[Value, Value]:
    """Move the non-zero counts to the front, and return their number [b, 1]; float."""
    mask = counts > 0.0
    positions, real = first_true_indices(b, mask, size)
    return take(b, counts, positions, real), b.Cast(total(b, mask, size, keepdims=1), to=FLOAT)


@writing
def labels_of(b: Builder, counts: Value, size: int) -> Value:
    """Return the indices of the first `size` positive counts as floats, 0 where there are fewer."""
    positions, real = first_true_indices(b, counts > 0.0, size)
    return b.Cast(b.Where(real, positions, 0), to=FLOAT)


def _inverse(**divisors: Sequence[float]) -> list[float]:
    """Return factors equivalent to four divisors."""
    of_length(4, **divisors)
    not_zero(**divisors)
    return [1.0 / d for given in divisors.values() for d in given]


@extension
def RefineBoxes(
    b: Builder, boxes: Value, deltas: Value, *, divisors: Sequence[float] = (10.0, 10.0, 5.0, 5.0)
) -> Value:
    """Move boxes[b, n, 4] by deltas[b, n, 4] (y, x, log h, log w), clipped to 0..1."""
    return refined(b, middles(b, boxes), deltas, _inverse(divisors=divisors))


@extension(scores=3, deltas=3)
def DecodeBoxes(
    b: Builder,
    scores: Value,
    deltas: Value,
    anchors: Value,
    *,
    class_num: int,
    threshold: float,
    size: int,
    classes: int,
    variance: Sequence[float] = (10.0, 10.0, 5.0, 5.0),
    clip: int = 1,
) -> Groups:
    """Decode scores[b, N, C] (the last class_num count), deltas[b, N, 4], anchors[N, 4] (center y,
    x, h, w) -> groups. Boxes are at most as high and wide as the image.

    Results: boxes[b, size, 4], counts[b, classes], number of classes[b, 1], scores[b, size],
    classes[b, classes]; all float.
    """
    wide = static(scores)[2]
    own = scores[:, :, wide - class_num : wide]
    sides = b.Split(anchors, [2, 2], outputs=2, axis=1)
    factors = _inverse(variance=variance)
    boxes = refined(b, (sides[0], sides[1]), deltas, factors, largest=1.0, clip=bool(clip))
    return grouped(b, b.Transpose(own, perm=[0, 2, 1]), boxes, threshold, size, classes)


@extension(x=5)
def RegionGroups(
    b: Builder,
    x: Value,
    *,
    anchors: Sequence[float],
    threshold: float,
    size: int,
    compensate: int = 1,
) -> Groups:
    """YOLO v2: x[b, gh, gw, A, 5 + C] (x, y, log w, log h, confidence, classes), anchors w, h in
    cells -> scores, boxes, counts, classes, number of classes.
    """
    batch, gh, gw, a, depth = static(x)
    shift = 0.5 if compensate and gh % 2 == 0 and gw % 2 == 0 else 0.0
    of_length(2 * a, anchors=anchors)
    cell = np.array([1.0 / gh, 1.0 / gw], np.float32)
    sizes = np.asarray(anchors, np.float32).reshape(a, 2)[:, ::-1] * cell  # height, width
    cells = np.indices((gh, gw), np.float32).transpose(1, 2, 0)[:, :, None] - np.float32(shift)
    middle = (b.Sigmoid(b.Gather(x, [1, 0], axis=4)) + b.const(cells)) * b.const(cell)
    boxes = around(b, middle, b.Exp(b.Gather(x, [3, 2], axis=4)) * b.const(sizes))
    boxes = b.Clip(boxes, 0.0, 1.0)
    own = b.Softmax(x[..., 5:depth], axis=4)
    scores = own * b.Sigmoid(x[..., 4:5])
    flat = b.Transpose(b.Reshape(scores, [batch, gh * gw * a, depth - 5]), perm=[0, 2, 1])
    kept, counts, number, values, labels = grouped(
        b, flat, b.Reshape(boxes, [batch, gh * gw * a, 4]), threshold, size, depth - 5
    )
    return values, kept, counts, labels, number


@writing
def class_of(
    b: Builder, counts: Value, labels: Value | None, number: Value, size: int
) -> tuple[Value, Value, Value]:
    """Return, for each of `size` entries of a group, its class (or the index of its class), whether
    it is valid, and where its class starts.
    """
    c = static(counts)[1]
    present = b.const(arange(c, dtype=np.float32)) < number
    ends = b.CumSum(b.Where(present, counts, 0), 1)
    positions = b.const(arange(size, dtype=np.float32).reshape(1, size, 1))
    passed = b.ReduceSum(b.Cast(ends[:, None] <= positions, to=INT64), [2], keepdims=0)
    index = b.Min(passed, c - 1)
    real = passed < c
    starts = b.GatherElements(ends - b.Where(present, counts, 0), index, axis=1)
    named = b.Cast(index, to=FLOAT) if labels is None else b.GatherElements(labels, index, axis=1)
    return named, real, starts


def members(b: Builder, label: Value, real: Value, classes: int) -> Value:
    """Return [b, classes, n]: whether the valid entry n is of the class."""
    same = b.Equal(label[:, None], arange(classes, dtype=np.float32).reshape(classes, 1))
    return same & real[:, None]


@extension(s0=2, s1=2, n0=2, n1=2)
def FuseRegions(
    b: Builder,
    s0: Value,
    s1: Value,
    b0: Value,
    b1: Value,
    n0: Value,
    n1: Value,
    l0: Value,
    l1: Value,
    t0: Value,
    t1: Value,
    *,
    size: int,
    classes: int,
) -> Groups:
    """Merge two groups (scores, boxes, counts, classes, number of classes); within each class the
    boxes of the first precede those of the second.
    """
    first, second = class_of(b, n0, l0, t0, static(s0)[1]), class_of(b, n1, l1, t1, static(s1)[1])
    label, real = (b.Concat(first[i], second[i], axis=1) for i in (0, 1))
    scores, boxes = b.Concat(s0, s1, axis=1), b.Concat(b0, b1, axis=1)
    batch, n = static(scores)
    member = members(b, label, real, classes)
    positions, kept = first_true_indices(b, b.Reshape(member, [batch, classes * n]), size)
    at = positions % n
    counts = b.ReduceSum(b.Cast(member, to=FLOAT), [2], keepdims=0)
    per_class, number = present(b, counts, classes)
    return (
        take(b, scores, at, kept),
        take(b, boxes, at, kept),
        per_class,
        labels_of(b, counts, classes),
        number,
    )


@extension(counts=2, scores=2)
def GroupedNMS(
    b: Builder,
    boxes: Value,
    counts: Value,
    number: Value,
    scores: Value,
    *,
    size: int,
    per_class: int,
    iou_threshold: float,
    score_threshold: float = float("-inf"),
    center_point_box: int = 0,
) -> tuple[Value, Value, Value, Value]:
    """Greedy suppression within each class of a group, at most `per_class` of each.

    Results: boxes[b, size, 4], counts[b, C], scores[b, size], indices within the class[b, size];
    float, padded with 0.
    """
    batch, n = static(scores)
    c = static(counts)[1]
    label, real, starts = class_of(b, counts, None, number, n)
    member = members(b, label, real, c)
    each = b.Where(member, scores[:, None], -np.inf)
    limits = (
        b.const(np.array([v], np.float32)) for v in (iou_threshold, max(score_threshold, -3e38))
    )
    chosen = b.NonMaxSuppression(
        boxes, each, [per_class], *limits, center_point_box=center_point_box
    )
    image, box = (b.Reshape(chosen[:, i : i + 1], [-1]) for i in (0, 2))
    at = _row_numbers(b, image, batch, size)
    target, source = (b.Concat(image[:, None], v[:, None], axis=1) for v in (at, box))
    inner = b.const(arange(n, dtype=np.float32)) - starts

    def scattered(data: Value, shape: list[int]) -> Value:
        filled = b.ScatterND(
            np.zeros([batch, size + 1, *shape], np.float32),
            target,
            b.GatherND(data, source),
        )
        return filled[:, :size]

    shown = b.Cast(at < size, to=FLOAT)
    kept = b.ScatterND(
        np.zeros([batch, c], np.float32),
        chosen[:, :2],
        shown,
        reduction="add",
    )
    return scattered(boxes, [4]), kept, scattered(scores, []), scattered(inner, [])


def _row_numbers(b: Builder, image: Value, batch: int, size: int) -> Value:
    """Return the running number of each row within its image; surplus rows get the index `size`,
    which is truncated later.
    """
    ones = b.Cast(b.Equal(image, image), to=INT64)
    counts = b.ScatterElements(np.zeros(batch, np.int64), image, ones, axis=0, reduction="add")
    before = b.CumSum(counts, 0, exclusive=1)
    at = b.CumSum(ones, 0) - ones - b.Gather(before, image)
    return b.Min(at, size)


@extension(scores=3)
def MultiboxDecode(
    b: Builder,
    scores: Value,
    deltas: Value,
    anchors: Value,
    *,
    threshold: float,
    variances: Sequence[float],
) -> tuple[Value, Value]:
    """Decode scores[b, C, A] (class 0 is background), deltas[b, A*4], anchors[1, A, 4] (x1, y1, x2,
    y2) -> rows (class, score, x1, y1, x2, y2) and their number.

    Rows above the threshold come first, followed by -1; boxes are clipped to 0..1. deltas are x, y,
    log w, log h, times variances.
    """
    of_length(4, variances=variances)
    batch, c, a = static(scores)
    own = scores[:, 1:c]
    best, label = (
        b.ReduceMax(own, [1], keepdims=0),
        b.Cast(b.ArgMax(own, axis=1, keepdims=0), to=FLOAT),
    )
    moves = b.Reshape(deltas, [batch, a, 4])
    boxes = refined(b, middles(b, anchors), moves, variances)
    rows = b.Concat(label[:, :, None], best[:, :, None], boxes, axis=2)
    mask = best > threshold
    positions, real = first_true_indices(b, mask, a)
    return take(b, rows, positions, real, -1.0), total(b, mask, a)
