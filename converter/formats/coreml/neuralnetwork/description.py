"""The declaration of a written model: features, kind of model, labels, versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import onnx_ir as ir

from converter.errors import Diagnostic, Where
from converter.formats.coreml.classifier import Classifier, take_out
from converter.formats.coreml.description import DOUBLE, INT32, Declared, declared_features
from converter.formats.coreml.neuralnetwork.model import MLModel
from converter.graph.infer import constant
from converter.graph.names import public_name, set_public_name
from converter.graph.network import Network
from converter.graph.value import producer_if, type_name
from converter.passes.labels import take_out_labels
from converter.passes.promote_types import FLOAT8
from converter.record import record

Value = ir.Value
T = ir.DataType
FLOAT32 = 65568
_TYPES = {**dict.fromkeys((T.FLOAT, T.FLOAT16, T.BFLOAT16, *FLOAT8), FLOAT32), T.DOUBLE: DOUBLE}
_EXACT = {T.FLOAT, T.DOUBLE, T.INT32}


@record
class Boundary(Declared):
    """The decisions about a model that precede the writing of its layers."""

    model: MLModel = field(default_factory=MLModel)
    kind: str = "neuralNetwork"
    image_mapping: int = 1
    labels: Classifier | None = None

    def finish(self, name: Callable[[Value], str], spec: int) -> None:
        """Add the parts that need the names of blobs."""
        self.model.proto.specificationVersion = max(spec, self.spec)
        if self.labels is None:
            return
        network = self.model.proto.neuralNetworkClassifier
        description = self.model.proto.description
        text = isinstance(self.labels.labels[0], str)
        table = network.stringClassLabels if text else network.int64ClassLabels
        table.vector.extend(self.labels.labels)
        scores = network.labelProbabilityLayerName = name(self.labels.scores)
        feature = description.output.add(name=self.labels.probabilities or f"{scores}_by_label")
        by_label = feature.type.dictionaryType
        (by_label.stringKeyType if text else by_label.int64KeyType).SetInParent()
        label = description.output.add(name=self.labels.label)
        (label.type.stringType if text else label.type.int64Type).SetInParent()
        description.predictedFeatureName = label.name
        description.predictedProbabilitiesName = feature.name


def declare(
    model: Network, clone: ir.Model, written: MLModel, version: int, notes: list[Diagnostic]
) -> Boundary:
    """Write the features; takes the outputs of a classifier out of `clone`."""
    said, images = declared_features(model, clone)
    boundary = Boundary(said, images, notes, version=version, model=written)
    boundary.labels = take_out(boundary.said, clone)
    notes.extend(take_out_labels(clone))
    if boundary.labels is not None:
        boundary.kind = "neuralNetworkClassifier"
    getattr(written.proto, boundary.kind).SetInParent()
    for value in clone.graph.inputs:
        _input(model, value, boundary)
    boundary.demand_one(written.proto.description.input)
    for index, value in enumerate(clone.graph.outputs[: None if boundary.labels is None else -1]):
        feature = written.proto.description.output.add(name=public_name(value))
        if boundary.picture(feature, value):
            _without_pixels(clone.graph, index)
        else:
            _array(feature.type.multiArrayType, value, boundary)
    boundary.metadata(written.proto.description.metadata)
    return boundary


def _input(model: Network, value: Value, boundary: Boundary) -> None:
    name = public_name(value)
    feature = boundary.model.proto.description.input.add(name=name)
    if boundary.image(feature.type, value, ranks=(4, 5)):
        boundary.image_mapping = 1 if len(value.shape or ()) == 4 else 0
    else:
        _array(feature.type.multiArrayType, value, boundary)
    boundary.default(feature, model.interface.get("defaults", {}).get(name))


def _without_pixels(graph: ir.Graph, index: int) -> None:
    """Remove operators that round and limit the numbers of an image, which it does itself."""
    value = graph.outputs[index]
    clip = producer_if(value, "Clip")
    limits = [] if clip is None else [constant(v) for v in clip.inputs[1:]]
    inner = None if clip is None else producer_if(clip.inputs[0], "Round")
    known = [None if n is None else float(n) for n in limits] == [0.0, 255.0]
    if inner is None or not known or value.uses():
        return
    source = inner.inputs[0]
    assert source is not None
    anchor = Value(name=value.name, type=value.type, shape=value.shape)
    set_public_name(anchor, public_name(value))
    graph.append(ir.Node("", "Identity", [source], outputs=[anchor]))
    graph.outputs[index] = anchor


def _array(array: Any, value: Value, boundary: Boundary) -> None:
    """Return the declared type and shape of an array."""
    name, dtype = public_name(value), value.dtype or T.FLOAT
    array.dataType = _TYPES.get(dtype, INT32)
    if dtype not in _EXACT:
        written = "int32" if array.dataType == INT32 else "float32"
        text = (
            f"{name} is {type_name(dtype)}; it is stored as {written} (Core ML computes in float32)"
        )
        boundary.notes.append(Diagnostic("X205", text, level="warning", where=Where(layer=name)))
    boundary.shape(array, value)
