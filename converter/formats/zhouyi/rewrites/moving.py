"""Moving data in ways that the format lacks."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.rewrites.register import attributes, operand, optional, rewrites, static
from converter.graph.build import Builder
from converter.graph.infer import constant


@rewrites("Trilu")
def trilu(node: ir.Node, b: Builder) -> ir.Value | None:
    """A constant triangle chooses between the data and zeros."""
    x, shape = operand(node), static(operand(node))
    k = constant(optional(node, 1)) if optional(node, 1) is not None else np.array(0)
    if k is None:
        return None
    cut = np.triu if attributes(node)["upper"] else np.tril
    mask = np.broadcast_to(cut(np.ones(shape[-2:], bool), int(k.reshape(-1)[0])), shape)
    return b.op("Where", b.const(mask, "triangle"), x, b.const(np.zeros(shape, x.dtype.numpy() if x.dtype else np.float32), "zeros"))


@rewrites("Compress")
def flattened(node: ir.Node, b: Builder) -> ir.Value | None:
    """A known condition is a Gather."""
    x, condition, axis = operand(node), constant(operand(node, 1)), attributes(node).get("axis")
    if condition is None:
        return None
    if axis is None:
        x, axis = b.op("Reshape", x, [-1]), 0
    return b.op("Gather", x, np.flatnonzero(condition), axis=axis)


@rewrites("OneHot")
def one_hot(node: ir.Node, b: Builder) -> ir.Value | None:
    """ONNX counts negative indices from behind: a Mod by the depth brings them forward, those out of range stay off."""
    x, depth, values = operand(node), constant(operand(node, 1)), operand(node, 2)
    if depth is None:
        return None
    n, axis, out = int(depth.reshape(-1)[0]), attributes(node)["axis"], static(node.outputs[0])
    axis += len(out) if axis < 0 else 0
    x = x if x.dtype is not None and x.dtype.is_integer() else b.op("Cast", x, to=int(ir.DataType.INT64))
    thin = [1 if i == axis else d for i, d in enumerate(out)]
    column = b.op("Reshape", x, thin)
    classes = np.broadcast_to(np.arange(n).reshape([n if i == axis else 1 for i in range(len(out))]), out).astype(x.dtype.numpy() if x.dtype else np.int64)
    tiled = b.op("Tile", column, [n if i == axis else 1 for i in range(len(out))])
    hit = b.op("Equal", tiled, b.const(classes, "classes"))
    wrapped = b.op("Equal", tiled, b.const(classes - n, "classes"))
    pair = [b.op("Tile", b.op("Reshape", b.op("Slice", values, [i], [i + 1], [0]), [1] * len(out)), out) for i in (1, 0)]
    return b.op("Where", b.op("Or", hit, wrapped), *pair)


@rewrites("Pad")
def repeated(node: ir.Node, b: Builder) -> ir.Value | None:
    """Padding with the edge or with the other end takes elements once more."""
    x, a, amounts = operand(node), attributes(node), constant(optional(node, 1))
    if a["mode"] not in ("edge", "wrap") or amounts is None or amounts.min() < 0:
        return None
    rank = len(static(x))
    chosen = constant(optional(node, 3)) if optional(node, 3) is not None else np.arange(rank)
    if chosen is None:
        return None
    for i, axis in enumerate(int(v) % rank for v in chosen):
        before, behind = int(amounts[i]), int(amounts[i + len(chosen)])
        if before or behind:
            x = b.op("Gather", x, np.pad(np.arange(static(x)[axis]), (before, behind), mode=a["mode"]), axis=axis)
    return x


@rewrites("EyeLike")
def eye_like(node: ir.Node, b: Builder) -> ir.Value:
    shape, a = static(operand(node)), attributes(node)
    dtype = node.outputs[0].dtype
    return b.const(np.eye(shape[0], shape[1], k=a.get("k", 0)).astype(dtype.numpy() if dtype else np.float32))


@rewrites("MaxUnpool")
def max_unpool(node: ir.Node, b: Builder) -> ir.Value | None:
    """Zeros, with the data at their indices over N, C, spatial."""
    x, index, shape = operand(node), operand(node, 1), static(node.outputs[0])
    if optional(node, 2) is not None:  # the indices are those of the smaller output that the attributes give
        return None
    zeros = b.const(np.zeros(int(np.prod(shape)), x.dtype.numpy() if x.dtype else np.float32), "zeros")
    filled = b.op("ScatterElements", zeros, b.op("Reshape", index, [-1]), b.op("Reshape", x, [-1]), axis=0)
    return b.op("Reshape", filled, shape)
