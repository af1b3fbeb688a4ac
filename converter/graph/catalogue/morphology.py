"""Grayscale morphology: windows that are added to the data, of which the maximum or minimum is
taken.

Layout N, C, H, W.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.demands import of_counts, of_length
from converter.graph.extensions import extension
from converter.graph.sizes import static


def _windows(
    b: Builder,
    x: Value,
    w: Value,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    border: float,
) -> list[Value]:
    """Return, for every position of the kernel, the data under it, [N, C, h, w]; `border` is the
    padding value.
    """
    shape, kernel = static(x), static(w, "the filter")
    if x.dtype is not None and x.dtype.is_integer():
        raise MappingError("morphology of integers is not supported")
    of_counts(2, strides=strides, dilations=dilations)
    of_length(4, pads=pads)
    of_counts(3, kernel=kernel)
    top, left, bottom, right = pads
    padded = b.Pad(x, [0, 0, top, left, 0, 0, bottom, right], border)
    size = [shape[2] + top + bottom, shape[3] + left + right]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel[1:], dilations, strict=True)]
    counts = [(n - span) // s + 1 for n, span, s in zip(size, spans, strides, strict=True)]
    found = []
    for i in range(kernel[1]):
        for j in range(kernel[2]):
            first = [i * dilations[0], j * dilations[1]]
            last = [f + (c - 1) * s + 1 for f, c, s in zip(first, counts, strides, strict=True)]
            found.append(b.Slice(padded, first, last, [2, 3], list(strides)))
    return found


def _weights(b: Builder, w: Value, flip: bool) -> list[Value]:
    """Return the kernel's values position by position, each [C, 1, 1]."""
    _, h, width = static(w)
    positions = [(i, j) for i in range(h) for j in range(width)]
    positions = positions[::-1] if flip else positions
    return [w[:, i : i + 1, j : j + 1] for i, j in positions]


@extension(x=4, w=3)
def Dilation2D(
    b: Builder,
    x: Value,
    w: Value,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> Value:
    """y[n,c,i,j] = max over (p,q) of x[n,c,i*s+p*d,j*s+q*d] + w[c,p,q]; the padding never wins.

    pads: top, left, bottom, right. x[N, C, H, W], w[C, P, Q] -> [N, C, H', W']. Source: TensorFlow,
    Dilation2D.
    """
    lowest = float(np.finfo(np.float32).min)
    seen = _windows(b, x, w, strides, pads, dilations, lowest)
    return reduce(b.Max, [v + k for v, k in zip(seen, _weights(b, w, flip=False), strict=True)])


@extension(x=4, w=3)
def Erosion2D(
    b: Builder,
    x: Value,
    w: Value,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> Value:
    """y[n,c,i,j] = min over (p,q) of x[n,c,i*s+p*d,j*s+q*d] - w[c,P-1-p,Q-1-q]; the padding never
    wins. pads: top, left, bottom, right.

    x[N, C, H, W], w[C, P, Q] -> [N, C, H', W']. Source: TensorFlow, erosion2d.
    """
    highest = float(np.finfo(np.float32).max)
    seen = _windows(b, x, w, strides, pads, dilations, highest)
    return reduce(b.Min, [v - k for v, k in zip(seen, _weights(b, w, flip=True), strict=True)])
