"""Loops whose number of turns is known, and choices whose condition is known, written out.

before:  Loop(3, true, s) { s' = s * 2 }          after:  s1 = s * 2; s2 = s1 * 2; s3 = s2 * 2
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, builder_before, same_attrs
from converter.graph.extensions import replace
from converter.graph.infer import InferenceError, known
from converter.graph.names import Names
from converter.graph.shapes import infer_all
from converter.graph.value import optional
from converter.graph.walk import all_graphs, release, subgraphs

LONGEST = 256  # turns
LARGEST = 20_000  # nodes that may come out of one loop

Env = dict[ir.Value, ir.Value]


def unroll(
    model: ir.Model, wanted: Callable[[ir.Node], bool] = lambda node: True, longest: int = LONGEST
) -> bool:
    """Writes out, in place, what can be of what is wanted, loops of at most `longest` turns;
    whether anything changed. What cannot be stays as it is.
    """
    names, changed = Names(model), False
    for graph in all_graphs(model.graph):
        queue = list(graph)
        while queue:
            node = queue.pop(0)
            if (
                node.graph is None
                or node.op_type not in ("Loop", "If")
                or node.domain
                or not wanted(node)
            ):
                continue
            before = set(graph)
            if _write_out(node, builder_before(node, names), longest):
                changed = True
                queue = [n for n in graph if n not in before] + queue
    if changed:  # what is behind a loop may now have a size
        infer_all(model)
    return changed


def _write_out(node: ir.Node, b: Builder, longest: int) -> bool:
    try:
        results = _loop(node, b, longest) if node.op_type == "Loop" else _choice(node, b)
    except InferenceError:  # the pieces that were written are dead, and tidied away
        results = None
    if results is None:
        return False
    release(node)
    replace(node, results, b)
    return True


def _loop(node: ir.Node, b: Builder, longest: int) -> list[ir.Value] | None:
    """Turn by turn, as long as the condition is known to hold; a condition that depends on the data
    gives up.
    """
    body = next(subgraphs(node))
    nodes, trips = list(body), known(node.inputs[0])
    go = known(node.inputs[1]) if optional(node, 1) is not None else np.array(True)
    states = [v for v in node.inputs[2:] if v is not None]
    if go is None or None in node.inputs[2:] or any(any(subgraphs(n)) for n in nodes):
        return None
    most = longest + 1 if trips is None else int(min(int(trips.reshape(-1)[0]), longest + 1))
    scanned: list[list[ir.Value]] = [[] for _ in body.outputs[1 + len(states) :]]
    turn = 0
    while go is not None and bool(go.all()) and turn < most:
        if turn >= longest or turn * len(nodes) > LARGEST:
            return None
        env: Env = dict(
            zip(
                body.inputs,
                [b.const(np.array(turn, np.int64)), b.const(np.array(True)), *states],
                strict=True,
            )
        )
        found = copy_body(body, env, b)
        go, states = known(found[0]), found[1 : 1 + len(states)]
        for values, v in zip(scanned, found[1 + len(states) :], strict=True):
            values.append(b.Unsqueeze(v, [0]))
        turn += 1
    if (go is None and turn < most) or any(not values for values in scanned):
        return None
    return [
        *states,
        *(b.Concat(*values, axis=0) if len(values) > 1 else values[0] for values in scanned),
    ]


def _choice(node: ir.Node, b: Builder) -> list[ir.Value] | None:
    """The nodes of the branch that is taken leave it, with the bodies that they own, and stand in
    front of the choice.
    """
    condition = known(node.inputs[0])
    if condition is None:
        return None
    body = node.attributes["then_branch" if bool(condition.all()) else "else_branch"].as_graph()
    for value in list(body.initializers.values()):
        del body.initializers[str(value.name)]
        b.graph.register_initializer(value)
    for inner in list(body):
        body.remove(inner)
        b.place(inner)
    results = list(body.outputs)
    body.outputs.clear()
    return results


def copy_body(body: ir.Graph, env: Env, b: Builder) -> list[ir.Value]:
    """The nodes of `body` once more where `b` writes, with its inputs as `env` says; the values of
    its outputs.
    """
    for value in body.initializers.values():
        if value.const_value is not None:
            env[value] = b.const(value.const_value, str(value.name))
    for inner in body:
        operands = [env.get(v, v) if v is not None else None for v in inner.inputs]
        results = b.ops(
            inner.op_type,
            *operands,
            domain=inner.domain,
            outputs=len(inner.outputs),
            **same_attrs(inner),
        )
        env.update(zip(inner.outputs, results, strict=True))
    return [env.get(v, v) for v in body.outputs]
