"""Elementwise layers without an operator of their own, and activations that carry a constant."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.ops.arithmetic import same_shapes
from converter.formats.zhouyi.special.register import blob, choose, fixed, lifts, lowers, need, need_int, need_number, operand, static
from converter.graph.build import Builder
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node


@lifts("Rsqrt")
def lift_rsqrt(layer: Layer, b: Builder) -> ir.Value:
    return b.op("Reciprocal", b.op("Sqrt", operand(layer)))


@lifts("Square")
def lift_square(layer: Layer, b: Builder) -> ir.Value:
    return b.op("Mul", operand(layer), operand(layer))


@lifts("SquaredDifference")
def lift_squared_difference(layer: Layer, b: Builder) -> ir.Value:
    d = b.op("Sub", operand(layer), operand(layer, 1))
    return b.op("Mul", d, d)


@lifts("Trunc")
def lift_trunc(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    if x.dtype is not None and x.dtype.is_integer():
        return x
    return b.op("Mul", b.op("Sign", x), b.op("Floor", b.op("Abs", x)))


@lifts("Mod")
def lift_mod(layer: Layer, b: Builder) -> ir.Value:
    """fmod=false has the sign of the divisor, as the vendor's tools compute it (section 4.3 names the dividend for both)."""
    x, y = operand(layer), operand(layer, 1)
    if need(layer, "fmod", False):
        return b.op("Mod", x, y, fmod=1)
    if x.dtype is not None and x.dtype.is_integer():
        return b.op("Mod", x, y, fmod=0)
    rest = b.op("Mod", x, y, fmod=1)
    other = b.op("And", b.op("Not", b.op("Equal", rest, b.like(x, 0))), b.op("Xor", b.op("Less", rest, b.like(x, 0)), b.op("Less", y, b.like(y, 0))))
    return b.op("Where", other, b.op("Add", rest, y), rest)


@lifts("Activation/RELU6")
def lift_relu6(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    return b.op("Clip", x, b.like(x, 0), b.like(x, 6))


@lowers("Clip")
def lower_clip(node: Node, low: Lowering) -> None:
    """0..6 has a layer of its own; a bound that is left out is infinite."""
    x = operand(node)
    if x.dtype is not None and x.dtype.is_integer():
        raise MappingError("integers have no counterpart")
    bounds = [None if node.input(i) is None else float(fixed(node, i, "the bounds").reshape(())) for i in (1, 2)]
    if bounds == [0.0, 6.0]:
        low.add("Activation", [x], node.outputs, {"method": "RELU6"})
        return
    least, most = (-np.inf if bounds[0] is None else bounds[0]), (np.inf if bounds[1] is None else bounds[1])
    low.add("Activation", [x], node.outputs, {"method": "CLIP", "clip_min": _short(least), "clip_max": _short(most)})


def _short(value: float) -> float:
    return float(str(np.float32(value)))


@lifts("Activation/SILU")
def lift_silu(layer: Layer, b: Builder) -> ir.Value:
    return b.op("Mul", operand(layer), b.op("Sigmoid", operand(layer)))


@lifts("Activation/SWISH")
def lift_swish(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    return b.op("Mul", x, b.op("Sigmoid", b.op("Mul", x, b.like(x, need_number(layer, "alpha", 1.0)))))


@lifts("Activation/CRELU")
def lift_crelu(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    return b.op("Concat", b.op("Relu", x), b.op("Relu", b.op("Neg", x)), axis=need_int(layer, "axis", -1))


@lifts("Activation/PRELU")
def lift_prelu(layer: Layer, b: Builder) -> ir.Value:
    x, slope = operand(layer), blob(layer, "negative_slope")
    if slope.ndim > len(static(x)):  # a leading 1 too many
        slope = slope.reshape(slope.shape[slope.ndim - len(static(x)) :])
    return b.op("PRelu", x, b.const(slope, f"{layer.name}.negative_slope"))


@lowers("PRelu")
def lower_prelu(node: Node, low: Lowering) -> None:
    """The slope is stored in the shape of the data, with 1 for the batch, as the vendor's parser does."""
    x, slope = operand(node), fixed(node, 1, "the slope")
    shape = static(x)
    slope = slope.reshape((1,) * (len(shape) - slope.ndim) + slope.shape)
    full = slope if slope.shape[:1] != (1,) else np.broadcast_to(slope, (1, *shape[1:])) if shape else slope
    low.add("Activation", [x], node.outputs, {"method": "PRELU"}, {"negative_slope": full})


@lifts("BiasAdd")
def lift_bias_add(layer: Layer, b: Builder) -> ir.Value:
    return b.op("Add", operand(layer), b.const(blob(layer, "biases").reshape(-1), f"{layer.name}.biases"))


@lowers("Sum")
def lower_sum(node: Node, low: Lowering) -> None:
    if len(node.inputs) != 2:
        raise MappingError("the layer takes two operands")
    same = same_shapes(node)
    low.add("Eltwise" if same else "Add", node.inputs, node.outputs, {"method": "ADD"} if same else {})


@lifts("BitShift")
def lift_bit_shift(layer: Layer, b: Builder) -> ir.Value:
    """Signed numbers keep their sign: a multiple, or a quotient rounded down."""
    x, by, direction = operand(layer), operand(layer, 1), choose(layer, "direction", {"LEFT": "LEFT", "RIGHT": "RIGHT"})
    if x.dtype is None or not x.dtype.is_signed():
        return b.op("BitShift", x, by, direction=direction)
    power = b.op("Pow", b.like(x, 2), by)
    if direction == "LEFT":
        return b.op("Mul", x, power)
    return b.op("Div", b.op("Sub", x, b.op("Mod", x, power, fmod=0)), power)
