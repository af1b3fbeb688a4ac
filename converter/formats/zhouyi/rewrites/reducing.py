"""Reductions that keep their axes, LayerNormalization by computed operands."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rewrites.operands import attributes, static
from converter.formats.zhouyi.types import numpy_type
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.graph.value import Value, operand, optional


def axes_of(node: ir.Node) -> list[int] | None:
    """The axes as written; None for all, [] for none at all."""
    source = optional(node, 1)
    array = constant(source)
    if source is not None and array is None:
        raise MappingError("the axes must be constant")
    if array is None or array.size == 0:
        return [] if attributes(node).get("noop_with_empty_axes", 0) else None
    return [int(a) for a in array.reshape(-1)]


def kept(node: ir.Node, b: Builder) -> Value | None:
    """The layers keep the reduced axes: a Reshape drops them. The common decompositions have none
    for sums, and more layers for the others.

    Reducing nothing is nothing; truth is reduced as numbers.
    """
    x, axes, a = operand(node), axes_of(node), attributes(node)
    reduce = b.operator(node.op_type)
    if axes == []:
        return x if node.op_type not in ("ReduceL1", "ReduceL2") else b.Abs(x)
    if not static(x):
        return b.Reshape(reduce(b.Reshape(x, [1]), [0]), [])
    if x.dtype == ir.DataType.BOOL:
        wide = reduce(b.Cast(x, to=ir.DataType.UINT8), axes, keepdims=a["keepdims"])
        return b.Cast(wide, to=ir.DataType.BOOL)
    if not a["keepdims"]:
        return b.Reshape(reduce(x, axes, keepdims=1), static(node.outputs[0]))
    return reduce(x, axes, keepdims=1) if a.get("noop_with_empty_axes", 0) else None


def best(node: ir.Node, b: Builder) -> Value | None:
    """The same for the places of extremes, which no common decomposition has."""
    a = attributes(node)
    if a["keepdims"]:
        return None
    found = b.operator(node.op_type)(operand(node), **{**a, "keepdims": 1})
    return b.Reshape(found, static(node.outputs[0]))


def with_shift(node: ir.Node, b: Builder) -> Value | None:
    """A LayerNorm has scale and shift, both constant: zeros where the shift is left out, computed
    ones behind it; the common decomposition does without the layer.
    """
    if len(node.outputs) > 1:
        return None
    x, scale, shift, a = operand(node), operand(node, 1), optional(node, 2), attributes(node)
    axis = a["axis"] % len(static(x))
    shape, dtype = static(x)[axis:], numpy_type(x)
    known = constant(scale) if shift is None else None
    factors = np.ones(shape, dtype) if known is None else np.broadcast_to(known, shape)
    zeros = b.const(np.zeros(shape, dtype))
    y = b.LayerNormalization(x, b.const(factors), zeros, axis=axis, epsilon=a["epsilon"])
    if known is not None:
        return y
    return y * scale if shift is None else y * scale + shift
