"""Scatters as a table of which update belongs to which place: what meets in a place is added, or the largest or least remains."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.infer import constant, shape_of
from converter.graph.sizes import arange
from converter.mapping.node import MappingError
from converter.passes.decompose import decomposes
from converter.passes.decompositions.activations import is_float, x_of

LARGEST = 1 << 22  # elements of the table
_KINDS = {"add": "Sum", "mul": "Prod", "max": "Max", "min": "Min"}
_NEUTRAL = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf}


@decomposes("ScatterND")
def scatter_nd(node: ir.Node, b: Builder) -> ir.Value | None:
    """Rows of the flattened operand; indices of several axes become one."""
    x, index, updates = x_of(node), node.inputs[1], node.inputs[2]
    shape, places = shape_of(x), None if index is None else shape_of(index)
    if shape is None or places is None or index is None or updates is None or not is_float(x) or 0 in (*shape, *places):
        return None
    depth, count = places[-1], int(np.prod(places[:-1]))
    rows, width = int(np.prod(shape[:depth])), int(np.prod(shape[depth:]))
    flat = _one_index(index, list(shape[:depth]), count, b)
    y = _scattered(b, b.op("Reshape", x, [rows, width]), flat, b.op("Reshape", updates, [count, width]), attrs_of(node).get("reduction", "none"))
    return b.op("Reshape", y, list(shape))


@decomposes("ScatterElements")
def scatter_elements(node: ir.Node, b: Builder) -> ir.Value | None:
    """With constant indices: each update has one place in the flattened operand."""
    x, index, updates = x_of(node), constant(node.inputs[1]), node.inputs[2]
    shape = shape_of(x)
    if shape is None or index is None or updates is None or not is_float(x) or 0 in (*shape, *index.shape):
        return None
    axis = int(attrs_of(node).get("axis", 0)) % len(shape)
    grid = list(np.meshgrid(*(arange(n) for n in index.shape), indexing="ij"))
    grid[axis] = np.where(index < 0, index + shape[axis], index)
    flat = np.ravel_multi_index(grid, shape).reshape(-1)
    operands = b.op("Reshape", x, [int(np.prod(shape)), 1]), flat, b.op("Reshape", updates, [flat.size, 1])
    return b.op("Reshape", _scattered(b, *operands, attrs_of(node).get("reduction", "none")), list(shape))


def _one_index(index: ir.Value, sizes: list[int], count: int, b: Builder) -> Any:
    """[count]: an array where the indices are constant, else a value of their type."""
    strides = np.array([int(np.prod(sizes[i + 1 :])) for i in range(len(sizes))])
    array = constant(index)
    if array is not None:
        array = array.reshape(count, len(sizes))
        return (np.where(array < 0, array + np.array(sizes), array) * strides).sum(-1)
    total = None
    for i, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        part = b.op("Reshape", b.op("Slice", b.op("Reshape", index, [count, len(sizes)]), [i], [i + 1], [1]), [count])
        part = b.op("Where", b.op("Less", part, b.like(part, 0)), b.op("Add", part, b.like(part, size)), part)
        part = b.op("Mul", part, b.like(part, int(stride)))
        total = part if total is None else b.op("Add", total, part)
    return total


def _scattered(b: Builder, x: ir.Value, index: Any, updates: ir.Value, reduction: str) -> ir.Value:
    """x [rows, width] with updates [count, width] in the rows `index` [count]."""
    if reduction == "none" and not isinstance(index, ir.Value):
        return _picked(b, x, index, updates)
    rows, width = shape_of(x) or (0, 0)
    count = (shape_of(updates) or (0,))[0]
    if rows * width * count > LARGEST:
        raise MappingError("a scatter of this size cannot be written as a table")
    hit: Any = _hits(b, index, rows, count)
    rest = b.op("Reshape", updates, [count, 1, width])
    if reduction == "none":
        return _last(b, x, hit, rest, count)
    table = b.op("Where", hit, rest, b.like(x, _NEUTRAL[reduction]))
    found = b.op(f"Reduce{_KINDS[reduction]}", table, [0], keepdims=0)
    return b.op({"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}[reduction], x, found)


def _last(b: Builder, x: ir.Value, hit: ir.Value, updates: ir.Value, count: int) -> ir.Value:
    """Of several updates for one row the last one stays, as the engines have it."""
    order = b.const(arange(1, count + 1).astype(x.dtype.numpy() if x.dtype is not None else np.float32).reshape(count, 1, 1))
    last = b.op("ReduceMax", b.op("Where", hit, order, b.like(x, 0)), [0], keepdims=1)
    found = b.op("ReduceSum", b.op("Where", b.op("Equal", order, last), updates, b.like(x, 0)), [0], keepdims=0)
    return b.op("Where", b.op("Greater", b.op("Squeeze", last, [0]), b.like(x, 0)), found, x)


def _hits(b: Builder, index: Any, rows: int, count: int) -> Any:
    """[count, rows, 1]: whether update i goes to row j."""
    if not isinstance(index, ir.Value):
        return index[:, None, None] == arange(rows)[:, None]
    dtype = index.dtype.numpy() if index.dtype is not None else np.int64
    return b.op("Equal", b.op("Reshape", index, [count, 1, 1]), b.const(arange(rows).astype(dtype).reshape(1, rows, 1)))


def _picked(b: Builder, x: ir.Value, index: Any, updates: ir.Value) -> ir.Value:
    """Known places: each row is taken from the operand or from the last update that it gets."""
    rows = (shape_of(x) or (0,))[0]
    source = arange(rows)
    source[index] = rows + arange(index.size)
    return b.op("Gather", b.op("Concat", x, updates, axis=0), source, axis=0)
