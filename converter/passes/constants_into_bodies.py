"""Copy values that depend only on constants into the bodies that use them.

before:  w = DequantizeLinear(...); Loop { y = MatMul(x, w) }
after:   Loop { w = DequantizeLinear(...); y = MatMul(x, w) }

A body without access to outer values receives them as inputs. A runtime that folds constants does
not see through these inputs, and may fail to compile the operator.
"""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import Builder, builder_before, same_attrs
from converter.graph.infer import RANDOM
from converter.graph.names import Names
from converter.graph.walk import all_graphs, subgraphs
from converter.passes.dead_code import remove_dead_code


def copy_constants_into_bodies(model: ir.Model) -> None:
    """Copy in place; nodes outside that only bodies used are removed."""
    names: Names | None = None
    for body in list(all_graphs(model.graph))[1:]:
        outer = _outer_constants(body)
        if not outer:
            continue
        names = names or Names(model)
        first = next(iter(body), None)
        b = Builder(body, names) if first is None else builder_before(first, names)
        copies: dict[ir.Value, ir.Value] = {}
        for value in outer:
            _copy(value, b, copies)
        for node in body:
            for i, v in enumerate(node.inputs):
                if v in copies:
                    node.replace_input_with(i, copies[v])
        for i, v in enumerate(body.outputs):
            if v in copies:
                body.outputs[i] = copies[v]
    if names is not None:
        remove_dead_code(model)


def _outer_constants(body: ir.Graph) -> list[ir.Value]:
    """Return the outer values that the nodes and outputs of a body use and that depend only on
    constants.
    """
    read = [v for n in body for v in n.inputs] + list(body.outputs)
    found = dict.fromkeys(v for v in read if v is not None and v.graph is not body)
    return [v for v in found if v.const_value is None and _is_constant(v)]


def _is_constant(value: ir.Value) -> bool:
    if value.const_value is not None:
        return True
    node = value.producer()
    return (
        node is not None
        and not any(subgraphs(node))
        and (bool(node.domain) or node.op_type not in RANDOM)
        and any(v is not None for v in node.inputs)
        and all(v is None or _is_constant(v) for v in node.inputs)
    )


def _copy(value: ir.Value, b: Builder, copies: dict[ir.Value, ir.Value]) -> ir.Value:
    node = value.producer()
    if value.const_value is not None or node is None:
        return value
    if value not in copies:
        operands = [None if v is None else _copy(v, b, copies) for v in node.inputs]
        results = b.ops(
            node.op_type,
            *operands,
            domain=node.domain,
            outputs=len(node.outputs),
            **same_attrs(node),
        )
        copies.update(zip(node.outputs, results, strict=True))
    return copies[value]
