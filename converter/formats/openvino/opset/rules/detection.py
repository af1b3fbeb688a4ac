"""Priors, proposals, detections, suppression and pooling of regions: extension operators, mostly
attribute by attribute.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import (
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
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext, element_type
from converter.graph.infer import known, rank_of, shape_of
from converter.mapping.codecs import Codec, Floats, csv
from converter.mapping.context import Results
from converter.mapping.fields import (
    Attr,
    Detail,
    Field,
    Guard,
    InputType,
    Outputs,
    OutputType,
    RequireAttr,
    RequireKey,
    WriteKey,
    attrs,
    ignore,
)
from converter.mapping.rules import op
from converter.record import record

T = ir.DataType


# boxes and detections ----------------------------------------------------------------------------


def _first_count(text: Any) -> int:
    """The first of the counts, which are not below -1; -1 where there is none."""
    counts: list[int] = csv.lift(text)
    if min(counts, default=-1) < -1:
        raise ValueError(f"{text} is not a valid count")
    return counts[0] if counts else -1


def _one_stride(text: Any) -> int:
    strides: list[int] = csv.lift(text)
    if len(set(strides)) != 1:
        raise ValueError(f"strides must be equal, got {text}")
    return strides[0]


count = Codec(_first_count, str)
stride = Codec(_one_stride, str)
_code = words("corner", "center_size", "corner_size")
code_type = Codec(
    lambda v: _code.lift(str(v).rpartition(".")[2]),
    lambda v: f"caffe.PriorBoxParameter.{_code.lower(v).upper()}",
    _code.table,
)


class ClassCount(Attr):
    """num_classes of DetectionOutput, which opset8 removed: it follows from the confidences."""

    def lower(self, w: LowerContext) -> None:
        """Write nothing, as no written file has an older revision."""


@record
class FlatInput(Field):
    """An input of one axis, which in some files has an additional leading axis of length 1."""

    index: int

    def lift(self, r: LiftContext) -> None:
        if rank_of(r.input(self.index)) == 2:
            r.node.inputs[self.index] = r.b.Reshape(r.input(self.index), [-1])

    def lower(self, w: LowerContext) -> None:
        if w.rank(self.index) != 1:
            w.layer.inputs[self.index] = w.reshape(w.input(self.index), [-1])


def read_regions_again(r: LiftContext) -> None:
    """Return the first input as the second output of the layer."""
    r.outputs = 1
    r.after_emit(lambda results: [*results, r.input(0)])


def write_regions_again(w: LowerContext) -> None:
    """Append an output for the regions, which has no consumer."""
    w.layer.outputs.append(w.temporary("rois", T.FLOAT))


REGIONS_AGAIN = Detail(read=read_regions_again, write=write_regions_again)


def _floats(r: LiftContext, key: str) -> list[float]:
    found: list[float] = r.attr(key, Floats, [])
    return found


def _as_many(r: LiftContext) -> bool:
    return len(_floats(r, "width")) == len(_floats(r, "height"))


# regions -----------------------------------------------------------------------------------------


class PooledSize(Field):
    """The size of the pooled regions, under each of the names that it had."""

    names: tuple[str, ...] = ("pooled_h", "pooled_w")
    keys = ("pooled_h", "pooled_w", "output_size", "output_roi")

    def lift(self, r: LiftContext) -> None:
        sides = [r.attr(key, int, 0) for key in self.names]
        size = r.attr("output_roi", list, []) or r.attr("output_size", list, []) or sides
        r.node.attrs |= dict(zip(self.names, size, strict=True))

    def lower(self, w: LowerContext) -> None:
        height, width = size = self.size(w)
        w.set(pooled_h=height, pooled_w=width, output_size=size, output_roi=size)

    def size(self, w: LowerContext) -> list[int]:
        """Return the pooled size."""
        return [w.attr(name) for name in self.names]


class PooledSizeList(PooledSize):
    """The same of an operator that has height and width in one list."""

    names = ("pooled_shape",)

    def size(self, w: LowerContext) -> list[int]:
        return list(w.attr("pooled_shape"))


@record
class Alignment(Field):
    """The attribute aligned_mode; opset8 only has a boolean: the attribute `name`, now
    `asymmetric`, whose value is `plain`. half_pixel_for_nn is half_pixel in ONNX; half_pixel here
    also moves the corners by half a pixel before scaling.
    """

    name: str
    plain: Any
    half: Any
    keys = ("aligned_mode",)

    def __post_init__(self) -> None:
        self.names = (self.name,)

    def lift(self, r: LiftContext) -> None:
        known = words("asymmetric", "half_pixel", "half_pixel_for_nn")
        mode = r.attr("aligned_mode", known, "asymmetric")
        r.node.attrs[self.name] = self.plain if mode == "asymmetric" else self.half
        if mode == "half_pixel":
            rois = r.input(1)
            r.node.inputs[1] = rois + 0.5

    def lower(self, w: LowerContext) -> None:
        half = w.attr(self.name) == self.half
        if w.version >= 9:
            w.set(aligned_mode="half_pixel_for_nn" if half else "asymmetric")
        elif half:
            raise MappingError("half_pixel needs opset9", "X206")


# suppression -------------------------------------------------------------------------------------

LOWEST = np.array([np.finfo(np.float32).min], np.float32)
# an overlap that no two boxes have, but not one that processors take for 0
SMALL = np.float32(1e-30)
# times a number: the operator before or after it
BELOW, ABOVE = np.float32(1 - 2**-24), np.float32(1 + 2**-23)
NO_OVERLAP = np.array([2], np.float32)  # more than any two boxes have


def _limit(r: LiftContext, index: int) -> ir.Value:
    """Return an operand of shape [1]: a number of boxes or a float; 0 if it is absent."""
    value, dtype = r.optional(index), T.INT64 if index == 2 else T.FLOAT
    if value is None:
        return r.b.const(np.zeros(1, dtype.numpy()))
    return r.reshape(r.cast(value, dtype), [1])


@record
class Limits(Field):
    """Boxes and scores as floats, and `count` limits: number of boxes, overlap, lowest score,
    sigma.
    """

    count: int = 3

    def lift(self, r: LiftContext) -> None:
        boxes, scores = (r.cast(r.input(i), T.FLOAT) for i in (0, 1))
        r.set_inputs(boxes, scores, *(_limit(r, 2 + i) for i in range(self.count)))


class StrictLimits(Limits):
    """An overlap that reaches the threshold is too much here, in ONNX one that exceeds it.

    The thresholds differ by one number. Any two boxes reach an overlap of 0, so that only the first
    is left.
    """

    def lift(self, r: LiftContext) -> None:
        super().lift(r)
        most, overlap = r.node.inputs[2:4]
        assert most is not None and overlap is not None
        b, value = r.b, known(overlap)
        if value is None:
            below = b.Max(overlap * b.const(BELOW), 0.0)
            some = b.Greater(overlap, 0.0)
            most = b.Where(some, most, b.Min(most, [1]))
        else:
            below = b.const(np.maximum(np.nextafter(value, np.float32(-np.inf)), np.float32(0)))
            if value[0] <= 0:
                most = b.Min(most, [1])
        r.node.inputs[2:4] = [most, below]

    def lower(self, w: LowerContext) -> None:
        overlap, limit = w.optional(3), None
        value = np.zeros(1, np.float32) if overlap is None else known(overlap)
        if value is not None:
            above = np.nextafter(value.reshape(1), np.float32(np.inf))
            limit = w.const(np.maximum(above, SMALL))
        else:
            limit = w.emit("Multiply", overlap, ABOVE, auto_broadcast="numpy")
            limit = w.emit("Maximum", limit, SMALL, auto_broadcast="numpy")
        most = w.optional(2) or w.const(np.zeros(1, np.int64))
        w.set_inputs(w.data, w.input(1), most, limit, w.optional(4) or w.const(LOWEST))


def read_decay(r: LiftContext) -> None:
    """A box that overlaps too much is removed in opset5, for any sigma, and kept with a lower score
    in opset9.
    """
    r.set(hard=int(r.version < 9))


def write_decay(w: LowerContext) -> None:
    """Write the revision: 5 for hard suppression and before opset 9, where soft suppression gets a
    limit that removes no box, and needs a constant positive sigma.
    """
    hard, early = w.attr("hard"), w.version < 9
    if hard or early:
        w.layer.revision = 5
    if early and not hard:
        sigma = known(w.input(5))
        if sigma is None or not np.all(sigma > 0):
            message = "soft suppression needs opset9 when sigma is computed"
            raise MappingError(message, "X206")
        w.layer.inputs[3] = w.const(NO_OVERLAP)


DECAY = Detail(read=read_decay, write=write_decay, names=("hard",))


@record
class Found(Field):
    """The selected indices, from opset5 on also rows with the scores and the count. The operator
    gives them unsorted.

    `scores`: the operator gives the scores, too.
    """

    scores: bool = True
    keys = ("sort_result_descending", "output_type")

    def lift(self, r: LiftContext) -> None:
        b, r.outputs = r.b, 1 + self.scores
        to = T(r.attr("output_type", element_type, int(T.INT64)))
        descending = r.attr("sort_result_descending", bool, 1)

        def finish(results: Results) -> Results:
            picked, *best_ = results
            best = best_[0] if best_ else b.GatherND(r.node.input(1), picked)
            if descending:
                best, order = b.TopK(best, b.Shape(best), axis=0, outputs=2)
                picked = b.Gather(picked, order, axis=0)
            if r.version < 5:
                return [r.cast(picked, to)]
            places = b.Cast(b.Slice(picked, [0], [2], [1]), to=T.FLOAT)
            rows = b.Concat(places, b.Unsqueeze(best, [1]), axis=1)
            return [r.cast(picked, to), rows, r.cast(b.Shape(picked, start=0, end=1), to)]

        r.after_emit(finish)

    def lower(self, w: LowerContext) -> None:
        w.set(sort_result_descending=False, output_type="i64")
        picked, *best = w.layer.outputs
        rows = w.temporary("scores", T.FLOAT)
        w.layer.outputs = [picked, rows, w.temporary("count", T.INT64)]
        if best:
            w.after_emit(lambda: w.put("Gather", rows, 2, 1, outputs=best, batch_dims=0))


def _decays(r: LiftContext) -> bool:
    sigma = r.optional(5)
    array = np.zeros(1) if sigma is None else known(sigma)
    return array is None or bool(np.any(array > 0))


def _of_floats(w: LowerContext) -> bool:
    return w.data.dtype == w.input(1).dtype == T.FLOAT


def _fits_the_map(w: LowerContext) -> bool:
    """Return whether the grid has the size of the feature map, the only one that the runtime
    allocates.
    """
    size = shape_of(w.input(1))
    wanted = (w.attr("h"), w.attr("w"))
    return size is not None and all(v in (0, n) for v, n in zip(wanted, size[2:], strict=True))


# rows --------------------------------------------------------------------------------------------

SIZES = InputType((0, 1))
PRIORS = [
    op(
        "netconv::PriorBox",
        "PriorBox",
        Guard(
            "min_size or fixed_size must be given",
            lift_if=lambda r: bool(_floats(r, "min_size") or _floats(r, "fixed_size")),
            code="R110",
        ),
        Guard(
            "min_size or fixed_size must be given",
            lambda w: w.attr("min_size") or w.attr("fixed_size"),
        ),
        SIZES,
        *attrs(min_size=Floats(), max_size=Floats(), aspect_ratio=Floats(), density=Floats()),
        *attrs(fixed_ratio=Floats(), fixed_size=Floats(), variance=Floats()),
        *attrs(flip=False, clip=False, step=0.0, offset=0.0, scale_all_sizes=True),
        Attr("min_max_aspect_ratios_order", kind=bool, default=1, since=8),
        example_inputs="=i64:[2,2] =i64:[32,32]",
    ),
    op(
        "netconv::PriorBoxClustered",
        "PriorBoxClustered",
        Guard(
            "img_w and img_h are not supported",
            lower_if=lambda w: not w.attr("img_w") and not w.attr("img_h"),
        ),
        Guard("each width needs a height", lift_if=_as_many, code="R110"),
        SIZES,
        *CLUSTERS,
        *attrs(width=Floats(), height=Floats(), variance=Floats(), clip=True, offset=0.0),
        Attr("img_w", kind=float, default=0.0, omit=True),
        Attr("img_h", kind=float, default=0.0, omit=True),
        ignore("flip"),
        example_inputs="=i64:[2,2] =i64:[32,32]",
    ),
    op(
        "netconv::DetectionOutput",
        "DetectionOutput",
        ClassCount("num_classes", kind=int, default=0),
        Attr("code_type", kind=code_type, default="corner"),
        Attr("top_k", kind=count, default=-1),
        Attr("keep_top_k", kind=count),
        *DETECTIONS,
        *attrs(confidence_threshold=0.0, background_label_id=0, normalized=False),
        *attrs(clip_before_nms=False, objectness_score=0.0),
        ignore("visualize", "eta", "interp_type"),
        example_inputs="1,16 1,8 =1,2,16",
    ),
    op(
        "netconv::Proposal",
        "Proposal",
        FlatInput(2),
        Outputs((T.FLOAT, T.FLOAT)),
        *PROPOSALS,
        *attrs(base_size=int, ratio=Floats(), scale=Floats()),
        ignore("for_deformable"),
        example_inputs="1,2,4,4 1,4,4,4 3",
    ),
    op(
        "netconv::GenerateProposals",
        "GenerateProposals",
        Outputs((T.FLOAT, T.FLOAT, T.INT64)),
        OutputType("roi_num_type", element_type, (2,)),
        *SINGLE_IMAGE,
        *attrs(normalized=True),
        RequireKey("nms_eta", 1.0, True, float),
        since=9,
        example_inputs="1,3 4,4,1,4 1,4,4,4 1,1,4,4",
    ),
    op(
        "netconv::CTCGreedyDecoder",
        "CTCGreedyDecoder",
        *attrs(ctc_merge_repeated=True),
        example_inputs="4,1,3 4,1",
    ),
]

YOLO = [
    op(
        "netconv::RegionYolo",
        "RegionYolo",
        *REGION,
        *attrs(axis=int, end_axis=int),
        WriteKey("anchors", []),
        example_inputs="1,21,2,2",
    ),
    op("netconv::ReorgYolo", "ReorgYolo", Attr("stride", kind=stride), example_inputs="1,4,4,4"),
]

BINS_AND_GROUP = (*BINS, *attrs(group_size=1))
ALIGNED = (InputType((2,)), *attrs(sampling_ratio=int, spatial_scale=float))
REGIONS = [
    op(
        "netconv::PSROIPooling",
        "PSROIPooling",
        *BINS_AND_GROUP,
        *attrs(mode="average"),
        example_inputs="1,8,6,6 2,5",
    ),
    op(
        "netconv::DeformablePSROIPooling",
        "DeformablePSROIPooling",
        *BINS_AND_GROUP,
        *attrs(trans_std=1.0, part_size=1),
        RequireKey("mode", "bilinear_deformable", True, str),
        example_inputs="1,8,6,6 2,5",
    ),
    op(
        "netconv::ROIPooling",
        "ROIPooling",
        PooledSize(),
        *attrs(spatial_scale=float, method="max"),
        example_inputs="1,2,6,6 2,5",
    ),
    op(
        "MaxRoiPool",
        "ROIPooling",
        PooledSizeList(),
        Attr("spatial_scale", kind=float),
        RequireKey("method", "max", kind=str),
        lower_only=True,
        example_inputs="1,2,6,6 =[[0,0,1,3,4]]",
    ),
    op(
        "netconv::ROIAlignRotated",
        "ROIAlignRotated",
        *attrs(pooled_h=int, pooled_w=int, clockwise_mode=False),
        *attrs(sampling_ratio=int, spatial_scale=float),
        since=14,
        example_inputs="1,2,8,8 3,5 i64:3",
    ),
    op(
        "RoiAlign",
        "ROIAlign",
        Guard(
            "mode='max' is not supported: ONNX takes the largest weighted "
            "corner, ROIAlign the largest sample",
            lower_if=lambda w: w.attr("mode") != "max",
        ),
        RequireKey("mode", "avg", kind=str),
        RequireAttr("mode", "avg"),
        *ALIGNED,
        Attr("output_height", "pooled_h", int),
        Attr("output_width", "pooled_w", int),
        Alignment("coordinate_transformation_mode", "output_half_pixel", "half_pixel"),
        example_inputs="1,2,8,8 3,4 i64:3",
    ),
    op(
        "netconv::ROIAlignMax",
        "ROIAlign",
        RequireKey("mode", "max", kind=str),
        *ALIGNED,
        *attrs(pooled_h=int, pooled_w=int),
        Alignment("half_pixel", 0, 1),
        example_inputs="1,2,8,8 3,4 i64:3",
    ),
]

# the values of Detectron's own export
DETECTRON = [
    op(
        "netconv::DetectronPriorGridGenerator",
        "ExperimentalDetectronPriorGridGenerator",
        Guard("the grid must have the size of the feature map", lower_if=_fits_the_map),
        *GRID,
        *attrs(h=0, w=0),
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
        Outputs((T.FLOAT, T.FLOAT)),
        *SINGLE_IMAGE,
        example_inputs="3 16,4 4,4,4 1,4,4",
    ),
    op(
        "netconv::DetectronDetectionOutput",
        "ExperimentalDetectronDetectionOutput",
        Outputs((T.FLOAT, T.INT32, T.FLOAT)),
        *DETECTRON_OUTPUT,
        *attrs(deltas_weights=Floats()),
        example_inputs="5,4 5,8 5,2 1,3",
    ),
    op(
        "netconv::DetectronROIFeatureExtractor",
        "ExperimentalDetectronROIFeatureExtractor",
        *LEVELS,
        *attrs(sampling_ratio=int),
        REGIONS_AGAIN,
        example_inputs="5,4 1,2,8,8",
    ),
]

CENTERD = Attr("center_point_box", "box_encoding", words({0: "corner", 1: "center"}), 0)
OF_FLOATS = Guard("boxes and scores must be float32", lower_if=_of_floats)
SELECTION = (
    Attr("sort_result_type", kind=words("none", "score", "classid"), default="none"),
    *attrs(sort_result_across_batch=False, normalized=True, score_threshold=0.0),
    *attrs(nms_top_k=-1, keep_top_k=-1, background_class=-1),
    OutputType("output_type", element_type, (1, 2)),
    Outputs((T.FLOAT, T.INT64, T.INT64)),
)
SUPPRESSION = [
    op(
        "NonMaxSuppression",
        "NonMaxSuppression",
        Guard("scores must not decay", lift_if=lambda r: not _decays(r)),
        OF_FLOATS,
        CENTERD,
        StrictLimits(),
        Found(scores=False),
        example_inputs="1,6,4 1,2,6 =i64:[3] =[0.5] =[0.125]",
    ),
    op(
        "netconv::SoftNonMaxSuppression",
        "NonMaxSuppression",
        CENTERD,
        Limits(4),
        DECAY,
        Found(),
        example_inputs="1,6,4 1,2,6 =i64:[3] =[0.5] =[0.125] =[0.5]",
    ),
    op(
        "netconv::NMSRotated",
        "NMSRotated",
        OF_FLOATS,
        *attrs(clockwise=True),
        StrictLimits(),
        Found(),
        since=13,
        example_inputs="1,6,5 1,2,6 =i64:[3] =[0.5] =[0.125]",
    ),
    op(
        "netconv::MatrixNms",
        "MatrixNms",
        *SELECTION,
        *attrs(decay_function="linear", gaussian_sigma=2.0, post_threshold=0.0),
        since=8,
        example_inputs="1,6,4 1,2,6",
    ),
    op(
        "netconv::MulticlassNms",
        "MulticlassNms",
        Guard(
            "separate boxes for each class need opset9",
            lower_if=lambda w: w.version >= 9 or not w.has(2),
            code="X206",
        ),
        *SELECTION,
        *attrs(iou_threshold=0.0, nms_eta=1.0),
        since=8,
        example_inputs="1,6,4 1,2,6",
    ),
]

RULES = [*PRIORS, *YOLO, *REGIONS, *DETECTRON, *SUPPRESSION]
