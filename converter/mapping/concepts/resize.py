"""Resizing of images: which source elements a Resize reads, and the coordinate rules of a
format.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.graph.infer import Array, known
from converter.graph.interpolation import ROUND, aspect_factor, coordinates
from converter.graph.size_expressions import Size
from converter.graph.symbolic import dimensions
from converter.graph.value import known_sizes
from converter.graph.windows import FIX
from converter.mapping.concepts.window import spatial
from converter.mapping.fields import Field
from converter.record import record

NAMES = (
    *("mode", "coordinate_transformation_mode", "nearest_mode", "antialias", "exclude_outside"),
    *("axes", "cubic_coeff_a", "extrapolation_value", "keep_aspect_ratio_policy"),
)


class Rule(NamedTuple):
    """The coordinate rule of a layer: a coordinate transformation of ONNX and, for the nearest
    mode, how coordinates are rounded.
    """

    mode: str
    coordinates: str
    rounding: str = ""

    def attributes(self) -> dict[str, str]:
        """Return the attributes of ONNX's Resize other than its mode."""
        rounding = {"nearest_mode": self.rounding} if self.mode == "nearest" else {}
        return {"coordinate_transformation_mode": self.coordinates, **rounding}

    def sources(self, size: int, result: int, factor: float, dtype: Any = np.float64) -> Array:
        """Return the source of each of the `result` elements along an axis: the index of an
        element, or a coordinate between two elements.
        """
        found = coordinates(self.coordinates, size, result, factor, None, dtype)
        if self.mode == "nearest":
            exact = dtype is np.float32  # the precision in which the engines of ONNX compute
            found = ROUND[self.rounding](found if exact else np.round(found, 6))
        return np.clip(found, 0, size - 1)


@record
class Sampling:
    """The sampling of a Resize: how it computes source coordinates.

    `before`, `after`  the sizes of the spatial axes; None if unknown
    `factors`          of these axes; None if they follow from the sizes
    """

    rule: Rule
    before: list[int | None]
    after: list[int | None]
    factors: list[float] | None

    @property
    def dynamic(self) -> bool:
        return None in (*self.before, *self.after)

    @property
    def sides(self) -> list[tuple[int, int, float]]:
        """Return the size before, the size after and the factor of each axis."""
        before, after = ([int(n or 0) for n in sizes] for sizes in (self.before, self.after))
        factors = self.factors or [m / n for n, m in zip(before, after, strict=True)]
        return list(zip(before, after, factors, strict=True))

    def matches(self, rule: Rule) -> bool:
        """Return whether a rule that uses the ratio of the sizes as its factor reads the same
        elements.
        """
        if rule.mode != self.rule.mode:
            return False
        if self.dynamic:
            return rule == self.rule
        return all(
            np.allclose(
                self.rule.sources(n, m, factor, np.float32), rule.sources(n, m, m / n), atol=1e-4
            )
            for n, m, factor in self.sides
        )


def half_pixel_rule(rule: str, after: Sequence[Size]) -> str:
    """Return the coordinate rule; pytorch_half_pixel differs from half_pixel only for a single
    element.
    """
    one = any(size.may_be(1) for size in after)
    return "half_pixel" if rule == "pytorch_half_pixel" and not one else rule


def spatial_results(w: Any) -> list[Size]:
    """Return the height and width of the result as expressions."""
    before, after = dimensions(w.data) or [], dimensions(w.out) or []
    factors = _factors(w) if w.attr("keep_aspect_ratio_policy", "stretch") == "stretch" else None
    part = slice(1, -1) if w.node.last else slice(2, None)
    found = after[part]
    for i, (size, own) in enumerate(zip(found, before[part], strict=False)):
        factor = None if factors is None or i >= len(factors) else factors[i]
        if factor is not None and factor.is_integer() and size.name() is None:
            found[i] = own * int(factor)
    return found


