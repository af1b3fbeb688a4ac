"""Extension operators on regions of interest whose image is given beside their corners."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension
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
    if samples[0] != samples[1]:
        raise MappingError(f"{samples[0]} samples across and {samples[1]} along cannot be said together")
    entry = b.op("Cast", index, to=int(ir.DataType.INT64))
    rule = "output_half_pixel"
    return b.op(
        "RoiAlign", x, _scaled(b, rois, ratio), entry, mode="avg", coordinate_transformation_mode=rule,
        sampling_ratio=samples[0], output_height=size[0], output_width=size[1],
    )  # fmt: skip


@extension
def RegionPool(b: Builder, x: ir.Value, rois: ir.Value, index: ir.Value, *, size: list[int], ratio: list[float]) -> ir.Value:
    """The maximum of each bin of a region whose corners are rounded; inputs as for RegionAlign."""
    entry = b.op("Unsqueeze", b.op("Cast", index, to=int(rois.dtype or ir.DataType.FLOAT)), [1])
    return b.op("MaxRoiPool", x, b.op("Concat", entry, _scaled(b, rois, ratio), axis=1), pooled_shape=list(size), spatial_scale=1.0)
