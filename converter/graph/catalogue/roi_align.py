"""Bilinear sampling of regions beyond ONNX's RoiAlign: rotated regions, and the largest sample of
each bin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.catalogue.overlaps import length, numbers
from converter.graph.demands import at_least
from converter.graph.extensions import extension
from converter.graph.sizes import arange
from converter.graph.value import FLOAT, INT64

Point = tuple[Value, Value]


@extension
def ROIAlignRotated(
    b: Builder,
    x: Value,
    rois: Value,
    index: Value,
    *,
    pooled_h: int,
    pooled_w: int,
    sampling_ratio: int,
    spatial_scale: float,
    clockwise_mode: int = 0,
) -> Value:
    """Means of bilinear samples in pooled_h x pooled_w bins of rotated regions: [R, C, pooled_h,
    pooled_w].

    x[N, C, H, W], rois[R, 5], index[R]: the image of each. Regions are scaled and moved by half a
    pixel up and left; sampling_ratio samples per bin and direction, 0: as many as there are pixels.
    A sample more than a pixel outside counts as 0. Source: OpenVINO, ROIAlignRotated-15.
    """
    at_least(1, pooled_h=pooled_h, pooled_w=pooled_w)
    plane = b.Reshape(x, [0, 0, -1])
    height, width = length(b, x, 2), length(b, x, 3)
    position = b.Cast(index, to=INT64)
    with b.loop(b.Squeeze(length(b, rois, 0), [0])) as inner:
        i = inner.iteration
        cx, cy, w, h, angle = inner.Split(inner.Gather(rois, i, axis=0), [1] * 5, outputs=5, axis=0)
        cx, cy = (v * spatial_scale - 0.5 for v in (cx, cy))
        down, down_count = _samples(inner, h * spatial_scale, pooled_h, sampling_ratio)
        across, across_count = _samples(inner, w * spatial_scale, pooled_w, sampling_ratio)
        down, across = (
            down[:, None, :, None],
            across[None, :, None],
        )  # [ph, 1, sy, 1] and [1, pw, 1, sx]
        rotation = -angle if clockwise_mode else angle
        cos, sin = inner.Cos(rotation), inner.Sin(rotation)
        at_y = down * cos - across * sin + cy
        at_x = down * sin + across * cos + cx
        image = inner.Gather(plane, inner.Gather(position, i, axis=0), axis=0)
        values = _bilinear(inner, image, (at_x, at_y), (width, height))
        number = inner.Max(inner.Cast(down_count * across_count, to=FLOAT), 1.0)
        return inner.end(inner.ReduceSum(values, [3, 4], keepdims=0) / number)[0]


@extension
def ROIAlignMax(
    b: Builder,
    x: Value,
    rois: Value,
    index: Value,
    *,
    pooled_h: int,
    pooled_w: int,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    half_pixel: int = 0,
) -> Value:
    """Return the largest bilinear sample of each of pooled_h x pooled_w bins, at least 0: [R, C,
    pooled_h, pooled_w].

    x[N, C, H, W], rois[R, 4] (x1, y1, x2, y2), index[R]: the image of each. sampling_ratio samples
    per bin and direction, 0: as many as there are pixels. half_pixel moves the scaled regions by
    half a pixel up and left; without it their sides are one pixel at least. Source: OpenVINO,
    ROIAlign-9 with mode max, and its reference for the 0.
    """
    at_least(1, pooled_h=pooled_h, pooled_w=pooled_w)
    position = b.Cast(index, to=INT64)
    if sampling_ratio:  # a bin for each sample
        each = b.RoiAlign(
            x,
            rois,
            position,
            output_height=pooled_h * sampling_ratio,
            output_width=pooled_w * sampling_ratio,
            spatial_scale=spatial_scale,
            sampling_ratio=1,
            coordinate_transformation_mode="half_pixel" if half_pixel else "output_half_pixel",
        )
        return b.Relu(
            b.MaxPool(each, kernel_shape=[sampling_ratio] * 2, strides=[sampling_ratio] * 2)
        )
    plane, sizes = b.Reshape(x, [0, 0, -1]), (length(b, x, 3), length(b, x, 2))
    with b.loop(b.Squeeze(length(b, rois, 0), [0])) as inner:
        i = inner.iteration
        ends = inner.Gather(rois, i, axis=0) * spatial_scale - (0.5 if half_pixel else 0.0)
        x1, y1, x2, y2 = inner.Split(ends, [1] * 4, outputs=4, axis=0)
        at = []
        for low, high, bins, axes in ((x1, x2, pooled_w, [0, 2]), (y1, y2, pooled_h, [1, 3])):
            size = high - low if half_pixel else inner.Max(high - low, 1.0)
            positions = _samples(inner, size, bins, 0, least=1)[0] + (low + size * 0.5)
            at.append(inner.Unsqueeze(positions, axes))
        at_x, at_y = (at[0] + at[1] * 0.0, at[1] + at[0] * 0.0)
        values = _bilinear(
            inner,
            inner.Gather(plane, inner.Gather(position, i, axis=0), axis=0),
            (at_x, at_y),
            sizes,
        )
        return inner.end(inner.Max(inner.ReduceMax(values, [3, 4], keepdims=0), 0.0))[0]


def _samples(b: Builder, size: Value, bins: int, ratio: int, least: int = 0) -> tuple[Value, Value]:
    """Return the sample positions in `bins` equal parts of an interval of `size`, counted from its
    center: [bins, S], and S as int64[1].

    S is `ratio` or, if that is 0, the number of pixels, at least `least`.
    """
    step = size / float(bins)
    count = b.const([ratio]) if ratio else b.Max(b.Cast(b.Ceil(step), to=INT64), least)
    inside = (b.Cast(numbers(b, count), to=FLOAT) + 0.5) / b.Cast(count, to=FLOAT)
    part = inside[None] + arange(bins, dtype=np.float32).reshape(-1, 1)
    return part * step - size * 0.5, count


def _bilinear(b: Builder, image: Value, at: Point, sizes: tuple[Value, Value]) -> Value:
    """Sample image[C, H*W] at points [...] (x, y): [C, ...].

    Positions up to a pixel outside the border are sampled, others are 0.
    """
    inside, low, high, part = [], [], [], []
    for v, size in zip(at, sizes, strict=True):
        inside.append((v >= -1.0) & (v <= b.Cast(size, to=FLOAT)))
        last = size - 1
        held = b.Min(b.Max(v, 0.0), b.Cast(last, to=FLOAT))
        low.append(b.Cast(b.Floor(held), to=INT64))
        high.append(b.Min(low[-1] + 1, last))
        part.append(held - b.Floor(held))

    def pixel(column: Value, row: Value) -> Value:
        return b.Gather(image, row * sizes[0] + column, axis=1)

    return b.Where(b.And(*inside), interpolated(low, high, part, pixel), 0.0)


def interpolated(
    low: Sequence[Value],
    high: Sequence[Value],
    part: Sequence[Value],
    pixel: Callable[[Value, Value], Value],
) -> Value:
    """Return the weighted sum of four neighbors `pixel(column, row)`.

    `low` and `high` are x and y of the first and of the last of them, `part` is the distance from
    the first.
    """

    def share(right: int, bottom: int) -> Value:
        x, y = (v if far else 1.0 - v for v, far in zip(part, (right, bottom), strict=True))
        return pixel((high if right else low)[0], (high if bottom else low)[1]) * (x * y)

    return reduce(add, (share(right, bottom) for bottom in (0, 1) for right in (0, 1)))
