"""Branches, loops and states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.mlprogram.collector import MilLowering, needed
from converter.formats.coreml.mlprogram.rules.context import LiftContext, LowerContext
from converter.graph.infer import rank_of, shape_of
from converter.graph.loops import Body, choice, while_loop
from converter.graph.states import State
from converter.graph.symbolic import axis_of_size, dimensions
from converter.graph.value import known_sizes
from converter.graph.walk import captured
from converter.graph.windows import FIX
from converter.mapping.node import Layer
from converter.mapping.rules import custom

Dims = list[Any]


def cond(r: LiftContext) -> Sequence[ir.Value]:
    """Lift a cond with its two branches."""
    bodies = [_block(r, i) for i in range(2)]
    return choice(r.b, r.value("pred"), [], bodies, len(r.layer.outputs))


def read_while(r: LiftContext) -> Sequence[ir.Value]:
    """Lift a while_loop with the blocks of its condition and its body."""
    return while_loop(r.b, r.values("loop_vars"), _block(r, 0), _block(r, 1))


def _block(r: LiftContext, index: int) -> Body:
    """Write a block of the operation."""
    return lambda b, inputs: [r.block.as_value(v) for v in r.block.inlined(index, b, list(inputs))]


def block_of(w: LowerContext, graph: Any) -> tuple[list[Layer], list[ir.Value]]:
    """Write the operations of a subgraph, and return its results."""
    low = w.low.inner()
    for node in graph:
        low.node(node)
    w.low.problems += low.problems
    made = {out for layer in low.layers for out in layer.outputs}
    results: list[ir.Value] = []
    for out in graph.outputs:
        if out in made and out not in results:
            results.append(out)
        else:
            same = low.value("result", out.dtype, out.shape)
            low.add("identity", [], [same], {"x": out})
            results.append(same)
    return needed(low.layers, results), results


def write_cond(w: LowerContext) -> None:
    """Write an If; results of both branches must have the same sizes."""
    branches = [block_of(w, w.attr(k)) for k in ("then_branch", "else_branch")]
    for one, other in zip(branches[0][1], branches[1][1], strict=True):
        shapes = shape_of(one), shape_of(other)
        if None not in shapes and shapes[0] != shapes[1]:
            raise MappingError("branches with results of different sizes are not supported")
    layer = w.low.add("cond", [], w.node.outputs, {"pred": flag(w, w.data)})
    layer.extra = [(layers, (), results) for layers, results in branches]


def flag(w: LowerContext, value: ir.Value) -> ir.Value:
    """Return a condition as a scalar."""
    if value.shape is None or not len(value.shape):
        return value
    return w.made("squeeze", value.dtype, [], x=value)


def write_loop(w: LowerContext) -> None:
    """Write a loop that carries the iteration number and the condition together with the states,
    and stacks outputs in tensors of the full size.
    """
    body = w.attr("body")
    states, count = w.node.inputs[2:], w.optional(0)
    start = w.const(np.bool_(True), "start") if not w.has(1) else flag(w, w.input(1))
    first = w.const(np.int32(0), "first")
    layers, results = block_of(w, body)
    low = w.low.inner()
    following = low.value("next", ir.DataType.INT32, [])
    low.add("add", [], [following], {"x": body.inputs[0], "y": low.constant(np.int32(1), "one")})
    collected = [
        Collected(w, low, out, part, body.inputs[0])
        for out, part in zip(w.node.outputs[len(states) :], results[1 + len(states) :], strict=True)
    ]
    formals = [*body.inputs, *(c.before for c in collected)]
    results = [following, *results[: 1 + len(states)], *(c.after for c in collected)]
    carried = [v for v in (first, start, *states, *(c.start for c in collected)) if v is not None]
    made = [w.temporary("steps", ir.DataType.INT32, []), w.temporary("again", start.dtype, [])]
    made += [*w.node.outputs[: len(states)], *(c.made for c in collected)]
    again = _again(w, formals, count)
    layer = w.low.add("while_loop", [], made, {"loop_vars": tuple(carried)})
    layer.extra = [again, ([*layers, *low.layers], formals, results)]
    for c in collected:
        c.cut(made[0])


def outer_size(w: LowerContext, part: ir.Value, axis: int) -> ir.Value:
    """Return one dimension of a value in the body, as a vector of one element that is computed from
    a value outside of it.
    """
    size = (dimensions(part) or [])[axis]
    if size.integer is not None:
        return w.const(np.array([size.integer], np.int32), "size")
    states = [v for v in w.node.inputs[2:] if v is not None]
    found = axis_of_size(size, [*states, *captured(w.attr("body"))])
    if found is None:
        raise MappingError("a result that the loop collects has a dynamic shape", "X203", FIX)
    value, place = found
    sizes = w.made("shape", ir.DataType.INT32, [rank_of(value)], x=value)
    cut = {"begin": [place], "end": [place + 1]}
    return w.made("slice_by_index", ir.DataType.INT32, [1], x=sizes, **cut)


class Collected:
    """A result of which each iteration gives one element: a tensor with as many elements as there
    may be iterations.
    """

    def __init__(
        self, w: LowerContext, low: MilLowering, out: ir.Value, part: ir.Value, step: ir.Value
    ) -> None:
        self.w, self.out = w, out
        if not w.has(0):
            raise MappingError("a loop that collects results needs an iteration count")
        if part.dtype == ir.DataType.BOOL:
            raise MappingError("a loop that collects booleans is not supported")
        sizes = known_sizes(part)
        if sizes is None:
            raise MappingError(
                "the rank of a result that the loop collects is unknown", "X203", FIX
            )
        self.rank, shape = len(sizes) + 1, [None, *sizes]
        count = flag(w, w.data)
        lengths = [w.made("expand_dims", count.dtype, [1], x=count, axes=[0])]
        lengths += [outer_size(w, part, axis) for axis in range(len(sizes))]
        length = lengths[0]
        if sizes:
            given = {"values": lengths, "axis": 0, "interleave": False}
            length = w.made("concat", ir.DataType.INT32, [self.rank], **given)
        zero = w.const(np.zeros((), (part.dtype or ir.DataType.FLOAT).numpy()), "zero")
        self.start = w.made("fill", part.dtype, shape, **{"shape": length, "value": zero})
        self.before = low.value("collected", part.dtype, shape)
        self.after = low.value("collected", part.dtype, shape)
        self.made = w.temporary("collected", part.dtype, shape)
        place, row = low.value("place", step.dtype, [1]), low.value("row", part.dtype, [1, *sizes])
        low.add("expand_dims", [], [place], {"x": step, "axes": [0]})
        low.add("expand_dims", [], [row], {"x": part, "axes": [0]})
        given = {"data": self.before, "indices": place, "updates": row, "axis": 0}
        low.add("scatter", [], [self.after], {**given, "mode": "update"})

    def cut(self, steps: ir.Value) -> None:
        """Return the elements of the iterations that were executed."""
        kind, more = ir.DataType.INT32, self.rank - 1
        end = self.w.made("expand_dims", kind, [1], x=steps, axes=[0])
        if more:
            zeros = self.w.const(np.zeros(more, np.int32), "zeros")
            given = {"values": [end, zeros], "axis": 0, "interleave": False}
            end = self.w.made("concat", kind, [self.rank], **given)
        begin, masks = [0] * self.rank, [False, *[True] * more]
        given = {"x": self.made, "begin": begin, "end": end, "end_mask": masks}
        self.w.operation("slice_by_index", [self.out], **given)


def _again(
    w: LowerContext, formals: Sequence[ir.Value], count: ir.Value | None
) -> tuple[list[Layer], list[ir.Value], list[ir.Value]]:
    """Write the block that computes the condition of the next iteration, on separate inputs."""
    low = w.low.inner()
    inputs = [low.value(v.name or "state", v.dtype, v.shape) for v in formals]
    result = low.value("more", ir.DataType.BOOL, [])
    if count is None:
        low.add("identity", [], [result], {"x": inputs[1]})
    else:
        limit, left = flag(w, count), low.value("left", ir.DataType.BOOL, [])
        low.add("less", [], [left], {"x": inputs[0], "y": limit})
        low.add("logical_and", [], [result], {"x": inputs[1], "y": left})
    return low.layers, inputs, [result]


# states ------------------------------------------------------------------------------------------


def state_of(r: LiftContext) -> State:
    """Return the state that a layer reads or writes. Raises MappingError R105 for other inputs,
    X201 inside a branch or a loop.
    """
    given = r.given_as("input")
    if not isinstance(given, State):
        raise MappingError("the input must be a state", "R105")
    if r.block.nested:
        raise MappingError("states inside a branch or a loop are not supported", "X201")
    return given


def read_state(r: LiftContext) -> ir.Value:
    """Return the current value of a state."""
    return r.block.variables.read(state_of(r))


def write_state(r: LiftContext) -> Sequence[ir.Value]:
    """Set the value of a state; the layer has no results."""
    state = state_of(r)
    r.block.variables.read(state)  # it is an input even where it is only written
    state.value = r.value("data")
    return []


RULES = [
    custom("If", "cond", cond, write_cond),
    custom("Loop", "while_loop", read_while, write_loop),
    custom("", "read_state", read_state),
    custom("", "write_state", write_state),
]
