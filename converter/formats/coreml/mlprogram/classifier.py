"""A classifier's last operation: the label of the largest probability, and all probabilities by
their labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from converter.formats.coreml.classifier import Classifier
from converter.formats.coreml.mlprogram.program import CODES, ProgramWriter, set_word

D = ir.DataType
DOUBLE = 12  # the type of probabilities in a dictionary by label


def names_of(found: Classifier, writer: ProgramWriter) -> tuple[str, ...]:
    """Return the names of label and probabilities in the program."""
    probabilities = found.probabilities or f"{found.label}_probs"
    return tuple(writer.names.fresh(n) for n in (found.label, probabilities))


def write(
    found: Classifier, names: Sequence[str], writer: ProgramWriter, block: Any, description: Any
) -> None:
    """Write the last operation, and the description of its results."""
    text = isinstance(found.labels[0], str)
    code, words = CODES[D.STRING if text else D.INT64], "strings" if text else "longInts"
    scores = _as_float32(found.scores, writer, block)
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


def _as_float32(value: ir.Value, writer: ProgramWriter, block: Any) -> str:
    """Return the probabilities in single precision."""
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
