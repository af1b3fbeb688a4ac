"""Layers that change the size of images. The output port has the size; factors and attributes only repeat it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.access import dims, flag, integer, operand, shape, text
from converter.formats.openvino.legacy.register import lifts
from converter.graph.build import Builder
from converter.mapping.node import Layer, MappingError


@lifts("Interp", "height", "width", "align_corners", "pad_beg", "pad_end", "factor", "shrink_factor", "zoom_factor")
def lift_interp(layer: Layer, b: Builder) -> ir.Value:
    """Bilinear; corners aligned, or the source at target * in/out. Negative pads cut the border off first, positive ones add zeros."""
    x, out = operand(layer), dims(layer)
    before, after = integer(layer, "pad_beg", 0), integer(layer, "pad_end", 0)
    if before or after:
        rank = len(out)
        x = b.op("Pad", x, [0, 0, *[before] * (rank - 2), 0, 0, *[after] * (rank - 2)], b.like(x, 0))
    mode = "align_corners" if flag(layer, "align_corners", True) else "asymmetric"
    return resize(b, x, out, mode="linear", coordinate_transformation_mode=mode)


@lifts("Resample", "type", "antialias", "factor", "width", "height")
def lift_resample(layer: Layer, b: Builder) -> ir.Value:
    """Half-pixel sampling, nearest or linear; `antialias` widens the linear kernel when the image shrinks."""
    x, out = operand(layer), dims(layer)
    kind = text(layer, "type", "caffe.ResampleParameter.NEAREST").rsplit(".", 1)[-1].lower()
    if kind == "nearest":
        return resize(b, x, out, mode="nearest", coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil")
    if kind not in ("linear", "bilinear"):
        raise MappingError(f"type={text(layer, 'type')!r} is not known", "R110")
    return resize(b, x, out, mode="linear", coordinate_transformation_mode="half_pixel", antialias=int(flag(layer, "antialias")))


def resize(b: Builder, x: ir.Value, out: tuple[int, ...], **attributes: Any) -> ir.Value:
    """Resize to the port's size; axes that keep theirs are not touched."""
    size = shape(x)
    if len(size) != len(out) or size[:2] != out[:2]:
        raise MappingError(f"the output port declares {out} for an input of {size}", "R105")
    if size == out:
        return b.op("Identity", x)
    return b.op("Resize", x, None, None, np.array(out, np.int64), **attributes)
