"""Extension operators that select the best boxes, class by class, as in Android's neural networks
API (NeuralNetworksTypes.h).

Boxes are x1, y1, x2, y2; overlap is intersection over union. Results are as long as the number of
selected boxes.
"""

from __future__ import annotations

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.catalogue.overlaps import as_float, corner_overlap, decoded, every, pairs
from converter.graph.extensions import extension
from converter.graph.infer import Array
from converter.graph.sizes import arange, static
from converter.graph.value import FLOAT, INT32, INT64, LOWEST

Picked = tuple[Value, Value, Value, Value]


@extension(scores=2, rois=2, index=1)
def ClassNMS(
    b: Builder,
    scores: Value,
    rois: Value,
    index: Value,
    *,
    score_threshold: float,
    limit: int,
    kernel: int = 0,
    iou_threshold: float = 0.0,
    sigma: float = 1.0,
    nms_score_threshold: float = 0.0,
) -> tuple[Value, Value, Value, Value]:
    """Return the best boxes of each class of each image: scores [n, c], rois [n, 4c], index [n] ->
    scores [m], rois [m, 4], classes [m], index [m] (int32).

    Class 0 is the background. A selected box lowers the scores of those it overlaps: to 0 from
    `iou_threshold` on (kernel 0), by 1 - overlap from it on (1), by exp(-overlap^2 / sigma) (2);
    boxes that fall below `nms_score_threshold` are removed. `limit` per image, negative: none.
    Results are ordered by image, class and descending score.
    """
    n, c = static(scores)
    wide = [as_float(b, v) for v in (scores, rois)]
    each = b.Transpose(wide[0][:, 1:c], perm=[1, 0])  # [c - 1, n]
    boxes = b.Transpose(b.Reshape(wide[1], [n, c, 4])[:, 1:c], perm=[1, 0, 2])
    column = index[:, None]
    together = b.Equal(column, b.Transpose(column, perm=[1, 0]))
    shared = b.Where(together, pairs(b, boxes, corner_overlap(0.0)), 0.0)
    kept = _factors(b, shared, kernel, iou_threshold, sigma)
    pending = b.Where(each > float(score_threshold), each, LOWEST)
    picks, values = _rounds(b, pending, kept, n, nms_score_threshold if kernel else LOWEST)
    return _results(b, picks, values, boxes, index, (scores, rois), limit)


def _factors(b: Builder, shared: Value, kernel: int, iou_threshold: float, sigma: float) -> Value:
    """Return the factors of the scores of other boxes."""
    if kernel == 2:
        return b.Exp(shared * shared * (-1.0 / sigma))
    other = 1.0 - shared if kernel == 1 else b.const(np.float32(0))
    return b.Where(shared < float(iou_threshold), 1.0, other)


def _rounds(
    b: Builder, pending: Value, kept: Value, count: int, least: float
) -> tuple[Value, Value]:
    """Select the best box of each class, in as many rounds as there are boxes: its index and score
    [rounds, classes]; LOWEST means no box.
    """
    classes = static(pending)[0]
    with b.loop(count, pending) as body:
        (state,) = body.states
        pick = body.ArgMax(state, axis=1, keepdims=1)
        best = body.GatherElements(state, pick, axis=1)
        position = body.Expand(pick[:, :, None], [classes, 1, count])
        lowered = state * body.Squeeze(body.GatherElements(kept, position, axis=1), [1])
        gone = body.Equal(arange(count)[None], pick) | (lowered <= float(max(least, 0.0)))
        new = body.Where(gone | body.Equal(state, LOWEST), LOWEST, lowered)
        _, *found = body.end(new, body.Squeeze(pick, [1]), body.Squeeze(best, [1]))
    return found[0], found[1]


def _results(
    b: Builder,
    picks: Value,
    values: Value,
    boxes: Value,
    index: Value,
    like: tuple[Value, Value],
    limit: int,
) -> Picked:
    """Return the selected boxes, class by class, without empty rounds, at most `limit` per image,
    image by image.
    """
    classes, count, _ = static(boxes)
    flat = [b.Reshape(b.Transpose(v, perm=[1, 0]), [-1]) for v in (picks, values)]
    number = b.Reshape(b.Expand(arange(1, classes + 1)[:, None], [classes, count]), [-1])
    image = b.Cast(b.Gather(index, flat[0], axis=0), to=FLOAT)
    real = flat[1] > LOWEST
    if limit >= 0:
        real = real & (_rank(b, flat[1], image, classes * count) < limit)
    chosen = b.Reshape(b.NonZero(real), [-1])
    by_image = b.Gather(image, chosen)
    _, order = b.TopK(by_image, b.Shape(chosen), axis=0, largest=0, outputs=2)
    chosen = b.Gather(chosen, order, axis=0)
    pick, score, category = (b.Gather(v, chosen, axis=0) for v in (flat[0], flat[1], number))
    position = (category - 1) * count + pick
    box = b.Gather(b.Reshape(boxes, [classes * count, 4]), position, axis=0)
    entry = b.Cast(b.Gather(index, pick, axis=0), to=INT32)
    return (b.CastLike(score, like[0]), b.CastLike(box, like[1]), b.Cast(category, to=INT32), entry)


