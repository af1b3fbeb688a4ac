"""The numbers that the laws feed."""

from __future__ import annotations

from typing import Any

import numpy as np

# operators with nothing to give for negative numbers, such as boxes without an area
POSITIVE = {"GridProposals"}


def feeds_of(model: Any, op: str) -> dict[str, Any]:
    """Numbers for the inputs of a model whose only node has this operator."""
    rng, least = np.random.default_rng(0), 0.25 if op in POSITIVE else -3
    return {i.name: numbers(rng, i, least) for i in model.inputs}


def numbers(rng: np.random.Generator, port: Any, least: float = -3) -> Any:
    """Small numbers of the type and shape of an input; whole ones are indices, counts, divisors."""
    shape = [d if isinstance(d, int) else 2 for d in port.shape]
    dtype = np.dtype(port.dtype.numpy() if hasattr(port.dtype, "numpy") else port.dtype)
    if dtype.kind == "f":
        return rng.uniform(least, 3, shape).astype(dtype)
    low, high = (0, 2) if dtype.kind == "b" else (1, 4)
    return rng.integers(low, high, shape).astype(dtype)
