"""Region proposals: anchors moved by the network's deltas, sorted, freed of overlaps and cut to a fixed number of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.catalogue.overlaps import INT64, corner_overlap, greedy, length
from converter.graph.catalogue.selection import static
from converter.graph.catalogue.suppression import one_class, ranked
from converter.graph.extensions import extension
from converter.graph.infer import Array, shape_of
from converter.graph.sizes import arange
from converter.mapping.node import MappingError


@extension
def Proposal(
    b: Builder, scores: ir.Value, deltas: ir.Value, image: ir.Value, *, base_size: int, pre_nms_topn: int, post_nms_topn: int, nms_thresh: float,
    feat_stride: int, min_size: int, ratio: Sequence[float], scale: Sequence[float], clip_before_nms: int = 1, clip_after_nms: int = 0,
    normalize: int = 0, box_size_scale: float = 1.0, box_coordinate_scale: float = 1.0, framework: str = "",
) -> tuple[ir.Value, ir.Value]:  # fmt: skip
    """Faster R-CNN's proposals: rows [image, x1, y1, x2, y2] as [N*post_nms_topn, 5] and their scores [N*post_nms_topn].

    scores[N, 2*A, H, W] (the second half is foreground), deltas[N, 4*A, H, W], image = (height, width, scale[, scale of the width]).
    Rows that are left over are 0; the first of them begins with -1. `framework` "tensorflow" has its own anchors, pixel edges and axis order.
    """
    sizes = shape_of(scores)
    if sizes is None:
        raise MappingError("Proposal needs static shapes", "X203", "fix them with --inputs")
    n, _, h, w = sizes
    tensorflow = framework == "tensorflow"
    edge = 0.0 if tensorflow else 1.0  # a box reaches from x1 to x2 inclusive in Caffe
    table = anchors(base_size, ratio, scale, tensorflow)
    count = len(table)
    info = [b.op("Gather", b.op("Reshape", image, [-1]), i) for i in (0, 1, 2, 3 if (shape_of(image) or (3,))[-1] > 3 else 2)]
    grid = _grid(table, h, w, feat_stride, swapped=tensorflow)
    axes = (0, 1, 0, 1) if tensorflow else (1, 0, 1, 0)
    limit = b.op("Concat", *(b.op("Unsqueeze", info[i], [0]) for i in axes), axis=0)
    moves = b.op("Reshape", b.op("Transpose", b.op("Reshape", deltas, [n, count, 4, h, w]), perm=[0, 3, 4, 1, 2]), [n, -1, 4])
    start: ir.Value = b.op("Max", b.op("Min", grid, limit), 0.0) if tensorflow else b.const(grid)
    boxes = refine(b, start, moves, edge, (box_coordinate_scale, box_size_scale))
    if clip_before_nms:
        boxes = b.op("Max", b.op("Min", boxes, b.op("Sub", limit, edge)), 0.0)
    front = b.op("Slice", scores, [count], [2 * count], [1])
    front = b.op("Reshape", b.op("Transpose", front, perm=[0, 2, 3, 1]), [n, -1])
    smallest = b.op("Concat", *(b.op("Unsqueeze", b.op("Mul", info[i], float(min_size)), [0]) for i in (3, 2)), axis=0)
    front = b.op("Mul", front, b.op("Cast", large_enough(b, boxes, smallest, edge), to=int(ir.DataType.FLOAT)))
    cut = _Cut(pre_nms_topn, post_nms_topn, nms_thresh, edge, limit if clip_after_nms else None, limit if normalize else None)
    found = [cut.image(b, i, *(b.op("Gather", v, i) for v in (boxes, front))) for i in range(n)]
    return b.op("Concat", *(rows for rows, _ in found), axis=0), b.op("Concat", *(values for _, values in found), axis=0)


@dataclass(frozen=True)
class _Cut:
    """What becomes of one image's boxes: the best, those without a better neighbour, in a fixed number of rows."""

    before: int
    after: int
    threshold: float
    edge: float
    clip: ir.Value | None
    divide: ir.Value | None

    def image(self, b: Builder, number: int, boxes: ir.Value, scores: ir.Value) -> tuple[ir.Value, ir.Value]:
        boxes, scores = top(b, boxes, scores, self.before)
        best, places, real = survivors(b, boxes, scores, self.after, self.threshold, self.edge)
        rows = b.op("Gather", boxes, places)
        rows = rows if self.clip is None else b.op("Max", b.op("Min", rows, self.clip), 0.0)
        rows = rows if self.divide is None else b.op("Div", rows, self.divide)
        return _numbered(b, rows, real, number, self.after), filled(b, best, self.after, real)


