"""Integer pooling and normalisation across channels."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.integer.register import Quantised, factor, integer, look_up, real, rescale, stored
from converter.formats.zhouyi.special.pooling import overhang
from converter.formats.zhouyi.special.register import blob, choose, need_int, operand, static, twin
from converter.formats.zhouyi.special.windows import window_attrs
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.graph.sizes import arange
from converter.mapping.node import Layer, MappingError


@integer("Pooling")
def pool(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """MAX on the stored integers; AVG as sum times an 8-bit approximation of 1 / number, for each place, from grid to grid.

    L1 is the sum of amounts times a factor; L2 the root of the sum of squares, from a table for 16-bit integers.
    """
    x, attrs = operand(layer), window_attrs(layer, 2)
    method = choose(layer, "method", {m: m for m in ("MAX", "AVG", "L1", "L2")})
    size = list(static(x)[1:-1])
    over = overhang(layer, size, attrs)
    low, high = q.limits()
    if method == "MAX":
        return stored(b, twin(b, "MaxPool", real(b, x, narrow=True), **attrs, ceil_mode=int(any(over)))[0], q.types[0])
    if attrs["dilations"] != [1, 1]:
        raise MappingError("sums over dilated windows have no integer form here")
    y = real(b, x, q.inputs[0], narrow=True)
    if method == "L1":
        return stored(b, rescale(b, _sums(b, b.op("Abs", y), attrs, over), factor(layer), q.outputs[0], low, high), q.types[0])
    if method == "L2":
        total = rescale(b, _sums(b, b.op("Mul", y, y), attrs, over), factor(layer), 0, 0, 65535)
        return stored(b, look_up(b, total, blob(layer, "sqrt_lut").reshape(-1), 16, False), q.types[0])
    total = _sums(b, y, attrs, over)
    by = _approximate(q.ratio / _areas(layer, size, static(total)[1:3], attrs))
    return stored(b, rescale(b, total, by, q.outputs[0], low, high), q.types[0])


def _sums(b: Builder, y: ir.Value, attrs: dict[str, list[int]], over: list[int]) -> ir.Value:
    """The sum of each window, its padding 0."""
    kernel, pads = attrs["kernel_shape"], attrs["pads"]
    padded = b.op("Pad", y, [0, pads[0], pads[1], 0, 0, pads[2] + over[0], pads[3] + over[1], 0])
    mean = twin(b, "AveragePool", padded, kernel_shape=kernel, strides=attrs["strides"])[0]
    return b.op("Round", b.op("Mul", mean, b.like(mean, int(np.prod(kernel)))))


def _areas(layer: Layer, size: list[int], counts: tuple[int, ...], attrs: dict[str, list[int]]) -> Array:
    """The number by which each sum is divided, for N, H, W, C."""
    kernel = attrs["kernel_shape"]
    if layer.attrs.get("count_include_pad", True):
        return np.full((1, 1, 1, 1), float(np.prod(kernel)))
    covered = [_covered(n, c, k, s, p) for n, c, k, s, p in zip(size, counts, kernel, attrs["strides"], attrs["pads"][:2], strict=True)]
    return np.asarray(np.outer(*covered)[None, :, :, None])


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


@integer("LRN")
def lrn(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """The sum of squares chooses from a table of (bias + alpha * sum) ** -beta."""
    choose(layer, "method", {"ACROSS_CHANNELS": True})
    x, size, (low, high) = real(b, operand(layer), q.inputs[0]), need_int(layer, "size"), q.limits()
    channels = static(x)[-1]
    padded = b.op("Pad", b.op("Mul", x, x), [0, 0, 0, size // 2, 0, 0, 0, (size - 1) // 2])
    parts = [b.op("Slice", padded, [i], [i + channels], [3]) for i in range(size)]
    total = parts[0]
    for part in parts[1:]:
        total = b.op("Add", total, part)
    by = need_int(layer, "scale_sum_value") * math.ldexp(1, -need_int(layer, "shift_sum_value"))
    found = look_up(b, rescale(b, total, by, 0, 0, 65535), blob(layer, "lut").reshape(-1), 16, False)
    by = need_int(layer, "scale_value") * math.ldexp(1, -need_int(layer, "shift_value"))
    return stored(b, rescale(b, b.op("Mul", x, found), by, q.outputs[0], low, high), q.types[0])
