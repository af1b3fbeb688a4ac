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
from converter.formats.tflite.tensors import type_of
from converter.graph.build import Builder
from converter.graph.demands import of_length
from converter.graph.sizes import arange, demand_small, static
from converter.graph.value import BOOL, INT64, Value
from converter.mapping.rules import custom

MOST = 1 << 10  # elements of a window
# functions of an element and an update that LiteRT has
REDUCTIONS = {
    **{"STABLEHLO_ADD": "add", "STABLEHLO_MULTIPLY": "mul"},
    **{"STABLEHLO_MAXIMUM": "max", "STABLEHLO_MINIMUM": "min"},
}
# The counting generators of J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3.
# Source: https://doi.org/10.1145/2063384.2063405.
THREEFRY = 2  # RngAlgorithm of the schema: DEFAULT and PHILOX are one algorithm
PARITY, ROTATIONS = 0x1BD11BDA, ((13, 15, 26, 6), (17, 29, 16, 24))
MULTIPLIERS, WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
LOW, SHIFT = np.array([0xFFFFFFFF], np.uint64), np.array([32], np.uint64)


def _binary(op: str) -> Callable[[LiftContext], ir.Value]:
    return lambda r: r.b.operator(op)(r.input(0), r.input(1))


def lift_and(r: LiftContext) -> ir.Value:
    """Read AND: logical for booleans, bitwise for integers."""
    x, y = r.input(0), r.input(1)
    return r.b.operator("And" if x.dtype == BOOL else "BitwiseAnd")(x, y)


def lift_shift_left(r: LiftContext) -> ir.Value:
    """Compute x * 2^y; 0 if all bits are shifted out."""
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
    """Pad between the elements of each axis, and then at its ends, where a negative
    amount crops.
    """
    keys = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, interior = (r.attr(key, list) for key in keys)
    x, value = r.input(0), r.b.Reshape(r.input(1), [])
    of_length(len(r.static(x)), **dict(zip(keys, (low, high, interior), strict=True)))
    return padded(r.b, dilated(r, x, value, interior), value, low, high)


def lift_gather(r: LiftContext) -> ir.Value:
    """Gather slices of `slice_sizes` at the given starts, which are clamped to the operand."""
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


def lift_scatter(r: LiftContext) -> ir.Value:
    """Combine elements with updates at positions that begin at the given indices; updates outside
    of the operand are left out.
    """
    b, x, starts, updates = r.b, r.input(0), r.cast(r.input(1), INT64), r.input(2)
    lists = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    windows, inserted, mapped = (r.attr(key, list) for key in lists)
    shape, given = list(r.static(x)), list(r.static(updates, "the updates"))
    places, vector = list(r.static(starts, "the indices")), r.attr("index_vector_dim", int)
    if vector == len(places):  # indices are scalars
        starts, places = b.Unsqueeze(starts, [vector]), [*places, 1]
    outer = [i for i in range(len(given)) if i not in windows]
    kept = [i for i in range(len(shape)) if i not in inserted]
    fit = 0 <= vector < len(places) and len(kept) == len(windows) == len(given) - len(outer)
    batch = [given[i] for i in outer]
    if not fit or batch != [n for i, n in enumerate(places) if i != vector]:
        raise MappingError("the updates do not fit the operand and the indices", "R110")
    demand_small(*given)
    starts = b.Transpose(starts, perm=[*(i for i in range(len(places)) if i != vector), vector])
    where: ir.Value = b.const(np.zeros(given, np.int64))
    inside: ir.Value = b.const(np.ones(given, bool))
    for axis, size in enumerate(shape):
        place: Value = b.const(np.array(0))
        if axis in kept:
            window = windows[kept.index(axis)]
            place = b.const(
                arange(given[window]).reshape([-1 if i == window else 1 for i in range(len(given))])
            )
        if axis in mapped:
            first = b.Gather(starts, np.array(mapped.index(axis)), axis=len(batch))
            ones = [n if i in outer else 1 for i, n in enumerate(given)]
            place = place + b.Reshape(first, ones)
        inside = b.And(inside, (place >= 0) & (place < size))
        where = b.Add(b.Mul(where, size), place)
    total = math.prod(shape)
    where = b.Where(inside, where, total)  # an element after those of the operand
    spare = b.Cast(b.const(np.zeros(1, np.float32)), to=x.dtype)
    wide = b.Concat(b.Reshape(x, [-1]), spare, axis=0)
    flat = [b.Reshape(v, [-1]) for v in (where, updates)]
    wide = b.ScatterElements(wide, *flat, axis=0, reduction=_reduction(r))
    return b.Reshape(b.Slice(wide, [0], [total], [0]), shape)


def _reduction(r: LiftContext) -> str:
    """Return the reduction of a scatter: the subgraph has one operator or none, which LiteRT
    demands.
    """
    number = r.attr("update_computation_subgraph_index", int)
    body = r.graph.child(number, r.b).subgraph
    if not body.operators and body.outputs == body.inputs[1:]:
        return "none"
    found = REDUCTIONS.get(body.operators[0].builtin, "") if len(body.operators) == 1 else ""
    if not found or sorted(body.operators[0].inputs) != sorted(body.inputs):
        message = f"the subgraph must be empty or one of {', '.join(REDUCTIONS)}, as LiteRT demands"
        raise MappingError(message, "X202")
    return found


