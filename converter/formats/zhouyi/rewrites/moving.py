"""Moving data in ways that the format lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.rewrites.register import attributes, operand, optional, rewrites, static
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.graph.sizes import arange, demand_small
from converter.mapping.node import MappingError


@rewrites("Trilu")
def trilu(node: ir.Node, b: Builder) -> ir.Value | None:
    """A constant triangle chooses between the data and zeros."""
    x, shape = operand(node), static(operand(node))
    k = constant(optional(node, 1)) if optional(node, 1) is not None else np.array(0)
    if k is None:
        return None
    cut = np.triu if attributes(node)["upper"] else np.tril
    first = min(max(int(k.reshape(-1)[0]), -shape[-2] - 1), shape[-1] + 1)
    demand_small(*shape)
    mask = np.broadcast_to(cut(np.ones(shape[-2:], bool), first), shape)
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
    classes = np.broadcast_to(arange(n).reshape([n if i == axis else 1 for i in range(len(out))]), out).astype(x.dtype.numpy() if x.dtype else np.int64)
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
    chosen = constant(optional(node, 3)) if optional(node, 3) is not None else arange(rank)
    if chosen is None:
        return None
    for i, axis in enumerate(int(v) % rank for v in chosen):
        before, behind = int(amounts[i]), int(amounts[i + len(chosen)])
        if before or behind:
            x = b.op("Gather", x, np.pad(arange(static(x)[axis]), (before, behind), mode=a["mode"]), axis=axis)
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


@rewrites("ScatterElements", "ScatterND")
def extreme(node: ir.Node, b: Builder) -> ir.Value | None:
    """Reductions MAX and MIN: a table says which update belongs to which place, the extremes of each place remain."""
    a, x = attributes(node), operand(node)
    if a.get("reduction") not in ("max", "min"):
        return None
    if node.op_type == "ScatterElements":
        axis = a["axis"] % len(static(x))
        region = [n if i == axis else m for i, (n, m) in enumerate(zip(static(x), static(operand(node, 1)), strict=True))]
        part = x if region == static(x) else b.op("Slice", x, [0] * len(region), region, list(range(len(region))))
        found = _extremes(b, part, operand(node, 1), operand(node, 2), axis, a["reduction"])
        return _put_back(b, x, found, region)
    index, shape = operand(node, 1), static(x)
    depth, n = static(index)[-1], int(np.prod(shape[: static(index)[-1]]))
    steps = np.array([int(np.prod(shape[i + 1 : depth])) for i in range(depth)])
    sizes = np.array(shape[:depth])
    behind = b.op("Add", index, b.const(sizes.astype(index.dtype.numpy() if index.dtype else np.int64)))
    index = b.op("Where", b.op("Less", index, b.like(index, 0)), behind, index)
    flat = b.op("ReduceSum", b.op("Mul", index, b.const(steps.astype(index.dtype.numpy() if index.dtype else np.int64))), [-1], keepdims=0)
    rest = int(np.prod(shape[depth:]))
    count = int(np.prod(static(index)[:-1]))
    rows = b.op("Tile", b.op("Reshape", flat, [count, 1]), [1, rest])
    found = _extremes(b, b.op("Reshape", x, [n, rest]), rows, b.op("Reshape", operand(node, 2), [count, rest]), 0, a["reduction"])
    return b.op("Reshape", found, shape)


def _extremes(b: Builder, x: ir.Value, index: ir.Value, updates: ir.Value, axis: int, reduction: str) -> ir.Value:
    """index and updates have the shape of x but along `axis`."""
    n, m, rank = static(x)[axis], static(index)[axis], len(static(x))
    if int(np.prod(static(x))) * m > 1 << 24:
        raise MappingError("a scatter of this size cannot be written as a table")
    dtype: Any = x.dtype.numpy() if x.dtype else np.dtype(np.float32)
    neutral = (-np.inf if reduction == "max" else np.inf) if dtype.kind == "f" else getattr(np.iinfo(dtype), "min" if reduction == "max" else "max")
    index = b.op("Where", b.op("Less", index, b.like(index, 0)), b.op("Add", index, b.like(index, n)), index)
    columns = arange(n).reshape([n if i == axis + 1 else 1 for i in range(rank + 1)]).astype(index.dtype.numpy() if index.dtype else np.int64)
    hit = b.op("Equal", b.op("Unsqueeze", index, [axis + 1]), b.const(columns))
    table = b.op("Where", hit, b.op("Unsqueeze", updates, [axis + 1]), b.const(np.array(neutral, dtype)))
    word = reduction.capitalize()
    return b.op(word, x, b.op(f"Reduce{word}", table, [axis], keepdims=0))


def _put_back(b: Builder, x: ir.Value, part: ir.Value, region: list[int]) -> ir.Value:
    """x with `part` in its front corner."""
    for axis in reversed(range(len(region))):
        size = static(x)[axis]
        if region[axis] < size:
            first = [n if i == axis else 0 for i, n in enumerate(region)]
            rest = b.op("Slice", x, first, [*region[:axis], *static(x)[axis:]], list(range(len(region))))
            part = b.op("Concat", part, rest, axis=axis)
    return part
