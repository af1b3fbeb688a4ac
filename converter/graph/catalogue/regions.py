"""Extension operators on regions of interest whose image is given beside their corners."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension
from converter.graph.infer import shape_of
from converter.graph.sizes import arange
from converter.mapping.node import MappingError


def _scaled(b: Builder, rois: ir.Value, ratio: list[float]) -> ir.Value:
    dtype = rois.dtype.numpy() if rois.dtype is not None else np.float32
    return b.op("Mul", rois, b.const(np.array([1 / ratio[1], 1 / ratio[0]] * 2, dtype)))


@extension
def RegionAlign(b: Builder, x: ir.Value, rois: ir.Value, index: ir.Value, *, size: list[int], ratio: list[float], samples: list[int]) -> ir.Value:
    """Averages of bilinear samples, `size` (height, width) bins for each region.

    rois [n, 4]: x1, y1, x2, y2 in an image that is `ratio` (height, width) times as large as x [N, C, H, W]; index [n] int32: the entry of
    the batch. `samples` per bin and direction (height, width), 0: as many as there are pixels.
    """
    entry = b.op("Cast", index, to=int(ir.DataType.INT64))
    if samples[0] != samples[1]:  # separable: a sum of rows and columns with weights
        shape, corners = shape_of(x), _scaled(b, rois, ratio)
        if shape is None:
            raise MappingError("the shape of the feature map must be static", "X203")
        rows, columns = (_weights(b, corners, i, shape[3 - i], size[1 - i], samples[1 - i]) for i in (1, 0))
        across = b.op("MatMul", b.op("Gather", x, entry, axis=0), b.op("Unsqueeze", b.op("Transpose", columns, perm=[0, 2, 1]), [1]))
        return b.op("MatMul", b.op("Unsqueeze", rows, [1]), across)
    rule = "output_half_pixel"
    return b.op(
        "RoiAlign", x, _scaled(b, rois, ratio), entry, mode="avg", coordinate_transformation_mode=rule,
        sampling_ratio=samples[0], output_height=size[0], output_width=size[1],
    )  # fmt: skip


def _weights(b: Builder, corners: ir.Value, first: int, length: int, bins: int, samples: int) -> ir.Value:
    """[n, bins, length]: what each pixel along one axis gives to each bin, the mean of its samples; those outside of the image give nothing."""
    low, high = (b.op("Slice", corners, [i], [i + 1], [1]) for i in (first, first + 2))
    size = b.op("Div", b.op("Max", b.op("Sub", high, low), b.like(corners, 1)), b.like(corners, bins))
    count = b.op("Ceil", size) if samples == 0 else b.op("Expand", b.like(corners, samples), b.op("Shape", size))
    most = b.op("Cast", b.op("ReduceMax", count, keepdims=0), to=int(ir.DataType.INT64))
    number = b.op("CastLike", b.op("Range", b.const(np.int64(0)), most, b.const(np.int64(1))), corners)  # [s]
    part = b.op("Div", b.op("Add", number, b.like(corners, 0.5)), count)  # [n, s]
    steps = b.op("Add", b.op("Unsqueeze", part, [1]), b.op("CastLike", b.const(arange(bins, dtype=np.float32)[:, None]), corners))
    at = b.op("Add", b.op("Mul", steps, b.op("Unsqueeze", size, [2])), b.op("Unsqueeze", low, [2]))  # [n, bins, s]
    counted = b.op("And", b.op("Unsqueeze", b.op("Less", number, count), [1]), b.op("And", *_inside(b, at, length)))
    at = b.op("Unsqueeze", b.op("Max", b.op("Min", at, b.like(at, length - 1)), b.like(at, 0)), [3])
    distance = b.op("Abs", b.op("Sub", at, b.op("CastLike", b.const(arange(length, dtype=np.float32)), corners)))
    weight = b.op("Relu", b.op("Sub", b.like(at, 1), distance))
    total = b.op("ReduceSum", b.op("Where", b.op("Unsqueeze", counted, [3]), weight, b.like(at, 0)), [2], keepdims=0)
    return b.op("Div", total, b.op("Unsqueeze", count, [2]))


def _inside(b: Builder, at: ir.Value, length: int) -> tuple[ir.Value, ir.Value]:
    return b.op("GreaterOrEqual", at, b.like(at, -1)), b.op("LessOrEqual", at, b.like(at, length))


@extension
def RegionPool(b: Builder, x: ir.Value, rois: ir.Value, index: ir.Value, *, size: list[int], ratio: list[float]) -> ir.Value:
    """The maximum of each bin of a region whose corners are rounded; inputs as for RegionAlign."""
    entry = b.op("Unsqueeze", b.op("Cast", index, to=int(rois.dtype or ir.DataType.FLOAT)), [1])
    return b.op("MaxRoiPool", x, b.op("Concat", entry, _scaled(b, rois, ratio), axis=1), pooled_shape=list(size), spatial_scale=1.0)
