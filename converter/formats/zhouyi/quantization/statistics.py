"""Sums and means that come from sums."""

from __future__ import annotations

from converter.formats.zhouyi.quantization.context import IntegerLiftContext
from converter.formats.zhouyi.quantization.requantize import INT32, bounded, cut, rescale, shifted
from converter.formats.zhouyi.rules.fields import axes_of
from converter.graph.value import Value

UINT32 = (0.0, 2.0**32 - 1)


def lift_normalized_moments(r: IntegerLiftContext) -> list[Value]:
    """Read NormalizedMoments: mean and shift have a common scale; the square of the mean comes from
    a table.
    """
    first, second = (_three(r, key) for key in ("mean", "var"))
    mean, variance, shift = (r.double(i) for i in range(3))
    square = r.entries("lut", r.input(0))
    sums = (
        (mean * first[1] + shift * first[2], first[0]),
        (variance * second[1] - square * second[2], second[0]),
    )
    pairs = enumerate(sums)
    return r.all_stored(rescale(x, by, r.zeros[i], r.limits(i)) for i, (x, by) in pairs)


def _three(r: IntegerLiftContext, key: str) -> list[float]:
    """Return the factor of a sum, and the scales of its operands."""
    scales = r.number_list(f"{key}_scale_value", 3)
    return [scales[0] * 2.0 ** -r.bit_count(f"{key}_shift_value"), *scales[1:]]


def lift_sufficient_statistics(r: IntegerLiftContext) -> list[Value]:
    """Read SufficientStatistics: sums of the distance from the shift and of its square, truncated;
    the square in two 16-bit halves.
    """
    b, axes = r.b, axes_of(r.layer)
    of_total, _, first, second = r.factors(4)
    d = rescale(r.double(0), first, 0, INT32) - rescale(r.double(1), second, 0, INT32)
    total = cut(bounded(b.ReduceSum(d, axes), *INT32) * of_total)
    square = bounded(d * d, *UINT32)
    high = shifted(square, 16)
    halves = [
        bounded(b.ReduceSum(v, axes), *UINT32) * r.scales[1]
        for v in (high, square - high * 65536.0)
    ]
    upper = halves[0] + shifted(halves[1], 16)
    behind = int(r.shifts[1])
    # both halves together may exceed the exact range of a double; then only the upper one matters
    whole = upper if behind >= 16 else halves[0] * 65536.0 + halves[1]
    squares = shifted(whole, behind - 16 if behind >= 16 else behind)
    pairs = enumerate((total, squares))
    return r.all_stored(bounded(v - r.zeros[i], *r.limits(i)) for i, v in pairs)
