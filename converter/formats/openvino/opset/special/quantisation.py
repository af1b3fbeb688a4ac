"""FakeQuantize, FakeConvert and quantised constants."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.codes import narrowest, repacked, reshaped
from converter.formats.openvino.opset.fields import element_type
from converter.formats.openvino.opset.special.base import Emit, attributes, constant_input, dim, given, lifts, lowers, needs, operand, optional, rank
from converter.graph.build import Builder
from converter.graph.infer import constant, rank_of, shape_of
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


def _along(e: Emit, value: ir.Value, n: int, axis: int) -> ir.Value:
    """A vector of scales or zero points, shaped to broadcast along `axis` of rank n."""
    if rank_of(value) != 1 or n <= 1:
        return value
    return e.reshape(value, [-1 if i == axis else 1 for i in range(n)])


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
    shared = [i for i, (d, whole) in enumerate(zip(steps, shape, strict=False)) if d != whole]
    if len(shared) == 1 and steps[shared[0]] == 1:  # groups: all of this axis is one block
        return b.op("DequantizeLinear", weights, scale, zero, axis=shared[0], block_size=shape[shared[0]])
    return None


def _flat(b: Builder, value: ir.Value, shape: list[int]) -> ir.Value:
    assert value.const_value is not None
    return b.const(reshaped(value.const_value, shape), value.name or "const")


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
    n, axis, block = rank(x), node.attrs.get("axis", 1), node.attrs.get("block_size", 0)
    axis = axis + n if axis < 0 else axis
    if block and (shape_of(scale) is None or dim(scale, axis) != 1 or dim(x, axis) != block):
        _dequantize_groups(e, x, scale, zero, axis, block)
        return
    point = None if zero is None else _along(e, zero, n, axis)
    e.out("Multiply", *_factors(e, x, _along(e, scale, n, axis), point), auto_broadcast="numpy")


def _factors(e: Emit, x: ir.Value, scale: ir.Value, zero: ir.Value | None = None) -> tuple[ir.Value, ir.Value]:
    """Convert(x) - Convert(zero), and the scale in the type of the result."""
    out = e.node.outputs[0].dtype or scale.dtype or T.FLOAT
    name = element_type.lower(int(out))
    y = e.op("Convert", e.stored(x), dtype=out, destination_type=name)
    if zero is not None:
        y = e.op("Subtract", y, e.op("Convert", e.stored(zero), dtype=out, destination_type=name), auto_broadcast="numpy")
    return y, e.op("Convert", scale, dtype=out, destination_type=name) if scale.dtype != out else scale


def _dequantize_groups(e: Emit, x: ir.Value, scale: ir.Value, zero: ir.Value | None, axis: int, block: int) -> None:
    """The blocks of an axis as an axis of their own, as runtimes know them: of a scale for every weight one of them makes garbage with 4 bits.

    A last block that is not full is a part of its own.
    """
    shape, steps = shape_of(x), shape_of(scale)
    if shape is None or steps is None or x.const_value is None:
        raise MappingError("blocks of what is not constant")
    if axis < len(shape) - 1 and any(use.node.op_type == "Gather" for use in e.node.outputs[0].uses()):
        raise MappingError("a runtime gathers from blocks of the last axis only")  # of others it takes what is not there
    full, rest = divmod(shape[axis], block)
    parts = []
    for first, count, width in ((0, full, block), (full, 1, rest)):
        if not count or not width:
            continue
        places, column = slice(first, first + count), [*steps[:axis], count, 1, *steps[axis + 1 :]]
        weights = _part(e, x, axis, slice(first * block, first * block + count * width), [*shape[:axis], count, width, *shape[axis + 1 :]])
        factor, point = (None if v is None else _part(e, v, axis, places, column) for v in (scale, zero))
        assert factor is not None
        y = e.op("Multiply", *_factors(e, weights, factor, point), dtype=e.node.outputs[0].dtype, auto_broadcast="numpy")
        parts.append((y, [*shape[:axis], count * width, *shape[axis + 1 :]]))
    if len(parts) == 1:
        e.out("Reshape", *parts[0], special_zero=False)
    else:
        e.out("Concat", *(e.op("Reshape", *part, special_zero=False) for part in parts), axis=axis)


def _part(e: Emit, value: ir.Value, axis: int, places: slice, shape: list[int]) -> ir.Value:
    """A stretch of a constant along an axis, in another shape; cut when it is written."""
    tensor, whole = value.const_value, dim(value, axis)
    if tensor is None:
        if (places.start, places.stop) != (0, whole):
            raise MappingError("a part of what is not constant")
        return e.reshape(value, shape)
    if (places.start, places.stop) != (0, whole):
        tensor = _cut(tensor, (*[slice(None)] * axis, places), [places.stop - places.start if i == axis else d for i, d in enumerate(shape_of(value) or ())])
    return constant_input(e.low, reshaped(narrowest(tensor), shape), value.name or "const")


def _cut(tensor: ir.TensorProtocol, at: tuple[slice, ...], shape: list[int]) -> ir.TensorProtocol:
    return ir.LazyTensor(lambda: ir.Tensor(np.ascontiguousarray(tensor.numpy()[at]), tensor.dtype), dtype=tensor.dtype, shape=ir.Shape(shape))


RANGES = {T.UINT8: (0, 255), T.INT8: (-128, 127), T.UINT16: (0, 65535), T.INT16: (-32768, 32767)}


@lowers("UnpackBits", domain="netconv")
def lower_unpack_bits(node: Node, low: Lowering) -> None:
    """Constants, in the packed form that the format has for 1, 2 and 4 bits, else a byte each: to unpack them while running takes readers very long."""
    e, packed, bits = Emit(node, low), constant(node.input(0)), node.attrs["bits"]
    if packed is None:
        raise MappingError("the packed numbers must be constant")
    shape = [int(d) for d in node.attrs["shape"]]
    stored = repacked(packed, bits, node.attrs.get("order", "msb"), shape, given(node, 0).name or "weights")
    e.out("Convert", e.stored(constant_input(low, stored, stored.name or "weights")), destination_type="u8")


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
