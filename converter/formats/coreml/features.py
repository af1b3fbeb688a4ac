"""Declarations of a Core ML model, of any kind, about its inputs and outputs beyond their types, as
plain data and back: sizes that a caller may choose, image features, defaults of optional inputs.

The graph only knows that a dimension is dynamic. Bounds and choices are kept in the model's
interface, by the name of the input or output.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, Where
from converter.graph.infer import Array
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.graph.value import known_sizes
from converter.record import record

SIZES = "sizes"  # of inputs, in the interface
OPTIONAL = "optional"  # optional inputs without default, in the interface
PICTURES = "pictures"  # outputs that are images
COLORS = {10: "grayscale", 20: "RGB", 30: "BGR", 40: "grayscale16"}
NOTES = "netconv."  # prefix of the keys of notes
REMEMBERED = "netconv.coreml"  # key of the graph's metadata
_MOST = (1 << 63) - 1
TEXTS = ("shortDescription", "versionString", "author", "license")
_DEFAULTS = {
    "intDefaultValue": np.int32,
    "floatDefaultValue": np.float32,
    "doubleDefaultValue": np.float64,
}


def default_value(feature: Any) -> Array | None:
    """Return the default of an optional input."""
    array = feature.type.multiArrayType
    chosen = array.WhichOneof("defaultOptionalValue")
    if not feature.type.isOptional or chosen is None:
        return None
    return np.full([int(d) for d in array.shape], getattr(array, chosen), _DEFAULTS[chosen])


def is_merely_optional(feature: Any) -> bool:
    """Return whether an input is optional without a declared default."""
    return bool(feature.type.isOptional) and default_value(feature) is None


def sizes_of(feature: Any) -> Sizes:
    """Return the sizes of an array or an image."""
    if feature.type.WhichOneof("Type") == "imageType":
        return of_image(feature.type.imageType)
    return of_array(feature.type.multiArrayType)


def picture_of(image: Any) -> dict[str, Any]:
    """Return the declaration of an output that is an image."""
    said: dict[str, Any] = {"colour": COLORS.get(image.colorSpace, "RGB")}
    said["size"] = [int(image.height), int(image.width)]
    sizes = of_image(image)
    return said if sizes.fixed else {**said, SIZES: sizes.as_json()}


def metadata_of(description: Any) -> dict[str, Any]:
    """Return the author's metadata of a model, without this program's own notes."""
    meta = description.metadata
    fields = {k: getattr(meta, k) for k in TEXTS if getattr(meta, k)}
    own = {k: v for k, v in meta.userDefined.items() if not k.startswith(NOTES)}
    return {**fields, "userDefined": own}


def remember(model: ir.Model, interface: dict[str, Any]) -> None:
    """Store the declarations that only Core ML has as metadata of the graph, so that they survive
    formats that keep metadata.
    """
    kept = {
        **interface["coreml"],
        **({"images": interface["images"]} if "images" in interface else {}),
    }
    if any(kept.values()):
        model.metadata_props[REMEMBERED] = json.dumps(kept, sort_keys=True)


@record
class Sizes:
    """The sizes of the last axes: defaults, and the minimum and maximum of each (-1: unlimited) or
    a list of choices.
    """

    default: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...] = ()
    choices: tuple[tuple[int, ...], ...] = ()

    @property
    def fixed(self) -> bool:
        return not self.choices and all(low == high for low, high in self.ranges)

    def dims(self, name: str, axes: Iterable[object]) -> list[int | str]:
        """Return fixed sizes as numbers, others as names."""
        ends = self.ranges or [(min(c), max(c)) for c in zip(*self.choices, strict=True)]
        ends = ends or [(d, d) for d in self.default]
        pairs = zip(ends, axes, strict=False)
        return [low if low == high else f"{name}_{axis}" for (low, high), axis in pairs]

    def __str__(self) -> str:
        if self.choices:
            return " or ".join("x".join(map(str, c)) for c in self.choices)
        return "x".join(
            str(low) if low == high else f"({low} to {high})" if high >= 0 else f"({low} or more)"
            for low, high in self.ranges
        )

    def as_json(self) -> dict[str, Any]:
        """Return the sizes as plain data."""
        kind, values = ("choices", self.choices) if self.choices else ("ranges", self.ranges)
        return {"default": list(self.default), kind: [list(v) for v in values]}

    def includes(self, sizes: Sizes) -> bool:
        """Return whether these sizes are equal for the last axes."""
        count = len(sizes.default)
        return (self.ranges[-count:], tuple(c[-count:] for c in self.choices)) == (
            sizes.ranges,
            sizes.choices,
        )

    def fitted(self, dims: Sequence[int | None]) -> Sizes | None:
        """Return the sizes for a tensor of these dimensions (None: dynamic), for all its axes; None
        when it is fixed, or never had these sizes. A dimension that was fixed when the sizes were
        declared and is dynamic now is open.
        """
        lead = len(dims) - len(self.default)
        own = dims[max(lead, 0) :]
        if lead < 0 or None not in dims:
            return None
        front = tuple(1 if d is None else d for d in dims[:lead])
        if not self.choices:
            ranges = tuple(
                (d, d) if d is not None else (1, -1) if low == high else (low, high)
                for d, (low, high) in zip(own, self.ranges, strict=True)
            )
            default = tuple(n if d is None else d for d, n in zip(own, self.default, strict=True))
            open_ = tuple((1, -1) if d is None else (d, d) for d in dims[:lead])
            return Sizes((*front, *default), (*open_, *ranges))
        kept = [c for c in self.choices if all(d in (None, n) for d, n in zip(own, c, strict=True))]
        sides = zip(own, zip(*kept, strict=True), strict=False)
        opened = any(d is None and len(set(side)) == 1 for d, side in sides)
        if not kept or opened or None in dims[:lead]:
            return None
        default = self.default if self.default in kept else kept[0]
        return Sizes((*front, *default), choices=tuple((*front, *c) for c in kept))


def of_array(array: Any) -> Sizes:
    """Return the sizes that an ArrayFeatureType declares; inconsistent declarations count as
    fixed.
    """
    kind = array.WhichOneof("ShapeFlexibility")
    if kind == "shapeRange":
        return _ranged(array.shape, map(_ends, array.shapeRange.sizeRanges))
    shapes = array.enumeratedShapes.shapes if kind == "enumeratedShapes" else ()
    return _chosen(array.shape, (s.shape for s in shapes))


def _ends(size: Any) -> tuple[int, int]:
    return size.lowerBound, size.upperBound


def of_image(image: Any) -> Sizes:
    """Return the height and width that an ImageFeatureType declares."""
    kind, default = image.WhichOneof("SizeFlexibility"), (image.height, image.width)
    if kind == "imageSizeRange":
        sides = image.imageSizeRange
        return _ranged(default, map(_ends, (sides.heightRange, sides.widthRange)))
    sizes = image.enumeratedSizes.sizes if kind == "enumeratedSizes" else ()
    return _chosen(default, ((s.height, s.width) for s in sizes))


def _ranged(default: Iterable[int], ranges: Iterable[tuple[int, int]]) -> Sizes:
    pairs = tuple((int(low), max(-1, int(high))) for low, high in ranges)
    start = tuple(int(d) for d in default) or tuple(low for low, _ in pairs)
    sound = len(start) == len(pairs) and all(0 <= low <= _MOST for low, _ in pairs)
    return Sizes(start, pairs if sound else ())


def _chosen(default: Iterable[int], choices: Iterable[Iterable[int]]) -> Sizes:
    found = tuple(dict.fromkeys(tuple(int(n) for n in c) for c in choices))
    start = tuple(int(d) for d in default) or (found[0] if found else ())
    if start and start not in found:
        found = (start, *found)
    several = len(found) > 1 and len({len(c) for c in found}) == 1
    return Sizes(start, choices=found if several else ())


def from_json(data: Any) -> Sizes | None:
    """Return the sizes from the form of `as_json`; None for anything else, which another program
    may have written.
    """
    if not isinstance(data, dict):
        return None
    default, ranges, choices = data.get("default"), data.get("ranges"), data.get("choices")
    if not _are_sizes(default):
        return None
    found = Sizes(())
    if isinstance(ranges, list) and all(_are_sizes(r) and len(r) == 2 for r in ranges):
        found = _ranged(default, ranges)
    elif isinstance(choices, list) and all(_are_sizes(c) for c in choices):
        found = _chosen(default, choices)
    return None if found.fixed else found


def _are_sizes(data: Any) -> TypeGuard[list[int]]:
    return isinstance(data, list) and all(type(n) is int and -1 <= n <= _MOST for n in data)


def declare_array(array: Any, sizes: Sizes) -> None:
    """Fill in an array type: its default shape, enumerated shapes and ranges of sizes."""
    array.shape.extend(sizes.default)
    for choice in sizes.choices:
        array.enumeratedShapes.shapes.add().shape.extend(choice)
    for low, high in sizes.ranges:
        array.shapeRange.sizeRanges.add(lowerBound=low, upperBound=high)


def declare_image(image: Any, sizes: Sizes) -> None:
    """Fill in an image type: its default size, enumerated sizes and ranges of sizes."""
    image.height, image.width = sizes.default
    for height, width in sizes.choices:
        image.enumeratedSizes.sizes.add(height=height, width=width)
    if sizes.ranges:
        sides = (image.imageSizeRange.heightRange, image.imageSizeRange.widthRange)
        for field, (low, high) in zip(sides, sizes.ranges, strict=True):
            field.lowerBound, field.upperBound = low, high


def dropped(name: str, sizes: Sizes, now: str) -> Diagnostic:
    """Return the warning that an input has other sizes than the source declares."""
    return less(name, f"{name} may have the sizes {sizes} in the source; {now}")


def less(name: str, text: str) -> Diagnostic:
    """Return the warning if the target declares less about an input or output than the source."""
    return Diagnostic("X207", text, level="warning", where=Where(layer=name))


def undeclared_features(model: Network, title: str) -> list[Diagnostic]:
    """Return warnings about declared sizes and images of a Core ML file that the target format
    cannot declare.
    """
    said = model.interface.get("coreml", {})
    found = []
    for value in model.ir.graph.inputs:
        name = public_name(value)
        sizes = from_json(said.get(SIZES, {}).get(name))
        if sizes is not None and (reason := _lost(sizes, value, title)):
            found.append(dropped(name, sizes, reason))
    for value in model.ir.graph.outputs:
        name = public_name(value)
        if (picture := said.get(PICTURES, {}).get(name)) is not None:
            text = f"{name} is an image ({picture['colour']}) in the source"
            found.append(less(name, f"{text}; {title} declares it as a multi-array"))
    return found


def _lost(sizes: Sizes, value: ir.Value, title: str) -> str:
    """Return how the declaration of an input is less specific than `sizes`; "" if a dynamic
    dimension is equivalent.
    """
    dims = known_sizes(value) or []
    if None not in dims:
        return "in the written file they are " + "x".join(map(str, dims))
    endless = bool(sizes.ranges) and all(
        low == high or (low <= 1 and high < 0) for low, high in sizes.ranges
    )
    return "" if endless else f"{title} cannot declare them"
