"""FakeQuantize, FakeConvert and quantised constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.fields import element_type
from converter.formats.openvino.opset.special.base import Emit, attributes, given, lifts, lowers, needs, operand, optional, rank
from converter.graph.build import Builder
from converter.graph.infer import rank_of, shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType
STORED = (T.INT8, T.UINT8, T.INT4, T.UINT4)


@lifts("FakeQuantize")
def lift_fake_quantize(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, "auto_broadcast", levels=int)
    return b.ext("FakeQuantize", *(operand(layer, i) for i in range(5)), levels=a.levels)


@lowers("FakeQuantize", domain="netconv")
def lower_fake_quantize(node: Node, low: Lowering) -> None:
    Emit(node, low).out("FakeQuantize", *node.inputs, levels=node.attrs["levels"], auto_broadcast="numpy")


@lifts("FakeConvert")
def lift_fake_convert(layer: Layer, b: Builder) -> ir.Value:
    """(data, scale[, shift])."""
    to = element_type.lift(attributes(layer, destination_type="f8e4m3").destination_type)
    return b.ext("FakeConvert", operand(layer, 0), operand(layer, 1), optional(layer, 2), to=int(to))


@lowers("FakeConvert", domain="netconv")
def lower_fake_convert(node: Node, low: Lowering) -> None:
    needs(low, "FakeConvert", 13)
    Emit(node, low).out("FakeConvert", *node.inputs, destination_type=element_type.lower(node.attrs["to"]))


def _along(e: Emit, value: ir.Value, n: int, axis: int) -> Any:
    """A vector of scales or zero points, shaped to broadcast along `axis` of rank n."""
    if rank_of(value) != 1 or n <= 1:
        return value
    shape, tensor = [-1 if i == axis else 1 for i in range(n)], value.const_value
    if tensor is None or tensor.dtype.bitwidth >= 8:
        return e.reshape(value, shape)
    shape[axis] = tensor.size
    return ir.PackedTensor(np.frombuffer(tensor.tobytes(), np.uint8), tensor.dtype, shape=ir.Shape(shape))


@lifts("Multiply")
def lift_multiply(layer: Layer, b: Builder) -> ir.Value:
    """(Convert(integers) - zero) * scale with constants is a compressed weight: DequantizeLinear."""
    attributes(layer, "auto_broadcast")
    x, y = operand(layer, 0), operand(layer, 1)
    return dequantised(b, x, y) or dequantised(b, y, x) or b.op("Mul", x, y)


def _source(value: ir.Value | None, kind: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type == kind else None


def _stored(value: ir.Value | None) -> ir.Value | None:
    """The integer constant behind a Cast."""
    cast = _source(value, "Cast")
    inner = cast.inputs[0] if cast is not None else None
    return inner if inner is not None and inner.const_value is not None and inner.dtype in STORED else None


def dequantised(b: Builder, x: ir.Value, scale: ir.Value) -> ir.Value | None:
    if scale.const_value is None or scale.dtype != T.FLOAT or x.dtype != scale.dtype:
        return None
    minus = _source(x, "Sub")
    weights = _stored(minus.inputs[0] if minus is not None else x)
    shape, steps = (None if weights is None else shape_of(weights)), shape_of(scale)
    if weights is None or shape is None or steps is None or len(steps) not in (0, len(shape)):
        return None
    zero = None
    if minus is not None and (zero := _zero(b, minus.inputs[1], weights, steps)) is None:
        return None
    own = [i for i, d in enumerate(steps) if d != 1]
    if len(own) <= 1 and (not own or steps[own[0]] == shape[own[0]]):
        flat = [steps[own[0]]] if own else []
        return b.op("DequantizeLinear", weights, *(None if v is None else _flat(b, v, flat) for v in (scale, zero)), axis=own[0] if own else None)
    if steps[-1] == 1 and steps[:-1] == shape[:-1]:  # groups: the last axis is one block
        return b.op("DequantizeLinear", weights, scale, zero, axis=len(shape) - 1, block_size=shape[-1])
    return None


def _flat(b: Builder, value: ir.Value, shape: list[int]) -> ir.Value:
    assert value.const_value is not None
    if value.const_value.dtype.bitwidth < 8:
        tensor = value.const_value
        return b.const(ir.PackedTensor(np.frombuffer(tensor.tobytes(), np.uint8), tensor.dtype, shape=ir.Shape(shape)), value.name or "zero")
    return b.const(value.const_value.numpy().reshape(shape), value.name or "scale")


def _zero(b: Builder, value: ir.Value | None, weights: ir.Value, steps: tuple[int, ...]) -> ir.Value | None:
    """The zero point in the weights' type and the scale's shape; None when it is not such a constant."""
    found = _stored(value)
    if found is None or found.dtype != weights.dtype or shape_of(found) != steps:
        return None
    return found


@lowers("DequantizeLinear")
def lower_dequantize(node: Node, low: Lowering) -> None:
    """(Convert(x) - Convert(zero)) * scale: the chain in which runtimes look for compressed weights."""
    e, x, scale, zero = Emit(node, low), given(node, 0), given(node, 1), node.input(2)
    out = node.outputs[0].dtype or scale.dtype or T.FLOAT
    n, axis, block = rank(x), node.attrs.get("axis", 1), node.attrs.get("block_size", 0)
    axis = axis + n if axis < 0 else axis
    if block and (shape_of(scale) is None or shape_of(x) is None or shape_of(scale)[axis] != 1):  # type: ignore[index]
        raise MappingError("blocks must cover the whole axis")
    name = element_type.lower(int(out))
    y = e.op("Convert", x, dtype=out, destination_type=name)
    if zero is not None:
        z = e.op("Convert", _along(e, zero, n, axis), dtype=out, destination_type=name)
        y = e.op("Subtract", y, z, auto_broadcast="numpy")
    factor = e.op("Convert", scale, dtype=out, destination_type=name) if scale.dtype != out else scale
    e.out("Multiply", y, _along(e, factor, n, axis), auto_broadcast="numpy")


RANGES = {T.UINT8: (0, 255), T.INT8: (-128, 127), T.UINT16: (0, 65535), T.INT16: (-32768, 32767)}


@lowers("QuantizeLinear")
def lower_quantize(node: Node, low: Lowering) -> None:
    """Convert(clamp(round(x / scale) + zero)) in f32."""
    e, x, scale, zero, out = Emit(node, low), given(node, 0), given(node, 1), node.input(2), node.outputs[0]
    if node.attrs.get("block_size", 0) or out.dtype not in RANGES:
        raise MappingError(f"blocks or the type {out.dtype} cannot be expressed")
    n, axis = rank(x), node.attrs.get("axis", 1)
    axis = axis + n if axis < 0 else axis
    wide = [e.op("Convert", v, dtype=T.FLOAT, destination_type="f32") if v.dtype != T.FLOAT else v for v in (x, scale)]
    y = e.op("Round", e.op("Divide", wide[0], _along(e, wide[1], n, axis), auto_broadcast="numpy", m_pythondiv=False), mode="half_to_even")
    if zero is not None:
        z = e.op("Convert", _along(e, zero, n, axis), dtype=T.FLOAT, destination_type="f32")
        y = e.op("Add", y, z, auto_broadcast="numpy")
    least, most = RANGES[out.dtype]
    e.out("Convert", e.op("Clamp", y, min=float(least), max=float(most)), destination_type=element_type.lower(int(out.dtype)))
