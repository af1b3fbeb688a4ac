"""IF and WHILE: their subgraphs become the bodies of If and Loop, which read what they need from the graph around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.table import Operation, Subgraph
from converter.graph.build import Builder
from converter.mapping.node import MappingError

if TYPE_CHECKING:
    from converter.formats.nnapi.lift import SubgraphLift


def lift_control(lifting: SubgraphLift, operation: Operation) -> list[ir.Value]:
    """The results of an IF (condition, then, else, inputs) or a WHILE (condition, body, inputs), as they are stored."""
    b = lifting.b
    if operation.type == "IF":
        condition = b.op("Reshape", lifting.values[operation.inputs[0]], np.zeros(0, np.int64))
        inputs = [lifting.values[i] for i in operation.inputs[3:]]
        bodies = []
        for index in operation.inputs[1:3]:
            body = b.body("branch")
            body.output(*_inline(lifting, body, _child(lifting, index), inputs))
            bodies.append(body.graph)
        return list(b.ops("If", condition, then_branch=bodies[0], else_branch=bodies[1], outputs=len(operation.outputs)))
    return _loop(lifting, operation)


def _loop(lifting: SubgraphLift, operation: Operation) -> list[ir.Value]:
    """The first inputs are the state, as many as the body has outputs; the others stay what they are."""
    b = lifting.b
    condition, body_graph = (_child(lifting, i) for i in operation.inputs[:2])
    inputs = [lifting.values[i] for i in operation.inputs[2:]]
    count = len(body_graph.outputs)
    body = b.body("step")
    body.input("iteration", ir.DataType.INT64, [])
    body.input("again", ir.DataType.BOOL, [])
    states = [body.input("state", v.dtype or ir.DataType.FLOAT, list(v.shape) if v.shape is not None else None) for v in inputs[:count]]
    new = _inline(lifting, body, body_graph, [*states, *inputs[count:]])
    body.output(_truth(lifting, body, condition, [*new, *inputs[count:]]), *new)
    start = _truth(lifting, b, condition, inputs)
    return list(b.ops("Loop", None, start, *inputs[:count], body=body.graph, outputs=count))[: len(operation.outputs)]


def _truth(lifting: SubgraphLift, b: Builder, condition: Subgraph, inputs: Sequence[ir.Value]) -> ir.Value:
    return b.op("Reshape", _inline(lifting, b, condition, inputs)[0], np.zeros(0, np.int64))


def _child(lifting: SubgraphLift, operand: int) -> Subgraph:
    number = lifting.subgraph.operands[operand].subgraph
    if number is None or not 0 <= number < len(lifting.referenced):
        raise MappingError(f"subgraph {number} does not exist", "R105")
    if number in lifting.path:
        raise MappingError(f"subgraph {number} contains itself", "R105")
    return lifting.referenced[number]


def _inline(lifting: SubgraphLift, b: Builder, child: Subgraph, inputs: Sequence[ir.Value]) -> list[ir.Value]:
    """The operations of a subgraph, written with `b` on given inputs; its outputs."""
    if len(child.inputs) != len(inputs):
        raise MappingError(f"a subgraph takes {len(child.inputs)} operands, it is given {len(inputs)}", "R105")
    number = next(i for i, s in enumerate(lifting.referenced) if s is child)
    inner = type(lifting)(child, b, lifting.file, lifting.referenced, (*lifting.path, number))
    inner.values.update(zip(child.inputs, inputs, strict=True))
    inner.run()
    lifting.problems += inner.problems
    if inner.problems:
        raise MappingError("something in a subgraph has no counterpart")
    return [inner.values[i] for i in child.outputs]
