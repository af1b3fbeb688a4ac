"""Elementwise functions in Relu, Exp, Log and arithmetic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.infer import constant
from converter.passes.decompose import decomposes


def x_of(node: ir.Node, index: int = 0) -> ir.Value:
    value = node.inputs[index]
    assert value is not None
    return value


def is_float(value: ir.Value) -> bool:
    return value.dtype in (None, ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)


def wide(b: Builder, x: ir.Value) -> ir.Value:
    """Half precision in single."""
    return b.op("Cast", x, to=ir.DataType.FLOAT) if x.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16) else x


def back(b: Builder, y: ir.Value, x: ir.Value) -> ir.Value:
    """`y` in the type of `x`."""
    return y if x.dtype in (None, y.dtype) else b.op("Cast", y, to=int(x.dtype))


def scaled(b: Builder, x: ir.Value, factor: float) -> ir.Value:
    return x if factor == 1 else b.op("Mul", x, b.like(x, factor))


def negative_part(b: Builder, x: ir.Value) -> ir.Value:
    """min(x, 0)"""
    return b.op("Neg", b.op("Relu", b.op("Neg", x)))


def _attr(node: ir.Node, name: str, default: float) -> float:
    return float(attrs_of(node).get(name, default))


@decomposes("HardSwish")
def hard_swish(node: ir.Node, b: Builder) -> ir.Value:
    """x * clip(x / 6 + 1/2, 0, 1)"""
    x = x_of(node)
    return b.op("Mul", x, b.op("HardSigmoid", x, alpha=1 / 6, beta=0.5))


@decomposes("HardSigmoid")
def hard_sigmoid(node: ir.Node, b: Builder) -> ir.Value:
    x = x_of(node)
    line = b.op("Add", scaled(b, x, _attr(node, "alpha", 0.2)), b.like(x, _attr(node, "beta", 0.5)))
    return b.op("Clip", line, b.like(x, 0), b.like(x, 1))


@decomposes("Clip")
def clip(node: ir.Node, b: Builder) -> ir.Value:
    """max, then min: the upper bound wins where the bounds cross."""
    y = x_of(node)
    bounds = [*node.inputs[1:], None, None]
    if bounds[0] is not None:
        y = b.op("Max", y, bounds[0])
    if bounds[1] is not None:
        y = b.op("Min", y, bounds[1])
    return y if y is not node.inputs[0] else b.op("Identity", y)


@decomposes("LeakyRelu")
def leaky_relu(node: ir.Node, b: Builder) -> ir.Value:
    x = x_of(node)
    return b.op("Add", b.op("Relu", x), scaled(b, negative_part(b, x), _attr(node, "alpha", 0.01)))


@decomposes("PRelu")
def prelu(node: ir.Node, b: Builder) -> ir.Value | None:
    x = x_of(node)
    return b.op("Add", b.op("Relu", x), b.op("Mul", negative_part(b, x), node.inputs[1])) if is_float(x) else None


def _exponential(b: Builder, x: ir.Value, gain: float, alpha: float, width: float = 1.0) -> ir.Value:
    """gain * (max(x, 0) + alpha * (exp(min(x, 0) / width) - 1))"""
    low = b.op("Sub", b.op("Exp", scaled(b, negative_part(b, x), 1 / width)), b.like(x, 1))
    return scaled(b, b.op("Add", b.op("Relu", x), scaled(b, low, alpha)), gain)


@decomposes("Elu")
def elu(node: ir.Node, b: Builder) -> ir.Value:
    return _exponential(b, x_of(node), 1.0, _attr(node, "alpha", 1.0))


@decomposes("Selu")
def selu(node: ir.Node, b: Builder) -> ir.Value:
    return _exponential(b, x_of(node), _attr(node, "gamma", 1.0507009873554805), _attr(node, "alpha", 1.6732632423543772))


@decomposes("Celu")
def celu(node: ir.Node, b: Builder) -> ir.Value:
    alpha = _attr(node, "alpha", 1.0)
    return _exponential(b, x_of(node), 1.0, alpha, alpha)


@decomposes("Softplus")
def softplus(node: ir.Node, b: Builder) -> ir.Value:
    """log(1 + exp(x)) without overflow: max(x, 0) + log(1 + exp(-|x|))"""
    x = x_of(node)
    small = b.op("Log", b.op("Add", b.op("Exp", b.op("Neg", b.op("Abs", x))), b.like(x, 1)))
    return b.op("Add", b.op("Relu", x), small)


@decomposes("Softsign")
def softsign(node: ir.Node, b: Builder) -> ir.Value:
    x = x_of(node)
    return b.op("Div", x, b.op("Add", b.op("Abs", x), b.like(x, 1)))


@decomposes("ThresholdedRelu")
def thresholded_relu(node: ir.Node, b: Builder) -> ir.Value:
    x = x_of(node)
    return b.op("Where", b.op("Greater", x, b.like(x, _attr(node, "alpha", 1.0))), x, b.like(x, 0))  # a product would make infinity no number


@decomposes("Sigmoid")
def sigmoid(node: ir.Node, b: Builder) -> ir.Value:
    x = x_of(node)
    return b.op("Div", b.like(x, 1), b.op("Add", b.op("Exp", b.op("Neg", x)), b.like(x, 1)))


@decomposes("Tanh")
def tanh(node: ir.Node, b: Builder) -> ir.Value:
    """1 - 2 / (exp(2x) + 1): an overflowing Exp gives 1."""
    x = x_of(node)
    return b.op("Sub", b.like(x, 1), b.op("Div", b.like(x, 2), b.op("Add", b.op("Exp", scaled(b, x, 2)), b.like(x, 1))))


@decomposes("Abs")
def absolute(node: ir.Node, b: Builder) -> ir.Value:
    x = x_of(node)
    return b.op("Max", x, b.op("Neg", x))


@decomposes("Tan")
def tan(node: ir.Node, b: Builder) -> ir.Value:
    return b.op("Div", b.op("Sin", x_of(node)), b.op("Cos", x_of(node)))


@decomposes("Sinh", "Cosh")
def hyperbolic(node: ir.Node, b: Builder) -> ir.Value:
    x = x_of(node)
    both = b.op("Sub" if node.op_type == "Sinh" else "Add", b.op("Exp", x), b.op("Exp", b.op("Neg", x)))
    return scaled(b, both, 0.5)


@decomposes("Asinh", "Acosh", "Atanh")
def inverse_hyperbolic(node: ir.Node, b: Builder) -> ir.Value:
    """asinh is odd: taken of |x|, where x + sqrt(x^2 + 1) does not cancel."""
    x = x_of(node)
    one = b.like(x, 1)
    if node.op_type == "Atanh":
        return scaled(b, b.op("Log", b.op("Div", b.op("Add", x, one), b.op("Sub", one, x))), 0.5)
    if node.op_type == "Acosh":
        return b.op("Log", b.op("Add", x, b.op("Sqrt", b.op("Sub", b.op("Mul", x, x), one))))
    size = b.op("Abs", x)
    y = b.op("Log", b.op("Add", size, b.op("Sqrt", b.op("Add", b.op("Mul", x, x), one))))
    return b.op("Mul", y, b.op("Sign", x))


@decomposes("Sign")
def sign(node: ir.Node, b: Builder) -> ir.Value | None:
    x = x_of(node)
    if x.dtype is None or not is_float(x):
        return None
    zero, to = b.like(x, 0), int(x.dtype)
    return b.op("Sub", b.op("Cast", b.op("Greater", x, zero), to=to), b.op("Cast", b.op("Less", x, zero), to=to))


@decomposes("Sqrt")
def sqrt(node: ir.Node, b: Builder) -> ir.Value:
    return b.op("Pow", x_of(node), b.like(x_of(node), 0.5))


@decomposes("Pow")
def power(node: ir.Node, b: Builder) -> ir.Value | None:
    """Small whole exponents by multiplication."""
    x, exponent = x_of(node), constant(node.inputs[1])
    if exponent is None or exponent.size != 1 or exponent.ndim > (x.shape.rank() if x.shape is not None else 0):
        return None
    count = float(exponent.reshape(()))
    if count == 1:
        return b.op("Identity", x)
    if count == -1 and is_float(x):
        return b.op("Reciprocal", x)
    if count not in (2, 3, 4):
        return None
    square = b.op("Mul", x, x)
    return square if count == 2 else b.op("Mul", square, x if count == 3 else square)


@decomposes("Min")
def minimum(node: ir.Node, b: Builder) -> ir.Value | None:
    """-max(-a, -b); three or more operands pairwise."""
    operands: list[Any] = [v for v in node.inputs if v is not None]
    if len(operands) == 1:
        return b.op("Identity", operands[0])
    if len(operands) > 2:
        return b.op("Min", b.op("Min", *operands[:-1]), operands[-1])
    return b.op("Neg", b.op("Max", *(b.op("Neg", v) for v in operands))) if all(is_float(v) for v in operands) else None


@decomposes("IsNaN")
def is_nan(node: ir.Node, b: Builder) -> ir.Value:
    return b.op("Not", b.op("Equal", x_of(node), x_of(node)))


@decomposes("IsInf")
def is_inf(node: ir.Node, b: Builder) -> ir.Value:
    """Equal to one of the infinities that are asked for; nothing is less than itself."""
    x, attrs = x_of(node), attrs_of(node)
    parts = [b.op("Equal", x, b.like(x, s * math.inf)) for s, k in ((1, "detect_positive"), (-1, "detect_negative")) if attrs.get(k, 1)]
    return b.op("Or", *parts) if len(parts) == 2 else parts[0] if parts else b.op("Less", x, x)


@decomposes("Mod")
def mod(node: ir.Node, b: Builder) -> ir.Value | None:
    """x - floor(x / y) * y; with fmod that of the sizes, with the sign of x. What an infinite divisor leaves needs no quotient."""
    x, y, divisor = x_of(node), x_of(node, 1), constant(node.inputs[1])
    if not is_float(x) or (divisor is not None and not np.all(np.isfinite(divisor) & (divisor != 0))):
        return None
    zero = b.like(x, 0)
    if attrs_of(node).get("fmod", 0):
        size, step = b.op("Abs", x), b.op("Abs", y) if divisor is None else b.const(np.abs(divisor))
        rest = b.op("Sub", size, b.op("Mul", b.op("Floor", b.op("Div", size, step)), step))
        rest, left = b.op("Where", b.op("Less", x, zero), b.op("Neg", rest), rest), x
    else:
        rest = b.op("Sub", x, b.op("Mul", b.op("Floor", b.op("Div", x, y)), y))
        left = b.op("Where", b.op("Less", b.op("Mul", x, y), zero), y, x) if divisor is None else x
    return rest if divisor is not None else b.op("Where", b.op("Equal", b.op("Abs", y), b.like(x, np.inf)), left, rest)


@decomposes("Not")
def negation(node: ir.Node, b: Builder) -> ir.Value:
    return b.op("Equal", x_of(node), np.array(False))


@decomposes("Round")
def half_to_even(node: ir.Node, b: Builder) -> ir.Value:
    """floor(x), one more where the rest is above 1/2; the even number of the two where it is 1/2. The rest is exact, x + 1/2 would not be."""
    x = x_of(node)
    down = b.op("Floor", x)
    up, rest = b.op("Add", down, b.like(x, 1)), b.op("Sub", x, down)
    even = scaled(b, b.op("Floor", scaled(b, up, 0.5)), 2)
    nearest = b.op("Where", b.op("Greater", rest, b.like(x, 0.5)), up, down)
    return b.op("Where", b.op("Equal", rest, b.like(x, 0.5)), even, nearest)
