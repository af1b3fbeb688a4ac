"""Branches and loops, whose bodies are blocks of the operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.coreai.collector import CoreAILowering
from converter.formats.coreml.coreai.rules.context import LiftContext, LowerContext
from converter.graph.build import Builder
from converter.graph.infer import shape_of
from converter.graph.loops import Body, choice, while_loop
from converter.mapping.rules import custom

D = ir.DataType


def condition(r: LiftContext) -> Sequence[ir.Value]:
    """Lift an if with its two branches."""
    bodies = [_block(r, i) for i in range(2)]
    return choice(r.b, r.input(0), [], bodies, len(r.layer.outputs))


def _block(r: LiftContext, index: int) -> Body:
    """Write a block of the operation."""
    return lambda b, inputs: r.block.inlined(index, b, list(inputs))


def loop(r: LiftContext) -> Sequence[ir.Value]:
    """Lift a loop. Before each iteration the first block computes the condition and the inputs of
    the second block; after the last iteration these are the result.
    """
    before, after = _block(r, 0), _block(r, 1)

    def step(b: Builder, states: Sequence[ir.Value]) -> Sequence[ir.Value]:
        return after(b, before(b, states)[1:])

    states = [v for v in r.layer.inputs if v is not None]
    results = while_loop(r.b, states, lambda b, v: before(b, v)[:1], step)
    return before(r.b, results)[1:]


def block_of(w: LowerContext, graph: Any) -> tuple[CoreAILowering, list[ir.Value]]:
    """Return the operations of a graph inside an operator, and its results in their types."""
    low = w.low.inner()
    for node in graph:
        low.node(node)
    w.low.problems += low.problems
    return low, list(graph.outputs)


def fitted(low: CoreAILowering, value: ir.Value, like: ir.Value) -> ir.Value:
    """Return a value in the type of another one, whose sizes may be less specific."""
    made = low.value("result", like.dtype, like.shape)
    low.add("cast", [value], [made])
    return made


def write_if(w: LowerContext) -> None:
    """Write an If; both branches cast their results to the declared types."""
    layer = w.low.layer("if", [flag(w, w.data)], w.node.outputs)
    layer.extra = []
    for key in ("then_branch", "else_branch"):
        low, results = block_of(w, w.attr(key))
        outs = [fitted(low, v, o) for v, o in zip(results, w.node.outputs, strict=True)]
        layer.extra.append((low.layers, [], "yield", outs))
    w.low.layers.append(layer)


def flag(w: LowerContext, value: ir.Value) -> ir.Value:
    """Return a condition as a scalar."""
    if value.shape is not None and not len(value.shape):
        return value
    return w.emit("reshape", value, w.numbers([]), shape=[])


def write_loop(w: LowerContext) -> None:
    """Write a loop that carries the iteration number, the condition and the stacked outputs
    together with the states.

    The body computes the condition of the next iteration: with operations in the region of the
    condition, and stacked outputs, Apple's runtime loses the iteration number.
    """
    body, states = w.attr("body"), list(w.node.inputs[2:])
    count = w.optional(0)
    limit = None if count is None else flag(w, count)
    going = w.const(np.array(True)) if not w.has(1) else flag(w, w.input(1))
    low, (again, *after) = block_of(w, body)
    collected = [GrowingVector(w, low, v) for v in after[len(states) :]]
    formals = [*body.inputs, *(v for c in collected for v in c.before)]
    following = low.value("next", D.INT64, [])
    low.add("broadcasting_add", [formals[0], low.constant(np.array(1, np.int64))], [following])
    if limit is not None:
        zero = w.const(np.array(0, np.int64))
        going = below(w.low, zero, limit, going)
        again = below(low, following, limit, fitted(low, again, formals[1]))
    kept = zip([again, *after[: len(states)]], body.inputs[1:], strict=True)
    results = [
        following,
        *(fitted(low, v, f) for v, f in kept),
        *(v for c in collected for v in c.after),
    ]
    first = w.low.inner()
    copies = [first.value("state", v.dtype, v.shape) for v in formals]
    start = [
        w.const(np.array(0, np.int64)),
        going,
        *states,
        *(v for c in collected for v in c.start),
    ]
    carried = [
        fitted(w.low, v, f) if v is not None and _differ(v, f) else v
        for v, f in zip(start, formals, strict=True)
    ]
    made = [w.temporary("carried", v.dtype, v.shape) for v in formals]
    layer = w.low.layer("while", carried, made)
    layer.extra = [
        (first.layers, copies, "condition", [copies[1], *copies]),
        (low.layers, formals, "yield", results),
    ]
    w.low.layers.append(layer)
    for value, out in zip(made[2:], w.node.outputs[: len(states)], strict=False):
        w.put("cast", value, outputs=[out])
    lines = iter(made[2 + len(states) :])
    for c, out in zip(collected, w.node.outputs[len(states) :], strict=True):
        c.deliver(made[0], next(lines), next(lines), out)


def below(low: CoreAILowering, number: ir.Value, limit: ir.Value, also: ir.Value) -> ir.Value:
    """Return whether an iteration is below the limit and another condition holds."""
    left, both = (low.value(n, D.BOOL, []) for n in ("left", "more"))
    low.add("broadcasting_greater", [limit, number], [left])
    low.add("broadcasting_and", [left, also], [both])
    return both


class GrowingVector:
    """An output that grows by one element in each iteration: a vector of all elements, and the
    sizes of the last one.
    """

    def __init__(self, w: LowerContext, low: CoreAILowering, part: ir.Value) -> None:
        if part.shape is None:
            raise MappingError(
                "a loop that collects results of unknown rank is not supported", "X203"
            )
        self.w, self.rank, dtype = w, len(part.shape), part.dtype or D.FLOAT
        self.start = [w.const(np.zeros(0, dtype.numpy())), w.numbers([1] * self.rank)]
        self.before = [
            w.temporary("collected", dtype, [None]),
            w.temporary("sizes", D.INT32, [self.rank]),
        ]
        line, total = (low.value(n, dtype, [None]) for n in ("line", "collected"))
        found = low.value("sizes", D.UINT32, [self.rank])
        low.add("reshape", [part, low.constant(np.array([-1], np.int32))], [line])
        low.add("concat", [low.constant(np.array(0, np.int32)), self.before[0], line], [total])
        low.add("get_shape", [part], [found])
        self.after = [total, fitted(low, found, self.before[1])]

    def deliver(self, count: ir.Value, line: ir.Value, sizes: ir.Value, out: ir.Value) -> None:
        """Return the elements of all iterations, [iterations, ...]."""
        w = self.w
        number = w.emit("reshape", w.cast(count, D.INT32), w.numbers([1]), shape=[1])
        shape = w.emit("concat", w.numbers(0), number, sizes, dtype=D.INT32, shape=[self.rank + 1])
        w.put("reshape", line, shape, outputs=[out])


def _differ(value: ir.Value, formal: ir.Value) -> bool:
    own, wanted = shape_of(value), shape_of(formal)
    return own is None or own != wanted


RULES = [custom("If", "if", condition, write_if), custom("Loop", "while", loop, write_loop)]
