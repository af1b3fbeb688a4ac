"""Checks of attributes before they are used in computations; invalid values in damaged files raise
MappingError R110.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.lazy_tensor import Array
from converter.graph.value import array_type, type_name

Numbers = float | Sequence[float]


def at_least(least: float, **attributes: Numbers) -> None:
    """Refuse attributes that are, or contain, a number below `least` or NaN."""
    for name, v in _numbers(attributes):
        if not v >= least:
            raise MappingError(f"{name} must be at least {least}, got {v}", "R110")


def above(limit: float, **attributes: Numbers) -> None:
    """Refuse attributes that are, or contain, a number that is not above `limit`."""
    for name, v in _numbers(attributes):
        if not v > limit:
            raise MappingError(f"{name} must be above {limit}, got {v}", "R110")


def not_zero(**attributes: Numbers) -> None:
    """Refuse attributes that are, or contain, 0 or NaN, because they are used as divisors."""
    for name, v in _numbers(attributes):
        if not (v < 0 or v > 0):
            raise MappingError(f"{name} must not be 0 or NaN, got {v}", "R110")


def of_length(n: int, **attributes: Sequence[object]) -> None:
    """Refuse lists that do not have `n` elements."""
    for name, given in attributes.items():
        if len(given) != n:
            raise MappingError(f"{name} must have {n} elements, got {len(given)}", "R110")


def of_counts(n: int, **attributes: Sequence[float]) -> None:
    """Refuse lists that are not `n` integers of at least 1."""
    of_length(n, **attributes)
    for name, v in _numbers(attributes):
        if isinstance(v, float):
            raise MappingError(f"{name} must be an integer, got {v}", "R110")
    at_least(1, **attributes)


def broadcast(array: Array, shape: Sequence[int], what: str) -> Array:
    """Return an array in another shape; raise MappingError R110 if it does not broadcast to it."""
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        reason = f"{what} of the shape {list(array.shape)} does not broadcast to {list(shape)}"
        raise MappingError(reason, "R110") from None


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front; raise MappingError R110 if it is out of range."""
    if not -rank <= axis < max(rank, 1):
        raise MappingError(f"axis {axis} is outside the rank {rank}", "R110")
    return axis + rank if axis < 0 else axis


def shaped(array: np.ndarray[Any, Any], *shape: int, what: str) -> np.ndarray[Any, Any]:
    """Reshape an array; the shape may have one -1.

    Raise MappingError R110 if the number of elements differs.
    """
    try:
        return array.reshape(shape)
    except ValueError:
        raise MappingError(
            f"{what} has {array.size} elements, {' x '.join(map(str, shape))} are needed", "R110"
        ) from None


def floating_type(value: ir.Value) -> np.dtype[Any]:
    """Return the numpy type of floating-point data, float32 if it is unknown.

    Raise MappingError R105 for other data.
    """
    if value.dtype is not None and not value.dtype.is_floating_point():
        raise MappingError(
            f"the input must be floating-point, got {type_name(value.dtype)}", "R105"
        )
    return array_type(value)


def representable(value: Any, dtype: Any, what: str) -> np.ndarray[Any, Any]:
    """Return a number, or a list of numbers, in a numpy type.

    Raise MappingError R110 if the type cannot represent it.
    """
    try:
        return np.array(value, dtype)
    except (ValueError, TypeError, OverflowError):
        raise MappingError(
            f"{what}={str(value)[:200]} cannot be represented as {np.dtype(dtype)}", "R110"
        ) from None


def _numbers(attributes: Mapping[str, Numbers]) -> Iterator[tuple[str, float]]:
    """Yield each number with the name of its attribute."""
    for name, given in attributes.items():
        for v in given if isinstance(given, Sequence) else [given]:
            yield name, v
