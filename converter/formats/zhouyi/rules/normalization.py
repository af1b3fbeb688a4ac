"""Normalization: folded batch statistics, statistics over any axes, moments, softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rules.context import LiftContext
from converter.formats.zhouyi.rules.fields import (
    AXES,
    axes_of,
    constant_of,
    flat,
    method,
    reads,
)
from converter.graph import CHANNELS_LAST_DOMAIN
from converter.graph.demands import axis_of
from converter.graph.value import Value
from converter.mapping.concepts.axes import Axis, nonnegative_axes
from converter.mapping.context import LowerContext, Results
from converter.mapping.fields import Attr, Detail, Field, Guard, RequireAttr, Weight, attrs, ignore
from converter.mapping.rules import custom, op, ops

EPSILON = Attr("epsilon", kind=float, default=1e-5)
SCALE = Weight("weights", 1, shape=flat("weights"))
SHIFT = Weight("biases", 2, shape=flat("biases"))
NO_STATISTICS = Guard(
    "mean and deviation outputs are not supported", lower_if=lambda w: len(w.node.outputs) == 1
)

# statistics of the training ----------------------------------------------------------------------


class FoldedStatistics(Field):
    """Scale, shift, mean and variance, folded into weights and biases along `axis`.

    The epsilon that is read has no further effect. Along other axes than the second and the last of
    an image the layer is read as a product and a sum.
    """

    folds = True
    names = ("epsilon", "momentum", "training_mode")
    keys = ("axis", "epsilon")
    blobs = ("weights", "biases")
    inputs = (1, 2, 3, 4)

    def lift(self, r: LiftContext) -> None:
        x, node = r.input(0), r.node
        rank, (scale, shift) = (
            len(r.static(x)),
            (r.blob(n).reshape(-1) for n in ("weights", "biases")),
        )
        axis = r.axis(-1)
        if rank >= 3 and axis in (1, rank - 1):
            mean = r.b.const(np.zeros_like(scale), "mean")
            variance = r.b.const(np.ones_like(scale), "variance")
            folded = (r.weights("weights", scale), r.weights("biases", shift))
            node.inputs, node.last = [x, *folded, mean, variance], axis == rank - 1
            node.attrs["epsilon"] = 0.0
            return
        shape = [-1 if i == axis else 1 for i in range(rank)]
        node.op, node.inputs = "Mul", [x, r.b.const(scale.reshape(shape))]
        node.last = False
        r.after_emit(lambda results: [results[0] + r.b.const(shift.reshape(shape))])

    def lower(self, w: LowerContext) -> None:
        if w.attr("training_mode") or len(w.node.outputs) > 1:
            raise MappingError("training_mode=1 is not supported")
        parts = [constant_of(w, i, "the statistics") for i in range(1, 5)]
        scale, shift, mean, variance = (np.asarray(v, np.float64) for v in parts)
        epsilon, rank, dtype = float(w.attr("epsilon")), len(w.static()), parts[0].dtype
        # a variance below 0 gives the same result as the operator
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = scale / np.sqrt(variance + epsilon)
        w.layer.blobs["weights"] = weights.astype(dtype)
        w.layer.blobs["biases"] = (shift - mean * weights).astype(dtype)
        w.set(axis=rank - 1 if rank >= 3 else 1, epsilon=epsilon)


# statistics of the data --------------------------------------------------------------------------


def read_channel_axis(r: LiftContext) -> None:
    """Read `axis`, the axis of the channels: the second or the last one; the last is written."""
    rank = len(r.shape)
    given = axes_of(r.layer) if "axis" in r.layer.attrs else [-1]
    axis = axis_of(given[0], rank) if len(given) == 1 else 0
    if axis not in (1, rank - 1) or rank < 3:
        message = f"axis={given} must be the second or the last axis"
        raise MappingError(message, "R110")
    r.node.last = axis == rank - 1


def write_channel_axis(w: LowerContext) -> None:
    """Write the axis of the channels, the last one."""
    w.set(axis=w.rank() - 1)


CHANNEL_AXIS = Detail(read=read_channel_axis, write=write_channel_axis, keys=("axis",))


def read_last_axes(r: LiftContext) -> None:
    """Read `axis` as the first of the last axes, all of which are normalized."""
    axes, rank = axes_of(r.layer), r.rank(r.input(0))
    found = nonnegative_axes(axes, rank)
    if not found or found != list(range(found[0], rank)):
        raise MappingError(f"axis={axes} must be the last axes", "R110")
    r.node.attrs["axis"] = found[0]


def write_last_axes(w: LowerContext) -> None:
    """Write the axes from `axis` to the last one."""
    rank = w.rank()
    w.set(axis=list(range(axis_of(int(w.attr("axis")), rank), rank)))


LAST_AXES = Detail(read=read_last_axes, write=write_last_axes, names=("axis",), keys=("axis",))


def moments(r: LiftContext) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return the mean, the data minus their mean, and the variance over `axis`, which stays as an
    axis of length 1.
    """
    b, x, axes = r.b, r.input(0), axes_of(r.layer)
    mean = b.ReduceMean(x, axes)
    d = x - mean
    return mean, d, b.ReduceMean(d * d, axes)


