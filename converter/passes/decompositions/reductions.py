"""Reductions, and functions over an axis, as ReduceSum, ReduceMax and arithmetic."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes, attrs_of
from converter.graph.infer import Array, constant, known, rank_of, shape_of
from converter.graph.sizes import arange
from converter.graph.value import INT64, array_type, optional
from converter.passes.decompositions.activations import is_float, scaled, x_of
from converter.passes.decompositions.computed import computed_axis
from converter.passes.decompositions.table import Decomposition, Table


def _over(node: ir.Node) -> tuple[Any, dict[str, Any]]:
    """Return the axes operand and the attributes for another reduction over the same axes."""
    return optional(node, 1), attrs_of(node)


def reduces_nothing(node: ir.Node) -> bool:
    """Return whether the node reduces no axis: its axes are empty, and that means none."""
    axes = optional(node, 1)
    return bool(attributes(node)["noop_with_empty_axes"]) and (
        axes is None or shape_of(axes) == (0,)
    )


def each_alone(node: ir.Node, b: Builder) -> Value:
    """Apply a reduction over no axis to each element."""
    x = x_of(node)
    kind = {"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log"}.get(
        node.op_type, "Identity"
    )
    return x * x if node.op_type == "ReduceSumSquare" else b.operator(kind)(x)


def reduce_nothing(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a reduction over no axis as an operation on each element."""
    return each_alone(node, b) if reduces_nothing(node) else None


def over_some(reduce: Callable[..., Value | None]) -> Decomposition:
    """Return the decomposition for a reduction (b, x, axes operand, **attributes) over at least one
    axis.
    """

    @functools.wraps(reduce)
    def decomposition(node: ir.Node, b: Builder) -> Value | None:
        if reduces_nothing(node):
            return each_alone(node, b)
        return reduce(b, x_of(node), optional(node, 1), **attrs_of(node))

    return decomposition


@over_some
def reduce_l1(b: Builder, x: Value, axes: Value | None, **attrs: Any) -> Value:
    """Rewrite ReduceL1 as a ReduceSum of magnitudes."""
    y: Value = b.ReduceSum(b.Abs(x), axes, **attrs)
    return y


@over_some
def reduce_l2(b: Builder, x: Value, axes: Value | None, **attrs: Any) -> Value | None:
    """Rewrite ReduceL2 of floats as the root of ReduceSumSquare."""
    return b.Sqrt(b.ReduceSumSquare(x, axes, **attrs)) if is_float(x) else None


@over_some
def reduce_sum_square(b: Builder, x: Value, axes: Value | None, **attrs: Any) -> Value:
    """Rewrite ReduceSumSquare as a ReduceSum of squares."""
    y: Value = b.ReduceSum(x * x, axes, **attrs)
    return y


@over_some
def reduce_log_sum(b: Builder, x: Value, axes: Value | None, **attrs: Any) -> Value | None:
    """Rewrite ReduceLogSum of floats as the logarithm of ReduceSum."""
    return b.Log(b.ReduceSum(x, axes, **attrs)) if is_float(x) else None


@over_some
def reduce_log_sum_exp(b: Builder, x: Value, axes: Value | None, **attrs: Any) -> Value | None:
    """max + log(sum(exp(x - max))), without overflow and without subtracting infinities"""
    if not is_float(x):
        return None
    top = _finite(b, b.ReduceMax(x, axes, keepdims=1))
    total = b.Log(b.ReduceSum(b.Exp(x - top), axes, **attrs))
    return total + (top if attrs.get("keepdims", 1) else b.ReduceMax(top, axes, keepdims=0))


def _finite(b: Builder, x: Value) -> Value:
    """Replace infinities by the largest finite numbers of the type; those of double precision by 0,
    since targets store them as floats, which lack its largest numbers.
    """
    if x.dtype == ir.DataType.DOUBLE:
        return b.Where(b.IsInf(x), b.like(x, 0), x)
    most = float(np.finfo(array_type(x)).max)
    return b.Clip(x, -most, most)


@over_some
def reduce_mean(b: Builder, x: Value, axes: Value | None, **attrs: Any) -> Value | None:
    """Rewrite ReduceMean of floats as a ReduceSum times 1 / count, if the sizes are static."""
    chosen, shape = known(axes), shape_of(x)
    if shape is None or (axes is not None and chosen is None) or not is_float(x):
        return None
    positions = range(len(shape)) if chosen is None or not chosen.size else chosen.reshape(-1)
    count = np.prod([shape[int(a)] for a in positions])
    return scaled(b, b.ReduceSum(x, axes, **attrs), 1 / float(count)) if count else None


@over_some
def reduce_min(b: Builder, x: Value, axes: Value | None, **attrs: Any) -> Value | None:
    """Rewrite ReduceMin of floats as the negative of a ReduceMax of negatives."""
    return -b.ReduceMax(-x, axes, **attrs) if is_float(x) else None


def arg_max(node: ir.Node, b: Builder) -> Value | None:
    """Return the last of several extremes by searching backwards for the first."""
    attrs, x = attributes(node), x_of(node)
    shape, axis = shape_of(x), attrs["axis"]
    if not attrs["select_last_index"] or shape is None:
        return None
    backwards = b.Slice(x, [-1], [np.iinfo(np.int64).min + 1], [axis], [-1])
    found = b.operator(node.op_type)(backwards, axis=axis, keepdims=attrs["keepdims"])
    return b.const(np.array(shape[axis] - 1, np.int64)) - found