def _rank(b: Builder, values: Value, image: Value, count: int) -> Value:
    """Return the number of entries of the same image before each, in descending order of score."""
    by_score = b.TopK(values, [count], axis=0, outputs=2)[1]
    own = b.Gather(image, by_score)
    _, by_image = b.TopK(own, [count], axis=0, largest=0, outputs=2)  # stable
    order = b.Gather(by_score, by_image, axis=0)
    images = b.Gather(image, order, axis=0)
    starts = ~b.Equal(images, b.Concat([-1.0], images[: count - 1], axis=0))
    lengths = b.CumSum(b.Cast(starts, to=FLOAT), 0) - 1.0  # the index of the group of each entry
    group = b.Cast(lengths, to=INT64)
    first = b.ScatterElements(
        np.full(count, count, np.int64), group, arange(count), axis=0, reduction="min"
    )
    rank = b.const(arange(count)) - b.Gather(first, group, axis=0)
    return b.ScatterElements(np.zeros(count, np.int64), order, rank, axis=0)


@extension(scores=4, deltas=4, anchors=2, image=2)
def GridProposals(
    b: Builder,
    scores: Value,
    deltas: Value,
    anchors: Value,
    image: Value,
    *,
    ratio: list[float],
    before: int,
    after: int,
    iou_threshold: float,
    min_size: float,
) -> tuple[Value, Value, Value]:
    """Region proposals of images from the anchors [a, 4] at each position of a map: scores [n, a,
    h, w], deltas [n, 4a, h, w], image [n, 2] (height, width).

    The map's element i is at i * ratio (height, width). Of the `before` best (0: all), those are
    kept that have at least `min_size` (and 1) on both sides and their center in the image; of these
    the `after` best (0: all) with overlaps below `iou_threshold`. Results, image by image: scores
    [m], regions [m, 4], index [m] (int32).
    """
    n, a, h, w = static(scores)
    total = a * h * w
    wide = [as_float(b, v) for v in (scores, deltas, anchors, image)]
    flat = b.Reshape(b.Transpose(wide[0], perm=[0, 2, 3, 1]), [n, total])
    moved = b.Reshape(
        b.Transpose(b.Reshape(wide[1], [n, a, 4, h, w]), perm=[0, 3, 4, 1, 2]), [n * total, 4]
    )
    placed = b.Reshape(wide[2][None] + _shifts(h, w, ratio), [1, total, 4])
    placed = b.Reshape(b.Expand(placed, [n, total, 4]), [n * total, 4])
    entry = np.repeat(arange(n, dtype=np.int32), total)
    boxes = b.Reshape(b.TransformBoxes(placed, moved, entry, wide[3]), [n, total, 4])
    usable = _usable(b, boxes, wide[3], max(float(min_size), 1.0))
    if 0 < before < total:
        best = b.TopK(flat, [before], axis=1, outputs=2)[1]
        among = b.ScatterElements(
            np.zeros((n, total), np.float32), best, np.ones((n, before), np.float32), axis=1
        )
        usable = usable & (among > 0.5)
    ranked = b.Where(usable, flat, float("-inf"))[:, None]
    most = after if after > 0 else total
    chosen = b.NonMaxSuppression(boxes, ranked, [most], _from(iou_threshold), [LOWEST])
    index = b.Gather(chosen, [0, 2], axis=1)
    score, box = b.GatherND(flat, index), b.GatherND(boxes, index)
    return (
        b.CastLike(score, scores),
        b.CastLike(box, image),
        b.Cast(b.Gather(chosen, 0, axis=1), to=INT32),
    )


def _shifts(h: int, w: int, ratio: list[float]) -> Array:
    """Return the position of each element of a map in the image, x and y twice: [h * w, 1, 4]."""
    ys, xs = np.meshgrid(
        arange(h, dtype=np.float32) * ratio[0],
        arange(w, dtype=np.float32) * ratio[1],
        indexing="ij",
    )
    return np.stack([xs, ys, xs, ys], -1).reshape(h * w, 1, 4).astype(np.float32)


def _from(threshold: float) -> Array:
    """Return the next smaller number.

    NonMaxSuppression removes overlaps above its threshold, here equal ones are removed, too.
    """
    return np.array([np.nextafter(np.float32(threshold), np.float32(-1))])


def _usable(b: Builder, boxes: Value, image: Value, least: float) -> Value:
    """Return which boxes [n, m, 4] are large enough and have their center in their image: [n,
    m].
    """
    low, high = b.Split(boxes, [2, 2], outputs=2, axis=2)
    limit = b.Gather(image, [1, 0], axis=1)[:, None]  # width, height
    return every(b, (high - low >= least) & ((low + high) * 0.5 < limit))


