"""Reductions, sorting, counting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import bounds_below, dim, words
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext, element_type
from converter.formats.openvino.opset.rules.elementwise import BOOLEANS, FLOATS, INTEGERS, NUMBERS
from converter.formats.openvino.opset.rules.fields import Axes, NumberInput
from converter.graph.demands import axis_of
from converter.graph.infer import known, rank_of, shape_of
from converter.graph.sizes import arange
from converter.mapping.concepts.axes import no_axes
from converter.mapping.context import Results
from converter.mapping.fields import (
    Attr,
    AttrInput,
    Detail,
    Field,
    Guard,
    InputType,
    Outputs,
    OutputType,
    RequireAttr,
    RequireKey,
    attrs,
    ignore,
)
from converter.mapping.rules import op, ops

T = ir.DataType
SMALL = (T.INT8, T.UINT8, T.INT16, T.UINT16, T.BOOL)
STATIC = "make the axes constant, or the shapes static"


class Reduced(Field):
    """The attribute keep_dims and the axes. No axes mean no reduction, which is
    noop_with_empty_axes in ONNX.
    """

    names = ("keepdims", "noop_with_empty_axes")
    keys = ("keep_dims",)

    def lift(self, r: LiftContext) -> None:
        InputType((1,), flat=True).lift(r)
        values = known(r.node.inputs[1])
        r.set(keepdims=int(r.attr("keep_dims", bool, False)))
        r.set(noop_with_empty_axes=int(values is None or not values.size))

    def lower(self, w: LowerContext) -> None:
        keep, axes = bool(w.attr("keepdims")), self._axes(w)
        w.layer.inputs = [w.data, axes]
        w.set(keep_dims=keep)
        if _last_of_three(w, axes) and _meets_a_vector(w):
            self._of_four_axes(w, keep)
            return
        if keep or rank_of(axes) == 0 or known(axes) is not None or dim(axes, 0) == 1:
            return
        # with several computed axes the runtime does not know the rank of the result
        target = self._target(w, axes)
        w.set(keep_dims=True)
        reduced = w.temporary("reduced", w.data.dtype)
        w.layer.outputs = [reduced]
        w.after_emit(lambda: w.put("Reshape", reduced, target, special_zero=False))

    @staticmethod
    def _target(w: LowerContext, axes: ir.Value) -> Any:
        """Return the sizes of the axes that are not reduced, if the axes are computed."""
        shape, count, rank = shape_of(w.out), dim(axes, 0), rank_of(w.data)
        if shape is not None:
            return list(shape)
        if count is None or rank is None:
            message = "the axes are computed, so the runtime does not know the rank of the result"
            raise MappingError(message, "X203", STATIC)
        if count >= rank:
            return []
        places = w.emit("Convert", axes, dtype=T.INT64, destination_type="i64")
        places = w.emit("FloorMod", places, [rank], auto_broadcast="numpy")
        kept = w.emit("ScatterElementsUpdate", [1] * rank, places, [0] * count, 0)
        found = w.emit("NonZero", kept, dtype=T.INT64, output_type="i64")
        order = w.reshape(found, [rank - count])
        sizes = w.emit("ShapeOf", w.data, dtype=T.INT64, output_type="i64")
        return w.emit("Gather", sizes, order, 0, dtype=T.INT64, batch_dims=0)

    @staticmethod
    def _of_four_axes(w: LowerContext, keep: bool) -> None:
        """Reduce over four axes: the CPU plugin fuses operators after a reduction of the last of
        three axes, and then mistakes the first axis for the axis of a vector.
        """
        x = w.data
        wide = w.emit("Unsqueeze", x, w.const([3], "axes"))
        w.set_inputs(wide, w.const([2, 3], "axes"))
        w.set(keep_dims=False)
        if keep:
            reduced = w.temporary("reduced", x.dtype)
            w.layer.outputs = [reduced]
            w.after_emit(lambda: w.put("Unsqueeze", reduced, w.const([2], "axes")))

    def _axes(self, w: LowerContext) -> ir.Value:
        axes, noop = w.optional(1), w.attr("noop_with_empty_axes")
        values: Any = known(axes)
        if axes is None or (values is not None and not values.size):
            if noop:
                raise no_axes(w)
            values = arange(w.rank())
        if values is not None:
            return w.const(values.astype(np.int64), "axes")
        assert axes is not None
        if not noop and dim(axes, 0) in (0, None):
            message = "the axes must be known at conversion time"
            raise MappingError(message)
        return axes


def _last_of_three(w: LowerContext, axes: ir.Value) -> bool:
    places = known(axes)
    return rank_of(w.data) == 3 and places is not None and places.tolist() in ([2], [-1])


def _meets_a_vector(w: LowerContext) -> bool:
    """Return whether the result is an operand together with a vector along axis 1."""
    (out,), size = w.node.outputs, dim(w.data, 1)
    others = (v for use in out.uses() for v in use.node.inputs if v is not None and v is not out)
    counts = (math.prod(s) for v in others if (s := shape_of(v)) and math.prod(s) == max(s))
    return any(count > 1 and size in (None, count) for count in counts)


def reduce_as_int32(r: LiftContext) -> None:
    """Reduce small integers and booleans as int32, since ONNX does not support them."""
    x = r.data
    if x.dtype not in SMALL:
        return
    own = x.dtype
    r.data = r.cast(x, T.INT32)
    r.after_first(lambda y: r.cast(y, own))


REDUCE_AS_INT32 = Detail(read=reduce_as_int32)


class SortOrder(Field):
    """The order of the results. Equal elements are in ascending order of index; `sort=index` orders
    the selected elements by position.
    """

    names: tuple[str, ...] = ("sorted",)
    keys: tuple[str, ...] = ("sort", "stable")

    def lift(self, r: LiftContext) -> None:
        r.set(sorted=1)
        if r.attr("sort", words("value", "index", "none")) == "index":
            r.after_emit(lambda results: self._by_position(r, results))

    def _by_position(self, r: LiftContext, results: Results) -> Results:
        axis, k = r.node.attrs["axis"], r.node.inputs[1]
        order = {"axis": axis, "largest": 0, "sorted": 1}
        places = r.b.ops("TopK", results[1], k, outputs=2, **order)[0]
        return [r.b.GatherElements(r.input(0), places, axis=axis), places]

    def lower(self, w: LowerContext) -> None:
        w.set(sort="value")
        if w.version >= 11:
            w.set(stable=True)
        elif (
            w.attr("sorted", 1)
            and w.used(len(w.node.outputs) - 1)
            and dim(w.data, w.attr("axis")) not in (0, 1)
        ):
            raise MappingError("stable sorting needs opset 11")


class IndexOfBest(SortOrder):
    """The indices of a TopK with k = 1."""

    names = ("axis", "keepdims")
    keys = ("axis", *SortOrder.keys)

    def lower(self, w: LowerContext) -> None:
        super().lower(w)
        axis = axis_of(w.attr("axis"), w.rank())
        w.set(axis=axis)
        w.set_inputs(w.data, 1)
        places = w.temporary("places", T.INT64)
        w.layer.outputs = [w.temporary("values", w.data.dtype), places]
        w.after_emit(lambda: self._shaped(w, places, axis))

    def _shaped(self, w: LowerContext, places: ir.Value, axis: int) -> None:
        if w.attr("keepdims"):
            shape = w.emit("ShapeOf", places, output_type="i64")
            w.put("Reshape", places, shape, special_zero=False)
        else:
            w.put("Squeeze", places, [axis])


def bucketize(r: LiftContext) -> None:
    """Count the bounds below each element; the right bound belongs to the bucket by default."""
    bounds_below(r, r.input(0), r.input(1), not r.attr("with_right_bound", bool, True))


def search_sorted(r: LiftContext) -> None:
    """Count the elements of a sorted row before each value; equal ones with right_mode."""
    bounds_below(r, r.input(1), r.input(0), r.attr("right_mode", bool, False))


REDUCE = (NUMBERS, Reduced(), REDUCE_AS_INT32)
OF_FLOATS = Guard("the mean of integers is not supported by this rule", lift_if=FLOATS.lift_if)
OF_BOOLEANS = Guard("only booleans are supported", lower_if=BOOLEANS.lower_if)
KNOWN_AXES = Guard(
    "the axes of booleans must be constant",
    lower_if=lambda w: not w.has(1) or known(w.optional(1)) is not None,
)
LOGICAL = (OF_BOOLEANS, KNOWN_AXES, InputType((0,), T.BOOL), Reduced(), REDUCE_AS_INT32)
AXES = "2,3 =[1]"
COUNT = OutputType("output_type", element_type)
BEST = (
    RequireKey("index_element_type", "i64", kind=str),
    RequireAttr("select_last_index", 0),
    IndexOfBest(),
)

RULES = [
    *ops("ReduceMax ReduceMin ReduceProd ReduceSum", *REDUCE, example_inputs=AXES),
    *ops("ReduceL1 ReduceL2", *REDUCE, since=4, example_inputs=AXES),
    op("ReduceMean", "ReduceMean", OF_FLOATS, *REDUCE, example_inputs=AXES),
    op(
        "netconv::IntegerMean",
        "ReduceMean",
        INTEGERS,
        Axes(),
        Attr("keepdims", "keep_dims", bool, default=0),
        example_inputs="i32:2,3",
    ),
    op("ReduceMin", "ReduceLogicalAnd", *LOGICAL, example_inputs="b:2,3 =[1]"),
    op("ReduceMax", "ReduceLogicalOr", *LOGICAL, example_inputs="b:2,3 =[1]"),
    op(
        "CumSum",
        "CumSum",
        *attrs(exclusive=False, reverse=False),
        NumberInput(1, default=0),
        example_inputs="2,3 =i64:",
    ),
    op(
        "TopK",
        "TopK",
        Attr("axis", kind=int),
        Attr("largest", "mode", words({1: "max", 0: "min"})),
        NumberInput(1, rank=1),
        SortOrder(),
        OutputType("index_element_type", element_type, (1,), default=T.INT32),
        Outputs((None, T.INT64)),
        example_inputs="2,3 =[2]",
    ),
    op("ArgMax", "TopK", RequireKey("mode", "max"), *BEST, lower_only=True),
    op("ArgMin", "TopK", RequireKey("mode", "min"), *BEST, lower_only=True),
    op("NonZero", "NonZero", COUNT),
    op(
        "Unique",
        "Unique",
        AttrInput("axis", 1, default=None),
        Attr("sorted", kind=bool, default=1),
        OutputType("index_element_type", element_type, (1, 2)),
        OutputType("count_element_type", element_type, (3,)),
        Outputs((None, T.INT64, T.INT64, T.INT64)),
        since=10,
    ),
    op(
        "ReduceSum",
        "Bucketize",
        RequireAttr("keepdims", 0),
        ignore("with_right_bound"),
        COUNT,
        before_lift=bucketize,
        lift_only=True,
    ),
    op(
        "ReduceSum",
        "SearchSorted",
        RequireAttr("keepdims", 0),
        ignore("right_mode"),
        COUNT,
        before_lift=search_sorted,
        lift_only=True,
    ),
]
