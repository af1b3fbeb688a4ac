"""Integer arithmetic in the few operators that TensorFlow Lite and NNAPI have for it.

These are +, -, *, division rounded down, maximum, minimum, and Gather. The common decompositions
are for real numbers, or need 64-bit types.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attributes, attrs_of
from converter.graph.infer import constant, evaluate, known, shape_of
from converter.graph.sizes import arange, demand_small
from converter.graph.value import Value, operand, optional
from converter.passes.lite.functions import FLOATS

INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
LARGEST_TABLE = 1 << 20  # elements of an index that expresses a data movement
_NARROW = (ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT16)
JOINS = {"ReduceSum": "Add", "ReduceProd": "Mul", "ReduceMax": "Max", "ReduceMin": "Min"}


def reduced(node: ir.Node, b: Builder) -> Value | None:
    """Reduce one axis after the other, by repeatedly combining its two halves; elements that do not
    fit into halves are combined last.
    """
    x, out = operand(node), shape_of(node.outputs[0])
    shape, given = shape_of(x), optional(node, 1)
    axes = np.arange(len(shape or ())) if given is None else known(given)
    if x.dtype not in INTEGERS or shape is None or out is None or 0 in shape or axes is None:
        return None
    if attributes(node)["noop_with_empty_axes"]:
        return None
    for axis in {int(a) % len(shape) for a in axes.reshape(-1)} or set(range(len(shape))):
        x = _joined(b, x, axis, shape[axis], JOINS[node.op_type])
    return b.Reshape(x, list(out))


def _joined(b: Builder, x: Value, axis: int, count: int, op: str) -> Value:
    left = []
    while count > 1:
        half = count // 2
        if count % 2:
            left.append(b.Slice(x, [count - 1], [count], [axis]))
        first, second = b.Slice(x, [0], [half], [axis]), b.Slice(x, [half], [2 * half], [axis])
        x, count = b.operator(op)(first, second), half
    for rest in left:
        x = b.operator(op)(x, rest)
    return x


def sign(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite Sign of integers as a clamp to -1 and 1."""
    x = operand(node)
    return b.Max(b.Min(x, 1), -1) if x.dtype in INTEGERS else None


