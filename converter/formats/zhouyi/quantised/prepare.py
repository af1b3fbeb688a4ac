"""Other spellings of quantised networks -> QuantizeLinear, DequantizeLinear and biases inside their layers.

FakeQuantize(x, low, high, low, high, levels=256)    ->  DequantizeLinear(QuantizeLinear(x))
FakeQuantize(weights, ...)                           ->  DequantizeLinear(int8 weights), a step for each channel
Add(Conv(x, w), bias[1,C,1,1])                       ->  Conv(x, w, bias)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.quantised.held import held
from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import Array, constant, shape_of
from converter.graph.names import Names
from converter.graph.walk import all_graphs
from converter.passes.legalise import rewritten
from converter.passes.tidy import tidy

# bounds of real networks are rounded: a zero point this near to an integer is meant to be one
_NEAR = 0.02


def prepare(model: ir.Model) -> None:
    """In place."""
    names = Names(model)
    steps = {(EXTENSION_DOMAIN, "FakeQuantize"): linear, ("", "Add"): bias}
    for graph in all_graphs(model.graph):
        for node in list(graph):
            step = steps.get((node.domain, node.op_type))
            if step is not None and node.graph is not None:
                rewritten(node, names, step)
    tidy(model)


def linear(node: ir.Node, b: Builder) -> ir.Value | None:
    """Equal bounds on both sides with a step and a zero point; None for what QuantizeLinear cannot say."""
    x, levels = node.inputs[0], int(attrs_of(node)["levels"])
    bounds = [constant(v) for v in node.inputs[1:5]]
    if x is None or levels not in (255, 256) or any(a is None for a in bounds):
        return None
    low, high, out_low, out_high = (np.asarray(a, np.float64) for a in bounds)
    stored = None if held(x) is not None else _array(x)
    if stored is not None:
        return _weights(b, stored, low, high, out_low, out_high, levels)
    if any(a.size != 1 for a in (low, high)) or not np.array_equal(low, out_low.reshape(low.shape)) or not np.array_equal(high, out_high.reshape(high.shape)):
        return None
    step, zero = _grid(low.reshape(-1), high.reshape(-1), levels)
    if zero is None or step[0] <= 0:
        return None
    first, last, scale = float(low.reshape(-1)[0]), float(high.reshape(-1)[0]), b.const(np.float32(step[0]), "scale")
    signed = levels == 255 or int(zero[0]) == 128
    offset = levels // 2 if signed else 0
    dtype = np.int8 if signed else np.uint8
    if levels == 255:
        x = b.op("Clip", x, b.like(x, first), b.like(x, last))
    point = b.const(np.asarray(int(zero[0]) - offset, dtype), "zero_point")
    return b.op("DequantizeLinear", b.op("QuantizeLinear", x, scale, point), scale, point)


def _grid(low: Array, high: Array, levels: int) -> tuple[Array, Array | None]:
    """Steps, and zero points counted from the lowest level; None where these are no integers of the stored type."""
    step = (high - low) / (levels - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        zero = np.where(step > 0, -low / step, 0)
    whole = np.rint(zero)
    fits = np.all(np.abs(zero - whole) <= _NEAR) and whole.min() >= 0 and whole.max() <= levels - 1
    return step, whole.astype(np.int64) if fits else None


def _weights(b: Builder, array: Array, low: Array, high: Array, out_low: Array, out_high: Array, levels: int) -> ir.Value | None:
    """The level of each weight as int8; a step for each slice of the one axis along which the bounds differ."""
    rank = array.ndim
    low, high, out_low, out_high = (a.reshape((1,) * (rank - a.ndim) + a.shape) for a in (low, high, out_low, out_high))
    axes = [i for i in range(rank) if any(a.shape[i] != 1 for a in (low, high, out_low, out_high))]
    if len(axes) > 1:
        return None
    low, high, out_low, out_high = _opened(low, high, out_low, out_high)
    if np.any(high <= low):
        return None
    shape = [array.shape[i] if i in axes else 1 for i in range(rank)]
    step, zero = _grid(np.broadcast_to(out_low, shape).reshape(-1), np.broadcast_to(out_high, shape).reshape(-1), levels)
    if zero is None or np.any(step <= 0):
        return None
    level = np.rint((np.clip(array.astype(np.float64), low, high) - low) / (high - low) * (levels - 1))
    offset = levels // 2
    stored = b.const((level - offset).astype(np.int8), "weights")
    if not axes:
        return b.op("DequantizeLinear", stored, b.const(np.float32(step[0]), "scale"), b.const(np.asarray(zero[0] - offset, np.int8)))
    return b.op("DequantizeLinear", stored, b.const(step.astype(np.float32), "scale"), b.const((zero - offset).astype(np.int8)), axis=axes[0])


def _opened(low: Array, high: Array, out_low: Array, out_high: Array) -> tuple[Array, Array, Array, Array]:
    """Slices whose bounds are all 0 hold zeros: any bounds say that, as long as there are some."""
    empty = (low == 0) & (high == 0) & (out_low == 0) & (out_high == 0)
    if not empty.any():
        return low, high, out_low, out_high
    wide = float(np.abs(out_high).max()) or 1.0
    opened = (np.where(empty, v, a) for v, a in ((-1e30, low), (1e30, high), (-wide, out_low), (wide, out_high)))
    first, second, third, fourth = opened
    return first, second, third, fourth


def _array(value: ir.Value) -> Array | None:
    """A constant, also one behind a Cast or a DequantizeLinear."""
    found = held(value)
    if found is not None:
        return found.real()
    node = value.producer()
    if node is not None and node.op_type == "Cast" and node.domain == "" and node.inputs[0] is not None and value.dtype == ir.DataType.FLOAT:
        inner = _array(node.inputs[0])
        return None if inner is None else inner.astype(np.float32)
    return constant(value)


def bias(node: ir.Node, b: Builder) -> ir.Value | None:
    """A constant for each channel behind a convolution, or for each column behind a matrix product, goes into the layer."""
    for x, added in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
        maker = None if x is None else x.producer()
        array = None if added is None else _array(added)
        if x is None or maker is None or maker.domain or array is None or len(x.uses()) != 1 or x.is_graph_output():
            continue
        if maker.op_type in ("Conv", "ConvTranspose") and len(maker.inputs) == 2:
            return _convolution(b, maker, x, array)
        if maker.op_type == "MatMul":
            return _dense(b, maker, x, array)
    return None


def _convolution(b: Builder, maker: ir.Node, x: ir.Value, array: Array) -> ir.Value | None:
    shape = shape_of(x)
    if shape is None or (array.size != 1 and (1,) * (len(shape) - array.ndim) + array.shape != (1, shape[1], *[1] * (len(shape) - 2))):
        return None
    added = b.const(np.broadcast_to(array.reshape(-1), (shape[1],)).astype(np.float32), "bias")
    return b.op(maker.op_type, maker.inputs[0], maker.inputs[1], added, **attrs_of(maker))


def _dense(b: Builder, maker: ir.Node, x: ir.Value, array: Array) -> ir.Value | None:
    """Rows are flattened where there are more than two axes."""
    data, weights = maker.inputs
    shape, columns = shape_of(x), None if weights is None else shape_of(weights)
    before = None if data is None else shape_of(data)
    if shape is None or columns is None or before is None or len(columns) != 2 or len(before) < 2:
        return None
    if array.size not in (1, columns[1]) or (array.size > 1 and array.shape[-1] != columns[1]):
        return None
    added = b.const(np.broadcast_to(array.reshape(-1), (columns[1],)).astype(np.float32), "bias")
    if len(before) == 2:
        return b.op("Gemm", data, weights, added)
    flat = b.op("Reshape", data, [-1, columns[0]])
    return b.op("Reshape", b.op("Gemm", flat, weights, added), list(shape))
