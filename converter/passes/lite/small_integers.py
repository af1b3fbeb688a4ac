"""Arithmetic of small integers, such as indices, in floating point, which is exact up to 2^24: for
levels of NNAPI whose operations lack integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from converter.graph import MOVES
from converter.graph.build import Builder, same_attrs
from converter.graph.infer import constant, known, shape_of
from converter.graph.value import BOOL, FLOAT, Value, operand
from converter.passes.indices import never_negative

LARGEST = 1 << 24
_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
_DEPTH = 200  # operators that are followed back
# operators of integers whose results are not larger
_NOT_LARGER = MOVES | {"Cast", "Floor", "Ceil", "Round", "Relu", "Neg", "Abs"}
_NOT_LARGER |= {"ReduceMax", "ReduceMin", "Div", "FloorDiv"}
_JOINS = frozenset(["Max", "Min", "Concat"])
_SUMS: Mapping[str, Callable[[float, float], float]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
}


def magnitude(value: ir.Value | None) -> float:
    """Return a bound of the magnitude of integers that follows from their producers; infinity
    if there is none.
    """
    return _Bounds().of(value, _DEPTH)


class _Bounds:
    """The bounds of values, each of which is looked at once."""

    def __init__(self) -> None:
        self.found: dict[ir.Value, float] = {}

    def of(self, value: ir.Value | None, depth: int) -> float:
        if value is None or depth == 0:
            return math.inf
        if value not in self.found:
            own = _own(value)
            self.found[value] = self._of_producer(value, depth - 1) if own is None else own
        return self.found[value]

    def _of_producer(self, value: ir.Value, depth: int) -> float:
        node = value.producer()
        if node is None or not node.inputs:
            return math.inf
        kind, shape = node.op_type, shape_of(node.inputs[0])
        if kind in ("ArgMax", "ArgMin") or (kind == "TopK" and value is node.outputs[1]):
            return math.inf if shape is None else max(shape, default=1)
        if kind in _NOT_LARGER or kind == "TopK":
            return self.of(node.inputs[0], depth)
        if kind in _JOINS:
            return max(self.of(v, depth) for v in node.inputs)
        if kind == "Where":
            return max(self.of(v, depth) for v in node.inputs[1:])
        if kind in _SUMS:
            return _SUMS[kind](*(self.of(v, depth) for v in node.inputs))
        if kind == "ReduceSum" and shape is not None:
            return math.prod(shape) * self.of(node.inputs[0], depth)
        return math.inf


def _own(value: ir.Value) -> float | None:
    """Return the bound of a constant or a boolean."""
    if value.dtype == BOOL:
        return 1
    numbers = known(value)
    numbers = constant(value) if numbers is None else numbers
    if numbers is None:
        return None
    return float(np.abs(numbers.astype(np.float64)).max(initial=0))


def in_floats(node: ir.Node, b: Builder) -> Value | None:
    """Compute sums and products, and move data, in floating point if they are known to be small."""
    x = operand(node)
    count = 1 if node.op_type == "Reshape" else len(node.inputs)
    bounds = [magnitude(v) for v in (*node.inputs[:count], node.outputs[0])]
    if x.dtype not in _INTEGERS or max(bounds) >= LARGEST:
        return None
    data = [b.Cast(v, to=FLOAT) for v in node.inputs[:count]]
    y = b.operator(node.op_type)(*data, *node.inputs[count:], **same_attrs(node))
    return b.Cast(y, to=x.dtype)


def one_index(node: ir.Node, b: Builder) -> Value | None:
    """Gather a list of one index, and remove its axis with a Reshape of its own."""
    x, index, out = operand(node), operand(node, 1), shape_of(node.outputs[0])
    if x.dtype not in _INTEGERS or shape_of(index) != () or out is None:
        return None
    return b.Reshape(b.Gather(x, b.Reshape(index, [1]), **same_attrs(node)), list(out))


def quotient_in_floats(node: ir.Node, b: Builder) -> Value | None:
    """Divide numbers that are not negative, and so small that no quotient is rounded up."""
    x, y = operand(node), operand(node, 1)
    divisor = constant(y)
    if x.dtype not in _INTEGERS or divisor is None or not (divisor > 0).all():
        return None
    if magnitude(x) >= LARGEST // 2 or magnitude(y) >= LARGEST // 2 or not never_negative(x):
        return None
    return b.Cast(b.Floor(b.Cast(x, to=FLOAT) / b.Cast(y, to=FLOAT)), to=x.dtype)
