"""Windows that a target's own pooling cannot say, as convolutions with constant filters and as
maxima of slices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import constant, known, shape_of
from converter.graph.sizes import arange, demand_small
from converter.graph.value import optional
from converter.graph.verify.shapes_of import window_of
from converter.passes.decompositions import fourier
from converter.passes.decompositions.activations import is_float, x_of
from converter.passes.decompositions.table import Table

MOST_TAPS = 64
MOST_WORK = 1 << 30  # additions to count what is under each window


@dataclass(frozen=True)
class _Window:
    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    begins: list[int]
    ends: list[int]  # with as much more padding as the last windows reach beyond the data


def _window(node: ir.Node, shape: tuple[int, ...], out: tuple[int, ...]) -> _Window | None:
    a = attrs_of(node)
    if a.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    kernel = list(a["kernel_shape"])
    strides, dilations, pads = window_of(node, len(kernel))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if any(
        (o - 1) * s >= n + p for o, s, n, p in zip(out[2:], strides, shape[2:], pads, strict=False)
    ):
        return None  # a window that begins in the padding behind, which does not count
    needed = [
        (o - 1) * s + r - n - p
        for o, s, r, n, p in zip(out[2:], strides, reach, shape[2:], pads, strict=False)
    ]
    return _Window(kernel, strides, dilations, pads[: len(kernel)], needed)


def average_pool(node: ir.Node, b: Builder) -> Value | None:
    """A sum by a convolution of ones over each channel, times one over the number of elements that
    count.
    """
    x, shape, out = x_of(node), shape_of(x_of(node)), shape_of(node.outputs[0])
    window = _window(node, shape, out) if shape is not None and out is not None else None
    if shape is None or out is None or window is None or x.dtype is None or not is_float(x):
        return None
    if math.prod(window.kernel) * math.prod(out[2:]) > MOST_WORK:
        return None
    padded = [
        n + p + max(q, 0) for n, p, q in zip(shape[2:], window.begins, window.ends, strict=True)
    ]
    demand_small(*padded)
    counted = np.zeros(padded)
    given = attrs_of(node).get("pads") or [0] * 2 * len(window.kernel)
    include = attrs_of(node).get("count_include_pad", 0)
    edges = [
        slice(0 if include else p, p + n + (q if include else 0))
        for n, p, q in zip(shape[2:], window.begins, given[len(window.kernel) :], strict=True)
    ]
    counted[tuple(edges)] = 1
    numbers = np.zeros(out[2:])
    for tap in np.ndindex(*window.kernel):
        numbers += counted[
            tuple(
                slice(t * d, t * d + (o - 1) * s + 1, s)
                for t, d, o, s in zip(tap, window.dilations, out[2:], window.strides, strict=True)
            )
        ]
    dtype = x.dtype.numpy()
    ones = b.const(np.ones([shape[1], 1, *window.kernel], dtype), "ones")
    x, pads = _cut(b, x, shape, window)
    how: dict[str, Any] = {
        "kernel_shape": window.kernel,
        "strides": window.strides,
        "dilations": window.dilations,
        "pads": pads,
        "group": shape[1],
    }
    sums: Value = b.Conv(x, ones, **how)
    return sums * b.const((1 / np.maximum(numbers, 1))[None, None].astype(dtype), "shares")


def _cut(b: Builder, x: Value, shape: tuple[int, ...], window: _Window) -> tuple[Value, list[int]]:
    """What no window reaches is left away, so that no padding is negative."""
    ends = window.ends
    if any(e < 0 for e in ends):
        axes = [i + 2 for i, e in enumerate(ends) if e < 0]
        x = b.Slice(x, [0] * len(axes), [shape[i] + ends[i - 2] for i in axes], axes)
    return x, [*window.begins, *(max(e, 0) for e in ends)]


def max_pool(node: ir.Node, b: Builder) -> Value | Sequence[Value] | None:
    """Bytes as floats, which hold them exactly; floats as the largest of the slices that the taps
    of the window see.
    """
    x = x_of(node)
    if x.dtype not in (ir.DataType.INT8, ir.DataType.UINT8):
        return _largest(node, b)
    pooled = b.MaxPool(b.Cast(x, to=ir.DataType.FLOAT), outputs=len(node.outputs), **attrs_of(node))
    return [b.Cast(pooled[0], to=x.dtype), *pooled[1:]]


def _largest(node: ir.Node, b: Builder) -> Value | None:
    """The padding holds the least number."""
    x, shape, out = x_of(node), shape_of(x_of(node)), shape_of(node.outputs[0])
    window = _window(node, shape, out) if shape is not None and out is not None else None
    indices = len(node.outputs) > 1 and bool(
        node.outputs[1].uses() or node.outputs[1].is_graph_output()
    )
    if (
        window is None
        or out is None
        or x.dtype is None
        or indices
        or int(np.prod(window.kernel)) > MOST_TAPS
    ):
        return None
    dtype = x.dtype.numpy()
    least = float(ir.DataType(x.dtype).min) if is_float(x) else int(np.iinfo(dtype).min)
    ends = [max(e, 0) for e in window.ends]
    if any([*window.begins, *ends]):
        x = b.Pad(x, [0, 0, *window.begins, 0, 0, *ends], b.like(x, least))
    axes, y = list(range(2, len(out))), None
    for tap in np.ndindex(*window.kernel):
        start = [t * d for t, d in zip(tap, window.dilations, strict=True)]
        stop = [t + (o - 1) * s + 1 for t, o, s in zip(start, out[2:], window.strides, strict=True)]
        part = b.Slice(x, start, stop, axes, window.strides)
        y = part if y is None else b.Max(y, part)
    return y


def col_to_image(node: ir.Node, b: Builder) -> Value | None:
    """A transposed convolution whose filters are single ones: each of a channel's rows has its own
    tap.
    """
    x, shape, out = x_of(node), shape_of(x_of(node)), shape_of(node.outputs[0])
    block, image = known(node.inputs[2]), known(node.inputs[1])
    if (
        shape is None
        or out is None
        or block is None
        or image is None
        or x.dtype is None
        or not is_float(x)
    ):
        return None
    kernel = [int(n) for n in block]
    strides, dilations, pads = window_of(node, len(kernel))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    whole = [int(n) + p + q for n, p, q in zip(image, pads, pads[len(kernel) :], strict=False)]
    steps = [(w - r) // s + 1 for w, r, s in zip(whole, reach, strides, strict=True)]
    extra = [w - (n - 1) * s - r for w, n, s, r in zip(whole, steps, strides, reach, strict=True)]
    taps, channels = int(np.prod(kernel)), out[1]
    demand_small(channels, taps, taps)
    filters = np.tile(
        np.eye(taps, dtype=x.dtype.numpy()).reshape(taps, 1, *kernel),
        (channels, *[1] * (len(kernel) + 1)),
    )
    rows = b.Reshape(x, [shape[0], channels * taps, *steps])
    how: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "output_padding": extra,
        "group": channels,
    }
    y: Value = b.ConvTranspose(rows, b.const(filters, "taps"), **how)
    return y


def short_time_fourier(node: ir.Node, b: Builder) -> Value | None:
    """The frames, each times the window, and the spectrum of each: as filters, where all but the
    signal is known, else frame by frame.
    """
    if (found := fourier.filtered(node, b)) is not None:
        return found
    x, shape = x_of(node), shape_of(x_of(node))
    step, window = known(node.inputs[1]), optional(node, 2)
    length = (
        constant(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else None
    )
    size = (
        int(length.reshape(()))
        if length is not None
        else (shape_of(window) or (0,))[0]
        if window is not None
        else 0
    )
    if shape is None or step is None or not size:
        return None
    jump = int(step.reshape(()))
    places = arange(0, shape[1] - size + 1, jump)[:, None] + arange(size)
    frames = b.Gather(x if len(shape) == 3 else b.Unsqueeze(x, [2]), places, axis=1)
    if window is not None:
        frames = frames * b.Reshape(window, [size, 1])
    return b.DFT(frames, None, 2, onesided=attrs_of(node).get("onesided", 1))


TABLE: Table = {
    ("", "AveragePool"): average_pool,
    ("", "MaxPool"): max_pool,
    ("", "Col2Im"): col_to_image,
    ("", "STFT"): short_time_fourier,
}
