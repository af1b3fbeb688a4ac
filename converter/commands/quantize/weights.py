"""Weights alone in fewer bits: integers with scales, palettes, and halves of floats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import onnx_ir as ir

from converter.commands.quantize.place import layer
from converter.graph.build import Builder, attributes, builder_before
from converter.graph.infer import Array
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import Names
from converter.graph.value import optional
from converter.graph.walk import all_graphs
from converter.passes.fuse_constants import channel_axis
from converter.passes.stored_halves import HALVES, is_weight, note_halves

D = ir.DataType
LEAST = 1024  # elements of a tensor that is worth compressing
_PLACES = {"Conv": 1, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1, "Gather": 0}
_FACTORS = np.linspace(0.75, 1.0, 6)  # of the largest weight of a block that is still represented
_ITERATIONS = 20


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
            index = None if node.domain else _PLACES.get(node.op_type)
            value = None if index is None else optional(node, index)
            tensor = None if value is None else value.const_value
            if index is None or tensor is None or tensor.dtype != D.FLOAT:
                continue
            own = value is not None and value.graph is graph and not value.is_graph_output()
            if own and tensor.size >= LEAST and len(tensor.shape) > 1:
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
        table = palette(array, int(form.removeprefix("palette")))
        dtype = D.UINT4 if table.size <= 16 else D.UINT8
        indices = tensor.derived(partial(_nearest, table, dtype), dtype)
        return b.Gather(b.const(table), b.Cast(b.const(indices, name), to=D.INT32), axis=0)
    rank = len(tensor.shape)
    axis = 0 if node.op_type == "Gather" else channel_axis(node)
    if form == "int8":
        rest = tuple(i for i in range(rank) if i != axis)
        steps = _steps(np.abs(tensor.numpy()).max(axis=rest) / 127)
        line = [-1 if i == axis else 1 for i in range(rank)]
        stored = tensor.derived(partial(_integers, steps.reshape(line), 127, D.INT8), D.INT8)
        return b.DequantizeLinear(
            b.const(stored, name), steps, np.zeros(steps.shape, np.int8), axis=axis
        )
    along = rank - 2 if axis == rank - 1 else rank - 1  # the axis that a product sums over
    if node.op_type == "Gemm":
        along = 1 if attributes(node)["transB"] else 0
    steps = block_steps(tensor.numpy(), along, block)
    stored = tensor.derived(partial(_in_blocks, steps, along, block), D.INT4)
    return b.DequantizeLinear(b.const(stored, name), steps, axis=along, block_size=block)


def _steps(found: Array) -> Array:
    steps = np.asarray(found, np.float32)
    return np.where(steps < np.finfo(np.float32).tiny, np.float32(1), steps)


def _integers(steps: Array, most: int, dtype: ir.DataType, array: Array) -> Array:
    return np.asarray(np.clip(np.rint(array / steps), -most, most).astype(dtype.numpy()))


def block_steps(array: Array, axis: int, block: int) -> Array:
    """Return the scale of each block of weights along an axis that loses least by rounding to -7
    ... 7; the largest weight of a block may be clipped.
    """
    moved = np.moveaxis(array, axis, 0)
    parts = [moved[i : i + block] for i in range(0, len(moved), block)]
    rows: list[Array] = []
    for part in parts:
        largest = np.abs(part).max(axis=0)
        tried = [_steps(largest * f / 7) for f in _FACTORS]
        lost = [np.square(np.clip(np.rint(part / s), -7, 7) * s - part).sum(axis=0) for s in tried]
        best = np.argmin(lost, axis=0)
        rows.append(np.take_along_axis(np.stack(tried), best[None], 0)[0])
    return np.ascontiguousarray(np.moveaxis(np.stack(rows), 0, axis))


def _in_blocks(steps: Array, axis: int, block: int, array: Array) -> Array:
    spread = np.repeat(steps, block, axis=axis)
    spread = np.take(spread, range(array.shape[axis]), axis=axis)
    return _integers(spread, 7, D.INT4, array)


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
