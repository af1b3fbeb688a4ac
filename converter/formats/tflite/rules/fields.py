"""Field kinds of the rows: fused activations, windows, axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite import fields as lite
from converter.formats.tflite.rules.context import LiftContext, LowerContext
from converter.formats.tflite.schema import schema
from converter.graph.open_sizes import sizes_in_file
from converter.graph.value import Value
from converter.mapping.concepts import window
from converter.mapping.concepts.window import Geometry, is_same, spatial
from converter.mapping.fields import Field

INT64 = ir.DataType.INT64
SAME, VALID = schema.Padding.SAME, schema.Padding.VALID
FusedActivation = partial(lite.FusedActivation, "fused_activation_function")


def data(r: LiftContext) -> Value:
    """Return the first input of the operator."""
    return r.input(0)


def largest_below(limit: float, dtype: np.dtype[Any]) -> float:
    """Return the largest number of a floating-point type that is at most `limit`."""
    found = dtype.type(min(limit, float(np.finfo(dtype).max)))
    return float(found if float(found) <= limit else np.nextafter(found, dtype.type(0)))


class Int64Operand(Field):
    """Indices, sizes or repeats at input 1, which are int64 in ONNX."""

    inputs = (1,)

    def lift(self, r: LiftContext) -> None:
        r.node.inputs[1] = r.whole(1)


class OneScale(Field):
    """Quantized values that are only moved, so that their scales have no effect."""

    def lower(self, w: LowerContext) -> None:
        w.one_scale()


# weights -----------------------------------------------------------------------------------------


class Depth(Field):
    """The attribute `group`: the number of channels of the image divided by the depth of the
    filter.
    """

    names = ("group",)

    def lift(self, r: LiftContext) -> None:
        filter_ = r.static(r.input(1), "the filter")
        depth = filter_[-1] if filter_ else 0
        own = r.channels() or (sizes_in_file(r.data) or [None])[-1] or depth
        if not depth or own % depth:
            raise MappingError(f"the filter has depth {depth} for {own} channels", "R105")
        r.set(group=own // depth)

    def lower(self, w: LowerContext) -> None:
        """Check the attribute, which the depth of the filter determines."""


# windows -----------------------------------------------------------------------------------------


SIZES = {"h": "filter_height", "w": "filter_width"}


class Window(window.Window):
    """A window with padding SAME, VALID, or an explicit PAD before; padding never counts in an
    average. `letters` are those of the spatial axes in the names of options.
    """

    counts, schemes = False, ("SAME_UPPER",)

    def __init__(self, letters: str = "hw") -> None:
        self.letters, self.axes = letters, (len(letters),)
        self.strides = [f"stride_{a}" for a in letters]
        self.gaps = [f"dilation_{a}_factor" for a in letters]
        self.sizes = [SIZES.get(a, "") for a in letters]
        self.keys = ("padding", *self.strides, *self.gaps)

    def read(self, r: LiftContext) -> Geometry:
        kernel, scheme = self.size(r), r.attr("padding", int)
        if scheme not in (SAME, VALID):
            raise MappingError(f"padding must be SAME (0) or VALID (1), got {scheme}", "R110")
        strides, dilations = (
            [r.attr(k, int) for k in keys if k in self.keys] for keys in (self.strides, self.gaps)
        )
        return Geometry(
            kernel,
            strides,
            dilations if set(dilations) != {1} else [],
            scheme="SAME_UPPER" if scheme == SAME else "",
        )

    def size(self, r: LiftContext) -> list[int]:
        return self.kernel(r.node)

    def write(self, w: LowerContext, window: Geometry) -> None:
        w.image_rank(len(window.kernel) + 2)
        self.options(w, window)
        sizes, same = spatial(w.node, w.data), bool(window.scheme)
        if any(window.counted):
            w.layer.inputs[0] = explicit_pad(w, window.counted)
            sides = np.reshape(window.counted, (2, -1)).sum(axis=0)
            sizes = [n if n is None else n + int(p) for n, p in zip(sizes, sides, strict=True)]
        if any(window.pads) and not same:
            same = is_same(window, sizes)
        if any(window.pads) and not same:
            self.padded(w, window.pads)
        w.layer.attrs["padding"] = SAME if same else VALID

    def options(self, w: LowerContext, window: Geometry) -> None:
        """Return the strides, and the dilations or window sizes if the operator has them."""
        keys = [*self.strides, *self.gaps, *self.sizes]
        numbers = [*window.strides, *window.dilations, *window.kernel]
        w.layer.attrs |= {k: n for k, n in zip(keys, numbers, strict=True) if k in self.keys}

    def padded(self, t: LowerContext, pads: list[int]) -> None:
        """Replace the image by the result of a PAD."""
        t.layer.inputs[0] = explicit_pad(t, pads)


def explicit_pad(t: LowerContext, pads: list[int], value: float | None = None) -> ir.Value:
    """Pad the image with zeros, or with `value` if it is given."""
    n, shape = len(pads) // 2, t.image(t.data)
    amounts = np.zeros((n + 2, 2), np.int32)
    amounts[1:-1] = np.reshape(pads, (2, n)).T
    sizes = [d if d is None else d + int(sum(a)) for d, a in zip(shape, amounts, strict=True)]
    image = t.real(t.data)
    if value is None:
        return t.emit("PAD", image, amounts, shape=sizes)
    filling = t.like(image, value)
    return t.emit("PADV2", image, amounts, filling, shape=sizes)


def axes_of(r: LiftContext, index: int, rank: int, what: str = "the axes") -> list[int]:
    """Return the axes that a constant input lists, each once, counted from the front."""
    found = r.ints(index, what)
    for axis in found:
        if not -rank <= axis < rank:
            raise MappingError(f"axis {axis} is outside the rank {rank}", "R105")
    return sorted({axis % rank for axis in found})


def one_axis(r: LiftContext, index: int, rank: int) -> int:
    """Return the axis at input `index`, counted from the front."""
    found = r.ints(index, "the axis")
    if len(found) != 1 or not -rank <= found[0] < rank:
        raise MappingError(f"axis {found} is outside the rank {rank}", "R105")
    return found[0] % rank


def axis_of(w: LowerContext, name: str = "axis", index: int = 0, default: int = 0) -> int:
    """Return an attribute that is an axis of an input, counted from the front."""
    axis = int(w.attr(name, default))
    rank = w.rank(index)
    if not -rank <= axis < max(1, rank):
        raise MappingError(f"axis {axis} is outside the rank {rank}")
    return axis % max(1, rank)


def constant_of(r: LiftContext, numbers: Sequence[int], name: str) -> Any:
    """Return a constant of type int64."""
    return r.b.const(np.asarray(numbers, np.int64), name)
