"""Weights alone in fewer bits: integers with scales, palettes, and halves of floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.commands.quantize.place import layer
from converter.graph.build import Builder, attributes, builder_before
from converter.graph.infer import Array
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import Names
from converter.graph.value import optional
from converter.graph.walk import all_graphs
from converter.io.mapped_file import release
from converter.passes.fuse_constants import channel_axis
from converter.passes.stored_halves import HALVES, is_weight, note_halves

D = ir.DataType
_FLOATS = (D.FLOAT, D.FLOAT16)
LEAST = 1024  # elements of a tensor that is worth compressing
RECURRENT = ("GRU", "LSTM", "RNN")
_PLACES = {
    "Gather": (0,),
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "MatMul"), (1,)),
    **dict.fromkeys(RECURRENT, (1, 2)),
}
_FACTORS = (1.0, 0.93, 0.86, 0.79)  # of the largest weight of a block that is still represented
_ITERATIONS = 20
_THREADS = 2  # numpy computes outside of the lock of the interpreter
_PIECE = 1 << 17  # weights that are computed at once, so that they stay in the processor's cache


def compress(
    model: ir.Model, form: str, block: int, kept: Callable[[ir.Node], str]
) -> dict[str, str]:
    """Compress the weights of a model in place; return layer -> the form of its weights. `kept`:
    why a layer stays as it is.

    With fewer than 8 bits embeddings and the first and the last layer have 8: most of the loss is
    there.
    """
    if form in HALVES:
        return _halves(model, form)
    found = [u for u in _uses(model) if not kept(u[0])]
    few = form not in ("int8", "palette8", "palette6")
    ends = {n for n, _ in (*found[:1], *found[-1:])} if few and len(found) > 2 else set()
    names, made, forms = Names(model), dict[tuple[ir.Value, str], ir.Value](), dict[str, str]()
    for node, index in found:
        value = node.inputs[index]
        assert value is not None
        own = "int8" if few and (node.op_type == "Gather" or node in ends) else form
        if own == "int4" and node.op_type in ("Conv", "ConvTranspose"):
            own = "int8"
        if (value, own) not in made:
            b = builder_before(next(iter(node.graph)), names)  # type: ignore[arg-type]
            made[value, own] = _compressed(b, node, value, own, block)
        node.replace_input_with(index, made[value, own])
        forms[layer(node)] = own
    return forms


def _uses(model: ir.Model) -> Iterator[tuple[ir.Node, int]]:
    """Yield nodes with the index of their weights."""
    for graph in all_graphs(model.graph):
        for node in graph:
            for index in () if node.domain else _PLACES.get(node.op_type, ()):
                value = optional(node, index)
                tensor = None if value is None else value.const_value
                if value is None or tensor is None or value.graph is not graph:
                    continue
                large = tensor.size >= LEAST and len(tensor.shape) > 1
                if large and tensor.dtype in _FLOATS and not value.is_graph_output():
                    yield node, index


def _halves(model: ir.Model, form: str) -> dict[str, str]:
    """Round all weights to numbers of half precision, which the writers store as such."""
    forms: dict[str, str] = {}
    for graph in all_graphs(model.graph):
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None and is_weight(tensor):
                lazy = LazyTensor.of(tensor)
                value.const_value = lazy.derived(partial(_rounded, form), D.FLOAT)
                forms |= {layer(u.node): form for u in value.uses()}
    note_halves(model, HALVES[form])
    return forms


def _rounded(form: str, array: Array) -> Array:
    kind = HALVES[form].numpy()
    with np.errstate(over="ignore"):
        narrow = np.asarray(array).astype(kind).astype(np.float32)
    return np.where(np.isfinite(narrow), narrow, np.copysign(np.finfo(np.float16).max, array))


def _compressed(b: Builder, node: ir.Node, value: ir.Value, form: str, block: int) -> ir.Value:
    assert value.const_value is not None
    tensor, name = LazyTensor.of(value.const_value), str(value.name)
    if form.startswith("palette"):
        array = tensor.numpy()
        table = palette(array, int(form.removeprefix("palette"))).astype(array.dtype)
        dtype = D.UINT4 if table.size <= 16 else D.UINT8
        indices = tensor.derived(partial(_nearest, table, dtype), dtype)
        return b.Gather(b.const(table), b.Cast(b.const(indices, name), to=D.INT32), axis=0)
    rank = len(tensor.shape)
    axis = _channels(node)
    if form == "int8":
        array = tensor.numpy()
        rest = tuple(i for i in range(rank) if i != axis)
        largest = np.maximum(array.max(axis=rest), -array.min(axis=rest)).astype(np.float32)
        steps = _steps(largest / 127, array.dtype)
        spread = steps.reshape([-1 if i == axis else 1 for i in range(rank)])
        stored = tensor.derived(partial(_integers, spread, axis, 1, 127), D.INT8)
        return b.DequantizeLinear(
            b.const(stored, name), steps, np.zeros(steps.shape, np.int8), axis=axis
        )
    along = rank - 2 if axis == rank - 1 else rank - 1  # the axis that a product sums over
    if node.op_type == "Gemm":
        along = 1 if attributes(node)["transB"] else 0
    array = tensor.numpy()
    steps = _steps(block_steps(array, along, block), array.dtype)
    stored = tensor.derived(partial(_packed, steps, along, block), D.INT4)
    return b.DequantizeLinear(b.const(stored, name), steps, axis=along, block_size=block)


def _channels(node: ir.Node) -> int:
    if node.op_type in RECURRENT:
        return 1
    return 0 if node.op_type == "Gather" else channel_axis(node)


def _steps(found: Array, dtype: Any = np.float32) -> Array:
    steps = np.asarray(found).astype(dtype)
    return np.where(steps < np.finfo(dtype).tiny, steps.dtype.type(1), steps)


def _integers(steps: Array, axis: int, block: int, most: int, array: Array) -> Array:
    """Return integers of up to `most`, piece by piece: `block` weights along an axis have one of
    the scales.
    """
    made = np.empty(array.shape, np.int8)
    rows = max(1, _PIECE // max(1, math.prod(array.shape[1:])))
    rows = -(-rows // block) * block
    for i in range(0, len(array), rows):
        own = steps[i // block : (i + rows) // block] if axis == 0 else steps[i : i + rows]
        own = steps if len(steps) == 1 else own
        part = array[i : i + rows]
        if block > 1:
            own = np.repeat(own, block, axis=axis)[tuple(map(slice, part.shape))]
        numbers = np.divide(part, own, dtype=np.float32)
        made[i : i + rows] = np.clip(np.rint(numbers, out=numbers), -most, most, out=numbers)
    return made


def _packed(steps: Array, axis: int, block: int, array: Array) -> Array:
    """Return integers of 4 bits, two in a byte."""
    flat = _integers(steps, axis, block, 7, array).reshape(-1).view(np.uint8) & 15
    made = flat[::2].copy()
    made[: flat.size // 2] |= flat[1::2] << 4
    return made


def block_steps(array: Array, axis: int, block: int) -> Array:
    """Return the scale of each block of weights along an axis that loses least by rounding to -7
    ... 7; the largest weight of a block may be clipped.
    """
    moved = np.moveaxis(array, axis, 0)
    made = np.empty((-(-len(moved) // block), *moved.shape[1:]), np.float32)
    flat = made.reshape(len(made), -1)
    size = _PIECE // block

    def fill(i: int) -> None:
        part = np.asarray(moved[i * block : (i + 1) * block], np.float32)
        part = part.reshape(len(part), -1)
        for j in range(0, part.shape[1], size):
            flat[i, j : j + size] = _best(part[:, j : j + size])

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(fill, range(len(made))))
    release()
    return np.ascontiguousarray(np.moveaxis(made, 0, axis))


def _best(part: Array) -> Array:
    """Return the scale of each column that loses least."""
    largest = np.maximum(part.max(axis=0), -part.min(axis=0)) / 7
    best: Array
    best, least = largest, np.full(largest.shape, np.inf, np.float32)
    scaled, rounded = np.empty_like(part), np.empty_like(part)
    for factor in _FACTORS:
        steps = _steps(largest * np.float32(factor))
        np.multiply(part, 1 / steps, out=scaled)
        np.rint(scaled, out=rounded)
        scaled -= np.clip(rounded, -7, 7, out=rounded)
        lost = np.einsum("ij,ij->j", scaled, scaled) * steps * steps
        best, least = np.where(lost < least, steps, best), np.minimum(lost, least)
    return best


def palette(array: Array, bits: int) -> Array:
    """Return the 2^bits numbers that represent an array best: k-means in one dimension, from
    quantiles.
    """
    numbers = np.sort(array.reshape(-1).astype(np.float64))
    sums = np.concatenate([[0.0], np.cumsum(numbers)])
    table = np.quantile(numbers, (np.arange(1 << bits) + 0.5) / (1 << bits))
    for _ in range(_ITERATIONS):
        ends = np.searchsorted(numbers, (table[1:] + table[:-1]) / 2)
        ends = np.concatenate([[0], ends, [numbers.size]])
        count = np.diff(ends)
        table = np.where(count > 0, np.diff(sums[ends]) / np.maximum(count, 1), table)
    return np.asarray(np.sort(table), np.float32)


def _nearest(table: Array, dtype: ir.DataType, array: Array) -> Array:
    found = np.searchsorted((table[1:] + table[:-1]) / 2, array)
    return np.asarray(found.astype(np.uint8).astype(dtype.numpy()))
