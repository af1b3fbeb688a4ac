"""Pooling of regions of interest.

Regions are rows [image, x1, y1, x2, y2]; from the first row with image -1 on, the results are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.demands import at_least
from converter.graph.extensions import extension
from converter.graph.sizes import arange, static
from converter.graph.value import FLOAT, INT64

Pool = Callable[[Builder, Value, Sequence[Value]], Value]


@extension(x=4)
def ROIPooling(
    b: Builder,
    x: Value,
    rois: Value,
    *,
    pooled_h: int,
    pooled_w: int,
    spatial_scale: float = 1.0,
    method: str = "max",
) -> Value:
    """Pool x[N, C, H, W] in rois[R, 5] -> [R, C, pooled_h, pooled_w].

    "max": maximum of each bin of the region, whose corners are scaled and rounded; an empty bin is
    0. "bilinear": samples at evenly spaced points from corner to corner, with corners relative to
    the image; points outside are 0. rois: image, x1, y1, x2, y2. Source: OpenVINO, ROIPooling-2.
    """
    at_least(1, pooled_h=pooled_h, pooled_w=pooled_w)
    _, channels, height, width = static(x, "the feature map")

    def maximum(b: Builder, image: Value, roi: Sequence[Value]) -> Value:
        x1, y1, x2, y2 = (rounded(b, v * spatial_scale) for v in roi)
        inside_y, inside_x = _bins(b, y1, y2, pooled_h, height), _bins(b, x1, x2, pooled_w, width)
        rows = b.Where(inside_y[None, :, :, None], image[:, None], float("-inf"))
        rows = b.ReduceMax(rows, [2], keepdims=0)  # [C, ph, W]
        cells = b.Where(inside_x[None, None], rows[:, :, None], float("-inf"))
        best = b.ReduceMax(cells, [3], keepdims=0)
        return b.Where(b.IsInf(best, detect_positive=0), 0.0, best)

    def bilinear(b: Builder, image: Value, roi: Sequence[Value]) -> Value:
        x1, y1, x2, y2 = roi
        return b.Einsum(
            image,
            _samples(b, y1, y2, pooled_h, height),
            _samples(b, x1, x2, pooled_w, width),
            equation="chw,ph,qw->cpq",
        )

    pool = maximum if method == "max" else bilinear
    return _each(b, x, rois, pool, [channels, pooled_h, pooled_w])


@extension(x=4)
def PSROIPooling(
    b: Builder,
    x: Value,
    rois: Value,
    *,
    output_dim: int,
    group_size: int = 1,
    spatial_scale: float = 1.0,
    mode: str = "average",
    spatial_bins_x: int = 1,
    spatial_bins_y: int = 1,
) -> Value:
    """Position-sensitive pooling: x[N, C, H, W], rois[R, 5] -> [R, output_dim, group_size,
    group_size].

    "average": bin (i, j) of output o is the mean over its own channel o*G*G + i*G + j, with rounded
    corners and the last pixel included (as R-FCN). "bilinear": the mean over the spatial bins (each
    has output_dim channels of its own) of samples spread from edge to edge of the bin. rois: image,
    x1, y1, x2, y2, in pixels that spatial_scale turns into elements of x. Source: OpenVINO,
    PSROIPooling-1.
    """
    _, _, height, width = static(x, "the feature map", axes=4)
    g = group_size

    def average(b: Builder, image: Value, roi: Sequence[Value]) -> Value:
        x1, y1, x2, y2 = (rounded(b, v) for v in roi)
        masks = []
        for low, high, size in ((y1, y2, height), (x1, x2, width)):
            start, end = (low * spatial_scale, (high + 1.0) * spatial_scale)
            step = b.Max(end - start, 0.1) / float(g)
            masks.append(b.Cast(_covered(b, start, step, g, size, outside=True), to=FLOAT))
        grouped = b.Reshape(image, [output_dim, g, g, height, width])
        total = b.Einsum(grouped, *masks, equation="cpqhw,ph,qw->cpq")
        rows, columns = (b.ReduceSum(mask, [1]) for mask in masks)
        count = rows * b.Transpose(columns, perm=[1, 0])
        return total / b.Max(count, 1.0)

    def bilinear(b: Builder, image: Value, roi: Sequence[Value]) -> Value:
        x1, y1, x2, y2 = (v * spatial_scale for v in roi)
        down = _bin_samples(b, y1, y2, spatial_bins_y, g, height)
        across = _bin_samples(b, x1, x2, spatial_bins_x, g, width)
        grouped = b.Reshape(image, [spatial_bins_y, spatial_bins_x, output_dim, height, width])
        total = b.Einsum(grouped, down, across, equation="uvchw,uph,vqw->cpq")
        return total / float(spatial_bins_x * spatial_bins_y)

    return _each(b, x, rois, average if mode == "average" else bilinear, [output_dim, g, g])


def _each(b: Builder, x: Value, rois: Value, pool: Pool, shape: list[int]) -> Value:
    """Run `pool` on (image, corners) of each row of rois, one at a time to limit memory."""
    count = b.Gather(b.Shape(rois), 0)
    gone = b.Cast(b.Gather(rois, 0, axis=1) < 0.0, to=FLOAT)
    alive = b.Equal(b.CumSum(gone, 0), 0.0)
    with b.loop(count) as inner:
        i = inner.iteration
        roi = inner.Gather(rois, i, axis=0)
        parts = [inner.Gather(roi, k, axis=0) for k in range(5)]
        image = inner.Gather(x, inner.Max(inner.Cast(parts[0], to=INT64), 0), axis=0)
        pooled = inner.Where(inner.Gather(alive, i, axis=0), pool(inner, image, parts[1:]), 0.0)
        return inner.end(inner.Reshape(pooled, shape))[0]


def rounded(b: Builder, v: Value) -> Value:
    """Round, ties away from zero, like round() in C."""
    return b.Sign(v) * b.Floor(b.Abs(v) + 0.5)


def _bins(b: Builder, low: Value, high: Value, count: int, size: int) -> Value:
    """Return which of `size` pixels belong to each of `count` bins of low..high: [count, size]."""
    length = b.Max(high - low + 1.0, 1.0)
    return _covered(b, low, length / float(count), count, size, outside=False)


def _covered(b: Builder, start: Value, step: Value, count: int, size: int, outside: bool) -> Value:
    """Return the pixels from floor(k*step) + start up to ceil((k+1)*step) + start; `outside`: the
    start is rounded together with the bin.
    """
    bins = arange(count, dtype=np.float32).reshape(-1, 1)
    edges = step * bins, step * (bins + 1)
    if outside:
        low, high = (b.Floor(edges[0] + start), b.Ceil(edges[1] + start))
    else:
        low, high = (b.Floor(edges[0]) + start, b.Ceil(edges[1]) + start)
    pixels = arange(size, dtype=np.float32)
    return b.GreaterOrEqual(pixels, low) & b.Less(pixels, high)


def _samples(b: Builder, low: Value, high: Value, count: int, size: int) -> Value:
    """Return weights [.., count, size] of bilinear samples at `count` points from low to high
    (relative); points outside have none.
    """
    last = float(size - 1)
    if count > 1:
        step = (high - low) * last / float(count - 1)
        at = step * arange(count, dtype=np.float32).reshape(-1, 1) + low * last
    else:
        at = (low + high) * (0.5 * last) * np.ones((1, 1), np.float32)
    inside = (at >= 0.0) & (at <= last)
    weight = b.Relu(1.0 - b.Abs(at - arange(size, dtype=np.float32)))
    return b.Where(inside, weight, 0.0)


def _bin_samples(b: Builder, low: Value, high: Value, bins: int, count: int, size: int) -> Value:
    """Return weights [bins, count, size] of samples inside each of the bins between low and
    high.
    """
    step = (high - low) / float(bins)
    k = arange(bins, dtype=np.float32).reshape(-1, 1, 1)
    return _samples(b, step * k + low, step * (k + 1) + low, count, size)