def plus_epsilon(r: LiftContext, x: ir.Value) -> ir.Value:
    """Add epsilon, 1e-5 by default."""
    return r.b.Add(x, r.attr("epsilon", float, 1e-5))


def standardise(r: LiftContext) -> None:
    """Set the operands of a Div to the centered data and the standard deviation."""
    _, d, variance = moments(r)
    r.node.inputs = [d, r.b.Sqrt(plus_epsilon(r, variance))]


def by_root_mean_square(r: LiftContext) -> None:
    """Set the operands of a Div to the data and the root of their mean square."""
    x, b = r.input(0), r.b
    axes = axes_of(r.layer) if "axis" in r.layer.attrs else [-1]
    square = b.ReduceMean(x * x, axes)
    r.node.inputs = [x, b.Sqrt(plus_epsilon(r, square))]


def weighted(r: LiftContext, y: ir.Value) -> ir.Value:
    """Multiply by the weights, if the layer has any."""
    return (y * r.weights("weights")) if r.layer.blobs else y


def least(r: LiftContext, size: ir.Value) -> ir.Value:
    """Read `epsilon` as the lower bound of the sum."""
    return r.b.Max(size, r.attr("epsilon", float, 1e-12))


def by_sum(r: LiftContext) -> None:
    """Set the operands of a Div to the data and the sum of their magnitudes."""
    x = r.input(0)
    r.node.inputs = [x, least(r, r.b.ReduceL1(x, axes_of(r.layer)))]


def by_length(r: LiftContext) -> None:
    """Set the operands of a Div to the data and their Euclidean length."""
    x, b = r.input(0), r.b
    squares = b.ReduceSum(x * x, axes_of(r.layer))
    r.node.inputs = [x, b.Sqrt(least(r, squares))]


