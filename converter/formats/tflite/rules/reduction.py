"""Reductions, ArgMax and ArgMin, and cumulative sums."""

from __future__ import annotations

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.fields import REALS, WHOLE, Ordered
from converter.formats.tflite.rules.context import TENSOR_INT64, LiftContext, LowerContext, dims_of
from converter.formats.tflite.rules.fields import (
    axes_of,
    axis_of,
    constant_of,
    data,
)
from converter.mapping.concepts.axes import NONE, Axes, Axis
from converter.mapping.fields import Attr, Detail, Guard, RequireAttr, WriteKey
from converter.mapping.rules import op, ops

AXES = Axes(1, empty=NONE, writable=True, computed=True)
KEEP = Attr("keepdims", "keep_dims", bool)


def read_listed_axes(r: LiftContext) -> None:
    """Read the axes, which are an attribute."""
    r.set(axes=axes_of(r, 1, r.rank(data(r))))
    del r.node.inputs[1:]


def write_listed_axes(w: LowerContext) -> None:
    """Write the axes as a constant operand, not negative."""
    rank = w.rank()
    w.place(1, w.int32([int(i) % rank for i in w.attr("axes")], "axes"))


LISTED_AXES = Detail(read=read_listed_axes, write=write_listed_axes, names=("axes",), inputs=(1,))


def demand_elements(r: LiftContext) -> None:
    """Raise MappingError R105 if the reduced axis is empty."""
    if dims_of(data(r))[r.node.attrs["axis"]] == 0:
        raise MappingError(f"{r.node.op} over an empty axis is not supported", "R105")


def read_dropped_axis(r: LiftContext) -> None:
    """Set keepdims to 0."""
    r.set(keepdims=0)


def write_dropped_axis(w: LowerContext) -> None:
    """Expand the result by the reduced axis, where keepdims=1."""
    if not w.attr("keepdims"):
        return
    axis = axis_of(w)
    result = w.result("dropped")
    shape = w.out.shape
    result.shape = None if shape is None else ir.Shape([*shape[:axis], *shape[axis + 1 :]])
    place = w.int32(axis, "axis")
    w.after_emit(lambda: w.put("EXPAND_DIMS", result, place))


DROPPED_AXIS = Detail(read=read_dropped_axis, write=write_dropped_axis, names=("keepdims",))


def read_running_axis(r: LiftContext) -> None:
    """Read the axis of a cumulative sum, which is an input in both."""
    r.node.inputs[1] = r.whole(r.b.Reshape(r.input(1), constant_of(r, [], "shape")))


def write_running_axis(w: LowerContext) -> None:
    """Write the axis of CumSum, not negative."""
    (axis,) = w.ints(1, "the axis")
    w.place(1, w.int32(axis % w.rank(), "axis"))


RUNNING_AXIS = Detail(read=read_running_axis, write=write_running_axis, inputs=(1,))


def read_wide(r: LiftContext) -> None:
    """Read a 32-bit sum that is cast back and wraps around; in some engines a sum saturates."""
    r.data = r.cast(data(r), ir.DataType.INT64)


WIDE = Detail(read=read_wide)


def compare_as_numbers(r: LiftContext) -> None:
    """Cast booleans to numbers for a comparison."""
    r.data = r.cast(data(r), ir.DataType.INT32)
    r.after_first(lambda y: r.cast(y, ir.DataType.BOOL))


COMPARED_AS_NUMBERS = Detail(read=compare_as_numbers)


INT32 = Guard(
    "only int32 data are supported by this operator",
    lift_if=lambda r: data(r).dtype == ir.DataType.INT32,
)
RULES = [
    op("ReduceMean", "MEAN", REALS, AXES, KEEP),
    op("netconv::IntegerMean", "MEAN", WHOLE, LISTED_AXES, KEEP, example_inputs="i32:2,3"),
    op("ReduceSum", "SUM", INT32, WIDE, AXES, KEEP, lift_only=True),
    *ops(
        "ReduceSum=SUM ReduceMax=REDUCE_MAX ReduceMin=REDUCE_MIN ReduceProd=REDUCE_PROD",
        AXES,
        KEEP,
    ),
    *ops(
        "ReduceMax=REDUCE_ANY ReduceMin=REDUCE_ALL", COMPARED_AS_NUMBERS, AXES, KEEP, lift_only=True
    ),
    *ops(
        "ArgMax=ARG_MAX ArgMin=ARG_MIN",
        Ordered(),
        Axis(1),
        Detail(read=demand_elements),
        WriteKey("output_type", TENSOR_INT64),
        DROPPED_AXIS,
        RequireAttr("select_last_index", 0),
    ),
    op(
        "CumSum",
        "CUMSUM",
        RUNNING_AXIS,
        Attr("exclusive", kind=bool),
        Attr("reverse", kind=bool),
        example_inputs="2,3 =(1)",
    ),
]
