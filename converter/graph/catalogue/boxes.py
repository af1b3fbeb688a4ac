"""Boxes: cropping with bilinear sampling, non-maximum suppression with padded results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.demands import of_length
from converter.graph.extensions import extension
from converter.graph.sizes import arange
from converter.graph.value import BOOL, FLOAT, INT64


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
    extrapolate: int = 0,
    extrapolation_value: float = 0.0,
) -> Value:
    """Sample features [1,B,C,H,W] bilinearly at a grid of `size` (h, w) points per box ->
    [N,B,C,h,w] or [N,1,C,h,w].

    boxes [N,1,4,1,1] apply to the whole batch, [N,1,5,1,1] begin with the index of their image.
    `coordinates` is the format of the four numbers (corners or center and size, height or width
    first); `normalized` ones are multiplied by H-1, W-1. `sampling` positions the points on an
    interval [0, X-1]: strict_align_endpoints, align_endpoints (a single point is the center),
    upsample (0 to X - X/n) or roi_align (the centers of n parts). A point outside the image takes
    the value at its border, or `extrapolation_value` if `extrapolate`. Source: Core ML,
    CropResizeLayerParams and SamplingMode; for the last, MIL's crop_resize since iOS16.
    """
    columns_of_box = boxes.shape[2] if boxes.shape is not None and len(boxes.shape) == 5 else None
    if not isinstance(columns_of_box, int) or columns_of_box not in (4, 5):
        raise MappingError(
            "CropResize needs features [1,B,C,H,W] and boxes [N,1,4 or 5,1,1]", "X203"
        )
    of_length(2, size=size)
    flat = b.Reshape(boxes, [-1, columns_of_box])
    first = columns_of_box - 4
    numbers = [flat[:, first + i : first + i + 1] for i in range(4)]
    h0, w0, h1, w1 = _corners(b, numbers, coordinates)
    lengths = [b.Squeeze(b.Shape(x)[i : i + 1], [0]) for i in (3, 4)]
    parts = []
    for low, high, length, count in ((h0, h1, lengths[0], size[0]), (w0, w1, lengths[1], size[1])):
        last = b.Cast(length - 1, to=FLOAT)
        factor = last * spatial_scale if normalized else b.const(np.float32(spatial_scale))
        parts.append(_weights(b, low * factor, high * factor, length, last, int(count), sampling))
    (rows, inside_y), (columns, inside_x) = parts
    if first:
        ids = b.Cast(b.Reshape(b.Slice(flat, [0], [1], [1]), [-1]), to=INT64)
        x = b.Gather(b.Squeeze(x, [0]), ids, axis=0)[:, None]
    across = b.Transpose(columns[:, None, None], perm=[0, 1, 2, 4, 3])
    y = rows[:, None, None] @ x @ across
    if not extrapolate:
        return y
    inside = b.Unsqueeze(inside_y, [1, 2, 4]) & inside_x[:, None, None, None]
    return b.Where(inside, y, extrapolation_value)


def _corners(b: Builder, v: Sequence[Value], coordinates: str) -> tuple[Value, Value, Value, Value]:
    """Return h0, w0, h1, w1 of four columns."""
    if coordinates not in (
        "corners_height_first",
        "corners_width_first",
        "center_size_height_first",
        "center_size_width_first",
    ):
        raise MappingError(f"box coordinates {coordinates!r} are not known", "R110")
    h, w, height, width = v if coordinates.endswith("height_first") else (v[1], v[0], v[3], v[2])
    if coordinates.startswith("corners"):
        return h, w, height, width
    half_h, half_w = height * 0.5, width * 0.5
    return (h - half_h, w - half_w, h + half_h, w + half_w)


def _weights(
    b: Builder, low: Value, high: Value, length: Value, last: Value, count: int, sampling: str
) -> tuple[Value, Value]:
    """Return interpolation weights [N, count, length], a hat function around each position, and
    which positions [N, count] are inside.
    """
    extent = high - low
    i = arange(count, dtype=np.float32)
    if sampling == "align_endpoints" and count == 1:
        steps = extent * np.array([[0.5]], np.float32)
    elif sampling in ("strict_align_endpoints", "align_endpoints"):
        steps = extent * (i / max(count - 1, 1)).reshape(1, -1).astype(np.float32)
    elif sampling == "upsample":
        whole = extent + 1.0
        steps = whole * (i * ((1 - 1 / count) / max(count - 1, 1))).reshape(1, -1).astype(
            np.float32
        )
    elif sampling == "roi_align":
        steps = b.Max(extent, 1.0) * ((i + 0.5) / count).reshape(1, -1).astype(np.float32)
    else:
        raise MappingError(f"sampling {sampling!r} is not known", "R110")
    places = low + steps
    inside = (places >= 0.0) & (places <= last)
    positions = b.Clip(places, 0.0, last)
    distance = b.Abs(positions[:, :, None] - b.Cast(b.Range(0, length, 1), to=FLOAT))
    return b.Relu(1.0 - distance), inside


@extension
def SuppressBoxes(
    b: Builder,
    boxes: Value,
    scores: Value,
    iou: Value,
    score: Value,
    limit: Value,
    *,
    per_class: int = 0,
) -> tuple[Value, Value, Value, Value]:
    """Non-maximum suppression of boxes [B,N,4] (center x, center y, width, height) with scores
    [B,N,C].

    A box has the score of its best class. Boxes with a score below `score` (float) are removed, and
    so are those that overlap a better one (of the same class if `per_class`) by more than `iou`
    (float). Results, best first and padded to `limit` (int64) entries: boxes [B,M,4], scores
    [B,M,C], indices int64[B,M] (-1 is padding) and the count int64[B]. If no box survives, the best
    box is returned with count 1. Source: Core ML, NonMaximumSuppressionLayerParams, and its tests
    for the last rule.
    """
    size = b.Shape(scores)
    n = size[1:2]
    best = b.ReduceMax(scores, [2], keepdims=0)
    per_box = best[:, None]
    if per_class:
        classes = b.ArgMax(scores, axis=2, keepdims=1)
        all_classes = b.Range(0, b.Squeeze(size[2:3], [0]), 1)
        mine = b.Equal(b.Transpose(classes, perm=[0, 2, 1]), all_classes[None, :, None])
        per_box = b.Where(mine, per_box, float(np.finfo(np.float32).min))
    high = b.Where(per_box > _one(b, score), per_box, float("-inf"))
    each = b.SuppressionMask(boxes, high, iou, center_point_box=1)
    mask = b.Cast(b.ReduceMax(b.Cast(each, to=FLOAT), [1], keepdims=0), to=BOOL)
    empty = ~b.Cast(b.ReduceMax(b.Cast(mask, to=FLOAT), [1], keepdims=1), to=BOOL)
    top = b.Equal(b.Range(0, b.Squeeze(n, [0]), 1), b.ArgMax(best, axis=1, keepdims=1))
    mask = mask | empty & top
    return _ranked(b, boxes, scores, best, mask, n, b.Reshape(limit, [1]))


def _one(b: Builder, value: Value) -> Value:
    return b.Reshape(value, [1])


def _ranked(
    b: Builder, boxes: Value, scores: Value, best: Value, mask: Value, n: Value, limit: Value
) -> tuple[Value, Value, Value, Value]:
    """Return the boxes in `mask`, best first, padded to `limit` entries."""
    key = b.Where(mask, best, float("-inf"))
    values, order = b.TopK(key, b.Min(n, limit), outputs=2, axis=1)
    valid = values > float("-inf")
    spare = limit - b.Min(n, limit)
    picked = []
    for table in (boxes, scores):
        index = order[:, :, None]
        width = b.Shape(table)[2:3]
        rows = b.GatherElements(table, b.Expand(index, b.Concat([1, 1], width, axis=0)), axis=1)
        rows = b.Where(valid[:, :, None], rows, 0.0)
        picked.append(b.Pad(rows, b.Concat([0, 0, 0, 0], spare, [0], axis=0), 0.0))
    indices = b.Pad(b.Where(valid, order, -1), b.Concat([0, 0, 0], spare, axis=0), -1)
    count = b.ReduceSum(b.Cast(valid, to=INT64), [1], keepdims=0)
    return picked[0], picked[1], indices, count
