"""Sums and means that come from sums."""

from __future__ import annotations

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import IntegerReading
from converter.formats.zhouyi.quantization.requantize import (
    INT32,
    T,
    bounded,
    cut,
    rescale,
    shifted,
    stored,
)
from converter.formats.zhouyi.rules.fields import axes_of
from converter.graph.value import Value

UINT32 = (0.0, 2.0**32 - 1)


def lift_normalized_moments(r: IntegerReading) -> list[Value]:
    """Mean and shift on a common scale; the square of the mean comes from a table."""
    b = r.b
    first, second = (_three(r, key) for key in ("mean", "var"))
    mean, variance, shift = (r.double(i) for i in range(3))
    square = b.Cast(r.looked_up(r.input(0), "lut", *r.width(0)), to=T.DOUBLE)
    sums = (
        (mean * first[1] + shift * first[2], first[0]),
        (variance * second[1] - square * second[2], second[0]),
    )
    zeros = r.tensors.zeros
    parts = [rescale(b, x, by, zeros[i], r.limits(i)) for i, (x, by) in enumerate(sums)]
    return [stored(b, v, t) for v, t in zip(parts, r.tensors.types, strict=True)]


def _three(r: IntegerReading, key: str) -> list[float]:
    """The factor of a sum, and the scales of its operands."""
    scales = r.number_list(f"{key}_scale_value", 3)
    return [scales[0] * 2.0 ** -r.bit_count(f"{key}_shift_value"), *scales[1:]]


def lift_sufficient_statistics(r: IntegerReading) -> list[Value]:
    """Sums of the distance from the shift and of its square, cut off; the square in two halves of
    16 bits each.
    """
    b, axes = r.b, axes_of(r.layer)
    if r.scales.size != 4 or r.shifts.size != 4:
        message = f"{r.scales.size} scales and {r.shifts.size} shifts, 4 are needed"
        raise MappingError(message, "R110")
    x, shift = (
        rescale(b, r.double(i), r.scales[2 + i] * 2.0 ** -r.shifts[2 + i], 0, INT32) for i in (0, 1)
    )
    d = x - shift
    total = bounded(b, b.ReduceSum(d, axes), *INT32)
    total = cut(b, total * float(r.scales[0]) * 2.0 ** -r.shifts[0])
    square = bounded(b, d * d, *UINT32)
    high = shifted(b, square, 16)
    halves = [
        bounded(b, b.ReduceSum(v, axes), *UINT32) * float(r.scales[1])
        for v in (high, square - high * 65536.0)
    ]
    upper = halves[0] + shifted(b, halves[1], 16)
    behind = int(r.shifts[1])
    # the halves together may pass what a double holds, where only the upper one counts
    whole = upper if behind >= 16 else halves[0] * 65536.0 + halves[1]
    squares = shifted(b, whole, behind - 16 if behind >= 16 else behind)
    parts = [
        bounded(b, v - r.tensors.zeros[i], *r.limits(i)) for i, v in enumerate((total, squares))
    ]
    return [stored(b, v, t) for v, t in zip(parts, r.tensors.types, strict=True)]
