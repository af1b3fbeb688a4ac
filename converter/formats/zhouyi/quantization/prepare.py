"""Other spellings of quantized networks -> QuantizeLinear, DequantizeLinear and biases inside their
layers.

FakeQuantize(x, low, high, low, high, levels=256)    ->  DequantizeLinear(QuantizeLinear(x))
FakeQuantize(weights, ...)                           ->  DequantizeLinear(int8 weights), a step for
each channel Add(Conv(x, w), bias[1,C,1,1])                       ->  Conv(x, w, bias)
MatMul(x, stored weights)                              ->  Gemm(x, weights) of rows
the steps of a GELU                                   ->  Gelu(x)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.quantization.constants import quantized_constant
from converter.formats.zhouyi.quantization.gelu import gelu
from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import Array, constant, shape_of
from converter.graph.names import Names
from converter.graph.value import producer_of
from converter.graph.walk import all_graphs
from converter.passes.dead_code import remove_dead_code
from converter.passes.legalize import rewritten

# bounds of real networks are rounded: a zero point this close to an integer is an integer
_NEAR = 0.02


def prepare(model: ir.Model) -> None:
    """Convert other forms of quantized networks to QuantizeLinear and DequantizeLinear, in
    place.
    """
    names = Names(model)
    first = {(EXTENSION_DOMAIN, "FakeQuantize"): linear, ("", "Add"): bias}
    places = {node: i for i, node in enumerate(model.graph)}
    # MatMul: may already have a bias after it
    second = {("", "MatMul"): columns, ("", "Mul"): lambda n, b: gelu(n, b, places)}
    for steps in (first, second):
        for graph in all_graphs(model.graph):
            for node in list(graph):
                step = steps.get((node.domain, node.op_type))
                if step is not None and node.graph is not None:
                    rewritten(node, names, step)
    remove_dead_code(model)


def linear(node: ir.Node, b: Builder) -> ir.Value | None:
    """Return symmetric bounds as a scale and a zero point; None if QuantizeLinear cannot express
    them.
    """
    x, levels = node.inputs[0], int(attrs_of(node)["levels"])
    bounds = [constant(v) for v in node.inputs[1:5]]
    if x is None or levels not in (255, 256) or any(a is None for a in bounds):
        return None
    low, high, out_low, out_high = (np.asarray(a, np.float64) for a in bounds)
    stored = None if quantized_constant(x) is not None else _array(x)
    if stored is not None:
        return _weights(b, stored, low, high, out_low, out_high, levels)
    same = np.array_equal(low, out_low.reshape(low.shape))
    if low.size != 1 or not same or not np.array_equal(high, out_high.reshape(high.shape)):
        return None
    step, zero = _scales_and_zeros(low.reshape(-1), high.reshape(-1), levels)
    if zero is None or step[0] <= 0:
        return None
    if levels == 255:
        x = b.Clip(x, low.item(), high.item())
    signed = levels == 255 or zero[0] == 128
    offset, dtype = (levels // 2, np.int8) if signed else (0, np.uint8)
    scale = b.const(np.float32(step[0]), "scale")
    point = b.const(np.asarray(zero[0] - offset, dtype), "zero_point")
    return b.DequantizeLinear(b.QuantizeLinear(x, scale, point), scale, point)


def _scales_and_zeros(low: Array, high: Array, levels: int) -> tuple[Array, Array | None]:
    """Return the scales, and the zero points counted from the lowest level; None if these are not
    integers of the stored type.
    """
    step = (high - low) / (levels - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        zero = np.where(step > 0, -low / step, 0)
    whole = np.rint(zero)
    fits = np.all(np.abs(zero - whole) <= _NEAR) and whole.min() >= 0 and whole.max() <= levels - 1
    return step, whole.astype(np.int64) if fits else None


def _weights(
    b: Builder, array: Array, low: Array, high: Array, out_low: Array, out_high: Array, levels: int
) -> ir.Value | None:
    """Return the level of each weight as int8, and a scale for each slice along the one axis along
    which the bounds differ.
    """
    rank = array.ndim
    bounds = [a.reshape((1,) * (rank - a.ndim) + a.shape) for a in (low, high, out_low, out_high)]
    axes = [i for i in range(rank) if any(a.shape[i] != 1 for a in bounds)]
    if len(axes) > 1:
        return None
    low, high, *out = _opened(*bounds)
    if np.any(high <= low):
        return None
    shape = [array.shape[i] if i in axes else 1 for i in range(rank)]
    first, last = (np.broadcast_to(a, shape).reshape(-1) for a in out)
    step, zero = _scales_and_zeros(first, last, levels)
    if zero is None or np.any(step <= 0):
        return None
    part = (np.clip(array.astype(np.float64), low, high) - low) / (high - low)
    offset, form = levels // 2, step.shape if axes else ()
    stored = b.const((np.rint(part * (levels - 1)) - offset).astype(np.int8), "weights")
    scale = b.const(step.astype(np.float32).reshape(form), "scale")
    point = b.const((zero - offset).astype(np.int8).reshape(form))
    return b.DequantizeLinear(stored, scale, point, axis=axes[0] if axes else None)


def _opened(low: Array, high: Array, out_low: Array, out_high: Array) -> tuple[Array, ...]:
    """Widen bounds that are all 0: such slices contain zeros, which any nonempty bounds
    represent.
    """
    empty = (low == 0) & (high == 0) & (out_low == 0) & (out_high == 0)
    if not empty.any():
        return low, high, out_low, out_high
    wide = float(np.abs(out_high).max()) or 1.0
    pairs = ((-1e30, low), (1e30, high), (-wide, out_low), (wide, out_high))
    return tuple(np.where(empty, v, a) for v, a in pairs)


def _array(value: ir.Value) -> Array | None:
    """Return the array of a constant, also through a Cast or a DequantizeLinear."""
    found = quantized_constant(value)
    if found is not None:
        return found.real()
    node = value.producer()
    cast = node is not None and (node.domain, node.op_type) == ("", "Cast")
    if node is not None and cast and node.inputs[0] and value.dtype == ir.DataType.FLOAT:
        inner = _array(node.inputs[0])
        return None if inner is None else inner.astype(np.float32)
    return constant(value)


def bias(node: ir.Node, b: Builder) -> ir.Value | None:
    """Move a constant for each channel after a convolution, or for each column after a matrix
    product, into the layer.
    """
    for x, added in (node.inputs, node.inputs[::-1]):
        producer = producer_of(x)
        array = None if added is None else _array(added)
        if x is None or producer is None or producer.domain or array is None:
            continue
        if len(x.uses()) != 1 or x.is_graph_output():
            continue
        if producer.op_type in ("Conv", "ConvTranspose") and len(producer.inputs) == 2:
            return _convolution(b, producer, x, array)
        if producer.op_type == "MatMul":
            return _dense(b, producer, x, array)
        if producer.op_type == "Gemm" and len(producer.inputs) == 2:
            return _rows(b, producer, array)
    return None


def _rows(b: Builder, producer: ir.Node, array: Array) -> ir.Value | None:
    """Return a number for each column of a Gemm without a bias."""
    columns = (shape_of(producer.outputs[0]) or (0,))[-1]
    if array.size not in (1, columns) or (array.size > 1 and array.shape[-1] != columns):
        return None
    attributes = {**attrs_of(producer), "beta": 1.0}
    return b.op("Gemm", *producer.inputs, _spread(b, array, columns), **attributes)


def _convolution(b: Builder, producer: ir.Node, x: ir.Value, array: Array) -> ir.Value | None:
    shape = shape_of(x)
    if shape is None:
        return None
    channel = (1, shape[1], *[1] * (len(shape) - 2))
    if array.size != 1 and (1,) * (len(shape) - array.ndim) + array.shape != channel:
        return None
    added = _spread(b, array, shape[1])
    return b.op(producer.op_type, *producer.inputs[:2], added, **attrs_of(producer))


def _spread(b: Builder, array: Array, count: int) -> ir.Value:
    """Return a number for each channel, given one for each or one for all."""
    return b.const(np.broadcast_to(array.reshape(-1), (count,)).astype(np.float32), "bias")


def columns(node: ir.Node, b: Builder) -> ir.Value | None:
    """Return a product with stored weights."""
    if quantized_constant(node.inputs[1]) is None:
        return None
    return _dense(b, node, node.outputs[0], None)


def _dense(b: Builder, producer: ir.Node, x: ir.Value, array: Array | None) -> ir.Value | None:
    """Flatten the rows of a matrix product if there are more than two axes."""
    data, weights = producer.inputs
    shape, columns, before = shape_of(x), shape_of(weights), shape_of(data)
    if shape is None or columns is None or before is None or len(columns) != 2 or len(before) < 2:
        return None
    added = []
    if array is not None:
        if array.size not in (1, columns[1]) or (array.size > 1 and array.shape[-1] != columns[1]):
            return None
        added = [_spread(b, array, columns[1])]
    if len(before) == 2:
        return b.Gemm(data, weights, *added)
    flat = b.Reshape(data, [-1, columns[0]])
    return b.Reshape(b.Gemm(flat, weights, *added), list(shape))
