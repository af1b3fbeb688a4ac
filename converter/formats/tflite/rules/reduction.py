"""Reductions, places of the largest, and running sums."""

from __future__ import annotations

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.fields import REALS, WHOLE, Ordered
from converter.formats.tflite.rules.context import TENSOR_INT64, Reading, Writing, dims_of
from converter.formats.tflite.rules.fields import (
    axes_of,
    axis_of,
    constant_of,
    data,
)
from converter.mapping.concepts.axes import NONE, Axes, Axis
from converter.mapping.fields import Always, Attr, Detail, Field, Guard, Only
from converter.mapping.rules import op, ops

AXES = Axes(1, empty=NONE, writable=True, computed=True)
KEEP = Attr("keepdims", "keep_dims", bool)


class ListedAxes(Field):
    """The same as an attribute."""

    names = ("axes",)
    inputs = (1,)

    def lift(self, r: Reading) -> None:
        r.set(axes=axes_of(r, 1, r.rank(data(r))))
        del r.node.inputs[1:]

    def lower(self, w: Writing) -> None:
        rank = w.rank()
        w.place(1, w.int32([int(i) % rank for i in w.attr("axes")], "axes"))


def demand_elements(r: Reading) -> None:
    if dims_of(data(r))[r.node.attrs["axis"]] == 0:
        raise MappingError(f"{r.node.op} over an empty axis", "R105")


class Dropped(Field):
    names = ("keepdims",)

    def lift(self, r: Reading) -> None:
        r.set(keepdims=0)

    def lower(self, w: Writing) -> None:
        if not w.attr("keepdims"):
            return
        axis = axis_of(w)
        result = w.result("dropped")
        shape = w.out.shape
        result.shape = None if shape is None else ir.Shape([*shape[:axis], *shape[axis + 1 :]])
        place = w.int32(axis, "axis")
        w.then(lambda: w.put("EXPAND_DIMS", result, place))


class Running(Field):
    """The axis of a running sum is an input in both."""

    inputs = (1,)

    def lift(self, r: Reading) -> None:
        r.node.inputs[1] = r.whole(r.b.Reshape(r.input(1), constant_of(r, [], "shape")))

    def lower(self, w: Writing) -> None:
        (axis,) = w.ints(1, "the axis")
        w.place(1, w.int32(axis % w.rank(), "axis"))


class Wide(Field):
    """A sum of 32 bits wraps around when it is cast back; there are engines whose own sum ends at
    the largest number.
    """

    def lift(self, r: Reading) -> None:
        r.data = r.cast(data(r), ir.DataType.INT64)


class Truths(Field):
    """Booleans are numbers while they are compared."""

    def lift(self, r: Reading) -> None:
        r.data = r.cast(data(r), ir.DataType.INT32)
        r.behind(lambda y: r.cast(y, ir.DataType.BOOL))


INT32 = Guard("of 32 bits only", lift_if=lambda r: data(r).dtype == ir.DataType.INT32)
RULES = [
    op("ReduceMean", "MEAN", REALS, AXES, KEEP),
    op("netconv::IntegerMean", "MEAN", WHOLE, ListedAxes(), KEEP, given="i32:2,3"),
    op("ReduceSum", "SUM", INT32, Wide(), AXES, KEEP, lift_only=True),
    *ops(
        "ReduceSum=SUM ReduceMax=REDUCE_MAX ReduceMin=REDUCE_MIN ReduceProd=REDUCE_PROD",
        AXES,
        KEEP,
    ),
    *ops("ReduceMax=REDUCE_ANY ReduceMin=REDUCE_ALL", Truths(), AXES, KEEP, lift_only=True),
    *ops(
        "ArgMax=ARG_MAX ArgMin=ARG_MIN",
        Ordered(),
        Axis(1),
        Detail(read=demand_elements),
        Always("output_type", TENSOR_INT64),
        Dropped(),
        Only("select_last_index", 0),
    ),
    op(
        "CumSum",
        "CUMSUM",
        Running(),
        Attr("exclusive", kind=bool),
        Attr("reverse", kind=bool),
        given="2,3 =(1)",
    ),
]
