"""Requantization: from the scale of an accumulator to that of the result.

Integer layers hold the factor as multiplier * 2 ** -shift. The vendor's quantizer writes
multipliers of 15 bits and shifts up to 31, which its hardware takes; its executor takes more. When
a layer is read, its integers are carried by floats, as that executor carries them.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.types import numpy_type
from converter.formats.zhouyi.values import DType
from converter.graph.build import open_builder
from converter.graph.demands import representable
from converter.graph.infer import Array
from converter.graph.value import Value, with_operators
from converter.mapping.node import Layer

T = ir.DataType
Limits = tuple[float, float]
INT8: Limits = (-128.0, 127.0)
INT16: Limits = (-32768.0, 32767.0)
UINT16: Limits = (0.0, 65535.0)
INT32: Limits = (float(-(2**31)), float(2**31 - 1))
EXACT = 1 << 24  # up to here a float holds every integer
# multipliers that would lose more bits than this do not share the shift of larger ones
_LOST = 7
# by which a file may say that something is shifted; the vendor's tools write 127 for a product that
# is next to nothing
MOST_BITS = 127

# writing -----------------------------------------------------------------------------------------


def approximate(factors: Any, bits: int) -> tuple[Array, Array]:
    """Return multipliers of `bits` bits and shifts of positive factors; a factor of 1 is 1 * 2 **
    0.
    """
    multipliers, shifts = _fitted(np.asarray(factors, np.float64), bits)
    one = multipliers == 2.0**shifts
    return np.where(one, 1, multipliers), np.where(one, 0, shifts)


def _fitted(factors: Array, bits: int) -> tuple[Array, Array]:
    most = 31 if bits <= 16 else 62
    shifts = np.minimum(np.floor(np.log2((2.0**bits - 1) / factors)), most).astype(np.int64)
    return np.floor(factors * 2.0**shifts + 0.5).astype(np.int64), shifts


def per_channel(factors: Any, bits: int) -> tuple[Array, Array]:
    """Return one shift for all channels, which the hardware prefers, if no multiplier becomes
    inaccurate by it.
    """
    array = np.asarray(factors, np.float64)
    multipliers, shifts = _fitted(array, bits)
    least = int(shifts.min())
    shared = np.floor(array * 2.0**least + 0.5).astype(np.int64)
    if least >= 0 and shared.min() >= min(1 << (bits - _LOST), multipliers.min()):
        return shared, np.full_like(shifts, least)
    return multipliers, shifts


def scalar_keys(factor: float, bits: int) -> dict[str, Any]:
    """Return `scale_value`, `shift_value` and their types for one factor."""
    return {key: one for key, (one,) in list_keys([factor], bits).items()}


def list_keys(factors: list[float], bits: int) -> dict[str, Any]:
    """Return the keys for one factor of each operand."""
    multipliers, shifts = approximate(factors, bits)
    stored = DType.UINT16 if bits <= 16 else DType.INT32
    return {
        "scale_value": [int(m) for m in multipliers],
        "scale_type": [stored] * len(factors),
        "shift_value": [int(s) for s in shifts],
        "shift_type": [DType.INT8] * len(factors),
    }


def channel_constants(factors: Array, bits: int) -> dict[str, Array]:
    """Return the constants `scale` and `shift` for one factor per channel."""
    multipliers, shifts = per_channel(factors, bits)
    stored = np.uint16 if bits <= 16 else np.int32
    return {"scale": multipliers.astype(stored), "shift": shifts.astype(np.int8)}


# reading -----------------------------------------------------------------------------------------


def numbers(layer: Layer, name: str, default: float) -> Array:
    """Return `NAME_value` or the constant NAME: one number, or one per channel; shifts are as in
    bits_of.

    Raises MappingError R110 for an invalid number.
    """
    found = stated(layer, name, f"{name}_value", default)
    if name == "shift":
        for v in (found.min(), found.max()):
            bits_of(v, name)
    return found


def stated(layer: Layer, name: str, key: str, default: float) -> Array:
    """Return the constant NAME or the value of the key, as doubles; raise MappingError R110 for
    anything but numbers.
    """
    given = layer.blobs.get(name, layer.attrs.get(key, default))
    found = representable(given, np.float64, name).reshape(-1)
    if not found.size or not np.isfinite(found).all():
        raise MappingError(f"{name}={str(given)[:200]} must be numbers", "R110")
    return found


def bits_of(value: Any, key: str, least: int = -MOST_BITS) -> int:
    """Return the number of bits of a shift; raise MappingError R110 for an invalid one."""
    known = isinstance(value, int | float) and least <= value <= MOST_BITS
    if not known or value != int(value):
        message = f"{key} must be a bit count from {least} to {MOST_BITS}, got {str(value)[:200]}"
        raise MappingError(message, "R110")
    return int(value)


def of_sizes(array: Array, what: str, *sizes: int) -> Array:
    """Return the array; MappingError R105 unless it has one of these numbers of elements."""
    if array.size not in sizes:
        needed = " or ".join(map(str, dict.fromkeys(sizes)))
        raise MappingError(f"{what} must have {needed} elements, got {array.size}", "R105")
    return array


def within(array: Array, low: float, high: float) -> bool:
    """Return whether no element is outside of a range."""
    return bool(array.min() >= low and array.max() <= high)


def zeros_of(layer: Layer, name: str) -> Array:
    """Return `NAME_zp`, a constant or a key."""
    return stated(layer, f"{name}_zp", f"{name}_zp", 0)


# Values that these functions make are written by the builder whose `with` block is open.


def stored(y: ir.Value, dtype: ir.DataType) -> Value:
    """Return a value cast to a type, unless it has it."""
    return with_operators(y) if y.dtype == dtype else open_builder().Cast(y, to=dtype)


def double(x: ir.Value) -> Value:
    """Return a value as float64."""
    return stored(x, T.DOUBLE)


def single(x: ir.Value) -> Value:
    """Return a value as float32."""
    return stored(x, T.FLOAT)


def int64(x: ir.Value) -> Value:
    """Return a value as int64."""
    return stored(x, T.INT64)


def real(x: ir.Value, zero: int = 0, narrow: bool = False) -> Value:
    """Return quantized values as floats with their zero point added. Those of more than 8 bits
    become doubles, since a float cannot represent their products. `narrow`: use floats
    nevertheless, for kernels that have no other type.
    """
    wide = not narrow and x.dtype is not None and x.dtype.is_integer() and x.dtype.bitwidth > 8
    floats = x.dtype in (T.FLOAT, T.DOUBLE)
    y = with_operators(x) if floats else stored(x, T.DOUBLE if wide else T.FLOAT)
    return y + zero if zero else y


def constant_like(array: Array, x: ir.Value, name: str = "const") -> Value:
    """Return a constant in the type of `x`."""
    return open_builder().const(np.asarray(array, numpy_type(x)), name)


def rescale(x: Value, by: Any, zero: int, limits: Limits, rounding: str = "Round") -> Value:
    """Return clamp(round(x * by) - zero, *limits) as doubles: a float cannot represent
    the product.
    """
    by = np.asarray(by, np.float64)
    y = open_builder().operator(rounding)(double(x) * (by.reshape(()) if by.size == 1 else by))
    return bounded(y - zero if zero else y, *limits)


def limits_of_bits(bits: int, signed: bool) -> Limits:
    """Return the range of integers of `bits` bits."""
    return (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1) if signed else (0.0, 2.0**bits - 1)


def bounded(x: Value, low: float, high: float) -> Value:
    """Clamp to the range from `low` to `high`."""
    return open_builder().Clip(x, low, high)


def floor(x: Value) -> Value:
    """Round down to integers."""
    return open_builder().Floor(x)


def shifted(x: Value, bits: float) -> Value:
    """Return x >> bits for doubles with integer values."""
    return floor(x * 2.0 ** -bits_of(bits, "shift"))


def low_32_bits(x: Value) -> Value:
    """Return the lowest 32 bits of integer-valued doubles, as signed numbers."""
    return x - floor((x + 2.0**31) * 2.0**-32) * 2.0**32


def cut(x: Value) -> Value:
    """Truncate to an integer."""
    return double(int64(x))


def reached(x: Value, levels: Array) -> Value:
    """Return how many of the levels each element of `x`, doubles, reaches."""
    b = open_builder()
    over = x[..., None] >= np.asarray(levels, np.float64)
    return b.ReduceSum(double(over), [-1], keepdims=0)


def entry(table: Array, at: Value) -> Value:
    """Return the entries of a table at integer indices."""
    b = open_builder()
    return b.Gather(b.const(table, "table"), int64(at))


def wrapped(y: Value, dtype: ir.DataType) -> Value:
    """Convert 64-bit integers to a narrower type that keeps only the lowest bits."""
    if dtype.is_integer() and dtype.bitwidth < 64:
        y = (y - dtype.min) % (1 << dtype.bitwidth) + dtype.min
    return stored(y, dtype)


def accumulated(
    x: Value, weights: Array, most: float, product: Callable[[Value, Array], Value]
) -> Value:
    """Return product(x, weights), a sum of products for each row of the weights, exactly although
    kernels compute in floats.

    `most`: the largest magnitude in `x`. If a sum may exceed the exact range of a float, x is split
    into digits that are multiplied one by one, and the weights into bytes, and the parts are added
    in doubles.
    """
    rows = largest_row(weights)
    if most * rows <= EXACT:
        return product(x, weights)
    bits = int(math.log2(EXACT / rows)) if rows <= EXACT else 0
    if bits < 2:
        high = np.floor(weights / 256)
        parts = [
            (accumulated(x, w.astype(np.float32), most, product), by)
            for w, by in ((weights - 256 * high, 1.0), (high, 256.0))
        ]
    else:
        parts, rest, by = [], x, 1.0
        while most >= 2**bits:
            above = floor(rest * 2.0**-bits)
            parts.append((product(rest - above * 2.0**bits, weights), by))
            rest, by, most = above, by * 2**bits, most // 2**bits + 1
        parts.append((product(rest, weights), by))
    wide = (double(part) * by if by != 1 else double(part) for part, by in parts)
    return functools.reduce(operator.add, wide)


def largest_row(weights: Array) -> float:
    """Return the largest sum of magnitudes of a row."""
    amounts = np.abs(weights.astype(np.float64)).reshape(weights.shape[0], -1)
    return float(amounts.sum(axis=1).max(initial=0))
