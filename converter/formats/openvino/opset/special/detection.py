"""Priors, proposals, detections and pooling of regions: extension operators, attribute by attribute."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.fields import element_type
from converter.formats.openvino.opset.special.base import Emit, FloatList, attributes, cast, filled, given, int64, lifts, lowers, operand, rank
from converter.graph.build import Builder
from converter.graph.infer import rank_of, shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType
CODES = {"corner": "caffe.PriorBoxParameter.CORNER", "center_size": "caffe.PriorBoxParameter.CENTER_SIZE", "corner_size": "caffe.PriorBoxParameter.CORNER_SIZE"}


def near(values: dict[str, Any]) -> dict[str, Any]:
    """Flags as the graph keeps them."""
    return {k: int(v) if isinstance(v, bool) else v for k, v in values.items()}


def far(node: Node, *flags: str) -> dict[str, Any]:
    """The node's attributes with defaults, flags as booleans."""
    return {k: bool(v) if k in flags else list(v) if isinstance(v, tuple) else v for k, v in filled(node).items()}


@lifts("PriorBox")
def lift_prior_box(layer: Layer, b: Builder) -> ir.Value:
    floats = dict.fromkeys(("min_size", "max_size", "aspect_ratio", "density", "fixed_ratio", "fixed_size", "variance"))
    a = attributes(layer, **_floats(floats), flip=False, clip=False, step=0.0, offset=0.0, scale_all_sizes=True, min_max_aspect_ratios_order=True)
    if not a.min_size and not a.fixed_size:
        raise MappingError("PriorBox has no sizes", "R110")
    return b.ext("PriorBox", int64(b, operand(layer, 0)), int64(b, operand(layer, 1)), **near(vars(a)))


def _floats(keys: dict[str, Any]) -> dict[str, Any]:
    return {k: FloatList() for k in keys}


@lowers("PriorBox", domain="netconv")
def lower_prior_box(node: Node, low: Lowering) -> None:
    a = far(node, "flip", "clip", "scale_all_sizes", "min_max_aspect_ratios_order")
    if low.version < 8 and not a.pop("min_max_aspect_ratios_order"):
        raise MappingError("this order of ratios needs opset8", "X206")
    Emit(node, low).out("PriorBox", *node.inputs, **a)


@lifts("PriorBoxClustered")
def lift_clustered(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, "flip", **_floats(dict.fromkeys(("width", "height", "variance"))), clip=True, step=0.0, step_w=0.0, step_h=0.0, offset=0.0,
                   img_w=0.0, img_h=0.0)  # fmt: skip
    return b.ext("PriorBoxClustered", int64(b, operand(layer, 0)), int64(b, operand(layer, 1)), **near(vars(a)))


@lowers("PriorBoxClustered", domain="netconv")
def lower_clustered(node: Node, low: Lowering) -> None:
    a = far(node, "clip")
    if a.pop("img_w") or a.pop("img_h", 0):
        raise MappingError("an image size of its own cannot be expressed")
    a.pop("img_h", None)
    Emit(node, low).out("PriorBoxClustered", *node.inputs, **a)


