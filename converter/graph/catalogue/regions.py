"""Extension operators on regions of interest, with a separate operand for the image of each
region.
"""

from __future__ import annotations

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension
from converter.graph.sizes import arange, static
from converter.graph.value import FLOAT, INT64, array_type


def _scaled(b: Builder, rois: Value, ratio: list[float]) -> Value:
    dtype = array_type(rois)
    return rois * b.const(np.array([1 / ratio[1], 1 / ratio[0]] * 2, dtype))


@extension(x=4, rois=2, index=1)
def RegionAlign(
    b: Builder,
    x: Value,
    rois: Value,
    index: Value,
    *,
    size: list[int],
    ratio: list[float],
    samples: list[int],
) -> Value:
    """Averages of bilinear samples, in `size` (height, width) bins for each region.

    rois [n, 4]: x1, y1, x2, y2 in an image that is `ratio` (height, width) times as large as x [N,
    C, H, W]; index [n] int32: the batch index. `samples` per bin and direction (height, width), 0:
    as many as there are pixels. Result [n, C, height, width]. Source: NNAPI, ROI_ALIGN.
    """
    entry = b.Cast(index, to=INT64)
    if samples[0] != samples[1]:  # separable: a weighted sum of rows and columns
        shape, corners = static(x, "the feature map"), _scaled(b, rois, ratio)
        rows, columns = (
            _weights(b, corners, i, shape[3 - i], size[1 - i], samples[1 - i]) for i in (1, 0)
        )
        across = b.Gather(x, entry, axis=0) @ b.Transpose(columns, perm=[0, 2, 1])[:, None]
        return rows[:, None] @ across
    rule = "output_half_pixel"
    return b.RoiAlign(
        x,
        _scaled(b, rois, ratio),
        entry,
        mode="avg",
        coordinate_transformation_mode=rule,
        sampling_ratio=samples[0],
        output_height=size[0],
        output_width=size[1],
    )


def _weights(b: Builder, corners: Value, first: int, length: int, bins: int, samples: int) -> Value:
    """Return the weight of each pixel along one axis in each bin, the mean of its samples: [n,
    bins, length]; samples outside the image have none.
    """
    low, high = (corners[:, i : i + 1] for i in (first, first + 2))
    size = b.Max(high - low, 1) / bins
    count = b.Ceil(size) if samples == 0 else b.Expand(b.like(corners, samples), b.Shape(size))
    most = b.Cast(b.ReduceMax(count, keepdims=0), to=INT64)
    number = b.CastLike(b.Range(0, most, 1), corners)  # [s]
    part = (number + 0.5) / count  # [n, s]
    steps = part[:, None] + b.CastLike(arange(bins, dtype=np.float32)[:, None], corners)
    at = steps * size[:, :, None] + low[:, :, None]  # [n, bins, s]
    counted = (number < count)[:, None] & b.And(*_inside(b, at, length))
    at = b.Max(b.Min(at, length - 1), 0)[:, :, :, None]
    distance = b.Abs(at - b.CastLike(arange(length, dtype=np.float32), corners))
    weight = b.Relu(1 - distance)
    total = b.ReduceSum(b.Where(counted[:, :, :, None], weight, 0), [2], keepdims=0)
    return total / count[:, :, None]


def _inside(b: Builder, at: Value, length: int) -> tuple[Value, Value]:
    return at >= -1, at <= length


@extension(x=4, rois=2, index=1)
def RegionPool(
    b: Builder, x: Value, rois: Value, index: Value, *, size: list[int], ratio: list[float]
) -> Value:
    """Return the maximum of each bin of a region whose corners are rounded; inputs as for
    RegionAlign.

    Result [n, C, height, width]. Source: NNAPI, ROI_POOLING.
    """
    entry = b.Cast(index, to=rois.dtype or FLOAT)[:, None]
    return b.MaxRoiPool(
        x,
        b.Concat(entry, _scaled(b, rois, ratio), axis=1),
        pooled_shape=list(size),
        spatial_scale=1.0,
    )
