"""Running aggregates along an axis."""

from __future__ import annotations

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.demands import axis_of
from converter.graph.extensions import extension
from converter.graph.sizes import static


@extension
def CumProd(b: Builder, x: Value, *, axis: int, exclusive: int = 0, reverse: int = 0) -> Value:
    """Products of all elements up to (exclusive: before) each one along `axis`, from the end when
    `reverse`. Same shape as x.

    By doubling: after step k each element is the product of the 2^k elements up to it.
    """
    shape = static(x)
    axis = axis_of(axis, len(shape))
    y, step = _shifted(b, x, axis, 1, reverse) if exclusive else x, 1
    while step < shape[axis]:
        y = y * _shifted(b, y, axis, step, reverse)
        step *= 2
    return y if y is not x else b.Identity(x)


def _shifted(b: Builder, x: Value, axis: int, by: int, reverse: int) -> Value:
    """Shift along an axis by `by` elements, filling with ones."""
    kept = (
        b.Slice(x, [by], [np.iinfo(np.int64).max], [axis])
        if reverse
        else b.Slice(x, [0], [-by], [axis])
    )
    return b.Pad(kept, [0, by] if reverse else [by, 0], 1, [axis])
