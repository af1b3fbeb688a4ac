"""Subgraphs as bodies, and variables as states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.elementwise import number
from converter.formats.tflite.rules.context import (
    INT32,
    NARROW,
    TENSOR_INT32,
    LiftContext,
    LowerContext,
    dims_of,
)
from converter.graph.build import Builder
from converter.graph.infer import constant, known, rank_of
from converter.graph.loops import Body, choice, while_loop
from converter.graph.states import State
from converter.graph.symbolic import axis_of_size, dimensions
from converter.graph.walk import captured
from converter.graph.windows import FIX
from converter.mapping.node import Layer
from converter.mapping.rules import custom
from converter.record import record

Dims = list[Any]
MOST_BRANCHES = 100  # each is written inside of the one before it


def stored(r: LiftContext, first: int = 0) -> list[ir.Value]:
    """Return the operands from `first` on, as they are stored."""
    return [r.stored(i) for i in range(first, len(r.operator.inputs))]


def _subgraph(r: LiftContext, key: str) -> Body:
    """Write the subgraph that an option names."""
    index = r.attr(f"{key}_subgraph_index", int)
    return lambda b, inputs: r.graph.inlined(index, b, list(inputs))


def lift_if(r: LiftContext) -> Sequence[ir.Value]:
    """Read IF: a condition, and the inputs of both subgraphs."""
    bodies = [_subgraph(r, k) for k in ("then", "else")]
    return choice(r.b, r.stored(0), stored(r, 1), bodies, len(r.operator.outputs))


def lift_case(r: LiftContext) -> Sequence[ir.Value]:
    """Read STABLEHLO_CASE: the number of a branch (the last one for all other numbers), and the
    inputs of all branches.
    """
    numbers = r.attr("branch_subgraph_indices", list)
    if not 0 < len(numbers) <= MOST_BRANCHES:
        raise MappingError(f"{len(numbers)} branches, limit {MOST_BRANCHES}", "X202")
    inputs, count = stored(r, 1), len(r.operator.outputs)
    index = r.b.Reshape(r.stored(0), [])

    def from_branch(first: int) -> Body:
        def branch(b: Builder, values: Sequence[ir.Value]) -> Sequence[ir.Value]:
            if first == len(numbers) - 1:
                return r.graph.inlined(numbers[first], b, list(values))
            bodies = [subgraph(numbers[first]), from_branch(first + 1)]
            return choice(b, b.Equal(index, first), values, bodies, count)

        return branch

    def subgraph(number: int) -> Body:
        return lambda b, values: r.graph.inlined(number, b, list(values))

    return from_branch(0)(r.b, inputs)


def lift_while(r: LiftContext) -> Sequence[ir.Value]:
    """Read WHILE: all inputs are states of the loop."""
    return while_loop(r.b, stored(r), _subgraph(r, "cond"), _subgraph(r, "body"))


# writing -----------------------------------------------------------------------------------------


@dataclass
class SubgraphBody:
    """A subgraph that an operator refers to: its inputs, the nodes of the graph, operators appended
    to them, and its outputs.
    """

    inputs: list[ir.Value]
    nodes: Sequence[ir.Node]
    layers: list[Layer]
    outputs: list[ir.Value]


def lower_if(w: LowerContext) -> None:
    """Write an If with two subgraphs, which take the values that they capture as inputs."""
    graphs = [w.attr(k) for k in ("then_branch", "else_branch")]
    outer = list(dict.fromkeys(v for g in graphs for v in captured(g)))
    bodies = [SubgraphBody(outer, list(g), [], list(g.outputs)) for g in graphs]
    keys = ("then_subgraph_index", "else_subgraph_index")
    layer = w.put("IF", w.data, *outer)
    layer.attrs |= dict(zip(keys, bodies, strict=True))


def fresh(t: LowerContext, like: ir.Value) -> ir.Value:
    """Return a new value with the type and the shape of another one."""
    dims = None if like.shape is None else list(like.shape)
    return t.temporary(f"{like.name}_carried", like.dtype, dims)


def layer_of(t: LowerContext, kind: str, *inputs: ir.Value, like: ir.Value, **attrs: Any) -> Layer:
    """Return an operator inside a subgraph, with one result that is like another value."""
    return Layer(kind, t.low.name, attrs, {}, list(inputs), [fresh(t, like)])


def always(value: ir.Value | None, again: ir.Value) -> bool:
    """Return whether a condition is always true: it is omitted, known to be true, or the previous
    one.
    """
    if value is None or value is again:
        return True
    node = value.producer()
    if node is not None and node.op_type == "Identity" and not node.domain:
        return always(node.inputs[0], again)
    found = known(value)
    return found is not None and bool(found.all())


@record
class Pile:
    """A scan output of a Loop, as a state: `begin` before the first iteration, `state` in an
    iteration, `after` it. The `layers` of the body write one row; `unused` rows precede it.
    """

    begin: ir.Value
    state: ir.Value
    after: ir.Value
    layers: list[Layer]
    unused: int = 0


def begun(
    w: LowerContext, row: ir.Value, count: ir.Value | int, outer: Sequence[ir.Value]
) -> ir.Value:
    """Return zeros for `count` rows; unknown sizes are those of values outside of the Loop."""
    dtype = row.dtype or ir.DataType.FLOAT
    dtype, sizes = NARROW.get(dtype, dtype), dims_of(row)
    if None not in sizes and isinstance(count, int):
        return w.const(np.zeros([count, *(n or 0 for n in sizes)], dtype.numpy()))
    parts = [count_of(w, count), *(outer_size(w, row, i, outer) for i in range(len(sizes)))]
    shape = parts[0]
    if len(parts) > 1:
        shape = w.emit("CONCATENATION", *parts, shape=[len(parts)], axis=0)
    zero = w.const(np.zeros((), dtype.numpy()))
    dims = [count if isinstance(count, int) else None, *sizes]
    return w.emit("FILL", shape, zero, dtype=dtype, shape=dims)


def count_of(w: LowerContext, count: ir.Value | int) -> ir.Value:
    """Return a number of iterations as a vector of one element."""
    if isinstance(count, int):
        return w.int32([count])
    return w.emit("RESHAPE", w.indices(count), w.int32([1]), shape=[1])


def outer_size(w: LowerContext, row: ir.Value, axis: int, outer: Sequence[ir.Value]) -> ir.Value:
    """Return one dimension of a value in the body, as a vector of one element that is computed from
    a value outside of it.
    """
    size = (dimensions(row) or [])[axis]
    if size.integer is not None:
        return w.int32([size.integer])
    if (found := axis_of_size(size, outer)) is not None:
        value, place = found
        rank = rank_of(value)
        sizes = w.emit("SHAPE", value, dtype=INT32, shape=[rank], out_type=TENSOR_INT32)
        return w.emit("SLICE", sizes, w.int32([place]), w.int32([1]), shape=[1])
    raise MappingError("a value that the loop stacks has a dynamic shape", "X203", FIX)


def filled(w: LowerContext, row: ir.Value, turn: ir.Value, begin: ir.Value) -> Pile:
    """Write one row of a scan output with a known number of rows."""
    state, sizes = fresh(w, row), dims_of(row)
    state.shape = ir.Shape(dims_of(begin))
    line = layer_of(w, "EXPAND_DIMS", row, w.int32(0), like=row)
    line.outputs[0].shape = ir.Shape([1, *sizes])
    first = w.temporary("turn", ir.DataType.INT64, [1])
    place = w.temporary("place", ir.DataType.INT64, [1 + len(sizes)])
    zeros = w.const(np.zeros(len(sizes), np.int64))
    where = [
        Layer("RESHAPE", w.low.name, {}, {}, [turn, w.int32([1])], [first]),
        Layer("CONCATENATION", w.low.name, {"axis": 0}, {}, [first, zeros], [place]),
    ]
    update = layer_of(w, "DYNAMIC_UPDATE_SLICE", state, line.outputs[0], place, like=state)
    return Pile(begin, state, update.outputs[0], [*where, line, update])


def grown(w: LowerContext, row: ir.Value, begin: ir.Value) -> Pile:
    """Append one row to a scan output with an unknown number of rows, which begins with an unused
    row: LiteRT does not run a WHILE with an empty state.
    """
    state, sizes = fresh(w, row), dims_of(row)
    state.shape = ir.Shape([None, *sizes])
    line = layer_of(w, "EXPAND_DIMS", row, w.int32(0), like=row)
    line.outputs[0].shape = ir.Shape([1, *sizes])
    longer = layer_of(w, "CONCATENATION", state, line.outputs[0], like=state)
    longer.attrs["axis"] = 0
    return Pile(begin, state, longer.outputs[0], [line, longer], 1)


def lower_loop(w: LowerContext) -> None:
    """Write a WHILE that carries the iteration number if it is used, the condition, the states, the
    outputs stacked so far, and all values of outer graphs that the body reads.
    """
    graph = w.attr("body")
    turn, again, *states = graph.inputs
    most, start = w.optional(0), w.optional(1)
    goes_on, *results = graph.outputs
    turns = number(most)
    outer = [v for v in captured(graph) if v is not most]
    sources = [*(w.input(2 + i) for i in range(len(states))), *outer]
    piles = []
    for value in results[len(states) :]:
        if most is None or not always(goes_on, again) or not always(start, again):
            piles.append(grown(w, value, begun(w, value, 1, sources)))
        else:
            height = most if turns is None else int(turns)
            piles.append(filled(w, value, turn, begun(w, value, height, sources)))
    if most is not None and most.const_value is None:
        outer.append(most)
    turn.shape, again.shape = ir.Shape([]), ir.Shape([])
    one = layer_of(w, "ADD", turn, w.const(1), like=turn)
    counts = bool(turn.uses() or piles or most is not None)
    counter, zero = ([turn], [w.const(0)]) if counts else ([], [])
    body = SubgraphBody(
        [*counter, again, *states, *(p.state for p in piles), *outer],
        list(graph),
        [*(layer for p in piles for layer in p.layers), *([one] if counts else [])],
        [
            *(one.outputs if counts else []),
            *(goes_on, *results[: len(states)], *(p.after for p in piles)),
            *outer,
        ],
    )
    carried = [fresh(w, v) for v in body.inputs[: len(body.inputs) - len(outer)]] + outer
    condition, checks = carried[len(counter)], []
    if most is not None:
        limit = most if constant(most) is None else w.const(constant(most).reshape(()))  # type: ignore[union-attr]
        below = layer_of(w, "LESS", carried[0], limit, like=again)
        both = layer_of(w, "LOGICAL_AND", below.outputs[0], condition, like=again)
        checks, condition = [below, both], both.outputs[0]
    first = w.const(np.asarray(True)) if start is None else start
    before = [*zero, first, *w.node.inputs[2:], *(p.begin for p in piles), *outer]
    stacked = [
        (fresh(w, p.after) if p.unused else out, out)
        for p, out in zip(piles, w.node.outputs[len(states) :], strict=True)
    ]
    ends = [*(fresh(w, v) for v in (*counter, again)), *w.node.outputs[: len(states)]]
    ends += [value for value, _ in stacked]
    layer = w.put("WHILE", *before, outputs=[*ends, *(fresh(w, v) for v in outer)])
    layer.attrs["cond_subgraph_index"] = SubgraphBody(carried, [], checks, [condition])
    layer.attrs["body_subgraph_index"] = body
    for pile, (value, out) in zip(piles, stacked, strict=True):
        if pile.unused:
            places = [pile.unused, *[0] * (len(value.shape or ()) - 1)]
            w.put("SLICE", value, w.int32(places), w.int32([-1] * len(places)), outputs=[out])


def call(r: LiftContext) -> Sequence[ir.Value]:
    """Read CALL: the operator is replaced by a subgraph."""
    return r.graph.inlined(r.attr("subgraph", int), r.b, stored(r))


def composite(r: LiftContext) -> Sequence[ir.Value]:
    """Read STABLEHLO_COMPOSITE: a named operator whose computation is given by a subgraph."""
    number = r.attr("decomposition_subgraph_index", int)
    return r.graph.inlined(number, r.b, stored(r))


# variables ---------------------------------------------------------------------------------------


def handle(r: LiftContext) -> Sequence[ir.Value]:
    """Read VAR_HANDLE: the result refers to a variable, which all handles of that name share."""
    name = r.attr("shared_name", str, "") or r.result().name
    key = f"{r.attr('container', str, '')}/{name}"
    states = r.graph.variables.states
    r.result()
    r.graph.handles[r.operator.outputs[0]] = states.setdefault(key, State(name))
    return []


def state_of(t: LiftContext) -> State:
    """Return the variable of the first operand. Raises MappingError X201 for one that a subgraph
    gets as an input, and inside of branches and loops.
    """
    found = t.graph.handles.get(next(iter(t.operator.inputs), -1))
    if found is None:
        raise MappingError("passing a variable to a subgraph is not supported", "X201")
    if len(t.graph.path) > 1 and not t.graph.initializes:
        raise MappingError("variables inside a branch or a loop are not supported", "X201")
    return found


def read(r: LiftContext) -> ir.Value:
    """Return the current value of a variable."""
    return r.graph.variables.read(state_of(r))


def assign(r: LiftContext) -> Sequence[ir.Value]:
    """Set the value of a variable, or in the subgraph of initialization its initial value."""
    state, value = state_of(r), r.stored(1)
    if not r.graph.initializes:
        state.value = value
        return []
    array = constant(value)
    if array is None:
        raise MappingError(f"variable {state.name!r} must have a constant initial value", "X201")
    state.initial = array
    return []


def once(r: LiftContext) -> Sequence[ir.Value]:
    """Read CALL_ONCE: a subgraph that assigns the initial values of variables."""
    inner = r.graph.child(r.attr("init_subgraph_index", int), r.b.body("once"))
    inner.initializes = True
    inner.run()
    r.graph.problems += inner.problems
    return []


RULES = [
    custom("If", "IF", lift_if, lower_if),
    custom("Loop", "WHILE", lift_while, lower_loop),
    custom("", "CALL", call),
    custom("", "STABLEHLO_CASE", lift_case),
    custom("", "STABLEHLO_COMPOSITE", composite),
    custom("", "VAR_HANDLE", handle),
    custom("", "READ_VARIABLE", read),
    custom("", "ASSIGN_VARIABLE", assign),
    custom("", "CALL_ONCE", once),
]
