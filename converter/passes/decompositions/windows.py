"""Windows that a target's pooling does not support, as convolutions with constant filters and as
maxima of slices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes, attrs_of
from converter.graph.infer import Array, constant, known, shape_of
from converter.graph.sizes import arange, demand_small, static
from converter.graph.value import FLOAT, optional
from converter.graph.verify.shapes_of import window_of
from converter.graph.walk import is_needed
from converter.passes.decompositions import fourier
from converter.passes.decompositions.activations import is_float, x_of
from converter.passes.decompositions.table import Table
from converter.record import record

MOST_TAPS = 64
MOST_WORK = 1 << 30  # additions to count the elements in each window


@record
class _Window:
    """A window; each member has one number per spatial axis.

    `data` and `out` are the sizes of the operand and the result, `begins` and `given` the padding
    before and after; `ends` is the padding after that the last windows actually reach.
    """

    data: Array
    out: Array
    kernel: Array
    strides: Array
    dilations: Array
    begins: Array
    given: Array
    ends: Array

    def taps(self) -> Iterator[tuple[Array, Array]]:
        """Yield, for each tap, its first position and the position after its last one."""
        for tap in np.ndindex(*self.kernel):
            start = np.array(tap) * self.dilations
            yield start, start + (self.out - 1) * self.strides + 1


def _window(node: ir.Node) -> _Window | None:
    a, shape, result = attributes(node), shape_of(x_of(node)), shape_of(node.outputs[0])
    if shape is None or result is None or a["auto_pad"] not in ("NOTSET", "VALID"):
        return None
    kernel, data, out = np.array(a["kernel_shape"]), np.array(shape[2:]), np.array(result[2:])
    strides, dilations, pads = (np.array(v) for v in window_of(node, kernel.size))
    begins, given = pads.reshape(2, -1)
    last = (out - 1) * strides
    if (last >= data + begins).any():
        return None  # a window that begins in the end padding, which does not count
    ends = last + (kernel - 1) * dilations + 1 - data - begins
    return _Window(data, out, kernel, strides, dilations, begins, given, ends)


def average_pool(node: ir.Node, b: Builder) -> Value | None:
    """Sum by a depthwise convolution with ones, and divide by the number of elements that count."""
    x, window = x_of(node), _window(node)
    if window is None or x.dtype is None or not is_float(x):
        return None
    if math.prod(window.kernel) * math.prod(window.out) > MOST_WORK:
        return None
    padded = window.data + window.begins + np.maximum(window.ends, 0)
    demand_small(*padded)
    counted, include = np.zeros(padded), attributes(node)["count_include_pad"]
    first = window.begins * (1 - include)
    behind = window.begins + window.data + window.given * include
    counted[tuple(map(slice, first, behind))] = 1
    numbers = np.zeros(window.out)
    for start, stop in window.taps():
        numbers += counted[tuple(map(slice, start, stop, window.strides))]
    dtype, channels = x.dtype.numpy(), static(x)[1]
    ones = b.const(np.ones([channels, 1, *window.kernel], dtype), "ones")
    axes = np.flatnonzero(window.ends < 0)
    if axes.size:  # crop elements that no window reaches, to avoid negative padding
        x = b.Slice(x, axes * 0, (window.data + window.ends)[axes], axes + 2)
    sums = b.Conv(
        x,
        ones,
        kernel_shape=window.kernel,
        strides=window.strides,
        dilations=window.dilations,
        pads=[*window.begins, *np.maximum(window.ends, 0)],
        group=channels,
    )
    return sums * b.const((1 / np.maximum(numbers, 1))[None, None].astype(dtype), "shares")


def max_pool(node: ir.Node, b: Builder) -> Value | Sequence[Value] | None:
    """Convert bytes to floats, which represent them exactly; for floats, take the maximum of the
    slices that the taps of the window cover.
    """
    x = x_of(node)
    if x.dtype not in (ir.DataType.INT8, ir.DataType.UINT8):
        return _largest(node, b)
    pooled = b.MaxPool(b.Cast(x, to=FLOAT), outputs=len(node.outputs), **attrs_of(node))
    return [b.Cast(pooled[0], to=x.dtype), *pooled[1:]]


def _largest(node: ir.Node, b: Builder) -> Value | None:
    """Pad with the least number."""
    x, window = x_of(node), _window(node)
    indices = len(node.outputs) > 1 and is_needed(node.outputs[1])
    if window is None or x.dtype is None or indices or math.prod(window.kernel) > MOST_TAPS:
        return None
    least = float(x.dtype.min) if is_float(x) else int(np.iinfo(x.dtype.numpy()).min)
    ends = np.maximum(window.ends, 0)
    if window.begins.any() or ends.any():
        x = b.Pad(x, [0, 0, *window.begins, 0, 0, *ends], least)
    axes = np.arange(window.out.size) + 2
    seen = (b.Slice(x, start, stop, axes, window.strides) for start, stop in window.taps())
    return reduce(b.Max, seen)


def col_to_image(node: ir.Node, b: Builder) -> Value | None:
    """Use a transposed convolution with one-hot filters: each of a channel's rows has its own
    tap.
    """
    x, shape, out = x_of(node), shape_of(x_of(node)), shape_of(node.outputs[0])
    block, image = known(node.inputs[2]), known(node.inputs[1])
    if shape is None or out is None or block is None or image is None:
        return None
    if x.dtype is None or not is_float(x):
        return None
    strides, dilations, pads = (np.array(v) for v in window_of(node, block.size))
    reach = (block - 1) * dilations + 1
    whole = image + pads.reshape(2, -1).sum(axis=0)
    steps = (whole - reach) // strides + 1
    taps, channels = math.prod(block.tolist()), out[1]
    demand_small(channels, taps, taps)
    one = np.eye(taps, dtype=x.dtype.numpy()).reshape(taps, 1, *block)
    return b.ConvTranspose(
        b.Reshape(x, [shape[0], channels * taps, *steps]),
        b.const(np.concatenate([one] * channels), "taps"),
        kernel_shape=block,
        strides=strides,
        dilations=dilations,
        pads=pads,
        output_padding=whole - (steps - 1) * strides - reach,
        group=channels,
    )


def short_time_fourier(node: ir.Node, b: Builder) -> Value | None:
    """Multiply the frames by the window and transform each: with filters if all operands but the
    signal are known, else frame by frame.
    """
    if (found := fourier.filtered(node, b)) is not None:
        return found
    x, shape = x_of(node), shape_of(x_of(node))
    step, window = known(node.inputs[1]), optional(node, 2)
    length = constant(optional(node, 3))
    size = int(length.reshape(())) if length is not None else (shape_of(window) or (0,))[0]
    if shape is None or step is None or not size:
        return None
    jump = int(step.reshape(()))
    positions = arange(0, shape[1] - size + 1, jump)[:, None] + arange(size)
    frames = b.Gather(x if len(shape) == 3 else x[:, :, None], positions, axis=1)
    if window is not None:
        frames = frames * b.Reshape(window, [size, 1])
    return b.DFT(frames, None, 2, onesided=attributes(node)["onesided"])


TABLE: Table = {
    ("", "AveragePool"): average_pool,
    ("", "MaxPool"): max_pool,
    ("", "Col2Im"): col_to_image,
    ("", "STFT"): short_time_fourier,
}
