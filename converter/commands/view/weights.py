"""The numbers of a weight as a person wants to see them: range, mean, spread, a histogram."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from converter.graph.infer import Array

BINS = 24
SAMPLED = 1 << 18  # elements that are looked at; of larger weights each n-th
SHORT = 8  # elements of a constant that are told one by one


def described(array: Array) -> dict[str, Any]:
    """ "values" of a short constant; else "low", "high", "mean", "std", the "zeros" and "strange"
    (infinite or not a number) elements, "bars" between low and high, and "of", how many elements
    these are about. Texts have none of it.
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
    low, high = float(finite.min()), float(finite.max())
    scale = max(abs(low), abs(high)) or 1.0  # sums of what is near the largest float are none
    part = finite / scale
    return found | {
        "low": _short(low),
        "high": _short(high),
        "mean": _short(float(part.mean()) * scale),
        "std": _short(float(part.std()) * scale),
        "zeros": int((finite == 0).sum()),
        "bars": _bars(part).tolist(),
    }


def _bars(values: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Counts in BINS equal parts of the range; all in the middle where there is no range."""
    low, width = values.min(), values.max() - values.min()
    share = (values - low) / width if width else np.full(values.shape, 0.5)
    return np.bincount(np.minimum((share * BINS).astype(np.intp), BINS - 1), minlength=BINS)


def _short(value: float) -> float:
    return float(f"{value:.5g}")
