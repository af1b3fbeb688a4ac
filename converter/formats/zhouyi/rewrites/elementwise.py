"""The larger and the smaller of two, quotients of integers."""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.value import Value, operand
from converter.passes.equal_shapes import equal_shapes


def extremes(node: ir.Node, b: Builder) -> Value | None:
    """Two operands of one shape; of more the common decomposition makes pairs."""
    return equal_shapes(node, b) if len(node.inputs) == 2 else None


def integer_div(node: ir.Node, b: Builder) -> Value | None:
    """The layer divides floats: the quotient without fraction, from what the divisor divides
    without a remainder, exact beyond what floats hold. The smallest integer has no magnitude.
    """
    x, y = operand(node), operand(node, 1)
    if x.dtype is None or x.dtype.is_floating_point():
        return None
    signed = x.dtype.is_signed()
    exact = x - b.Mod(x, y, fmod=int(signed))
    guess = _rounded(b, exact, y, x.dtype)
    if signed and x.dtype.itemsize > 2:
        guess = guess + _rounded(b, exact - guess * y, y, x.dtype)
    return guess


def _rounded(b: Builder, x: Value, y: Value, dtype: ir.DataType) -> Value:
    """x / y as floats, to the nearest integer: a few units off for large numbers, which a second
    step makes good.
    """
    numerator, denominator = (b.Cast(v, to=ir.DataType.FLOAT) for v in (x, y))
    return b.Cast(b.Round(numerator / denominator), to=dtype)
