"""Weights of equal bytes, which a file stores once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from converter.graph.lazy_tensor import Array, LazyTensor

T = TypeVar("T")

_SAMPLES = 64  # elements that are compared before whole weights are
_MOST = 4  # weights with the same sample that are compared in full
_PART = 1 << 22  # bytes that are compared at once
_SMALL = 1 << 12  # bytes that a function computes for a comparison


class EqualWeights(Generic[T]):
    """A cache of the results for weights (such as their location in a file), shared by weights of
    equal bytes.

    Weights are equal if they are the same bytes in memory or in a file, or have equal contents. A
    sample of elements distinguishes most weights, so that whole weights are rarely compared. Large
    computed weights are compared only by the function that computes them.
    """

    def __init__(self) -> None:
        # holding on to the weights prevents the reuse of their addresses
        self._by_place: dict[LazyTensor, T] = {}
        self._by_sample: dict[tuple[Any, ...], list[tuple[Array, T]]] = {}

    def once(self, weight: LazyTensor, make: Callable[[], T]) -> T:
        """Return the result of `make` for the first weight of these bytes; call it only for new
        ones.
        """
        if weight not in self._by_place:
            self._by_place[weight] = self._by_content(weight, make)
        return self._by_place[weight]

    def _by_content(self, weight: LazyTensor, make: Callable[[], T]) -> T:
        if weight.length > _SMALL and not weight.is_view():
            return make()
        array = weight.stored()
        # elements of a format's own type may be stored differently
        kind = (weight.element, weight.size) if weight.element else ()
        alike = self._by_sample.setdefault((*kind, *_sample(array)), [])
        for other, made in alike:
            if _equal(array, other):
                return made
        made = make()
        if len(alike) < _MOST:
            alike.append((array, made))
        return made


def _sample(array: Array) -> tuple[Any, ...]:
    """Return some elements in C order, the same ones for each shape of the same size."""
    positions = np.linspace(0, array.size - 1, min(array.size, _SAMPLES)).astype(np.int64)
    chosen = array[np.unravel_index(positions, array.shape)] if array.ndim else array
    return array.size, array.itemsize, chosen.tobytes()


def _equal(first: Array, second: Array) -> bool:
    """Return whether two arrays with the same number and size of elements have equal bytes in C
    order.
    """
    if first.shape != second.shape:
        first, second = first.reshape(-1), second.reshape(-1)
    if first.itemsize in (1, 2, 4, 8):  # as integers: a NaN equals itself
        first, second = (a.view(f"u{a.itemsize}") for a in (first, second))
    if first.ndim == 0 or first.nbytes <= _PART:
        return _same_bytes(first, second)
    rows = max(1, _PART * len(first) // first.nbytes)
    parts = range(0, len(first), rows)
    return all(_same_bytes(first[i : i + rows], second[i : i + rows]) for i in parts)


def _same_bytes(first: Array, second: Array) -> bool:
    if first.dtype.kind == "u":
        return bool(np.array_equal(first, second))
    return first.tobytes() == second.tobytes()
