"""Loops whose number of steps is known, written out step by step.

before:  Loop(3, true, state, body: state -> f(state), y)      after:  s1, y1 = f(state); s2, y2 = f(s1); s3, y3 = f(s2); [y1, y2, y3]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, builder_before
from converter.graph.extensions import replace
from converter.graph.infer import known, shape_of
from converter.graph.names import Names
from converter.graph.walk import all_nodes, subgraphs
from converter.passes.fold import fold

MOST_NODES = 20_000


def unroll(model: ir.Model) -> None:
    """In place; loops of unknown length, with an end of their own or with too many steps stay."""
    names = Names(model)
    changed = False
    for node in [n for n in all_nodes(model.graph) if n.op_type == "Loop" and n.domain == ""]:
        changed |= _loop(node, names)
    if changed:
        fold(model)


def _loop(node: ir.Node, names: Names) -> bool:
    body = next(subgraphs(node))
    trips = known(node.inputs[0])
    if trips is None or not _endless(node, body) or any(True for n in body for _ in subgraphs(n)):
        return False
    steps = int(trips.reshape(-1)[0])
    if not 0 < steps <= MOST_NODES // max(1, len(body)):
        return False
    b = builder_before(node, names)
    states: list[ir.Value | None] = list(node.inputs[2:])
    stacked: list[list[ir.Value]] = [[] for _ in body.outputs[1 + len(states) :]]
    for step in range(steps):
        results = _step(b, body, [b.const(np.array(step, np.int64)), b.const(np.array(True)), *states])
        states, found = list(results[1 : 1 + len(states)]), results[1 + len(states) :]
        for collected, value in zip(stacked, found, strict=True):
            collected.append(_row(b, value))
    outputs = [*states, *(b.op("Concat", *rows, axis=0) if len(rows) > 1 else rows[0] for rows in stacked)]
    replace(node, outputs, b)
    return True


def _endless(node: ir.Node, body: ir.Graph) -> bool:
    """Whether the condition is true before and after every step."""
    start = known(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else np.array(True)
    condition: ir.Value | None = body.outputs[0]
    while condition is not None and (producer := condition.producer()) is not None and producer.op_type == "Identity":
        condition = producer.inputs[0]
    again = condition is body.inputs[1] or ((value := known(condition)) is not None and bool(value.all()))
    return start is not None and bool(start.all()) and again


def _step(b: Builder, body: ir.Graph, given: list[ir.Value | None]) -> list[ir.Value]:
    """A copy of the body's nodes; its outputs."""
    made: dict[ir.Value, ir.Value | None] = dict(zip(body.inputs, given, strict=True))
    for value in body.initializers.values():
        if value.const_value is not None:
            made[value] = b.const(value.const_value, str(value.name))
    for node in body:
        inputs = [None if v is None else made.get(v, v) for v in node.inputs]
        results = b.ops(node.op_type, *inputs, domain=node.domain, outputs=len(node.outputs), **copied(node))
        made.update(zip(node.outputs, results, strict=True))
    return [made.get(o, o) or o for o in body.outputs]


def copied(node: ir.Node) -> dict[str, Any]:
    """A node's attributes for another node."""
    return dict(node.attributes)


def _row(b: Builder, value: ir.Value) -> ir.Value:
    shape = shape_of(value)
    return b.op("Unsqueeze", value, [0]) if shape is None else b.op("Reshape", value, [1, *shape])
