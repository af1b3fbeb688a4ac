"""Layers of detection networks; what they compute is defined by the operators of the catalogue."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.access import as_float, dims, flag, integer, integers, number, numbers, operand, optional, shape, text
from converter.formats.openvino.legacy.register import lifts
from converter.graph.build import Builder
from converter.graph.catalogue.detection import LOWEST
from converter.mapping.node import Layer

PRIOR = "min_size max_size aspect_ratio fixed_size fixed_ratio density variance flip clip step step_w step_h offset scale_all_sizes img_size img_h img_w"


def _sizes(layer: Layer, b: Builder) -> list[ir.Value]:
    return [b.const(np.array(shape(operand(layer, i))[2:], np.int64), name) for i, name in ((0, "layer"), (1, "image"))]


@lifts("PriorBox", *PRIOR.split())
def lift_prior_box(layer: Layer, b: Builder) -> ir.Value:
    lists: dict[str, Any] = {k: numbers(layer, k, []) for k in ("min_size", "max_size", "aspect_ratio", "fixed_size", "fixed_ratio", "density", "variance")}
    boxes = b.ext(
        "PriorBox", *_sizes(layer, b), **lists, flip=int(flag(layer, "flip")), clip=int(flag(layer, "clip")), step=number(layer, "step", 0.0),
        offset=number(layer, "offset", 0.5), scale_all_sizes=int(flag(layer, "scale_all_sizes", True)),
    )  # fmt: skip
    return b.op("Reshape", boxes, list(dims(layer)))


@lifts("PriorBoxClustered", "width", "height", "variance", "clip", "flip", "step", "step_w", "step_h", "offset", "img_w", "img_h")
def lift_prior_box_clustered(layer: Layer, b: Builder) -> ir.Value:
    plain: dict[str, Any] = {k: number(layer, k, 0.0) for k in ("step", "step_w", "step_h", "img_w", "img_h")}
    lists: dict[str, Any] = {k: numbers(layer, k, []) for k in ("width", "height", "variance")}
    boxes = b.ext("PriorBoxClustered", *_sizes(layer, b), **lists, **plain, clip=int(flag(layer, "clip")), offset=number(layer, "offset", 0.5))
    return b.op("Reshape", boxes, list(dims(layer)))


DETECTION = (
    "num_classes background_label_id top_k keep_top_k code_type nms_threshold confidence_threshold share_location variance_encoded_in_target "
    "clip_before_nms clip_after_nms clip decrease_label_id normalized input_height input_width objectness_score eta visualize "
    "visualize_threshold height width height_scale width_scale label_map_file name_size_file output_directory output_format output_name_prefix "
    "prob interp_mode resize_mode pad_mode pad_value mean_value mirror num_axes save_file mode"
)


@lifts("DetectionOutput", *DETECTION.split())
def lift_detection_output(layer: Layer, b: Builder) -> ir.Value:
    """`normalized` is true when absent, as in the engine; `clip` is the old name of clip_before_nms."""
    inputs = [as_float(b, operand(layer, i)) for i in range(len(layer.inputs))]
    flat = [v if len(shape(v)) == 2 else b.op("Reshape", v, [shape(v)[0], -1]) for v in inputs[:2]]
    rows = b.ext(
        "DetectionOutput", *flat, *inputs[2:], num_classes=integer(layer, "num_classes"), background_label_id=integer(layer, "background_label_id", 0),
        top_k=integer(layer, "top_k", -1), keep_top_k=integers(layer, "keep_top_k", [-1])[0], code_type=_code(layer),
        nms_threshold=number(layer, "nms_threshold"), confidence_threshold=max(LOWEST, number(layer, "confidence_threshold", LOWEST)),
        share_location=int(flag(layer, "share_location", True)), variance_encoded_in_target=int(flag(layer, "variance_encoded_in_target")),
        clip_before_nms=int(flag(layer, "clip_before_nms") or flag(layer, "clip")), clip_after_nms=int(flag(layer, "clip_after_nms")),
        decrease_label_id=int(flag(layer, "decrease_label_id")), normalized=int(flag(layer, "normalized", True)),
        input_height=integer(layer, "input_height", 1), input_width=integer(layer, "input_width", 1), objectness_score=number(layer, "objectness_score", 0.0),
    )  # fmt: skip
    out, found = dims(layer), shape(rows)
    if out[-2] == found[2]:
        return b.op("Reshape", rows, list(out)) if out != found else rows
    room = out[-2]
    rows = b.op("Slice", rows, [0], [room], [2]) if room < found[2] else b.op("Pad", rows, [0, 0, 0, 0, 0, 0, room - found[2], 0], 0.0)
    return b.op("Reshape", rows, list(out))


def _code(layer: Layer) -> str:
    return text(layer, "code_type", "caffe.PriorBoxParameter.CORNER").rsplit(".", 1)[-1].lower()


PROPOSAL = (
    "base_size pre_nms_topn post_nms_topn nms_thresh feat_stride min_size ratio scale clip_before_nms clip_after_nms normalize "
    "box_size_scale box_coordinate_scale framework for_deformable num_outputs"
)


@lifts("Proposal", *PROPOSAL.split())
def lift_proposal(layer: Layer, b: Builder) -> list[ir.Value]:
    found = b.exts(
        "Proposal", *(as_float(b, operand(layer, i)) for i in range(3)), outputs=2, base_size=integer(layer, "base_size", 16),
        pre_nms_topn=integer(layer, "pre_nms_topn"), post_nms_topn=integer(layer, "post_nms_topn"), nms_thresh=number(layer, "nms_thresh"),
        feat_stride=integer(layer, "feat_stride"), min_size=integer(layer, "min_size"), ratio=numbers(layer, "ratio"), scale=numbers(layer, "scale"),
        clip_before_nms=int(flag(layer, "clip_before_nms", True)), clip_after_nms=int(flag(layer, "clip_after_nms")), normalize=int(flag(layer, "normalize")),
        box_size_scale=number(layer, "box_size_scale", 1.0), box_coordinate_scale=number(layer, "box_coordinate_scale", 1.0),
        framework=text(layer, "framework", ""),
    )  # fmt: skip
    return list(found)[: len(layer.outputs)]


@lifts("SimplerNMS", "pre_nms_topn", "post_nms_topn", "iou_threshold", "feat_stride", "min_bbox_size", "scale", "cls_threshold")
def lift_simpler_nms(layer: Layer, b: Builder) -> ir.Value:
    """A Proposal with the anchors of Faster R-CNN: base 16, ratios 0.5, 1, 2."""
    return b.exts(
        "Proposal", *(as_float(b, operand(layer, i)) for i in range(3)), outputs=2, base_size=16, pre_nms_topn=integer(layer, "pre_nms_topn"),
        post_nms_topn=integer(layer, "post_nms_topn"), nms_thresh=number(layer, "iou_threshold"), feat_stride=integer(layer, "feat_stride"),
        min_size=integer(layer, "min_bbox_size"), ratio=[0.5, 1.0, 2.0], scale=numbers(layer, "scale", [8.0, 16.0, 32.0]), clip_before_nms=1,
    )[0]  # fmt: skip


PSROI = "output_dim group_size spatial_scale mode spatial_bins_x spatial_bins_y pooled_height pooled_width no_trans part_size trans_std"


@lifts("PSROIPooling", *PSROI.split())
def lift_psroi_pooling(layer: Layer, b: Builder) -> ir.Value:
    return b.ext(
        "PSROIPooling", operand(layer), operand(layer, 1), output_dim=integer(layer, "output_dim"), group_size=dims(layer)[-1],
        spatial_scale=number(layer, "spatial_scale"), mode=text(layer, "mode", "average"),
        spatial_bins_x=integer(layer, "spatial_bins_x", 1), spatial_bins_y=integer(layer, "spatial_bins_y", 1),
    )  # fmt: skip


@lifts("ROIPooling", "pooled_h", "pooled_w", "spatial_scale", "method")
def lift_roi_pooling(layer: Layer, b: Builder) -> ir.Value:
    return b.ext("ROIPooling", operand(layer), operand(layer, 1), pooled_h=integer(layer, "pooled_h"), pooled_w=integer(layer, "pooled_w"),
                 spatial_scale=number(layer, "spatial_scale"), method=text(layer, "method", "max"))  # fmt: skip


@lifts("RegionYolo", "coords", "classes", "num", "do_softmax", "mask", "axis", "end_axis", "anchors", "bias_match", "jitter", "thresh", "rescore")
def lift_region_yolo(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    result = b.ext("RegionYolo", x, coords=integer(layer, "coords"), classes=integer(layer, "classes"), num=integer(layer, "num"),
                   do_softmax=int(flag(layer, "do_softmax", True)), mask=integers(layer, "mask", []), axis=1, end_axis=3)  # fmt: skip
    return result if shape(result) == dims(layer) else b.op("Reshape", result, list(dims(layer)))


@lifts("ReorgYolo", "stride")
def lift_reorg_yolo(layer: Layer, b: Builder) -> ir.Value:
    return b.ext("ReorgYolo", operand(layer), stride=integer(layer, "stride"))


@lifts("CTCGreedyDecoder CTCGreadyDecoder", "ctc_merge_repeated", "stride")
def lift_ctc(layer: Layer, b: Builder) -> ir.Value:
    mask = optional(layer, 1)
    if mask is None:
        mask = b.const(np.ones(shape(operand(layer))[:2], np.float32))
    return b.ext("CTCGreedyDecoder", operand(layer), mask, ctc_merge_repeated=int(flag(layer, "ctc_merge_repeated", True)))


@lifts("ExperimentalDetectronPriorGridGenerator", "flatten", "grid_w", "grid_h", "h", "w", "stride_x", "stride_y")
def lift_prior_grid(layer: Layer, b: Builder) -> ir.Value:
    h, w = (integer(layer, f"grid_{k}", integer(layer, k, 0)) for k in "hw")
    return b.ext("DetectronPriorGridGenerator", *(operand(layer, i) for i in range(3)), flatten=int(flag(layer, "flatten", True)), h=h, w=w,
                 stride_x=number(layer, "stride_x", 0.0), stride_y=number(layer, "stride_y", 0.0))  # fmt: skip


@lifts("ExperimentalDetectronTopKROIs", "max_rois")
def lift_top_k_rois(layer: Layer, b: Builder) -> ir.Value:
    return b.ext("DetectronTopKROIs", operand(layer), operand(layer, 1), max_rois=integer(layer, "max_rois", 0))


@lifts("ExperimentalDetectronGenerateProposalsSingleImage", "min_size", "nms_threshold", "post_nms_count", "pre_nms_count")
def lift_generate_proposals(layer: Layer, b: Builder) -> list[ir.Value]:
    numbers_: dict[str, Any] = {k: number(layer, k) for k in ("min_size", "nms_threshold")}
    counts: dict[str, Any] = {k: integer(layer, k) for k in ("post_nms_count", "pre_nms_count")}
    return list(b.exts("DetectronGenerateProposals", *(operand(layer, i) for i in range(4)), outputs=2, **numbers_, **counts))


OUTPUT = "score_threshold nms_threshold num_classes post_nms_count max_detections_per_image max_delta_log_wh deltas_weights class_agnostic_box_regression"


@lifts("ExperimentalDetectronDetectionOutput", *OUTPUT.split())
def lift_detectron_output(layer: Layer, b: Builder) -> list[ir.Value]:
    numbers_: dict[str, Any] = {k: number(layer, k) for k in ("score_threshold", "nms_threshold", "max_delta_log_wh")}
    counts: dict[str, Any] = {k: integer(layer, k) for k in ("num_classes", "post_nms_count", "max_detections_per_image")}
    found = b.exts(
        "DetectronDetectionOutput", *(operand(layer, i) for i in range(4)), outputs=3, **numbers_, **counts,
        deltas_weights=numbers(layer, "deltas_weights", [10.0, 10.0, 5.0, 5.0]),
        class_agnostic_box_regression=int(flag(layer, "class_agnostic_box_regression")),
    )  # fmt: skip
    return list(found)[: len(layer.outputs)]


@lifts("ExperimentalDetectronROIFeatureExtractor", "output_size", "sampling_ratio", "pyramid_scales", "aligned", "distribute_rois_between_levels",
       "image_id", "preserve_rois_order")  # fmt: skip
def lift_roi_features(layer: Layer, b: Builder) -> list[ir.Value]:
    features = b.ext(
        "DetectronROIFeatureExtractor", *(operand(layer, i) for i in range(len(layer.inputs))), output_size=integer(layer, "output_size"),
        sampling_ratio=integer(layer, "sampling_ratio", 0), pyramid_scales=integers(layer, "pyramid_scales"), aligned=int(flag(layer, "aligned")),
    )  # fmt: skip
    return [features, b.op("Identity", operand(layer))][: len(layer.outputs)]
