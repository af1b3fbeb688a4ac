"""Remove nodes whose results are unused, and unused initializers.

before:  y = Relu(x); z = Exp(x); return y        after:  y = Relu(x); return y
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from converter.graph.walk import all_graphs, discard, is_needed, release


def remove_dead_code(model: ir.Model) -> None:
    """Remove nodes whose results are not needed, also in bodies, and unread initializers."""
    for graph in reversed(list(all_graphs(model.graph))):
        for node in reversed(list(graph)):
            if not any(is_needed(o) for o in node.outputs):
                release(node)
                discard(node)
        for value in _unread(graph):
            del graph.initializers[str(value.name)]


def unread_initializers(model: ir.Model) -> set[ir.Value]:
    """Return the initializers of all graphs that have no consumer."""
    return {v for graph in all_graphs(model.graph) for v in _unread(graph)}


def remove_unread_initializers(model: ir.Model, kept: Collection[ir.Value]) -> None:
    """Remove unused initializers, except those in `kept`."""
    for graph in all_graphs(model.graph):
        for value in _unread(graph):
            if value not in kept:
                del graph.initializers[str(value.name)]


def _unread(graph: ir.Graph) -> list[ir.Value]:
    values = graph.initializers.values()
    return [v for v in values if not is_needed(v)]
