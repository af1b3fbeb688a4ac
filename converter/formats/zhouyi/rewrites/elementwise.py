"""Operands of equal shapes, quotients of integers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.rewrites.operands import operand, static
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.graph.value import Value


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
    """The layer divides floats: the quotient without fraction, from the remainder of magnitudes,
    exact beyond what floats hold.
    """
    x, y = operand(node), operand(node, 1)
    if x.dtype is None or x.dtype.is_floating_point():
        return None
    signed = x.dtype.is_signed()
    size, by = (b.Abs(x), b.Abs(y)) if signed else (x, y)
    exact = size - b.Mod(size, by, fmod=0)
    guess = _rounded(b, exact, by, x.dtype)
    if not signed:
        return guess
    if x.dtype.itemsize > 2:
        guess = guess + _rounded(b, exact - guess * by, by, x.dtype)
    return guess * (b.Sign(x) * b.Sign(y))


def _rounded(b: Builder, x: Value, y: Value, dtype: ir.DataType) -> Value:
    """x / y as floats, to the nearest integer: a few units off for large numbers, which a second
    step makes good.
    """
    numerator, denominator = (b.Cast(v, to=ir.DataType.FLOAT) for v in (x, y))
    return b.Cast(b.Round(numerator / denominator), to=dtype)
