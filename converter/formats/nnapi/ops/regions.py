"""Regions of interest: windows of an image that are given at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.ops.args import Args, lifts
from converter.formats.nnapi.ops.emit import Emit, lowers
from converter.mapping.node import MappingError


def regions(a: Args) -> ir.Value:
    """Corners x1, y1, x2, y2 in the coordinates of the feature map."""
    rois, wide, high = a.real("rois"), a.number("width_ratio"), a.number("height_ratio")
    dtype = rois.dtype.numpy() if rois.dtype is not None else np.float32
    return a.b.op("Mul", rois, a.b.const(np.array([1 / wide, 1 / high, 1 / wide, 1 / high], dtype)))


@lifts("ROI_ALIGN")
def roi_align(a: Args) -> ir.Value:
    """Averages of bilinear samples; as many as there are pixels in a bin where the number is 0."""
    samples = a.integer("height_samples"), a.integer("width_samples")
    if samples[0] != samples[1]:
        raise MappingError(f"{samples[0]} samples across and {samples[1]} along cannot be said together")
    index = a.b.op("Cast", a.stored("batch_index"), to=int(ir.DataType.INT64))
    sizes: dict[str, Any] = {"output_height": a.integer("out_height"), "output_width": a.integer("out_width")}
    rule: dict[str, Any] = {"sampling_ratio": samples[0], "coordinate_transformation_mode": "output_half_pixel"}
    return a.twin("RoiAlign", a.real("input"), regions(a), index, mode="avg", spatial_scale=1.0, **sizes, **rule)


@lowers("RoiAlign")
def lower_roi_align(e: Emit) -> None:
    a = e.attrs
    if a["mode"] != "avg" or a["coordinate_transformation_mode"] != "output_half_pixel":
        raise MappingError("only averages, and pixels that begin at their coordinates, are possible")
    x, rois, index = e.image(), e.stored(1), e.stored(2)
    ratio, samples = 1 / a["spatial_scale"], a["sampling_ratio"]
    more = {"height_ratio": ratio, "width_ratio": ratio, "height_samples": samples, "width_samples": samples, "nchw": False}
    y = e.result(image=True)
    e.put("ROI_ALIGN", y, input=x, rois=rois, batch_index=index, out_height=a["output_height"], out_width=a["output_width"], **more)


@lifts("ROI_POOLING")
def roi_pooling(a: Args) -> ir.Value:
    """The maximum of each bin of a region whose corners are rounded."""
    rois = regions(a)
    index = a.b.op("Unsqueeze", a.b.op("Cast", a.stored("batch_index"), to=int(rois.dtype or ir.DataType.FLOAT)), [1])
    size = [a.integer("out_height"), a.integer("out_width")]
    return a.twin("MaxRoiPool", a.real("input"), a.b.op("Concat", index, rois, axis=1), pooled_shape=size, spatial_scale=1.0)
