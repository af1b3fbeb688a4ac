"""Look-ups of one place, and updates of which the largest or the smallest counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rewrites.operands import attributes, static
from converter.formats.zhouyi.types import numpy_type
from converter.graph.build import Builder
from converter.graph.sizes import arange
from converter.graph.value import Value, operand


def one_place(node: ir.Node, b: Builder) -> Value | None:
    """An index without axes: with one, which is dropped behind; executors expect an axis there."""
    index = operand(node, 1)
    if static(index):
        return None
    found = b.Gather(operand(node), b.Reshape(index, [1]), **attributes(node))
    return b.Reshape(found, list(static(node.outputs[0])))


def extreme(node: ir.Node, b: Builder) -> Value | None:
    """Reductions MAX and MIN, of integers too, which the common decomposition does not know: a
    table says which update belongs to which place, the extremes of each place remain.
    """
    a, x = attributes(node), operand(node)
    if a.get("reduction") not in ("max", "min"):
        return None
    if node.op_type == "ScatterElements":
        axis = a["axis"] % len(static(x))
        region = [
            n if i == axis else m
            for i, (n, m) in enumerate(zip(static(x), static(operand(node, 1)), strict=True))
        ]
        part = (
            x
            if region == static(x)
            else b.Slice(x, [0] * len(region), region, list(range(len(region))))
        )
        found = _extremes(b, part, operand(node, 1), operand(node, 2), axis, a["reduction"])
        return _put_back(b, x, found, region)
    index, shape = operand(node, 1), static(x)
    depth, n = static(index)[-1], int(np.prod(shape[: static(index)[-1]]))
    steps = np.array([int(np.prod(shape[i + 1 : depth])) for i in range(depth)])
    sizes = np.array(shape[:depth])
    behind = index + b.const(sizes.astype(numpy_type(index)))
    index = b.Where(index < 0, behind, index)
    flat = b.ReduceSum(index * b.const(steps.astype(numpy_type(index))), [-1], keepdims=0)
    rest = int(np.prod(shape[depth:]))
    count = int(np.prod(static(index)[:-1]))
    rows = b.Tile(b.Reshape(flat, [count, 1]), [1, rest])
    found = _extremes(
        b,
        b.Reshape(x, [n, rest]),
        rows,
        b.Reshape(operand(node, 2), [count, rest]),
        0,
        a["reduction"],
    )
    return b.Reshape(found, shape)


def _extremes(
    b: Builder, x: Value, index: Value, updates: Value, axis: int, reduction: str
) -> Value:
    """index and updates have the shape of x but along `axis`."""
    n, m, rank = static(x)[axis], static(index)[axis], len(static(x))
    if int(np.prod(static(x))) * m > 1 << 24:
        raise MappingError("a scatter of this size cannot be written as a table")
    dtype: Any = np.dtype(numpy_type(x))
    neutral = (
        (-np.inf if reduction == "max" else np.inf)
        if dtype.kind == "f"
        else getattr(np.iinfo(dtype), "min" if reduction == "max" else "max")
    )
    index = b.Where(index < 0, index + n, index)
    columns = (
        arange(n)
        .reshape([n if i == axis + 1 else 1 for i in range(rank + 1)])
        .astype(numpy_type(index))
    )
    hit = b.Equal(b.Unsqueeze(index, [axis + 1]), b.const(columns))
    table = b.Where(hit, b.Unsqueeze(updates, [axis + 1]), b.const(np.array(neutral, dtype)))
    word = reduction.capitalize()
    return b.operator(word)(x, b.operator(f"Reduce{word}")(table, [axis], keepdims=0))


def _put_back(b: Builder, x: Value, part: Value, region: list[int]) -> Value:
    """x with `part` in its front corner."""
    for axis in reversed(range(len(region))):
        size = static(x)[axis]
        if region[axis] < size:
            first = [n if i == axis else 0 for i, n in enumerate(region)]
            rest = b.Slice(x, first, [*region[:axis], *static(x)[axis:]], list(range(len(region))))
            part = b.Concat(part, rest, axis=axis)
    return part
