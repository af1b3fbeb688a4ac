"""Regions of interest: windows of an image that are given at run time."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.formats.nnapi.ops.args import Args, lifts
from converter.formats.nnapi.ops.emit import Emit, lowers
from converter.graph import EXTENSION_DOMAIN
from converter.mapping.node import MappingError


def window(a: Args) -> dict[str, Any]:
    return {"size": [a.integer("out_height"), a.integer("out_width")], "ratio": [a.number("height_ratio"), a.number("width_ratio")]}


@lifts("ROI_ALIGN")
def roi_align(a: Args) -> ir.Value:
    samples = [a.integer("height_samples"), a.integer("width_samples")]
    return a.twin("RegionAlign", a.real("input"), a.real("rois"), a.stored("batch_index"), extension=True, samples=samples, **window(a))


@lifts("ROI_POOLING")
def roi_pooling(a: Args) -> ir.Value:
    return a.twin("RegionPool", a.real("input"), a.real("rois"), a.stored("batch_index"), extension=True, **window(a))


@lowers("RegionAlign", "RegionPool", domain=EXTENSION_DOMAIN)
def lower_region(e: Emit) -> None:
    a, kind = e.attrs, "ROI_ALIGN" if e.op == "RegionAlign" else "ROI_POOLING"
    x, rois, index = e.image(), e.real(1), e.stored(2)
    more = {"height_samples": a["samples"][0], "width_samples": a["samples"][1]} if kind == "ROI_ALIGN" else {}
    sizes = {"out_height": a["size"][0], "out_width": a["size"][1], "height_ratio": a["ratio"][0], "width_ratio": a["ratio"][1]}
    e.put(kind, e.result(image=True), input=x, rois=rois, batch_index=index, nchw=False, **sizes, **more)


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