@lifts("DetectionOutput")
def lift_detection(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(
        layer, "visualize", "eta", "interp_type", num_classes=0, background_label_id=0, top_k=-1, keep_top_k=list,
        code_type="caffe.priorboxparameter.corner", nms_threshold=float, confidence_threshold=float(np.finfo(np.float32).tiny) * 0, share_location=True,
        variance_encoded_in_target=False, clip_before_nms=False, clip_after_nms=False, decrease_label_id=False, normalized=False,
        input_height=1, input_width=1, objectness_score=0.0,
    )  # fmt: skip
    values = near(vars(a))
    values["keep_top_k"] = a.keep_top_k[0] if a.keep_top_k else -1
    if min(a.top_k, *a.keep_top_k, -1) < -1:
        raise MappingError(f"top_k={a.top_k} and keep_top_k={a.keep_top_k} are no counts", "R110")
    values["code_type"] = a.code_type.rpartition(".")[2]
    if values["code_type"] not in CODES:
        raise MappingError(f"code_type={a.code_type!r} is not known", "R110")
    return b.ext("DetectionOutput", *layer.inputs, **values)


@lowers("DetectionOutput", domain="netconv")
def lower_detection(node: Node, low: Lowering) -> None:
    a = far(node, "share_location", "variance_encoded_in_target", "clip_before_nms", "clip_after_nms", "decrease_label_id", "normalized")
    a["keep_top_k"], a["code_type"] = [a["keep_top_k"]], CODES[a["code_type"]]
    if low.version >= 8:
        a.pop("num_classes")
    Emit(node, low).out("DetectionOutput", *node.inputs, **a)


@lifts("Proposal")
def lift_proposal(layer: Layer, b: Builder) -> list[ir.Value]:
    a = attributes(
        layer, "for_deformable", base_size=int, pre_nms_topn=int, post_nms_topn=int, nms_thresh=float, feat_stride=int, min_size=int,
        **_floats(dict.fromkeys(("ratio", "scale"))), clip_before_nms=True, clip_after_nms=False, normalize=False, box_size_scale=1.0,
        box_coordinate_scale=1.0, framework="",
    )  # fmt: skip
    image = operand(layer, 2)
    if rank(image) == 2:
        image = b.op("Reshape", image, [-1])
    found = b.exts("Proposal", operand(layer, 0), operand(layer, 1), image, **near(vars(a)), outputs=2)
    return list(found)[: max(1, len(layer.outputs))]


@lowers("Proposal", domain="netconv")
def lower_proposal(node: Node, low: Lowering) -> None:
    a = far(node, "clip_before_nms", "clip_after_nms", "normalize")
    more = [low.value("scores", T.FLOAT, None)][: 2 - len(node.outputs)]
    e, (scores, boxes, image) = Emit(node, low), (given(node, i) for i in range(3))
    e.out("Proposal", scores, boxes, image if rank_of(image) == 1 else e.reshape(image, [-1]), outputs=[*node.outputs, *more], **a)


@lifts("PSROIPooling")
def lift_psroi(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, output_dim=int, group_size=1, spatial_scale=float, mode="average", spatial_bins_x=1, spatial_bins_y=1)
    return b.ext("PSROIPooling", operand(layer, 0), operand(layer, 1), **vars(a))


@lowers("PSROIPooling", domain="netconv")
def lower_psroi(node: Node, low: Lowering) -> None:
    Emit(node, low).out("PSROIPooling", *node.inputs, **far(node))


@lifts("DeformablePSROIPooling")
def lift_deformable_psroi(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(
        layer, output_dim=int, spatial_scale=float, group_size=1, mode="bilinear_deformable", spatial_bins_x=1, spatial_bins_y=1, trans_std=1.0, part_size=1
    )
    if a.mode != "bilinear_deformable":
        raise MappingError(f"mode={a.mode!r} is not known", "R110")
    return b.ext("DeformablePSROIPooling", *layer.inputs, **{k: v for k, v in vars(a).items() if k != "mode"})


@lowers("DeformablePSROIPooling", domain="netconv")
def lower_deformable_psroi(node: Node, low: Lowering) -> None:
    Emit(node, low).out("DeformablePSROIPooling", *node.inputs, **far(node), mode="bilinear_deformable")


@lifts("ROIPooling")
def lift_roi_pooling(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, output_size=[], output_roi=[], pooled_h=0, pooled_w=0, spatial_scale=float, method="max")
    size = a.output_roi or a.output_size or [a.pooled_h, a.pooled_w]
    return b.ext("ROIPooling", operand(layer, 0), operand(layer, 1), pooled_h=size[0], pooled_w=size[1], spatial_scale=a.spatial_scale, method=a.method)


@lowers("ROIPooling", domain="netconv")
def lower_roi_pooling(node: Node, low: Lowering) -> None:
    a = far(node)
    size = [a["pooled_h"], a["pooled_w"]]
    Emit(node, low).out("ROIPooling", *node.inputs, **a, output_size=size, output_roi=size)


@lifts("RegionYolo")
def lift_region(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, "anchors", coords=int, classes=int, num=int, do_softmax=True, mask=[], axis=int, end_axis=int)
    return b.ext("RegionYolo", operand(layer, 0), **near(vars(a)))


@lowers("RegionYolo", domain="netconv")
def lower_region(node: Node, low: Lowering) -> None:
    Emit(node, low).out("RegionYolo", *node.inputs, **far(node, "do_softmax"), anchors=[])


@lifts("ReorgYolo")
def lift_reorg(layer: Layer, b: Builder) -> ir.Value:
    strides = attributes(layer, stride=list).stride
    if len(set(strides)) != 1:
        raise MappingError(f"strides {strides}")
    return b.ext("ReorgYolo", operand(layer, 0), stride=strides[0])


@lowers("ReorgYolo", domain="netconv")
def lower_reorg(node: Node, low: Lowering) -> None:
    Emit(node, low).out("ReorgYolo", *node.inputs, stride=node.attrs["stride"])


@lifts("CTCGreedyDecoder")
def lift_ctc(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, ctc_merge_repeated=True)
    return b.ext("CTCGreedyDecoder", operand(layer, 0), operand(layer, 1), ctc_merge_repeated=int(a.ctc_merge_repeated))


@lowers("CTCGreedyDecoder", domain="netconv")
def lower_ctc(node: Node, low: Lowering) -> None:
    Emit(node, low).out("CTCGreedyDecoder", *node.inputs, **far(node, "ctc_merge_repeated"))


# what Detectron's own export uses ---------------------------------------------------------------------------------------


@lifts("ExperimentalDetectronPriorGridGenerator")
def lift_grid(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, flatten=True, h=0, w=0, stride_x=0.0, stride_y=0.0)
    return b.ext("DetectronPriorGridGenerator", *(operand(layer, i) for i in range(3)), **near(vars(a)))


@lowers("DetectronPriorGridGenerator", domain="netconv")
def lower_grid(node: Node, low: Lowering) -> None:
    """A grid of another size than the feature map's is not written: the runtime makes room for the feature map's only."""
    a, size = filled(node), shape_of(given(node, 1))
    if size is None or (a["h"] or size[2], a["w"] or size[3]) != tuple(size[2:]):
        raise MappingError("the grid must have the size of the feature map")
    Emit(node, low).out("ExperimentalDetectronPriorGridGenerator", *node.inputs, **far(node, "flatten"))


@lifts("ExperimentalDetectronTopKROIs")
def lift_topk_rois(layer: Layer, b: Builder) -> ir.Value:
    return b.ext("DetectronTopKROIs", operand(layer, 0), operand(layer, 1), max_rois=attributes(layer, max_rois=0).max_rois)


@lowers("DetectronTopKROIs", domain="netconv")
def lower_topk_rois(node: Node, low: Lowering) -> None:
    Emit(node, low).out("ExperimentalDetectronTopKROIs", *node.inputs, **far(node))


@lifts("ExperimentalDetectronGenerateProposalsSingleImage")
def lift_generate(layer: Layer, b: Builder) -> list[ir.Value]:
    a = attributes(layer, min_size=float, nms_threshold=float, post_nms_count=int, pre_nms_count=int)
    return list(b.exts("DetectronGenerateProposals", *(operand(layer, i) for i in range(4)), **vars(a), outputs=2))


@lowers("DetectronGenerateProposals", domain="netconv")
def lower_generate(node: Node, low: Lowering) -> None:
    more = [low.value("scores", T.FLOAT, None)][: 2 - len(node.outputs)]
    Emit(node, low).out("ExperimentalDetectronGenerateProposalsSingleImage", *node.inputs, outputs=[*node.outputs, *more], **far(node))


@lifts("ExperimentalDetectronDetectionOutput")
def lift_detectron_output(layer: Layer, b: Builder) -> list[ir.Value]:
    a = attributes(
        layer, score_threshold=float, nms_threshold=float, num_classes=int, post_nms_count=int, max_detections_per_image=int, max_delta_log_wh=float,
        deltas_weights=FloatList(), class_agnostic_box_regression=False,
    )  # fmt: skip
    return list(b.exts("DetectronDetectionOutput", *(operand(layer, i) for i in range(4)), **near(vars(a)), outputs=3))


@lowers("DetectronDetectionOutput", domain="netconv")
def lower_detectron_output(node: Node, low: Lowering) -> None:
    more = [low.value(n, t, None) for n, t in (("classes", T.INT32), ("scores", T.FLOAT))][len(node.outputs) - 1 :]
    a = far(node, "class_agnostic_box_regression")
    Emit(node, low).out("ExperimentalDetectronDetectionOutput", *node.inputs, outputs=[*node.outputs, *more], **a)


@lifts("ExperimentalDetectronROIFeatureExtractor")
def lift_features(layer: Layer, b: Builder) -> list[ir.Value]:
    a = attributes(layer, output_size=int, sampling_ratio=int, pyramid_scales=list, aligned=False)
    features = b.ext("DetectronROIFeatureExtractor", *layer.inputs, **near(vars(a)))
    return [features, operand(layer, 0)][: max(1, len(layer.outputs))]


@lowers("DetectronROIFeatureExtractor", domain="netconv")
def lower_features(node: Node, low: Lowering) -> None:
    rois = low.value("rois", T.FLOAT, None)
    Emit(node, low).out("ExperimentalDetectronROIFeatureExtractor", *node.inputs, outputs=[node.outputs[0], rois], **far(node, "aligned"))


@lifts("GenerateProposals")
def lift_proposals(layer: Layer, b: Builder) -> list[ir.Value]:
    a = attributes(
        layer, min_size=float, nms_threshold=float, pre_nms_count=int, post_nms_count=int, normalized=True, nms_eta=1.0, roi_num_type="i64"
    )  # fmt: skip
    if a.nms_eta != 1:
        raise MappingError(f"nms_eta={a.nms_eta} is not supported by the operation itself", "R110")
    to = T(element_type.lift(a.roi_num_type))
    values = {k: v for k, v in near(vars(a)).items() if k not in ("nms_eta", "roi_num_type")}
    *found, counts = b.exts("GenerateProposals", *(operand(layer, i) for i in range(4)), **values, outputs=3)
    return [*found, cast(b, counts, to)]


@lowers("GenerateProposals", domain="netconv")
def lower_proposals(node: Node, low: Lowering) -> None:
    if low.version < 9:
        raise MappingError("GenerateProposals needs opset9", "X206")
    more = [low.value(n, t, None) for n, t in (("rois", T.FLOAT), ("scores", T.FLOAT), ("counts", T.INT64))][len(node.outputs) :]
    Emit(node, low).out("GenerateProposals", *node.inputs, outputs=[*node.outputs, *more], **far(node, "normalized"), nms_eta=1.0, roi_num_type="i64")
