"""Fields, hooks and attributes that rows of legacy IR and of the opsets share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Self

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.demands import at_least, axis_of
from converter.graph.infer import Array
from converter.graph.value import known_sizes
from converter.graph.verify.operands import deformed
from converter.graph.windows import of_all_axes
from converter.mapping.codecs import Codec, enum
from converter.mapping.context import LiftContext, LowerContext
from converter.mapping.fields import Attr, Field, Guard, attrs, ignore
from converter.mapping.node import Node
from converter.mapping.rules import op
from converter.record import record

T = ir.DataType


# values ------------------------------------------------------------------------------------------


def dim(value: ir.Value, axis: int) -> int | None:
    """Return one static dimension, or None."""
    if value.shape is None or not -len(value.shape) <= axis < len(value.shape):
        return None
    found = value.shape[axis]
    return found if isinstance(found, int) else None


def words(*known: str | Mapping[Any, str], upper: bool = False, **pairs: str) -> Codec:
    """Words of the format, read in any case; `upper`: written in upper case. A keyword argument
    gives a word with another ONNX name, a mapping gives other ONNX values.
    """
    tables = (w if isinstance(w, Mapping) else {w: w} for w in (*known, pairs))
    codec = enum({k: v for table in tables for k, v in table.items()})

    def lower(value: Any) -> str:
        text = str(codec.lower(value))
        return text.upper() if upper else text

    return Codec(lambda v: codec.lift(str(v).strip().lower()), lower, codec.table)


# `exclude-pad` <-> count_include_pad
excluded = Codec(
    lambda v: int(str(v).strip().lower() not in ("true", "1")), lambda v: "false" if v else "true"
)
BLOCKS = words(DCR="blocks_first", CRD="depth_first")


# hooks -------------------------------------------------------------------------------------------


def rearranged(
    r: LiftContext, x: ir.Value, split: list[int], perm: list[int], joined: list[int]
) -> ir.Value:
    """Split, permute and join axes."""
    y = r.b.Transpose(r.b.Reshape(x, split), perm=perm)
    return r.b.Reshape(y, joined)


def depth_to_space(r: LiftContext) -> None:
    """Lift DepthToSpace for other than two spatial axes, or the order that ONNX lacks."""
    shape, size = list(r.static(least=3)), r.count("block_size", 1)
    n, blocks = len(shape) - 2, [size] * (len(shape) - 2)
    batch, depth, rest = shape[0], shape[1] // size**n, shape[2:]
    if r.attr("mode", BLOCKS, "DCR") == "DCR":  # N, b.., c, d..
        split, first, channel = [batch, *blocks, depth, *rest], 1, n + 1
    else:  # N, c, b.., d..
        split, first, channel = [batch, depth, *blocks, *rest], 2, 1
    perm = [0, channel, *(v for i in range(n) for v in (n + 2 + i, first + i))]
    joined = [batch, depth, *(d * size for d in rest)]
    r.forwarded = [rearranged(r, r.input(0), split, perm, joined)]


def space_to_depth(r: LiftContext) -> None:
    """Lift SpaceToDepth for other than two spatial axes, or the order that ONNX lacks."""
    shape, size = list(r.static(least=3)), r.count("block_size", 1)
    n, rest = len(shape) - 2, [d // size for d in shape[2:]]
    split = [*shape[:2], *(v for d in rest for v in (d, size))]
    outer, inner = [2 + 2 * i for i in range(n)], [3 + 2 * i for i in range(n)]
    blocks_first = r.attr("mode", BLOCKS, "DCR") == "DCR"
    perm = [0, *inner, 1, *outer] if blocks_first else [0, 1, *inner, *outer]
    joined = [shape[0], shape[1] * size**n, *rest]
    r.forwarded = [rearranged(r, r.input(0), split, perm, joined)]


# blocks of other than two spatial axes, or in the order that ONNX lacks
BLOCKS_APART = [
    op("Reshape", kind, ignore("block_size", "mode"), before_lift=before, lift_only=True)
    for kind, before in (("DepthToSpace", depth_to_space), ("SpaceToDepth", space_to_depth))
]


def amounts_of(pads: Array, axes: Array | None, rank: int) -> Array:
    """Return [2, rank]: the padding before and after each axis, from that of all or some axes."""
    both = np.zeros((2, rank), np.int64)
    both[:, range(rank) if axes is None else axes.reshape(-1)] = pads.reshape(2, -1)
    return both


def bounds_below(r: LiftContext, x: ir.Value, bounds: ir.Value, equal: bool) -> None:
    """Count the bounds below each element; the operator is the ReduceSum."""
    floats = [v.dtype is None or v.dtype.is_floating_point() for v in (x, bounds)]
    wide = T.FLOAT if any(floats) else T.INT64
    wide = T.DOUBLE if T.DOUBLE in (x.dtype, bounds.dtype) else wide
    points, edges = r.b.Unsqueeze(r.cast(x, wide), [-1]), r.cast(bounds, wide)
    if r.rank(bounds) > 1:
        edges = r.b.Unsqueeze(edges, [-2])
    below = r.b.op("LessOrEqual" if equal else "Less", edges, points)
    r.set_inputs(r.cast(below, T.INT64), [-1])


@record
class SlicePlan:
    """A plan of a StridedSlice: for each entry of its begin, the axis of the input that it refers
    to, and the operation on that axis.
    """

    sliced: list[tuple[int, int]] = field(default_factory=list)  # (entry, axis)
    shrunk: list[int] = field(default_factory=list)  # axes of the input
    new: list[int] = field(default_factory=list)  # axes of the result

    @classmethod
    def of(cls, count: int, n: int, masks: Mapping[str, list[int]]) -> Self:
        """Iterate over the entries; an ellipsis covers the axes, of `n`, that no other entry refers
        to.
        """
        new, ellipsis = masks["new_axis_mask"], masks["ellipsis_mask"]
        result, axis, out = cls(), 0, 0
        hidden = n - sum(1 for i in range(count) if not ellipsis[i] and not new[i])
        for i in range(count):
            if ellipsis[i]:
                axis += hidden
                out += hidden
            elif new[i]:
                result.new.append(out)
                out += 1
            else:
                if axis >= n:
                    raise MappingError("there are more elements than axes", "R105")
                result.sliced.append((i, axis))
                if masks["shrink_axis_mask"][i]:
                    result.shrunk.append(axis)
                else:
                    out += 1
                axis += 1
        return result


def leading_axes(r: LiftContext) -> None:
    """Transpose batch and time of a ReverseSequence to the first two axes, as ONNX requires."""
    x, a = r.input(0), r.node.attrs
    n = r.rank(x)
    batch, time = axis_of(a["batch_axis"], n), axis_of(a["time_axis"], n)
    if {batch, time} == {0, 1}:
        a |= {"batch_axis": batch, "time_axis": time}
        return
    perm = [batch, time, *(i for i in range(n) if i not in (batch, time))]
    r.data = r.transpose(x, perm)
    a |= {"batch_axis": 0, "time_axis": 1}
    r.after_first(lambda y: r.transpose(y, [perm.index(i) for i in range(n)]))


def odd_window(alpha: float, size: int, axes: int = 1) -> tuple[float, int]:
    """Return alpha and size of ONNX's LRN for a layer whose window covers that number of channels.
    If it is even, engines leave out the last neighbor but still divide by the size.
    """
    at_least(1, size=size)
    odd = 2 * ((size - 1) // 2) + 1
    return alpha * (odd / size) ** axes, odd


# of ONNX's LRN
ODD_SIZE = Guard("size must be odd", lambda w: w.attr("size") % 2 == 1)


class Deformation(Field):
    """The numbers of channels, groups and offsets, which must be consistent."""

    def lift(self, r: LiftContext) -> None:
        self._check(r.node, "R105")

    def lower(self, w: LowerContext) -> None:
        self._check(w.node, "X202")

    def _check(self, node: Node, code: str) -> None:
        shapes = [known_sizes(node.input(i)) or None for i in (0, 2, 1, 3)]
        a = node.attrs
        n = len(a.get("kernel_shape") or (1, 1))
        ones, none = [1] * n, [0] * (2 * n)
        window = a.get("strides") or ones, a.get("dilations") or ones, a.get("pads") or none
        if reason := deformed(shapes, a["group"], a["deformable_group"], *window):
            raise MappingError(reason, code)


class WidePadding(Field):
    """Add a Pad before a maximum whose padding is not smaller than the kernel, which ONNX's engines
    reject.
    """

    def lift(self, r: LiftContext) -> None:
        a, x = r.node.attrs, r.data
        if all(p < k for p, k in zip(a["pads"], a["kernel_shape"] * 2, strict=True)):
            return
        dtype = x.dtype or T.FLOAT
        if not dtype.is_floating_point() or r.outputs > 1:
            raise MappingError("padding must be smaller than the window")
        least = r.b.like(x, np.finfo(dtype.numpy()).min)
        r.set_inputs(r.b.Pad(x, of_all_axes(a["pads"]), least))
        a["pads"] = [0] * len(a["pads"])


# recurrent layers --------------------------------------------------------------------------------

# the gates in ONNX's order, by their positions here: f, i, c, o and z, r, h
GATES = {"LSTM": (1, 3, 0, 2), "GRU": (0, 1, 2), "RNN": (0,)}
USUAL = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
ACTIVATIONS = {
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "relu": "Relu",
    "hardsigmoid": "HardSigmoid",
    "elu": "Elu",
    "softsign": "Softsign",
    "softplus": "Softplus",
}


# attributes of layers of detection networks, where both are alike -----------------------------

BATCH_AND_TIME = (
    Attr("batch_axis", kind=int, default=0),
    Attr("time_axis", "seq_axis", int, default=1),
)
CLUSTERS = attrs(step=0.0, step_w=0.0, step_h=0.0)
DETECTIONS = attrs(
    nms_threshold=float,
    share_location=True,
    variance_encoded_in_target=False,
    clip_after_nms=False,
    decrease_label_id=False,
    input_height=1,
    input_width=1,
)
ANCHORS = attrs(pre_nms_topn=int, post_nms_topn=int, feat_stride=int)
PROPOSALS = (
    *ANCHORS,
    *attrs(nms_thresh=float, min_size=int, clip_before_nms=True, clip_after_nms=False),
    *attrs(normalize=False, box_size_scale=1.0, box_coordinate_scale=1.0, framework=""),
)
REGION = attrs(coords=int, classes=int, num=int, do_softmax=True, mask=[])
BINS = attrs(output_dim=int, spatial_scale=float, spatial_bins_x=1, spatial_bins_y=1)
GRID = attrs(flatten=True, stride_x=0.0, stride_y=0.0)
SINGLE_IMAGE = attrs(min_size=float, nms_threshold=float, post_nms_count=int, pre_nms_count=int)
DETECTRON_OUTPUT = attrs(
    score_threshold=float,
    nms_threshold=float,
    max_delta_log_wh=float,
    num_classes=int,
    post_nms_count=int,
    max_detections_per_image=int,
    class_agnostic_box_regression=False,
)
LEVELS = attrs(output_size=int, pyramid_scales=list, aligned=False)
MOST = attrs(max_rois=0)
