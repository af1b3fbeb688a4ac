"""`If` and `Loop` for formats whose bodies are lists of layers: functions that write such a
body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder, LoopBody
from converter.graph.value import Value, with_operators

Body = Callable[[Builder, Sequence[ir.Value]], Sequence[ir.Value]]  # its results from its inputs


def as_scalar(b: Builder, value: ir.Value) -> Value:
    """Return a condition, which has one element, as a scalar."""
    if value.dtype != ir.DataType.BOOL:
        value = b.Cast(value, to=int(ir.DataType.BOOL))
    if value.shape is not None and not len(value.shape):
        return with_operators(value)
    return b.Reshape(value, np.zeros(0, np.int64))


def choice(
    b: Builder, condition: ir.Value, inputs: Sequence[ir.Value], bodies: Sequence[Body], count: int
) -> tuple[Value, ...]:
    """Return the `count` results of the first body if the condition holds, else those of the
    second.
    """
    branches = []
    for write in bodies:
        branch = b.body("branch")
        branch.output(*write(branch, inputs))
        branches.append(branch.graph)
    then, other = branches
    start = as_scalar(b, condition)
    return b.ops("If", start, outputs=count, then_branch=then, else_branch=other)


def while_loop(
    b: Builder, states: Sequence[ir.Value], condition: Body, step: Body
) -> tuple[Value, ...]:
    """Return the states after the last iteration of a loop that checks the condition before each
    one.

    Sizes of states may change between iterations; sizes that stay the same are found by writing the
    body a second time.
    """
    shapes = [_sizes(v) for v in states]
    for _ in range(3):
        body = LoopBody(b, None, states)
        for value, sizes in zip(body.states, shapes, strict=True):
            value.shape = None if sizes is None else ir.Shape(sizes)
        after = step(body, body.states)
        if len(after) != len(states):
            message = (
                f"the body of a loop with {len(states)} states must return as many, "
                f"got {len(after)}"
            )
            raise MappingError(message, "R105")
        wider = [_common(a, _sizes(v)) for a, v in zip(shapes, after, strict=True)]
        if wider == shapes:
            break
        shapes = wider
    again = as_scalar(body, condition(body, after)[0])
    body.start = as_scalar(b, condition(b, states)[0])
    return body.end(*after, going=again)


def _sizes(value: ir.Value) -> list[Any] | None:
    return None if value.shape is None else list(value.shape)


def _common(a: list[Any] | None, b: list[Any] | None) -> list[Any] | None:
    """Return a shape with the dimensions that two shapes have in common."""
    if a is None or b is None or len(a) != len(b):
        return None
    return [x if x == y else None for x, y in zip(a, b, strict=True)]
