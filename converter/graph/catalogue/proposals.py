"""Region proposals: anchors moved by the network's deltas, sorted, without overlaps and in a fixed
number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.catalogue.overlaps import (
    corner_overlap,
    decoded,
    every,
    greedy,
    length,
    upright,
)
from converter.graph.catalogue.suppression import one_class, ranked
from converter.graph.demands import above, at_least
from converter.graph.extensions import extension
from converter.graph.infer import Array, shape_of
from converter.graph.sizes import arange, static
from converter.graph.value import FLOAT, INT64
from converter.record import record


@extension(scores=4, deltas=4)
def Proposal(
    b: Builder,
    scores: Value,
    deltas: Value,
    image: Value,
    *,
    base_size: int,
    pre_nms_topn: int,
    post_nms_topn: int,
    nms_thresh: float,
    feat_stride: int,
    min_size: int,
    ratio: Sequence[float],
    scale: Sequence[float],
    clip_before_nms: int = 1,
    clip_after_nms: int = 0,
    normalize: int = 0,
    box_size_scale: float = 1.0,
    box_coordinate_scale: float = 1.0,
    framework: str = "",
) -> tuple[Value, Value]:
    """Faster R-CNN's proposals: rows [image, x1, y1, x2, y2] as [N*post_nms_topn, 5] and their
    scores [N*post_nms_topn].

    scores[N, 2*A, H, W] (the second half is foreground), deltas[N, 4*A, H, W], image = (height,
    width, scale[, scale of the width]). Unused rows are 0; the first of them begins with -1.
    `framework` "tensorflow" has its own anchors, pixel edges and axis order. Source: OpenVINO,
    Proposal-4.
    """
    n, _, h, w = static(scores, "the scores")
    tensorflow = framework == "tensorflow"
    edge = 0.0 if tensorflow else 1.0  # in Caffe, a box extends from x1 to x2 inclusive
    table = anchors(base_size, ratio, scale, tensorflow)
    count = len(table)
    info = b.Reshape(image, [-1])
    grid = _grid(table, h, w, feat_stride, swapped=tensorflow)
    limit = b.Gather(info, [0, 1, 0, 1] if tensorflow else [1, 0, 1, 0])
    apart = b.Reshape(deltas, [n, count, 4, h, w])
    moves = b.Reshape(b.Transpose(apart, perm=[0, 3, 4, 1, 2]), [n, -1, 4])
    start = b.Max(b.Min(grid, limit), 0.0) if tensorflow else b.const(grid)
    boxes = refine(b, start, moves, edge, (box_coordinate_scale, box_size_scale))
    if clip_before_nms:
        boxes = b.Max(b.Min(boxes, limit - edge), 0.0)
    front = scores[:, count : 2 * count]
    front = b.Reshape(b.Transpose(front, perm=[0, 2, 3, 1]), [n, -1])
    of_width = 3 if (shape_of(image) or (3,))[-1] > 3 else 2
    smallest = b.Gather(info, [of_width, 2]) * float(min_size)
    front = front * b.Cast(large_enough(b, boxes, smallest, edge), to=FLOAT)
    clip, divide = (limit if wanted else None for wanted in (clip_after_nms, normalize))
    cut = _Cut(pre_nms_topn, post_nms_topn, nms_thresh, edge, clip, divide)
    found = [cut.image(b, i, b.Gather(boxes, i), b.Gather(front, i)) for i in range(n)]
    rows, values = (b.Concat(*parts, axis=0) for parts in zip(*found, strict=True))
    return rows, values


@record
class _Cut:
    """The selection of one image's boxes: the best ones without a better neighbor, in a fixed
    number of rows.
    """

    before: int
    after: int
    threshold: float
    edge: float
    clip: Value | None
    divide: Value | None

    def image(self, b: Builder, number: int, boxes: Value, scores: Value) -> tuple[Value, Value]:
        boxes, scores = top(b, boxes, scores, self.before)
        best, positions, real = survivors(b, boxes, scores, self.after, self.threshold, self.edge)
        rows = b.Gather(boxes, positions)
        rows = rows if self.clip is None else b.Max(b.Min(rows, self.clip), 0.0)
        rows = rows if self.divide is None else rows / self.divide
        return _numbered(b, rows, real, number, self.after), filled(b, best, self.after, real)


@extension
def GenerateProposals(
    b: Builder,
    image: Value,
    anchors: Value,
    deltas: Value,
    scores: Value,
    *,
    min_size: float,
    nms_threshold: float,
    pre_nms_count: int,
    post_nms_count: int,
    normalized: int = 1,
) -> tuple[Value, Value, Value]:
    """Proposals of all images, concatenated: boxes [S, 4], scores [S] and their numbers int64 [N],
    at most post_nms_count of each.

    image[N, 3 or 4] = (height, width, scale[, scale of the width]), anchors[H, W, A, 4], deltas[N,
    4*A, H, W], scores[N, A, H, W]. Boxes are clipped to the image; boxes smaller than min_size
    times scale are removed. Boxes that are not normalized include their last pixel. Source:
    OpenVINO, GenerateProposals-9 with nms_eta 1.
    """
    edge = 0.0 if normalized else 1.0
    area = b.Shape(scores, start=2)
    parts = b.Reshape(deltas, b.Concat([0, -1, 4], area, axis=0))
    moves = b.Reshape(b.Transpose(parts, perm=[0, 3, 4, 1, 2]), [0, -1, 4])
    start = b.Reshape(anchors, [1, -1, 4])
    boxes = refine(b, start, moves, edge, limit=math.log(1000.0 / 16.0)) - np.array(
        [0, 0, edge, edge], np.float32
    )
    limit = b.Gather(image, [1, 0, 1, 0], axis=1)[:, None]
    boxes = b.Max(b.Min(boxes, limit - edge), 0.0)
    columns = (shape_of(image) or (0, 3))[1] - 1
    smallest = b.Gather(image, [columns, 2], axis=1)[:, None] * float(min_size)
    flat = b.Reshape(b.Transpose(scores, perm=[0, 2, 3, 1]), [0, -1])
    most = b.Min(length(b, flat, 1), [pre_nms_count])
    values, order = b.TopK(flat, most, outputs=2, axis=1)
    index = b.Expand(order[:, :, None], b.Concat(b.Shape(order), [4], axis=0))
    boxes = b.GatherElements(boxes, index, axis=1)
    usable = large_enough(b, boxes, smallest, edge)
    stays = greedy(
        b,
        boxes,
        usable,
        corner_overlap(edge, touching=True),
        nms_threshold,
        most=b.const([post_nms_count]),
    )
    chosen = b.Reshape(stays, [-1])
    rows = b.Compress(b.Reshape(boxes, [-1, 4]), chosen, axis=0)
    counts = b.ReduceSum(b.Cast(stays, to=INT64), [1], keepdims=0)
    return rows, b.Compress(b.Reshape(values, [-1]), chosen, axis=0), counts


def anchors(
    base: float, ratios: Sequence[float], scales: Sequence[float], tensorflow: bool
) -> Array:
    """Return [A, 4] corners around one cell, with ratios as the outer loop and scales as the inner
    one.

    Caffe rounds the sides, TensorFlow centers them on the origin.
    """
    above(0, ratio=ratios)
    at_least(1, anchors=len(ratios) * len(scales))
    edge = 0.0 if tensorflow else 1.0
    center = 0.5 * (base - edge) - (base * 0.5 if tensorflow else 0.0)
    rows = []
    for ratio in ratios:
        width = math.sqrt(base * base / ratio)
        if not tensorflow:
            width = math.floor(width + 0.5)
        height = width * ratio if tensorflow else math.floor(width * ratio + 0.5)
        for scale in scales:
            x, y = 0.5 * (width * scale - edge), 0.5 * (height * scale - edge)
            rows.append((center - x, center - y, center + x, center + y))
    return np.array(rows, np.float32)


def _grid(table: Array, h: int, w: int, stride: int, swapped: bool) -> Array:
    """Return the anchors at every cell, row by row: [H*W*A, 4]."""
    y, x = np.meshgrid(
        arange(h, dtype=np.float32) * stride, arange(w, dtype=np.float32) * stride, indexing="ij"
    )
    shift = np.stack([y, x, y, x] if swapped else [x, y, x, y], -1)
    return (shift[:, :, None, :] + table).reshape(-1, 4)


def refine(
    b: Builder,
    boxes: Value,
    deltas: Value,
    edge: float,
    scales: tuple[float, float] = (1.0, 1.0),
    limit: float | None = None,
) -> Value:
    """Move the centers by deltas[.., 0:2] times the size, and scale the sizes by exp(deltas[..,
    2:4]).

    `limit` bounds the exponent.
    """
    low, high = b.Split(boxes, [2, 2], outputs=2, axis=-1)
    move, grow = b.Split(deltas, [2, 2], outputs=2, axis=-1)
    size = high - low + edge
    move, grow = move / scales[0], grow / scales[1]
    grow = grow if limit is None else b.Min(grow, limit)
    return decoded(b, low + size * 0.5, size, b.Concat(move, grow, axis=-1))


def large_enough(b: Builder, boxes: Value, smallest: Value | float, edge: float) -> Value:
    """Return whether width and height are at least `smallest`: boxes[.., 4] -> [..]."""
    low, high = b.Split(boxes, [2, 2], outputs=2, axis=-1)
    return every(b, high - low + edge >= smallest)


def top(b: Builder, boxes: Value, scores: Value, k: int) -> tuple[Value, Value]:
    """Return the k best of boxes[K, 4] and scores[K], descending; all if k > K."""
    count = (shape_of(scores) or (k,))[0]
    values, order = b.TopK(scores, [min(k, count)], outputs=2, axis=0)
    return b.Gather(boxes, order), values


def survivors(
    b: Builder, boxes: Value, scores: Value, most: int, threshold: float, edge: float
) -> tuple[Value, Value, Value]:
    """Return at most `most` of boxes[K, 4] that no better one overlaps: scores and positions, in
    descending order of score, and which of them are valid.
    """
    far = boxes + np.array([0, 0, edge, edge], np.float32) if edge else boxes
    return ranked(b, one_class(b, upright(b, far), scores, threshold), scores, most)


def filled(b: Builder, rows: Value, count: int, real: Value | None = None) -> Value:
    """Truncate rows[k] or rows[k, 4] to `count`, or pad them with zeros; invalid rows (which are at
    the end) become zeros too.
    """
    shape = static(rows)
    if real is not None:
        rows = b.Where(real[:, None] if len(shape) > 1 else real, rows, 0)
    if shape[0] > count:
        return rows[:count]
    spare = [0] * len(shape) + [count - shape[0]] + [0] * (len(shape) - 1)
    return b.Pad(rows, spare) if shape[0] < count else rows


def _numbered(b: Builder, rows: Value, real: Value, image: int, count: int) -> Value:
    """Return [count, 5]: each row preceded by the image's index, or by -1 for the first unused
    row.
    """
    found = b.ReduceSum(b.Cast(real, to=INT64), [0], keepdims=1)
    position = arange(count)
    number = b.Where(position < found, float(image), b.Where(b.Equal(position, found), -1.0, 0.0))
    return b.Concat(number[:, None], filled(b, rows, count, real), axis=1)
