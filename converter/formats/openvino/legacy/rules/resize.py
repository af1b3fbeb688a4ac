"""Layers that change the size of images.

The output port has the size; factors and attributes only repeat it.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from converter.errors import MappingError, not_meant
from converter.formats.openvino.legacy.rules.context import Reading, Writing
from converter.formats.openvino.legacy.rules.fields import FLOATS, ToPort
from converter.graph.infer import Array, known
from converter.graph.interpolation import ROUND, coordinates
from converter.graph.windows import of_all_axes
from converter.mapping.codecs import Codec, number_text
from converter.mapping.fields import Field, Fixed, Guard, Implied, ignore
from converter.mapping.rules import Rule, op

Sides = list[tuple[int, int, float]]  # size before and after, and the factor, of each spatial axis


def last_word(value: object) -> str:
    return str(value).strip().lower().rsplit(".", 1)[-1].replace("bilinear", "linear")


LAST_WORD = Codec(last_word, lambda v: f"caffe.ResampleParameter.{v.upper()}")


class ToSize(Field):
    """Input 3, the size of the port; how pixels are found in the source."""

    names = (
        "mode",
        "coordinate_transformation_mode",
        "nearest_mode",
        "antialias",
        "exclude_outside",
        "cubic_coeff_a",
        "extrapolation_value",
        "keep_aspect_ratio_policy",
        "axes",
    )
    inputs = (1, 2, 3)

    def lift(self, r: Reading) -> None:
        size, out = r.static(), r.dims()
        if len(size) != len(out) or size[:2] != out[:2]:
            message = f"the output port declares {out} for an input of {size}"
            raise MappingError(message, "R105")
        r.node.attrs |= self.sampling(r)
        r.set_inputs(r.input(0), None, None, list(out))

    @abstractmethod
    def sampling(self, r: Reading) -> dict[str, object]:
        """The attributes of Resize by which the layer samples."""

    def lower(self, w: Writing) -> None:
        size, wanted = w.shape(), w.shape(w.out)
        if len(size) != 4 or size[:2] != wanted[:2]:
            raise MappingError("only the two spatial axes of images can be resized")
        scales = known(w.optional(2))
        if w.has(2) and scales is None:
            raise MappingError("the scales must be constant")
        pairs = list(zip(size[2:], wanted[2:], strict=True))
        given = scales is not None and scales.size >= 2
        factors = list(scales[-2:]) if given and scales is not None else [b / a for a, b in pairs]
        self.written(w, [(*p, float(f)) for p, f in zip(pairs, factors, strict=True)])

    @abstractmethod
    def written(self, w: Writing, sides: Sides) -> None:
        """Completes the layer for sides of (size, wanted size, factor)."""


class Nearest(ToSize):
    """Half pixels; compared pixel by pixel."""

    keys = ("antialias", "factor", "width", "height")

    def sampling(self, r: Reading) -> dict[str, object]:
        where = {"coordinate_transformation_mode": "half_pixel"}
        return {"mode": "nearest", "nearest_mode": "round_prefer_ceil", **where}

    def written(self, w: Writing, sides: Sides) -> None:
        mode, where = w.attr("mode"), w.attr("coordinate_transformation_mode")
        if mode != "nearest":
            raise not_meant("not by the nearest pixel")
        rounding = w.attr("nearest_mode")
        for size, wanted, factor in sides:
            own = nearest(size, wanted, wanted / size, "half_pixel", "round_prefer_ceil")
            if (nearest(size, wanted, factor, where, rounding) != own).any():
                message = f"nearest in {where!r} by {rounding!r} takes other pixels than Resample"
                raise MappingError(message)
        w.layer.attrs |= {"antialias": "0", "factor": number_text(sides[0][1] / sides[0][0])}


class Linear(ToSize):
    """Half pixels; `antialias` widens the kernel when the image shrinks."""

    keys = Nearest.keys

    def sampling(self, r: Reading) -> dict[str, object]:
        where = {"coordinate_transformation_mode": "half_pixel"}
        return {"mode": "linear", "antialias": r.attr("antialias", bool, 0), **where}

    def written(self, w: Writing, sides: Sides) -> None:
        if linear(w, sides, "half_pixel") is None:
            raise not_meant("not by half pixels")
        factor = sides[0][1] / sides[0][0]
        w.layer.attrs |= {"antialias": str(w.attr("antialias", 0)), "factor": number_text(factor)}


class Corners(ToSize):
    """Bilinear; corners aligned, or the source at target * in / out.

    Negative pads cut the border off first, positive ones add zeros.
    """

    keys = tuple(
        [
            "height",
            "width",
            "align_corners",
            "pad_beg",
            "pad_end",
            "factor",
            "shrink_factor",
            "zoom_factor",
        ]
    )

    def lift(self, r: Reading) -> None:
        before, after = (r.attr(k, int, 0) for k in ("pad_beg", "pad_end"))
        if before or after:
            n, x = len(r.dims()) - 2, r.input(0)
            pads = of_all_axes([before] * n + [after] * n)
            r.layer.inputs[0] = r.b.Pad(x, pads, r.b.like(x, 0))
        super().lift(r)

    def sampling(self, r: Reading) -> dict[str, object]:
        where = "align_corners" if r.attr("align_corners", bool, 1) else "asymmetric"
        return {"mode": "linear", "coordinate_transformation_mode": where}

    def written(self, w: Writing, sides: Sides) -> None:
        where = linear(w, sides, "align_corners", "asymmetric")
        shrinks = w.attr("antialias", 0) and any(b < a for a, b, _ in sides)
        if where is None or shrinks:
            name = w.attr("coordinate_transformation_mode")
            raise MappingError(f"linear in {name!r} is not known to the target")
        w.set(align_corners=where == "align_corners", pad_beg=0, pad_end=0)
        w.set(height=sides[0][1], width=sides[1][1])


def linear(w: Writing, sides: Sides, *places: str) -> str | None:
    """The first of `places` that finds the same pixels as the operator."""
    where, mode = w.attr("coordinate_transformation_mode"), w.attr("mode")
    if mode != "linear" or w.attr("exclude_outside", 0):
        raise MappingError(f"mode={mode!r} is not known to the target")
    for name in places:
        found = ((source(*s, where), source(s[0], s[1], s[1] / s[0], name)) for s in sides)
        if all(np.allclose(a, b, atol=1e-4) for a, b in found):
            return name
    return None


def source(size: int, wanted: int, factor: float, where: str) -> Array:
    """Where each pixel of the result lies in the source, inside of the image."""
    return np.clip(coordinates(where, size, wanted, factor), 0, size - 1)


def nearest(size: int, wanted: int, factor: float, where: str, rounding: str) -> Array:
    at = np.round(source(size, wanted, factor, where), 6)
    return np.asarray(np.clip(ROUND[rounding](at), 0, size - 1))


def stays(w: Writing) -> bool:
    return w.shape() == w.shape(w.out)


def kept(r: Reading) -> bool:
    padded = any(r.attr(k, int, 0) for k in ("pad_beg", "pad_end"))
    return r.static() == r.dims() and not padded


SAME = Guard("the size changes", stays)
UNCHANGED = Guard("the size changes", lift_if=kept)
SIZES = "1,2,4,4 ? ? =[1,2,8,8]"

RULES: list[Rule] = [
    *(
        op("Identity", kind, UNCHANGED, ignore(*Corners.keys, "type", "antialias"), lift_only=True)
        for kind in ("Interp", "Resample")
    ),
    op(
        "Resize",
        "Reshape",
        SAME,
        Implied(ToSize.names),
        ToPort(),
        lower_only=True,
        given="1,2,4,4 ? ? =[1,2,4,4]",
    ),
    # the engine takes the bits of integers for those of floats
    op(
        "Resize",
        "Resample",
        FLOATS,
        Fixed("type", "nearest", True, LAST_WORD),
        Nearest(),
        given=SIZES,
    ),
    op(
        "Resize", "Resample", FLOATS, Fixed("type", "linear", kind=LAST_WORD), Linear(), given=SIZES
    ),
    op("Resize", "Interp", FLOATS, Corners(), given=SIZES),
]
