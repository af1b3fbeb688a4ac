"""Branches, loops and states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.mlprogram.rules.context import reading
from converter.graph.build import Builder
from converter.graph.states import State
from converter.graph.value import Value
from converter.mapping.context import Reading
from converter.mapping.rules import custom

Dims = list[Any]


def cond(r: Reading) -> Sequence[ir.Value]:
    t, branches = reading(r), []
    for i in range(2):
        body = r.b.body("branch")
        body.output(*(t.block.as_value(v) for v in t.block.inlined(i, body, [])))
        branches.append(body.graph)
    return r.b.If(
        truth(r.b, t.value("pred")),
        then_branch=branches[0],
        else_branch=branches[1],
        outputs=len(t.layer.outputs),
    )


def while_loop(r: Reading) -> Sequence[ir.Value]:
    """Sizes of states may change from step to step; those that stay are found by writing the body
    once more.
    """
    t = reading(r)
    inputs = t.values("loop_vars")
    shapes = [dims(v) for v in inputs]
    for _ in range(3):
        body, after = _body(r, inputs, shapes)
        wider = [_common(a, dims(v)) for a, v in zip(shapes, after, strict=True)]
        if wider == shapes:
            break
        shapes = wider
    (first,) = t.block.inlined(0, r.b, inputs)
    start = truth(r.b, t.block.as_value(first))
    return r.b.Loop(None, start, *inputs, body=body.graph, outputs=len(inputs))


def _body(
    r: Reading, inputs: Sequence[ir.Value], shapes: Sequence[Dims | None]
) -> tuple[Builder, list[ir.Value]]:
    block, body = reading(r).block, r.b.body("step")
    body.input("iteration", ir.DataType.INT64, [])
    body.input("again", ir.DataType.BOOL, [])
    before = [
        body.input("state", v.dtype or ir.DataType.FLOAT, shape)
        for v, shape in zip(inputs, shapes, strict=True)
    ]
    after = [block.as_value(v) for v in block.inlined(1, body, before)]
    if len(after) != len(inputs):
        raise MappingError(f"a loop of {len(inputs)} states whose body gives {len(after)}", "R105")
    (again,) = block.inlined(0, body, after)
    body.output(truth(body, block.as_value(again)), *after)
    return body, after


def dims(value: ir.Value) -> Dims | None:
    return None if value.shape is None else list(value.shape)


def _common(a: Dims | None, b: Dims | None) -> Dims | None:
    """What two shapes have in common."""
    if a is None or b is None or len(a) != len(b):
        return None
    return [x if x == y else None for x, y in zip(a, b, strict=True)]


def truth(b: Builder, value: ir.Value) -> Value:
    """A condition, without axes."""
    if value.dtype != ir.DataType.BOOL:
        value = b.Cast(value, to=int(ir.DataType.BOOL))
    return b.Reshape(value, np.zeros(0, np.int64))


# states ------------------------------------------------------------------------------------------


def state_of(r: Reading) -> State:
    given = reading(r).given_as("input")
    if not isinstance(given, State):
        raise MappingError("the input is no state", "R105")
    if reading(r).block.outer is not None:
        raise MappingError("a state inside a branch or a loop is not supported", "X201")
    return given


def read_state(r: Reading) -> ir.Value:
    return reading(r).block.variables.read(state_of(r))


def write_state(r: Reading) -> Sequence[ir.Value]:
    state = state_of(r)
    reading(r).block.variables.read(state)  # it is an input even where it is only written
    state.value = reading(r).value("data")
    return []


RULES = [
    custom("", "cond", cond),
    custom("", "while_loop", while_loop),
    custom("", "read_state", read_state),
    custom("", "write_state", write_state),
]
