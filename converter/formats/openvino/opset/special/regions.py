"""Regions cut into bins of bilinear samples, upright and rotated."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.formats.openvino.opset.special.base import Emit, attributes, cast, filled, lifts, lowers, operand
from converter.formats.openvino.opset.special.detection import far, near
from converter.graph.build import Builder
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType


@lifts("ROIAlignRotated")
def lift_rotated_align(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, pooled_h=int, pooled_w=int, sampling_ratio=int, spatial_scale=float, clockwise_mode=False)
    return b.ext("ROIAlignRotated", *(operand(layer, i) for i in range(3)), **near(vars(a)))


@lowers("ROIAlignRotated", domain="netconv")
def lower_rotated_align(node: Node, low: Lowering) -> None:
    if low.version < 14:
        raise MappingError("ROIAlignRotated needs opset14", "X206")
    Emit(node, low).out("ROIAlignRotated", *node.inputs, **far(node, "clockwise_mode"))


@lifts("ROIAlign")
def lift_roi_align(layer: Layer, b: Builder) -> ir.Value:
    """half_pixel_for_nn is what ONNX calls half_pixel; half_pixel here also moves the corners by half a pixel before scaling."""
    a = attributes(layer, pooled_h=int, pooled_w=int, sampling_ratio=int, spatial_scale=float, mode=str, aligned_mode="asymmetric")
    x, rois, batch = operand(layer, 0), operand(layer, 1), cast(b, operand(layer, 2), T.INT64)
    if a.aligned_mode == "half_pixel":
        rois = b.op("Add", rois, b.like(rois, 0.5))
    elif a.aligned_mode not in ("asymmetric", "half_pixel_for_nn"):
        raise MappingError(f"aligned_mode={a.aligned_mode!r} is not known", "R110")
    if a.mode not in ("avg", "max"):
        raise MappingError(f"mode={a.mode!r} is not known", "R110")
    half = a.aligned_mode != "asymmetric"
    if a.mode == "max":  # ONNX's own takes the largest weighted corner of the samples, this the largest sample
        return b.ext(
            "ROIAlignMax", x, rois, batch, pooled_h=a.pooled_h, pooled_w=a.pooled_w, sampling_ratio=a.sampling_ratio, spatial_scale=a.spatial_scale,
            half_pixel=int(half),
        )  # fmt: skip
    return b.op(
        "RoiAlign", x, rois, batch, output_height=a.pooled_h, output_width=a.pooled_w, spatial_scale=a.spatial_scale, sampling_ratio=a.sampling_ratio,
        mode="avg", coordinate_transformation_mode="half_pixel" if half else "output_half_pixel",
    )  # fmt: skip


@lowers("ROIAlignMax", domain="netconv")
def lower_roi_align_max(node: Node, low: Lowering) -> None:
    a = far(node, "half_pixel")
    half = a.pop("half_pixel")
    if half and low.version < 9:
        raise MappingError("half_pixel needs opset9", "X206")
    extra: dict[str, Any] = {"aligned_mode": "half_pixel_for_nn" if half else "asymmetric"} if low.version >= 9 else {}
    Emit(node, low).out("ROIAlign", *node.inputs, **a, mode="max", **extra)


@lowers("RoiAlign")
def lower_roi_align(node: Node, low: Lowering) -> None:
    a = filled(node)
    if a["mode"] == "max":
        raise MappingError("mode='max' takes the largest weighted corner in ONNX, the largest sample in ROIAlign")
    half = a["coordinate_transformation_mode"] == "half_pixel"
    if half and low.version < 9:
        raise MappingError("half_pixel needs opset9", "X206")
    extra: dict[str, Any] = {"aligned_mode": "half_pixel_for_nn" if half else "asymmetric"} if low.version >= 9 else {}
    Emit(node, low).out(
        "ROIAlign", *node.inputs, pooled_h=a["output_height"], pooled_w=a["output_width"], sampling_ratio=a["sampling_ratio"],
        spatial_scale=a["spatial_scale"], mode=a["mode"], **extra,
    )  # fmt: skip
