"""Weights of the same bytes, which a file holds once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from converter.graph.lazy_tensor import Array, LazyTensor

T = TypeVar("T")

_SAMPLES = 64  # elements that are looked at before whole weights are compared
_MOST = 4  # weights of one sample that are compared in full
_PART = 1 << 22  # bytes that are compared at once
_SMALL = 1 << 12  # bytes that a function makes to be compared


class EqualWeights(Generic[T]):
    """What was made of the first of the weights that store the same bytes: its place in a file.

    Weights are the same when they are the same bytes of memory or file, or equal in content. A few
    elements tell most weights apart, so that only equal ones are read as a whole. Large weights
    that a function computes are compared by the function alone.
    """

    def __init__(self) -> None:
        # the weights are kept, so that no other comes to lie at their address
        self._by_place: dict[LazyTensor, T] = {}
        self._by_sample: dict[tuple[Any, ...], list[tuple[Array, T]]] = {}

    def once(self, weight: LazyTensor, make: Callable[[], T]) -> T:
        """What `make` gave for the first weight of these bytes; it is called for new ones only."""
        if weight not in self._by_place:
            self._by_place[weight] = self._by_content(weight, make)
        return self._by_place[weight]

    def _by_content(self, weight: LazyTensor, make: Callable[[], T]) -> T:
        if weight.length > _SMALL and not weight.is_view():
            return make()
        array = weight.stored()
        # the numbers of an element type of a format's own need not be written as they are stored
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
    """Some elements in C order, the same ones in each shape of as many elements."""
    places = np.linspace(0, array.size - 1, min(array.size, _SAMPLES)).astype(np.int64)
    chosen = array[np.unravel_index(places, array.shape)] if array.ndim else array
    return array.size, array.itemsize, chosen.tobytes()


def _equal(first: Array, second: Array) -> bool:
    """Whether two arrays of as many elements of one size have the same bytes in C order."""
    if first.shape != second.shape:
        first, second = first.reshape(-1), second.reshape(-1)
    if first.ndim == 0 or first.nbytes <= _PART:
        return first.tobytes() == second.tobytes()
    rows = max(1, _PART * len(first) // first.nbytes)
    return all(
        first[i : i + rows].tobytes() == second[i : i + rows].tobytes()
        for i in range(0, len(first), rows)
    )
