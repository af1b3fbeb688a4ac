"""Which pixels the resizing kernels of TensorFlow Lite and NNAPI take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from converter.errors import MappingError
from converter.graph.infer import Array, known
from converter.graph.interpolation import ROUND, coordinates
from converter.graph.sizes import arange
from converter.mapping.context import Writing

# what Resize says beside its mode, and what it is resized to
NAMES = (
    "coordinate_transformation_mode",
    "nearest_mode",
    "antialias",
    "axes",
    "cubic_coeff_a",
    "exclude_outside",
    "extrapolation_value",
    "keep_aspect_ratio_policy",
)
# by the flags align_corners and half_pixel_centers
MODES = {
    (False, False): "asymmetric",
    (True, False): "align_corners",
    (False, True): "half_pixel",
}


def rule_of(corners: bool, half: bool, mode: str) -> dict[str, str]:
    """The rule for coordinates by the flags, of which the first one wins: without them a coordinate
    is i * in / out. The nearest neighbour is the one below, or the nearest with ties upwards where
    a flag is set.
    """
    found = {"coordinate_transformation_mode": MODES[corners, half and not corners]}
    if mode == "nearest":
        found["nearest_mode"] = "round_prefer_ceil" if corners or half else "floor"
    return found


def flags_of(w: Writing, size: Sequence[int], target: Sequence[int]) -> tuple[bool, bool]:
    """The flags by which height and width are resized as the operator says; MappingError where
    none of them picks the same sources.
    """
    if 0 in (*size, *target):
        raise MappingError(f"an image of {list(size)} elements resized to {list(target)}")
    axes = zip(size, target, scales_of(w, size, target), strict=True)
    wanted = [sources(w, *axis) for axis in axes]
    for flags in MODES:
        found = (own(w.attr("mode"), *flags, *pair) for pair in zip(size, target, strict=True))
        if all(np.allclose(f, x, atol=1e-4) for f, x in zip(found, wanted, strict=True)):
            return flags
    raise MappingError("none of the rules for coordinates gives these sources")


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


def own(mode: str, corners: bool, half: bool, n: int, m: int) -> Array:
    """The same as `sources`, by the flags align_corners and half_pixel_centers of the kernels."""
    scale = (n - 1) / (m - 1) if corners and m > 1 else n / m
    i = arange(m, dtype=np.float64)
    found = (i + 0.5) * scale if half else i * scale
    if mode == "nearest":
        return np.minimum(np.floor(found + 0.5) if corners else np.floor(found), n - 1)
    return np.clip(found - 0.5 if half else found, 0, n - 1)
