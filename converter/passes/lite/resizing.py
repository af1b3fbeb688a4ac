"""The coordinate rules of the resizing kernels of TensorFlow Lite and NNAPI."""

from __future__ import annotations

from converter.mapping.concepts.resize import Rule

# by the flags align_corners and half_pixel_centers, of which the first takes precedence
COORDINATES = {
    (False, False): "asymmetric",
    (True, False): "align_corners",
    (False, True): "half_pixel",
}


def rule_of(mode: str, corners: bool, half: bool) -> Rule:
    """Return the rule: without flags the nearest neighbor is rounded down, else to nearest with
    ties up.
    """
    rounding = "round_prefer_ceil" if corners or half else "floor"
    coordinates = COORDINATES[corners, half and not corners]
    return Rule(mode, coordinates, rounding if mode == "nearest" else "")


FLAGS = {rule_of(mode, *flags): flags for flags in COORDINATES for mode in ("linear", "nearest")}
