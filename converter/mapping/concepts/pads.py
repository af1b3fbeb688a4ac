"""The amounts of a Pad, before and after each axis."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.demands import axis_of
from converter.graph.infer import known
from converter.mapping.context import FIX_INPUTS, as_integers
from converter.mapping.fields import Field

Sizes = list[int]


class Pads(Field, abc.ABC):
    """Amounts before and after each axis <-> inputs 1 and 3 of a Pad, the amounts and their axes.

    A format implements `read` and `write`, and declares:

    `negative`  the modes in which amounts may be negative, which remove elements
    `last`      how many of the last axes can be padded in modes other than constant; 0 means all
    `computed`  whether `write_computed` writes amounts that are known only at run time
    """

    SPELLING = frozenset(
        {
            *("read", "write", "write_computed", "names", "keys", "inputs"),
            *("negative", "last", "computed"),
        }
    )
    inputs: tuple[int, ...] = (1, 3)
    negative: tuple[str, ...] = ()
    last = 0
    computed = False

    @abc.abstractmethod
    def read(self, r: Any) -> Any:
        """Return all amounts before the axes, then all amounts after them, as numbers or as a
        value.
        """

    @abc.abstractmethod
    def write(self, w: Any, before: Sizes, after: Sizes) -> None:
        """Complete the layer with padding amounts for all axes."""

    def write_computed(self, w: Any, amounts: ir.Value) -> None:
        """Complete the layer with amounts for all axes that are known only at run time. It is only
        called if the format declares `computed`.
        """
        raise TypeError(f"{type(self).__name__} has no computed amounts")

    def lift(self, r: Any) -> None:
        r.set_input(1, self.read(r))

    def lower(self, w: Any) -> None:
        rank, mode, amounts = w.rank(), w.attr("mode", "constant"), w.input(1)
        axes = axes_of(w, rank)
        numbers = known(amounts)
        every = axes == list(range(rank)) and (mode == "constant" or not self.last)
        if numbers is None and self.computed and every:
            self.write_computed(w, amounts)
            return
        if numbers is None or axes is None:
            message = "the amounts and axes of a Pad must be known at conversion time"
            raise MappingError(message, "X202", FIX_INPUTS)
        both = np.zeros((2, rank), np.int64)
        both[:, axes] = np.reshape(as_integers(numbers, "the amounts"), (2, -1))
        self.check_amounts(mode, both, rank)
        before, after = both.tolist()
        self.write(w, before, after)

    def check_amounts(self, mode: str, both: Any, rank: int) -> None:
        """Raise MappingError if the layer cannot express the amounts in this mode."""
        if (both < 0).any() and mode not in self.negative:
            raise MappingError(
                f"negative padding {both.reshape(-1).tolist()} is not supported with mode={mode!r}"
            )
        others = rank - self.last if self.last and mode != "constant" else 0
        if both[:, : max(0, others)].any():
            message = f"only the last {self.last} axes can be padded with mode={mode!r}"
            raise MappingError(message)


def axes_of(w: Any, rank: int) -> Sequence[int] | None:
    """Return the axes of the amounts, counted from the front, or None if they are unknown."""
    if not w.has(3):
        return list(range(rank))
    found = known(w.input(3))
    return None if found is None else [axis_of(int(a), rank) for a in found.reshape(-1)]
