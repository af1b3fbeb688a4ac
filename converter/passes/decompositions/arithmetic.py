"""Sums, products, and operators that only change the shape or type of their operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes
from converter.graph.infer import constant, rank_of, shape_of
from converter.graph.value import operand, optional, producer_if, with_operators
from converter.graph.walk import is_needed
from converter.passes import computed_sizes
from converter.passes.decompositions.activations import x_of
from converter.passes.decompositions.table import Table


def gemm(node: ir.Node, b: Builder) -> Value | None:
    """alpha * A' B' + beta * C, with transposes and factors folded into constant operands, but for
    compressed ones.
    """
    a, w = x_of(node), node.inputs[1]
    attrs = attributes(node)
    assert w is not None
    if attrs["transA"]:
        a = b.Transpose(a, perm=[1, 0])
    weight = constant(w) if producer_if(w, "DequantizeLinear") is None else None
    if weight is not None:
        weight = weight.T if attrs["transB"] else weight
        if attrs["alpha"] != 1.0:
            weight = weight * np.asarray(attrs["alpha"], weight.dtype)
        w = b.const(weight, str(w.name))
    elif attrs["transB"]:
        w = b.Transpose(w, perm=[1, 0])
    y = a @ with_operators(w)
    if weight is None and attrs["alpha"] != 1.0:
        y = y * attrs["alpha"]
    c = optional(node, 2)
    if c is None:
        return y
    if attrs["beta"] != 1.0:
        c = c * attrs["beta"]
    return y + c


def global_pool(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite GlobalAveragePool and GlobalMaxPool as a reduction over the spatial axes."""
    rank = rank_of(x_of(node))
    if rank is None:
        return None
    kind = "ReduceMean" if node.op_type == "GlobalAveragePool" else "ReduceMax"
    return b.operator(kind)(x_of(node), list(range(2, rank)), keepdims=1)


def flatten(node: ir.Node, b: Builder) -> Value | None:
    """Write both sizes as numbers if they are known, because -1 is ambiguous next to a dimension
    that may be 0.
    """
    axis, rank = attributes(node)["axis"], rank_of(x_of(node))
    if rank is None:
        return b.Reshape(x_of(node), [0, -1]) if axis == 1 else None
    dims, axis = list(x_of(node).shape or ()), axis % rank if axis < 0 else axis
    before, after = _product(dims[:axis]), _product(dims[axis:])
    if before is None and not after:
        return b.Reshape(x_of(node), [0, -1]) if axis == 1 else computed_sizes.flatten(node, b)
    return b.Reshape(x_of(node), [-1 if before is None else before, -1 if after is None else after])


def _product(dims: Sequence[Any]) -> int | None:
    return math.prod(dims) if all(isinstance(d, int) for d in dims) else None


