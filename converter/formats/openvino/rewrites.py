"""Rewrites of operators that legacy IR and the opsets share."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import rank_of
from converter.graph.value import with_operators
from converter.passes.decompositions.activations import x_of


def operands(node: ir.Node, count: int) -> list[Any]:
    """The inputs of a node, None for each that is left out."""
    found = [with_operators(v) for v in node.inputs]
    return found + [None] * (count - len(found))


def bias_apart(node: ir.Node, b: Builder) -> Value | None:
    """Neither dialect has a convolution with a bias that is computed; the opsets have none at
    all.
    """
    (*_, bias), rank = operands(node, 3), rank_of(x_of(node, 1))
    if bias is None or rank is None:
        return None
    shape, tensor = [1, -1, *[1] * (rank - 2)], bias.const_value
    plain = tensor is not None and tensor.numpy().reshape(shape)
    added = b.Reshape(bias, shape) if tensor is None else b.const(plain, str(bias.name))
    y: Value = b.operator(node.op_type)(*node.inputs[:2], **attrs_of(node))
    return y + added
