"""Layers that change the size of images.

The output port has the size; factors and attributes only repeat it.
"""

from __future__ import annotations

from typing import Any

from converter.errors import MappingError
from converter.formats.openvino.legacy.rules.context import LiftContext, LowerContext
from converter.formats.openvino.legacy.rules.fields import FLOATS, ToPort
from converter.graph.windows import of_all_axes
from converter.mapping.codecs import Codec, number_text
from converter.mapping.concepts.resize import Resize, Sampling
from converter.mapping.concepts.resize import Rule as Where
from converter.mapping.fields import Guard, ImpliedAttrs, RequireKey, ignore, ignore_inputs
from converter.mapping.rules import Rule, op


def last_word(value: object) -> str:
    """Return the type of interpolation without its prefix; "bilinear" is "linear"."""
    return str(value).strip().lower().rsplit(".", 1)[-1].replace("bilinear", "linear")


LAST_WORD = Codec(last_word, lambda v: f"caffe.ResampleParameter.{v.upper()}")


class ToSize(Resize):
    """A resize to the size of the port; subclasses have the coordinate rule."""

    keys: tuple[str, ...] = ("antialias", "factor", "width", "height")

    def read(self, r: LiftContext) -> tuple[Any, Where]:
        size, out = r.static(), r.dims()
        if len(size) != len(out) or size[:2] != out[:2]:
            message = f"the output port declares {out} for an input of {size}"
            raise MappingError(message, "R105")
        return list(out), self.rules[0]

    def write(self, w: LowerContext, wanted: Sampling, rule: Where) -> None:
        size, result, _ = wanted.sides[0]
        smooth = str(w.attr("antialias", 0)) if self.antialiased else "0"
        w.layer.attrs |= {"antialias": smooth, "factor": number_text(result / size)}


class Nearest(ToSize):
    """Resize to the nearest element, with half-pixel coordinates."""

    rules = (Where("nearest", "half_pixel", "round_prefer_ceil"),)


class Linear(ToSize):
    """Linear interpolation with half-pixel coordinates. `antialias` widens the kernel when the
    image shrinks, without elements outside of the image.
    """

    rules, antialiased = (Where("linear", "half_pixel"),), True

    def lift(self, r: LiftContext) -> None:
        super().lift(r)
        smooth = r.attr("antialias", bool, 0)
        r.set(antialias=smooth, exclude_outside=smooth)


class Corners(ToSize):
    """Bilinear interpolation with aligned corners, or with source = target * in / out. Negative
    pads first crop the border, positive ones add zeros.
    """

    keys = (
        *("height", "width", "align_corners", "pad_beg", "pad_end"),
        *("factor", "shrink_factor", "zoom_factor"),
    )
    rules = (Where("linear", "align_corners"), Where("linear", "asymmetric"))

    def read(self, r: LiftContext) -> tuple[Any, Where]:
        before, after = (r.attr(k, int, 0) for k in ("pad_beg", "pad_end"))
        if before or after:
            n, x = len(r.dims()) - 2, r.input(0)
            pads = of_all_axes([before] * n + [after] * n)
            r.data = r.layer.inputs[0] = r.b.Pad(x, pads, r.b.like(x, 0))
        sizes, _ = super().read(r)
        return sizes, self.rules[0 if r.attr("align_corners", bool, 1) else 1]

    def write(self, w: LowerContext, wanted: Sampling, rule: Where) -> None:
        w.set(align_corners=rule.coordinates == "align_corners", pad_beg=0, pad_end=0)
        w.set(height=wanted.after[0], width=wanted.after[1])


def stays(w: LowerContext) -> bool:
    """Return whether the result has the size of the data."""
    return w.shape() == w.shape(w.out)


def kept(r: LiftContext) -> bool:
    """Return whether the layer has no padding and its port has the size of the data."""
    padded = any(r.attr(k, int, 0) for k in ("pad_beg", "pad_end"))
    return r.static() == r.dims() and not padded


SAME = Guard("the size must not change", stays)
UNCHANGED = Guard("the size must not change", lift_if=kept)
SIZES = "1,2,4,4 ? ? =[1,2,8,8]"

SIZE_INPUT = ignore_inputs(1)  # gives the size that the port has
RULES: list[Rule] = [
    *(
        op("Identity", kind, UNCHANGED, ignore(*Corners.keys, "type", "antialias"), lift_only=True)
        for kind in ("Interp", "Resample")
    ),
    op(
        "Resize",
        "Reshape",
        SAME,
        ImpliedAttrs(ToSize.names),
        ToPort(),
        lower_only=True,
        example_inputs="1,2,4,4 ? ? =[1,2,4,4]",
    ),
    # the engine takes the bits of integers for those of floats
    op(
        "Resize",
        "Resample",
        FLOATS,
        RequireKey("type", "nearest", True, LAST_WORD),
        Nearest(),
        SIZE_INPUT,
        example_inputs=SIZES,
    ),
    op(
        "Resize",
        "Resample",
        FLOATS,
        RequireKey("type", "linear", kind=LAST_WORD),
        Linear(),
        SIZE_INPUT,
        example_inputs=SIZES,
    ),
    op("Resize", "Interp", FLOATS, Corners(), SIZE_INPUT, example_inputs=SIZES),
]
