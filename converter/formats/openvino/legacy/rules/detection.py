"""Layers of detection networks, most of which are extension operators with equal attributes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.fields import (
    ANCHORS,
    BINS,
    CLUSTERS,
    DETECTIONS,
    DETECTRON_OUTPUT,
    GRID,
    LEVELS,
    MOST,
    PROPOSALS,
    REGION,
    SINGLE_IMAGE,
    words,
)
from converter.formats.openvino.legacy.rules.context import LiftContext, LowerContext
from converter.graph.infer import known
from converter.graph.value import LOWEST
from converter.mapping.codecs import Codec, Floats, float_of, number_text
from converter.mapping.fields import (
    Attr,
    Detail,
    Field,
    RequireKey,
    attrs,
    ignore,
    spread,
)
from converter.mapping.rules import Rule, op

# operands ----------------------------------------------------------------------------------------


def cast_to_floats(r: LiftContext) -> None:
    """Cast operands of any type to floats."""
    r.node.inputs = [None if v is None else r.floats(v) for v in r.node.inputs]


CAST_TO_FLOATS = Detail(read=cast_to_floats)


class Read(Field):
    """The outputs up to the last one that is used; the operator has `count`."""

    def __init__(self, count: int) -> None:
        self.count = count

    def lift(self, r: LiftContext) -> None:
        r.outputs = self.count

    def lower(self, w: LowerContext) -> None:
        while len(w.layer.outputs) > 1 and not w.used(len(w.layer.outputs) - 1):
            w.layer.outputs.pop()


# priors ------------------------------------------------------------------------------------------


def sizes_of_images(r: LiftContext) -> None:
    """Read the sizes of two images, of which the layer reads nothing else."""
    r.set_inputs(*(np.array(r.static(i)[2:], np.int64) for i in (0, 1)))


# detections --------------------------------------------------------------------------------------

_code = words("corner", "center_size")
CODE = Codec(
    lambda v: str(v).rpartition(".")[2].strip().lower(),
    lambda v: f"caffe.PriorBoxParameter.{_code.lower(str(v).rpartition('.')[2].lower()).upper()}",
)
FIRST = Codec(lambda v: int(float_of((str(v).split(",") or ["-1"])[0])), str)
AT_LEAST = Codec(lambda v: max(LOWEST, float_of(v)), number_text)


class Boxes(Field):
    """Locations and confidences, flattened and as floats. The port determines the number
    of rows.
    """

    def lift(self, r: LiftContext) -> None:
        inputs = [r.floats(r.input(i)) for i in range(len(r.layer.inputs))]
        for i, v in enumerate(inputs[:2]):
            if len(r.static(v)) != 2:
                inputs[i] = r.b.Reshape(v, [r.static(v, least=1)[0], -1])
        r.node.inputs = list(inputs)
        r.after_first(lambda y: self._as_many(r, y))

    def _as_many(self, r: LiftContext, rows: ir.Value) -> ir.Value:
        room, found = r.dims(least=2)[-2], r.static(rows)
        if room < found[2]:
            return r.b.Slice(rows, [0], [room], [2])
        if room > found[2]:
            return r.b.Pad(rows, [0, 0, 0, 0, 0, 0, room - found[2], 0], 0.0)
        return rows

    def lower(self, w: LowerContext) -> None:
        """Set the attributes that the engine does not determine itself."""
        a = dict(w.node.attrs)
        classes = w.shape(1)[1] // max(1, w.shape(2)[-1] // (4 if a["normalized"] else 5))
        a["num_classes"] = a["num_classes"] or classes
        if a["background_label_id"] < 0:  # none: no class has the number after the last
            a["background_label_id"] = a["num_classes"]
        if a["top_k"] < 0:  # all of them
            a["top_k"] = w.shape(1)[1] // classes
        if a["keep_top_k"] < 1:
            a["keep_top_k"] = w.shape(w.out)[2] // w.shape(0)[0]
        w.node = replace(w.node, attrs=a)


class ClipBefore(Attr):
    """The clip flag, also under its old name."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.keys = (self.key, "clip")

    def lift(self, r: LiftContext) -> None:
        r.node.attrs[self.name] = int(any(r.attr(key, bool, 0) for key in self.keys))


