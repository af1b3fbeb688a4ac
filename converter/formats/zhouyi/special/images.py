"""Resampling: resize, grids, regions of interest."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.special.register import choose, fixed, lifts, lowers, need, need_ints, operand, static, twin
from converter.graph.build import Builder
from converter.graph.infer import shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

MODES = {
    "HALF_PIXEL": "half_pixel",
    "ALIGN_CORNERS": "align_corners",
    "ASYMMETRIC": "asymmetric",
    "PYTORCH_HALF_PIXEL": "pytorch_half_pixel",
    "TF_HALF_PIXEL_FOR_NN": "tf_half_pixel_for_nn",
    "HALF_PIXEL_SYMMETRIC": "half_pixel_symmetric",
}
NEAREST = {"ROUND_PREFER_FLOOR": "round_prefer_floor", "ROUND_PREFER_CEIL": "round_prefer_ceil", "FLOOR": "floor", "CEIL": "ceil", "SIMPLE": "simple"}


@lifts("Resize")
def lift_resize(layer: Layer, b: Builder) -> ir.Value:
    """The size is the declared one; the scales are the ratios where they make that size, as they tell apart what sizes cannot."""
    x = operand(layer)
    size, ratios = _size(layer, x), _ratios(layer, len(static(x)) - 2)
    attrs: dict[str, Any] = {"mode": choose(layer, "method", {"BILINEAR": "linear", "NEAREST": "nearest", "CUBIC": "cubic"})}
    attrs["coordinate_transformation_mode"] = choose(layer, "mode", MODES, "HALF_PIXEL")
    if layer.attrs.get("antialias") or layer.attrs.get("exclude_outside"):
        attrs |= {k: int(bool(layer.attrs.get(k))) for k in ("antialias", "exclude_outside")}
    source = list(static(x)[1:-1])
    if attrs["mode"] == "nearest":
        nearest = choose(layer, "nearest_mode", NEAREST, "ROUND_PREFER_FLOOR")
        if nearest == "simple":  # down: ceil, up: floor
            nearest = "ceil" if all(t <= s for t, s in zip(size, source, strict=True)) else "floor"
        attrs["nearest_mode"] = nearest
    if attrs["coordinate_transformation_mode"] == "tf_half_pixel_for_nn":
        return twin(b, "Resize", x, None, None, [static(x)[0], static(x)[-1], *size], **_tf_half_pixel(attrs))[0]
    if ratios and "size" not in layer.attrs and [int(np.floor(s * float(np.float32(r)))) for s, r in zip(source, ratios, strict=True)] == size:
        return twin(b, "Resize", x, None, b.const(np.array([1, 1, *ratios], np.float32)), **attrs)[0]
    return twin(b, "Resize", x, None, None, [static(x)[0], static(x)[-1], *size], **attrs)[0]


def _tf_half_pixel(attrs: dict[str, Any]) -> dict[str, Any]:
    """(i + 0.5) * scale without the half taken off again, rounded down: the same as half_pixel rounded half up."""
    if attrs["mode"] != "nearest" or attrs["nearest_mode"] != "floor":
        raise MappingError("TF_HALF_PIXEL_FOR_NN has a counterpart only with nearest_mode=FLOOR")
    return {**attrs, "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}


def _size(layer: Layer, x: ir.Value) -> list[int]:
    declared = shape_of(layer.outputs[0]) if layer.outputs else None
    rank = len(static(x))
    given = layer.attrs.get("size")
    if isinstance(given, list) and len(given) in (rank, rank - 2):
        return [int(v) for v in (given[1:-1] if len(given) == rank else given)]
    if declared is not None and len(declared) == rank:
        return list(declared[1:-1])
    ratios = _ratios(layer, rank - 2)
    if ratios is None:
        raise MappingError("neither the size nor the ratios are given", "R110")
    return [int(np.floor(s * r)) for s, r in zip(static(x)[1:-1], ratios, strict=True)]


def _ratios(layer: Layer, rank: int) -> list[float] | None:
    found = [layer.attrs.get(f"ratio_{a}") for a in "zyx"[3 - rank :]]
    known = [float(r) for r in found if isinstance(r, int | float)]
    return known if len(known) == rank else None


@lowers("Resize")
def lower_resize(node: Node, low: Lowering) -> None:
    """Scales become ratios, sizes a size; only what the vendor's reader computes as ONNX does is written."""
    x, a = operand(node), node.attrs
    method, source = _method(node), list(static(x))
    rank = len(source)
    out = list(static(node.outputs[0]))
    scales = node.input(2)
    last_out, last_in = (out, source) if node.last else ([out[0], *out[2:], out[1]], [source[0], *source[2:], source[1]])
    if rank != 4 or last_out[0] != last_in[0] or last_out[-1] != last_in[-1]:
        raise MappingError("only the spatial axes of 4-D data are resized")
    attrs: dict[str, Any] = {"method": method, "mode": {v: k for k, v in MODES.items()}.get(a.get("coordinate_transformation_mode", "half_pixel"))}
    if attrs["mode"] is None:
        raise MappingError(f"coordinate_transformation_mode={a['coordinate_transformation_mode']!r} has no counterpart")
    if attrs["mode"] == "HALF_PIXEL_SYMMETRIC" or (attrs["mode"] == "ALIGN_CORNERS" and 1 in last_out[1:-1]):
        raise MappingError(f"{attrs['mode']} to {last_out[1:-1]} is not what the vendor's executor computes")
    factors = [t / s for s, t in zip(last_in[1:-1], last_out[1:-1], strict=True)]
    if scales is not None and static(scales) != (0,):
        factors = [float(v) for v in fixed(node, 2, "the scales")[2:]]
    else:
        attrs["size"] = last_out
    attrs |= {f"ratio_{axis}": float(f) for axis, f in zip("zyx"[5 - rank :], factors, strict=True)}
    attrs |= {"antialias": False, "exclude_outside": False}
    if method == "NEAREST":
        attrs["nearest_mode"] = {v: k for k, v in NEAREST.items()}[a.get("nearest_mode", "round_prefer_floor")]
    low.add("Resize", [x], node.outputs, attrs)


