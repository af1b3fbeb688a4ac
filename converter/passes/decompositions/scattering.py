"""Scatters as a table of which update belongs to which position: several updates of one position
are added, or reduced to their minimum or maximum.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder, Value, attributes
from converter.graph.infer import constant, rank_of, shape_of
from converter.graph.sizes import arange
from converter.graph.value import FLOAT, INT64, operand, producer_if
from converter.passes.decompositions.activations import is_float
from converter.passes.decompositions.indexing import own_indices, strides_of
from converter.passes.decompositions.table import Table

LARGEST = 1 << 22  # elements of the table
LARGEST_KEY = 1 << 24  # the first integer after which floats cannot represent the next
_KINDS = {"add": "Sum", "mul": "Prod", "max": "Max", "min": "Min"}
_NEUTRAL = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf}


def scatter_nd(node: ir.Node, b: Builder) -> Value | None:
    """Scatter rows of the flattened operand; indices of several axes are merged into one."""
    x, index, updates = (operand(node, i) for i in range(3))
    shape, positions, reduction = shape_of(x), shape_of(index), attributes(node)["reduction"]
    if shape is None or positions is None or not _takes(x, reduction) or 0 in (*shape, *positions):
        return None
    depth, count = positions[-1], int(np.prod(positions[:-1]))
    rows, width = int(np.prod(shape[:depth])), int(np.prod(shape[depth:]))
    flat = _one_index(index, list(shape[:depth]), count, b)
    operands = b.Reshape(x, [rows, width]), flat, b.Reshape(updates, [count, width])
    return b.Reshape(_scattered(b, *operands, reduction), list(shape))


def scatter_elements(node: ir.Node, b: Builder) -> Value | None:
    """Compute the position of each update in the flattened operand: its own coordinates, with the
    given index along the axis.
    """
    x, index, updates = (operand(node, i) for i in range(3))
    shape, positions, reduction = shape_of(x), shape_of(index), attributes(node)["reduction"]
    if not shape or not positions or not _takes(x, reduction) or 0 in (*shape, *positions):
        return None
    axis, count = attributes(node)["axis"] % len(shape), math.prod(positions)
    rows = _of_rows(index, axis, positions[axis], b)
    if rows is not None and _without(shape, axis) == _without(positions, axis):
        return _in_rows(b, x, rows, updates, axis, reduction)
    if count > LARGEST:
        return None
    strides = strides_of(shape)
    own = np.broadcast_to(own_indices(positions, strides, axis), positions).reshape(-1)
    flat: Any = _one_index(index, [shape[axis]], count, b)
    flat = (
        flat * strides[axis] + own
        if not isinstance(flat, Value)
        else _moved(b, flat, strides[axis], own)
    )
    operands = b.Reshape(x, [math.prod(shape), 1]), flat, b.Reshape(updates, [count, 1])
    return b.Reshape(_scattered(b, *operands, reduction), list(shape))


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _of_rows(index: ir.Value, axis: int, count: int, b: Builder) -> Value | None:
    """Return the indices [count] if they are equal along all other axes, as in message passing."""
    array, made = constant(index), producer_if(index, "Expand")
    if array is not None:
        lines = np.moveaxis(array, axis, 0).reshape(count, -1)
        return b.const(lines[:, 0]) if (lines == lines[:, :1]).all() else None
    one = None if made is None else operand(made)
    size = None if one is None else shape_of(one)
    if one is None or size is None or math.prod(size) != count:
        return None
    position = axis - (rank_of(index) or 0)  # relative to the end, because Expand adds leading axes
    return b.Reshape(one, [count]) if len(size) >= -position and size[position] == count else None


def _in_rows(
    b: Builder, x: Value, index: Value, updates: Value, axis: int, reduction: str
) -> Value:
    """Scatter rows, with the indexed axis moved to the front."""
    shape, count = list(shape_of(x) or ()), (shape_of(index) or (0,))[0]
    perm = [axis, *_without(tuple(range(len(shape))), axis)]
    if axis:
        x, updates = b.Transpose(x, perm=perm), b.Transpose(updates, perm=perm)
    transposed = [shape[i] for i in perm]
    width = math.prod(transposed[1:])
    flat = _one_index(index, transposed[:1], count, b)
    rows = b.Reshape(x, [transposed[0], width]), flat, b.Reshape(updates, [count, width])
    y = b.Reshape(_scattered(b, *rows, reduction), transposed)
    return b.Transpose(y, perm=[perm.index(i) for i in range(len(perm))]) if axis else y


def _takes(x: Value, reduction: str) -> bool:
    """Return whether a type is supported: integers are only replaced, because few targets add
    them.
    """
    return is_float(x) or reduction == "none"


def _moved(b: Builder, index: Value, stride: int, own: np.ndarray) -> Value:
    dtype = index.dtype.numpy() if index.dtype is not None else np.int64
    index = index if stride == 1 else index * stride
    return index + b.const(own.astype(dtype)) if own.any() else index


def _one_index(index: ir.Value, sizes: list[int], count: int, b: Builder) -> Any:
    """Return flat indices [count]: an array if the indices are constant, else a value of their
    type.
    """
    strides = np.array(strides_of(sizes))
    array = constant(index)
    if array is not None:
        array = array.reshape(count, len(sizes))
        return (np.where(array < 0, array + np.array(sizes), array) * strides).sum(-1)
    total = None
    for i, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        part = b.Reshape(b.Reshape(index, [count, len(sizes)])[:, i : i + 1], [count])
        part = b.Where(part < 0, part + size, part)
        part = part * int(stride)
        total = part if total is None else total + part
    return total


def _scattered(b: Builder, x: Value, index: Any, updates: Value, reduction: str) -> Value:
    """Scatter updates [count, width] to the rows `index` [count] of x [rows, width]."""
    if reduction == "none" and not isinstance(index, Value):
        return _picked(b, x, index, updates)
    rows, width = shape_of(x) or (0, 0)
    count = (shape_of(updates) or (0,))[0]
    if rows * count * (1 if reduction == "none" else width) > LARGEST:
        if reduction == "none" and rows * (count + 1) <= LARGEST_KEY:
            return _by_sorting(b, x, index, updates, rows, count)
        raise MappingError("a scatter of this size cannot be written as a table")
    hit: Any = _hits(b, index, rows, count)
    if reduction == "none":
        return _last(b, x, hit, updates, rows, count)
    rest = b.Reshape(updates, [count, 1, width])
    table = b.Where(hit, rest, _NEUTRAL[reduction])
    found = b.operator(f"Reduce{_KINDS[reduction]}")(table, [0], keepdims=0)
    return b.operator({"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}[reduction])(x, found)


def _last(b: Builder, x: Value, hit: Value, updates: Value, rows: int, count: int) -> Value:
    """Select the last of several updates for one row, as engines do, by numbering the rows of x and
    of the updates.
    """
    number = b.const(
        arange(rows, rows + count).astype(np.float32).reshape(count, 1, 1)
    )  # LARGEST is less than the first integer that floats cannot represent
    own = b.const(arange(rows).astype(np.float32).reshape(1, rows, 1))
    source = b.ReduceMax(b.Where(hit, number, own), [0], keepdims=0)
    index = b.Cast(b.Reshape(source, [rows]), to=INT64)
    return b.Gather(b.Concat(x, updates, axis=0), index, axis=0)


def _by_sorting(b: Builder, x: Value, index: Any, updates: Value, rows: int, count: int) -> Value:
    """Select the last of several updates for one row where a table would be too large: the rows of
    x and then the updates are sorted by row, and the last one of each row is taken.
    """
    flat = b.Cast(index, to=INT64) if isinstance(index, Value) else b.const(index)
    row = b.Concat(arange(rows), flat, axis=0)
    number = b.const(np.concatenate([np.zeros(rows), arange(1, count + 1)]).astype(np.float32))
    key = b.Cast(row, to=FLOAT) * float(count + 1) + number
    _, order = b.TopK(key, [rows + count], outputs=2, axis=0)
    falling = b.Cast(b.Gather(row, order, axis=0), to=FLOAT)
    before = b.Concat(np.array([-1.0], np.float32), falling[: rows + count - 1], axis=0)
    # one of each row, in the order of the rows
    first = b.Where(b.Equal(falling, before), float(rows), falling)
    _, last = b.TopK(first, [rows], outputs=2, axis=0, largest=0)
    return b.Gather(b.Concat(x, updates, axis=0), b.Gather(order, last, axis=0), axis=0)


def _hits(b: Builder, index: Any, rows: int, count: int) -> Any:
    """Return whether update i belongs to row j: [count, rows, 1]."""
    if not isinstance(index, Value):
        return index[:, None, None] == arange(rows)[:, None]
    dtype = index.dtype.numpy() if index.dtype is not None else np.int64
    return b.Equal(b.Reshape(index, [count, 1, 1]), arange(rows).astype(dtype).reshape(1, rows, 1))


def _picked(b: Builder, x: Value, index: Any, updates: Value) -> Value:
    """Scatter to known positions: take each row from the operand or from its last update."""
    rows = (shape_of(x) or (0,))[0]
    source = arange(rows)
    source[index] = rows + arange(index.size)
    return b.Gather(b.Concat(x, updates, axis=0), source, axis=0)


TABLE: Table = {
    ("", "ScatterND"): scatter_nd,
    ("", "ScatterElements"): scatter_elements,
}