def static_reshape(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite an operator that only changes a static shape as Reshape."""
    shape = shape_of(node.outputs[0])
    return None if shape is None else b.Reshape(x_of(node), list(shape))


def variadic(node: ir.Node, b: Builder) -> Value | None:
    """Combine three or more operands pairwise.

    One operand is returned unchanged; with two, Sum becomes Add.
    """
    operands = [with_operators(v) for v in node.inputs if v is not None]
    kind = "Add" if node.op_type == "Sum" else node.op_type
    if len(operands) == 1:
        return b.Identity(operands[0])
    if len(operands) == 2 and kind == node.op_type:
        return None
    return reduce(b.operator(kind), operands)


def mean(node: ir.Node, b: Builder) -> Value:
    """Rewrite Mean as a Sum divided by the number of inputs."""
    total = b.Sum(*node.inputs)
    return total / len(node.inputs)


def sub(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite Sub as an Add of the negative; unsigned types have none."""
    y = node.inputs[1]
    assert y is not None
    array = constant(y)
    if array is not None and array.dtype.kind == "f":
        return x_of(node) + b.const(-array, str(y.name))
    return x_of(node) + y * -1 if y.dtype is not None and y.dtype.is_signed() else None


def neg(node: ir.Node, b: Builder) -> Value:
    """Rewrite Neg as a product with -1."""
    return x_of(node) * -1


def reciprocal(node: ir.Node, b: Builder) -> Value:
    """Rewrite Reciprocal as 1 / x."""
    return 1 / x_of(node)


def div(node: ir.Node, b: Builder) -> Value | None:
    """Multiply by the reciprocal of a constant float divisor."""
    array = constant(node.inputs[1])
    if array is None or array.dtype.kind != "f" or not np.all(array):
        return None
    return x_of(node) * b.const((1.0 / array.astype(np.float64)).astype(array.dtype))


def trains(node: ir.Node) -> bool:
    """Return whether a Dropout is, or may be, in training mode, in which it drops random
    elements.
    """
    mode = optional(node, 2)
    flag = constant(mode)
    return mode is not None and (flag is None or bool(flag.any()))


def identity(node: ir.Node, b: Builder) -> Value | None:
    """Remove the node, or keep an Identity if a graph input is an output."""
    x = x_of(node)
    if node.op_type == "Dropout" and trains(node):
        return None
    if len(node.outputs) > 1 and is_needed(node.outputs[1]):
        return None
    if node.outputs[0].is_graph_output() and (
        x.is_graph_input() or x.is_graph_output() or x.is_initializer() or x.graph is not node.graph
    ):
        return None
    return x


def batch_normalization(node: ir.Node, b: Builder) -> Value | Sequence[Value | None] | None:
    """Rewrite as x * scale/sqrt(var+eps) + (bias - mean*scale/sqrt(var+eps)) for constant
    statistics, and as separate steps for others; in training mode with the statistics of the batch.
    """
    if attributes(node)["training_mode"]:
        return _of_the_batch(node, b)
    arrays = [constant(v) for v in node.inputs[1:]]
    rank = rank_of(x_of(node))
    if rank is None:
        return None
    if any(a is None for a in arrays):
        return _of_values(node, b, [-1, *[1] * (rank - 2)])
    scale, bias, mean_, var = (np.asarray(a, np.float64) for a in arrays if a is not None)
    dtype = arrays[0].dtype if arrays[0] is not None else np.float32
    with np.errstate(
        invalid="ignore", divide="ignore"
    ):  # a negative variance gives the same result as the operator does
        factor = scale / np.sqrt(var + attributes(node)["epsilon"])
    shape = (-1, *[1] * (rank - 2))
    y = x_of(node) * b.const(factor.reshape(shape).astype(dtype))
    return y + b.const((bias - mean_ * factor).reshape(shape).astype(dtype))


def _of_values(node: ir.Node, b: Builder, column: list[int]) -> Value | None:
    """Normalize with computed statistics."""
    scale, bias, center, spread = (b.Reshape(operand(node, i), column) for i in range(1, 5))
    deviation = b.Sqrt(spread + attributes(node)["epsilon"])
    return (x_of(node) - center) / deviation * scale + bias


def _of_the_batch(node: ir.Node, b: Builder) -> Sequence[Value | None] | None:
    """Return the result, and the running mean and variance updated with those of the batch."""
    x, rank, attrs = x_of(node), rank_of(x_of(node)), attributes(node)
    scale, bias, mean_, var = (operand(node, i) for i in range(1, 5))
    if rank is None:
        return None
    axes, column = [i for i in range(rank) if i != 1], [-1, *[1] * (rank - 2)]
    center = b.ReduceMean(x, axes, keepdims=1)
    apart = x - center
    spread = b.ReduceMean(apart * apart, axes, keepdims=1)
    y = apart / b.Sqrt(spread + attrs["epsilon"])
    y = y * b.Reshape(scale, column) + b.Reshape(bias, column)
    share = attrs["momentum"]
    running = [
        old * share + b.Reshape(new, [-1]) * (1 - share)
        for old, new in ((mean_, center), (var, spread))
    ]
    return [y, *running][: len(node.outputs)]


TABLE: Table = {
    ("", "Gemm"): gemm,
    ("", "GlobalAveragePool"): global_pool,
    ("", "GlobalMaxPool"): global_pool,
    ("", "Flatten"): flatten,
    ("", "Squeeze"): static_reshape,
    ("", "Unsqueeze"): static_reshape,
    ("", "Sum"): variadic,
    ("", "Max"): variadic,
    ("", "Mean"): mean,
    ("", "Sub"): sub,
    ("", "Neg"): neg,
    ("", "Reciprocal"): reciprocal,
    ("", "Div"): div,
    ("", "Identity"): identity,
    ("", "Dropout"): identity,
    ("", "BatchNormalization"): batch_normalization,
}
