"""IF and WHILE: their subgraphs become bodies of If and Loop, which capture outer values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import onnx_ir as ir

from converter.errors import Diagnostic, MappingError
from converter.formats.nnapi.table import Operation, Subgraph
from converter.graph.build import Builder
from converter.graph.loops import choice, while_loop


class Lifting(Protocol):
    """A subgraph that is being read, as far as bodies need it."""

    subgraph: Subgraph
    b: Builder
    values: dict[int, ir.Value]
    referenced: Sequence[Subgraph]
    path: tuple[int, ...]
    problems: list[Diagnostic]

    def inner(self, number: int, b: Builder) -> Lifting: ...
    def run(self) -> None: ...


def lift_control(lifting: Lifting, operation: Operation) -> list[ir.Value]:
    """Return the results of an IF (condition, then, else, inputs) or a WHILE (condition, body,
    inputs), as they are stored.
    """
    return _if(lifting, operation) if operation.type == "IF" else _while(lifting, operation)


def _if(lifting: Lifting, operation: Operation) -> list[ir.Value]:
    condition, *inputs = (lifting.values[i] for i in (operation.inputs[0], *operation.inputs[3:]))
    bodies = [partial(_inlined, lifting, operand) for operand in operation.inputs[1:3]]
    return [*choice(lifting.b, condition, inputs, bodies, len(operation.outputs))]


def _while(lifting: Lifting, operation: Operation) -> list[ir.Value]:
    """The first inputs are the state, as many as the body has outputs; the others stay fixed."""
    condition, step, *operands = operation.inputs
    inputs = [lifting.values[i] for i in operands]
    count = len(lifting.referenced[_child(lifting, step)].outputs)
    fixed = inputs[count:]
    results = while_loop(
        lifting.b,
        inputs[:count],
        lambda b, states: _inlined(lifting, condition, b, [*states, *fixed]),
        lambda b, states: _inlined(lifting, step, b, [*states, *fixed]),
    )
    return [*results[: len(operation.outputs)]]


def _child(lifting: Lifting, operand: int) -> int:
    """Return the number of the subgraph that an operand refers to."""
    number = lifting.subgraph.operands[operand].subgraph
    if number is None or not 0 <= number < len(lifting.referenced):
        raise MappingError(f"subgraph {number} does not exist", "R105")
    if number in lifting.path:
        raise MappingError(f"subgraph {number} contains itself", "R105")
    return number


def _inlined(
    lifting: Lifting, operand: int, b: Builder, inputs: Sequence[ir.Value]
) -> list[ir.Value]:
    """Return the outputs of the subgraph that an operand refers to, written with `b` on
    these inputs.
    """
    number = _child(lifting, operand)
    child = lifting.referenced[number]
    if len(child.inputs) != len(inputs):
        message = f"a subgraph takes {len(child.inputs)} operands, got {len(inputs)}"
        raise MappingError(message, "R105")
    inner = lifting.inner(number, b)
    inner.values.update(zip(child.inputs, inputs, strict=True))
    inner.run()
    lifting.problems += inner.problems
    if inner.problems:
        raise MappingError("an operation inside a subgraph cannot be converted")
    return [inner.values[i] for i in child.outputs]