@extension
def GenerateProposals(
    b: Builder, image: ir.Value, anchors: ir.Value, deltas: ir.Value, scores: ir.Value, *, min_size: float, nms_threshold: float, pre_nms_count: int,
    post_nms_count: int, normalized: int = 1,
) -> tuple[ir.Value, ir.Value, ir.Value]:  # fmt: skip
    """Proposals of all images one behind the other: boxes [S, 4], scores [S] and their numbers int64 [N], at most post_nms_count of each.

    image[N, 3 or 4] = (height, width, scale[, scale of the width]), anchors[H, W, A, 4], deltas[N, 4*A, H, W], scores[N, A, H, W]. Boxes are
    cut to the image; smaller ones than min_size times scale are out. Not normalized boxes include their last pixel.
    Source: OpenVINO, GenerateProposals-9 with nms_eta 1.
    """
    edge = 0.0 if normalized else 1.0
    area = b.op("Shape", scores, start=2)
    parts = b.op("Reshape", deltas, b.op("Concat", [0, -1, 4], area, axis=0))
    moves = b.op("Reshape", b.op("Transpose", parts, perm=[0, 3, 4, 1, 2]), [0, -1, 4])
    start = b.op("Reshape", anchors, [1, -1, 4])
    boxes = b.op("Sub", refine(b, start, moves, edge, limit=math.log(1000.0 / 16.0)), np.array([0, 0, edge, edge], np.float32))
    limit = b.op("Unsqueeze", b.op("Gather", image, [1, 0, 1, 0], axis=1), [1])
    boxes = b.op("Max", b.op("Min", boxes, b.op("Sub", limit, edge)), 0.0)
    columns = (shape_of(image) or (0, 3))[1] - 1
    smallest = b.op("Mul", b.op("Unsqueeze", b.op("Gather", image, [columns, 2], axis=1), [1]), float(min_size))
    flat = b.op("Reshape", b.op("Transpose", scores, perm=[0, 2, 3, 1]), [0, -1])
    most = b.op("Min", length(b, flat, 1), [pre_nms_count])
    values, order = b.ops("TopK", flat, most, outputs=2, axis=1)
    index = b.op("Expand", b.op("Unsqueeze", order, [2]), b.op("Concat", b.op("Shape", order), [4], axis=0))
    boxes = b.op("GatherElements", boxes, index, axis=1)
    usable = large_enough(b, boxes, smallest, edge)
    stays = greedy(b, boxes, usable, corner_overlap(edge, touching=True), nms_threshold, most=b.const([post_nms_count]))
    chosen = b.op("Reshape", stays, [-1])
    rows = b.op("Compress", b.op("Reshape", boxes, [-1, 4]), chosen, axis=0)
    counts = b.op("ReduceSum", b.op("Cast", stays, to=INT64), [1], keepdims=0)
    return rows, b.op("Compress", b.op("Reshape", values, [-1]), chosen, axis=0), counts


def anchors(base: float, ratios: Sequence[float], scales: Sequence[float], tensorflow: bool) -> Array:
    """[A, 4] corners around one cell, ratios outside, scales inside. Caffe rounds the sides, TensorFlow centres them on the origin."""
    edge = 0.0 if tensorflow else 1.0
    centre = 0.5 * (base - edge) - (base * 0.5 if tensorflow else 0.0)
    rows = []
    for ratio in ratios:
        width = math.sqrt(base * base / ratio)
        if not tensorflow:
            width = math.floor(width + 0.5)
        height = width * ratio if tensorflow else math.floor(width * ratio + 0.5)
        for scale in scales:
            x, y = 0.5 * (width * scale - edge), 0.5 * (height * scale - edge)
            rows.append((centre - x, centre - y, centre + x, centre + y))
    return np.array(rows, np.float32)


