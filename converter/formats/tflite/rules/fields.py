"""Field kinds of the rows: fused activations, windows, axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite import fields as lite
from converter.formats.tflite.rules.context import Reading, Writing, dims_of
from converter.formats.tflite.schema import schema
from converter.graph.record import record
from converter.graph.value import Value
from converter.graph.windows import rounded_up, same_pads
from converter.mapping.fields import Field

INT64 = ir.DataType.INT64
SAME, VALID = schema.Padding.SAME, schema.Padding.VALID
FusedActivation = partial(lite.FusedActivation, "fused_activation_function")


def data(r: Reading) -> Value:
    """The first input of the operator."""
    return r.input(0)


def largest_below(limit: float, dtype: np.dtype[Any]) -> float:
    """The largest number of a floating-point type that is at most `limit`."""
    found = dtype.type(min(limit, float(np.finfo(dtype).max)))
    return float(found if float(found) <= limit else np.nextafter(found, dtype.type(0)))


class Whole(Field):
    """Indices, sizes or repeats at input 1, which have 64 bits in ONNX."""

    inputs = (1,)

    def lift(self, r: Reading) -> None:
        r.node.inputs[1] = r.whole(1)


class OneScale(Field):
    """Stored integers are moved without a look at their scales."""

    def lower(self, w: Writing) -> None:
        w.one_scale()


# weights -----------------------------------------------------------------------------------------


class Depth(Field):
    """`group`: how often the depth of the filter goes into the channels of the image."""

    names = ("group",)

    def lift(self, r: Reading) -> None:
        filter_ = r.static(r.input(1), "the filter")
        depth = filter_[-1] if filter_ else 0
        own = r.channels() or depth
        if not depth or own % depth:
            raise MappingError(f"a filter of depth {depth} for {own} channels", "R105")
        r.set(group=own // depth)

    def lower(self, w: Writing) -> None:
        """The depth of the filter says it."""


# windows -----------------------------------------------------------------------------------------


@record
class Window(Field):
    """Strides, dilations and a scheme of padding <-> those of ONNX.

    `axes` are the letters of the spatial axes in the names of options, `dilated` says whether there
    are dilations. A size that is not known leaves the scheme to ONNX's `auto_pad`.
    """

    axes: str = "hw"
    dilated: bool = True
    sized: bool = False

    def __post_init__(self) -> None:
        self.names = ("strides", "pads", "auto_pad", "kernel_shape", "dilations")
        keys = ["padding", *(f"stride_{a}" for a in self.axes)]
        keys += [f"dilation_{a}_factor" for a in self.axes] if self.dilated else []
        keys += ["filter_height", "filter_width"] if self.sized else []
        self.keys = tuple(keys)

    def kernel(self, r: Reading) -> list[int]:
        if self.sized:
            return [r.attr(k, int) for k in ("filter_height", "filter_width")]
        weights = r.node.inputs[1]
        if weights is None:
            raise MappingError("the filter is absent", "R105")
        return list(r.static(weights, "the filter")[2:])

    def lift(self, r: Reading) -> None:
        a, kernel = r.node.attrs, self.kernel(r)
        if r.rank(data(r)) != len(kernel) + 2:
            raise MappingError(f"an image of {r.rank(data(r))} axes", "R105")
        spatial = dims_of(data(r))[1:-1]
        strides = [r.attr(f"stride_{x}", int) for x in self.axes]
        dilations = [1 for _ in self.axes]
        if self.dilated:
            dilations = [r.attr(f"dilation_{x}_factor", int) for x in self.axes]
        if min(*strides, *dilations, *kernel) < 1:
            raise MappingError("a stride, dilation or size of the window is below 1", "R110")
        a |= {"kernel_shape": kernel, "strides": strides}
        if any(d != 1 for d in dilations):
            a["dilations"] = dilations
        scheme = r.attr("padding", int)
        if scheme == VALID:
            a["pads"] = [0] * (2 * len(kernel))
        elif scheme != SAME:
            raise MappingError(f"padding {scheme} is neither SAME (0) nor VALID (1)", "R110")
        elif None in spatial:
            a["auto_pad"] = "SAME_UPPER"
        else:
            a["pads"] = same_pads(spatial, kernel, strides, dilations)

    def kernel_written(self, w: Writing) -> list[int]:
        found = w.attr("kernel_shape") if self.sized else w.static(1, "the filter")[2:]
        return [int(n) for n in found]

    def lower(self, w: Writing) -> None:
        """Padding that is neither SAME nor VALID is a PAD in front."""
        kernel = self.kernel_written(w)
        if len(kernel) != len(self.axes):
            raise MappingError(f"windows of {len(kernel)} axes, not of {len(self.axes)}")
        w.image_rank(len(kernel) + 2)
        ones = [1] * len(kernel)
        strides, dilations = (
            [int(n) for n in w.attr(k, None) or ones] for k in ("strides", "dilations")
        )
        if not self.dilated and dilations != ones:
            raise MappingError("a pool has no dilation")
        attrs = w.layer.attrs
        attrs |= {f"stride_{a}": n for a, n in zip(self.axes, strides, strict=True)}
        if self.dilated:
            keys = [f"dilation_{a}_factor" for a in self.axes]
            attrs |= dict(zip(keys, dilations, strict=True))
        if self.sized:
            attrs |= {"filter_height": kernel[0], "filter_width": kernel[1]}
        if self.sized:
            w.one_scale()
        windows = Windows(w, kernel, strides, dilations)
        attrs["padding"] = scheme = windows.scheme()
        if scheme is None:
            self.padded(w, windows.pads)
            attrs["padding"] = VALID

    def padded(self, t: Writing, pads: list[int]) -> None:
        """The image is what a PAD makes of it."""
        image = in_front(t, pads)
        t.layer.inputs[0] = image


class Windows:
    """The windows of an operator that is written, and their padding in front of and behind each
    axis.
    """

    def __init__(
        self, w: Writing, kernel: list[int], strides: list[int], dilations: list[int]
    ) -> None:
        self.auto = w.attr("auto_pad", "NOTSET")
        self.sizes, counts = (w.image(v)[1:-1] for v in (w.data, w.out))
        self.window = kernel, strides, dilations
        self.pads = [int(n) for n in w.attr("pads", None) or [0] * (2 * len(kernel))]
        if self.auto in ("SAME_UPPER", "SAME_LOWER") and None not in self.sizes:
            self.pads = same_pads(self.sizes, *self.window, upper=self.auto == "SAME_UPPER")
        elif self.auto == "SAME_LOWER":
            raise MappingError("padding of unknown sizes with the odd one in front", "X203")
        elif self.auto == "VALID":
            self.pads = [0] * (2 * len(kernel))
        if w.attr("ceil_mode", 0):
            self.pads = rounded_up(self.pads, self.sizes, *self.window, counts)

    def scheme(self) -> int | None:
        """SAME, VALID, or None for a padding that is neither."""
        if self.auto == "SAME_UPPER" and None in self.sizes:
            return int(SAME)
        if not any(self.pads):
            return int(VALID)
        if None in self.sizes:
            return None
        return int(SAME) if same_pads(self.sizes, *self.window) == self.pads else None


def in_front(t: Writing, pads: list[int], value: float | None = None) -> ir.Value:
    """The image with padding: zeros, or `value` where it is given."""
    if min(pads) < 0:
        raise MappingError(f"the padding {pads} is negative")
    n, shape = len(pads) // 2, t.image(t.data)
    amounts = np.zeros((n + 2, 2), np.int32)
    amounts[1:-1] = np.reshape(pads, (2, n)).T
    sizes = [d if d is None else d + int(sum(a)) for d, a in zip(shape, amounts, strict=True)]
    image = t.real(t.data)
    if value is None:
        return t.emit("PAD", image, amounts, shape=sizes)
    filling = t.like(image, value)
    return t.emit("PADV2", image, amounts, filling, shape=sizes)


def axes_of(r: Reading, index: int, rank: int, what: str = "the axes") -> list[int]:
    """The axes that a constant input lists, each once, counted from the front."""
    found = r.ints(index, what)
    for axis in found:
        if not -rank <= axis < rank:
            raise MappingError(f"axis {axis} of {rank} axes", "R105")
    return sorted({axis % rank for axis in found})


def one_axis(r: Reading, index: int, rank: int) -> int:
    """The axis at input `index`, counted from the front."""
    found = r.ints(index, "the axis")
    if len(found) != 1 or not -rank <= found[0] < rank:
        raise MappingError(f"axis {found} of {rank} axes", "R105")
    return found[0] % rank


def axis_of(w: Writing, name: str = "axis", index: int = 0, default: int = 0) -> int:
    """An attribute that is an axis of an input, counted from the front."""
    axis = int(w.attr(name, default))
    rank = w.rank(index)
    if not -rank <= axis < max(1, rank):
        raise MappingError(f"axis {axis} of {rank} axes")
    return axis % max(1, rank)


def constant_of(r: Reading, numbers: Sequence[int], name: str) -> Any:
    return r.b.const(np.asarray(numbers, np.int64), name)
