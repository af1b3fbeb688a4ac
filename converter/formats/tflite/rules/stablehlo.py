"""Operators of StableHLO that the runtime executes, read as ONNX operators
(https://openxla.org/stablehlo/spec).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.tflite.rules.context import LiftContext
from converter.graph.build import Builder
from converter.graph.demands import of_length
from converter.graph.sizes import arange, demand_small, static
from converter.graph.value import BOOL, INT64, Value
from converter.mapping.rules import custom

MOST = 1 << 10  # elements of a window


def _binary(op: str) -> Callable[[LiftContext], ir.Value]:
    return lambda r: r.b.operator(op)(r.input(0), r.input(1))


def lift_and(r: LiftContext) -> ir.Value:
    """Logical for booleans, bit by bit for integers."""
    x, y = r.input(0), r.input(1)
    return r.b.operator("And" if x.dtype == BOOL else "BitwiseAnd")(x, y)


def lift_shift_left(r: LiftContext) -> ir.Value:
    """x * 2^y; 0 where all bits leave the number."""
    b, x, y = r.b, r.input(0), r.input(1)
    bits = x.dtype.bitwidth if x.dtype is not None else 32
    wide, by = b.Cast(x, to=INT64), b.Cast(y, to=INT64)
    fits = (by >= 0) & (by < bits)
    power = b.const(np.left_shift(np.int64(1), np.arange(64, dtype=np.int64)))
    factor = b.Gather(power, b.Where(fits, by, 0))
    return b.Cast(b.Where(fits, wide * factor, 0), to=x.dtype)


def padded(b: Builder, x: Value, value: ir.Value, low: Sequence[int], high: Sequence[int]) -> Value:
    """Return x[..] with elements added at both ends of each axis, or removed."""
    pads = [max(n, 0) for n in (*low, *high)]
    y: Value = b.Pad(x, pads, value) if any(pads) else x
    if any(n < 0 for n in (*low, *high)):
        starts = [max(-n, 0) for n in low]
        ends = [s - max(-n, 0) for s, n in zip(static(y), high, strict=True)]
        y = b.Slice(y, starts, ends, list(range(len(starts))))
    return y


def dilated(r: LiftContext, x: Value, value: ir.Value, interior: Sequence[int]) -> Value:
    """Return x with `interior` elements between any two along each axis."""
    b, y = r.b, x
    if any(n < 0 for n in interior):
        raise MappingError("interior padding must not be negative", "R110")
    for axis, count in enumerate(interior):
        shape = list(r.static(y))
        if not count or shape[axis] < 2:
            continue
        pads = [0] * (2 * len(shape) + 2)
        pads[len(shape) + 1 + axis + 1] = count
        wide = b.Pad(b.Unsqueeze(y, [axis + 1]), pads, value)
        whole = [*shape[:axis], shape[axis] * (count + 1), *shape[axis + 1 :]]
        y = b.Slice(b.Reshape(wide, whole), [0], [whole[axis] - count], [axis])
    return y


def lift_pad(r: LiftContext) -> ir.Value:
    """Elements added between those of each axis, then at its ends, where they may be removed."""
    keys = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, interior = (r.attr(key, list) for key in keys)
    x, value = r.input(0), r.b.Reshape(r.input(1), [])
    of_length(len(r.static(x)), **dict(zip(keys, (low, high, interior), strict=True)))
    return padded(r.b, dilated(r, x, value, interior), value, low, high)


def lift_gather(r: LiftContext) -> ir.Value:
    """Slices of `slice_sizes` at the given starts, which are moved into the operand."""
    b, x, starts = r.b, r.input(0), r.cast(r.input(1), INT64)
    lists = ("offset_dims", "collapsed_slice_dims", "start_index_map", "slice_sizes")
    offsets, collapsed, mapped, sizes = (r.attr(key, list) for key in lists)
    shape, places = list(r.static(x)), list(r.static(starts, "the indices"))
    of_length(len(shape), slice_sizes=sizes)
    vector = r.attr("index_vector_dim", int)
    fit = all(0 < size <= n for size, n in zip(sizes, shape, strict=True))
    if not 0 <= vector <= len(places) or not fit:
        raise MappingError("the slices do not fit the operand and the indices", "R110")
    if vector == len(places):  # indices are scalars
        starts, places = b.Unsqueeze(starts, [vector]), [*places, 1]
    batch = [n for i, n in enumerate(places) if i != vector]
    order = [*(i for i in range(len(places)) if i != vector), vector]
    starts = b.Transpose(starts, perm=order)
    demand_small(*batch, *sizes)
    ones = [1] * len(sizes)
    parts = []
    for axis, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        own = [size if i == axis else 1 for i in range(len(sizes))]
        place: Value = b.const(arange(size).reshape(own))
        if axis in mapped:
            first = b.Gather(starts, np.array(mapped.index(axis)), axis=len(batch))
            first = b.Min(b.Max(first, 0), n - size)
            place = place + b.Reshape(first, [*batch, *ones])
        parts.append(b.Expand(b.Unsqueeze(place, [-1]), [*batch, *sizes, 1]))
    found = b.GatherND(x, b.Concat(*parts, axis=-1))
    kept = [i for i in range(len(sizes)) if i not in collapsed]
    if set(offsets) - set(range(len(batch) + len(kept))) or len(set(offsets)) != len(kept):
        raise MappingError(f"offset_dims={offsets} do not fit the slices", "R110")
    found = b.Reshape(found, [*batch, *(sizes[i] for i in kept)])
    rank, left = len(batch) + len(kept), list(range(len(batch)))
    window = iter(range(len(batch), rank))
    perm = [next(window) if i in offsets else left.pop(0) for i in range(rank)]
    return b.Transpose(found, perm=perm)


def lift_reduce_window(r: LiftContext) -> ir.Value:
    """Reduce the elements of each window by the body, beginning with the initial value."""
    b, x, start = r.b, r.input(0), r.b.Reshape(r.input(1), [])
    shape = list(r.static(x))
    keys = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    window, strides, base, gaps = (r.attr(key, list, []) or [1] * len(shape) for key in keys)
    pads = r.attr("padding", list, []) or [0] * (2 * len(shape))
    of_length(len(shape), **dict(zip(keys, (window, strides, base, gaps), strict=True)))
    of_length(2 * len(shape), padding=pads)
    if math.prod(window) > MOST:
        raise MappingError(f"windows have {math.prod(window)} elements, limit {MOST}", "X202")
    y = padded(b, dilated(r, x, start, [n - 1 for n in base]), start, pads[::2], pads[1::2])
    sizes, axes = r.static(y), list(range(len(shape)))
    ends = [n - (k - 1) * g for n, k, g in zip(sizes, window, gaps, strict=True)]
    if min(ends) < 1:
        raise MappingError("a window is larger than the padded operand", "X202")
    number = r.attr("body_subgraph_index", int)
    total: ir.Value = start
    for place in np.ndindex(*window):
        first = [i * g for i, g in zip(place, gaps, strict=True)]
        last = [f + e for f, e in zip(first, ends, strict=True)]
        part = b.Slice(y, first, last, axes, strides)
        (total,) = r.graph.inlined(number, b, [total, part])
        if r.static(total) != r.static(part):
            raise MappingError("the body does not combine two numbers", "X202")
    return total


RULES = [
    custom("", "STABLEHLO_ADD", _binary("Add")),
    custom("", "STABLEHLO_MULTIPLY", _binary("Mul")),
    custom("", "STABLEHLO_MAXIMUM", _binary("Max")),
    custom("", "STABLEHLO_MINIMUM", _binary("Min")),
    custom("", "STABLEHLO_AND", lift_and),
    custom("", "STABLEHLO_SHIFT_LEFT", lift_shift_left),
    custom("", "STABLEHLO_PAD", lift_pad),
    custom("", "STABLEHLO_GATHER", lift_gather, ignored="indices_are_sorted"),
    custom("", "STABLEHLO_REDUCE_WINDOW", lift_reduce_window),
]
