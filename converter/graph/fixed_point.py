"""Fixed-point arithmetic as gemmlowp and TensorFlow Lite define it, bit for bit.

In a graph, integers are represented by doubles: each operation is written such that no intermediate
number needs more than their 53 bits. Functions of values use the builder whose `with` block is
open. Logistic and hyperbolic tangent of 16 bits are tables over all their inputs.

Sources: gemmlowp, fixedpoint.h; TensorFlow Lite, common.h.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import open_builder
from converter.graph.infer import Array
from converter.graph.value import Value, with_operators

T = ir.DataType
Number = int | Value
INT16_RANGE = (-32768, 32767)
HALF_ROOT_OF_2 = 1518500250  # sqrt(1/2) with 31 fractional bits

# numbers -----------------------------------------------------------------------------------------


def multiplier_of(factor: float) -> tuple[int, int]:
    """Return a positive factor as multiplier * 2 ** (shift - 31), with a multiplier of 31 bits."""
    fraction, shift = math.frexp(factor)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    return (multiplier // 2, shift + 1) if multiplier == 2**31 else (multiplier, shift)


def _limited(x: Array) -> Array:
    return np.asarray(np.clip(x, *INT16_RANGE))


def _product(x: Array, y: Any) -> Array:
    """Return the upper half of twice the product of 16-bit numbers, rounded, ties upward."""
    return _limited((x * y + (1 << 14)) >> 15)


def _divided(x: Array, bits: int) -> Array:
    """Return x / 2 ** bits, rounded, ties away from zero."""
    return np.asarray(np.sign(x) * ((np.abs(x) + (1 << bits >> 1)) >> bits))


def _short(number: int) -> int:
    """Return a constant of 32 bits rounded to 16 bits."""
    return int(_divided(np.asarray(number), 16))


def _exponential(x: Array, integer_bits: int) -> Array:
    """Return exp(x) in Q0.15 for x <= 0 with `integer_bits` integer bits: a polynomial around -1/8
    for the remainder modulo a quarter, times a factor for each higher bit.
    """
    fraction = 15 - integer_bits
    quarter = 1 << (fraction - 2)
    near = (x & (quarter - 1)) - quarter
    z = _limited(near << integer_bits) + (1 << 12)
    square = _product(z, z)
    sum_of_two = _divided(_product(square, square), 2) + _product(square, z)
    more = _divided(_product(sum_of_two, _short(715827883)) + square, 1)
    start = _short(1895147668)
    y = _limited(start + _product(z + more, start))
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for exponent, factor in enumerate(factors, -2):
        if integer_bits > exponent:
            taken = (near - x) & (1 << (fraction + exponent)) != 0
            y = np.where(taken, _product(y, _short(factor)), y)
    if integer_bits > 5:
        y = np.where(x < -(32 << fraction), 0, y)
    return np.where(x == 0, 32767, y)


def _inverse(x: Array) -> Array:
    """Return 2 / (1 + x) in Q2.13 for x in Q0.15 from 0 to 1, by three iterations of Newton's
    method.
    """
    half = (x + 32767 + 1) >> 1
    y = _short(1515870810) + _product(half, _short(-1010580540))
    for _ in range(3):
        y = y + _limited(_product(y, (1 << 13) - _product(half, y)) << 2)
    return y


@functools.cache
def logistic_table() -> Array:
    """Return 1 / (1 + exp(-x)) in Q0.15 for each x in Q3.12, in ascending order."""
    x = np.arange(-32768, 32768)
    positive = _limited(_inverse(_exponential(-np.abs(x), 3)) << 1)
    y = np.where(x > 0, positive, 32767 - positive)
    return np.where(x == 0, 1 << 14, y).astype(np.int16)


@functools.cache
def tanh_table(integer_bits: int) -> Array:
    """Return tanh(x) in Q0.15 for each 16-bit x with `integer_bits`, 0 to 6, integer bits."""
    x = np.arange(-32768, 32768)
    power = _exponential(-np.abs(x), integer_bits + 1)
    amount = _limited((_inverse(power) - (1 << 13)) << 2)
    return (np.sign(x) * amount).astype(np.int16)


# values ------------------------------------------------------------------------------------------


def double(x: ir.Value) -> Value:
    """Return a value as float64."""
    return with_operators(x) if x.dtype == T.DOUBLE else open_builder().Cast(x, to=T.DOUBLE)


def floor(x: Value) -> Value:
    """Round down to integers."""
    return open_builder().Floor(x)


def toward_zero(x: Value) -> Value:
    """Truncate towards zero."""
    b = open_builder()
    return b.Sign(x) * b.Floor(b.Abs(x))


def limited(x: Value, low: float, high: float) -> Value:
    """Clamp to the range from `low` to `high`."""
    return open_builder().Clip(x, low, high)


def looked_up(x: Value, table: Array, name: str) -> Value:
    """Look up elements in a table over all 16-bit numbers."""
    b = open_builder()
    index = b.Cast(x + 32768, to=T.INT64)
    return double(b.Gather(b.const(table, name), index, axis=0))


def high_product(x: Value, y: Number) -> Value:
    """Return the upper half of twice the product of 32-bit numbers, rounded, ties upward.

    A double cannot represent the product, so `y` is split into 16-bit parts, of which the lower one
    only contributes its carry.
    """
    high: Number
    if isinstance(y, int):
        high, low = divmod(y, 1 << 16)
        if low == 0:
            return floor((x * high + 2**14) * 2.0**-15)
        return floor((x * high + floor(x * low * 2.0**-16) + 2**14) * 2.0**-15)
    high = floor(y * 2.0**-16)
    carry = floor(x * (y - high * 2**16) * 2.0**-16)
    return floor((x * high + carry + 2**14) * 2.0**-15)


def divided(x: Value, factor: float | Value) -> Value:
    """Return x times a factor 2 ** -bits, rounded, ties away from zero."""
    b = open_builder()
    return b.Sign(x) * b.Floor(b.Abs(x) * factor + 0.5)


def scaled(x: Value, factor: float) -> Value:
    """Return x times a factor that is rounded to 31 bits."""
    multiplier, shift = multiplier_of(factor)
    y = high_product(x * 2.0**shift if shift > 0 else x, multiplier)
    return divided(y, 2.0**shift) if shift < 0 else y


def inverse_root(x: Value) -> tuple[Value, Value]:
    """Return 1 / sqrt(x) for integers x >= 0: a multiplier of 31 bits, and the power of two for its
    product.

    x is scaled to [2 ** 27, 2 ** 29) by powers of four, followed by five iterations of Newton's
    method with three integer bits. 0 is treated as 1.
    """
    b = open_builder()
    large = b.Cast(x >= 2.0**29, to=T.DOUBLE)
    reduced = b.Max(floor(x * (1 - large * 0.75)), b.const(np.float64(2)))
    levels = b.const(2.0 ** np.arange(3, 28, 2), "levels")
    below = b.Cast(b.Unsqueeze(reduced, [-1]) < levels, to=T.INT64)
    pairs = b.ReduceSum(below, [-1], keepdims=0)

    def by_pairs(numbers: Any, name: str) -> Value:
        return b.Gather(b.const(np.asarray(numbers, np.float64), name), pairs, axis=0)

    z = floor(reduced * by_pairs([4.0**k for k in range(14)], "powers") * 0.5)
    half = divided(z, 0.5)
    y = z * 0 + 2**28

    def widened(number: Value, factor: int) -> Value:
        return limited(number * factor, -(2.0**31), 2.0**31 - 1)

    for _ in range(5):
        cube = widened(high_product(high_product(y, y), y), 64)
        y = widened(high_product(y, 3 << 27) - high_product(half, cube), 8)
    y = high_product(y, HALF_ROOT_OF_2) * by_pairs([1] * 12 + [2, 4], "factors")
    power = by_pairs([2.0 ** min(k - 11, 0) for k in range(14)], "units") * (1 - large * 0.5)
    one = x <= 1.0
    return (
        b.Where(one, b.const(np.float64(2**31 - 1)), y),
        b.Where(one, b.const(np.float64(1)), power),
    )
