"""Find normalizations that are written as several operators.

    m = ReduceMean(x); d = x - m; v = ReduceMean(d * d); y = d * Reciprocal(Sqrt(v + epsilon))

A channel that hardly varies makes the reciprocal a thousand times as large as another does, and no
scale of 8 bits holds both. So all of it computes in floats, as LayerNormalization does.
"""

from __future__ import annotations

from math import prod

import onnx_ir as ir

from converter.formats.integers import MOVES, named
from converter.graph.infer import shape_of
from converter.graph.value import producer_if, producer_of

_REDUCTIONS = named("GlobalAveragePool ReduceMean ReduceSum ReduceSumSquare")
_PARTS = MOVES | named("Add Div Max Min Mul Neg Reciprocal Sqrt Sub")


def normalizations(graph: ir.Graph) -> set[ir.Node]:
    """Return the nodes that compute deviations, and those that divide by them."""
    found: set[ir.Node] = set()
    for node in graph:
        if node.op_type == "Sqrt" and not node.domain:
            variance = _before(node)
            if any(n.op_type in _REDUCTIONS for n in variance):
                found |= {node} | variance | _after(node)
    return found


def _before(root: ir.Node) -> set[ir.Node]:
    """Return the nodes that compute the operand of a square root, from the squares on."""
    found, pending = set[ir.Node](), [*root.inputs]
    while pending:
        node = producer_of(pending.pop())
        if node is None or node in found or node.op_type not in _PARTS | _REDUCTIONS:
            continue
        found.add(node)
        if node.op_type not in _REDUCTIONS:
            pending += node.inputs
        elif (square := _square(node)) is not None:
            found.add(square)
            if (centered := producer_if(square.inputs[0], "Sub")) is not None:
                found.add(centered)
                pending.append(centered.inputs[1])
    return found


def _square(reduction: ir.Node) -> ir.Node | None:
    """Return the node that squares the operand of a reduction."""
    node = producer_of(reduction.inputs[0])
    if reduction.op_type == "ReduceSumSquare":
        return reduction
    product = node is not None and node.op_type == "Mul" and len({*node.inputs}) == 1
    return node if product or (node is not None and node.op_type == "Pow") else None


def _after(root: ir.Node) -> set[ir.Node]:
    """Return the nodes that compute with a deviation, up to those with as many elements as data."""
    found, pending = set[ir.Node](), [root]
    while pending:
        value = pending.pop().outputs[0]
        for node in {u.node for u in value.uses()} - found:
            if node.op_type in _PARTS:
                found.add(node)
                pending += [node] if _size(node.outputs[0]) == _size(value) else []
    return found


def _size(value: ir.Value) -> int | None:
    shape = shape_of(value)
    return None if shape is None else prod(shape)
