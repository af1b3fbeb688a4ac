"""Factors as multiplier * 2 ** -shift, as the integer layers hold them: 15 bits at most, shifts up to 31."""

from __future__ import annotations

from typing import Any

import numpy as np

from converter.formats.zhouyi.values import DType
from converter.graph.infer import Array

BITS, SHIFT = 15, 31
# multipliers below this are too coarse to share a shift with larger ones
_COARSE = 256


def approximate(factors: Any) -> tuple[Array, Array]:
    """Multipliers and shifts of positive factors; what is 1 becomes 1 * 2 ** 0."""
    multipliers, shifts = _fitted(np.asarray(factors, np.float64))
    one = multipliers == 2.0**shifts
    return np.where(one, 1, multipliers), np.where(one, 0, shifts)


def _fitted(factors: Array) -> tuple[Array, Array]:
    shifts = np.minimum(np.floor(np.log2((2.0**BITS - 1) / factors)), SHIFT).astype(np.int64)
    return np.floor(factors * 2.0**shifts + 0.5).astype(np.int64), shifts


def per_channel(factors: Any) -> tuple[Array, Array]:
    """The same with one shift for all, which the hardware prefers, where no multiplier becomes coarse by it."""
    array = np.asarray(factors, np.float64)
    multipliers, shifts = _fitted(array)
    least = int(shifts.min())
    shared = np.floor(array * 2.0**least + 0.5).astype(np.int64)
    if least >= 0 and shared.min() >= min(_COARSE, multipliers.min()):
        return shared, np.full_like(shifts, least)
    return multipliers, shifts


def scalar_keys(factor: float) -> dict[str, Any]:
    """`scale_value`, `shift_value` and their types for one factor."""
    multiplier, shift = approximate(factor)
    return {"scale_value": int(multiplier), "scale_type": DType.UINT16, "shift_value": int(shift), "shift_type": DType.INT8}


def channel_constants(factors: Array) -> dict[str, Array]:
    """The constants `scale` and `shift` for one factor per channel."""
    multipliers, shifts = per_channel(factors)
    return {"scale": multipliers.astype(np.uint16), "shift": shifts.astype(np.int8)}
