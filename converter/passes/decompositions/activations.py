"""Elementwise functions in Relu, Exp, Log and arithmetic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes
from converter.graph.infer import constant
from converter.graph.value import FLOAT, with_operators
from converter.passes.decompositions.table import Table


def x_of(node: ir.Node, index: int = 0) -> Value:
    """Return an input of a node, which must be there, as a value with operators."""
    value = node.inputs[index]
    assert value is not None
    return with_operators(value)


def is_float(value: ir.Value) -> bool:
    """Return whether a value has a floating-point type of at least 16 bits, or no known type."""
    return value.dtype in (
        None,
        FLOAT,
        ir.DataType.FLOAT16,
        ir.DataType.BFLOAT16,
        ir.DataType.DOUBLE,
    )


def wide(b: Builder, x: ir.Value) -> Value:
    """Cast half precision to single precision."""
    return (
        b.Cast(x, to=FLOAT)
        if x.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
        else with_operators(x)
    )


def back(b: Builder, y: Value, x: Value) -> Value:
    """Cast `y` to the type of `x`."""
    return y if x.dtype in (None, y.dtype) else b.Cast(y, to=x.dtype)


def scaled(b: Builder, x: Value, factor: float) -> Value:
    """Multiply by a constant; a factor of 1 adds no node."""
    return x if factor == 1 else x * factor


def negative_part(b: Builder, x: Value) -> Value:
    """Return min(x, 0)."""
    return -b.Relu(-x)


def hard_swish(node: ir.Node, b: Builder) -> Value:
    """Compute x * clip(x / 6 + 1/2, 0, 1)."""
    x = x_of(node)
    return x * b.HardSigmoid(x, alpha=1 / 6, beta=0.5)


def hard_sigmoid(node: ir.Node, b: Builder) -> Value:
    """Rewrite HardSigmoid as Clip(alpha * x + beta, 0, 1)."""
    x = x_of(node)
    line = scaled(b, x, attributes(node)["alpha"]) + attributes(node)["beta"]
    return b.Clip(line, 0, 1)


def clip(node: ir.Node, b: Builder) -> Value:
    """Compute max, then min: if the bounds cross, the upper one wins."""
    y = x_of(node)
    bounds = [*node.inputs[1:], None, None]
    if bounds[0] is not None:
        y = b.Max(y, bounds[0])
    if bounds[1] is not None:
        y = b.Min(y, bounds[1])
    return y if y is not node.inputs[0] else b.Identity(y)


def leaky_relu(node: ir.Node, b: Builder) -> Value:
    """Rewrite LeakyRelu as Relu(x) + alpha * min(x, 0)."""
    x = x_of(node)
    return b.Relu(x) + scaled(b, negative_part(b, x), attributes(node)["alpha"])


def prelu(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite PRelu as Relu(x) + slope * min(x, 0), if the slopes are finite."""
    x, slope = x_of(node), x_of(node, 1)
    if not is_float(x) or not is_finite(slope):
        return None
    return b.Relu(x) + negative_part(b, x) * slope


def is_finite(value: ir.Value) -> bool:
    """Return whether 0 times a constant is 0, so that the product can be left out; computed values
    are assumed to be finite.
    """
    array = constant(value)
    return array is None or bool(np.isfinite(array).all())


def _exponential(b: Builder, x: Value, gain: float, alpha: float, width: float = 1.0) -> Value:
    """Compute gain * (max(x, 0) + alpha * (exp(min(x, 0) / width) - 1))."""
    low = b.Exp(scaled(b, negative_part(b, x), 1 / width)) - 1
    return scaled(b, b.Relu(x) + scaled(b, low, alpha), gain)


def elu(node: ir.Node, b: Builder) -> Value:
    """Rewrite Elu as Relu(x) + alpha * (exp(min(x, 0)) - 1)."""
    return _exponential(b, x_of(node), 1.0, attributes(node)["alpha"])


def selu(node: ir.Node, b: Builder) -> Value:
    """Rewrite Selu as gamma * (Relu(x) + alpha * (exp(min(x, 0)) - 1))."""
    return _exponential(
        b,
        x_of(node),
        attributes(node)["gamma"],
        attributes(node)["alpha"],
    )