def arg_min(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite ArgMin of floats as ArgMax of negatives."""
    if attributes(node)["select_last_index"]:
        return arg_max(node, b)
    return b.ArgMax(-x_of(node), **attrs_of(node)) if is_float(x_of(node)) else None


def log_softmax(node: ir.Node, b: Builder) -> Value:
    """Rewrite LogSoftmax; the largest element is subtracted first, against overflow."""
    x, axis = x_of(node), attributes(node)["axis"]
    shifted = x - b.ReduceMax(x, [axis])
    return shifted - b.Log(b.ReduceSum(b.Exp(shifted), [axis]))


def softmax(node: ir.Node, b: Builder) -> Value:
    """Rewrite Softmax; the largest element is subtracted first, against overflow."""
    x, axis = x_of(node), attributes(node)["axis"]
    powers = b.Exp(x - b.ReduceMax(x, [axis]))
    return powers / b.ReduceSum(powers, [axis])


def hardmax(node: ir.Node, b: Builder) -> Value | None:
    """Return 1 at the first maximum along the axis, 0 elsewhere."""
    x, axis, shape = x_of(node), attributes(node)["axis"], x_of(node).shape
    if shape is None or not isinstance(shape[axis], int) or x.dtype is None:
        return None
    position = b.ArgMax(x, axis=axis, keepdims=0)
    return b.OneHot(position, [shape[axis]], np.array([0, 1], x.dtype.numpy()), axis=axis)


def one_hot(node: ir.Node, b: Builder) -> Value | None:
    """(index == position) ? on : off, with negative indices counted from the end"""
    depth, rank = constant(node.inputs[1]), rank_of(x_of(node))
    if rank is None:
        return None
    axis = attributes(node)["axis"] % (rank + 1)
    line = [-1 if i == axis else 1 for i in range(rank + 1)]
    index = b.Cast(x_of(node), to=INT64) if x_of(node).dtype != INT64 else x_of(node)
    count: Value | Array
    positions: Value | Array
    if depth is None:
        count = b.Cast(b.Reshape(node.inputs[1], []), to=INT64)
        positions = b.Reshape(b.Range(np.int64(0), count, np.int64(1)), line)
    else:
        count = np.array(int(depth.reshape(-1)[0]))
        positions = arange(int(count)).reshape(line)
    index = b.Where(index < 0, index + count, index)
    off, on = b.Split(node.inputs[2], outputs=2, axis=0, num_outputs=2)
    return b.Where(b.Equal(b.Unsqueeze(index, [axis]), positions), on, off)


def cum_sum(node: ir.Node, b: Builder) -> Value | None:
    """Compute running sums of floats as a product with a triangular matrix of ones, with the axis
    moved to the end.

    Integers: exact sums over 1, 2, 4, ... neighbors.

    For a computed axis, see `computed`.
    """
    if constant(node.inputs[1]) is None:
        return computed_axis(node, b)
    x, axis, shape = x_of(node), constant(node.inputs[1]), shape_of(x_of(node))
    if axis is None or x.dtype is None or not shape:
        return None
    position, attrs = int(axis.reshape(())) % len(shape), attributes(node)
    if not is_float(x):
        return _running(x, position, shape[position], attrs, b)
    triangle = np.triu(np.ones((shape[position],) * 2), 1 if attrs["exclusive"] else 0)
    triangle = (triangle.T if attrs["reverse"] else triangle).astype(x.dtype.numpy())
    perm = [i for i in range(len(shape)) if i != position] + [position]
    if position == len(shape) - 1:
        return x @ triangle
    return b.Transpose(
        b.Transpose(x, perm=perm) @ triangle, perm=[int(i) for i in np.argsort(perm)]
    )


def _running(x: Value, axis: int, count: int, attrs: dict[str, Any], b: Builder) -> Value:
    """Compute the running sum of `count` elements along `axis` in log2(count) additions of a tensor
    and a shifted copy.
    """
    back = bool(attrs["reverse"])

    def shifted(value: Value, by: int) -> Value:
        kept = (
            b.Slice(value, [by], [count], [axis])
            if back
            else b.Slice(value, [0], [count - by], [axis])
        )
        return b.Pad(kept, [0, by] if back else [by, 0], 0, [axis])

    exclusive = bool(attrs["exclusive"])
    if exclusive and count == 1:
        return x * 0
    total = shifted(x, 1) if exclusive else x
    by = 1
    while by < count:
        total, by = total + shifted(total, by), 2 * by
    return total if total is not x else b.Identity(x)


TABLE: Table = {
    ("", "ReduceMax"): reduce_nothing,
    ("", "ReduceProd"): reduce_nothing,
    ("", "ReduceSum"): reduce_nothing,
    ("", "ReduceL1"): reduce_l1,
    ("", "ReduceL2"): reduce_l2,
    ("", "ReduceSumSquare"): reduce_sum_square,
    ("", "ReduceLogSum"): reduce_log_sum,
    ("", "ReduceLogSumExp"): reduce_log_sum_exp,
    ("", "ReduceMean"): reduce_mean,
    ("", "ReduceMin"): reduce_min,
    ("", "ArgMax"): arg_max,
    ("", "ArgMin"): arg_min,
    ("", "LogSoftmax"): log_softmax,
    ("", "Softmax"): softmax,
    ("", "Hardmax"): hardmax,
    ("", "OneHot"): one_hot,
    ("", "CumSum"): cum_sum,
}