def _method(node: Node) -> str:
    a = node.attrs
    mode = a.get("mode", "nearest")
    if mode not in ("linear", "nearest"):
        raise MappingError(f"mode={mode!r} has no counterpart: the format knows BILINEAR and NEAREST")
    if a.get("antialias", 0) or a.get("exclude_outside", 0) or a.get("axes") or a.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise MappingError("antialias, exclude_outside, axes and keep_aspect_ratio_policy have no counterpart")
    return "BILINEAR" if mode == "linear" else "NEAREST"


@lifts("GridSample")
def lift_grid_sample(layer: Layer, b: Builder) -> ir.Value:
    attrs = {"mode": choose(layer, "method", {"BILINEAR": "linear", "NEAREST": "nearest", "BICUBIC": "cubic"}, "BILINEAR")}
    attrs["padding_mode"] = choose(layer, "padding_mode", {"ZEROS": "zeros", "BORDER": "border", "REFLECTION": "reflection"}, "ZEROS")
    return twin(b, "GridSample", operand(layer), operand(layer, 1), align_corners=int(bool(need(layer, "align_corners", False))), **attrs)[0]


@lowers("GridSample")
def lower_grid_sample(node: Node, low: Lowering) -> None:
    methods = {"linear": "bilinear", "bilinear": "bilinear", "nearest": "nearest", "cubic": "bicubic", "bicubic": "bicubic"}
    attrs = {"method": methods[node.attrs.get("mode", "linear")], "padding_mode": node.attrs.get("padding_mode", "zeros")}
    if len(static(operand(node))) != 4:
        raise MappingError("only 4-D data have a counterpart")
    if attrs["method"] == "bicubic" or attrs["padding_mode"] == "reflection":
        raise MappingError(f"{attrs['method']} with padding_mode={attrs['padding_mode']}: the vendor's executor silently takes bilinear and zeros instead")
    low.add("GridSample", node.inputs, node.outputs, {**attrs, "align_corners": bool(node.attrs.get("align_corners", 0))})


@lifts("AffineGrid")
def lift_affine_grid(layer: Layer, b: Builder) -> ir.Value:
    declared = shape_of(layer.outputs[0]) if layer.outputs else None
    size = need_ints(layer, "size", None if declared is None else [declared[0], 1, *declared[1:-1]])
    return b.op("AffineGrid", operand(layer), size, align_corners=int(bool(need(layer, "align_corners", False))))
