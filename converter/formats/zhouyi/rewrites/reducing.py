"""Reductions: axes that stay, and those that other reductions make up."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.rewrites.register import attributes, operand, optional, rewrites, static
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.mapping.node import MappingError


def axes_of(node: ir.Node) -> list[int] | None:
    """The axes as written; None for all, [] for none at all."""
    source = optional(node, 1)
    array = constant(source)
    if source is not None and array is None:
        raise MappingError("the axes must be constant")
    if array is None or array.size == 0:
        return [] if attributes(node).get("noop_with_empty_axes", 0) else None
    return [int(a) for a in array.reshape(-1)]


@rewrites("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
def kept(node: ir.Node, b: Builder) -> ir.Value | None:
    """Without keepdims: the reduction that keeps them, then a Reshape. Reducing nothing is nothing. Truth is reduced as numbers."""
    x, axes = operand(node), axes_of(node)
    if axes == []:
        return x if node.op_type not in ("ReduceL1", "ReduceL2") else b.op("Abs", x)
    if not static(x):
        return b.op("Reshape", b.op(node.op_type, b.op("Reshape", x, [1]), [0]), [])
    if x.dtype == ir.DataType.BOOL:
        wide = b.op(node.op_type, b.op("Cast", x, to=int(ir.DataType.UINT8)), axes, keepdims=attributes(node)["keepdims"])
        return b.op("Cast", wide, to=int(ir.DataType.BOOL))
    if attributes(node)["keepdims"]:
        return b.op(node.op_type, x, axes, keepdims=1) if attributes(node).get("noop_with_empty_axes", 0) else None
    return b.op("Reshape", b.op(node.op_type, x, axes, keepdims=1), static(node.outputs[0]))


@rewrites("ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")
def made_up(node: ir.Node, b: Builder) -> ir.Value | None:
    """log sum exp is shifted by the maximum, so that it does not overflow."""
    x, axes, keep = operand(node), axes_of(node), attributes(node)["keepdims"]
    if axes == []:
        return None
    if node.op_type == "ReduceSumSquare":
        return b.op("ReduceSum", b.op("Mul", x, x), axes, keepdims=keep)
    if node.op_type == "ReduceLogSum":
        return b.op("Log", b.op("ReduceSum", x, axes, keepdims=keep))
    top = b.op("ReduceMax", x, axes, keepdims=1)
    bound = float(np.finfo(np.float32).max)
    top = b.op("Clip", top, b.like(top, -bound), b.like(top, bound))
    total = b.op("Add", b.op("Log", b.op("ReduceSum", b.op("Exp", b.op("Sub", x, top)), axes, keepdims=1)), top)
    return total if keep else b.op("Reshape", total, static(node.outputs[0]))


@rewrites("ArgMax", "ArgMin")
def best(node: ir.Node, b: Builder) -> ir.Value | None:
    a = attributes(node)
    if a["keepdims"]:
        return None
    found = b.op(node.op_type, operand(node), axis=a["axis"], keepdims=1, select_last_index=a["select_last_index"])
    return b.op("Reshape", found, static(node.outputs[0]))


@rewrites("LayerNormalization")
def with_shift(node: ir.Node, b: Builder) -> ir.Value | None:
    """A LayerNorm has scale and shift, both constant: zeros where the shift is left out; else it is made of its parts."""
    if len(node.outputs) > 1:
        return None
    x, scale, shift, a = operand(node), operand(node, 1), optional(node, 2), attributes(node)
    rank = len(static(x))
    axis = a["axis"] + rank if a["axis"] < 0 else a["axis"]
    shape = static(x)[axis:]
    dtype = x.dtype.numpy() if x.dtype else np.float32
    if shift is None and constant(scale) is not None:
        full = b.const(np.broadcast_to(constant(scale), shape))  # type: ignore[arg-type]
        return b.op("LayerNormalization", x, full, b.const(np.zeros(shape, dtype)), axis=axis, epsilon=a["epsilon"])
    plain = b.op("LayerNormalization", x, b.const(np.ones(shape, dtype)), b.const(np.zeros(shape, dtype)), axis=axis, epsilon=a["epsilon"])
    scaled = b.op("Mul", plain, scale)
    return scaled if shift is None else b.op("Add", scaled, shift)
