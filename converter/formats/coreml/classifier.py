"""A classifier of Core ML, neural network or program: the label of the largest probability, and all
probabilities by their labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from converter.graph import SAME_ELEMENTS
from converter.graph.infer import constant, shape_of
from converter.graph.names import public_name
from converter.graph.value import operand, producer_if
from converter.passes.dead_code import remove_dead_code
from converter.record import record

D = ir.DataType


@record
class Classifier:
    """The classes of a classifier. `labels` are in the order of `scores`, the last output of the
    graph; the other fields are the names of both outputs in the file, None for probabilities that
    are not an output.
    """

    labels: list[Any]
    scores: ir.Value
    label: str
    probabilities: str | None


def take_out(said: Mapping[str, Any], model: ir.Model) -> Classifier | None:
    """Remove the classifier of a string output, or the one that a Core ML file declares in `said`,
    from the graph and return it; its outputs are removed too.
    """
    graph, declared = model.graph, said.get("classifier") or {}
    for index, out in enumerate(graph.outputs):
        if out.dtype != D.STRING and public_name(out) != declared.get("label"):
            continue
        found = _of_table(out)
        if found is None:
            continue
        labels, scores = found
        if (shape := shape_of(scores)) is not None and math.prod(shape) != len(labels):
            continue  # several samples
        label, name = public_name(out), None
        del graph.outputs[index]
        same = [o for o in graph.outputs if source_of(o) is source_of(scores)]
        if same:
            name = public_name(same[0])
            graph.outputs.remove(same[0])
        anchor = ir.Value(name="scores", type=scores.type, shape=scores.shape)
        graph.append(ir.Node("", "Identity", [scores], outputs=[anchor]))
        graph.outputs.append(anchor)
        remove_dead_code(model)
        return Classifier(labels, anchor, label, name)
    return None


def source_of(value: ir.Value) -> ir.Value:
    """Return the value before all operators that only change the shape."""
    node = value.producer()
    if node is None or node.op_type not in SAME_ELEMENTS or node.domain or node.inputs[0] is None:
        return value
    return source_of(node.inputs[0])


def _of_table(out: ir.Value) -> tuple[list[Any], ir.Value] | None:
    """Return the labels and scores of the pattern Gather(labels, ArgMax(scores))."""
    lookup = producer_if(source_of(out), "Gather")
    best = None if lookup is None else producer_if(source_of(operand(lookup, 1)), "ArgMax")
    if lookup is None or best is None:
        return None
    names, scores = operand(lookup), operand(best)
    if names.const_value is None or names.dtype not in (D.STRING, D.INT64):
        return None
    array = constant(names)
    array = names.const_value.numpy() if array is None else array
    if array.ndim != 1:
        return None
    text = names.dtype == D.STRING
    words = [v.decode() if isinstance(v, bytes) else v for v in array.tolist()]
    return [str(w) if text else int(w) for w in words], scores
