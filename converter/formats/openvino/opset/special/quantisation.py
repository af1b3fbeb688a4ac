"""FakeQuantize, FakeConvert and quantised constants."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.formats.openvino.opset.fields import element_type
from converter.formats.openvino.opset.special.base import Emit, attributes, given, lifts, lowers, operand, optional, rank
from converter.graph.build import Builder
from converter.graph.infer import rank_of, shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType


@lifts("FakeQuantize")
def lift_fake_quantize(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, "auto_broadcast", levels=int)
    return b.ext("FakeQuantize", *(operand(layer, i) for i in range(5)), levels=a.levels)


@lowers("FakeQuantize", domain="netconv")
def lower_fake_quantize(node: Node, low: Lowering) -> None:
    Emit(node, low).out("FakeQuantize", *node.inputs, levels=node.attrs["levels"], auto_broadcast="numpy")


@lifts("FakeConvert")
def lift_fake_convert(layer: Layer, b: Builder) -> ir.Value:
    """(data, scale[, shift]): through an 8-bit float and back."""
    a, x, scale, shift = attributes(layer, destination_type="f8e4m3"), operand(layer, 0), operand(layer, 1), optional(layer, 2)
    y = b.op("Mul", x, scale)
    if shift is not None:
        y = b.op("Sub", y, shift)
    assert x.dtype is not None
    narrow = b.op("Cast", b.op("Cast", y, to=element_type.lift(a.destination_type)), to=int(x.dtype))
    if shift is not None:
        narrow = b.op("Add", narrow, shift)
    return b.op("Div", narrow, scale)


def _along(e: Emit, value: ir.Value, n: int, axis: int) -> Any:
    """A vector of scales or zero points, shaped to broadcast along `axis` of rank n."""
    if rank_of(value) != 1 or n <= 1:
        return value
    return e.reshape(value, [-1 if i == axis else 1 for i in range(n)])


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
        z = e.op("Convert", zero, dtype=out, destination_type=name)
        if rank_of(zero) == 1 and n > 1:
            z = e.op("Reshape", z, [-1 if i == axis else 1 for i in range(n)], special_zero=False)
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
        z = e.op("Convert", zero, dtype=T.FLOAT, destination_type="f32")
        if rank_of(zero) == 1 and n > 1:
            z = e.op("Reshape", z, [-1 if i == axis else 1 for i in range(n)], special_zero=False)
        y = e.op("Add", y, z, auto_broadcast="numpy")
    least, most = RANGES[out.dtype]
    e.out("Convert", e.op("Clamp", y, min=float(least), max=float(most)), destination_type=element_type.lower(int(out.dtype)))
