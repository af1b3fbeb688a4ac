"""Pooling and normalisation across channels."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import IntegerReading, IntegerWriting, Written
from converter.formats.zhouyi.quantization.requantize import UINT16, real, rescale, scalar_keys
from converter.formats.zhouyi.rules.fields import Window, words
from converter.formats.zhouyi.rules.pooling import overhang
from converter.graph import CHANNELS_LAST_DOMAIN
from converter.graph.infer import Array
from converter.graph.sizes import arange
from converter.graph.value import Value, with_operators
from converter.mapping.codecs import enum
from converter.mapping.node import Node


def lift_pooling(r: IntegerReading) -> Value:
    """MAX on the stored integers; AVG as sum times an 8-bit approximation of 1 / number, for each
    place, from scale to scale.

    L1 is the sum of amounts times a factor; L2 the root of the sum of squares, from a table for
    16-bit integers.
    """
    layer, b, x, r.node = r.layer, r.b, r.input(0), Node("")
    Window().lift(r)
    attrs = r.node.attrs
    method = r.attr("method", enum(words("MAX AVG L1 L2")))
    size = list(r.static(x)[1:-1])
    over = overhang(layer, size, attrs)
    if method == "MAX":
        y = real(b, x, narrow=True)
        return r.stored(_pool(r, "MaxPool", y, **attrs, ceil_mode=int(any(over))))
    if attrs["dilations"] != [1, 1]:
        raise MappingError("sums over dilated windows have no integer form here")
    y = r.real(narrow=True)
    if method == "L1":
        return r.requantized(_sums(r, b.Abs(y), attrs, over))
    if method == "L2":
        total = rescale(b, _sums(r, y * y, attrs, over), r.factor, 0, UINT16)
        return r.stored(r.looked_up(total, "sqrt_lut", 16, False))
    total = _sums(r, y, attrs, over)
    areas = _areas(r, size, r.static(total)[1:3], attrs)
    return r.requantized(total, _approximate(r.tensors.ratio / areas))


def lift_volumes(r: IntegerReading) -> Value:
    """MAX, on the stored integers."""
    if r.attr("method", str).upper() != "MAX":
        raise MappingError("how are the means of volumes with a border rounded, in which order?")
    return r.stored(r.as_numbers(real(r.b, r.input(0), narrow=True)))


def _pool(r: IntegerReading, op: str, x: Value, **attrs: Any) -> Value:
    return with_operators(r.b.op(op, x, domain=CHANNELS_LAST_DOMAIN, **attrs))


def _sums(r: IntegerReading, y: Value, attrs: dict[str, list[int]], over: list[int]) -> Value:
    """The sum of each window, its padding 0."""
    kernel, pads = attrs["kernel_shape"], attrs["pads"]
    padded = r.b.Pad(y, [0, pads[0], pads[1], 0, 0, pads[2] + over[0], pads[3] + over[1], 0])
    mean = _pool(r, "AveragePool", padded, kernel_shape=kernel, strides=attrs["strides"])
    return r.b.Round(mean * int(np.prod(kernel)))


def _areas(
    r: IntegerReading, size: list[int], counts: tuple[int, ...], attrs: dict[str, list[int]]
) -> Array:
    """The number by which each sum is divided, for N, H, W, C."""
    kernel, strides, pads = attrs["kernel_shape"], attrs["strides"], attrs["pads"][:2]
    if r.layer.attrs.get("count_include_pad", True):
        return np.full((1, 1, 1, 1), float(np.prod(kernel)))
    axes = zip(size, counts, kernel, strides, pads, strict=True)
    return np.asarray(np.outer(*(_covered(*axis) for axis in axes))[None, :, :, None])


def _covered(size: int, count: int, kernel: int, stride: int, pad: int) -> Array:
    """How many elements of the data each window covers along one axis."""
    first = arange(count) * stride - pad
    covered: Array = np.minimum(first + kernel, size) - np.maximum(first, 0)
    return covered.astype(np.float64)


def _approximate(factors: Array) -> Array:
    """Factors with multipliers of 8 bits."""
    scale = factors.astype(np.float32)
    shift = np.minimum(np.floor(np.log2(255.0 / scale)), 31)
    return np.asarray(np.floor(scale * 2.0**shift + 0.5) * 2.0**-shift, np.float32)


def lower_average(w: IntegerWriting) -> Written:
    """Averages of stored integers keep scale and zero point; the reciprocals of the sizes have 8
    bits and stand nowhere.
    """
    if w.method != "AVG":
        raise MappingError(f"{w.method} has no integer form")
    return w.written()


def lift_lrn(r: IntegerReading) -> Value:
    """The sum of squares chooses from a table of (bias + alpha * sum) ** -beta."""
    r.attr("method", enum(words("ACROSS_CHANNELS")))
    b, x, size = r.b, r.real(), r.attr("size", int)
    channels = r.static(x)[-1]
    padded = b.Pad(x * x, [0, 0, 0, size // 2, 0, 0, 0, (size - 1) // 2])
    parts = [b.Slice(padded, [i], [i + channels], [3]) for i in range(size)]
    total = functools.reduce(operator.add, parts)
    by, behind = (
        r.attr(f"scale{sum_}_value", int) * math.ldexp(1, -r.attr(f"shift{sum_}_value", int))
        for sum_ in ("_sum", "")
    )
    total = rescale(b, total, by, 0, UINT16)
    return r.requantized(x * r.looked_up(total, "lut", 16, False), behind)


def lower_lrn(w: IntegerWriting) -> Written:
    """The sum of squares as 16 bits chooses from 256 entries of
    (bias + alpha / size * sum) ** -beta, which have 16 bits too.
    """
    attrs, source = w.layer.attrs, w.sources[0]
    if source.dtype.bitwidth != 8:
        message = f"{source.dtype.name} has no integer form here, 8 bits are needed"
        raise MappingError(message)
    size = int(attrs["size"])
    widest = max(abs(source.low - source.zero), abs(source.high - source.zero))
    sums = scalar_keys(65535 / (size * widest**2))
    steps = sums["scale_value"] * 2.0 ** -sums["shift_value"]
    real = np.arange(256) * 256 / steps * source.scale**2
    values = (float(attrs["bias"]) + float(attrs["alpha"]) / size * real) ** -float(attrs["beta"])
    if not np.all(np.isfinite(values)) or values.max() <= 0:
        raise MappingError("the powers of the sums are not finite")
    entry = 65535 / values.max()
    keys = {k.replace("_", "_sum_"): v for k, v in sums.items()}
    keys |= scalar_keys(source.scale / (entry * w.result.scale))
    return w.written(keys, lut=np.rint(values * entry).astype(np.uint16))
