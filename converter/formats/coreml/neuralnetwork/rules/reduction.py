"""Reductions, ArgMax and ArgMin, sorting, cumulative sums."""

from __future__ import annotations

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.neuralnetwork import operands as blobs
from converter.formats.coreml.neuralnetwork.collector import is_float
from converter.formats.coreml.neuralnetwork.rules.context import LiftContext, LowerContext
from converter.formats.coreml.neuralnetwork.rules.fields import (
    ANY,
    KEEP_ONE_AXIS,
    NOT,
    ConstOrInput,
)
from converter.graph.demands import axis_of
from converter.graph.value import Value
from converter.mapping.codecs import Codec, enum, unset
from converter.mapping.concepts.axes import ALL, Axes, Axis
from converter.mapping.fields import Attr, Const, Detail, Guard, RequireAttr, RequireKey, ignore
from converter.mapping.rules import op, ops

NAMES = enum({(-3, -2, -1): "CHW", (-2, -1): "HW", (-3,): "C", (-2,): "H", (-1,): "W"})
NAMED_AXES = Codec(lambda v: list(NAMES.lift(v)), lambda v: NAMES.lower(tuple(v)))


def flat_maximum(r: LiftContext) -> None:
    """Read the index of a maximum over several axes, which refers to the flattened axes."""
    b, x = r.b, r.input(0)
    axes = [axis_of(a, blobs.rank(x)) for a in r.attr("axis", NAMED_AXES)]
    r.set(axis=axes[0])
    if axes[1:]:
        front = b.Shape(x)[: axes[0]]
        r.data = b.Reshape(x, b.Concat(front, [-1], axis=0))
        r.after_first(lambda y: b.Unsqueeze(y, axes[1:]))


def read_removed_axis(r: LiftContext) -> None:
    """Read `removeDim`, which never removes the only axis."""
    gone = r.attr("removeDim", bool) and blobs.rank(r) > 1
    r.set(keepdims=int(not gone))


def write_removed_axis(w: LowerContext) -> None:
    """Write keepdims=0 as removeDim."""
    w.set(removeDim=not w.attr("keepdims"))


REMOVED_AXIS = Detail(
    read=read_removed_axis,
    write=write_removed_axis,
    names=("keepdims",),
    keys=("removeDim",),
)


def check_count(r: LiftContext) -> None:
    """Check that k does not exceed the number of elements."""
    if len(r.layer.inputs) > 1:
        return
    k, size = r.attr("K", int), blobs.dims(r)[r.node.attrs["axis"]]
    if size is not None and k > size:
        raise MappingError(f"K={k} is more than the {size} elements of the axis", "R110")


def read_index_rows(r: LiftContext) -> None:
    """Transpose the indices: the layer gives one row for each index, ONNX one column."""
    r.after_first(lambda y: r.b.Transpose(y, perm=[1, 0]))


def write_index_rows(w: LowerContext) -> None:
    """Write positions as rows, [count, rank], and transpose them afterwards."""
    rows = w.result("rows")
    rows.shape = ir.Shape([None, max(1, w.rank())])
    w.after_emit(lambda: w.put("transpose", rows, axes=[1, 0]))


INDEX_ROWS = Detail(read=read_index_rows, write=write_index_rows)


ALL_OF_THEM = (
    RequireAttr("keepdims", 1),
    RequireAttr("noop_with_empty_axes", 0),
    ignore("epsilon"),
)
NO_MEAN = Guard("the mean of integers is not supported", lambda w: is_float(w.out))
FIRST = RequireAttr("select_last_index", 0)


REDUCED = (
    Axes(empty=ALL, every="reduceAll"),
    Attr("keepdims", "keepDims", bool),
    KEEP_ONE_AXIS,
)


def logarithm(r: LiftContext) -> Value:
    """Write LOGSUM, the sum of logarithms."""
    return r.b.Log(r.data + r.attr("epsilon", unset(1e-6)))


def sort(r: LiftContext) -> None:
    """Sort all elements by TopK; the layer only gives their indices."""
    axis = r.node.attrs["axis"]
    r.set_input(1, r.b.Shape(r.input(0))[axis : axis + 1])
    r.outputs = 2
    r.after_emit(lambda results: results[1:])


RULES = [
    *(
        op(
            name,
            "reduce",
            RequireKey("mode", mode),
            Const(1, "axis", NAMED_AXES),
            *ALL_OF_THEM,
            example_inputs="1,4,8,8 =[-3,-2,-1]",
            lift_only=True,
        )
        for name, mode in (
            ("ReduceSum", "SUM"),
            ("ReduceMean", "AVG"),
            ("ReduceProd", "PROD"),
            ("ReduceSumSquare", "SUMSQUARE"),
            ("ReduceL1", "L1"),
            ("ReduceL2", "L2"),
            ("ReduceMax", "MAX"),
            ("ReduceMin", "MIN"),
        )
    ),
    op(
        "ReduceSum",
        "reduce",
        RequireKey("mode", "LOGSUM"),
        Const(1, "axis", NAMED_AXES),
        *ALL_OF_THEM,
        before_lift=logarithm,
        lift_only=True,
    ),
    op(
        "ArgMax",
        "reduce",
        RequireKey("mode", "ARGMAX"),
        ignore("axis", "epsilon"),
        before_lift=flat_maximum,
        lift_only=True,
    ),
    op("ReduceMean", "reduceMean", NO_MEAN, *REDUCED, example_inputs="2,3 =[1]"),
    *ops(
        "ReduceL1=reduceL1 ReduceL2=reduceL2 ReduceMax=reduceMax ReduceMin=reduceMin "
        "ReduceSum=reduceSum ReduceProd=reduceProd ReduceLogSum=reduceLogSum "
        "ReduceSumSquare=reduceSumSquare ReduceLogSumExp=reduceLogSumExp",
        *REDUCED,
        example_inputs="2,3 =[1]",
    ),
    *ops("ArgMax=argMax ArgMin=argMin", Axis(), REMOVED_AXIS, FIRST),
    op(
        "TopK",
        "topK",
        Axis(),
        ConstOrInput(1, "K", shape=(1,)),
        Attr("largest", "useBottomK", NOT),
        RequireAttr("sorted", 1),
        Detail(read=check_count),
        example_inputs="2,6 =[2]",
    ),
    op(
        "TopK",
        "argSort",
        Axis(),
        Attr("largest", "descending", bool),
        RequireAttr("sorted", 1),
        before_lift=sort,
        lift_only=True,
    ),
    op(
        "CumSum",
        "cumSum",
        ConstOrInput(1, "axis", shape=()),
        Attr("exclusive", "excludeFinalSum", bool),
        Attr("reverse", kind=bool),
        example_inputs="2,3 =i64:",
    ),
    op("NonZero", "whereNonZero", ANY, INDEX_ROWS),
]
