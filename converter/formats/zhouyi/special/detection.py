"""Detection: boxes decoded, grouped by class, fused, suppressed, and cut out of feature maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.special.register import (
    blob,
    choose,
    constant_value,
    declared_types,
    fixed,
    lifts,
    lowers,
    need,
    need_int,
    need_ints,
    need_number,
    operand,
    static,
    twin,
)
from converter.formats.zhouyi.types import dtype_name
from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder
from converter.graph.infer import constant, shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node


def numbers(layer: Layer, key: str, default: list[float] | None = None) -> list[float]:
    value = need(layer, key, default)
    value = [value] if isinstance(value, int | float) else value
    if not isinstance(value, list) or not all(isinstance(v, int | float) for v in value):
        raise MappingError(f"{key}={value!r} is not a list of numbers", "R110")
    return [float(v) for v in value]


def declared(layer: Layer, index: int, axis: int = 1) -> int:
    """A size that only the declared shape of an output tells."""
    shape = shape_of(layer.outputs[index]) if index < len(layer.outputs) else None
    if shape is None or len(shape) <= axis:
        raise MappingError("layer_top_shape must tell the size of the results", "R110")
    return shape[axis]


@lifts("BoundingBox")
def lift_bounding_box(layer: Layer, b: Builder) -> ir.Value:
    if layer.attrs.get("coordinate_order") is not None:
        raise MappingError("coordinate_order has no counterpart")
    return b.ext("RefineBoxes", operand(layer), operand(layer, 1), divisors=numbers(layer, "std_div", [10, 10, 5, 5]))


@lowers("RefineBoxes", domain=EXTENSION_DOMAIN)
def lower_bounding_box(node: Node, low: Lowering) -> None:
    if list(node.attrs.get("divisors", [10, 10, 5, 5])) != [10, 10, 5, 5]:
        raise MappingError("other divisors than 10, 10, 5, 5 have no counterpart")
    low.add("BoundingBox", node.inputs, node.outputs)


@lifts("DecodeBox")
def lift_decode_box(layer: Layer, b: Builder) -> list[ir.Value]:
    """Anchors as a third input, as the constant weights [N, 4], or as four constants."""
    scores = operand(layer)
    attrs: dict[str, Any] = {"class_num": need_int(layer, "class_num"), "threshold": need_number(layer, "score_threshold")}
    attrs |= {"size": declared(layer, 0), "classes": declared(layer, 1), "variance": numbers(layer, "variance", [10.0, 10.0, 5.0, 5.0])}
    found = b.exts("DecodeBoxes", scores, operand(layer, 1), _anchors(layer, b), clip=int(bool(need(layer, "clip", True))), outputs=5, **attrs)
    return declared_types(layer, b, found)


def _anchors(layer: Layer, b: Builder) -> ir.Value:
    if len(layer.inputs) > 2:
        return operand(layer, 2)
    if "xcenter" in layer.blobs:
        parts = [blob(layer, k).reshape(-1) for k in ("ycenter", "xcenter", "ha", "wa")]
        return b.const(np.stack(parts, axis=1), f"{layer.name}.anchors")
    name = "weights" if "weights" in layer.blobs else "weight"
    return b.const(blob(layer, name).reshape(-1, 4), f"{layer.name}.anchors")


@lowers("DecodeBoxes", domain=EXTENSION_DOMAIN)
def lower_decode_box(node: Node, low: Lowering) -> None:
    a, anchors = node.attrs, fixed(node, 2, "the anchors")
    attrs = {"class_num": int(a["class_num"]), "score_threshold": float(a["threshold"]), "variance": [float(v) for v in a["variance"]]}
    attrs |= {"max_box_num": int(a["size"]), "clip": bool(a["clip"]), "image_width": 1, "image_height": 1, "proposal_normalized": True}
    parts = {name: anchors[:, i] for name, i in (("ycenter", 0), ("xcenter", 1), ("ha", 2), ("wa", 3))}
    low.add("DecodeBox", node.inputs[:2], node.outputs, attrs, {"weights": anchors, **parts})


@lifts("Region")
def lift_region(layer: Layer, b: Builder) -> list[ir.Value]:
    size = int(layer.attrs.get("max_box_num") or declared(layer, 1))
    threshold = layer.attrs.get("obj_thresh", layer.attrs.get("obj_threshold"))
    if not isinstance(threshold, int | float):
        raise MappingError("required attribute 'obj_thresh' is absent", "R110")
    attrs: dict[str, Any] = {"anchors": numbers(layer, "anchors"), "threshold": float(threshold), "compensate": int(bool(need(layer, "grid_compensate", True)))}
    return declared_types(layer, b, b.exts("RegionGroups", operand(layer), size=size, outputs=5, **attrs))


@lowers("RegionGroups", domain=EXTENSION_DOMAIN)
def lower_region(node: Node, low: Lowering) -> None:
    _, gh, gw, boxes, depth = static(operand(node))
    a = node.attrs
    attrs = {"obj_thresh": float(a["threshold"]), "anchors": [float(v) for v in a["anchors"]], "max_box_num": int(a["size"]), "box_per_grid": boxes}
    low.add(
        "Region", node.inputs, node.outputs, {**attrs, "class_num": depth - 5, "grid_width": gw, "grid_height": gh, "grid_compensate": bool(a["compensate"])}
    )


@lifts("RegionFuse")
def lift_region_fuse(layer: Layer, b: Builder) -> list[ir.Value]:
    found = b.exts("FuseRegions", *[operand(layer, i) for i in range(10)], size=declared(layer, 0), classes=declared(layer, 3), outputs=5)
    return declared_types(layer, b, found)


@lowers("FuseRegions", domain=EXTENSION_DOMAIN)
def lower_region_fuse(node: Node, low: Lowering) -> None:
    low.add("RegionFuse", node.inputs, node.outputs, {"class_num": int(node.attrs["classes"])})


@lifts("NMS")
def lift_nms(layer: Layer, b: Builder) -> list[ir.Value]:
    method = str(need(layer, "method", "HARD")).upper()
    if method == "LINEAR":
        raise MappingError("method=LINEAR: the document does not say how the scores fall, and the vendor's executor takes HARD instead", "X202")
    soft = choose(layer, "method", {"HARD": False, "GAUSSIAN": True}, "HARD")
    size = declared(layer, 0)
    attrs: dict[str, Any] = {"size": size, "per_class": need_int(layer, "max_output_size", size), "iou_threshold": need_number(layer, "iou_threshold")}
    attrs["score_threshold"] = float(layer.attrs.get("score_threshold", float("-inf")))
    batch, n = static(operand(layer))[:2]
    operands = [operand(layer), operand(layer, 1), operand(layer, 2), b.op("Reshape", operand(layer, 3), [batch, n])]
    floats = [v if v.dtype == ir.DataType.FLOAT else b.op("Cast", v, to=int(ir.DataType.FLOAT)) for v in operands]
    if not soft:
        return declared_types(layer, b, b.exts("GroupedNMS", *floats, center_point_box=need_int(layer, "center_point_box", 0), outputs=4, **attrs))
    if need_int(layer, "center_point_box", 0):
        raise MappingError("center_point_box=1 with method=GAUSSIAN: the vendor's executor reads corners all the same", "X202")
    return declared_types(layer, b, b.exts("GroupedSoftNMS", *floats, sigma=need_number(layer, "soft_nms_sigma"), outputs=4, **attrs))


@lowers("GroupedNMS", domain=EXTENSION_DOMAIN)
def lower_nms(node: Node, low: Lowering) -> None:
    a = node.attrs
    attrs = {"method": "HARD", "center_point_box": int(a.get("center_point_box", 0)), "max_output_size": int(a["per_class"]), "soft_nms_sigma": 0.0}
    attrs |= {"iou_threshold": float(a["iou_threshold"]), "score_threshold": float(a["score_threshold"]), "image_width": 1, "image_height": 1}
    low.add("NMS", node.inputs, node.outputs, attrs)


@lowers("GroupedSoftNMS", domain=EXTENSION_DOMAIN)
def lower_soft_nms(node: Node, low: Lowering) -> None:
    a = node.attrs
    attrs = {"method": "GAUSSIAN", "center_point_box": 0, "max_output_size": int(a["per_class"]), "soft_nms_sigma": float(a["sigma"])}
    attrs |= {"iou_threshold": float(a["iou_threshold"]), "score_threshold": float(a["score_threshold"]), "image_width": 1, "image_height": 1}
    low.add("NMS", node.inputs, node.outputs, attrs)


@lifts("MultiboxTransformLoc")
def lift_multibox(layer: Layer, b: Builder) -> list[ir.Value]:
    threshold = layer.attrs.get("score_threshold", layer.attrs.get("score_threshold_value"))
    if not isinstance(threshold, int | float):
        raise MappingError("required attribute 'score_threshold' is absent", "R110")
    variances = numbers(layer, "variance" if "variance" in layer.attrs else "variances")
    found = b.exts("MultiboxDecode", *[operand(layer, i) for i in range(3)], threshold=float(threshold), variances=variances, outputs=2)
    return declared_types(layer, b, found)


@lowers("MultiboxDecode", domain=EXTENSION_DOMAIN)
def lower_multibox(node: Node, low: Lowering) -> None:
    a = node.attrs
    attrs = {"score_threshold": float(a["threshold"]), "variances": [float(v) for v in a["variances"]], "variance": [float(v) for v in a["variances"]]}
    low.add("MultiboxTransformLoc", node.inputs, node.outputs, attrs)


@lifts("GetValidCount")
def lift_valid_count(layer: Layer, b: Builder) -> list[ir.Value]:
    attrs: dict[str, Any] = {"score_index": need_int(layer, "score_index", 1), "id_index": need_int(layer, "id_index", -1)}
    return declared_types(layer, b, b.exts("GetValidCount", operand(layer), outputs=3, score_threshold=need_number(layer, "score_threshold"), **attrs))


@lowers("GetValidCount", domain=EXTENSION_DOMAIN)
def lower_valid_count(node: Node, low: Lowering) -> None:
    a = node.attrs
    attrs = {"score_threshold": float(a["score_threshold"]), "score_index": int(a["score_index"]), "id_index": int(a["id_index"])}
    low.add("GetValidCount", node.inputs, node.outputs, attrs)


@lifts("CropAndResize")
def lift_crop_and_resize(layer: Layer, b: Builder) -> ir.Value:
    attrs: dict[str, Any] = {"method": choose(layer, "method", {"BILINEAR": "BILINEAR", "NEAREST": "NEAREST"}), "crop_size": need_ints(layer, "crop_size")}
    attrs["extrapolation_value"] = need_number(layer, "extrapolation_value", 0.0)
    return twin(b, "CropAndResize", operand(layer), operand(layer, 1), operand(layer, 2), base=EXTENSION_DOMAIN, **attrs)[0]


@lowers("CropAndResize", domain=EXTENSION_DOMAIN)
def lower_crop_and_resize(node: Node, low: Lowering) -> None:
    a = node.attrs
    attrs = {"method": a["method"], "crop_size": [int(v) for v in a["crop_size"]], "extrapolation_value": float(a["extrapolation_value"])}
    low.add("CropAndResize", node.inputs, node.outputs, attrs)


def _scale(layer: Layer, key: str, stem: str) -> list[float]:
    """[y, x], as a list or as two keys."""
    if isinstance(layer.attrs.get(key), list | int | float):
        found = numbers(layer, key)
        return found * 2 if len(found) == 1 else found
    return [need_number(layer, f"{stem}_y"), need_number(layer, f"{stem}_x")]


def _rois(layer: Layer, b: Builder, scale: list[float]) -> tuple[ir.Value, ir.Value]:
    """batch, y1, x1, y2, x2 -> the numbers of the images [n], and x1, y1, x2, y2 in pixels of the feature map [n, 4]."""
    rois = operand(layer, 1)
    rois = b.op("Reshape", rois, [-1, 5]) if len(static(rois)) != 2 else rois
    boxes = b.op("Gather", rois, np.array([2, 1, 4, 3]), axis=1)
    return b.op("Squeeze", b.op("Slice", rois, [0], [1], [1]), [1]), b.op(
        "Mul", boxes, b.const(np.array([scale[1], scale[0]] * 2, rois.dtype.numpy() if rois.dtype else np.float32))
    )


@lifts("RoiAlign")
def lift_roi_align(layer: Layer, b: Builder) -> ir.Value:
    batch, boxes = _rois(layer, b, _scale(layer, "spatial_scale_value", "spatial_scale"))
    sample, pooled = need_ints(layer, "sample", [0, 0]), need_ints(layer, "pooled_shape", list((shape_of(layer.outputs[0]) or ())[1:3]))
    if len(set(sample)) != 1:
        raise MappingError(f"sample={sample}: only the same number both ways has a counterpart")
    attrs = {"mode": choose(layer, "method", {"AVG": "avg", "MAX": "max"}), "sampling_ratio": sample[0], "output_height": pooled[0], "output_width": pooled[1]}
    modes = {"HALF_PIXEL": "half_pixel", "OUTPUT_HALF_PIXEL": "output_half_pixel"}
    mode = choose(layer, "coordinate_transformation_mode", modes, "HALF_PIXEL")
    index = b.op("Cast", batch, to=int(ir.DataType.INT64))
    return twin(b, "RoiAlign", operand(layer), boxes, index, coordinate_transformation_mode=mode, spatial_scale=1.0, **attrs)[0]


@lowers("RoiAlign")
def lower_roi_align(node: Node, low: Lowering) -> None:
    a, boxes, batch = node.attrs, operand(node, 1), operand(node, 2)
    n = static(boxes)[0]
    swapped, number, rois = low.value("boxes", boxes.dtype, [n, 4]), low.value("batch", boxes.dtype, [n, 1]), low.value("rois", boxes.dtype, [n, 5])
    low.add("Gather", [boxes, constant_value(low, np.array([1, 0, 3, 2], np.int32))], [swapped], {"axis": 1, "batch_dims": 0})
    found = constant(batch)
    if found is not None and boxes.dtype is not None:
        number = constant_value(low, found.astype(boxes.dtype.numpy()).reshape(n, 1))
    else:
        cast = low.value("batch", boxes.dtype, [n])
        low.add("Cast", [batch], [cast], {"to_dtype": dtype_name(boxes.dtype or ir.DataType.FLOAT), "ignore_scale_zp": True, "clip_mode": "TRUNCATION"})
        low.add("Reshape", [cast], [number], {"shape": [n, 1]})
    low.add("Concat", [number, swapped], [rois], {"axis": 1})
    scale = float(a.get("spatial_scale", 1.0))
    attrs = {"method": a.get("mode", "avg").upper(), "pooled_shape": [int(a.get("output_height", 1)), int(a.get("output_width", 1))]}
    attrs |= {"sample": [int(a.get("sampling_ratio", 0))] * 2, "spatial_scale_value": [scale, scale]}
    attrs["coordinate_transformation_mode"] = a.get("coordinate_transformation_mode", "half_pixel").upper()
    low.add("RoiAlign", [node.input(0), rois], node.outputs, attrs)


@lifts("MaxRoiPool")
def lift_max_roi_pool(layer: Layer, b: Builder) -> ir.Value:
    key = "spatial" if "spatial" in layer.attrs else "spatial_scale_value"
    batch, boxes = _rois(layer, b, _scale(layer, key, "spatial"))
    pooled = need_ints(layer, "pooled_shape", list((shape_of(layer.outputs[0]) or ())[-3:-1]))
    return twin(b, "MaxRoiPool", operand(layer), b.op("Concat", b.op("Unsqueeze", batch, [1]), boxes, axis=1), pooled_shape=pooled, spatial_scale=1.0)[0]


@lowers("MaxRoiPool")
def lower_max_roi_pool(node: Node, low: Lowering) -> None:
    rois, scale = operand(node, 1), float(node.attrs.get("spatial_scale", 1.0))
    turned = low.value("rois", rois.dtype, static(rois))
    low.add("Gather", [rois, constant_value(low, np.array([0, 2, 1, 4, 3], np.int32))], [turned], {"axis": 1, "batch_dims": 0})
    attrs = {"pooled_shape": [int(v) for v in node.attrs["pooled_shape"]], "spatial": [scale, scale]}
    low.add("MaxRoiPool", [node.input(0), turned], node.outputs, attrs)
