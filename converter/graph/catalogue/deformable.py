"""Position-sensitive pooling of regions with bins that are shifted by learned offsets."""

from __future__ import annotations

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.catalogue.roi import rounded
from converter.graph.catalogue.roi_align import interpolated
from converter.graph.demands import at_least
from converter.graph.extensions import extension
from converter.graph.sizes import arange, static
from converter.graph.value import FLOAT, INT64


@extension(x=4, rois=2, offsets=4)
def DeformablePSROIPooling(
    b: Builder,
    x: Value,
    rois: Value,
    offsets: Value | None = None,
    *,
    output_dim: int,
    spatial_scale: float,
    group_size: int = 1,
    spatial_bins_x: int = 1,
    spatial_bins_y: int = 1,
    trans_std: float = 1.0,
    part_size: int = 1,
) -> Value:
    """Pool x[N, C, H, W] in rois[R, 5] (image, x1, y1, x2, y2) -> [R, output_dim, G, G] with G =
    group_size.

    Bin (i, j) of output d averages spatial_bins_y x spatial_bins_x bilinear samples of channel (d*G
    + i)*G + j, starting at the bin's corner. offsets[R, 2*K, part_size, part_size] are x and y
    shifts per class, as fractions of the region times trans_std. Samples more than half a pixel
    outside are skipped. As in Apache MXNet.
    """
    count, _ = static(rois, "the regions")
    at_least(1, group_size=group_size, output_dim=output_dim, part_size=part_size)
    at_least(1, spatial_bins_x=spatial_bins_x, spatial_bins_y=spatial_bins_y)
    g, d = group_size, output_dim
    corners = b.Reshape(rounded(b, rois[:, 1:5]), [count, 4, 1, 1, 1, 1])
    x1, y1, x2, y2 = b.Split(corners, [1] * 4, axis=1, outputs=4)
    positions = []
    for axis, (low, high, bins) in enumerate(((x1, x2, spatial_bins_x), (y1, y2, spatial_bins_y))):
        start = low * spatial_scale - 0.5
        end = (high + 1.0) * spatial_scale - 0.5
        length = b.Max(end - start, 0.1)
        step = length / float(g)
        number = arange(g, dtype=np.float32).reshape(
            (1, 1, 1, g, 1, 1) if axis == 0 else (1, 1, g, 1, 1, 1)
        )
        sample = arange(bins, dtype=np.float32).reshape(
            (1, 1, 1, 1, 1, bins) if axis == 0 else (1, 1, 1, 1, bins, 1)
        )
        at = step * b.const(number) + start
        if offsets is not None:
            move = _moves(b, offsets, axis, (count, d, g, part_size))
            at = at + move * trans_std * length
        positions.append(at + step / float(bins) * b.const(sample))
    return _averaged(b, x, rois, positions, (count, d, g, spatial_bins_y, spatial_bins_x))


def _moves(b: Builder, offsets: Value, axis: int, sizes: tuple[int, int, int, int]) -> Value:
    """Return, for every output and bin, the offset of its class and part: [R, D, G, G, 1, 1]."""
    count, d, g, parts = sizes
    classes = static(offsets, "the offsets")[1] // 2
    channel = (arange(d) // max(1, d // classes)) * 2 + axis
    part = np.floor(arange(g) / g * parts).astype(np.int64)
    picked = b.Gather(offsets, channel, axis=1)
    picked = b.Gather(b.Gather(picked, part, axis=2), part, axis=3)
    return b.Reshape(picked, [count, d, g, g, 1, 1])


def _averaged(
    b: Builder, x: Value, rois: Value, positions: list[Value], sizes: tuple[int, ...]
) -> Value:
    count, d, g, down, across = sizes
    _, channels, height, width = static(x)
    valid, whole = [], []
    for at, size in zip(positions, (width, height), strict=True):
        valid.append((at >= -0.5) & (at <= size - 0.5))
        whole.append(b.Clip(at, 0, size - 1))
    inside = b.Cast(b.And(*valid), to=FLOAT)
    image = b.Reshape(b.Cast(rois[:, :1], to=INT64), [count, 1, 1, 1, 1, 1])
    channel = arange(d * g * g, dtype=np.int64).reshape(1, d, g, g, 1, 1)
    plane = (image * channels + b.const(channel)) * (height * width)
    flat = b.Reshape(x, [-1])
    low = [b.Floor(v) for v in whole]
    part = [v - f for v, f in zip(whole, low, strict=True)]
    high = [b.Min(f + 1.0, float(m - 1)) for f, m in zip(low, (width, height), strict=True)]
    near, far = ([b.Cast(v, to=INT64) for v in side] for side in (low, high))

    def pixel(column: Value, row: Value) -> Value:
        return b.Gather(flat, plane + (row * width + column), axis=0)

    total = interpolated(near, far, part, pixel)
    room = b.Expand(inside, [count, d, g, g, down, across])
    number = b.ReduceSum(room, [4, 5], keepdims=0)
    return b.ReduceSum(total * room, [4, 5], keepdims=0) / b.Max(number, 1.0)
