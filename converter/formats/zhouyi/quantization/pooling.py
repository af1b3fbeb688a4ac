"""Pooling and normalization across channels."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import (
    IntegerLiftContext,
    IntegerLowerContext,
    Written,
)
from converter.formats.zhouyi.quantization.requantize import (
    UINT16,
    T,
    channel_constants,
    double,
    real,
    rescale,
    scalar_keys,
    single,
)
from converter.formats.zhouyi.rules.fields import Window, words
from converter.formats.zhouyi.rules.pooling import fractional_windows, overhang
from converter.graph import CHANNELS_LAST_DOMAIN
from converter.graph.build import Builder
from converter.graph.demands import at_least
from converter.graph.infer import Array
from converter.graph.sizes import arange, demand_small
from converter.graph.value import Value, type_name, with_operators
from converter.mapping.codecs import enum
from converter.mapping.context import static
from converter.mapping.node import Node


def lift_pooling(r: IntegerLiftContext) -> Value:
    """MAX on the integers; AVG as the sum times an 8-bit approximation of 1 / count, for each
    position, rescaled.

    L1 is the sum of magnitudes times a factor; L2 the root of the sum of squares, from a table for
    16-bit integers.
    """
    layer, b, x, r.node = r.layer, r.b, r.input(0), Node("")
    Window().lift(r)
    attrs = r.node.attrs
    method = r.attr("method", enum(words("MAX AVG L1 L2")))
    size = list(r.static(x)[1:-1])
    over = overhang(layer, size, attrs)
    if method == "MAX":
        y = real(x, narrow=True)
        return r.stored(_pool(r, "MaxPool", y, **attrs, ceil_mode=int(any(over))))
    pads, count = attrs["pads"], [r.declared_size(0, 1 + i) for i in (0, 1)]
    windows = (attrs[k] for k in ("kernel_shape", "strides", "dilations"))
    axes = [Axis(*one) for one in zip(size, count, *windows, pads[:2], pads[2:], over, strict=True)]
    y = r.real()
    if method == "L1":
        return r.requantized(_sums(r, b.Abs(y), axes))
    if method == "L2":
        total = rescale(_sums(r, y * y, axes), r.factor, 0, UINT16)
        return r.stored(r.looked_up(total, "sqrt_lut", 16, False))
    areas = np.full((1,) * 4, float(np.prod([a.kernel for a in axes])))
    if not layer.attrs.get("count_include_pad", True):
        areas = np.outer(*(a.covered() for a in axes))[None, :, :, None]
    before, behind = r.stated
    by = _approximate(behind / before / np.maximum(areas, 1.0))
    found = r.rescaled(_sums(r, y, axes), by)
    # an empty window does not even give a zero point
    if np.any(areas == 0) and max(attrs["dilations"]) == 1:
        found = b.Where(areas == 0, 0, found)
    return r.stored(found)


def lift_volumes(r: IntegerLiftContext) -> Value:
    """Read 3D pooling: MAX of the integers; means in two steps, each rounded: over the rows and
    columns of a window, then over its planes.
    """
    if r.attr("method", enum(words("MAX AVG"))) == "MAX":
        return r.stored(r.as_numbers(real(r.input(0), narrow=True)))
    b, borders = r.b, bool(r.layer.attrs.get("count_include_pad", True))
    axes = [Axis.of(r, i, name) for i, name in enumerate("zyx")]
    x = r.double() if borders else r.whole()
    x = _sums(r, x, axes)
    zero = r.zeros[0] if borders else 0
    counts = functools.reduce(np.multiply.outer, [a.covered() for a in axes])[None, ..., None]
    volume = float(np.prod([a.kernel for a in axes]))
    if any(a.dilation > 1 for a in axes):
        areas = np.full((1,) * 5, volume) if borders else np.maximum(counts, 1.0)
        return r.stored(rescale(x, _approximate(1.0 / areas), zero, r.limits()))
    y = single(x)
    if not borders:  # a mean of the elements inside, as the executor's 32-bit floats compute it
        inside = counts.astype(np.float32) / np.float32(volume) * np.float32(volume)
        y = y * volume / b.const(inside, "inside")
    planes, rows, columns = axes
    # the executor looks for the borders under the names of other axes
    widths = [rows.spans(columns.before), columns.spans(columns.behind)]
    flat = np.multiply.outer(*widths)[None, None, :, :, None]
    deep = planes.spans(rows.before)[None, :, None, None, None]
    y = rescale(y, _approximate(1.0 / flat), 0, (-(2.0**31), 2.0**31))
    return r.stored(rescale(y, _approximate(1.0 / deep), zero, r.limits()))


def lift_fractional(r: IntegerLiftContext) -> list[Value]:
    """Lift a fractional pooling as on real numbers, without zero points; means use 8-bit
    reciprocals of the areas.
    """
    b, mean = r.b, r.attr("method", enum(words("AVG MAX"))) == "AVG"
    x = r.whole()
    y, borders, areas = fractional_windows(r, x, "ReduceSum" if mean else "ReduceMax")
    if mean:
        y = rescale(y, _approximate(1.0 / areas), 0, r.limits())
    return r.all_stored((y, *map(b.const, borders)))


@dataclass
class Axis:
    """One axis of windows over a volume; `over` is the number of elements that the last window
    needs after the padding.
    """

    size: int
    count: int
    kernel: int
    stride: int
    dilation: int
    before: int
    behind: int
    over: int

    @classmethod
    def of(cls, r: IntegerLiftContext, index: int, name: str) -> Axis:
        """Return the window along an axis; raise MappingError R105 if it does not fit."""
        size, count = r.shape[1 + index], r.declared_size(0, 1 + index)
        kernel, stride, dilation = (
            r.count(f"{key}_{name}") for key in ("kernel", "stride", "dilation")
        )
        before, behind = (r.attr(f"pad_{name}_{end}", int) for end in ("begin", "end"))
        at_least(0, **{f"pad_{name}": [before, behind]})
        over = (count - 1) * stride + dilation * (kernel - 1) + 1 - size - before - behind
        demand_small(size + before + behind)
        if over >= stride:
            message = f"{count} windows of {kernel} along {name} do not fit {size} elements"
            raise MappingError(message, "R105")
        return cls(size, count, kernel, stride, dilation, before, behind, max(0, over))

    def slice(self, b: Builder, x: Value, axis: int, place: int) -> Value:
        """Return the elements at one position of each window."""
        first = place * self.dilation
        last = first + (self.count - 1) * self.stride + 1
        return b.Slice(x, [first], [last], [axis], [self.stride])

    def covered(self) -> Array:
        """Return how many elements of the data each window covers."""
        at = arange(self.count)[:, None] * self.stride + arange(self.kernel) * self.dilation
        inside = (at >= self.before) & (at < self.before + self.size)
        return np.asarray(inside.sum(axis=1), np.float64)

    def spans(self, before: int) -> Array:
        """Return the lengths of windows that start `before` elements earlier, within the padded
        data.
        """
        whole = self.size + self.before + self.behind + self.over
        first = np.maximum(arange(self.count) * self.stride - before, 0)
        return np.asarray(np.minimum(first + self.kernel, whole) - first, np.float64)


def _pool(r: IntegerLiftContext, op: str, x: Value, **attrs: Any) -> Value:
    return with_operators(r.b.op(op, x, domain=CHANNELS_LAST_DOMAIN, **attrs))


def _sums(r: IntegerLiftContext, y: Value, axes: Sequence[Axis]) -> Value:
    """Return the sum of each window as doubles; padding is 0."""
    b, kernel, rank = r.b, [a.kernel for a in axes], len(axes) + 2
    pads = [0, *(a.before for a in axes), 0, 0, *(a.behind + a.over for a in axes), 0]
    y = b.Pad(y, pads) if any(pads) else y
    plain = all(a.dilation == 1 for a in axes)
    if plain and y.dtype == T.FLOAT and rank == 4:  # as floats the sums are exact
        strides = [a.stride for a in axes]
        mean = _pool(r, "AveragePool", y, kernel_shape=kernel, strides=strides)
        return double(b.Round(mean * float(np.prod(kernel))))
    for i, a in enumerate(axes):
        y = functools.reduce(operator.add, (a.slice(b, y, i + 1, k) for k in range(a.kernel)))
    return double(y)


def _float_sums(r: IntegerLiftContext, y: Value, rows: Axis, columns: Axis) -> Value:
    """Return the sum of each window, in floats that are added row by row."""
    b = r.b
    y = b.Pad(y, [0, rows.before, columns.before, 0, 0, rows.behind, columns.behind, 0])
    parts = (
        columns.slice(b, rows.slice(b, y, 1, i), 2, k)
        for i, k in itertools.product(range(rows.kernel), range(columns.kernel))
    )
    return functools.reduce(operator.add, parts)


def _approximate(factors: Array) -> Array:
    """Approximate factors by 8-bit multipliers."""
    scale = factors.astype(np.float32)
    shift = np.minimum(np.floor(np.log2(255.0 / scale)), 31)
    return np.asarray(np.floor(scale * 2.0**shift + 0.5) * 2.0**-shift, np.float32)


def lower_average(w: IntegerLowerContext) -> Written:
    """Write the sum of a window, a convolution with ones, and one factor. The layer itself, with an
    implicit 8-bit factor, is used only if that is exact or unavoidable.
    """
    attrs = w.layer.attrs
    if w.method != "AVG":
        raise MappingError(f"{w.method} has no integer form")
    area, pads = _window(attrs, "kernel"), _window(attrs, "pad")
    inside = attrs.get("ceil_mode") or (any(pads) and not attrs.get("count_include_pad", True))
    factor = w.factor / math.prod(area)
    near = _approximate(np.array([factor])).astype(np.float64)
    if w.npu or (not inside and abs(float(near[0]) - factor) <= 1e-7 * factor):
        return w.written()
    if inside:
        w.demand_npu()
    channels = static(w.inputs[0])[-1]
    geometry = {k: v for k, v in attrs.items() if k.split("_")[0] in _GEOMETRY}
    ones = np.ones([channels, *area, 1], np.int8)
    absorbed = np.full(channels, -w.sources[0].zero * math.prod(area), np.int32)
    factors, steps = np.full(channels, factor), np.full(1, math.prod(area), np.float32)
    return (
        "DepthwiseConv",
        geometry | {"num_output": channels, "group": channels, "multiplier": 1},
        {
            "weights": ones,
            "biases": absorbed,
            **channel_constants(factors, w.bits),
            "weights_scale": steps,
            "weights_zp": np.zeros(1, np.int32),
            "biases_scale": steps / np.float32(w.sources[0].scale),
            "biases_zp": np.zeros(1, np.int32),
        },
    )


_GEOMETRY = ("kernel", "stride", "pad", "dilation")


def _window(attrs: Mapping[str, Any], key: str) -> list[int]:
    """Return the values of the two axes, y first."""
    return [int(attrs[k]) for k in sorted(attrs, reverse=True) if k.split("_")[0] == key]


MOST_NEIGHBORS = 256


def lift_lrn(r: IntegerLiftContext) -> Value:
    """Return the sum of squares, of neighbors in other channels or within a channel, chooses from a
    table of (bias + alpha * sum) ** -beta.
    """
    method = r.attr("method", enum(words("ACROSS_CHANNELS WITHIN_CHANNEL")))
    b, x, size = r.b, r.double(), r.count("size")
    if size > MOST_NEIGHBORS:
        raise MappingError(f"size={size} has too many neighbors to enumerate")
    squares = single(x * x)
    if method == "WITHIN_CHANNEL":
        half, even = (size - 1) // 2, 1 - size % 2
        axes = [Axis(n, n - even, size, 1, 1, half, half, 0) for n in r.static(x)[1:-1]]
        total = _float_sums(r, squares, *axes)
        if even:  # the last neighbors do not exist
            total = b.Pad(total, [0] * 5 + [1, 1, 0])
    else:
        channels = r.static(x)[-1]
        padded = b.Pad(squares, [0, 0, 0, size // 2, 0, 0, 0, (size - 1) // 2])
        parts = [padded[..., i : i + channels] for i in range(size)]
        total = functools.reduce(operator.add, parts)
    by, behind = (
        r.attr(f"scale{which}_value", int) * 2.0 ** -r.bit_count(f"shift{which}_value")
        for which in ("_sum", "")
    )
    total = rescale(total, by, 0, UINT16)
    return r.requantized(x * r.looked_up(total, "lut", 16, False), behind)


def lower_lrn(w: IntegerLowerContext) -> Written:
    """Write LRN: the sum of squares as 16 bits selects from 256 entries of (bias + alpha / size *
    sum) ** -beta, which have 16 bits too.
    """
    attrs, source = w.layer.attrs, w.sources[0]
    if source.dtype.bitwidth != 8:
        message = f"{type_name(source.dtype)} has no integer form here; use 8 bits"
        raise MappingError(message)
    size = int(attrs["size"])
    widest = max(abs(source.low - source.zero), abs(source.high - source.zero))
    sums = scalar_keys(65535 / (size * widest**2), w.bits)
    steps = sums["scale_value"] * 2.0 ** -sums["shift_value"]
    real = np.arange(256) * 256 / steps * source.scale**2
    values = (float(attrs["bias"]) + float(attrs["alpha"]) / size * real) ** -float(attrs["beta"])
    if not np.all(np.isfinite(values)) or values.max() <= 0:
        raise MappingError("the powers of the sums are not finite")
    entry = 65535 / values.max()
    keys = {k.replace("_", "_sum_"): v for k, v in sums.items()}
    keys |= scalar_keys(source.scale / (entry * w.result.scale), w.bits)
    return w.written(keys, lut=np.rint(values * entry).astype(np.uint16))
