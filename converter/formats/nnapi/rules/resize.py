"""Resizing. NNAPI has three rules for coordinates.

Another rule is written as one of them where both pick the same sources.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from converter.errors import MappingError
from converter.formats.nnapi.rules.fields import reading, writing
from converter.formats.nnapi.table import Array
from converter.graph.infer import known
from converter.graph.sizes import arange
from converter.mapping.context import Reading, Writing
from converter.mapping.fields import Field, Only
from converter.mapping.rules import op

# by the flags align_corners and half_pixel_centers
RULES_THERE = {
    (False, False): "asymmetric",
    (True, False): "align_corners",
    (False, True): "half_pixel",
}


class Coordinates(Field):
    """The size, given or by factors that are rounded down, and the rule for coordinates.

    Without flags a coordinate is i * in / out. The nearest neighbour is the one below, or the
    nearest with ties upwards where a flag is set.
    """

    names = (
        "coordinate_transformation_mode",
        "nearest_mode",
        "antialias",
        "axes",
        "cubic_coeff_a",
        "exclude_outside",
        "extrapolation_value",
        "keep_aspect_ratio_policy",
    )
    inputs = (1, 2, 3)
    keys = (
        *("width", "height", "width_scale", "height_scale"),
        *("align_corners", "half_pixel_centers"),
    )

    def lift(self, r: Reading) -> None:
        t, a = reading(r), r.node.attrs
        if "width" in r.layer.attrs:
            target = [r.attr("height", int), r.attr("width", int)]
        else:
            scales = (r.attr("height_scale", float), r.attr("width_scale", float))
            target = [int(n * s) for n, s in zip(t.spatial(), scales, strict=True)]
        flags = tuple(bool(r.attr(k, bool, False)) for k in self.keys[4:])
        a["coordinate_transformation_mode"] = RULES_THERE[flags[0], flags[1] and not flags[0]]
        if a["mode"] == "nearest":
            a["nearest_mode"] = "round_prefer_ceil" if any(flags) else "floor"
        sizes = r.b.const([t.shape()[0], t.channels(), *target], "sizes")
        r.node.inputs[1:] = [None, None, sizes]

    def lower(self, w: Writing) -> None:
        t, mode = writing(w), w.attr("mode")
        if w.attr("antialias", 0) or len(w.static()) != 4:
            raise MappingError(f"mode {mode!r} is not possible, or not in this rank")
        (n, *size, c), (m, *target, d) = (t.image(v) for v in (w.input(0), w.node.outputs[0]))
        if (n, c) != (m, d):
            raise MappingError("only height and width can be resized")
        axes = zip(size, target, scales_of(t, size, target), strict=True)
        wanted = [sources(w, *axis) for axis in axes]
        for corners, half in RULES_THERE:
            found = (own(mode, corners, half, *pair) for pair in zip(size, target, strict=True))
            if all(np.allclose(f, x, atol=1e-4) for f, x in zip(found, wanted, strict=True)):
                w.layer.attrs |= {"width": target[1], "height": target[0]}
                if corners or half:
                    w.layer.attrs |= {"align_corners": corners, "half_pixel_centers": half}
                return
        raise MappingError("none of NNAPI's rules for coordinates gives these sources")


ROUND: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda c: np.ceil(c - 0.5),
    "round_prefer_ceil": lambda c: np.floor(c + 0.5),
}


def scales_of(w: Writing, size: Sequence[int], target: Sequence[int]) -> list[float]:
    """The factors of height and width: those that are given, else the ratio of the sizes."""
    value = w.optional(2)
    given = None if value is None else known(value)
    if value is not None and given is None and w.static(2) != (0,):
        raise MappingError("the scales are known only at run time")
    if given is None or given.size not in (2, 4):
        return [m / n for n, m in zip(size, target, strict=True)]
    # channels-last operators have them in the order N, C, height, width too
    return [float(s) for s in given.reshape(-1)[-2:]]


def sources(w: Writing, n: int, m: int, scale: float) -> Array:
    """What each of `m` positions of an axis is made of: a source, or a coordinate between two."""
    found = coordinates(w.attr("coordinate_transformation_mode"), n, m, scale)
    if w.attr("mode") == "nearest":
        found = ROUND[w.attr("nearest_mode")](found)
    return np.clip(found, 0, n - 1)


def coordinates(rule: str, n: int, m: int, scale: float) -> Array:
    """The source coordinate of each of `m` positions, as ONNX's Resize has it."""
    i = arange(m, dtype=np.float64)
    if rule == "align_corners":
        return i * (n - 1) / (m - 1) if m > 1 else i * 0
    if rule == "asymmetric":
        return i / scale
    if rule == "pytorch_half_pixel" and m == 1:
        return i * 0
    if rule in ("half_pixel", "pytorch_half_pixel"):
        return (i + 0.5) / scale - 0.5
    if rule == "half_pixel_symmetric":
        return n / 2 * (1 - m / (scale * n)) + (i + 0.5) / scale - 0.5
    raise MappingError(f"the rule {rule!r} for coordinates is not possible")


def own(mode: str, corners: bool, half: bool, n: int, m: int) -> Array:
    """The same as `sources`, by NNAPI's rules."""
    scale = (n - 1) / (m - 1) if corners and m > 1 else n / m
    i = arange(m, dtype=np.float64)
    found = (i + 0.5) * scale if half else i * scale
    if mode == "nearest":
        return np.minimum(np.floor(found + 0.5) if corners else np.floor(found), n - 1)
    return np.clip(found - 0.5 if half else found, 0, n - 1)


RULES = [
    op(
        "Resize",
        kind,
        Only("mode", mode),
        Coordinates(),
        given="1,2,3,4 ? =[1,1,2,2]",
    )
    for mode, kind in (("linear", "RESIZE_BILINEAR"), ("nearest", "RESIZE_NEAREST_NEIGHBOR"))
]
