"""Arrays that are made because a number in a file says so: none may fill the memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from converter.graph.infer import Array, InferenceError

LARGEST = 1 << 25  # entries


def demand_small(*sizes: int) -> None:
    """InferenceError when a table of these sizes, which a file asks for, would fill the memory (or
    when one of them is below zero).
    """
    if min(sizes, default=0) < 0 or math.prod(sizes) > LARGEST:
        raise InferenceError(
            f"a table of {' x '.join(map(str, sizes))} entries is impossible or too large"
        )


def arange(first: Any, last: Any = None, step: Any = 1, dtype: Any = None) -> Array:
    """numpy.arange, for bounds that may come from a file."""
    bounds: Any = (0, first, step) if last is None else (first, last, step)
    demand_small(max(0, math.ceil((bounds[1] - bounds[0]) / step)))
    found: Array = np.arange(*bounds, dtype=dtype)
    return found