def sampling_of(w: Any, antialiased: bool = False) -> Sampling:
    """Return the sampling of the operator.

    Raise MappingError unless it resizes the two spatial axes of images. `antialiased`: the layer
    widens its kernel if an axis shrinks, without elements outside of the image.
    """
    a = w.attr
    before, after = (spatial(w.node, v) for v in (w.data, w.out))
    one, other = (_outer_sizes(w, v) for v in (w.data, w.out))
    if len(before) != 2 or len(after) != 2 or (None not in (*one, *other) and one != other):
        raise MappingError("only height and width of images [N, C, H, W] can be resized")
    if one != other:
        raise MappingError("the sizes of the image must be static", "X203", FIX)
    rule = half_pixel_rule(a("coordinate_transformation_mode"), spatial_results(w))
    mode = a("mode")
    found = Sampling(
        Rule(mode, rule, a("nearest_mode") if mode == "nearest" else ""),
        before,
        after,
        _factors(w),
    )
    if not found.dynamic and 0 in (*before, *after):
        raise MappingError(f"resizing an image of {before} elements to {after} is not supported")
    shrinks = found.dynamic or any(factor < 1 for *_, factor in found.sides)
    if a("antialias", 0) and shrinks:
        if not antialiased:
            raise MappingError("antialias=1 is not supported where an axis shrinks")
        if not a("exclude_outside", 0):
            raise MappingError("antialias=1 is only supported with exclude_outside=1")
    return found


def _outer_sizes(w: Any, value: ir.Value) -> list[Any]:
    """Return the batch and channel sizes of an image; None if unknown."""
    sizes = known_sizes(value) or [None, None]
    return [sizes[0], sizes[-1 if w.node.last else 1]]


def _factors(w: Any) -> list[float] | None:
    """Return the factors of height and width, or None if they follow from the sizes."""
    if not w.has(2) or w.static(2, "the factors") == (0,):
        kept = kept_factor(w)
        return None if kept is None else [kept, kept]
    found = [float(f) for f in w.constant(2, "the factors").reshape(-1)]
    # operators with channels-last layout also store them in the order N, C, height, width
    return found[-2:] if len(found) in (2, 4) else None


def kept_factor(w: Any) -> float | None:
    """Return the common factor of axes that keep their aspect ratio, which differs from the ratios
    of the rounded sizes; None if the axes are stretched.
    """
    policy, sizes = w.attr("keep_aspect_ratio_policy", "stretch"), known_sizes(w.data)
    if policy == "stretch":
        return None
    wanted = known(w.optional(3))
    if wanted is None or sizes is None or None in sizes:
        message = f"keep_aspect_ratio_policy={policy!r} needs static sizes"
        raise MappingError(message, "X203", FIX)
    if w.node.last:
        sizes = [sizes[0], sizes[-1], *sizes[1:-1]]
    axes = [int(a) for a in w.attr("axes", None) or range(len(sizes))]
    return aspect_factor(policy, [int(sizes[a] or 1) for a in axes], wanted.reshape(-1).tolist())


def demand_ratios(w: Any, before: Sequence[int | None], after: Sequence[int | None]) -> None:
    """Raise MappingError if the factor is not the ratio of the sizes, which is the factor of the
    layer.
    """
    kept, sides = kept_factor(w), zip(before, after, strict=True)
    if kept is not None and any(not n or not m or abs(kept - m / n) > 1e-6 for n, m in sides):
        raise MappingError(f"the scale {kept:g} must be the ratio of the sizes of every axis")


class Resize(Field, abc.ABC):
    """A resize of the height and width of images <-> ONNX's Resize.

    A format implements `read` and `write`, and declares its `rules` in order of preference: an
    operator with another rule is written with the first one that reads the same elements.
    `antialiased` declares that the layer widens its kernel if an axis shrinks.
    """

    SPELLING = frozenset({"read", "write", "names", "keys", "inputs", "rules", "antialiased"})
    names = NAMES
    inputs = (1, 2, 3)
    rules: tuple[Rule, ...] = ()
    antialiased = False

    @abc.abstractmethod
    def read(self, r: Any) -> tuple[Any, Rule]:
        """Return the sizes of all axes of the result, and the rule."""

    @abc.abstractmethod
    def write(self, w: Any, wanted: Sampling, rule: Rule) -> None:
        """Complete the layer, which samples by `rule`."""

    def lift(self, r: Any) -> None:
        sizes, rule = self.read(r)
        r.set(mode=rule.mode, **rule.attributes())
        r.set_inputs(r.data, None, None, sizes)

    def lower(self, w: Any) -> None:
        wanted = sampling_of(w, self.antialiased)
        self.write(w, wanted, choose_rule(wanted, self.rules))


def choose_rule(wanted: Sampling, rules: tuple[Rule, ...]) -> Rule:
    """Return the first rule that reads the same elements; raise MappingError if there is none."""
    found = next((rule for rule in rules if wanted.matches(rule)), None)
    if found is None:
        shown = " ".join(wanted.rule).rstrip()
        if wanted.dynamic:
            raise MappingError(f"{shown} needs static sizes", "X203", FIX)
        raise no_match(f"{shown} is not supported by this layer")
    return found
