"""Suppression of boxes in several classes at once, and the best rows of all classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.catalogue.overlaps import (
    NOTHING,
    apart,
    corner_overlap,
    fullest,
    greedy,
    length,
    numbers,
    product,
    ranked,
    scatter_scores,
    sides,
)
from converter.graph.extensions import extension
from converter.graph.value import FLOAT, INT64


def _capped(b: Builder, count: Value, most: int) -> Value:
    """Return count, limited to `most` unless that is negative."""
    return count if most < 0 else b.Min(count, [most])


@dataclass(frozen=True)
class _Selection:
    """The selected rows of a suppression in several classes."""

    sort: str
    across: bool
    most: int
    rank_classes: bool  # sorting by class also orders within an image

    def rows(
        self, b: Builder, kept: Value, flat: Value, shared: bool
    ) -> tuple[Value, Value, Value]:
        """Return rows [class, score, box], their indices [S, 1] and their number per image for
        kept[B, C, N] (-inf: not selected); flat[.., 4]: all boxes.
        """
        classes, count = length(b, kept, 1), length(b, kept, 2)
        together = b.Reshape(kept, b.Concat([0], classes * count, axis=0))
        values, positions = b.TopK(
            together, _capped(b, length(b, together, 1), self.most), outputs=2, axis=1
        )
        real = values > NOTHING
        found = b.ReduceSum(b.Cast(real, to=INT64), [1], keepdims=0)
        image = b.Expand(numbers(b, length(b, kept, 0))[:, None], b.Shape(positions))
        columns = [image, positions / count, positions % count, values]
        chosen = b.Reshape(real, [-1])
        image, label, box, value = (b.Compress(b.Reshape(v, [-1]), chosen, axis=0) for v in columns)
        if (order := self._order(b, image, label, value, classes)) is not None:
            image, label, box, value = (b.Gather(v, order) for v in (image, label, box, value))
        row = (image if shared else label) * count + box
        index = row if shared else box * classes + label
        head = [v[:, None] for v in (b.Cast(label, to=FLOAT), value)]
        return (b.Concat(*head, b.Gather(flat, row), axis=1), index[:, None], found)

    def _order(
        self, b: Builder, image: Value, label: Value, value: Value, classes: Value
    ) -> Value | None:
        """Return the sort order of the rows, which are ordered by image and descending score; TopK
        preserves the order of ties.
        """
        count = b.Shape(value)
        if self.sort == "score" and self.across:
            return b.TopK(value, count, outputs=2, axis=0)[1]
        if self.sort == "classid" and (self.across or self.rank_classes):
            key = label if self.across else image * classes + label
            return b.TopK(key, count, outputs=2, axis=0, largest=0)[1]
        return None


def _strongest(
    b: Builder, scores: Value, usable: Value, background: int, most: int
) -> tuple[Value, Value]:
    """Return the `most` best usable scores[B, C, N] of each class, descending, and their indices:
    as many as the fullest class has, with -inf in the others.

    The background is left out.
    """
    if background >= 0:
        label = numbers(b, length(b, scores, 1))[:, None]
        usable = usable & ~b.Equal(label, background)
    found = b.TopK(
        b.Where(usable, scores, NOTHING), _capped(b, fullest(b, usable), most), outputs=2, axis=2
    )
    return found[0], found[1]


@extension
def MulticlassNms(
    b: Builder,
    boxes: Value,
    scores: Value,
    roisnum: Value | None = None,
    *,
    sort_result_type: str = "none",
    sort_result_across_batch: int = 0,
    iou_threshold: float = 0.0,
    score_threshold: float = 0.0,
    nms_top_k: int = -1,
    keep_top_k: int = -1,
    background_class: int = -1,
    normalized: int = 1,
    nms_eta: float = 1.0,
) -> tuple[Value, Value, Value]:
    """Suppression within each class, then the best of all classes: rows [class, score, x1, y1, x2,
    y2], indices int64 [S, 1], numbers int64 [B].

    boxes[B, N, 4] and scores[B, C, N]; or boxes[C, M, 4] and scores[C, M] of all images
    concatenated, with their numbers in roisnum[B]. Indices count all boxes of the batch: image*N +
    box, with roisnum box*C + class. nms_top_k limits the candidates of a class, keep_top_k the rows
    of an image (-1: no limit); boxes that are not normalized include their last pixel.
    sort_result_type: none and score sort by score, classid by class and score, within each image or
    across the batch. An overlap equal to the threshold suppresses. Source: OpenVINO,
    MulticlassNonMaxSuppression-9, and for the last rule its reference and runtime.
    """
    boxes = ranked(b, boxes, 3)
    flat, shared = b.Reshape(boxes, [-1, 4]), roisnum is None
    scores = ranked(b, scores, 3 if shared else 2)
    each = scores if roisnum is None else _by_image(b, scores, roisnum)
    values, positions = _strongest(b, each, each >= score_threshold, background_class, nms_top_k)
    owner = b.Unsqueeze(numbers(b, length(b, boxes, 0)), [1, 2] if shared else [1])
    sorted_boxes = b.Gather(flat, owner * length(b, boxes, 1) + positions)
    groups = length(b, positions, 0) * length(b, positions, 1)
    group = b.Reshape(
        sorted_boxes, b.Concat(groups, length(b, positions, 2), [4], axis=0), allowzero=1
    )
    usable = b.Reshape(
        values > NOTHING, b.Concat(groups, length(b, positions, 2), axis=0), allowzero=1
    )
    stays = greedy(
        b,
        group,
        usable,
        corner_overlap(0.0 if normalized else 1.0),
        iou_threshold,
        eta=nms_eta,
        reached=True,
    )
    kept = b.Where(b.Reshape(stays, b.Shape(positions), allowzero=1), values, NOTHING)
    selection = _Selection(
        sort_result_type, bool(sort_result_across_batch), keep_top_k, rank_classes=True
    )
    return selection.rows(b, scatter_scores(b, each, positions, kept), flat, shared)


def _by_image(b: Builder, scores: Value, roisnum: Value) -> Value:
    """Return scores[C, M] as [B, C, M], with -inf for boxes of other images."""
    count = b.Max(b.Cast(roisnum, to=INT64), 0)
    end = b.CumSum(count, 0)
    start, end = (v[:, None, None] for v in (end - count, end))
    box = numbers(b, length(b, scores, 1))
    return b.Where((box >= start) & (box < end), scores[None], NOTHING)


@extension
def MatrixNms(
    b: Builder,
    boxes: Value,
    scores: Value,
    *,
    sort_result_type: str = "none",
    sort_result_across_batch: int = 0,
    score_threshold: float = 0.0,
    nms_top_k: int = -1,
    keep_top_k: int = -1,
    background_class: int = -1,
    decay_function: str = "linear",
    gaussian_sigma: float = 2.0,
    post_threshold: float = 0.0,
    normalized: int = 1,
) -> tuple[Value, Value, Value]:
    """Matrix NMS (Wang et al., 2020): scores decay by the overlaps with better boxes of their
    class; results as for MulticlassNms.

    boxes[B, N, 4] (x1, y1, x2, y2), scores[B, C, N]. Candidates exceed score_threshold, their
    decayed scores post_threshold. An image's rows are sorted by score; sorting by class applies
    only across the batch. Source: OpenVINO, MatrixNonMaxSuppression-8, and its reference for the
    order.
    """
    if decay_function not in ("linear", "gaussian"):
        raise MappingError(f"decay_function={decay_function!r} is not known", "R110")
    boxes, scores = ranked(b, boxes, 3), ranked(b, scores, 3)
    flat = b.Reshape(boxes, [-1, 4])
    values, positions = _strongest(b, scores, scores > score_threshold, background_class, nms_top_k)
    owner = numbers(b, length(b, boxes, 0))[:, None, None] * length(b, boxes, 1)
    chosen = b.Gather(flat, owner + positions)  # [B, C, K, 4]
    groups = b.Concat(
        length(b, positions, 0) * length(b, positions, 1), length(b, positions, 2), [4], axis=0
    )
    factor = _decay(
        b,
        b.Reshape(chosen, groups, allowzero=1),
        decay_function,
        gaussian_sigma,
        0.0 if normalized else 1.0,
    )
    # -inf times a factor of 0 is NaN, for which every comparison is false
    decayed = b.Reshape(factor, b.Shape(positions), allowzero=1) * values
    kept = b.Where(decayed > max(post_threshold, float(np.finfo(np.float32).min)), decayed, NOTHING)
    selection = _Selection(
        sort_result_type, bool(sort_result_across_batch), keep_top_k, rank_classes=False
    )
    return selection.rows(b, scatter_scores(b, scores, positions, kept), flat, shared=True)


def _decay(b: Builder, boxes: Value, function: str, sigma: float, edge: float) -> Value:
    """Return factors [G, K] for the scores of boxes[G, K, 4], which are in descending order of
    score.

    Boxes are processed one by one, so that only one row of overlaps exists at a time.
    """
    rank = numbers(b, length(b, boxes, 1))
    ones = b.Expand(1.0, b.Shape(boxes, end=2))
    with b.loop(b.Squeeze(length(b, boxes, 1), [0]), ones * 0.0, ones) as inner:
        worst, factor = inner.states
        position = inner.Reshape(inner.iteration, [1])
        earlier, here = rank < position, inner.Equal(rank, position)
        shared = inner.Where(
            earlier, _overlap(inner, inner.Gather(boxes, position, axis=1), boxes, edge), 0.0
        )
        if function == "gaussian":
            power = worst * worst - shared * shared
            decay = inner.Exp(power * sigma)
        else:
            decay = (1.0 - shared) / (1.0 - worst + 1e-10)
        own = inner.Min(inner.ReduceMin(inner.Where(earlier, decay, 1.0), [1], keepdims=1), 1.0)
        most = inner.ReduceMax(shared, [1], keepdims=1)
        return inner.end(inner.Where(here, most, worst), inner.Where(here, own, factor))[1]


def _overlap(b: Builder, one: Value, many: Value, edge: float) -> Value:
    """Return the intersection over union as Matrix NMS defines it: 0 for disjoint boxes, and no
    area for inverted ones.
    """
    (low1, high1, area1), (low2, high2, area2) = sides(b, one, edge), sides(b, many, edge)
    size = b.Min(high1, high2) - b.Max(low1, low2)
    common = product(b, size + edge if edge else size)
    whole = _upright(b, low1, high1, area1) + _upright(b, low2, high2, area2) - common
    beyond = apart(b, low1, high2) | apart(b, low2, high1)
    real = ~(beyond | b.Equal(whole, 0.0))
    return b.Where(real, common / whole, 0.0)


def _upright(b: Builder, low: Value, high: Value, area: Value) -> Value:
    """Return the area, 0 for an inverted box."""
    return b.Where(apart(b, low, high), 0.0, area)
