"""IF and WHILE: their subgraphs become bodies of If and Loop, which read what is around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.nnapi.table import Operation
from converter.graph.build import Builder
from converter.graph.value import Value

if TYPE_CHECKING:
    from converter.formats.nnapi.lift import SubgraphLift


def lift_control(lifting: SubgraphLift, operation: Operation) -> list[ir.Value]:
    """The results of an IF (condition, then, else, inputs) or a WHILE (condition, body, inputs), as
    they are stored.
    """
    return _if(lifting, operation) if operation.type == "IF" else _while(lifting, operation)


def _if(lifting: SubgraphLift, operation: Operation) -> list[ir.Value]:
    condition, *inputs = (lifting.values[i] for i in (operation.inputs[0], *operation.inputs[3:]))
    branches = []
    for operand in operation.inputs[1:3]:
        body = lifting.b.body("branch")
        body.output(*_inlined(lifting, body, operand, inputs))
        branches.append(body.graph)
    results = lifting.b.If(
        _truth(lifting.b, condition),
        then_branch=branches[0],
        else_branch=branches[1],
        outputs=len(operation.outputs),
    )
    return list(results)


def _while(lifting: SubgraphLift, operation: Operation) -> list[ir.Value]:
    """The first inputs are the state, as many as the body has outputs; the others stay fixed."""
    b = lifting.b
    condition, body_operand, *operands = operation.inputs
    inputs = [lifting.values[i] for i in operands]
    count = len(lifting.referenced[_child(lifting, body_operand)].outputs)
    state, fixed = inputs[:count], inputs[count:]
    body = b.body("step")
    body.input("iteration", ir.DataType.INT64, [])
    body.input("again", ir.DataType.BOOL, [])
    before = [
        body.input(
            "state", v.dtype or ir.DataType.FLOAT, None if v.shape is None else list(v.shape)
        )
        for v in state
    ]
    after = _inlined(lifting, body, body_operand, [*before, *fixed])
    again = _inlined(lifting, body, condition, [*after, *fixed])[0]
    body.output(_truth(body, again), *after)
    start = _truth(b, _inlined(lifting, b, condition, inputs)[0])
    results: list[ir.Value] = [*b.Loop(None, start, *state, body=body.graph, outputs=count)]
    return results[: len(operation.outputs)]


def _truth(b: Builder, value: ir.Value) -> Value:
    """A condition, which has one element, without axes."""
    return b.Reshape(value, np.zeros(0, np.int64))


def _child(lifting: SubgraphLift, operand: int) -> int:
    """The number of the subgraph that an operand refers to."""
    number = lifting.subgraph.operands[operand].subgraph
    if number is None or not 0 <= number < len(lifting.referenced):
        raise MappingError(f"subgraph {number} does not exist", "R105")
    if number in lifting.path:
        raise MappingError(f"subgraph {number} contains itself", "R105")
    return number


def _inlined(
    lifting: SubgraphLift, b: Builder, operand: int, inputs: Sequence[ir.Value]
) -> list[ir.Value]:
    """The outputs of the subgraph that an operand refers to, written with `b` on these inputs."""
    number = _child(lifting, operand)
    child = lifting.referenced[number]
    if len(child.inputs) != len(inputs):
        message = f"a subgraph takes {len(child.inputs)} operands, it is given {len(inputs)}"
        raise MappingError(message, "R105")
    inner = type(lifting)(child, b, lifting.file, lifting.referenced, (*lifting.path, number))
    inner.values.update(zip(child.inputs, inputs, strict=True))
    inner.run()
    lifting.problems += inner.problems
    if inner.problems:
        raise MappingError("something in a subgraph has no counterpart")
    return [inner.values[i] for i in child.outputs]
