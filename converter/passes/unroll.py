"""Unroll loops with a known number of iterations, and inline the taken branch of choices with a
known condition.

before:  Loop(3, true, s) { s' = s * 2 }          after:  s1 = s * 2; s2 = s1 * 2; s3 = s2 * 2

Later nodes are inferred again on the way, because a condition often depends on sizes that an
earlier choice determines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, RecordingBuilder, same_attrs
from converter.graph.extensions import replace
from converter.graph.infer import InferenceError, known, shape_of
from converter.graph.names import Names
from converter.graph.shapes import infer_again, infer_all, taken_branch
from converter.graph.value import optional
from converter.graph.walk import all_graphs, all_nodes, release, subgraphs
from converter.passes.pipeline import Context, Pass

LONGEST = 256  # iterations
LARGEST = 20_000  # maximum number of nodes after unrolling one loop

Env = dict[ir.Value, ir.Value]


def unroll(
    model: ir.Model, wanted: Callable[[ir.Node], bool] = lambda node: True, longest: int = LONGEST
) -> bool:
    """Unroll, in place, the selected loops of at most `longest` iterations, and inline the selected
    branches; return whether anything changed. Others are left unchanged.
    """
    changed = again = _unroll(model, wanted, longest)
    while again:  # sizes after a choice may determine the conditions of others
        infer_all(model)
        again = any(map(_is_decided, all_nodes(model.graph))) and _unroll(
            model, lambda node: _is_decided(node) and wanted(node), longest
        )
    return changed


def _is_decided(node: ir.Node) -> bool:
    """Return whether a node is a choice with a known condition."""
    return node.op_type == "If" and not node.domain and known(node.inputs[0]) is not None


def _unroll(model: ir.Model, wanted: Callable[[ir.Node], bool], longest: int) -> bool:
    names, changed = Names(model), False
    moved: set[ir.Value] = set()  # better known than when their consumers were inferred
    for graph in all_graphs(model.graph):
        queue = deque(graph)
        while queue:
            node = queue.popleft()
            if node.graph is None:
                continue
            if not moved.isdisjoint(node.inputs) or (changed and any(subgraphs(node))):
                _infer_moved(node, moved)
            if node.op_type not in ("Loop", "If") or node.domain or not wanted(node):
                continue
            readers = [use for o in node.outputs for use in o.uses()]
            made = _write_out(node, names, longest)
            if made is not None:
                changed = True
                moved.update(v for r in readers if (v := r.node.inputs[r.idx]) is not None)
                queue.extendleft(reversed(made))
    return changed


def never_runs(node: ir.Node) -> bool:
    """Return whether a loop is known to have no iterations."""
    if node.op_type != "Loop" or node.domain:
        return False
    trips, go = (known(optional(node, i)) for i in range(2))
    return (trips is not None and not (trips > 0).any()) or (go is not None and not go.all())


def infer_and_choose(
    graph: ir.Graph, names: Names, branch: Callable[[ir.Graph], None] | None = None
) -> None:
    """Infer types and shapes of all values of a graph without any, and inline the taken branch of
    each choice as soon as its condition is known. Raise InferenceError for invalid nodes.

    The branch that is not taken need not be valid, and values after a choice are inferred from the
    taken one. The branches of other choices are inferred by `branch`, or alike.
    """
    queue = deque(graph)
    while queue:
        node = queue.popleft()
        if _is_decided(node):
            made = _write_out(node, names, LONGEST)
            if made is not None:
                queue.extendleft(reversed(made))
                continue
        try:
            infer_again(node, branch or (lambda body: infer_and_choose(body, names)))
        except InferenceError as e:
            e.node = e.node or node
            raise


def _infer_moved(node: ir.Node, moved: set[ir.Value]) -> None:
    """Infer a node again; add those of its results to `moved` that are now known better."""
    before = [(o.type, o.shape, known(o) is None) for o in node.outputs]
    infer_again(node)
    moved.update(
        o
        for o, (type_, shape, unknown) in zip(node.outputs, before, strict=True)
        if o.type != type_ or o.shape != shape or (unknown and known(o) is not None)
    )


def _write_out(node: ir.Node, names: Names, longest: int) -> list[ir.Node] | None:
    """Return the nodes that replace `node`; None if it cannot be replaced."""
    assert isinstance(node.graph, ir.Graph)
    b = RecordingBuilder(node.graph, names, node)
    try:
        results = _loop(node, b, longest) if node.op_type == "Loop" else _choice(node, b)
    except InferenceError:  # the nodes created so far are dead, and removed later
        results = None
    if results is None:
        return None
    release(node)
    replace(node, results, b)
    return b.made


def _loop(node: ir.Node, b: Builder, longest: int) -> list[ir.Value] | None:
    """Unroll as long as the condition is known to hold; return None if it depends on the data, or
    the number of iterations is computed.
    """
    body = next(subgraphs(node))
    nodes, trips = list(body), known(node.inputs[0])
    go = known(node.inputs[1]) if optional(node, 1) is not None else np.array(True)
    states = [v for v in node.inputs[2:] if v is not None]
    computed = trips is None and node.inputs[0] is not None
    if computed or go is None or None in node.inputs[2:]:
        return None
    if any(any(subgraphs(n)) for n in nodes):
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
    if go is None and turn < most:
        return None
    parts = zip(scanned, body.outputs[1 + len(states) :], strict=True)
    stacked = [_stacked(values, part, b) for values, part in parts]
    return None if None in stacked else [*states, *(v for v in stacked if v is not None)]


def _stacked(values: list[ir.Value], part: ir.Value, b: Builder) -> ir.Value | None:
    """Return a stacked output of a loop: empty without iterations, None if the sizes are
    unknown.
    """
    if values:
        return b.Concat(*values, axis=0) if len(values) > 1 else values[0]
    shape = shape_of(part)
    if shape is None or part.dtype in (None, ir.DataType.STRING):
        return None
    return b.const(np.zeros((0, *shape), part.dtype.numpy()))


def _choice(node: ir.Node, b: Builder) -> list[ir.Value] | None:
    """Move the nodes of the taken branch, with the sub-graphs that they own, before the choice."""
    condition = known(node.inputs[0])
    if condition is None:
        return None
    body = taken_branch(node, bool(condition.all()))
    return inlined(body, b)


def inlined(branch: ir.Graph, b: Builder) -> list[ir.Value]:
    """Move the nodes and constants of a branch to the position of `b`, and return its results."""
    for value in list(branch.initializers.values()):
        del branch.initializers[str(value.name)]
        b.graph.register_initializer(value)
    for inner in list(branch):
        branch.remove(inner)
        b.insert(inner)
    results = list(branch.outputs)
    branch.outputs.clear()
    return results


def copy_body(body: ir.Graph, env: Env, b: Builder) -> list[ir.Value]:
    """Copy the nodes of `body` to the position of `b`, with its inputs replaced according to `env`;
    return the values of its outputs.
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


def unroll_loops(
    wanted: Callable[[ir.Node], bool] = lambda node: True, longest: int = LONGEST
) -> Pass[Context]:
    """Return the pass of a pipeline; see `unroll`."""
    return Pass(
        "unroll-loops",
        "Unroll loops with known iteration counts and branches with known conditions",
        lambda model, _: unroll(model, wanted, longest),
    )