class Objectness(Attr):
    """The threshold of objectness, for five inputs only."""

    def lower(self, w: LowerContext) -> None:
        if len(w.layer.inputs) > 3:
            super().lower(w)


def read_limits(r: LiftContext) -> None:
    """Read the limits of a suppression: number of boxes, overlap, lowest score. The port determines
    the number of rows.
    """
    bounds = [None if (v := r.optional(i)) is None else r.floats(v) for i in (3, 4)]
    r.set_inputs(r.data, r.input(1), r.optional(2), *bounds)
    r.set(rows=r.dims(least=1)[0])


def write_limits(w: LowerContext) -> None:
    """Write the limits as vectors of one element, or their defaults: all boxes, an overlap of 1, a
    score of 0.
    """
    count = np.array([w.shape(1)[2]], np.int32)
    defaults = (count, np.array([1.0], np.float32), np.array([0.0], np.float32))
    limits = []
    for i, default in enumerate(defaults, 2):
        given, array = w.optional(i), known(w.optional(i))
        if given is not None and array is None:
            limits.append(w.reshaped(given, [1]))
        else:
            limits.append(w.const(default if array is None else array.reshape(1)))
    w.set_inputs(w.data, w.input(1), *limits)


LIMITS = Detail(read=read_limits, write=write_limits, names=("rows",))


# regions -----------------------------------------------------------------------------------------


class GroupSize(Attr):
    """The group size, from the shape of the port."""

    def lift(self, r: LiftContext) -> None:
        r.set(group_size=r.dims(least=1)[-1])


class RegionsAgain(Field):
    """The first input, which is also the second output of the layer."""

    def lift(self, r: LiftContext) -> None:
        r.outputs = 1
        r.after_emit(lambda found: [*found, r.b.Identity(r.input(0))])


class Assumed(Attr):
    """An attribute that the engine ignores: it always uses the default."""

    def lift(self, r: LiftContext) -> None:
        r.node.attrs[self.name] = self.default


def in_port_shape(r: LiftContext, y: ir.Value) -> ir.Value:
    """Reshape the result to the sizes of the layer's port."""
    return y if r.static(y) == r.dims() else r.b.Reshape(y, list(r.dims()))


def faster_rcnn(r: LiftContext) -> None:
    """Set the attributes of a Proposal that SimplerNMS has no fields for."""
    r.node.attrs |= {"base_size": 16, "ratio": [0.5, 1.0, 2.0], "clip_before_nms": 1}


CAFFE = (
    "eta visualize visualize_threshold height width height_scale width_scale label_map_file "
    "name_size_file output_directory output_format output_name_prefix prob interp_mode "
    "resize_mode pad_mode pad_value mean_value mirror num_axes save_file mode"
)
SIZES = "min_size max_size aspect_ratio variance fixed_size fixed_ratio density"

