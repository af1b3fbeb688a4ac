"""Writing If and Loop: bodies become closed, with a Parameter for every outer value that they read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.special.base import Emit, constant_input, given, lowers
from converter.graph.infer import rank_of
from converter.graph.walk import all_graphs
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node

T = ir.DataType


@dataclass
class Inner:
    """One body for the writer. Inputs are (outer value or None, the value it is in the body), in the order of the layer's inputs.

    `back`: body input -> body output that feeds it; `stacked`: body outputs that are collected along a new axis 0.
    `iteration` and `goes_on` are the body's values with these purposes; `outputs` are in the order of the layer's outputs.
    """

    graph: ir.Graph
    inputs: list[tuple[int, ir.Value]] = field(default_factory=list)
    outputs: list[ir.Value] = field(default_factory=list)
    back: dict[ir.Value, ir.Value] = field(default_factory=dict)
    stacked: set[int] = field(default_factory=set)  # positions in `outputs`
    iteration: ir.Value | None = None
    goes_on: ir.Value | None = None


def captured(graph: ir.Graph) -> list[ir.Value]:
    """The outer values, other than constants, that a body and the bodies inside it read."""
    inside = {v for g in all_graphs(graph) for v in _defined(g)}
    used: dict[ir.Value, None] = {}
    for g in all_graphs(graph):
        for node in g:
            used.update(dict.fromkeys(v for v in node.inputs if v is not None))
        used.update(dict.fromkeys(g.outputs))
    return [v for v in used if v not in inside and v.const_value is None]


def _defined(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


@lowers("If")
def lower_if(node: Node, low: Lowering) -> None:
    branches = [node.attrs[k] for k in ("then_branch", "else_branch")]
    outer = [captured(g) for g in branches]
    values = list(dict.fromkeys(v for found in outer for v in found))
    bodies = {}
    for tag, graph, found in zip(("then_body", "else_body"), branches, outer, strict=True):
        bodies[tag] = Inner(graph, [(1 + values.index(v), v) for v in found], list(graph.outputs))
    for value, *results in zip(node.outputs, *(g.outputs for g in branches), strict=True):
        ranks = [rank_of(v) for v in results]
        if rank_of(value) is None and None not in ranks and len(set(ranks)) > 1:
            message = f"one branch gives {ranks[0]} axes, the other {ranks[1]}; the runtime runs no layer whose rank is unknown"
            raise MappingError(message, "X203", "fix the shapes that the condition depends on with --inputs")
    condition = given(node, 0)
    low.add("If", [condition if rank_of(condition) == 1 else _scalar(Emit(node, low), condition), *values], node.outputs, extra=bodies)


@lowers("Loop")
def lower_loop(node: Node, low: Lowering) -> None:
    """Inputs: trip count (-1 for none), condition, initial states, outer values."""
    graph: ir.Graph = node.attrs["body"]
    e = Emit(node, low)
    trips, condition, initial = node.input(0), node.input(1), node.inputs[2:]
    if any(v is None for v in initial):
        raise MappingError("a state without an initial value")
    number, go, *states = graph.inputs
    outer = captured(graph)
    trip = constant_input(low, np.array(-1, np.int64)) if trips is None else _scalar(e, trips)
    start = constant_input(low, np.array(True)) if condition is None else _scalar(e, condition)
    inner = Inner(graph, goes_on=graph.outputs[0], iteration=number if number.uses() else None)
    inputs = [trip, start, *initial, *outer]
    inner.inputs = [(2 + i, v) for i, v in enumerate(states)] + [(2 + len(states) + i, v) for i, v in enumerate(outer)]
    inner.back = dict(zip(states, graph.outputs[1:], strict=False))
    if go.uses():  # the condition is a state like any other
        inner.inputs.append((1, go))
        inner.back[go] = graph.outputs[0]
    inner.outputs = list(graph.outputs[1:])
    inner.stacked = set(range(len(states), len(inner.outputs)))
    low.add("Loop", inputs, node.outputs, extra={"body": inner})


def _scalar(e: Emit, v: ir.Value) -> ir.Value:
    return v if rank_of(v) == 0 else e.op("Reshape", v, np.zeros(0, np.int64), special_zero=False)
