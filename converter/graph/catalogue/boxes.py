"""Boxes: cropping with bilinear sampling, non-maximum suppression with padded results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension
from converter.graph.sizes import arange
from converter.mapping.node import MappingError

Value = ir.Value
FLOAT, INT64, BOOL = (int(t) for t in (ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL))


@extension
def CropResize(
    b: Builder,
    x: Value,
    boxes: Value,
    *,
    size: Sequence[int],
    sampling: str = "strict_align_endpoints",
    coordinates: str = "corners_height_first",
    normalized: int = 0,
    spatial_scale: float = 1.0,
) -> Value:
    """Features [1,B,C,H,W] read bilinearly at a grid of `size` (h, w) points per box -> [N,B,C,h,w] or [N,1,C,h,w].

    boxes [N,1,4,1,1] apply to all of the batch, [N,1,5,1,1] begin with the index of their image. `coordinates` says how the four
    numbers are meant (corners or centre and size, height or width first); `normalized` ones are multiplied by H-1, W-1.
    `sampling` places the points on an interval [0, X-1]: strict_align_endpoints, align_endpoints (one point is the centre),
    upsample (0 to X - X/n) or roi_align (the middles of n parts). Source: Core ML, CropResizeLayerParams and SamplingMode.
    """
    columns_of_box = boxes.shape[2] if boxes.shape is not None and len(boxes.shape) == 5 else None
    if not isinstance(columns_of_box, int) or columns_of_box not in (4, 5):
        raise MappingError("CropResize needs features [1,B,C,H,W] and boxes [N,1,4 or 5,1,1]", "X203")
    flat = b.op("Reshape", boxes, [-1, columns_of_box])
    first = columns_of_box - 4
    numbers = [b.op("Slice", flat, [first + i], [first + i + 1], [1]) for i in range(4)]
    h0, w0, h1, w1 = _corners(b, numbers, coordinates)
    lengths = [b.op("Squeeze", b.op("Slice", b.op("Shape", x), [i], [i + 1]), [0]) for i in (3, 4)]
    parts = []
    for low, high, length, count in ((h0, h1, lengths[0], size[0]), (w0, w1, lengths[1], size[1])):
        last = b.op("Cast", b.op("Sub", length, 1), to=FLOAT)
        factor = b.op("Mul", last, spatial_scale) if normalized else b.const(np.float32(spatial_scale))
        parts.append(_weights(b, b.op("Mul", low, factor), b.op("Mul", high, factor), length, last, int(count), sampling))
    rows, columns = parts
    if first:
        ids = b.op("Cast", b.op("Reshape", b.op("Slice", flat, [0], [1], [1]), [-1]), to=INT64)
        x = b.op("Unsqueeze", b.op("Gather", b.op("Squeeze", x, [0]), ids, axis=0), [1])
    across = b.op("Transpose", b.op("Unsqueeze", columns, [1, 2]), perm=[0, 1, 2, 4, 3])
    return b.op("MatMul", b.op("MatMul", b.op("Unsqueeze", rows, [1, 2]), x), across)


def _corners(b: Builder, v: Sequence[Value], coordinates: str) -> tuple[Value, Value, Value, Value]:
    """h0, w0, h1, w1 of four columns."""
    if coordinates not in ("corners_height_first", "corners_width_first", "center_size_height_first", "center_size_width_first"):
        raise MappingError(f"box coordinates {coordinates!r} are not known", "R110")
    h, w, height, width = v if coordinates.endswith("height_first") else (v[1], v[0], v[3], v[2])
    if coordinates.startswith("corners"):
        return h, w, height, width
    half_h, half_w = b.op("Mul", height, 0.5), b.op("Mul", width, 0.5)
    return b.op("Sub", h, half_h), b.op("Sub", w, half_w), b.op("Add", h, half_h), b.op("Add", w, half_w)


def _weights(b: Builder, low: Value, high: Value, length: Value, last: Value, count: int, sampling: str) -> Value:
    """Interpolation weights [N, count, length]: a hat function around each position."""
    extent = b.op("Sub", high, low)
    i = arange(count, dtype=np.float32)
    if sampling == "align_endpoints" and count == 1:
        steps = b.op("Mul", extent, np.array([[0.5]], np.float32))
    elif sampling in ("strict_align_endpoints", "align_endpoints"):
        steps = b.op("Mul", extent, (i / max(count - 1, 1)).reshape(1, -1).astype(np.float32))
    elif sampling == "upsample":
        whole = b.op("Add", extent, 1.0)
        steps = b.op("Mul", whole, (i * ((1 - 1 / count) / max(count - 1, 1))).reshape(1, -1).astype(np.float32))
    elif sampling == "roi_align":
        steps = b.op("Mul", b.op("Max", extent, 1.0), ((i + 0.5) / count).reshape(1, -1).astype(np.float32))
    else:
        raise MappingError(f"sampling {sampling!r} is not known", "R110")
    positions = b.op("Clip", b.op("Add", low, steps), 0.0, last)
    distance = b.op("Abs", b.op("Sub", b.op("Unsqueeze", positions, [2]), b.op("Cast", b.op("Range", 0, length, 1), to=FLOAT)))
    return b.op("Relu", b.op("Sub", 1.0, distance))


@extension
def SuppressBoxes(b: Builder, boxes: Value, scores: Value, iou: Value, score: Value, limit: Value, *, per_class: int = 0) -> tuple[Value, Value, Value, Value]:
    """Non-maximum suppression of boxes [B,N,4] (centre x, centre y, width, height) with scores [B,N,C].

    A box counts with its best class; boxes below `score` (float) are out, and so are those that overlap a better one (of the same class
    when `per_class`) by more than `iou` (float). Results, best first and padded to `limit` (int64) places: boxes [B,M,4], scores
    [B,M,C], indices int64[B,M] (-1 is padding) and the count int64[B]. When nothing survives, the best box is given, count 1.
    Source: Core ML, NonMaximumSuppressionLayerParams, and its tests for the last rule.
    """
    size = b.op("Shape", scores)
    n = b.op("Slice", size, [1], [2])
    best = b.op("ReduceMax", scores, [2], keepdims=0)
    per_box = b.op("Unsqueeze", best, [1])
    if per_class:
        classes = b.op("ArgMax", scores, axis=2, keepdims=1)
        all_classes = b.op("Range", 0, b.op("Squeeze", b.op("Slice", size, [2], [3]), [0]), 1)
        mine = b.op("Equal", b.op("Transpose", classes, perm=[0, 2, 1]), b.op("Unsqueeze", all_classes, [0, 2]))
        per_box = b.op("Where", mine, per_box, float(np.finfo(np.float32).min))
    high = b.op("Where", b.op("Greater", per_box, _one(b, score)), per_box, float("-inf"))
    each = b.ext("SuppressionMask", boxes, high, iou, center_point_box=1)
    mask = b.op("Cast", b.op("ReduceMax", b.op("Cast", each, to=FLOAT), [1], keepdims=0), to=BOOL)
    empty = b.op("Not", b.op("Cast", b.op("ReduceMax", b.op("Cast", mask, to=FLOAT), [1], keepdims=1), to=BOOL))
    top = b.op("Equal", b.op("Range", 0, b.op("Squeeze", n, [0]), 1), b.op("ArgMax", best, axis=1, keepdims=1))
    mask = b.op("Or", mask, b.op("And", empty, top))
    return _ranked(b, boxes, scores, best, mask, n, b.op("Reshape", limit, [1]))


def _one(b: Builder, value: Value) -> Value:
    return b.op("Reshape", value, [1])


def _ranked(b: Builder, boxes: Value, scores: Value, best: Value, mask: Value, n: Value, limit: Value) -> tuple[Value, Value, Value, Value]:
    """The boxes under `mask`, best first, padded to `limit` places."""
    key = b.op("Where", mask, best, float("-inf"))
    values, order = b.ops("TopK", key, b.op("Min", n, limit), outputs=2, axis=1)
    valid = b.op("Greater", values, float("-inf"))
    spare = b.op("Sub", limit, b.op("Min", n, limit))
    picked = []
    for table in (boxes, scores):
        index = b.op("Unsqueeze", order, [2])
        width = b.op("Slice", b.op("Shape", table), [2], [3])
        rows = b.op("GatherElements", table, b.op("Expand", index, b.op("Concat", [1, 1], width, axis=0)), axis=1)
        rows = b.op("Where", b.op("Unsqueeze", valid, [2]), rows, 0.0)
        picked.append(b.op("Pad", rows, b.op("Concat", [0, 0, 0, 0], spare, [0], axis=0), 0.0))
    indices = b.op("Pad", b.op("Where", valid, order, -1), b.op("Concat", [0, 0, 0], spare, axis=0), -1)
    count = b.op("ReduceSum", b.op("Cast", valid, to=INT64), [1], keepdims=0)
    return picked[0], picked[1], indices, count