def celu(node: ir.Node, b: Builder) -> Value:
    """Rewrite Celu as Relu(x) + alpha * (exp(min(x, 0) / alpha) - 1)."""
    alpha = attributes(node)["alpha"]
    return _exponential(b, x_of(node), 1.0, alpha, alpha)


def softplus(node: ir.Node, b: Builder) -> Value:
    """Compute log(1 + exp(x)) without overflow: max(x, 0) + log(1 + exp(-|x|))."""
    x = x_of(node)
    small = b.Log(b.Exp(-b.Abs(x)) + 1)
    return b.Relu(x) + small


def softsign(node: ir.Node, b: Builder) -> Value:
    """Rewrite Softsign as x / (|x| + 1)."""
    x = x_of(node)
    return x / (b.Abs(x) + 1)


def thresholded_relu(node: ir.Node, b: Builder) -> Value:
    """Rewrite ThresholdedRelu as Where(x > alpha, x, 0)."""
    x = x_of(node)
    return b.Where(x > attributes(node)["alpha"], x, 0)  # multiplying would turn infinity into NaN


def sigmoid(node: ir.Node, b: Builder) -> Value:
    """Rewrite Sigmoid as 1 / (exp(-x) + 1)."""
    x = x_of(node)
    return 1 / (b.Exp(-x) + 1)


def tanh(node: ir.Node, b: Builder) -> Value:
    """Compute 1 - 2 / (exp(2x) + 1), which is 1 if Exp overflows."""
    x = x_of(node)
    return 1 - 2 / (b.Exp(scaled(b, x, 2)) + 1)


def absolute(node: ir.Node, b: Builder) -> Value:
    """Rewrite Abs as Max(x, -x)."""
    x = x_of(node)
    return b.Max(x, -x)


def tan(node: ir.Node, b: Builder) -> Value:
    """Rewrite Tan as Sin(x) / Cos(x)."""
    return b.Sin(x_of(node)) / b.Cos(x_of(node))


def hyperbolic(node: ir.Node, b: Builder) -> Value:
    """Rewrite Sinh and Cosh as half the difference and the sum of exp(x) and exp(-x)."""
    x = x_of(node)
    both = b.operator("Sub" if node.op_type == "Sinh" else "Add")(b.Exp(x), b.Exp(-x))
    return scaled(b, both, 0.5)


def inverse_hyperbolic(node: ir.Node, b: Builder) -> Value:
    """Compute asinh for |x|, since it is odd, and x + sqrt(x^2 + 1) loses no digits there."""
    x = x_of(node)
    one = b.like(x, 1)
    if node.op_type == "Atanh":
        return scaled(b, b.Log((x + one) / (one - x)), 0.5)
    if node.op_type == "Acosh":
        return b.Log(x + b.Sqrt(x * x - one))
    size = b.Abs(x)
    y = b.Log(size + b.Sqrt(x * x + one))
    return y * b.Sign(x)


