"""The declaration of a written model: features, kind of model, labels, versions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, Where
from converter.formats.coreml.collector import shape_list
from converter.formats.coreml.model import MLModel
from converter.formats.coreml.rules.fields import maker
from converter.formats.coreml_features import (
    COLOURS,
    PICTURES,
    REMEMBERED,
    SIZES,
    Sizes,
    declare_array,
    declare_image,
    dropped,
    from_json,
    less,
)
from converter.graph.infer import constant, shape_of
from converter.graph.names import public_name, set_public_name
from converter.graph.network import Network
from converter.io.strict_json import note
from converter.passes.dead_code import remove_dead_code
from converter.passes.labels import take_out_labels
from converter.passes.promote_types import FLOAT8

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
_COLOURS = {name: number for number, name in COLOURS.items()}


@dataclass
class Labels:
    """A classifier: the table, the scores it looks at (the last of the graph's outputs), and the
    names of the two outputs.
    """

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
    said: dict[str, Any] = field(
        default_factory=dict
    )  # what a Core ML file said beside its tensors
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
        network, description = (
            self.model.proto.neuralNetworkClassifier,
            self.model.proto.description,
        )
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
    """Writes the features; takes the outputs of a classifier out of `clone`."""
    boundary = Boundary(written, version=version)
    remembered = note(clone.metadata_props.get(REMEMBERED, ""), _REMEMBERED) or {}
    boundary.said = model.interface.get("coreml") or remembered
    boundary.images = model.interface.get("images") or remembered.get("images", {})
    boundary.labels = _classifier(boundary.said, clone)
    notes.extend(take_out_labels(clone))
    if boundary.labels is not None:
        boundary.kind = "neuralNetworkClassifier"
    getattr(written.proto, boundary.kind).SetInParent()
    for value in clone.graph.inputs:
        _input(model, value, boundary, notes)
    _demand_one(written.proto.description.input, boundary, notes)
    for index, value in enumerate(clone.graph.outputs[: None if boundary.labels is None else -1]):
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


def _input(model: Network, value: Value, boundary: Boundary, notes: list[Diagnostic]) -> None:
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
        kind = default.dtype
        key = "int" if kind.kind in "iu" else "double" if kind == np.float64 else "float"
        setattr(array, f"{key}DefaultValue", default.flat[0].item())


def _demand_one(inputs: Any, boundary: Boundary, notes: list[Diagnostic]) -> None:
    """One input at least has to be given: where all have values of their own, the first one loses
    its.
    """
    if inputs and all(feature.type.isOptional for feature in inputs):
        first, array = inputs[0], inputs[0].type.multiArrayType
        first.type.isOptional = False
        array.ClearField(array.WhichOneof("defaultOptionalValue"))
        text = "Core ML wants one input at least without a value of its own"
        notes.append(less(first.name, f"{first.name} must be given: {text}"))
    if any(feature.type.isOptional for feature in inputs):
        boundary.spec = max(boundary.spec, 5)


def _no_image(name: str) -> Diagnostic:
    text = "is an image in the source, but not one that can be declared here"
    return less(name, f"{name} {text}: it is written as numbers")


def _image(
    kind: Any, value: Value, sizes: Sizes | None, boundary: Boundary, notes: list[Diagnostic]
) -> bool:
    """Declares an input that is an image in the source; False, and a warning, where its shape is
    none of an image, or open without bounds.
    """
    name, shape = public_name(value), shape_list(value) or []
    said = boundary.images[name]
    colour = _colour(said, shape[-3:-2], boundary)
    left = sizes.fitted(shape[-2:]) if sizes is not None else None
    known = colour is not None and (None not in shape[-2:] or left is not None)
    if len(shape) not in (4, 5) or not set(shape[:-3]) <= {1} or not known:
        notes.append(_no_image(name))
        return False
    kind.imageType.colorSpace = colour
    boundary.image_mapping = 1 if len(shape) == 4 else 0
    fixed = Sizes(tuple(int(d or 1) for d in shape[-2:]))
    declare_image(kind.imageType, left or fixed)
    _tell(name, sizes, left, fixed, notes)
    return True


def _colour(said: Any, channels: list[int | None], boundary: Boundary) -> int | None:
    """The number of the colour space of a picture with so many channels; None when there is
    none.
    """
    named = said.get("colour") if isinstance(said, dict) else None
    if channels == [1] and named == "grayscale16":
        boundary.spec = max(boundary.spec, 7)
        return _COLOURS[named] if boundary.version >= 7 else None
    if channels == [1]:
        return _COLOURS["grayscale"]
    return _COLOURS.get(str(named), _COLOURS["RGB"]) if channels == [3] else None


def _tell(
    name: str, sizes: Sizes | None, left: Sizes | None, fixed: Sizes, notes: list[Diagnostic]
) -> None:
    """Warns where less is left of the sizes that the source declares."""
    if sizes is not None and (left is None or not left.includes(sizes)):
        notes.append(dropped(name, sizes, f"they are {left or 'x'.join(map(str, fixed.default))}"))


def _picture(feature: Any, value: Value, boundary: Boundary, notes: list[Diagnostic]) -> bool:
    """Declares an output that is an image in the source as one again."""
    said = boundary.told(PICTURES).get(feature.name)
    if not isinstance(said, dict):
        return False
    shape = shape_list(value) or []
    given = said.get("size", [])
    size = [n if d is None else d for d, n in zip(shape[-2:], given, strict=False)]
    coloured = said.get("colour") in ("RGB", "BGR")
    channels = [3 if d is None and coloured else d or 1 for d in shape[-3:-2]]
    colour = _colour(said, channels, boundary)
    if colour is None or len(size) != 2 or not all(type(n) is int and n > 0 for n in size):
        notes.append(_no_image(feature.name))
        return False
    sizes = from_json(said.get(SIZES))
    left = sizes.fitted(shape[-2:]) if sizes is not None else None
    feature.type.imageType.colorSpace = colour
    declare_image(feature.type.imageType, left or Sizes(tuple(size)))
    return True


def _without_pixels(graph: ir.Graph, index: int) -> None:
    """An image rounds and limits its numbers by itself, so the operators that say so stay away."""
    value = graph.outputs[index]
    clip = maker(value, "Clip")
    limits = [] if clip is None else [constant(v) for v in clip.inputs[1:]]
    inner = None if clip is None else maker(clip.inputs[0], "Round")
    known = [None if n is None else float(n) for n in limits] == [0.0, 255.0]
    if inner is None or not known or value.uses():
        return
    source = inner.inputs[0]
    assert source is not None
    anchor = Value(name=value.name, type=value.type, shape=value.shape)
    set_public_name(anchor, public_name(value))
    graph.append(ir.Node("", "Identity", [source], outputs=[anchor]))
    graph.outputs[index] = anchor


def _array(array: Any, value: Value, sizes: Sizes | None, notes: list[Diagnostic]) -> None:
    """Declared type and shape; dimensions that are not static have the bounds that the source
    gives, else they are ranges from 1 on.
    """
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
    ends = tuple((1, -1) if d is None else (d, d) for d in shape)
    open_ = Sizes(tuple(d or 1 for d in shape), ends)
    declare_array(array, left or open_)
    _tell(name, sizes, left, open_, notes)


def _classifier(said: dict[str, Any], clone: ir.Model) -> Labels | None:
    """Recognises Gather(label table, ArgMax(scores)) at an output of texts, or at the one that a
    Core ML file declared.
    """
    declared = said.get("classifier") or {}
    graph = clone.graph
    for index, out in enumerate(graph.outputs):
        if out.dtype != T.STRING and public_name(out) != declared.get("label"):
            continue
        found = _label_table(out)
        if found is None:
            continue
        labels, scores = found
        if (shape := shape_of(scores)) is not None and math.prod(shape) != len(labels):
            continue  # several samples
        probabilities = next((o for o in graph.outputs if o is scores), None)
        label, name = public_name(out), None
        del graph.outputs[index]
        if probabilities is not None:
            name = public_name(probabilities)
            graph.outputs.remove(probabilities)
        anchor = Value(name="scores", type=scores.type, shape=scores.shape)
        graph.append(ir.Node("", "Identity", [scores], outputs=[anchor]))
        graph.outputs.append(anchor)
        remove_dead_code(clone)
        return Labels(labels, anchor, label, name)
    return None


def _label_table(out: Value) -> tuple[list[Any], Value] | None:
    lookup = maker(_through(out), "Gather")
    if lookup is None:
        return None
    names, index = lookup.inputs[:2]
    best, array = maker(_through(index), "ArgMax"), constant(names)
    if best is None or names is None or names.dtype not in (T.STRING, T.INT64):
        return None
    scores = best.inputs[0]
    if array is None or array.ndim != 1 or scores is None:
        return None
    labels = [
        v.decode() if isinstance(v, bytes) else str(v) if names.dtype == T.STRING else int(v)
        for v in array.tolist()
    ]
    return labels, scores


def _through(value: Value | None) -> Value | None:
    """Past Identity, Reshape and the like, which do not move the one element."""
    for name in ("Identity", "Reshape", "Squeeze", "Unsqueeze"):
        if (node := maker(value, name)) is not None:
            return _through(node.inputs[0])
    return value
