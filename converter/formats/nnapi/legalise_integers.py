"""Whole numbers in the few operations that NNAPI has for them: +, -, *, the quotient rounded down, the larger, the smaller, and Gather."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.legalise_numbers import INTEGERS, operand
from converter.formats.nnapi.writing import BYTES
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import known, shape_of
from converter.graph.sizes import demand_small
from converter.passes.decompositions.bitwise import BITS, by_digits
from converter.passes.legalise import Rewrite

_NARROW = (ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT16)
_JOINS = {"ReduceSum": "Add", "ReduceProd": "Mul", "ReduceMax": "Max", "ReduceMin": "Min"}


def reduced(node: ir.Node, b: Builder) -> ir.Value | None:
    """Axis by axis: one half with the other, until one element is left; what does not fit into halves comes last."""
    x, out = operand(node), shape_of(node.outputs[0])
    shape, attributes = shape_of(x), attrs_of(node)
    given = known(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else np.arange(len(shape or ()))
    if x.dtype not in INTEGERS or shape is None or out is None or 0 in shape or given is None or attributes.get("noop_with_empty_axes", 0):
        return None
    for axis in {int(a) % len(shape) for a in given.reshape(-1)} or set(range(len(shape))):
        x = _joined(b, x, axis, shape[axis], _JOINS[node.op_type])
    return b.op("Reshape", x, list(out))


def _joined(b: Builder, x: ir.Value, axis: int, count: int, op: str) -> ir.Value:
    left = []
    while count > 1:
        half = count // 2
        if count % 2:
            left.append(b.op("Slice", x, [count - 1], [count], [axis]))
        x = b.op(op, b.op("Slice", x, [0], [half], [axis]), b.op("Slice", x, [half], [2 * half], [axis]))
        count = half
    for rest in left:
        x = b.op(op, x, rest)
    return x


def sign(node: ir.Node, b: Builder) -> ir.Value | None:
    x = operand(node)
    return b.op("Max", b.op("Min", x, b.like(x, 1)), b.like(x, -1)) if x.dtype in INTEGERS else None


def wrapped(node: ir.Node, b: Builder) -> ir.Value | None:
    """A cast to a type that only casts read again: what it leaves of the number, which stays in its own type."""
    x, out = operand(node), node.outputs[0]
    users = [use.node for use in out.uses()]
    byte = out.dtype == ir.DataType.UINT8
    if x.dtype not in INTEGERS or out.dtype not in (ir.DataType.UINT8, *_NARROW):
        return None
    if not byte and (out.is_graph_output() or any(n.op_type != "Cast" or n.domain for n in users)):
        return None
    count = b.like(x, 1 << out.dtype.bitwidth)
    rest = b.op("Sub", x, b.op("Mul", b.ext("FloorDiv", x, count), count))
    if byte:
        return b.op("Cast", b.op("Min", b.op("Max", rest, b.like(x, 0)), b.like(x, 255)), to=int(ir.DataType.UINT8))
    if not out.dtype.is_signed():
        return rest
    return b.op("Where", b.op("Greater", rest, b.like(x, int(out.dtype.max))), b.op("Sub", rest, count), rest)


def turned_around(node: ir.Node, b: Builder) -> ir.Value | None:
    """Numbers of 8 bits wrap around, those of NNAPI end at their bounds: computed in floats, which hold every result, and brought back."""
    x, y = operand(node), operand(node, 1)
    if x.dtype not in BYTES:
        return None
    one, zero = b.const(np.float32(1)), b.like(x, 0)  # there are no casts of signed ones
    result = b.op(node.op_type, *(b.op("DequantizeLinear", v, one, zero) for v in (x, y)))
    turns = b.op("Floor", b.op("Mul", b.op("Sub", result, float(x.dtype.min)), 1 / 256))
    return b.op("QuantizeLinear", b.op("Sub", result, b.op("Mul", turns, 256.0)), one, zero)


def product(node: ir.Node, b: Builder) -> ir.Value | None:
    """Matrices of whole numbers, [M, K] x [K, N]: the sum over K of [M, K, 1] * [1, K, N]."""
    x, y = operand(node), operand(node, 1)
    left, right, out = shape_of(x), shape_of(y), shape_of(node.outputs[0])
    if x.dtype not in INTEGERS or left is None or right is None or out is None or min(len(left), len(right)) < 2:
        return None
    demand_small(*out, left[-1])
    steps = b.op("Mul", b.op("Reshape", x, [*left, 1]), b.op("Reshape", y, [*right[:-2], 1, *right[-2:]]))
    return b.op("ReduceSum", steps, [-2], keepdims=0)


INTEGER: dict[str, Rewrite] = {
    **dict.fromkeys(("Add", "Sub", "Mul"), turned_around),
    **dict.fromkeys(_JOINS, reduced),
    **dict.fromkeys(BITS, by_digits),
    "Cast": wrapped,
}
