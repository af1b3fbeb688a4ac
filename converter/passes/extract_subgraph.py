"""Extract the part of a graph between given tensors, which become its inputs and outputs.

before:  a = Conv(x); b = Relu(a); c = Softmax(b); return c
after, keeping b:               a = Conv(x); b = Relu(a); return b
after, keeping b, starting at a:             b = Relu(a); return b    with a as the input
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from converter.graph.names import Names, public_name, set_public_name
from converter.graph.walk import is_needed
from converter.passes.dead_code import remove_dead_code


def extract_subgraph(
    model: ir.Model, outputs: Sequence[str], starts: Sequence[str] = ()
) -> list[str]:
    """Make the named tensors (or the results of the named layers) the outputs, in that order, and
    those of `starts` inputs, after the other inputs.

    Unused inputs are removed. Without `outputs` the outputs are unchanged. Return the names that
    were not found, or that cannot be inputs because their type or shape is unknown or because no
    remaining output depends on them; if there are any of the first two kinds, the model is
    unchanged.
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
    missing += [n for n in starts if n not in values or values[n].type is None]
    if missing:
        return missing
    if outputs:
        graph.outputs.clear()
        graph.outputs.extend(values[n] for n in dict.fromkeys(outputs))
    names = Names(model)
    made = {n: _start(graph, values[n], names) for n in dict.fromkeys(starts)}
    remove_dead_code(model)
    for value in [v for v in graph.inputs if not is_needed(v)]:
        graph.inputs.remove(value)
    return [n for n, value in made.items() if not value.uses()]


def _start(graph: ir.Graph, value: ir.Value, names: Names) -> ir.Value:
    """Create an input that replaces a tensor and takes its name."""
    name = str(value.name)
    value.name = names.fresh(f"{name}_before")
    start = ir.Value(name=name, type=value.type, shape=value.shape)
    value.replace_all_uses_with(start)
    graph.inputs.append(start)
    return start


def rename_boundary(model: ir.Model, names: Mapping[str, str]) -> list[str]:
    """Rename inputs and outputs; return the names that do not exist."""
    values = {public_name(v): v for v in (*model.graph.outputs, *model.graph.inputs)}
    for old, new in names.items():
        if old in values:
            set_public_name(values[old], new)
    return [n for n in names if n not in values]
