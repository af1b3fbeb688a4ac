"""The numbers of a weight as a person wants to see them: range, mean, spread, a histogram."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    counts, _ = np.histogram(finite, BINS, (low, high) if high > low else (low - 0.5, low + 0.5))
    return found | {
        "low": _short(low),
        "high": _short(high),
        "mean": _short(float(finite.mean())),
        "std": _short(float(finite.std())),
        "zeros": int((finite == 0).sum()),
        "bars": counts.tolist(),
    }


def _short(value: float) -> float:
    return float(f"{value:.5g}")
