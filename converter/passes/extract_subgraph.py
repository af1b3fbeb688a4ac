"""Keeps only what some tensors need: they become the outputs.

before:  a = Conv(x); b = Relu(a); c = Softmax(b); return c        after (keeping b):  a = Conv(x); b = Relu(a); return b
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from converter.graph.names import public_name
from converter.passes.dead_code import remove_dead_code


def extract_subgraph(model: ir.Model, outputs: Sequence[str]) -> list[str]:
    """Makes the named tensors (or the results of the named layers) the outputs, in that order;
    inputs that nothing needs go.

    Returns the names that were not found; the model is unchanged when there are any.
    """
    graph = model.graph
    by_layer = {
        n.metadata_props["netconv.layer"]: n.outputs[0]
        for n in graph
        if "netconv.layer" in n.metadata_props and n.outputs
    }
    values = {
        **by_layer,
        **{str(o.name): o for n in graph for o in n.outputs},
        **{public_name(v): v for v in graph.outputs},
    }
    missing = [n for n in outputs if n not in values]
    if missing:
        return missing
    graph.outputs.clear()
    graph.outputs.extend(values[n] for n in dict.fromkeys(outputs))
    remove_dead_code(model)
    for value in [v for v in graph.inputs if not v.uses() and not v.is_graph_output()]:
        graph.inputs.remove(value)
    return []