RULES: list[Rule] = [
    op(  # boxes are constants in every graph that is written
        "netconv::PriorBox",
        "PriorBox",
        *attrs(flip=False, clip=False, step=0.0, offset=0.5, scale_all_sizes=True),
        *attrs(**dict.fromkeys(SIZES.split(), Floats())),
        ignore("step_w", "step_h", "img_size", "img_h", "img_w"),
        before_lift=sizes_of_images,
        lift_only=True,
    ),
    op(
        "netconv::PriorBoxClustered",
        "PriorBoxClustered",
        *attrs(width=Floats(), height=Floats(), variance=Floats()),
        *CLUSTERS,
        *attrs(clip=False, offset=0.5, img_w=0.0, img_h=0.0),
        ignore("flip"),
        before_lift=sizes_of_images,
        lift_only=True,
    ),
    op(
        "netconv::DetectionOutput",
        "DetectionOutput",
        Boxes(),
        *attrs(num_classes=int, background_label_id=0, top_k=-1, normalized=True),
        *DETECTIONS,
        Attr("keep_top_k", kind=FIRST, default=-1),
        Attr("code_type", kind=CODE, default="corner"),
        Attr("confidence_threshold", kind=AT_LEAST, default=LOWEST),
        ClipBefore("clip_before_nms", kind=bool),
        Objectness("objectness_score", kind=float, default=0.0),
        ignore(*CAFFE.split()),
        example_inputs="1,8 1,6 =1,2,8",
    ),
    op(
        "netconv::Proposal",
        "Proposal",
        CAST_TO_FLOATS,
        Read(2),
        *PROPOSALS,
        *attrs(base_size=16, ratio=Floats, scale=Floats),
        ignore("for_deformable", "num_outputs"),
        example_inputs="1,2,3,3 1,4,3,3 =1,3",
    ),
    op(  # with the anchors of Faster R-CNN
        "netconv::Proposal",
        "SimplerNMS",
        CAST_TO_FLOATS,
        Read(2),
        *ANCHORS,
        Attr("nms_thresh", "iou_threshold", float),
        Attr("min_size", "min_bbox_size", int),
        Attr("scale", kind=Floats, default=[8.0, 16.0, 32.0]),
        ignore("cls_threshold"),
        before_lift=faster_rcnn,
        lift_only=True,
    ),
    op(
        "netconv::FixedNonMaxSuppression",
        "NonMaxSuppression",
        LIMITS,
        *attrs(center_point_box=False, sort_result_descending=True),
        ignore("output_type", "box_encoding"),
        example_inputs="1,4,4 1,2,4",
    ),
    op(
        "netconv::PSROIPooling",
        "PSROIPooling",
        GroupSize("group_size", kind=int),
        *BINS,
        *attrs(mode="average"),
        ignore("pooled_height", "pooled_width", "no_trans", "part_size", "trans_std"),
        example_inputs="1,8,4,4 =[[0,0,0,3,3]]",
    ),
    op(
        "netconv::ROIPooling",
        "ROIPooling",
        *attrs(pooled_h=int, pooled_w=int, spatial_scale=float, method="max"),
        example_inputs="1,8,4,4 =[[0,0,0,3,3]]",
    ),
    op(
        "MaxRoiPool",
        "ROIPooling",
        spread("pooled_shape", "pooled_h", "pooled_w", kind=int),
        Attr("spatial_scale", kind=float),
        RequireKey("method", "max", kind=str),
        lower_only=True,
        example_inputs="1,8,4,4 =[[0,0,0,3,3]]",
    ),
    op(
        "netconv::RegionYolo",
        "RegionYolo",
        *REGION,
        Assumed("axis", kind=int, default=1),
        Assumed("end_axis", kind=int, default=3),
        ignore("anchors", "bias_match", "jitter", "thresh", "rescore"),
        after_lift=in_port_shape,
        example_inputs="1,21,4,4",
    ),
    op("netconv::ReorgYolo", "ReorgYolo", *attrs(stride=int), example_inputs="1,8,4,4"),
    op(
        "netconv::DetectronPriorGridGenerator",
        "ExperimentalDetectronPriorGridGenerator",
        *GRID,
        *(Attr(k, f"grid_{k}", int, 0) for k in "hw"),
        example_inputs="3,4 1,8,4,4 1,3,32,32",
    ),
    op(  # by the old names
        "netconv::DetectronPriorGridGenerator",
        "ExperimentalDetectronPriorGridGenerator",
        *GRID,
        *attrs(h=0, w=0),
        lift_only=True,
        example_inputs="3,4 1,8,4,4 1,3,32,32",
    ),
    op(
        "netconv::DetectronTopKROIs",
        "ExperimentalDetectronTopKROIs",
        *MOST,
        example_inputs="5,4 5",
    ),
    op(
        "netconv::DetectronGenerateProposals",
        "ExperimentalDetectronGenerateProposalsSingleImage",
        Read(2),
        *SINGLE_IMAGE,
        example_inputs="3 16,4 4,4,4 1,4,4",
    ),
    op(
        "netconv::DetectronDetectionOutput",
        "ExperimentalDetectronDetectionOutput",
        Read(3),
        *DETECTRON_OUTPUT,
        Attr("deltas_weights", kind=Floats, default=[10.0, 10.0, 5.0, 5.0]),
        example_inputs="5,4 5,8 5,2 1,3",
    ),
    op(
        "netconv::DetectronROIFeatureExtractor",
        "ExperimentalDetectronROIFeatureExtractor",
        RegionsAgain(),
        *LEVELS,
        *attrs(sampling_ratio=0),
        ignore("distribute_rois_between_levels", "image_id", "preserve_rois_order"),
        example_inputs="5,4 1,4,8,8",
    ),
]
