"""Fourier transforms. Complex numbers are pairs on the last axis; ONNX's DFT does one axis at a time."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.special.base import Emit, attributes, filled, given, ints, lifts, lowers, near_axis, operand, optional, rank, static
from converter.graph.build import Builder
from converter.graph.infer import known, rank_of
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node


def _sizes(layer: Layer, axes: list[int]) -> list[int | None]:
    """The transform's length per axis; -1 and an absent input mean the length of the data."""
    found = optional(layer, 2)
    wanted = ints(found, "the signal size") if found is not None else [-1] * len(axes)
    if len(wanted) != len(axes):
        raise MappingError(f"{len(wanted)} sizes for {len(axes)} axes", "R105")
    return [None if v == -1 else v for v in wanted]


def _fitted(b: Builder, x: ir.Value, axis: int, size: int | None) -> ir.Value:
    """Cut or filled up with zeros to `size`."""
    if size is None or static(x)[axis] == size:
        return x
    if size < static(x)[axis]:
        return b.op("Slice", x, [0], [size], [axis])
    pads = [0] * (2 * rank(x))
    pads[rank(x) + axis] = size - static(x)[axis]
    return b.op("Pad", x, pads)


@lifts("DFT", "IDFT")
def lift_dft(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer)
    x = operand(layer, 0)
    axes = [near_axis(a, rank(x) - 1) for a in ints(operand(layer, 1), "the axes")]
    for axis, size in zip(axes, _sizes(layer, axes), strict=True):
        x = b.op("DFT", _fitted(b, x, axis, size), None, b.const(np.int64(axis)), inverse=int(layer.kind == "IDFT"))
    return x


@lifts("RDFT")
def lift_rdft(layer: Layer, b: Builder) -> ir.Value:
    """Real in, the first half of the spectrum along the last of the axes out."""
    attributes(layer)
    x = operand(layer, 0)
    axes = [near_axis(a, rank(x)) for a in ints(operand(layer, 1), "the axes")]
    for axis, size in zip(axes, _sizes(layer, axes), strict=True):
        x = _fitted(b, x, axis, size)
    y = b.op("DFT", b.op("Unsqueeze", x, [-1]), None, b.const(np.int64(axes[-1])), onesided=1)
    for axis in axes[:-1]:
        y = b.op("DFT", y, None, b.const(np.int64(axis)))
    return y


