"""Operands of equal shapes, quotients of integers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.rewrites.operands import static
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.graph.value import Value, operand


def spread(b: Builder, value: Value, shape: list[int]) -> Value:
    """`value` in a shape that it broadcasts to."""
    if static(value) == shape:
        return value
    array = constant(value)
    if array is not None:
        return b.const(np.broadcast_to(array, shape), str(value.name))
    own = static(value)
    full = [1] * (len(shape) - len(own)) + own
    if full != own:
        value = b.Reshape(value, full)
    if full == shape:
        return value
    return b.Tile(value, [n if m != n else 1 for m, n in zip(full, shape, strict=True)])


def equal_shapes(node: ir.Node, b: Builder) -> Value | None:
    """The layers do not broadcast: operands are repeated first. No common decomposition does it."""
    operands = [operand(node, i) for i in range(len(node.inputs))]
    shape = static(node.outputs[0])
    if all(static(v) == shape for v in operands):
        return None
    return b.operator(node.op_type)(*(spread(b, v, shape) for v in operands))


def extremes(node: ir.Node, b: Builder) -> Value | None:
    """The same for two operands; of more the common decomposition makes pairs."""
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
