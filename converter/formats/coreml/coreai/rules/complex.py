"""Complex numbers, which are pairs (real, imaginary) on a last axis in the graph."""

from __future__ import annotations

from typing import Any

from converter.errors import MappingError
from converter.formats.coreml.coreai.rules.context import LiftContext
from converter.graph.value import Value, stack
from converter.mapping.rules import Custom, Rule, custom

Pair = tuple[Any, Any]


def parts(r: LiftContext, index: int) -> Pair:
    """Return the real and imaginary parts of an operand; for a real operand itself and 0."""
    value = r.input(index)
    if not r.is_complex(value):
        return value, value * 0.0
    return value[..., 0], value[..., 1]


def create(r: LiftContext) -> Value:
    """Return a complex number as a tensor with both parts on its last axis."""
    return stack([r.input(0), r.input(1)])


def part(r: LiftContext) -> Value:
    """Return the real or the imaginary part."""
    real, imaginary = parts(r, 0)
    found: Value = imaginary if r.layer.kind == "imaginary_part" else real
    return found


def compute(r: LiftContext) -> Value:
    """Apply one of the operations that support complex numbers to such operands."""
    b, kind = r.b, r.layer.kind.removeprefix("broadcasting_")
    if kind not in KINDS:
        raise MappingError(f"{kind} of complex numbers is not supported", "X201")
    x, xi = parts(r, 0)
    if len(r.layer.inputs) == 2:
        y, yi = parts(r, 1)
        if kind in ("equal", "not_equal"):
            same = b.Equal(x, y) & b.Equal(xi, yi)
            return same if kind == "equal" else ~same
        if kind == "divide":
            size = y * y + yi * yi
            y, yi = y / size, -yi / size
        if kind in ("add", "sub"):
            join = b.Add if kind == "add" else b.Sub
            return stack([join(x, y), join(xi, yi)])
        return stack([x * y - xi * yi, x * yi + xi * y])
    if kind == "exp":
        return stack([b.Exp(x) * b.Cos(xi), b.Exp(x) * b.Sin(xi)])
    if kind == "sin":
        return stack([b.Sin(x) * b.Cosh(xi), b.Cos(x) * b.Sinh(xi)])
    if kind == "cos":
        return stack([b.Cos(x) * b.Cosh(xi), -b.Sin(x) * b.Sinh(xi)])
    if kind == "sinh":
        return stack([b.Sinh(x) * b.Cos(xi), b.Cosh(x) * b.Sin(xi)])
    return stack([b.Cosh(x) * b.Cos(xi), b.Sinh(x) * b.Sin(xi)])


KINDS = frozenset(
    ["add", "sub", "mul", "divide", "equal", "not_equal", "exp", "sin", "cos", "sinh", "cosh"]
)
RULES: list[Rule | Custom] = [
    custom("", "create_complex", create),
    custom("", "real_part imaginary_part", part),
]
