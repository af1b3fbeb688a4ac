"""Regions of interest: windows of an image that are given at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from converter.formats.nnapi.ops.args import Args, dequantise, lifts
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
    more: dict[str, Any] = {"height_samples": a["samples"][0], "width_samples": a["samples"][1]} if kind == "ROI_ALIGN" else {}
    sizes = {"out_height": a["size"][0], "out_width": a["size"][1], "height_ratio": a["ratio"][0], "width_ratio": a["ratio"][1]}
    e.put(kind, e.result(image=True), input=x, rois=rois, batch_index=index, nchw=False, **sizes, **more)


@lowers("RoiAlign")
def lower_roi_align(e: Emit) -> None:
    a = e.attrs
    if a["mode"] != "avg" or a["coordinate_transformation_mode"] != "output_half_pixel":
        raise MappingError("only averages, and pixels that begin at their coordinates, are possible")
    x, rois, index = e.image(), e.stored(1), e.stored(2)
    ratio, samples = 1 / a["spatial_scale"], a["sampling_ratio"]
    more: dict[str, Any] = {"height_ratio": ratio, "width_ratio": ratio, "height_samples": samples, "width_samples": samples, "nchw": False}
    y = e.result(image=True)
    e.put("ROI_ALIGN", y, input=x, rois=rois, batch_index=index, out_height=a["output_height"], out_width=a["output_width"], **more)


def nchw(a: Args, name: str) -> ir.Value:
    """An image operand with channels first."""
    if a.flag("nchw"):
        return a.real(name)
    return dequantise(a.b, a.b.op("Transpose", a.stored(name), perm=[0, 3, 1, 2]), a.operand(name))


@lifts("HEATMAP_MAX_KEYPOINT")
def heatmap_keypoints(a: Args) -> Sequence[ir.Value]:
    return a.b.exts("HeatmapKeypoints", nchw(a, "heatmaps"), a.real("boxes"), outputs=2)


@lowers("HeatmapKeypoints", domain=EXTENSION_DOMAIN)
def lower_heatmap_keypoints(e: Emit) -> None:
    e.put("HEATMAP_MAX_KEYPOINT", [e.result(0), e.result(1)], heatmaps=e.real(0), boxes=e.real(1), nchw=True)


@lifts("AXIS_ALIGNED_BBOX_TRANSFORM")
def transform_boxes(a: Args) -> ir.Value:
    return a.b.ext("TransformBoxes", a.real("rois"), a.real("deltas"), a.stored("batch_index"), a.real("image_info"))


@lowers("TransformBoxes", domain=EXTENSION_DOMAIN)
def lower_transform_boxes(e: Emit) -> None:
    e.put("AXIS_ALIGNED_BBOX_TRANSFORM", e.result(), rois=e.real(0), deltas=e.real(1), batch_index=e.stored(2), image_info=e.real(3))


@lifts("BOX_WITH_NMS_LIMIT")
def class_nms(a: Args) -> Sequence[ir.Value]:
    more: dict[str, Any] = {"kernel": a.integer("kernel"), "iou_threshold": a.number("iou_threshold"), "sigma": a.number("sigma")}
    limits: dict[str, Any] = {
        "score_threshold": a.number("score_threshold"),
        "limit": a.integer("max_boxes"),
        "nms_score_threshold": a.number("nms_score_threshold"),
    }
    return a.b.exts("ClassNMS", a.real("scores"), a.real("rois"), a.stored("batch_index"), **more, **limits, outputs=4)


@lowers("ClassNMS", domain=EXTENSION_DOMAIN)
def lower_class_nms(e: Emit) -> None:
    a = e.attrs
    names = ("score_threshold", "kernel", "iou_threshold", "sigma", "nms_score_threshold")
    results = [e.result(0), e.result(1), *(e.writer.new(v) for v in e.node.outputs[2:])]
    e.put("BOX_WITH_NMS_LIMIT", results, scores=e.real(0), rois=e.real(1), batch_index=e.stored(2), max_boxes=a["limit"], **{n: a[n] for n in names})


@lifts("GENERATE_PROPOSALS")
def grid_proposals(a: Args) -> Sequence[ir.Value]:
    counts: dict[str, Any] = {"before": a.integer("pre_nms_max"), "after": a.integer("post_nms_max")}
    more: dict[str, Any] = {
        "iou_threshold": a.number("iou_threshold"),
        "min_size": a.number("min_size"),
        "ratio": [a.number("height_ratio"), a.number("width_ratio")],
    }
    operands = (nchw(a, "scores"), nchw(a, "deltas"), a.real("anchors"), a.real("image_info"))
    return a.b.exts("GridProposals", *operands, **counts, **more, outputs=3)


@lowers("GridProposals", domain=EXTENSION_DOMAIN)
def lower_grid_proposals(e: Emit) -> None:
    a = e.attrs
    operands = {"scores": e.real(0), "deltas": e.real(1), "anchors": e.real(2), "image_info": e.real(3), "nchw": True}
    numbers = {"height_ratio": a["ratio"][0], "width_ratio": a["ratio"][1], "pre_nms_max": a["before"], "post_nms_max": a["after"]}
    results = [e.result(0), e.result(1), e.writer.new(e.node.outputs[2])]
    e.put("GENERATE_PROPOSALS", results, **operands, **numbers, iou_threshold=a["iou_threshold"], min_size=a["min_size"])


_SCALES = ("scale_y", "scale_x", "scale_h", "scale_w")
_DETECTION = {
    "per_class": "regular_nms", "limit": "max_detections", "classes_each": "max_classes_per_detection", "limit_each": "max_detections_per_class",
    "score_threshold": "score_threshold", "iou_threshold": "iou_threshold", "background": "background_in_labels",
}  # fmt: skip


@lifts("DETECTION_POSTPROCESSING")
def anchor_detections(a: Args) -> Sequence[ir.Value]:
    attrs: dict[str, Any] = {near: a.number(far) for near, far in _DETECTION.items()}
    attrs |= {k: int(attrs[k]) for k in ("per_class", "limit", "classes_each", "limit_each", "background")}
    operands = (a.real("scores"), a.real("deltas"), a.real("anchors"))
    return a.b.exts("AnchorDetections", *operands, scales=[a.number(s) for s in _SCALES], **attrs, outputs=4)


@lowers("AnchorDetections", domain=EXTENSION_DOMAIN)
def lower_anchor_detections(e: Emit) -> None:
    numbers = {far: bool(e.attrs[near]) if near in ("per_class", "background") else e.attrs[near] for near, far in _DETECTION.items()}
    results = [e.result(0), e.result(1), *(e.writer.new(v) for v in e.node.outputs[2:])]
    scales = dict(zip(_SCALES, e.attrs["scales"], strict=True))
    e.put("DETECTION_POSTPROCESSING", results, scores=e.real(0), deltas=e.real(1), anchors=e.real(2), **scales, **numbers)
