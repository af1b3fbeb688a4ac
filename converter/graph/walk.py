"""The walkers over graphs and the sub-graphs of If, Loop and Scan, and changes that do not scan all
outputs of a graph.
"""

from __future__ import annotations

from collections import UserList
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """Yield the graphs that a node has as attributes: branches, and bodies of loops."""
    for (
        attribute
    ) in node.attributes.data.values():  # the mapping itself performs a lookup per attribute
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
            yield attribute.as_graph()


def all_graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """Yield `graph`, then its sub-graphs, depth first."""
    yield graph
    for node in graph:
        for (
            attribute
        ) in node.attributes.data.values():  # `subgraphs` written out, because many passes use this
            if attribute.type is ir.AttributeType.GRAPH and not attribute.is_ref():
                yield from all_graphs(attribute.as_graph())


def all_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """Yield nodes in execution order; those of a sub-graph come before the node that owns it."""
    for node in graph:
        for inner in subgraphs(node):
            yield from all_nodes(inner)
        yield node


def operators(graph: ir.Graph, op_type: str, domain: str = "") -> list[ir.Node]:
    """Return the nodes of one operator in `graph` and its sub-graphs."""
    return [n for g in all_graphs(graph) for n in g if n.op_type == op_type and n.domain == domain]


def constant_nodes(graph: ir.Graph) -> set[ir.Node]:
    """Return the nodes that only read constants, unless their result is an output."""
    found: set[ir.Node] = set()
    for node in all_nodes(graph):
        inputs = [v for v in node.inputs if v is not None]
        bodies = any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values())
        ends = any(o.is_graph_output() for o in node.outputs)
        if inputs and not bodies and not ends and all(_fixed(v, found) for v in inputs):
            found.add(node)
    return found


def _fixed(value: ir.Value, found: set[ir.Node]) -> bool:
    return value.producer() in found or (
        value.producer() is None and not value.is_graph_input() and value.const_value is not None
    )


def outer_reads(body: ir.Graph) -> list[ir.Value]:
    """Return the outer values that a graph and its sub-graphs read, each once."""
    inside = set(all_graphs(body))
    read = [v for n in all_nodes(body) for v in n.inputs if v is not None]
    read += [v for g in all_graphs(body) for v in g.outputs]
    return list(dict.fromkeys(v for v in read if v.graph not in inside))


def captured(body: ir.Graph) -> list[ir.Value]:
    """Return the outer values other than constants that a graph and its sub-graphs read, each once;
    constants are written where they are read.
    """
    return [v for v in outer_reads(body) if v.const_value is None]


def reads(node: ir.Node) -> list[ir.Value]:
    """Return the values that a node needs: its operands and the outer values that its sub-graphs
    read.
    """
    operands = [v for v in node.inputs if v is not None]
    return [*operands, *(v for g in subgraphs(node) for v in outer_reads(g))]


def is_needed(value: ir.Value) -> bool:
    """Return whether the value has a consumer, or is an output of its graph."""
    return bool(value.uses()) or value.is_graph_output()


def release(node: ir.Node) -> None:
    """Dismantle the sub-graphs of a node that is removed, so that they no longer count as consumers
    of outer values.
    """
    for body in subgraphs(node):
        for inner in all_nodes(body):
            detach(inner)


def take_over(old: ir.Value, new: ir.Value) -> None:
    """Replace `old` by `new`, for its consumers and among the outputs of the graph."""
    replace_outputs(old, new)
    replace_uses([(old, new)])


def replace_outputs(old: ir.Value, new: ir.Value) -> None:
    """Replace a value among the outputs of its graph."""
    graph = old.graph
    if old.is_graph_output() and graph is not None:
        outputs, place = graph.outputs, -1
        for _ in range(outputs.count(old)):
            place = outputs.index(old, place + 1)
            outputs[place] = new


def replace_uses(pairs: Sequence[tuple[ir.Value, ir.Value]]) -> None:
    """Replace the first value of each pair by the second, for all its consumers.

    All inputs of a consumer are replaced at once: replacing n values individually costs n times the
    number of its inputs.
    """
    changes: dict[ir.Node, dict[int, ir.Value | None]] = {}
    for old, new in pairs:
        if old is not new:
            for user, index in old.uses():
                changes.setdefault(user, {})[index] = new
    for user, found in changes.items():
        replace_inputs(user, found)


FEW = 8  # inputs of a node that may be replaced individually with onnx_ir


def replace_inputs(node: ir.Node, changes: Mapping[int, ir.Value | None]) -> None:
    """Replace the inputs of a node at the given indices.

    Many are replaced at once, because onnx_ir's `replace_input_with` and `resize_inputs` rebuild
    the tuple of all inputs for each change.
    """
    if len(node.inputs) <= FEW:
        for index, value in changes.items():
            node.replace_input_with(index, value)
        return
    inputs = list(node.inputs)
    for index, value in changes.items():
        old, inputs[index] = inputs[index], value
        if old is not None:
            old._remove_usage(node, index)
        if value is not None:
            value._add_usage(node, index)
    node._inputs = tuple(inputs)


def set_inputs(node: ir.Node, inputs: Sequence[ir.Value | None]) -> None:
    """Replace all inputs of a node by these."""
    detach(node)
    node._inputs = tuple(inputs)
    for index, value in enumerate(inputs):
        if value is not None:
            value._add_usage(node, index)


def detach(node: ir.Node) -> None:
    """Remove all inputs of a node."""
    replace_inputs(node, dict.fromkeys(range(len(node.inputs))))
    node._inputs = ()


def discard(node: ir.Node) -> None:
    """Remove a node whose results are unused; raise ValueError if they are used."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    if any(o.is_graph_output() for o in node.outputs):
        raise ValueError(f"{node.name} produces an output of the graph")
    if any(o.uses() for o in node.outputs):
        raise ValueError(f"the outputs of {node.name} are used")
    outputs = graph.outputs
    assert isinstance(outputs, UserList)
    aside, outputs.data = (
        outputs.data,
        [],
    )  # `remove` would search thousands of outputs for each of as many nodes
    count = len(node.inputs)
    detach(node)
    try:
        graph.remove(node, safe=True)
    finally:
        outputs.data = aside
    node._inputs = (None,) * count  # as `remove` does: passes may still list it