@extension(scores=3, deltas=3, anchors=2)
def AnchorDetections(
    b: Builder,
    scores: Value,
    deltas: Value,
    anchors: Value,
    *,
    scales: list[float],
    per_class: int = 0,
    limit: int,
    classes_each: int = 1,
    limit_each: int = 0,
    score_threshold: float,
    iou_threshold: float,
    background: int = 0,
) -> tuple[Value, Value, Value, Value]:
    """Boxes of anchors [p, 4] (y, x, height, width of the center) moved by deltas [n, p, 4+] over
    `scales` (y, x, height, width), then suppressed.

    scores [n, p, c], class 0 is the background; labels count it if `background`. `per_class`: each
    class keeps `limit_each` boxes, of which the best `limit` are returned. Otherwise a box has the
    score of its best class, `limit` are kept, and each is returned with `classes_each` of its
    classes. Results [n, m] scores, [n, m, 4] boxes (y1, x1, y2, x2), [n, m] labels (int32), padded
    with zeros; [n] their number (int32).
    """
    _n, _p, c = static(scores)
    wide = [as_float(b, v) for v in (scores, deltas, anchors)]
    middle, size = b.Split(wide[2], [2, 2], outputs=2, axis=1)
    boxes = decoded(b, middle, size, wide[1][:, :, :4] / np.array(scales, np.float32))
    real = wide[0][:, :, 1:c]  # without the background
    pick, each = (_per_class, limit_each) if per_class else (_one_class, classes_each)
    values, position, label, valid = pick(
        b, boxes, real, limit, each, score_threshold, iou_threshold
    )
    box = b.GatherND(boxes, position[:, :, None], batch_dims=1)
    count = b.Cast(b.ReduceSum(b.Cast(valid, to=INT32), [1], keepdims=0), to=INT32)
    named = label if not background else label + 1
    return (
        b.CastLike(b.Where(valid, values, 0.0), scores),
        b.CastLike(b.Where(valid[:, :, None], box, 0.0), scores),
        b.Cast(b.Where(valid, named, 0), to=INT32),
        count,
    )


def _suppressed(
    b: Builder,
    boxes: Value,
    scores: Value,
    limit: int,
    score_threshold: float,
    iou_threshold: float,
) -> Value:
    """Return scores [n, k, p], replaced by LOWEST if they are too low, suppressed or beyond the
    limit of their class.
    """
    n, k, p = static(scores)
    least = np.array([score_threshold], np.float32)
    chosen = b.NonMaxSuppression(boxes, scores, [limit], _from(iou_threshold), least)
    ones = b.Expand(1.0, b.Shape(chosen, end=1))
    kept = b.ScatterND(np.zeros((n, k, p), np.float32), chosen, ones)
    return b.Where(kept > 0.5, scores, LOWEST)


def _per_class(
    b: Builder,
    boxes: Value,
    real: Value,
    limit: int,
    limit_each: int,
    score_threshold: float,
    iou_threshold: float,
) -> Picked:
    n, p, k = static(real)
    most = min(limit_each, p) if limit_each > 0 else p
    by_class = b.Transpose(real, perm=[0, 2, 1])
    kept = _suppressed(b, boxes, by_class, most, score_threshold, iou_threshold)
    values, position = _best(b, b.Reshape(kept, [n, k * p]), limit)
    return (values, position % p, position / p, values > LOWEST)


def _one_class(
    b: Builder,
    boxes: Value,
    real: Value,
    limit: int,
    each: int,
    score_threshold: float,
    iou_threshold: float,
) -> Picked:
    n, p, k = static(real)
    each = min(each, k)
    best = b.ReduceMax(real, [2], keepdims=0)
    kept = _suppressed(b, boxes, best[:, None], min(limit, p), score_threshold, iou_threshold)
    found, position = _best(b, b.Squeeze(kept, [1]), limit)
    of_box = b.GatherND(real, position[:, :, None], batch_dims=1)  # [n, limit, k]
    values, labels = b.TopK(of_box, [each], axis=2, outputs=2)
    valid = b.Expand((found > LOWEST)[:, :, None], [n, limit, each])
    positions = b.Expand(position[:, :, None], [n, limit, each])
    return tuple(b.Reshape(v, [n, limit * each]) for v in (values, positions, labels, valid))  # type: ignore[return-value]


def _best(b: Builder, scores: Value, limit: int) -> tuple[Value, Value]:
    """Return the largest `limit` of each row and their indices; LOWEST if there are fewer."""
    _, count = static(scores)
    if limit > count:
        scores = b.Pad(scores, [0, 0, 0, limit - count], LOWEST)
    values, position = b.TopK(scores, [limit], axis=1, outputs=2)
    return values, b.Min(position, count - 1)
