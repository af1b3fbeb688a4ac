"""Reductions, ArgMax and ArgMin, and cumulative sums."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.mlprogram.rules.context import LiftContext, LowerContext
from converter.formats.coreml.mlprogram.rules.fields import (
    OPPOSITE,
    Results,
    first_axis,
    mil,
    mils,
    numbers,
)
from converter.graph.demands import axis_of
from converter.mapping.concepts.axes import NONE, Axes, AxisInput
from converter.mapping.fields import Attr, Detail, Field, RequireAttr, ignore
from converter.mapping.rules import Custom, Rule, custom

KEEP = Attr("keepdims", "keep_dims", bool, default=0)


def read_count(r: LiftContext) -> None:
    """Return how many of the largest; -1 is the whole axis."""
    axis = axis_of(int(r.node.attrs["axis"]), r.rank(r.data))
    array = r.layer.attrs.get("k", 1)
    if isinstance(array, int):
        size = r.b.Shape(r.data)[axis : axis + 1] if array == -1 else numbers(r, [array], "k")
        r.node.set_input(1, size)
    else:
        r.node.set_input(1, r.b.Reshape(r.whole("k"), [1]))


def write_count(w: LowerContext) -> None:
    """Write the number of elements of a TopK as `k`."""
    w.set(k=w.ints(1, "k")[0])


COUNT = Detail(read=read_count, write=write_count, keys=("k",), inputs=(1,))


class Sorted(Field):
    """Sort the result, independent of `sort`.

    Without `sort` no order is guaranteed. Core ML then sorts as well, as the tests of coremltools
    expect (ops/tests/iOS16/test_tensor_operation.py), while onnxruntime keeps the input's order.
    """

    keys, names = ("sort",), ("sorted",)

    def lift(self, r: LiftContext) -> None:
        r.attr("sort", bool, True)
        r.node.attrs["sorted"] = 1


def sort_whole_axis(r: LiftContext) -> None:
    """Read argsort as a TopK of all elements of the axis."""
    axis = axis_of(int(r.node.attrs["axis"]), r.rank(r.data))
    r.set_input(1, r.b.Shape(r.data)[axis : axis + 1])
    r.outputs = 2
    r.after_emit(lambda results: [results[1]])


def write_some(w: LowerContext) -> None:
    """Write a TopK with a computed number of elements: sort the axis, and take the first ones."""
    x, count, rank = w.data, w.input(1), w.rank()
    axis, kind = first_axis(w, w.attr("axis", -1)), ir.DataType.INT32
    rising, shape = not w.attr("largest", 1), list(x.shape or ())
    order = w.made("argsort", kind, shape, x=x, axis=axis, ascending=rising)
    values = w.made("gather_along_axis", x.dtype, shape, x=x, indices=order, axis=axis)
    front, back = (w.const(np.zeros(n, np.int32), "zeros") for n in (axis, rank - axis - 1))
    parts = [v for v in (front, count, back) if v.shape != (0,)]
    end = count
    if rank > 1:
        end = w.made("concat", kind, [rank], values=parts, axis=0, interleave=False)
    masks = [i != axis for i in range(rank)]
    for value, out in zip((values, order), w.node.outputs, strict=True):
        given = {"x": value, "begin": [0] * rank, "end": end, "end_mask": masks}
        w.operation("slice_by_index", [out], **given)


FALLING = Attr("largest", "ascending", OPPOSITE, 1)
AXIS = Attr("axis", kind=int, default=-1)
RULES: list[Rule | Custom] = [
    *mils(
        "ReduceL1=reduce_l1_norm ReduceL2=reduce_l2_norm ReduceLogSum=reduce_log_sum "
        "ReduceLogSumExp=reduce_log_sum_exp ReduceMax=reduce_max ReduceMean=reduce_mean "
        "ReduceMin=reduce_min ReduceProd=reduce_prod ReduceSum=reduce_sum "
        "ReduceSumSquare=reduce_sum_square",
        "x",
        Axes(absent=True, empty=NONE),
        KEEP,
        example_inputs="2,3,4 =[1]",
    ),
    *mils(
        "ArgMax=reduce_argmax ArgMin=reduce_argmin",
        "x",
        AXIS,
        KEEP,
        RequireAttr("select_last_index", 0),
        ignore("output_dtype"),
    ),
    mil(
        "CumSum",
        "cumsum",
        "x",
        AxisInput(default=0),
        Attr("exclusive", kind=bool, default=0),
        Attr("reverse", kind=bool, default=0),
        example_inputs="2,3,4 =(1)",
    ),
    mil(
        "TopK",
        "topk",
        "x",
        AXIS,
        FALLING,
        COUNT,
        Sorted(),
        ignore("return_indices", "output_indices_dtype"),
        Results(2),
        example_inputs="2,3,4 =[2] -> 2",
    ),
    custom("TopK", "argsort", None, write_some),
    mil("TopK", "argsort", "x", AXIS, FALLING, before_lift=sort_whole_axis, lift_only=True),
]
