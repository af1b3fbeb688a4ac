"""A classifier's last operation: the label of the largest probability, and all probabilities by
their labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from converter.formats.coreml_declared import said_of
from converter.formats.mlprogram.program import CODES, ProgramWriter, set_word
from converter.graph.infer import constant, shape_of
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.passes.dead_code import remove_dead_code

D = ir.DataType
DOUBLE = 12  # in which programs tell probabilities by labels
_SAME = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten")


@dataclass
class Classifier:
    """`labels` in the order of `scores`; the names of both outputs."""

    labels: list[Any]
    scores: ir.Value
    label: str
    probabilities: str


def take_out(network: Network, model: ir.Model) -> Classifier | None:
    """The classifier that an output of text is, or one that a Core ML file declared; its outputs
    leave the graph.
    """
    graph, said = model.graph, said_of(network, model)[0].get("classifier") or {}
    for index, out in enumerate(graph.outputs):
        if out.dtype != D.STRING and public_name(out) != said.get("label"):
            continue
        found = _of_table(out)
        if found is None:
            continue
        labels, scores = found
        if (shape := shape_of(scores)) is not None and math.prod(shape) != len(labels):
            continue  # several samples
        label, name = public_name(out), f"{public_name(out)}_probs"
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
    """Past operators that move no element."""
    node = value.producer()
    if node is None or node.op_type not in _SAME or node.domain or node.inputs[0] is None:
        return value
    return source_of(node.inputs[0])


def _of_table(out: ir.Value) -> tuple[list[Any], ir.Value] | None:
    """Labels and scores of Gather(labels, ArgMax(scores))."""
    lookup = source_of(out).producer()
    if lookup is None or lookup.op_type != "Gather" or lookup.inputs[1] is None:
        return None
    best = source_of(lookup.inputs[1]).producer()
    names, array = lookup.inputs[0], constant(lookup.inputs[0])
    if names is None or names.const_value is None or best is None or best.op_type != "ArgMax":
        return None
    array = names.const_value.numpy() if array is None else array
    scores = best.inputs[0]
    if array.ndim != 1 or scores is None or names.dtype not in (D.STRING, D.INT64):
        return None
    text = names.dtype == D.STRING
    words = [v.decode() if isinstance(v, bytes) else v for v in array.tolist()]
    return [str(w) if text else int(w) for w in words], scores


def names_of(found: Classifier, writer: ProgramWriter) -> tuple[str, ...]:
    """The names of label and probabilities in the program."""
    return tuple(writer.names.fresh(n) for n in (found.label, found.probabilities))


def write(
    found: Classifier, names: Sequence[str], writer: ProgramWriter, block: Any, description: Any
) -> None:
    """The operation behind all others, and the description of its results."""
    text = isinstance(found.labels[0], str)
    code, words = CODES[D.STRING if text else D.INT64], "strings" if text else "longInts"
    scores = _whole(found.scores, writer, block)
    operation = block.operations.add(type="classify")
    set_word(operation.attributes["name"], found.label)
    operation.inputs["probabilities"].arguments.add().name = scores
    classes = operation.inputs["classes"].arguments.add().value
    classes.type.listType.type.tensorType.dataType = code
    classes.type.listType.length.constant.size = len(found.labels)
    for label in found.labels:
        one = classes.immediateValue.list.values.add()
        one.type.tensorType.dataType = code
        getattr(one.immediateValue.tensor, words).values.append(label)
    label, probabilities = names
    operation.outputs.add(name=label).type.tensorType.dataType = code
    by_label = operation.outputs.add(name=probabilities).type.dictionaryType
    by_label.keyType.tensorType.dataType = code
    by_label.valueType.tensorType.dataType = DOUBLE
    block.outputs.extend([label, probabilities])
    feature = description.output.add(name=label).type
    (feature.stringType if text else feature.int64Type).SetInParent()
    feature = description.output.add(name=probabilities).type.dictionaryType
    (feature.stringKeyType if text else feature.int64KeyType).SetInParent()
    description.predictedFeatureName = label
    description.predictedProbabilitiesName = probabilities


def _whole(value: ir.Value, writer: ProgramWriter, block: Any) -> str:
    """The probabilities in single precision."""
    name = writer.name(value)
    if writer.low.carried(value) == D.FLOAT:
        return name
    cast = block.operations.add(type="cast")
    set_word(cast.attributes["name"], f"{name}_fp32")
    cast.inputs["x"].arguments.add().name = name
    writer.set_parameter(cast.inputs["dtype"].arguments.add().value, "fp32", D.FLOAT)
    out = cast.outputs.add(name=writer.names.fresh(f"{name}_fp32"))
    writer.value_type(out.type, value, D.FLOAT)
    return str(out.name)
