"""Declarations of a Core ML file about its inputs and outputs beyond their types, as they are
written to models of any kind: sizes that a caller may choose, image features, metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import onnx_ir as ir

from converter.errors import Diagnostic
from converter.formats.coreml.features import (
    COLORS,
    OPTIONAL,
    PICTURES,
    REMEMBERED,
    SIZES,
    TEXTS,
    Sizes,
    declare_array,
    declare_image,
    dropped,
    from_json,
    less,
)
from converter.graph.infer import Array
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.graph.value import known_sizes
from converter.io.strict_json import note
from converter.record import record

DOUBLE, INT32 = 65600, 131104  # types of arrays in a description
GRAYSCALE16 = "grayscale16"
GRAYSCALE16_SINCE = 7  # the specification version
_SIZES = {"default": [int], "ranges": [[int]], "choices": [[int]]}
_REMEMBERED = {
    "metadata": {**dict.fromkeys(TEXTS, str), "userDefined": {str: str}},
    "images": {str: {"colour": str}},
    "classifier": {"label": str},
    SIZES: {str: _SIZES},
    OPTIONAL: [str],
    PICTURES: {str: {"colour": str, "size": [int], SIZES: _SIZES}},
}
_COLORS = {name: number for number, name in COLORS.items()}


def declared_features(network: Network, model: ir.Model) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the declarations of a Core ML file about its inputs, outputs and images: of the file
    that was read, or as kept in the metadata by another format.
    """
    kept = note(model.metadata_props.get(REMEMBERED, ""), _REMEMBERED) or {}
    said = network.interface.get("coreml") or kept
    return said, network.interface.get("images") or kept.get("images", {})


def has_halves(network: Network, model: ir.Model) -> bool:
    """Return whether an image has pixels in half precision."""
    said, images = declared_features(network, model)
    found = [images, said.get(PICTURES)]
    declared = [v for kind in found if isinstance(kind, dict) for v in kind.values()]
    return any(isinstance(v, dict) and v.get("colour") == GRAYSCALE16 for v in declared)


