"""Subgraphs as bodies, and variables as states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.tflite.rules.context import LiteReading
from converter.formats.tflite.rules.fields import reading
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.graph.states import State
from converter.graph.value import Value
from converter.mapping.context import Reading
from converter.mapping.rules import custom

Dims = list[Any]


def stored(r: LiteReading, first: int = 0) -> list[ir.Value]:
    return [r.stored(i) for i in range(first, len(r.operator.inputs))]


def lift_if(r: Reading) -> Sequence[ir.Value]:
    """IF: a condition, and what both subgraphs take."""
    t, branches = reading(r), []
    inputs = stored(t, 1)
    for key in ("then_subgraph_index", "else_subgraph_index"):
        body = r.b.body("branch")
        body.output(*t.graph.inlined(r.attr(key, int), body, inputs))
        branches.append(body.graph)
    return r.b.If(
        truth(r.b, t.stored(0)),
        then_branch=branches[0],
        else_branch=branches[1],
        outputs=len(t.operator.outputs),
    )


def lift_while(r: Reading) -> Sequence[ir.Value]:
    """WHILE: all inputs are states of the loop. Their sizes may change from step to step; those
    that stay are found by writing the body once more.
    """
    t = reading(r)
    condition, step = (r.attr(f"{k}_subgraph_index", int) for k in ("cond", "body"))
    inputs = stored(t)
    shapes = [dims(v) for v in inputs]
    for _ in range(3):
        body, after = _body(t, condition, step, inputs, shapes)
        wider = [_common(a, dims(v)) for a, v in zip(shapes, after, strict=True)]
        if wider == shapes:
            break
        shapes = wider
    start = truth(r.b, t.graph.inlined(condition, r.b, inputs)[0])
    return r.b.Loop(None, start, *inputs, body=body.graph, outputs=len(inputs))


def _body(
    t: LiteReading,
    condition: int,
    step: int,
    inputs: Sequence[ir.Value],
    shapes: Sequence[Dims | None],
) -> tuple[Builder, list[ir.Value]]:
    body = t.b.body("step")
    body.input("iteration", ir.DataType.INT64, [])
    body.input("again", ir.DataType.BOOL, [])
    before = [
        body.input("state", v.dtype or ir.DataType.FLOAT, shape)
        for v, shape in zip(inputs, shapes, strict=True)
    ]
    after = t.graph.inlined(step, body, before)
    if len(after) != len(inputs):
        raise MappingError(f"a loop of {len(inputs)} states whose body gives {len(after)}", "R105")
    again = t.graph.inlined(condition, body, after)[0]
    body.output(truth(body, again), *after)
    return body, after


def dims(value: ir.Value) -> Dims | None:
    return None if value.shape is None else list(value.shape)


def _common(a: Dims | None, b: Dims | None) -> Dims | None:
    """What two shapes have in common."""
    if a is None or b is None or len(a) != len(b):
        return None
    return [x if x == y else None for x, y in zip(a, b, strict=True)]


def truth(b: Builder, value: ir.Value) -> Value:
    """A condition, which has one element, without axes."""
    return b.Reshape(value, np.zeros(0, np.int64))


def call(r: Reading) -> Sequence[ir.Value]:
    """CALL: a subgraph in place of the operator."""
    return reading(r).graph.inlined(r.attr("subgraph", int), r.b, stored(reading(r)))


def composite(r: Reading) -> Sequence[ir.Value]:
    """STABLEHLO_COMPOSITE: a name for what a subgraph computes."""
    number = r.attr("decomposition_subgraph_index", int)
    return reading(r).graph.inlined(number, r.b, stored(reading(r)))


# variables ---------------------------------------------------------------------------------------


def handle(r: Reading) -> Sequence[ir.Value]:
    """VAR_HANDLE: the result stands for a variable, which all handles of that name share."""
    t = reading(r)
    name = r.attr("shared_name", str, "") or t.result().name
    key = f"{r.attr('container', str, '')}/{name}"
    states = t.graph.variables.states
    t.graph.handles[t.operator.outputs[0]] = states.setdefault(key, State(name))
    return []


def state_of(t: LiteReading) -> State:
    found = t.graph.handles.get(t.operator.inputs[0])
    if found is None:
        raise MappingError("a variable that is handed to a subgraph is not supported", "X201")
    if len(t.graph.path) > 1 and not t.graph.initialises:
        raise MappingError("a variable inside a branch or a loop is not supported", "X201")
    return found


def read(r: Reading) -> ir.Value:
    t = reading(r)
    return t.graph.variables.read(state_of(t))


def assign(r: Reading) -> Sequence[ir.Value]:
    t = reading(r)
    state, value = state_of(t), t.stored(1)
    if not t.graph.initialises:
        state.value = value
        return []
    array = constant(value)
    if array is None:
        raise MappingError(f"the variable {state.name!r} begins with a computed value", "X201")
    state.initial = array
    return []


def once(r: Reading) -> Sequence[ir.Value]:
    """CALL_ONCE: a subgraph that assigns variables their first values."""
    t = reading(r)
    inner = t.graph.child(r.attr("init_subgraph_index", int), r.b.body("once"))
    inner.initialises = True
    inner.run()
    t.graph.problems += inner.problems
    return []


RULES = [
    custom("", "IF", lift_if),
    custom("", "WHILE", lift_while),
    custom("", "CALL", call),
    custom("", "STABLEHLO_COMPOSITE", composite),
    custom("", "VAR_HANDLE", handle),
    custom("", "READ_VARIABLE", read),
    custom("", "ASSIGN_VARIABLE", assign),
    custom("", "CALL_ONCE", once),
]
