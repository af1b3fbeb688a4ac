"""Sampling at the points of a grid in ways that the format lacks: each tap of the window is a look-up, weighted and added."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.zhouyi.rewrites.register import attributes, operand, rewrites, static
from converter.graph.build import Builder
from converter.mapping.node import MappingError

A = -0.75  # ONNX, GridSample-20: the coefficient of its cubic
Tap = tuple[ir.Value, ir.Value, ir.Value | None]  # place, weight, whether it lies inside


@rewrites("GridSample")
def grid_sample(node: ir.Node, b: Builder) -> ir.Value | None:
    """Cubic windows, and points beyond the edge that are mirrored; only of 4-D data."""
    x, grid, a = operand(node), operand(node, 1), attributes(node)
    mode, padding = a["mode"], a["padding_mode"]
    if len(static(x)) != 4 or x.dtype is None or not x.dtype.is_floating_point():
        return None
    if mode not in ("linear", "cubic", "nearest"):
        raise MappingError(f"mode={mode!r} has no counterpart")
    n, c, h, w = static(x)
    points = [b.op("Squeeze", b.op("Slice", grid, [i], [i + 1], [3]), [3]) for i in (1, 0)]
    ys, xs = (_taps(b, p, size, mode, padding, bool(a["align_corners"])) for p, size in zip(points, (h, w), strict=True))
    flat, out = b.op("Reshape", x, [n, c, h * w]), static(node.outputs[0])
    total: ir.Value | None = None
    for y, wy, inside_y in ys:
        for at, wx, inside_x in xs:
            weight = b.op("Mul", wy, wx)
            for inside in (inside_y, inside_x):
                weight = weight if inside is None else b.op("Where", inside, weight, b.like(weight, 0))
            place = b.op("Cast", b.op("Add", b.op("Mul", y, b.like(y, w)), at), to=int(ir.DataType.INT64))
            index = b.op("Expand", b.op("Reshape", place, [n, 1, out[2] * out[3]]), [n, c, out[2] * out[3]])
            found = b.op("Reshape", b.op("GatherElements", flat, index, axis=2), out)
            part = b.op("Mul", found, b.op("Unsqueeze", weight, [1]))
            total = part if total is None else b.op("Add", total, part)
    return total


def _taps(b: Builder, point: ir.Value, size: int, mode: str, padding: str, corners: bool) -> list[Tap]:
    """The places along one axis that a point between -1 and 1 takes from, and what each weighs."""
    half = b.op("Mul", b.op("Add", point, b.like(point, 1)), b.like(point, (size - 1) / 2 if corners else size / 2))
    at = half if corners else b.op("Sub", half, b.like(point, 0.5))
    if mode != "cubic":
        at = _inside(b, at, size, padding, corners)
    if mode == "nearest":
        return [_tap(b, b.op("Round", at), b.op("Expand", b.like(at, 1), static(at)), size, padding, corners)]
    first = b.op("Floor", at)
    t = b.op("Sub", at, first)
    weights = _cubic(b, t) if mode == "cubic" else [b.op("Sub", b.like(t, 1), t), t]
    start = -1 if mode == "cubic" else 0
    return [_tap(b, b.op("Add", first, b.like(first, start + i)), w, size, padding, corners) for i, w in enumerate(weights)]


def _cubic(b: Builder, t: ir.Value) -> list[ir.Value]:
    def horner(v: ir.Value, factors: tuple[float, ...]) -> ir.Value:
        result = b.op("Mul", v, b.like(v, factors[0]))
        for f in factors[1:-1]:
            result = b.op("Mul", b.op("Add", result, b.like(v, f)), v)
        return b.op("Add", result, b.like(v, factors[-1]))

    back, far = b.op("Sub", b.like(t, 1), t), (A, -5 * A, 8 * A, -4 * A)
    near = (A + 2, -(A + 3), 0.0, 1.0)
    return [horner(b.op("Add", t, b.like(t, 1)), far), horner(t, near), horner(back, near), horner(b.op("Add", back, b.like(t, 1)), far)]


def _tap(b: Builder, place: ir.Value, weight: ir.Value, size: int, padding: str, corners: bool) -> Tap:
    inside = None
    if padding == "zeros":
        inside = b.op("And", b.op("GreaterOrEqual", place, b.like(place, 0)), b.op("LessOrEqual", place, b.like(place, size - 1)))
    place = _inside(b, place, size, padding, corners) if padding == "reflection" else place
    return b.op("Min", b.op("Max", place, b.like(place, 0)), b.like(place, size - 1)), weight, inside


def _inside(b: Builder, at: ir.Value, size: int, padding: str, corners: bool) -> ir.Value:
    """Beyond the edge: the edge, or the mirror image as often as it takes."""
    if padding == "zeros":
        return at
    if padding == "border":
        return b.op("Min", b.op("Max", at, b.like(at, 0)), b.like(at, size - 1))
    low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
    if not span:
        return b.op("Mul", at, b.like(at, 0))
    far = b.op("Abs", b.op("Sub", at, b.like(at, low)))
    turns = b.op("Floor", b.op("Div", far, b.like(at, span)))
    rest = b.op("Sub", far, b.op("Mul", turns, b.like(at, span)))
    odd = b.op("Greater", b.op("Mod", turns, b.like(at, 2), fmod=1), b.like(at, 0.5))
    mirrored = b.op("Where", odd, b.op("Sub", b.like(at, low + span), rest), b.op("Add", rest, b.like(at, low)))
    return b.op("Min", b.op("Max", mirrored, b.like(at, 0)), b.like(at, size - 1)) if not corners else mirrored
