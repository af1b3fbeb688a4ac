"""Normalizations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import ODD_SIZE, dim, odd_window, words
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext
from converter.formats.openvino.opset.rules.fields import Axes
from converter.graph.demands import axis_of
from converter.graph.value import Value
from converter.mapping.fields import (
    Attr,
    Field,
    Guard,
    ImpliedAttrs,
    RequireAttr,
    attrs,
    ignore,
)
from converter.mapping.rules import op

T = ir.DataType

# local response normalization --------------------------------------------------------------------


def _axes(r: LiftContext) -> list[int]:
    x = r.input(0)
    return sorted(axis_of(v, r.rank(x)) for v in r.ints(1, "the axes"))


class Neighbors(Field):
    """alpha, beta, bias and the odd size of a window over the channels, which are a constant input
    of the layer.

    An even size takes one neighbor less, and still divides by the size. The CPU runtime takes
    every bias for 1: (b + s)^p = b^p * (1 + s/b)^p.
    """

    names = keys = ("alpha", "beta", "bias", "size")

    def lift(self, r: LiftContext) -> None:
        a = r.attributes(alpha=float, beta=float, bias=float, size=int)
        alpha, size = odd_window(a.alpha, a.size)
        r.node.attrs |= {**vars(a), "alpha": alpha, "size": size}
        del r.node.inputs[1:]

    def lower(self, w: LowerContext) -> None:
        alpha, beta, bias = (float(w.attr(k)) for k in ("alpha", "beta", "bias"))
        w.layer.inputs.append(w.const([1], "axes"))
        w.set(alpha=alpha, beta=beta, bias=bias, size=w.attr("size"))
        if bias != 1 and bias > 0:
            w.set(alpha=alpha / bias, bias=1.0)
            y, factor = w.result(), w.like(w.data, bias**-beta)
            w.after_emit(lambda: w.put("Multiply", y, factor, auto_broadcast="numpy"))


def over_axes(r: LiftContext) -> None:
    """Compute x / (bias + alpha * mean of squares over the neighbors along all axes)^beta; the
    operator is the Div.
    """
    b, x, axes = r.b, r.input(0), _axes(r)
    a = r.attributes(alpha=float, beta=float, bias=float, size=int)
    total: Value = x * x
    for axis in axes:
        total = _sum_of_neighbors(r, total, axis, (a.size - 1) // 2)
    mean = total * b.like(x, a.alpha / a.size ** len(axes))
    base = mean + a.bias
    r.set_inputs(x, base**a.beta)


def _sum_of_neighbors(r: LiftContext, x: Value, axis: int, reach: int) -> Value:
    b, n = r.b, r.rank(x)
    size = dim(x, axis)
    if size is not None:
        reach = min(reach, max(size - 1, 0))  # there is nothing but padding beyond
    if not reach:
        return x
    pads = [0] * (2 * n)
    pads[axis], pads[n + axis] = reach, reach
    padded, last = b.Pad(x, pads), np.iinfo(np.int64).max
    ends = [i - 2 * reach or last for i in range(2 * reach + 1)]
    return b.Sum(*(b.Slice(padded, [i], [end], [axis]) for i, end in enumerate(ends)))


# mean and variance -------------------------------------------------------------------------------


def data_third(r: LiftContext) -> None:
    """Reorder the operands of the first revision: scale, bias, data, mean, variance."""
    r.set_inputs(*(r.input(i) for i in (2, 0, 1, 3, 4)))


def read_first_axes(r: LiftContext) -> None:
    """Read the axes of the first revision of MVN: a list, or all after the batch with or without
    the channels.
    """
    first = 1 if r.attr("across_channels", bool, 0) else 2
    rest = list(range(first, r.rank()))
    r.set(axes=r.attr("reduction_axes", list, []) or rest)
    if not r.node.attrs["axes"]:
        raise MappingError("the axes are empty", "R110")


# a norm ------------------------------------------------------------------------------------------


def not_zero(r: LiftContext) -> None:
    """Return 1 for a reduction over no axes, and 0 for 0 of either sign; the operator is the
    CastLike.
    """
    x = r.input(0)
    r.set_inputs(~r.b.Equal(x, r.b.like(x, 0)), x)


# rows --------------------------------------------------------------------------------------------

OVER_CHANNELS = Guard(
    "only a window over the channels is supported by this rule",
    lift_if=lambda r: _axes(r) == [1] and r.rank() >= 3,
)
BATCH = (
    Guard("training mode is not supported", lambda w: len(w.node.outputs) == 1),
    Guard(
        "the statistics must have the type of the data",
        lower_if=lambda w: len({v.dtype for v in w.node.inputs if v is not None}) == 1,
    ),
    Guard(
        "the data must have a channel axis, got rank 1",
        lift_if=lambda r: r.rank(r.input(2 if r.version < 5 else 0)) >= 2,
    ),
    Attr("epsilon", kind=float),
    RequireAttr("training_mode", 0),
    ImpliedAttrs(("momentum",)),
)
MVN = attrs(eps=float, normalize_variance=bool)
NORM = attrs(eps=float, eps_mode=words("add", "max"))

RULES = [
    op("BatchNormalization", "BatchNormInference", *BATCH, since=5),
    op(
        "BatchNormalization",
        "BatchNormInference",
        *BATCH,
        before_lift=data_third,
        until=4,
        lift_only=True,
    ),
    op("LRN", "LRN", OVER_CHANNELS, ODD_SIZE, Neighbors()),
    op("Div", "LRN", ignore(*Neighbors.keys), before_lift=over_axes, lift_only=True),
    op(
        "GroupNormalization",
        "GroupNormalization",
        Guard("only float32 data are supported", lambda w: w.data.dtype == T.FLOAT),
        *attrs(num_groups=int, epsilon=float),
        RequireAttr("stash_type", 1),
        since=12,
    ),
    op(
        "netconv::MVN",
        "MVN",
        *MVN,
        Attr("eps_mode", "", words("inside_sqrt", "outside_sqrt", upper=True), "inside_sqrt"),
        Axes(),
        since=6,
        example_inputs="1,2,3,3",
    ),
    op(
        "netconv::MVN",
        "MVN",
        *MVN,
        ignore("across_channels", "reduction_axes"),
        before_lift=read_first_axes,
        until=5,
        lift_only=True,
    ),
    op(
        "CastLike",
        "NormalizeL2",
        Guard(
            "only a normalization without axes is supported by this rule",
            lift_if=lambda r: not r.ints(1, "the axes"),
        ),
        ignore("eps", "eps_mode"),
        before_lift=not_zero,
        lift_only=True,
    ),
    op("netconv::NormalizeL2", "NormalizeL2", *NORM, Axes()),
    op("netconv::GRN", "GRN", *attrs(bias=float)),
]
