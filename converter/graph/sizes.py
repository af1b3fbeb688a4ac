"""Sizes that must be known, and arrays whose size is read from a file: none may exhaust the
memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.infer import Array, InferenceError, rank_of, shape_of

LARGEST = 1 << 25  # entries
FIX_INPUTS = "fix the shapes with --inputs"


def rank(value: ir.Value, what: str = "the input") -> int:
    """Return the rank of a value; raise MappingError X203 if it is unknown."""
    found = rank_of(value)
    if found is None:
        raise MappingError(f"the rank of {what} is unknown", "X203", FIX_INPUTS)
    return found


def static(
    value: ir.Value, what: str = "the input", axes: int | None = None, least: int = 0
) -> tuple[int, ...]:
    """Return the static shape of a value.

    Raise MappingError X203 if a size is unknown, and R105 unless the rank is `axes`, or at least
    `least`.
    """
    found = shape_of(value)
    if found is None:
        raise MappingError(f"the shape of {what} must be static", "X203", FIX_INPUTS)
    if len(found) != axes if axes is not None else len(found) < least:
        needed = f"at least {least}" if axes is None else str(axes)
        raise MappingError(f"{what} must have {needed} axes, got {len(found)}", "R105")
    return found


def demand_small(*sizes: int) -> None:
    """Raise InferenceError if a table of these sizes, which a file specifies, would exhaust the
    memory, or if a size is negative.
    """
    if min(sizes, default=0) < 0 or math.prod(sizes) > LARGEST:
        raise InferenceError(f"a table of {' x '.join(map(str, sizes))} entries is too large")


def arange(first: Any, last: Any = None, step: Any = 1, dtype: Any = None) -> Array:
    """Return numpy.arange for bounds that may come from a file."""
    bounds: Any = (0, first, step) if last is None else (first, last, step)
    demand_small(max(0, math.ceil((bounds[1] - bounds[0]) / step)))
    found: Array = np.arange(*bounds, dtype=dtype)
    return found


def mirrored(size: int, before: int, after: int) -> Array:
    """Return the indices along an axis of `size` that is extended by its mirror image at both ends,
    including the edge elements.

    Raise MappingError R110 if the axis is empty or an amount is negative.
    """
    if min(before, after) < 0 or not size:
        raise MappingError(
            f"an axis of size {size} cannot be padded by {before} and {after}", "R110"
        )
    demand_small(before + after)
    return np.pad(arange(size), (before, after), "symmetric")
