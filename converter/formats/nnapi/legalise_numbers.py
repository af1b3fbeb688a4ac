"""Whole numbers, angles and choices in the operations that NNAPI has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.infer import constant, evaluate, known, shape_of
from converter.graph.sizes import arange
from converter.graph.walk import release, subgraphs
from converter.passes.legalise import Rewrite
from converter.passes.unroll import copy_body

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)  # which are stored as floats
INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
LARGEST_TABLE = 1 << 20  # elements of an index that stands for a movement


def operand(node: ir.Node, index: int = 0) -> ir.Value:
    value = node.inputs[index]
    assert value is not None
    return value


def quotient(node: ir.Node, b: Builder) -> ir.Value | None:
    """Rounded towards zero: that of the sizes, which the division there rounds down, with the sign that it has."""
    x, y = operand(node), operand(node, 1)
    divisor = constant(y)
    if x.dtype not in INTEGERS or (divisor is not None and not divisor.all()):
        return None
    zero = b.like(x, 0)
    size = b.ext("FloorDiv", b.op("Abs", x), b.op("Abs", y))
    opposite = b.op("Xor", b.op("Less", x, zero), b.op("Less", y, zero))
    return b.op("Where", opposite, b.op("Neg", size), size)


def remainder(node: ir.Node, b: Builder) -> ir.Value | None:
    """x - floor(x / y) * y has the sign of the divisor; with fmod that of x, as the quotient is rounded towards zero."""
    x, y = operand(node), operand(node, 1)
    divisor = constant(y)
    if x.dtype not in INTEGERS or (divisor is not None and not divisor.all()):
        return None
    whole = b.op("Div", x, y) if attrs_of(node).get("fmod", 0) else b.ext("FloorDiv", x, y)
    return b.op("Sub", x, b.op("Mul", whole, y))


_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)  # Cephes, atanf: 2e-7
_ASIN = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)  # Cephes, asinf


def _polynomial(b: Builder, z: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    total = b.op("Mul", z, b.like(z, coefficients[0]))
    for c in coefficients[1:-1]:
        total = b.op("Mul", b.op("Add", total, b.like(z, c)), z)
    return b.op("Add", total, b.like(z, coefficients[-1]))


def atan(node: ir.Node, b: Builder) -> ir.Value | None:
    """Of the size: above tan(3/8 pi) pi/2 - atan(1/x), above tan(pi/8) pi/4 + atan((x-1)/(x+1)), below a polynomial."""
    x = operand(node)
    if x.dtype not in FLOATS:
        return None
    size, one = b.op("Abs", x), b.like(x, 1)
    large, middle = b.op("Greater", size, b.like(x, 2.414213562373095)), b.op("Greater", size, b.like(x, 0.4142135623730950))
    inverse = b.op("Div", b.like(x, -1), b.op("Max", size, one))
    between = b.op("Div", b.op("Sub", b.op("Min", size, b.like(x, 4)), one), b.op("Add", b.op("Min", size, b.like(x, 4)), one))
    small = b.op("Min", size, one)
    argument = b.op("Where", large, inverse, b.op("Where", middle, between, small))
    start = b.op("Where", large, b.like(x, np.pi / 2), b.op("Where", middle, b.like(x, np.pi / 4), b.like(x, 0)))
    z = b.op("Mul", argument, argument)
    found = b.op("Add", b.op("Add", b.op("Mul", b.op("Mul", _polynomial(b, z, _ATAN), z), argument), argument), start)
    return b.op("Where", b.op("Less", x, b.like(x, 0)), b.op("Mul", found, b.like(x, -1)), found)


def asin(node: ir.Node, b: Builder) -> ir.Value | None:
    """Up to 1/2 a polynomial, above pi/2 - 2 asin(sqrt((1 - x) / 2)); acos is pi/2 less that."""
    x = operand(node)
    if x.dtype not in FLOATS or shape_of(x) is None:
        return None
    size = b.op("Abs", x)
    upper = b.op("Greater", size, b.like(x, 0.5))
    z = b.op("Where", upper, b.op("Mul", b.op("Sub", b.like(x, 1), size), b.like(x, 0.5)), b.op("Mul", x, x))
    root = b.op("Where", upper, b.op("Sqrt", z), size)
    inner = b.op("Add", b.op("Mul", b.op("Mul", _polynomial(b, z, _ASIN), z), root), root)
    found = b.op("Where", upper, b.op("Add", b.op("Mul", inner, b.like(x, -2)), b.like(x, np.pi / 2)), inner)
    signed = b.op("Where", b.op("Less", x, b.like(x, 0)), b.op("Mul", found, b.like(x, -1)), found)
    return b.op("Add", b.op("Mul", signed, b.like(x, -1)), b.like(x, np.pi / 2)) if node.op_type == "Acos" else signed


def choice(node: ir.Node, b: Builder) -> list[ir.Value] | None:
    """Both branches are computed, and their results chosen from."""
    bodies = [node.attributes[k].as_graph() for k in ("then_branch", "else_branch")]
    if any(any(subgraphs(n)) for body in bodies for n in body):
        return None
    results = [copy_body(body, {}, b) for body in bodies]
    if any(shape_of(x) is None or shape_of(x) != shape_of(y) or x.dtype != y.dtype for x, y in zip(*results, strict=True)):
        return None
    release(node)
    condition = b.op("Reshape", operand(node), [1])
    found = []
    for x, y in zip(*results, strict=True):
        shape = list(shape_of(x) or ()) or [1]
        mask = b.op("Reshape", condition, [1] * len(shape))
        picked = b.op("Where", b.op("Expand", mask, shape), b.op("Reshape", x, shape), b.op("Reshape", y, shape))
        found.append(b.op("Reshape", picked, list(shape_of(x) or ())))
    return found


def moved(node: ir.Node, b: Builder) -> ir.Value | None:
    """Whole numbers are picked one by one from the flattened operand: Transpose and steps have no such type."""
    x, shape, out = operand(node), shape_of(operand(node)), shape_of(node.outputs[0])
    if x.dtype not in INTEGERS or shape is None or out is None or 0 in (*shape, *out) or np.prod(shape) > LARGEST_TABLE:
        return None
    others = [known(v) for v in node.inputs[1:]]
    if any(v is not None and a is None for v, a in zip(node.inputs[1:], others, strict=True)):
        return None
    (index,) = evaluate(node, [arange(int(np.prod(shape))).reshape(shape), *others])
    return b.op("Reshape", b.op("Gather", b.op("Reshape", x, [-1]), index.reshape(-1), axis=0), list(out))


def joined(node: ir.Node, b: Builder) -> ir.Value | None:
    """Whole numbers side by side: each operand is spread over the result, then chosen where it belongs."""
    shapes, out = [None if v is None else shape_of(v) for v in node.inputs], shape_of(node.outputs[0])
    if operand(node).dtype not in INTEGERS or out is None or any(s is None or 0 in s for s in shapes) or np.prod(out) > LARGEST_TABLE:
        return None
    axis = int(attrs_of(node)["axis"]) % len(out)
    result, start = None, 0
    for value, shape in zip(node.inputs, shapes, strict=True):
        assert value is not None and shape is not None
        place = arange(out[axis]) - start
        spread = b.op("Gather", value, np.clip(place, 0, shape[axis] - 1), axis=axis)
        here = (place >= 0) & (place < shape[axis])
        mask = np.ascontiguousarray(np.broadcast_to(here.reshape([-1 if i == axis else 1 for i in range(len(out))]), out))
        result = spread if result is None else b.op("Where", b.const(mask), spread, result)
        start += shape[axis]
    return result


NUMBERS: dict[str, Rewrite] = {"Div": quotient, "Atan": atan, "Asin": asin, "Acos": asin, "If": choice}
MOVES: dict[str, Rewrite] = {"Transpose": moved, "Slice": moved, "Concat": joined}
