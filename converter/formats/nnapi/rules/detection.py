"""Regions of interest, boxes and detections."""

from __future__ import annotations

from typing import Any

from converter.formats.nnapi.rules.context import LowerContext, Stored
from converter.formats.nnapi.rules.fields import ChannelsFirst
from converter.mapping.fields import Attr, Group, RequireAttr, attrs, spread
from converter.mapping.rules import op

SIZE = spread("size", "out_height", "out_width", kind=int)
RATIO = spread("ratio", "height_ratio", "width_ratio", kind=float)
SAMPLES = spread("samples", "height_samples", "width_samples", kind=int)


def both_axes(w: LowerContext) -> dict[str, Any]:
    """Read the attributes of RoiAlign, which has one scale and one number of samples for
    both axes.
    """
    size = w.attr("output_height"), w.attr("output_width")
    ratio, samples = 1 / w.attr("spatial_scale"), w.attr("sampling_ratio")
    numbers = (*size, ratio, ratio, samples, samples)
    return dict(zip(SQUARE.keys, numbers, strict=True))


SQUARE = Group(
    ("output_height", "output_width", "spatial_scale", "sampling_ratio"),
    (*SIZE.keys, *RATIO.keys, *SAMPLES.keys),
    lower_=both_axes,
)
REGIONS = "1,2,6,6 =[[0,0,3,3],[1,1,5,4]] =i32:[0,0]"
RULES = [
    op("netconv::RegionAlign", "ROI_ALIGN", SIZE, RATIO, SAMPLES, example_inputs=REGIONS),
    op("netconv::RegionPool", "ROI_POOLING", SIZE, RATIO, example_inputs=REGIONS),
    op(
        "RoiAlign",
        "ROI_ALIGN",
        Stored(),
        RequireAttr("mode", "avg"),
        RequireAttr("coordinate_transformation_mode", "output_half_pixel"),
        SQUARE,
        lower_only=True,
        example_inputs="1,2,6,6 =[[0,0,3,3],[1,1,5,4]] =i64:[0,0]",
    ),
    op(
        "netconv::HeatmapKeypoints",
        "HEATMAP_MAX_KEYPOINT",
        ChannelsFirst(("heatmaps",)),
        example_inputs="2,3,6,6 =[[0,0,3,3],[1,1,5,4]]",
    ),
    op(
        "netconv::TransformBoxes",
        "AXIS_ALIGNED_BBOX_TRANSFORM",
        example_inputs="=[[0,0,3,3],[1,1,5,4]] 2,8 =i32:[0,0] =[[6,6]]",
    ),
    op(
        "netconv::ClassNMS",
        "BOX_WITH_NMS_LIMIT",
        Attr("score_threshold", kind=float),
        Attr("limit", "max_boxes", int),
        *attrs(kernel=int, iou_threshold=float, sigma=float, nms_score_threshold=float),
        example_inputs="2,3 =[[0,0,3,3,0,0,3,3,0,0,3,3],[1,1,5,4,1,1,5,4,1,1,5,4]] =i32:[0,0]",
    ),
    op(
        "netconv::GridProposals",
        "GENERATE_PROPOSALS",
        ChannelsFirst(("scores", "deltas")),
        RATIO,
        Attr("before", "pre_nms_max", int),
        Attr("after", "post_nms_max", int),
        *attrs(iou_threshold=float, min_size=float),
        example_inputs="1,2,3,3 1,8,3,3 =[[0,0,3,3],[1,1,5,4]] =[[6,6]]",
    ),
    op(
        "netconv::AnchorDetections",
        "DETECTION_POSTPROCESSING",
        spread("scales", "scale_y", "scale_x", "scale_h", "scale_w", kind=float),
        Attr("per_class", "regular_nms", bool),
        Attr("limit", "max_detections", int),
        Attr("classes_each", "max_classes_per_detection", int),
        Attr("limit_each", "max_detections_per_class", int),
        *attrs(score_threshold=float, iou_threshold=float),
        Attr("background", "background_in_labels", bool),
        example_inputs="1,3,4 1,3,4 =[[0.5,0.5,0.5,0.5],[0.2,0.2,0.3,0.3],[0.7,0.6,0.2,0.4]]",
    ),
]