def within_channel(r: LiftContext) -> None:
    """Normalize by the mean of the squares of size * size neighbors of the same channel, as far as
    they exist.
    """
    x, size, b = r.input(0), r.count("size"), r.b
    if size % 2 == 0:
        raise MappingError("size must be odd, because neighbors within a channel need a center")
    wanted = {"alpha": 1.0, "beta": 0.5, "bias": 1.0}
    alpha, beta, bias = (r.attr(k, float, v) for k, v in wanted.items())
    attrs: dict[str, Any] = {"kernel_shape": [size, size], "strides": [1, 1]}
    attrs["pads"] = [size // 2] * 4
    square = x * x
    mean = b.AveragePool(square, domain=CHANNELS_LAST_DOMAIN, **attrs)
    base = mean * alpha + bias
    r.node.inputs = [x, base**beta]


def odd_neighbors(w: LowerContext) -> bool:
    """Return whether the data have rank 4 and the size is odd."""
    return w.rank() == 4 and w.attr("size") % 2 == 1


def transposed(r: LiftContext, x: Value) -> Value:
    """Reverse the channels before the operator and after it: of an even number of neighbors the
    additional one is before a channel, in ONNX after it.
    """
    if r.attr("size", int) % 2:
        return x
    return x[..., ::-1]


def transposed_input(r: LiftContext) -> Value:
    """Return the transposed data."""
    return transposed(r, r.data)


def mean_and_variance(r: LiftContext) -> None:
    """Append the variance to the result; without keepdims both lose the reduced axes."""
    _, _, variance = moments(r)
    axes, kept, r.outputs = axes_of(r.layer), r.attr("keepdims", bool, 1), 1

    def finish(results: Results) -> Results:
        found = [*results, variance]
        return found if kept else [r.b.Squeeze(v, axes) for v in found]

    r.after_emit(finish)


def lift_normalized_moments(r: LiftContext) -> list[ir.Value]:
    """Convert sums of x - shift and of its square to mean and variance."""
    total, squares, shift = (r.input(i) for i in range(3))
    count = r.attr("counts", float)
    mean, square = total / count, squares / count
    return [mean + shift, square - (mean * mean)]


def lift_sufficient_statistics(r: LiftContext) -> list[ir.Value]:
    """Lift SufficientStatistics: the sums of the shifted data and of their squares."""
    axes, d = axes_of(r.layer), r.input(0) - r.input(1)
    return [r.b.ReduceSum(v, axes) for v in (d, d * d)]


RULES = [
    op("BatchNormalization", "BatchNorm", FoldedStatistics()),
    op(
        "InstanceNormalization",
        "InstanceNorm",
        Attr("epsilon", kind=float),
        Weight("weights", 1),
        Weight("biases", 2),
        ignore("non_channel_axes"),
        example_inputs="1,4,8,8 =4 =4",
    ),
    op(
        "GroupNormalization",
        "GroupNorm",
        CHANNEL_AXIS,
        Attr("num_groups", "group", int, default=32),
        EPSILON,
        SCALE,
        SHIFT,
        RequireAttr("stash_type", 1),
        example_inputs="1,4,8,8 =4 =4",
    ),
    op(
        "LayerNormalization",
        "LayerNorm",
        LAST_AXES,
        EPSILON,
        Weight("weights", 1),
        Weight("biases", 2),
        RequireAttr("stash_type", 1),
        NO_STATISTICS,
        example_inputs="2,3,4 =4 =4",
    ),
    op(
        "LRN",
        "LRN",
        Guard("only data of rank 4 and an odd size are supported", odd_neighbors),
        method("ACROSS_CHANNELS"),
        *attrs(alpha=1.0, beta=0.5, bias=1.0, size=int),
        before_lift=transposed_input,
        after_lift=transposed,
        example_inputs="1,4,8,8",
    ),
    op(
        "Div",
        "LRN",
        method("WITHIN_CHANNEL"),
        reads("alpha", "beta", "bias", "size"),
        before_lift=within_channel,
        lift_only=True,
    ),
    *ops("Softmax LogSoftmax", Axis(default=-1), example_inputs="2,3"),
    op("Div", "MVN", reads("axis", "epsilon"), before_lift=standardise, lift_only=True),
    op(
        "Div",
        "RMSNorm",
        reads("axis", "epsilon", blobs=("weights",)),
        before_lift=by_root_mean_square,
        after_lift=weighted,
        lift_only=True,
    ),
    *(
        op(
            "Div",
            "Normalization",
            method(name),
            reads("axis", "epsilon"),
            before_lift=divisor,
            lift_only=True,
        )
        for name, divisor in (("L1", by_sum), ("L2", by_length))
    ),
    op(
        "ReduceMean",
        "Moments",
        AXES,
        reads("keepdims"),
        before_lift=mean_and_variance,
        lift_only=True,
    ),
    custom("", "NormalizedMoments", lift=lift_normalized_moments),
    custom("", "SufficientStatistics", lift=lift_sufficient_statistics),
]
