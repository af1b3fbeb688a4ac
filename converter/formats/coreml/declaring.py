"""The declaration of a written model: features, kind of model, labels, versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.diagnostics import Diagnostic, Where
from converter.formats.coreml.boundary import REMEMBERED
from converter.formats.coreml.flexible import PICTURES, SIZES, Sizes, declare_array, declare_image, dropped, from_json
from converter.formats.coreml.lowering import shape_list
from converter.formats.coreml.model import MLModel
from converter.graph.infer import constant
from converter.graph.names import public_name, set_public_name
from converter.model import Model
from converter.notes import note
from converter.passes.tidy import tidy
from converter.passes.widen import FLOAT8

Value = ir.Value
T = ir.DataType
FLOAT32, DOUBLE, INT32 = 65568, 65600, 131104
_TYPES = {**dict.fromkeys((T.FLOAT, T.FLOAT16, T.BFLOAT16, *FLOAT8), FLOAT32), T.DOUBLE: DOUBLE}
_EXACT = {T.FLOAT, T.DOUBLE, T.INT32}
_TEXTS = ("shortDescription", "versionString", "author", "license")
_SIZES = {"default": [int], "ranges": [[int]], "choices": [[int]]}
_REMEMBERED = {
    "metadata": {**dict.fromkeys(_TEXTS, str), "userDefined": {str: str}},
    "images": {str: {"colour": str}},
    "classifier": {"label": str},
    SIZES: {str: _SIZES},
    PICTURES: {str: {"colour": str, "size": [int], SIZES: _SIZES}},
}
_COLOURS = {"grayscale": 10, "RGB": 20, "BGR": 30, "grayscale16": 40}


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
    spec: int = 4  # the lowest specificationVersion that has the declarations
    version: int = 5  # the highest one that may be written
    said: dict[str, Any] = field(default_factory=dict)  # what a Core ML file said beside its tensors
    images: dict[str, Any] = field(default_factory=dict)

    def told(self, key: str) -> dict[str, Any]:
        """What a Core ML file said under `key`, by the names of inputs or outputs."""
        found = self.said.get(key)
        return found if isinstance(found, dict) else {}

    def finish(self, name: Callable[[Value], str], spec: int) -> None:
        """Fills in what is known only when blobs have names."""
        self.model.proto.specificationVersion = max(spec, self.spec)
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


def declare(model: Model, clone: ir.Model, written: MLModel, version: int, notes: list[Diagnostic]) -> Boundary:
    """Writes the features; takes the outputs of a classifier out of `clone`."""
    boundary = Boundary(written, version=version)
    remembered = note(clone.metadata_props.get(REMEMBERED, ""), _REMEMBERED) or {}
    boundary.said = model.interface.get("coreml") or remembered
    boundary.images = model.interface.get("images") or remembered.get("images", {})
    boundary.labels = _classifier(boundary.said, clone)
    if boundary.labels is not None:
        boundary.kind = "neuralNetworkClassifier"
    getattr(written.proto, boundary.kind).SetInParent()
    for value in clone.graph.inputs:
        _input(model, value, boundary, notes)
    _demand_one(written.proto.description.input, boundary, notes)
    for index, value in enumerate(clone.graph.outputs[: -1 if boundary.labels is not None else None]):
        feature = written.proto.description.output.add(name=public_name(value))
        if _picture(feature, value, boundary, notes):
            _without_pixels(clone.graph, index)
        else:
            _array(feature.type.multiArrayType, value, None, notes)
    _metadata(boundary.said, written.proto.description.metadata)
    return boundary


def _metadata(said: dict[str, Any], meta: Any) -> None:
    given = said.get("metadata", {})
    for key in _TEXTS:
        if key in given:
            setattr(meta, key, given[key])
    for key, value in given.get("userDefined", {}).items():
        meta.userDefined[key] = value


def _input(model: Model, value: Value, boundary: Boundary, notes: list[Diagnostic]) -> None:
    name = public_name(value)
    feature = boundary.model.proto.description.input.add(name=name)
    sizes = from_json(boundary.told(SIZES).get(name))
    if name in boundary.images and _image(feature.type, value, sizes, boundary, notes):
        return
    array = feature.type.multiArrayType
    _array(array, value, sizes, notes)
    default = model.interface.get("defaults", {}).get(name)
    if default is not None and default.size and (default == default.flat[0]).all():
        feature.type.isOptional = True
        number = default.flat[0]
        if default.dtype.kind in "iu":
            array.intDefaultValue = int(number)
        elif default.dtype == np.float64:
            array.doubleDefaultValue = float(number)
        else:
            array.floatDefaultValue = float(number)


def _demand_one(inputs: Any, boundary: Boundary, notes: list[Diagnostic]) -> None:
    """One input at least has to be given: where all have values of their own, the first one loses its."""
    if inputs and all(feature.type.isOptional for feature in inputs):
        first = inputs[0]
        first.type.isOptional = False
        first.type.multiArrayType.ClearField(first.type.multiArrayType.WhichOneof("defaultOptionalValue"))
        notes.append(_dropped(first.name, f"{first.name} must be given: Core ML wants one input at least without a value of its own"))
    if any(feature.type.isOptional for feature in inputs):
        boundary.spec = max(boundary.spec, 5)


def _dropped(name: str, text: str) -> Diagnostic:
    return Diagnostic("X207", text, level="warning", where=Where(layer=name))


def _image(kind: Any, value: Value, sizes: Sizes | None, boundary: Boundary, notes: list[Diagnostic]) -> bool:
    """Declares an input that is an image in the source; False, and a warning, where its shape is none of an image, or open without bounds."""
    name, shape = public_name(value), shape_list(value) or []
    said = boundary.images[name]
    colour = _colour(said, shape[-3:-2], boundary)
    left = sizes.fitted(shape[-2:]) if sizes is not None else None
    if len(shape) not in (4, 5) or not set(shape[:-3]) <= {1} or colour is None or (None in shape[-2:] and left is None):
        notes.append(_dropped(name, f"{name} is an image in the source, but not one that can be declared here: it is written as numbers"))
        return False
    kind.imageType.colorSpace = colour
    boundary.image_mapping = 1 if len(shape) == 4 else 0
    fixed = Sizes(tuple(int(d or 1) for d in shape[-2:]))
    declare_image(kind.imageType, left or fixed)
    _tell(name, sizes, left, fixed, notes)
    return True


def _colour(said: Any, channels: list[int | None], boundary: Boundary) -> int | None:
    """The number of the colour space of a picture with so many channels; None when there is none."""
    named = said.get("colour") if isinstance(said, dict) else None
    if channels == [1] and named == "grayscale16":
        boundary.spec = max(boundary.spec, 7)
        return _COLOURS[named] if boundary.version >= 7 else None
    return _COLOURS["grayscale"] if channels == [1] else _COLOURS.get(str(named), _COLOURS["RGB"]) if channels == [3] else None


def _tell(name: str, sizes: Sizes | None, left: Sizes | None, fixed: Sizes, notes: list[Diagnostic]) -> None:
    """Warns where less is left of the sizes that the source declares."""
    if sizes is not None and (left is None or not left.includes(sizes)):
        notes.append(dropped(name, sizes, f"they are {left or 'x'.join(map(str, fixed.default))}"))


def _picture(feature: Any, value: Value, boundary: Boundary, notes: list[Diagnostic]) -> bool:
    """Declares an output that is an image in the source as one again."""
    said = boundary.told(PICTURES).get(feature.name)
    if not isinstance(said, dict):
        return False
    shape = shape_list(value) or []
    size = [d if isinstance(d, int) else n for d, n in zip(shape[-2:], said.get("size", []), strict=False)]
    colour = _colour(said, [3 if d is None and said.get("colour") in ("RGB", "BGR") else d or 1 for d in shape[-3:-2]], boundary)
    if colour is None or len(size) != 2 or not all(type(n) is int and n > 0 for n in size):
        notes.append(_dropped(feature.name, f"{feature.name} is an image in the source, but not one that can be declared here: it is written as numbers"))
        return False
    sizes = from_json(said.get(SIZES))
    feature.type.imageType.colorSpace = colour
    declare_image(feature.type.imageType, (sizes.fitted(shape[-2:]) if sizes is not None else None) or Sizes(tuple(size)))
    return True


def _without_pixels(graph: ir.Graph, index: int) -> None:
    """An image rounds and limits its numbers by itself, so the operators that say so stay away."""
    value = graph.outputs[index]
    clip = value.producer()
    limits = [constant(v) for v in clip.inputs[1:]] if clip is not None and clip.op_type == "Clip" else []
    inner = clip.inputs[0].producer() if clip is not None and clip.inputs and clip.inputs[0] is not None else None
    if [None if n is None else float(n) for n in limits] != [0.0, 255.0] or inner is None or inner.op_type != "Round" or list(value.uses()):
        return
    source = inner.inputs[0]
    assert source is not None
    anchor = Value(name=value.name, type=value.type, shape=value.shape)
    set_public_name(anchor, public_name(value))
    graph.append(ir.Node("", "Identity", [source], outputs=[anchor]))
    graph.outputs[index] = anchor


def _array(array: Any, value: Value, sizes: Sizes | None, notes: list[Diagnostic]) -> None:
    """Declared type and shape; dimensions that are not static have the bounds that the source gives, else they are ranges from 1 on."""
    name, dtype = public_name(value), value.dtype or T.FLOAT
    array.dataType = _TYPES.get(dtype, INT32)
    if dtype not in _EXACT:
        written = "INT32" if array.dataType == INT32 else "FLOAT32"
        text = f"{name} is {dtype.name}, written as {written}; Core ML computes in float32"
        notes.append(Diagnostic("X205", text, level="warning", where=Where(layer=name)))
    if value.shape is None:
        return
    shape = shape_list(value) or [1]
    if None not in shape or not value.is_graph_input():
        array.shape.extend(d for d in shape if d is not None and None not in shape)
        _tell(name, sizes, None, Sizes(tuple(d or 1 for d in shape)), notes)
        return
    left = sizes.fitted(shape) if sizes is not None else None
    open_ = Sizes(tuple(d or 1 for d in shape), tuple((1, -1) if d is None else (d, d) for d in shape))
    declare_array(array, left or open_)
    _tell(name, sizes, left, open_, notes)


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
