"""The statistics of a weight for people: range, mean, standard deviation, a histogram."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from converter.graph.infer import Array

BINS = 24
SAMPLED = 1 << 18  # elements that are read; every n-th of larger weights
PALETTE = 256  # distinct values at most
SHORT = 8  # elements of a constant that are listed one by one


def described(array: Array) -> dict[str, Any]:
    """Return "values" for a short constant; else "low", "high", "mean", "std", the numbers of
    "zeros" and "strange" (infinite or NaN) elements, of "distinct" values if they are few, "bars"
    between low and high, and "of", the number of elements that these describe. Texts have no
    statistics.
    """
    if array.dtype.kind in "OUS":
        return {"values": [str(v) for v in array.reshape(-1)[:SHORT]]}
    if array.size <= SHORT:
        return {"values": [f"{v:.6g}" for v in array.reshape(-1).astype(np.float64)]}
    flat = array.reshape(-1)
    flat = flat[:: -(-flat.size // SAMPLED)]
    part = flat.astype(np.float64)
    finite = part[np.isfinite(part)]
    found = {"of": int(part.size), "strange": int(part.size - finite.size)}
    if not finite.size:
        return found
    if (distinct := _distinct(flat)) and distinct < flat.size:
        found["distinct"] = distinct
    low, high = float(finite.min()), float(finite.max())
    scale = max(abs(low), abs(high)) or 1.0  # sums of numbers near the largest float overflow
    part = finite / scale
    return found | {
        "low": _short(low),
        "high": _short(high),
        "mean": _short(float(part.mean()) * scale),
        "std": _short(float(part.std()) * scale),
        "zeros": int((finite == 0).sum()),
        "bars": _bars(part).tolist(),
    }


def _distinct(flat: Array) -> int:
    """Return the number of distinct values of a palette; 0 if there are too many for one."""
    few = flat.dtype.itemsize > 1 and np.unique(flat[: 4 * PALETTE]).size <= PALETTE
    count = np.unique(flat).size if few else 0
    return count if count <= PALETTE else 0


def _bars(values: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Return the counts in BINS equal parts of the range; all in the middle if the range is
    empty.
    """
    low, width = values.min(), values.max() - values.min()
    share = (values - low) / width if width else np.full(values.shape, 0.5)
    return np.bincount(np.minimum((share * BINS).astype(np.intp), BINS - 1), minlength=BINS)


def _short(value: float) -> float:
    return float(f"{value:.5g}")
