"""Factors as multiplier * 2 ** -shift, as the integer layers hold them: 15 bits at most, shifts up to 31."""

from __future__ import annotations

from typing import Any

import numpy as np

from converter.formats.zhouyi.values import DType
from converter.graph.infer import Array

BITS, SHIFT = 15, 31
# multipliers below this are too coarse to share a shift with larger ones
_COARSE = 256


def approximate(factors: Any, bits: int = BITS) -> tuple[Array, Array]:
    """Multipliers and shifts of positive factors; a power of two that is 1 becomes 1 * 2 ** 0."""
    f = np.asarray(factors, np.float64)
    shifts = np.minimum(np.floor(np.log2((2.0**bits - 1) / f)), SHIFT).astype(np.int64)
    multipliers = np.floor(f * 2.0**shifts + 0.5).astype(np.int64)
    one = multipliers == 2.0**shifts
    return np.where(one, 1, multipliers), np.where(one, 0, shifts)


def per_channel(factors: Array) -> tuple[Array, Array]:
    """The same with one shift for all, which the hardware prefers, where no multiplier becomes coarse by it."""
    multipliers, shifts = approximate(factors)
    least = int(shifts.min())
    shared = np.floor(np.asarray(factors, np.float64) * 2.0**least + 0.5).astype(np.int64)
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
