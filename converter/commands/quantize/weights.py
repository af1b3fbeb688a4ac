"""Weights alone in fewer bits: integers and small floats with scales, palettes, halves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import ml_dtypes
import numpy as np
import onnx_ir as ir

from converter.commands.quantize.place import RECURRENT, layer
from converter.errors import Diagnostic, UnsupportedError, Where
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
# the largest number of each form that has a scale for each channel
LARGEST = {"int8": (D.INT8, 127), "f8e4m3": (D.FLOAT8E4M3FN, 448), "f8e5m2": (D.FLOAT8E5M2, 57344)}
_PLACES = {
    "Gather": (0,),
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "MatMul"), (1,)),
    **dict.fromkeys(RECURRENT, (1, 2)),
}
_ITERATIONS = 20
_ROUNDS = np.float32(1.5 * 2**23)  # a sum with it has the rounded number in its lowest bits
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
    few = form not in (*LARGEST, "palette8", "palette6")
    ends = {n for n, _ in (*found[:1], *found[-1:])} if few and len(found) > 2 else set()
    names, made, forms = Names(model), dict[tuple[ir.Value, str], ir.Value](), dict[str, str]()
    for node, index in found:
        value = node.inputs[index]
        assert value is not None
        own = "int8" if few and (node.op_type == "Gather" or node in ends) else form
        if own in ("int4", "f4e2m1") and node.op_type in ("Conv", "ConvTranspose"):
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
    array, rank, axis = tensor.numpy(), len(tensor.shape), _channels(node)
    if form in LARGEST:
        dtype, most = LARGEST[form]
        rest = tuple(i for i in range(rank) if i != axis)
        largest = np.maximum(array.max(axis=rest), -array.min(axis=rest))
        steps = _finite(node, largest / np.float32(most)).astype(array.dtype)
        spread = steps.reshape([-1 if i == axis else 1 for i in range(rank)])
        stored = b.const(tensor.derived(partial(_scaled, spread, dtype), dtype), name)
        return b.DequantizeLinear(stored, steps, np.zeros(steps.shape, dtype.numpy()), axis=axis)
    along = rank - 2 if axis == rank - 1 else rank - 1  # the axis that a product sums over
    if node.op_type == "Gemm":
        along = 1 if attributes(node)["transB"] else 0
    steps = _finite(node, block_steps(array, along, block))
    if form == "f4e2m1":
        steps = np.exp2(np.floor(np.log2(np.abs(steps * 8))) - 2).astype(array.dtype)
        tensor = tensor.derived(partial(_microscaled, steps, along, block), D.FLOAT8E4M3FN)
    else:
        tensor = tensor.derived(partial(_packed, steps, along, block), D.INT4)
    stored = b.const(tensor, name)
    return b.DequantizeLinear(stored, steps, axis=along, block_size=block)


def _channels(node: ir.Node) -> int:
    if node.op_type in RECURRENT:
        return 1
    return 0 if node.op_type == "Gather" else channel_axis(node)


def _finite(node: ir.Node, steps: Array) -> Array:
    """Return scales, 1 for weights that are all zero."""
    if not np.isfinite(steps).all():
        why, help = "the weights are not finite", f"use --keep {layer(node)}"
        raise UnsupportedError(Diagnostic("X215", why, where=Where(layer=layer(node)), help=help))
    return np.where(np.abs(steps) < np.finfo(steps.dtype).tiny, steps.dtype.type(1), steps)


def block_steps(array: Array, axis: int, block: int) -> Array:
    """Return the scale of each block of weights along an axis, with which the largest weight is -8.
    It is negative if that weight is positive; 15 levels, -7 ... 7, lose 1 dB more.

    Source: `signed` scales of NNCF, and Q4_0 of https://github.com/ggml-org/ggml.
    """
    blocks = _in_blocks(array, axis, block)
    steps = np.empty((*blocks.shape[: axis + 1], *blocks.shape[axis + 2 :]), array.dtype)
    for tile in _tiles(blocks.shape, axis + 1):
        part = np.asarray(blocks[tile], np.float32)
        most, least = part.max(axis=axis + 1), part.min(axis=axis + 1)
        ends = np.where(most > -least, most, least)
        steps[tile[: axis + 1] + tile[axis + 2 :]] = ends * np.float32(-1 / 8)
    release()
    return steps


def _in_blocks(array: Array, axis: int, block: int) -> Array:
    """Split an axis into blocks, of which the last is filled with zeros: a view if none is."""
    if rest := -array.shape[axis] % block:
        array = np.pad(array, [(0, rest if i == axis else 0) for i in range(array.ndim)])
    return array.reshape(*array.shape[:axis], -1, block, *array.shape[axis + 1 :])


def _tiles(shape: tuple[int, ...], whole: int) -> Iterator[tuple[slice, ...]]:
    """Yield pieces of an array that stay in the processor's cache; the axis `whole` is not cut."""
    room, sizes = max(1, _PIECE // max(1, shape[whole])), [*shape]
    for i in reversed(range(len(shape))):
        if i != whole:
            sizes[i] = max(1, min(shape[i], room))
            room = max(1, room // sizes[i])
    ranges = (range(0, d, n or 1) for d, n in zip(shape, sizes, strict=True))
    for starts in itertools.product(*ranges):
        yield tuple(slice(i, i + n) for i, n in zip(starts, sizes, strict=True))


def _integers(steps: Array, most: int, array: Array) -> Array:
    """Return integers of up to `most`; scales broadcast."""
    made = np.empty(array.shape, np.uint8)
    factors = np.broadcast_to(1 / steps.astype(np.float32), array.shape)
    for tile in _tiles(array.shape, array.ndim - 1):
        numbers = np.multiply(array[tile], factors[tile], dtype=np.float32)
        np.minimum(numbers, most, out=numbers)
        numbers += _ROUNDS
        made[tile] = numbers.view(np.uint32)
    release()
    return made.view(np.int8)


def _packed(steps: Array, axis: int, block: int, array: Array) -> Array:
    """Return integers of 4 bits, two in a byte."""
    spread = np.expand_dims(steps, axis + 1)
    codes = _integers(spread, 7, _in_blocks(array, axis, block))
    codes = codes.reshape(*array.shape[:axis], -1, *array.shape[axis + 1 :])
    flat = codes[(slice(None),) * axis + (slice(array.shape[axis]),)].reshape(-1)
    pairs = np.pad(flat, (0, flat.size % 2)).view(np.uint16) if flat.size % 2 else flat.view("<u2")
    made = np.empty(pairs.shape, np.uint8)
    for i in range(0, pairs.size, _PIECE):
        part = pairs[i : i + _PIECE]
        made[i : i + _PIECE] = part & 15 | part >> 4 & 240
    return made


def _scaled(steps: Array, dtype: ir.DataType, array: Array) -> Array:
    """Return integers or floats of 8 bits; scales broadcast."""
    if dtype == D.INT8:
        return _integers(steps, 127, array)
    return np.asarray((array / steps).astype(dtype.numpy()))


def _microscaled(steps: Array, axis: int, block: int, array: Array) -> Array:
    """Return floats of 4 bits, in 8 bits, with a power of two for each block (OCP Microscaling)."""
    wide = np.repeat(steps, block, axis=axis)[tuple(map(slice, array.shape))]
    return np.asarray(
        (array / wide).astype(ml_dtypes.float4_e2m1fn).astype(ml_dtypes.float8_e4m3fn)
    )


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
