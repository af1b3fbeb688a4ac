"""The declaration of a written model: features, kind of model, labels, versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.diagnostics import Diagnostic, Where
from converter.formats.coreml.boundary import REMEMBERED
from converter.formats.coreml.model import MLModel
from converter.graph.infer import constant
from converter.graph.names import public_name
from converter.model import Model
from converter.passes.tidy import tidy
from converter.passes.widen import FLOAT8

Value = ir.Value
T = ir.DataType
FLOAT32, DOUBLE, INT32 = 65568, 65600, 131104
_TYPES = {**dict.fromkeys((T.FLOAT, T.FLOAT16, T.BFLOAT16, *FLOAT8), FLOAT32), T.DOUBLE: DOUBLE}
_EXACT = {T.FLOAT, T.DOUBLE, T.INT32}
_COLOURS = {"grayscale": 10, "RGB": 20, "BGR": 30}


@dataclass
class Labels:
    """A classifier: the table, the scores it looks at (the last of the graph's outputs), and the names of the two outputs."""

    labels: list[Any]
    scores: Value
    label: str
    probabilities: str | None


@dataclass
class Boundary:
    """What is decided about a model before its layers are written."""

    model: MLModel
    kind: str = "neuralNetwork"
    image_mapping: int = 1
    labels: Labels | None = None
    defaults: bool = False
    said: dict[str, Any] = field(default_factory=dict)  # what a Core ML file said beside its tensors
    images: dict[str, Any] = field(default_factory=dict)

    def finish(self, name: Callable[[Value], str], spec: int) -> None:
        """Fills in what is known only when blobs have names."""
        self.model.proto.specificationVersion = max(spec, 5 if self.defaults else 4)
        if self.labels is None:
            return
        network = self.model.proto.neuralNetworkClassifier
        table = network.stringClassLabels if isinstance(self.labels.labels[0], str) else network.int64ClassLabels
        table.vector.extend(self.labels.labels)
        scores = name(self.labels.scores)
        network.labelProbabilityLayerName = scores
        description = self.model.proto.description
        feature = description.output.add(name=self.labels.probabilities or f"{scores}_by_label")
        _dictionary(feature, self.labels)
        label = description.output.add(name=self.labels.label)
        (label.type.stringType if isinstance(self.labels.labels[0], str) else label.type.int64Type).SetInParent()
        description.predictedFeatureName, description.predictedProbabilitiesName = label.name, feature.name


def _dictionary(feature: Any, labels: Labels) -> None:
    kind = feature.type.dictionaryType
    (kind.stringKeyType if isinstance(labels.labels[0], str) else kind.int64KeyType).SetInParent()


def declare(model: Model, clone: ir.Model, written: MLModel, notes: list[Diagnostic]) -> Boundary:
    """Writes the features; takes the outputs of a classifier out of `clone`."""
    boundary = Boundary(written)
    remembered = json.loads(clone.metadata_props.get(REMEMBERED, "{}"))
    boundary.said = model.interface.get("coreml") or remembered
    boundary.images = model.interface.get("images") or remembered.get("images", {})
    boundary.labels = _classifier(boundary.said, clone)
    if boundary.labels is not None:
        boundary.kind = "neuralNetworkClassifier"
    getattr(written.proto, boundary.kind).SetInParent()
    for value in clone.graph.inputs:
        _input(model, value, boundary, notes)
    for value in clone.graph.outputs[: -1 if boundary.labels is not None else None]:
        feature = written.proto.description.output.add(name=public_name(value))
        _array(feature.type.multiArrayType, value, notes)
    _metadata(boundary.said, written.proto.description.metadata)
    return boundary


def _metadata(said: dict[str, Any], meta: Any) -> None:
    given = said.get("metadata", {})
    for key in ("shortDescription", "versionString", "author", "license"):
        if key in given:
            setattr(meta, key, given[key])
    for key, value in given.get("userDefined", {}).items():
        meta.userDefined[key] = value


def _input(model: Model, value: Value, boundary: Boundary, notes: list[Diagnostic]) -> None:
    name = public_name(value)
    feature = boundary.model.proto.description.input.add(name=name)
    image = boundary.images.get(name)
    shape = list(value.shape) if value.shape is not None else []
    if image is not None and len(shape) in (4, 5) and all(isinstance(d, int) for d in shape) and set(shape[:-3]) <= {1}:
        feature.type.imageType.height, feature.type.imageType.width = (d for d in shape[-2:] if isinstance(d, int))
        colour = image.get("colour", "RGB") if isinstance(image, dict) else "RGB"
        feature.type.imageType.colorSpace = 10 if shape[-3] == 1 else _COLOURS.get(colour, 20)
        boundary.image_mapping = 1 if len(shape) == 4 else 0
        return
    array = feature.type.multiArrayType
    _array(array, value, notes)
    default = model.interface.get("defaults", {}).get(name)
    if default is not None and default.size and (default == default.flat[0]).all():
        feature.type.isOptional, boundary.defaults = True, True
        number = default.flat[0]
        if default.dtype.kind in "iu":
            array.intDefaultValue = int(number)
        elif default.dtype == np.float64:
            array.doubleDefaultValue = float(number)
        else:
            array.floatDefaultValue = float(number)


def _array(array: Any, value: Value, notes: list[Diagnostic]) -> None:
    """Declared type and shape; dimensions that are not static are ranges from 1 on."""
    dtype = value.dtype or T.FLOAT
    array.dataType = _TYPES.get(dtype, INT32)
    if dtype not in _EXACT:
        written = "INT32" if array.dataType == INT32 else "FLOAT32"
        text = f"{public_name(value)} is {dtype.name}, written as {written}; Core ML computes in float32"
        notes.append(Diagnostic("X205", text, level="warning", where=Where(layer=public_name(value))))
    if value.shape is None:
        return
    dims = list(value.shape) or [1]
    static = [d if isinstance(d, int) else None for d in dims]
    if value.is_graph_input() or None not in static:
        array.shape.extend(d if d is not None else 1 for d in static)
    if None in static and value.is_graph_input():
        for d in static:
            array.shapeRange.sizeRanges.add(lowerBound=d if d is not None else 1, upperBound=d if d is not None else -1)


def _classifier(said: dict[str, Any], clone: ir.Model) -> Labels | None:
    """Recognises Gather(label table, ArgMax(scores)) at an output of texts, or at the one that a Core ML file declared."""
    declared = said.get("classifier") or {}
    graph = clone.graph
    for index, out in enumerate(graph.outputs):
        if out.dtype != T.STRING and public_name(out) != declared.get("label"):
            continue
        found = _label_table(out)
        if found is None:
            continue
        labels, scores = found
        probabilities = next((o for o in graph.outputs if o is scores), None)
        name = public_name(probabilities) if probabilities is not None else None
        label = public_name(out)
        del graph.outputs[index]
        if probabilities is not None:
            graph.outputs.remove(probabilities)
        anchor = Value(name="scores", type=scores.type, shape=scores.shape)
        made = ir.Node("", "Identity", [scores], outputs=[anchor])
        graph.append(made)
        graph.outputs.append(anchor)
        tidy(clone)
        return Labels(labels, anchor, label, name)
    return None


def _label_table(out: Value) -> tuple[list[Any], Value] | None:
    node = _through(out.producer())
    if node is None or node.op_type != "Gather" or node.inputs[0] is None or node.inputs[1] is None:
        return None
    index = _through(node.inputs[1].producer())
    table = node.inputs[0].const_value
    if index is None or index.op_type != "ArgMax" or table is None or table.dtype not in (T.STRING, T.INT64) or index.inputs[0] is None:
        return None
    array = constant(node.inputs[0])
    if array is None or array.ndim != 1:
        return None
    labels = [v.decode() if isinstance(v, bytes) else str(v) if table.dtype == T.STRING else int(v) for v in array.tolist()]
    return labels, index.inputs[0]


def _through(node: ir.Node | None) -> ir.Node | None:
    """Past Identity, Reshape and the like, which do not move the one element."""
    while node is not None and node.op_type in ("Identity", "Reshape", "Squeeze", "Unsqueeze") and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node