@lifts("IRDFT")
def lift_irdft(layer: Layer, b: Builder) -> ir.Value:
    """Half a spectrum in, real out: the other half of the last axis is the first, mirrored and conjugated."""
    attributes(layer)
    x = operand(layer, 0)
    axes = [near_axis(a, rank(x) - 1) for a in ints(operand(layer, 1), "the axes")]
    sizes = _sizes(layer, axes)
    wanted = [*sizes[:-1], None if sizes[-1] is None else sizes[-1] // 2 + 1]
    if any(w is not None and w > static(x)[axis] for axis, w in zip(axes, wanted, strict=True)):
        raise MappingError("a signal size beyond the data: engines do not agree with the specification here")
    for axis, size in zip(axes[:-1], sizes[:-1], strict=True):
        x = b.op("DFT", _fitted(b, x, axis, size), None, b.const(np.int64(axis)), inverse=1)
    last = axes[-1]
    size = sizes[-1] if sizes[-1] is not None else 2 * (static(x)[last] - 1)
    return b.op("Squeeze", real_inverse(b, _fitted(b, x, last, size // 2 + 1), last, size), [-1])


def real_inverse(b: Builder, half: ir.Value, axis: int, size: int) -> ir.Value:
    """The inverse transform of a half spectrum, whose result is real: [.., size, .., 1]."""
    mirrored = size - (size // 2 + 1)
    whole = half
    if mirrored:
        turned = b.op("Slice", half, [mirrored], [0], [axis], [-1])
        whole = b.op("Concat", half, b.op("Mul", turned, b.const(np.array([1, -1], (half.dtype or ir.DataType.FLOAT).numpy()))), axis=axis)
    return b.op("Slice", b.op("DFT", whole, None, b.const(np.int64(axis)), inverse=1), [0], [1], [-1])


@lowers("DFT")
def lower_dft(node: Node, low: Lowering) -> None:
    """Complex input: DFT and IDFT. Real input: RDFT when half of the spectrum is asked for, else with zeros as imaginary part."""
    a, x, e = filled(node), given(node, 0), Emit(node, low)
    n = rank_of(x)
    if n is None or x.shape is None:
        raise MappingError("the rank of the input is unknown", "X203")
    axis_at, length = node.input(2), node.input(1)
    found = known(axis_at) if axis_at is not None else np.array(-2)
    if found is None or (length is not None and known(length) is None):
        raise MappingError("the axis and the length must be constant")
    axis = int(found.reshape(-1)[0])
    axis += n if axis < 0 else 0
    size = [] if length is None else [np.array(known(length)).reshape(1).astype(np.int64)]
    real = x.shape[-1] == 1
    if a["onesided"]:
        if not real or a["inverse"] or low.version < 9:
            raise MappingError("half a spectrum of this input cannot be expressed")
        e.out("RDFT", e.op("Squeeze", x, [n - 1]), [axis], *size)
        return
    if real:
        x = e.op("Concat", x, e.op("Multiply", x, np.zeros((), (x.dtype or ir.DataType.FLOAT).numpy()), auto_broadcast="numpy"), axis=n - 1)
    e.out("IDFT" if a["inverse"] else "DFT", x, [axis], *size)


@lifts("STFT")
def lift_stft(layer: Layer, b: Builder) -> ir.Value:
    """(signal [N, L] or [L], window, frame size, frame step) -> [N, bins, frames, 2], or frames first with `transpose_frames=false`."""
    a = attributes(layer, transpose_frames=bool)
    x, window = operand(layer, 0), operand(layer, 1)
    size, step = (ints(operand(layer, i), what)[0] for i, what in ((2, "the frame size"), (3, "the frame step")))
    signal = b.op("Unsqueeze", x, [0]) if rank(x) == 1 else x
    width = static(window, "the window")[0]
    if width < size:
        window = b.op("Pad", window, [(size - width) // 2, size - width - (size - width) // 2])
    count = (static(signal)[1] - size) // step + 1
    index = np.arange(count)[:, None] * step + np.arange(size)[None, :]
    frames = b.op("Mul", b.op("Gather", signal, index, axis=1), window)
    y = b.op("DFT", b.op("Unsqueeze", frames, [-1]), None, b.const(np.int64(2)), onesided=1)
    y = b.op("Transpose", y, perm=[0, 2, 1, 3]) if a.transpose_frames else y
    return b.op("Squeeze", y, [0]) if rank(x) == 1 else y


@lifts("ISTFT")
def lift_istft(layer: Layer, b: Builder) -> ir.Value:
    """([N, bins, frames, 2], window, frame size, frame step[, length]): overlapped, added and divided by the squared windows."""
    a = attributes(layer, center=bool, normalized=bool)
    x, window = operand(layer, 0), operand(layer, 1)
    size, step = (ints(operand(layer, i), what)[0] for i, what in ((2, "the frame size"), (3, "the frame step")))
    length = optional(layer, 4)
    data = b.op("Unsqueeze", x, [0]) if rank(x) == 3 else x
    batch, _, frames, _ = static(data)
    width = static(window, "the window")[0]
    if width < size:
        window = b.op("Pad", window, [(size - width) // 2, size - width - (size - width) // 2])
    parts = b.op("Squeeze", real_inverse(b, b.op("Transpose", data, perm=[0, 2, 1, 3]), 2, size), [-1])
    if a.normalized:
        parts = b.op("Mul", parts, b.like(parts, float(np.sqrt(size))))
    total = (frames - 1) * step + size
    places = (np.arange(frames)[:, None] * step + np.arange(size)[None, :]).reshape(1, -1)
    zeros = b.const(np.zeros((batch, total), (x.dtype or ir.DataType.FLOAT).numpy()))
    at = b.const(np.broadcast_to(places, (batch, places.size)).copy())
    added = b.op("ScatterElements", zeros, at, b.op("Reshape", b.op("Mul", parts, window), [batch, -1]), axis=1, reduction="add")
    squares = b.op("Expand", b.op("Mul", window, window), [batch, frames, size])
    weight = b.op("ScatterElements", zeros, at, b.op("Reshape", squares, [batch, -1]), axis=1, reduction="add")
    tiny = b.op("Less", weight, b.like(weight, 1e-10))
    y = b.op("Where", tiny, added, b.op("Div", added, weight))
    if a.center:
        y = b.op("Slice", y, [size // 2], [total - size // 2], [1])
    if length is not None:
        wanted = ints(length, "the length")[0]
        y = _fitted(b, y, 1, wanted) if static(y)[1] < wanted else b.op("Slice", y, [0], [wanted], [1])
    return b.op("Squeeze", y, [0]) if rank(x) == 3 else y