def sign(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite Sign of floats as (x > 0) - (x < 0)."""
    x = x_of(node)
    if x.dtype is None or not is_float(x):
        return None
    zero, to = b.like(x, 0), int(x.dtype)
    return b.Cast(x > zero, to=to) - b.Cast(x < zero, to=to)


def sqrt(node: ir.Node, b: Builder) -> Value:
    """Rewrite Sqrt as Pow(x, 0.5)."""
    return x_of(node) ** 0.5


def power(node: ir.Node, b: Builder) -> Value | None:
    """Replace small integer exponents by multiplications, and compute with operands of one type."""
    x, exponent = x_of(node), constant(node.inputs[1])
    if (
        exponent is None
        or exponent.size != 1
        or exponent.ndim > (x.shape.rank() if x.shape is not None else 0)
    ):
        return power_of_one_type(node, b)
    count = float(exponent.reshape(()))
    if count == 1:
        return b.Identity(x)
    if count == -1 and is_float(x):
        return b.Reciprocal(x)
    if count not in (2, 3, 4):
        return power_of_one_type(node, b)
    square = x * x
    return square if count == 2 else square * (x if count == 3 else square)


def power_of_one_type(node: ir.Node, b: Builder) -> Value | None:
    """Convert the exponent to the type of the base; the base of integers is converted instead if
    the exponent has fractions.
    """
    x, y = x_of(node), x_of(node, 1)
    if x.dtype is None or y.dtype in (None, x.dtype):
        return None
    if is_float(x) or not is_float(y):
        return b.Pow(x, b.Cast(y, to=x.dtype))
    return b.Cast(b.Pow(b.Cast(x, to=y.dtype), y), to=x.dtype)


def minimum(node: ir.Node, b: Builder) -> Value | None:
    """Compute -max(-a, -b), pairwise for three or more operands."""
    operands: list[Any] = [v for v in node.inputs if v is not None]
    if len(operands) == 1:
        return b.Identity(operands[0])
    if len(operands) > 2:
        return b.Min(b.Min(*operands[:-1]), operands[-1])
    return -b.Max(*(-v for v in operands)) if all(is_float(v) for v in operands) else None


def is_nan(node: ir.Node, b: Builder) -> Value:
    """Rewrite IsNaN as a comparison with itself: only NaN differs from itself."""
    return ~b.Equal(x_of(node), x_of(node))


def is_inf(node: ir.Node, b: Builder) -> Value:
    """Compare with the requested infinities; nothing is less than itself."""
    x, attrs = x_of(node), attributes(node)
    parts = [
        b.Equal(x, s * math.inf)
        for s, k in ((1, "detect_positive"), (-1, "detect_negative"))
        if attrs[k]
    ]
    return b.Or(*parts) if len(parts) == 2 else parts[0] if parts else x < x


def mod(node: ir.Node, b: Builder) -> Value | None:
    """Compute x - floor(x / y) * y; with fmod the remainder of the magnitudes, with the sign of x.
    An infinite divisor needs no quotient.
    """
    x, y, divisor = x_of(node), x_of(node, 1), constant(node.inputs[1])
    if not is_float(x) or (
        divisor is not None and not np.all(np.isfinite(divisor) & (divisor != 0))
    ):
        return None
    zero = b.like(x, 0)
    if attributes(node)["fmod"]:
        size, step = b.Abs(x), b.Abs(y) if divisor is None else b.const(np.abs(divisor))
        rest = size - b.Floor(size / step) * step
        rest, left = b.Where(x < zero, -rest, rest), x
    else:
        rest = x - b.Floor(x / y) * y
        left = b.Where(x * y < zero, y, x) if divisor is None else x
    return rest if divisor is not None else b.Where(b.Equal(b.Abs(y), np.inf), left, rest)


def negation(node: ir.Node, b: Builder) -> Value:
    """Rewrite Not as a comparison with False."""
    return b.Equal(x_of(node), False)


def half_to_even(node: ir.Node, b: Builder) -> Value:
    """Round to the nearest integer, ties to even: floor(x), plus 1 if the fraction is above 1/2;
    for a fraction of 1/2 the even neighbor.

    The fraction is exact, whereas x + 1/2 would not be.
    """
    x = x_of(node)
    down = b.Floor(x)
    up, rest = down + 1, x - down
    even = scaled(b, b.Floor(scaled(b, up, 0.5)), 2)
    nearest = b.Where(rest > 0.5, up, down)
    return b.Where(b.Equal(rest, 0.5), even, nearest)


TABLE: Table = {
    ("", "HardSwish"): hard_swish,
    ("", "HardSigmoid"): hard_sigmoid,
    ("", "Clip"): clip,
    ("", "LeakyRelu"): leaky_relu,
    ("", "PRelu"): prelu,
    ("", "Elu"): elu,
    ("", "Selu"): selu,
    ("", "Celu"): celu,
    ("", "Softplus"): softplus,
    ("", "Softsign"): softsign,
    ("", "ThresholdedRelu"): thresholded_relu,
    ("", "Sigmoid"): sigmoid,
    ("", "Tanh"): tanh,
    ("", "Abs"): absolute,
    ("", "Tan"): tan,
    ("", "Sinh"): hyperbolic,
    ("", "Cosh"): hyperbolic,
    ("", "Asinh"): inverse_hyperbolic,
    ("", "Acosh"): inverse_hyperbolic,
    ("", "Atanh"): inverse_hyperbolic,
    ("", "Sign"): sign,
    ("", "Sqrt"): sqrt,
    ("", "Pow"): power,
    ("", "Min"): minimum,
    ("", "IsNaN"): is_nan,
    ("", "IsInf"): is_inf,
    ("", "Mod"): mod,
    ("", "Not"): negation,
    ("", "Round"): half_to_even,
}
