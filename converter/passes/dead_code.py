"""Removes nodes whose results nobody uses and initializers that nobody reads.

before:  y = Relu(x); z = Exp(x); return y        after:  y = Relu(x); return y
"""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.walk import all_graphs, discard, release


def remove_dead_code(model: ir.Model) -> None:
    for graph in reversed(list(all_graphs(model.graph))):
        for node in reversed(list(graph)):
            if not any(o.uses() or o.is_graph_output() for o in node.outputs):
                release(node)
                discard(node)
        for name, value in list(graph.initializers.items()):
            if not value.uses() and not value.is_graph_output():
                del graph.initializers[name]
