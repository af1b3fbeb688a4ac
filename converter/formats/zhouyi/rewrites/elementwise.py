"""Operands of equal shapes, integers, and functions that the format lacks."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.rewrites.register import attributes, operand, optional, rewrites, static
from converter.graph.build import Builder
from converter.graph.infer import constant


def spread(b: Builder, value: ir.Value, shape: list[int]) -> ir.Value:
    """`value` in a shape that it broadcasts to."""
    if static(value) == shape:
        return value
    array = constant(value)
    if array is not None:
        return b.const(np.broadcast_to(array, shape), str(value.name))
    own = static(value)
    full = [1] * (len(shape) - len(own)) + own
    if full != own:
        value = b.op("Reshape", value, full)
    return b.op("Tile", value, [n if m != n else 1 for m, n in zip(full, shape, strict=True)]) if full != shape else value


@rewrites("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Where")
def equal_shapes(node: ir.Node, b: Builder) -> ir.Value | None:
    return _spread_all(node, b)


def _spread_all(node: ir.Node, b: Builder) -> ir.Value | None:
    operands = [operand(node, i) for i in range(len(node.inputs))]
    shape = static(node.outputs[0])
    if all(static(v) == shape for v in operands):
        return None
    return b.op(node.op_type, *[spread(b, v, shape) for v in operands])


@rewrites("Max", "Min")
def extremes(node: ir.Node, b: Builder) -> ir.Value | None:
    return _spread_all(node, b) if len(node.inputs) == 2 else None


@rewrites("Expand")
def expand(node: ir.Node, b: Builder) -> ir.Value:
    return spread(b, operand(node), static(node.outputs[0]))


@rewrites("Clip")
def integer_clip(node: ir.Node, b: Builder) -> ir.Value | None:
    """Bounds that are computed, or of integers, are a Max and a Min."""
    x = operand(node)
    for kind, bound in (("Max", optional(node, 1)), ("Min", optional(node, 2))):
        if bound is not None:
            x = b.op(kind, x, spread(b, bound, static(x)))
    return x


@rewrites("PRelu")
def computed_slope(node: ir.Node, b: Builder) -> ir.Value:
    x = operand(node)
    zero = b.const(np.zeros(static(x), x.dtype.numpy() if x.dtype else np.float32), "zeros")
    return b.op("Add", b.op("Max", x, zero), b.op("Mul", b.op("Min", x, zero), operand(node, 1)))


@rewrites("Div")
def integer_div(node: ir.Node, b: Builder) -> ir.Value | None:
    """The quotient without fraction, from the remainder of magnitudes: exact beyond what floats hold."""
    x, y = operand(node), operand(node, 1)
    if x.dtype is None or x.dtype.is_floating_point():
        return None
    signed = x.dtype.is_signed()
    size, by = (b.op("Abs", x), b.op("Abs", y)) if signed else (x, y)
    exact = b.op("Sub", size, b.op("Mod", size, by, fmod=0))
    guess = _rounded(b, exact, by, x.dtype)
    quotient = b.op("Add", guess, _rounded(b, b.op("Sub", exact, b.op("Mul", guess, by)), by, x.dtype)) if signed and x.dtype.itemsize > 2 else guess
    return b.op("Mul", quotient, b.op("Mul", b.op("Sign", x), b.op("Sign", y))) if signed else quotient


def _rounded(b: Builder, x: ir.Value, y: ir.Value, dtype: ir.DataType) -> ir.Value:
    """x / y as floats, to the nearest integer: a few units off for large numbers, which a second step makes good."""
    wide = int(ir.DataType.FLOAT)
    return b.op("Cast", b.op("Round", b.op("Div", b.op("Cast", x, to=wide), b.op("Cast", y, to=wide))), to=int(dtype))


@rewrites("Size")
def size(node: ir.Node, b: Builder) -> ir.Value:
    return b.const(np.array(int(np.prod(static(operand(node)))), np.int64))


@rewrites("Hardmax")
def hardmax(node: ir.Node, b: Builder) -> ir.Value:
    x, axis = operand(node), attributes(node)["axis"]
    best = b.op("ArgMax", x, axis=axis, keepdims=0)
    values = b.const(np.array([0, 1], x.dtype.numpy() if x.dtype else np.float32))
    return b.op("OneHot", best, b.const(np.array(static(x)[axis], np.int64)), values, axis=axis)


@rewrites("LpNormalization")
def lp_normalization(node: ir.Node, b: Builder) -> ir.Value:
    """0 stays 0: the divisor is at least the least number."""
    x, a = operand(node), attributes(node)
    total = b.op("ReduceL1" if a["p"] == 1 else "ReduceL2", x, [a["axis"]])
    least = b.const(np.full(static(total), np.finfo(np.float32).tiny, x.dtype.numpy() if x.dtype else np.float32))
    return b.op("Div", x, b.op("Max", total, least))
