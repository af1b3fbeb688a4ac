"""Subgraphs as bodies, and variables as states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.elementwise import number
from converter.formats.tflite.rules.context import NARROW, Reading, Writing, dims_of
from converter.graph.infer import constant, known
from converter.graph.loops import Body, choice, while_loop
from converter.graph.states import State
from converter.graph.walk import captured
from converter.mapping.node import Layer
from converter.mapping.rules import custom

Dims = list[Any]


def stored(r: Reading, first: int = 0) -> list[ir.Value]:
    return [r.stored(i) for i in range(first, len(r.operator.inputs))]


def _subgraph(r: Reading, key: str) -> Body:
    """Write the subgraph that an option names."""
    index = r.attr(f"{key}_subgraph_index", int)
    return lambda b, inputs: r.graph.inlined(index, b, list(inputs))


def lift_if(r: Reading) -> Sequence[ir.Value]:
    """IF: a condition, and the inputs of both subgraphs."""
    bodies = [_subgraph(r, k) for k in ("then", "else")]
    return choice(r.b, r.stored(0), stored(r, 1), bodies, len(r.operator.outputs))


def lift_while(r: Reading) -> Sequence[ir.Value]:
    """WHILE: all inputs are states of the loop."""
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


def lower_if(w: Writing) -> None:
    graphs = [w.attr(k) for k in ("then_branch", "else_branch")]
    outer = list(dict.fromkeys(v for g in graphs for v in captured(g)))
    bodies = [SubgraphBody(outer, list(g), [], list(g.outputs)) for g in graphs]
    keys = ("then_subgraph_index", "else_subgraph_index")
    layer = w.put("IF", w.data, *outer)
    layer.attrs |= dict(zip(keys, bodies, strict=True))


def fresh(t: Writing, like: ir.Value, shape: Any = None) -> ir.Value:
    dims = None if like.shape is None else list(like.shape)
    return t.temporary(f"{like.name}_carried", like.dtype, dims if shape is None else shape)


def layer_of(t: Writing, kind: str, *inputs: ir.Value, like: ir.Value, **attrs: Any) -> Layer:
    """An operator inside a subgraph, whose one result is like another value."""
    return Layer(kind, t.low.name, attrs, {}, list(inputs), [fresh(t, like)])


def always(value: ir.Value | None, again: ir.Value) -> bool:
    """Whether a condition is always true: it is omitted, known to be true, or the previous one."""
    if value is None or value is again:
        return True
    node = value.producer()
    if node is not None and node.op_type == "Identity" and not node.domain:
        return always(node.inputs[0], again)
    found = known(value)
    return found is not None and bool(found.all())


def empty_of(pile: ir.Value) -> tuple[list[int], Any]:
    """Return shape and type of a stacked output before the first iteration."""
    dtype = pile.dtype or ir.DataType.FLOAT
    return [n or 0 for n in dims_of(pile)], NARROW.get(dtype, dtype).numpy()


def lower_loop(w: Writing) -> None:
    """Write a WHILE that carries the iteration number if it is used, the condition, the states, the
    outputs stacked so far, and all values of outer graphs that the body reads.
    """
    graph = w.attr("body")
    turn, again, *states = graph.inputs
    most, start = w.optional(0), w.optional(1)
    goes_on, *results = graph.outputs
    stacked, turns = results[len(states) :], number(most)
    if stacked and (turns is None or not always(goes_on, again) or not always(start, again)):
        raise MappingError(
            "the loop's iteration count is not known at conversion time, so its "
            "stacked output has no shape"
        )
    piles, more = [], []
    for value in stacked:
        sizes = dims_of(value)
        if None in sizes:
            raise MappingError("the loop's stacked output has an unknown size", "X203")
        pile = fresh(w, value, [int(turns or 0), *sizes])
        row = layer_of(w, "EXPAND_DIMS", value, w.int32(0), like=value)
        row.outputs[0].shape = ir.Shape([1, *sizes])
        line = w.temporary("turn", ir.DataType.INT64, [1])
        place = w.temporary("place", ir.DataType.INT64, [1 + len(sizes)])
        zeros = w.const(np.zeros(len(sizes), np.int64))
        where = [
            Layer("RESHAPE", w.low.name, {}, {}, [turn, w.int32([1])], [line]),
            Layer("CONCATENATION", w.low.name, {"axis": 0}, {}, [line, zeros], [place]),
        ]
        operands = (pile, row.outputs[0], place)
        piles.append(pile)
        more += [*where, row, layer_of(w, "DYNAMIC_UPDATE_SLICE", *operands, like=pile)]
    outer = [v for v in captured(graph) if v is not most]
    if most is not None and most.const_value is None:
        outer.append(most)
    turn.shape, again.shape = ir.Shape([]), ir.Shape([])
    one = layer_of(w, "ADD", turn, w.const(1), like=turn)
    counts = bool(turn.uses() or stacked or most is not None)
    counter, zero = ([turn], [w.const(0)]) if counts else ([], [])
    next_piles = [layer.outputs[0] for layer in more[3::4]]
    body = SubgraphBody(
        [*counter, again, *states, *piles, *outer],
        list(graph),
        [*more, *([one] if counts else [])],
        [*(one.outputs if counts else []), goes_on, *results[: len(states)], *next_piles, *outer],
    )
    carried = [fresh(w, v) for v in body.inputs[: len(body.inputs) - len(outer)]] + outer
    condition, checks = carried[len(counter)], []
    if most is not None:
        limit = most if constant(most) is None else w.const(constant(most).reshape(()))  # type: ignore[union-attr]
        below = layer_of(w, "LESS", carried[0], limit, like=again)
        both = layer_of(w, "LOGICAL_AND", below.outputs[0], condition, like=again)
        checks, condition = [below, both], both.outputs[0]
    first = w.const(np.asarray(True)) if start is None else start
    before = [*zero, first, *w.node.inputs[2:]]
    before += [*(w.const(np.zeros(*empty_of(v))) for v in piles), *outer]
    ends = [*(fresh(w, v) for v in (*counter, again)), *w.node.outputs]
    layer = w.put("WHILE", *before, outputs=[*ends, *(fresh(w, v) for v in outer)])
    layer.attrs["cond_subgraph_index"] = SubgraphBody(carried, [], checks, [condition])
    layer.attrs["body_subgraph_index"] = body


def call(r: Reading) -> Sequence[ir.Value]:
    """CALL: the operator is replaced by a subgraph."""
    return r.graph.inlined(r.attr("subgraph", int), r.b, stored(r))


def composite(r: Reading) -> Sequence[ir.Value]:
    """STABLEHLO_COMPOSITE: a named operator whose computation is given by a subgraph."""
    number = r.attr("decomposition_subgraph_index", int)
    return r.graph.inlined(number, r.b, stored(r))


# variables ---------------------------------------------------------------------------------------


def handle(r: Reading) -> Sequence[ir.Value]:
    """VAR_HANDLE: the result refers to a variable, which all handles of that name share."""
    name = r.attr("shared_name", str, "") or r.result().name
    key = f"{r.attr('container', str, '')}/{name}"
    states = r.graph.variables.states
    r.result()
    r.graph.handles[r.operator.outputs[0]] = states.setdefault(key, State(name))
    return []


def state_of(t: Reading) -> State:
    found = t.graph.handles.get(next(iter(t.operator.inputs), -1))
    if found is None:
        raise MappingError("passing a variable to a subgraph is not supported", "X201")
    if len(t.graph.path) > 1 and not t.graph.initialises:
        raise MappingError("variables inside a branch or a loop are not supported", "X201")
    return found


def read(r: Reading) -> ir.Value:
    return r.graph.variables.read(state_of(r))


def assign(r: Reading) -> Sequence[ir.Value]:
    state, value = state_of(r), r.stored(1)
    if not r.graph.initialises:
        state.value = value
        return []
    array = constant(value)
    if array is None:
        raise MappingError(f"variable {state.name!r} must have a constant initial value", "X201")
    state.initial = array
    return []


def once(r: Reading) -> Sequence[ir.Value]:
    """CALL_ONCE: a subgraph that assigns variables their first values."""
    inner = r.graph.child(r.attr("init_subgraph_index", int), r.b.body("once"))
    inner.initialises = True
    inner.run()
    r.graph.problems += inner.problems
    return []


RULES = [
    custom("If", "IF", lift_if, lower_if),
    custom("Loop", "WHILE", lift_while, lower_loop),
    custom("", "CALL", call),
    custom("", "STABLEHLO_COMPOSITE", composite),
    custom("", "VAR_HANDLE", handle),
    custom("", "READ_VARIABLE", read),
    custom("", "ASSIGN_VARIABLE", assign),
    custom("", "CALL_ONCE", once),
]
