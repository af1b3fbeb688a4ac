"""Reductions, ArgMax and ArgMin."""

from __future__ import annotations

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.nnapi.rules.context import LiftContext, LowerContext
from converter.mapping.concepts.axes import NONE, Axes, Axis
from converter.mapping.fields import Attr, Detail, InputType, RequireAttr
from converter.mapping.rules import op, ops


def read_kept_axis(r: LiftContext) -> None:
    """Read the axis, which is removed; a vector gives [1], since there are no scalars."""
    r.set(keepdims=int(r.rank(r.data) == 1))


def write_kept_axis(w: LowerContext) -> None:
    """Reshape the result to keep the reduced axis, where keepdims=1."""
    shape = w.static()
    if w.attr("keepdims") and len(shape) > 1:
        dims = [n for i, n in enumerate(shape) if i != w.axis()]
        w.after_first(dims, w.reshape)


KEPT_AXIS = Detail(read=read_kept_axis, write=write_kept_axis, names=("keepdims",))


def read_largest(r: LiftContext) -> None:
    """Read the `k` largest elements along the last axis."""
    r.set_input(1, r.b.const([r.attr("k", int)], "k"))


def write_largest(w: LowerContext) -> None:
    """Write k of a TopK along the last axis."""
    if w.axis(-1) != len(w.static()) - 1:
        raise MappingError("only the last axis is supported")
    (w.layer.attrs["k"],) = w.ints(1, "k")


K_LARGEST = Detail(
    read=read_largest, write=write_largest, names=("axis",), inputs=(1,), keys=("k",)
)


KEEP = Attr("keepdims", "keep_dims", bool)
RULES = [
    *ops(
        "ReduceMean=MEAN ReduceMax=REDUCE_MAX ReduceMin=REDUCE_MIN ReduceProd=REDUCE_PROD "
        "ReduceSum=REDUCE_SUM",
        Axes(empty=NONE),
        KEEP,
    ),
    # all and any as minimum and maximum of 0 and 1
    *ops(
        "ReduceMin=REDUCE_ALL ReduceMax=REDUCE_ANY",
        Axes(empty=NONE),
        KEEP,
        InputType((0,), ir.DataType.INT32),
        lift_only=True,
    ),
    *ops("ArgMax=ARGMAX ArgMin=ARGMIN", Axis(), KEPT_AXIS, RequireAttr("select_last_index", 0)),
    op(
        "TopK",
        "TOPK_V2",
        K_LARGEST,
        RequireAttr("largest", 1),
        RequireAttr("sorted", 1),
    ),
]
