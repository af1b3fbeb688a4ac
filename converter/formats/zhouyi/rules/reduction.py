"""Layers along axes: reductions, indices of extremes, running sums, the best k, histograms."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rules.context import LiftContext
from converter.formats.zhouyi.rules.fields import (
    AXES,
    CAST_TO_DECLARED,
    booleans,
    constant_of,
    method,
)
from converter.graph.value import Value, with_operators
from converter.mapping.concepts.axes import Axis, AxisInput
from converter.mapping.context import LowerContext
from converter.mapping.fields import Attr, Detail, RequireAttr, attrs
from converter.mapping.rules import op, ops

T = ir.DataType


def read_kept(r: LiftContext) -> None:
    """Read `keepdims`; written layers always keep the reduced axes with length 1."""
    r.node.attrs["keepdims"] = r.attr("keepdims", bool, 1)


def write_kept(w: LowerContext) -> None:
    """Check that a reduction keeps its axes, as the layer does."""
    if not w.attr("keepdims"):
        raise MappingError("keepdims must be 1")


KEPT = Detail(read=read_kept, write=write_kept, names=("keepdims",), keys=("keepdims",))


def read_best(r: LiftContext) -> None:
    """k: a constant input <-> a key. Of equal elements the first is selected, or the last by
    `select_index`.

    The format's own default of `select_index`, last, does not apply to float networks that the
    tools write.
    """
    if r.layer.attrs.get("k") is None:
        raise MappingError("k must be constant")
    b, x = r.b, r.input(0)
    if str(r.layer.attrs.get("select_index")).upper() == "LAST":
        axis = AXIS.read(r)
        last = r.static(x)[axis] - 1
        x = b.Slice(x, [-1], [-(last + 2)], [axis], [-1])  # in this order it is the first
        r.after_emit(lambda found: [found[0], last - with_operators(found[1])])
    r.node.inputs, r.outputs = [x, b.const([r.attr("k", int)], "k")], 2


def write_best(w: LowerContext) -> None:
    """Write k of a TopK; equal elements are in ascending order of index."""
    w.set(k=int(constant_of(w, 1, "k").reshape(-1)[0]), select_index="first")


BEST = Detail(read=read_best, write=write_best, inputs=(1,), keys=("k", "select_index"))


def as_numbers(r: LiftContext) -> Value:
    """Return booleans as int32."""
    return r.b.Cast(r.data, to=T.INT32)


def as_boolean(r: LiftContext, y: ir.Value) -> ir.Value:
    """Cast the result to booleans."""
    return r.b.Cast(y, to=T.BOOL)


def squares(r: LiftContext) -> Value:
    """Return the squared differences between the data and their mean."""
    d = r.data - r.b.ReduceMean(r.data, r.node.inputs[1])
    return d * d


def unbiased(r: LiftContext, total: Value) -> Value:
    """Divide the sum by the number of reduced elements minus 1."""
    axes, shape = r.known(r.node.inputs[1], "the axes"), r.shape
    count = int(np.prod([shape[int(a)] for a in axes]))
    return total / (count - 1)


def zeros(r: LiftContext) -> Value:
    """Return 1 where the data are 0, else 0."""
    return r.b.Cast(r.b.Equal(r.data, 0), to=T.FLOAT)


def two_axes(r: LiftContext) -> Value:
    """Reshape batches to a matrix."""
    shape = r.static(least=1)
    return r.data if len(shape) == 2 else r.b.Reshape(r.data, [shape[0], -1])


AXIS = Axis()
RUNNING = attrs(exclusive=False, reverse=False)
RULES = [
    *(
        op(f"Reduce{name}", "Reduce", method(name.upper()), AXES, KEPT, example_inputs="2,3,4 =1")
        for name in ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum")
    ),
    *(
        op(
            name,
            "Reduce",
            method(word),
            booleans(0),
            AXES,
            KEPT,
            before_lift=as_numbers,
            after_lift=as_boolean,
            lift_only=True,
        )
        for name, word in (("ReduceMin", "ALL"), ("ReduceMax", "ANY"))
    ),
    op(
        "ReduceMean",
        "Reduce",
        method("VARIANCE"),
        AXES,
        KEPT,
        before_lift=squares,
        lift_only=True,
    ),
    op(
        "ReduceSum",
        "Reduce",
        method("UNBIASED_VARIANCE"),
        AXES,
        KEPT,
        before_lift=squares,
        after_lift=unbiased,
        lift_only=True,
    ),
    *(
        op(
            f"Arg{word.title()}",
            "ArgMinMax",
            method(word),
            Axis(default=-1),
            KEPT,
            Attr("select_last_index", kind=bool, default=0),
            example_inputs="2,3",
        )
        for word in ("MAX", "MIN")
    ),
    op("CumSum", "Cumulate", method("SUM"), AxisInput(), *RUNNING, example_inputs="2,3 ="),
    op("netconv::CumProd", "Cumulate", method("PROD"), AXIS, *RUNNING),
    op("TopK", "TopK", BEST, AXIS, *attrs(largest=True, sorted=True), example_inputs="2,3 =[2]"),
    *ops("netconv::InTopK", Attr("k", kind=int), example_inputs="2,3 i32:2"),
    op("ReduceMean", "ZeroFraction", RequireAttr("keepdims", 0), before_lift=zeros, lift_only=True),
    op(
        "netconv::Histogram",
        "Count",
        Attr("nbins", kind=int),
        Attr("low", "min", float),
        Attr("high", "max", float),
        Attr("closed", "discrete", bool, default=1),
        CAST_TO_DECLARED,
        before_lift=two_axes,
    ),
]
