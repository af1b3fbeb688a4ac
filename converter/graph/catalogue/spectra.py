"""Fourier transforms of real signals, whole and in overlapping frames.

Complex numbers are pairs on the last axis.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.demands import at_least, axis_of, floating_type
from converter.graph.extensions import SOME, extension
from converter.graph.infer import rank_of
from converter.graph.sizes import arange, static
from converter.graph.value import array_type, with_operators


def fitted(b: Builder, x: ir.Value, axis: int, size: int | None) -> Value:
    """Truncate an axis or pad it with zeros to `size`; None and -1 leave it unchanged."""
    if size is None or size == -1:
        return with_operators(x)
    rank = rank_of(x)
    found = None if x.shape is None else x.shape[axis_of(axis, x.shape.rank())]
    if rank is None or not isinstance(found, int):
        raise MappingError("the length of the signal must be static", "X203")
    if size == found:
        return with_operators(x)
    if size < found:
        return b.Slice(x, [0], [size], [axis])
    pads = [0] * (2 * rank)
    pads[rank + axis] = size - found
    return b.Pad(x, pads)


@extension(x=SOME)
def RealDFT(b: Builder, x: Value, *, axes: list[int], sizes: list[int]) -> Value:
    """Return the first half of the spectrum of real numbers, along the last of the axes; `sizes`
    are those of the signal, -1 those of the data.

    x[...] -> [..., 2], real and imaginary parts, with sizes[-1] / 2 + 1 elements along the last of
    the axes. Source: OpenVINO, RDFT-9.
    """
    for axis, size in zip(axes, sizes, strict=True):
        x = fitted(b, x, axis, size)
    y = b.DFT(x[..., None], None, axes[-1], onesided=1)
    for axis in axes[:-1]:
        y = b.DFT(y, None, axis)
    return y


@extension(x=SOME)
def InverseRealDFT(b: Builder, x: Value, *, axes: list[int], sizes: list[int]) -> Value:
    """Return the real signal of half a spectrum; the other half along the last of the axes is the
    first half, mirrored and conjugated.

    x[..., 2], real and imaginary parts -> [...]; `sizes` are those of the result, -1 for 2 *
    (elements - 1) along the last of the axes. Source: OpenVINO, IRDFT-9.
    """
    for axis, size in zip(axes[:-1], sizes[:-1], strict=True):
        x = b.DFT(fitted(b, x, axis, size), None, axis, inverse=1)
    last = axes[-1]
    size = sizes[-1]
    if size == -1:
        shape = static(x)
        size = 2 * (shape[axis_of(last, len(shape))] - 1)
    return b.Squeeze(_real_inverse(b, fitted(b, x, last, size // 2 + 1), last, size), [-1])


def _real_inverse(b: Builder, half: Value, axis: int, size: int) -> Value:
    """Return the inverse transform of a half spectrum, whose result is real: [.., size, .., 1]."""
    floating_type(half)
    mirrored = size - (size // 2 + 1)
    whole = half
    if mirrored:
        conjugate = b.Slice(half, [mirrored], [0], [axis], [-1])
        whole = b.Concat(
            half,
            conjugate * b.const(np.array([1, -1], array_type(half))),
            axis=axis,
        )
    return b.DFT(whole, None, axis, inverse=1)[..., :1]


def _window(b: Builder, window: Value, size: int) -> Value:
    """Return the window, padded on both sides to the length of a frame."""
    width = static(window)[0]
    return (
        b.Pad(window, [(size - width) // 2, size - width - (size - width) // 2])
        if width < size
        else window
    )


@extension(x=range(1, 3), window=1)
def FramedDFT(
    b: Builder, x: Value, window: Value, *, size: int, step: int, bins_first: int = 0
) -> Value:
    """Half spectra of frames of `size` numbers at intervals of `step`, times the window: [N, L] ->
    [N, frames, bins, 2], with `bins_first` [N, bins, frames, 2].

    A signal [L] results in the same without N. window[size or less]; bins = size / 2 + 1; the last
    axis is real and imaginary part. Source: OpenVINO, STFT-15.
    """
    at_least(1, size=size, step=step)
    alone = rank_of(x) == 1
    signal = x[None] if alone else x
    count = (static(signal)[1] - size) // step + 1
    index = arange(count)[:, None] * step + arange(size)[None, :]
    frames = b.Gather(signal, index, axis=1) * _window(b, window, size)
    y = b.DFT(frames[..., None], None, 2, onesided=1)
    y = b.Transpose(y, perm=[0, 2, 1, 3]) if bins_first else y
    return b.Squeeze(y, [0]) if alone else y


@extension(x=range(3, 5), window=1)
def InverseFramedDFT(
    b: Builder,
    x: Value,
    window: Value,
    *,
    size: int,
    step: int,
    length: int = -1,
    center: int = 0,
    normalized: int = 0,
) -> Value:
    """[N, bins, frames, 2] -> [N, L]: inverse transforms of the frames, times the window, added
    where they overlap and divided by the sum of squared windows.

    `center` removes half a frame at the beginning and, without `length`, at the end; `normalized`
    multiplies by the root of `size`. window[size or less]; length: L, -1 for all of it. Source:
    OpenVINO, ISTFT-16.
    """
    alone = rank_of(x) == 3
    data = x[None] if alone else x
    batch, _, frames, _ = static(data)
    window = _window(b, window, size)
    parts = b.Squeeze(_real_inverse(b, b.Transpose(data, perm=[0, 2, 1, 3]), 2, size), [-1])
    if normalized:
        parts = parts * float(np.sqrt(size))
    total = (frames - 1) * step + size
    positions = (arange(frames)[:, None] * step + arange(size)[None, :]).reshape(1, -1)
    zeros = b.const(np.zeros((batch, total), array_type(x)))
    at = b.const(np.broadcast_to(positions, (batch, positions.size)).copy())
    added = b.ScatterElements(
        zeros, at, b.Reshape(parts * window, [batch, -1]), axis=1, reduction="add"
    )
    squares = b.Expand(window * window, [batch, frames, size])
    weight = b.ScatterElements(zeros, at, b.Reshape(squares, [batch, -1]), axis=1, reduction="add")
    tiny = weight < 1e-10
    y = b.Where(tiny, added, added / weight)
    first = size // 2 if center else 0
    if length >= 0:
        y = fitted(b, y[:, first:total], 1, length)
    elif first:
        y = y[:, first : total - first]
    return b.Squeeze(y, [0]) if alone else y
