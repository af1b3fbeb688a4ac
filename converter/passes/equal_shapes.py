"""Expand operands to the shape of the result, for targets whose layers do not broadcast.

before:  Y = Where(C[1,n], X[m,n], 0)        after:  Y = Where(Expand(C, [m,n]), X, zeros[m,n])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.infer import constant, shape_of
from converter.graph.value import Value, operand


def equal_shapes(node: ir.Node, b: Builder) -> Value | None:
    """Return None if the operands already have the shape of the result, or if it is unknown."""
    operands = [operand(node, i) for i in range(len(node.inputs))]
    shape = shape_of(node.outputs[0])
    if shape is None or all(shape_of(v) == shape for v in operands):
        return None
    return b.operator(node.op_type)(*(_expanded(b, v, shape) for v in operands))


def _expanded(b: Builder, value: Value, shape: Sequence[int]) -> Value:
    array, producer = constant(value), value.producer()
    # quantized weights stay quantized
    if array is not None and (producer is None or producer.op_type != "DequantizeLinear"):
        return b.const(np.ascontiguousarray(np.broadcast_to(array, shape)), str(value.name))
    return value if shape_of(value) == tuple(shape) else b.Expand(value, list(shape))
