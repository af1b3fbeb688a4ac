"""Sizes that must be known, and arrays that are made because a number in a file says so: none may
fill the memory.
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
    """How many axes a value has; MappingError X203 where that is not known."""
    found = rank_of(value)
    if found is None:
        raise MappingError(f"the rank of {what} is unknown", "X203", FIX_INPUTS)
    return found


def static(
    value: ir.Value, what: str = "the input", axes: int | None = None, least: int = 0
) -> tuple[int, ...]:
    """The shape of a value; MappingError X203 where a size is not known, R105 where there are not
    so many `axes`, or not at `least` so many.
    """
    found = shape_of(value)
    if found is None:
        raise MappingError(f"the shape of {what} must be static", "X203", FIX_INPUTS)
    if len(found) != axes if axes is not None else len(found) < least:
        needed = f"at least {least}" if axes is None else str(axes)
        raise MappingError(f"{what} has {len(found)} axes, {needed} are needed", "R105")
    return found


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


def mirrored(size: int, before: int, after: int) -> Array:
    """The indices along an axis of `size` that is continued by its mirror image at both ends, the
    end itself included; MappingError R110 where that cannot be.
    """
    if min(before, after) < 0 or not size:
        raise MappingError(f"an axis of {size} is padded by {before} and {after}", "R110")
    demand_small(before + after)
    return np.pad(arange(size), (before, after), "symmetric")