@record
class Declared:
    """The declarations of inputs and outputs. `said` and `images` are those that `said_of` returns;
    `spec` is the lowest specificationVersion that supports them, `version` the highest one that may
    be written.
    """

    said: dict[str, Any] = field(default_factory=dict)
    images: dict[str, Any] = field(default_factory=dict)
    notes: list[Diagnostic] = field(default_factory=list)
    spec: int = 4
    version: int = 5

    def declared(self, key: str) -> dict[str, Any]:
        """Return the declarations under `key`, by the names of inputs or outputs."""
        found = self.said.get(key)
        return found if isinstance(found, dict) else {}

    def metadata(self, meta: Any) -> None:
        """Return the author's metadata of the model."""
        given = self.said.get("metadata", {})
        for key in TEXTS:
            if key in given:
                setattr(meta, key, given[key])
        for key, value in given.get("userDefined", {}).items():
            meta.userDefined[key] = value

    def shape(self, array: Any, value: ir.Value) -> None:
        """The shape of an array; dimensions that are not static have the bounds that the source
        gives, else they are ranges from 1 on.
        """
        name, shape = public_name(value), known_sizes(value)
        if shape is None:
            return
        shape, sizes = shape or [1], self._sizes_of(value)
        if None not in shape or not value.is_graph_input():
            array.shape.extend(d for d in shape if d is not None and None not in shape)
            self._warn_narrower(name, sizes, None, Sizes(tuple(d or 1 for d in shape)))
            return
        left = sizes.fitted(shape) if sizes is not None else None
        ends = tuple((1, -1) if d is None else (d, d) for d in shape)
        open_ = Sizes(tuple(d or 1 for d in shape), ends)
        declare_array(array, left or open_)
        self._warn_narrower(name, sizes, left, open_)

    def _sizes_of(self, value: ir.Value) -> Sizes | None:
        own = value.is_graph_input()
        return from_json(self.declared(SIZES).get(public_name(value))) if own else None

    def image(self, kind: Any, value: ir.Value, ranks: Sequence[int]) -> bool:
        """Declare an input that is an image in the source, of one of these ranks; return False if
        it is not. Warn if its shape cannot be that of an image, or is dynamic without bounds.
        """
        name, shape = public_name(value), known_sizes(value) or []
        if name not in self.images:
            return False
        sizes = self._sizes_of(value)
        color = self._color(self.images[name], shape[-3:-2])
        left = sizes.fitted(shape[-2:]) if sizes is not None else None
        known = color is not None and (None not in shape[-2:] or left is not None)
        if len(shape) not in ranks or not set(shape[:-3]) <= {1} or not known:
            self.notes.append(_no_image(name))
            return False
        fixed = Sizes(tuple(int(d or 1) for d in shape[-2:]))
        kind.imageType.colorSpace = color
        declare_image(kind.imageType, left or fixed)
        self._warn_narrower(name, sizes, left, fixed)
        return True

    def picture(self, feature: Any, value: ir.Value, fixed: bool = False) -> bool:
        """Declare an output that is an image in the source as one again; `fixed`: only one whose
        sizes are known. One of three axes needs another one.
        """
        said = self.declared(PICTURES).get(public_name(value))
        if not isinstance(said, dict):
            return False
        shape = known_sizes(value) or []
        given = said.get("size", [])
        size = [n if d is None else d for d, n in zip(shape[-2:], given, strict=False)]
        colored = said.get("colour") in ("RGB", "BGR")
        channels = [3 if d is None and colored else d or 1 for d in shape[-3:-2]]
        color = self._color(said, channels)
        sound = len(size) == 2 and all(type(n) is int and n > 0 for n in size)
        if fixed and (None in shape or len(shape) not in (3, 4) or shape[:-3] not in ([], [1])):
            sound = False
        if color is None or not sound:
            self.notes.append(_no_image(public_name(value)))
            return False
        sizes = from_json(said.get(SIZES))
        left = sizes.fitted(shape[-2:]) if sizes is not None else None
        feature.type.imageType.colorSpace = color
        declare_image(feature.type.imageType, left or Sizes(tuple(size)))
        return True

    def _color(self, said: Any, channels: Sequence[int | None]) -> int | None:
        """Return the color space of a picture with this number of channels; None if there
        is none.
        """
        named = said.get("colour") if isinstance(said, dict) else None
        if list(channels) == [1] and named == GRAYSCALE16:
            self.spec = max(self.spec, GRAYSCALE16_SINCE)
            return _COLORS[named] if self.version >= GRAYSCALE16_SINCE else None
        if list(channels) == [1]:
            return _COLORS["grayscale"]
        return _COLORS.get(str(named), _COLORS["RGB"]) if list(channels) == [3] else None

    def _warn_narrower(
        self, name: str, sizes: Sizes | None, left: Sizes | None, fixed: Sizes
    ) -> None:
        """Warn where less is left of the sizes that the source declares."""
        if sizes is not None and (left is None or not left.includes(sizes)):
            now = left or (fixed if fixed.ranges else "x".join(map(str, fixed.default)))
            self.notes.append(dropped(name, sizes, f"in the written file they are {now}"))

    def default(self, feature: Any, default: Array | None) -> None:
        """Return the default of an optional array, if all its numbers are the same; without a
        value, whether the source declares the input as optional.
        """
        if default is None:
            feature.type.isOptional = feature.name in self.said.get(OPTIONAL, [])
            return
        if not default.size or (default != default.flat[0]).any():
            text = "the input has several default values, which Core ML cannot declare"
            self.notes.append(less(feature.name, f"{feature.name} {text}: it must be given"))
            return
        feature.type.isOptional = True
        array = feature.type.multiArrayType
        key = {INT32: "int", DOUBLE: "double"}.get(array.dataType, "float")
        number = int(default.flat[0]) if key == "int" else float(default.flat[0])
        setattr(array, f"{key}DefaultValue", number)

    def demand_one(self, inputs: Any) -> None:
        """Require at least one input: if all are optional, the first one loses its default."""
        if inputs and all(feature.type.isOptional for feature in inputs):
            first, array = inputs[0], inputs[0].type.multiArrayType
            first.type.isOptional = False
            if (chosen := array.WhichOneof("defaultOptionalValue")) is not None:
                array.ClearField(chosen)
            text = "Core ML needs at least one input without a default value"
            self.notes.append(less(first.name, f"{first.name} must be given: {text}"))
        arrays = [feature.type.multiArrayType for feature in inputs if feature.type.isOptional]
        if any(array.WhichOneof("defaultOptionalValue") is not None for array in arrays):
            self.spec = max(self.spec, 5)


def _no_image(name: str) -> Diagnostic:
    text = "is an image in the source, but cannot be declared as one here"
    return less(name, f"{name} {text}: it is written as numbers")
