"""Weights alone in fewer bits: integers and small floats with scales, palettes, halves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import ml_dtypes
import numpy as np
import onnx_ir as ir

from converter.commands.quantize.blocks import block_steps, integers, nibbles, nonzero, packed
from converter.commands.quantize.feedback import Moments, with_feedback
from converter.commands.quantize.place import RECURRENT, layer
from converter.errors import Diagnostic, UnsupportedError, Where
from converter.graph.build import Builder, attributes, builder_before
from converter.graph.infer import Array, rank_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import Names
from converter.graph.value import optional
from converter.graph.walk import all_graphs
from converter.passes.dead_code import remove_dead_code
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


def compress(
    model: ir.Model,
    form: str,
    block: int,
    kept: Callable[[ir.Node], str],
    moments: Moments | None = None,
) -> dict[str, str]:
    """Compress the weights of a model in place; return layer -> the form of its weights. `kept`:
    why a layer stays as it is. `moments`: the data of products, by which int4 is rounded.

    With fewer than 8 bits embeddings and the first and the last layer have 8: most of the loss is
    there.
    """
    if form in HALVES:
        return _halves(model, form)
    found = [u for u in _uses(model) if not kept(u[0])]
    few = form not in (*LARGEST, "palette8", "palette6")
    ends = {n for n, _ in (*found[:1], *found[-1:])} if few and len(found) > 2 else set()

    def own(node: ir.Node) -> str:
        eight = few and (node.op_type == "Gather" or node in ends)
        blocks = form in ("int4", "f4e2m1") and node.op_type in ("Conv", "ConvTranspose")
        return "int8" if eight or blocks else form

    names, made, forms = Names(model), dict[tuple[ir.Value, str], ir.Value](), dict[str, str]()
    if moments is not None:
        moments.names = [_rows(n) for n, _ in found if own(n) == "int4"]
    for node, index in found:
        value = node.inputs[index]
        assert value is not None
        forms[layer(node)] = chosen = own(node)
        if (value, chosen) not in made:
            b = builder_before(next(iter(node.graph)), names)  # type: ignore[arg-type]
            made[value, chosen] = _compressed(b, node, value, chosen, block, moments)
        node.replace_input_with(index, made[value, chosen])
    remove_dead_code(model)
    return forms


def _rows(node: ir.Node) -> str:
    """Return the name of the data of which a node multiplies rows by a matrix; "" for others."""
    data, weights = optional(node, 0), optional(node, 1)
    product = node.op_type in ("Gemm", "MatMul") and not attributes(node).get("transA")
    return str(data.name) if product and data is not None and rank_of(weights) == 2 else ""


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


def _compressed(
    b: Builder, node: ir.Node, value: ir.Value, form: str, block: int, moments: Moments | None
) -> ir.Value:
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
    data = moments.of(_rows(node)) if moments is not None and form == "int4" else None
    if data is not None:
        steps, codes = with_feedback(array, along, block, data)
        tensor = LazyTensor(nibbles(codes), D.INT4, array.shape)
    elif form == "f4e2m1":
        steps = np.exp2(np.floor(np.log2(np.abs(steps * 8))) - 2).astype(array.dtype)
        tensor = tensor.derived(partial(_microscaled, steps, along, block), D.FLOAT8E4M3FN)
    else:
        tensor = tensor.derived(partial(packed, steps, along, block), D.INT4)
    stored = b.const(tensor, name)
    return b.DequantizeLinear(stored, steps, axis=along, block_size=block)


def _channels(node: ir.Node) -> int:
    if node.op_type in RECURRENT:
        return 1
    return 0 if node.op_type == "Gather" else channel_axis(node)


def _finite(node: ir.Node, steps: Array) -> Array:
    """Return scales that are not zero. Raises UnsupportedError if one is infinite."""
    if not np.isfinite(steps).all():
        why, help = "the weights are not finite", f"use --keep {layer(node)}"
        raise UnsupportedError(Diagnostic("X215", why, where=Where(layer=layer(node)), help=help))
    return nonzero(steps)


def _scaled(steps: Array, dtype: ir.DataType, array: Array) -> Array:
    """Return integers or floats of 8 bits; scales broadcast."""
    if dtype == D.INT8:
        return integers(steps, 127, array)
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