def relu(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite Relu of integers as Max(x, 0)."""
    x = operand(node)
    return None if x.dtype in FLOATS else b.Max(x, 0)


def quotient(node: ir.Node, b: Builder) -> Value | None:
    """Divide and round towards zero: the available division rounds down, so 1 is added if the
    quotient is negative and inexact.

    The smallest integer has no magnitude that could be divided.
    """
    x, y = operand(node), operand(node, 1)
    divisor = constant(y)
    if x.dtype not in INTEGERS or (divisor is not None and not divisor.all()):
        return None
    below = b.FloorDiv(x, y)
    rounded = ~b.Equal(below * y, x) & ((x < 0) ^ (y < 0))
    return b.Where(rounded, below + 1, below)


def remainder(node: ir.Node, b: Builder) -> Value | None:
    """x - floor(x / y) * y, which has the sign of the divisor; with fmod that of x, because the
    quotient is rounded towards zero.
    """
    x, y = operand(node), operand(node, 1)
    divisor = constant(y)
    if x.dtype not in INTEGERS or (divisor is not None and not divisor.all()):
        return None
    whole = x / y if attributes(node)["fmod"] else b.FloorDiv(x, y)
    return x - whole * y


def wrapped(node: ir.Node, b: Builder) -> Value | None:
    """Wrap a number around as a cast to a narrower type would, but leave it in its own type.

    Only casts may consume the result, except for uint8.
    """
    x, out = operand(node), node.outputs[0]
    users = [use.node for use in out.uses()]
    byte = out.dtype == ir.DataType.UINT8
    if x.dtype not in INTEGERS or out.dtype not in (ir.DataType.UINT8, *_NARROW):
        return None
    if not byte and (out.is_graph_output() or any(n.op_type != "Cast" or n.domain for n in users)):
        return None
    count = b.like(x, 1 << out.dtype.bitwidth)
    rest = x - b.FloorDiv(x, count) * count
    if byte:
        bounded = b.Min(b.Max(rest, 0), 255)
        return b.Cast(bounded, to=ir.DataType.UINT8)
    if not out.dtype.is_signed():
        return rest
    return b.Where(rest > int(out.dtype.max), rest - count, rest)


def wrapped_around(node: ir.Node, b: Builder) -> Value | None:
    """Wrap 8-bit results around, while these kernels saturate: compute in floats, which represent
    every result, and wrap them.
    """
    x, y = operand(node), operand(node, 1)
    if x.dtype not in BYTES:
        return None
    one, zero = b.const(np.float32(1)), b.like(x, 0)  # there are no casts of signed types
    result = b.operator(node.op_type)(*(b.DequantizeLinear(v, one, zero) for v in (x, y)))
    turns = b.Floor((result - float(x.dtype.min)) * (1 / 256))
    return b.QuantizeLinear(result - turns * 256.0, one, zero)


def product(node: ir.Node, b: Builder) -> Value | None:
    """Multiply integer matrices below feature level 6, [M, K] x [K, N]: the sum over K of [M, K, 1]
    times [1, K, N].
    """
    x, y = operand(node), operand(node, 1)
    left, right, out = shape_of(x), shape_of(y), shape_of(node.outputs[0])
    if x.dtype not in INTEGERS or left is None or right is None or out is None:
        return None
    demand_small(*out, left[-1])
    rows = left if len(left) > 1 else (1, *left)
    columns = right if len(right) > 1 else (*right, 1)
    steps = b.Reshape(x, [*rows, 1]) * b.Reshape(y, [*columns[:-2], 1, *columns[-2:]])
    total = b.ReduceSum(steps, [-2], keepdims=0)
    return total if shape_of(total) == out else b.Reshape(total, list(out))


def moved(node: ir.Node, b: Builder) -> Value | None:
    """Gather integers one by one from the flattened operand.

    Transpose and strided slices lack these types.
    """
    x, shape, out = operand(node), shape_of(operand(node)), shape_of(node.outputs[0])
    if x.dtype not in INTEGERS or shape is None or out is None or 0 in (*shape, *out):
        return None
    size, others = int(np.prod(shape)), [known(v) for v in node.inputs[1:]]
    unknown = (v is not None and a is None for v, a in zip(node.inputs[1:], others, strict=True))
    if size > LARGEST_TABLE or any(unknown):
        return None
    (index,) = evaluate(node, [arange(size).reshape(shape), *others])
    return b.Reshape(b.Gather(b.Reshape(x, [-1]), index.reshape(-1), axis=0), list(out))


def joined(node: ir.Node, b: Builder) -> Value | None:
    """Concatenate integers: expand each operand over the result, then select it at its
    positions.
    """
    shapes = [None if v is None else shape_of(v) for v in node.inputs]
    out = shape_of(node.outputs[0])
    if operand(node).dtype not in INTEGERS or out is None or np.prod(out) > LARGEST_TABLE:
        return None
    if any(s is None or 0 in s for s in shapes):
        return None
    axis = int(attrs_of(node)["axis"]) % len(out)
    result, start = None, 0
    for value, shape in zip(node.inputs, shapes, strict=True):
        assert value is not None and shape is not None
        place = arange(out[axis]) - start
        spread = b.Gather(value, np.clip(place, 0, shape[axis] - 1), axis=axis)
        here = (place >= 0) & (place < shape[axis])
        line = [-1 if i == axis else 1 for i in range(len(out))]
        mask = np.ascontiguousarray(np.broadcast_to(here.reshape(line), out))
        result = spread if result is None else b.Where(mask, spread, result)
        start += shape[axis]
    return result