def lift_random_bits(r: LiftContext) -> Sequence[ir.Value]:
    """Return random bits of a counter-based generator, and its state after them. The states are
    unsigned 64-bit integers: the key, then the counter, whose halves the generator mixes.
    """
    b, bits = r.b, r.result(1)
    size, dtype = list(r.static(r.input(0), "the state")), type_of(bits)
    threefry = r.attr("algorithm", int) == THREEFRY
    if size not in ([2], [3]) or (threefry and size != [2]):
        raise MappingError(f"the state has the shape {size}", "R110")
    if min(bits.shape, default=0) < 0 or dtype.bitwidth not in (32, 64):
        raise MappingError("the random bits must be integers of a fixed shape", "X203")
    words = math.prod(bits.shape) * (dtype.bitwidth // 32)
    demand_small(words)
    count = -(-words // (2 if threefry else 4))
    key, counter, *more = b.ops("Split", r.input(0), axis=0, num_outputs=size[0], outputs=size[0])
    steps = b.const(np.arange(count + 1, dtype=np.uint64))
    counters = b.Add(counter, steps)  # the sum has 64 bits, as the counter has
    last = b.Slice(counters, [count], [count + 1], [0])
    counters = b.Slice(counters, [0], [count], [0])
    made = (threefry_2x32 if threefry else philox_4x32)(b, key, counters, *(more or [key]))
    drawn = b.Reshape(b.Concat(*(b.Unsqueeze(w, [1]) for w in made), axis=1), [-1])
    drawn = b.Slice(drawn, [0], [words], [0])
    if dtype.bitwidth == 64:
        low, high = (b.Slice(drawn, [i], [words], [0], [2]) for i in (0, 1))
        drawn = b.BitwiseOr(low, b.BitShift(high, b.const(SHIFT), direction="LEFT"))
    return [b.Concat(key, last, *more, axis=0), b.Reshape(b.Cast(drawn, to=dtype), bits.shape)]


def _halves(b: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the low and the high 32 bits of integers of 64."""
    return b.BitwiseAnd(x, b.const(LOW)), b.BitShift(x, b.const(SHIFT), direction="RIGHT")


def threefry_2x32(b: Builder, key: ir.Value, counters: ir.Value, _: ir.Value) -> list[ir.Value]:
    """Return two 32-bit words for each counter. Source: https://doi.org/10.1145/2063384.2063405."""
    keys = list(_halves(b, key))
    keys.append(b.BitwiseXor(b.BitwiseXor(*keys), b.const(np.array([PARITY], np.uint64))))
    x, y = (_low(b, b.Add(c, k)) for c, k in zip(_halves(b, counters), keys, strict=False))
    for turn in range(5):
        for distance in ROTATIONS[turn % 2]:
            x = _low(b, b.Add(x, y))
            left, right = (np.array([n], np.uint64) for n in (distance, 32 - distance))
            rotated = b.BitwiseOr(
                b.BitShift(y, b.const(left), direction="LEFT"),
                b.BitShift(y, b.const(right), direction="RIGHT"),
            )
            y = b.BitwiseXor(_low(b, rotated), x)
        step = b.const(np.array([turn + 1], np.uint64))
        x = _low(b, b.Add(x, keys[(turn + 1) % 3]))
        y = _low(b, b.Add(b.Add(y, keys[(turn + 2) % 3]), step))
    return [x, y]


def philox_4x32(b: Builder, key: ir.Value, counters: ir.Value, more: ir.Value) -> list[ir.Value]:
    """Return four 32-bit words for each counter. Source:
    https://doi.org/10.1145/2063384.2063405.
    """
    words = [*_halves(b, counters), *_halves(b, more)]
    keys = list(_halves(b, key))
    for _ in range(10):
        products = [
            _halves(b, b.Mul(words[i], b.const(np.array([m], np.uint64))))
            for i, m in zip((0, 2), MULTIPLIERS, strict=True)
        ]
        (low0, high0), (low1, high1) = products
        words = [
            b.BitwiseXor(b.BitwiseXor(high1, words[1]), keys[0]),
            low1,
            b.BitwiseXor(b.BitwiseXor(high0, words[3]), keys[1]),
            low0,
        ]
        keys = [
            _low(b, b.Add(k, b.const(np.array([n], np.uint64))))
            for k, n in zip(keys, WEYL, strict=True)
        ]
    return words


def _low(b: Builder, x: ir.Value) -> ir.Value:
    return b.BitwiseAnd(x, b.const(LOW))


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
    custom("", "STABLEHLO_RNG_BIT_GENERATOR", lift_random_bits),
    custom("", "STABLEHLO_SCATTER", lift_scatter, ignored="indices_are_sorted unique_indices"),
]
