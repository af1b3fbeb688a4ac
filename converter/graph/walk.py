"""The one walker over graphs and the sub-graphs of If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.data.values():  # the mapping itself makes every attribute a look-up of its own
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
            yield attribute.as_graph()


def all_graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """`graph`, then its sub-graphs, depth first."""
    yield graph
    for node in graph:
        for inner in subgraphs(node):
            yield from all_graphs(inner)


def all_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """Nodes in execution order; those of a sub-graph come before the node that owns it."""
    for node in graph:
        for inner in subgraphs(node):
            yield from all_nodes(inner)
        yield node


def release(node: ir.Node) -> None:
    """Takes the sub-graphs of a node that is given up apart, so that they no longer count as users of outer values."""
    for body in subgraphs(node):
        for inner in all_nodes(body):
            inner.resize_inputs(0)