def _grid(table: Array, h: int, w: int, stride: int, swapped: bool) -> Array:
    """[H*W*A, 4]: the anchors at every cell, row by row."""
    y, x = np.meshgrid(arange(h, dtype=np.float32) * stride, arange(w, dtype=np.float32) * stride, indexing="ij")
    shift = np.stack([y, x, y, x] if swapped else [x, y, x, y], -1)
    return (shift[:, :, None, :] + table).reshape(-1, 4)


def refine(b: Builder, boxes: ir.Value, deltas: ir.Value, edge: float, scales: tuple[float, float] = (1.0, 1.0), limit: float | None = None) -> ir.Value:
    """Moves the centres by deltas[.., 0:2] of the size and grows the sizes by exp(deltas[.., 2:4]); `limit` bounds the exponent."""
    low, high = b.ops("Split", boxes, [2, 2], outputs=2, axis=-1)
    move, grow = b.ops("Split", deltas, [2, 2], outputs=2, axis=-1)
    size = b.op("Add", b.op("Sub", high, low), edge)
    centre = b.op("Add", low, b.op("Mul", size, 0.5))
    centre = b.op("Add", centre, b.op("Mul", b.op("Div", move, scales[0]), size))
    grow = b.op("Div", grow, scales[1])
    if limit is not None:
        grow = b.op("Min", grow, limit)
    half = b.op("Mul", b.op("Mul", b.op("Exp", grow), size), 0.5)
    return b.op("Concat", b.op("Sub", centre, half), b.op("Add", centre, half), axis=-1)


def large_enough(b: Builder, boxes: ir.Value, smallest: ir.Value | float, edge: float) -> ir.Value:
    """Whether width and height reach `smallest`: boxes[.., 4] -> [..]."""
    low, high = b.ops("Split", boxes, [2, 2], outputs=2, axis=-1)
    fits = b.op("GreaterOrEqual", b.op("Add", b.op("Sub", high, low), edge), smallest)
    return b.op("Equal", b.op("ReduceMin", b.op("Cast", fits, to=int(ir.DataType.INT64)), [-1], keepdims=0), 1)


def top(b: Builder, boxes: ir.Value, scores: ir.Value, k: int) -> tuple[ir.Value, ir.Value]:
    """The k best of boxes[K, 4] and scores[K], falling; k beyond K means all."""
    count = (shape_of(scores) or (k,))[0]
    values, order = b.ops("TopK", scores, [min(k, count)], outputs=2, axis=0)
    return b.op("Gather", boxes, order), values


def survivors(b: Builder, boxes: ir.Value, scores: ir.Value, most: int, threshold: float, edge: float) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Of boxes[K, 4] the at most `most` ones that no better one overlaps: scores and positions, falling by score, and which of them are real."""
    far = b.op("Add", boxes, np.array([0, 0, edge, edge], np.float32)) if edge else boxes
    low, high = b.ops("Split", far, [2, 2], outputs=2, axis=-1)
    far = b.op("Concat", low, b.op("Max", low, high), axis=-1)  # a box turned inside out has no area
    return ranked(b, one_class(b, far, scores, threshold), scores, most)


def filled(b: Builder, rows: ir.Value, count: int, real: ir.Value | None = None) -> ir.Value:
    """rows[k] or rows[k, 4] cut to `count` or filled up with zeros; those that are not real (they stand behind) are zeros too."""
    shape = static(rows)
    if real is not None:
        rows = b.op("Where", b.op("Unsqueeze", real, [1]) if len(shape) > 1 else real, rows, b.like(rows, 0))
    if shape[0] > count:
        return b.op("Slice", rows, [0], [count], [0])
    spare = [0] * len(shape) + [count - shape[0]] + [0] * (len(shape) - 1)
    return b.op("Pad", rows, spare) if shape[0] < count else rows


def _numbered(b: Builder, rows: ir.Value, real: ir.Value, image: int, count: int) -> ir.Value:
    """[count, 5]: the image's number in front of each row, -1 in front of the first that is left over."""
    found = b.op("ReduceSum", b.op("Cast", real, to=int(ir.DataType.INT64)), [0], keepdims=1)
    place = arange(count)
    number = b.op("Where", b.op("Less", place, found), float(image), b.op("Where", b.op("Equal", place, found), -1.0, 0.0))
    return b.op("Concat", b.op("Unsqueeze", number, [1]), filled(b, rows, count, real), axis=1)
