"""The discrete Fourier transform as two products with constant matrices; the short-time transform
as a convolution with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes
from converter.graph.infer import constant, rank_of
from converter.graph.sizes import arange
from converter.graph.value import array_type, optional
from converter.passes.decompositions.activations import is_float, x_of
from converter.passes.decompositions.table import Table

LONGEST = 4096  # elements along the axis: the matrices grow with its square


def dft(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a DFT with known sizes and a known axis.

    Real and imaginary parts are in the last axis (ONNX, DFT-20); the transformed axis is moved
    before it.
    """
    x, attrs = x_of(node), attributes(node)
    shape = None if x.shape is None else list(x.shape)
    axis = (
        np.array(-2) if len(node.inputs) < 3 or node.inputs[2] is None else constant(node.inputs[2])
    )
    if shape is None or axis is None or not is_float(x):
        return None
    rank = len(shape)
    position = int(axis.reshape(())) % rank
    given, size, parts = optional(node, 1), shape[position], shape[-1]
    if not isinstance(size, int) or not isinstance(parts, int) or position == rank - 1:
        return None
    halved = attrs["inverse"] and attrs["onesided"]
    n = _one(constant(given)) if given is not None else 2 * (size - 1) if halved else size
    if not 0 < n <= LONGEST:
        return None
    back = [*range(position), rank - 2, *range(position, rank - 2), rank - 1]
    if halved:
        real, imaginary = _parts(b, _fitted(b, x, position, n // 2 + 1), parts, position)
        y = _signal(b, real, imaginary, n, array_type(x))[..., None]
        return b.Transpose(y, perm=back) if position < rank - 2 else y
    real, imaginary = _parts(b, _fitted(b, x, position, n), parts, position)
    bins = n // 2 + 1 if attrs["onesided"] else n
    angle = 2 * np.pi * np.outer(arange(n), arange(bins)) / n
    dtype = array_type(x)
    factor = 1 / n if attrs["inverse"] else 1.0
    cosine, sine = ((f(angle) * factor).astype(dtype) for f in (np.cos, np.sin))
    if attrs["inverse"]:
        sine = -sine
    re, im = real @ cosine, real @ -sine
    if imaginary is not None:
        re, im = (re + imaginary @ sine, im + imaginary @ cosine)
    both = b.Concat(*(b.Unsqueeze(v, [rank - 1]) for v in (re, im)), axis=rank - 1)
    return b.Transpose(both, perm=back) if position < rank - 2 else both


def _signal(b: Builder, real: Value, imaginary: Value | None, n: int, dtype: Any) -> Value:
    """Return the real signal of `n` numbers whose transform begins with these bins: each bin stands
    for a second one too, except for the first, and the last of an even `n`.
    """
    bins = arange(n // 2 + 1)
    angle = 2 * np.pi * np.outer(bins, arange(n)) / n
    factor = np.where((bins == 0) | (2 * bins == n), 1, 2)[:, None] / n
    y = real @ (np.cos(angle) * factor).astype(dtype)
    return y if imaginary is None else y - imaginary @ (np.sin(angle) * factor).astype(dtype)


def _fitted(b: Builder, x: Value, position: int, n: int) -> Value:
    """Truncate the axis `position` or pad it with zeros to length n."""
    rank, size = rank_of(x) or 0, list(x.shape or ())[position]
    assert isinstance(size, int)
    if size > n:
        return b.Slice(x, [0], [n], [position])
    pads = [0] * (2 * rank)
    pads[rank + position] = n - size
    return b.Pad(x, pads) if size < n else x


def _parts(b: Builder, x: Value, parts: int, position: int) -> tuple[Value, Value | None]:
    """Return the real and imaginary parts with `position` as the last axis; the imaginary part of
    real data is None.
    """
    rank = rank_of(x) or 0
    if position < rank - 2:
        x = b.Transpose(
            x, perm=[*range(position), *range(position + 1, rank - 1), position, rank - 1]
        )
    pieces = [b.Squeeze(b.Slice(x, [i], [i + 1], [rank - 1]), [rank - 1]) for i in range(parts)]
    return pieces[0], pieces[1] if parts == 2 else None


def filtered(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite the STFT of signals [batch, length, 1], or complex ones [batch, length, 2], to
    [batch, frames, bins, 2].

    Each bin has two filters, for its real and its imaginary part, with the frame step as stride.
    Step, window and frame length must be known; the length of the signal need not.
    """
    x, onesided = x_of(node), attributes(node)["onesided"]
    step, window, size = (constant(optional(node, i)) for i in (1, 2, 3))
    if optional(node, 2) is not None and window is None:
        return None
    length = _one(size if window is None else np.array(window.size))
    parts, jump = list(x.shape or (None,))[-1], _one(step)
    if not length or not jump or length > LONGEST or parts not in (1, 2) or not is_float(x):
        return None
    if parts == 2 and onesided:
        return None
    bins = length // 2 + 1 if onesided else length
    angle = 2 * np.pi * np.outer(arange(bins), arange(length)) / length
    weight = np.ones(length) if window is None else window.reshape(-1).astype(np.float64)
    cosine, sine = np.cos(angle) * weight, np.sin(angle) * weight
    of_real, of_imaginary = [cosine, -sine], [sine, cosine]  # for each part of the data
    sources = [of_real] if parts == 1 else [of_real, of_imaginary]
    filters = np.stack([np.stack(source) for source in sources], axis=2)
    dtype = array_type(x)
    kernel = filters.reshape(2 * bins, len(sources), 1, length).astype(dtype)
    signal = b.Transpose(x, perm=[0, 2, 1])[:, :, None]
    y = b.Conv(signal, b.const(kernel, "filters"), strides=[1, jump])
    return b.Transpose(b.Reshape(y, [0, 2, bins, -1]), perm=[0, 3, 2, 1])


def _one(array: np.ndarray | None) -> int:
    """Return the element of an array of one element; 0 if there is none."""
    return 0 if array is None else int(array.reshape(()))


TABLE: Table = {
    ("", "DFT"): dft,
}
