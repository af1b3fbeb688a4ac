"""Softmax, and normalisation by mean and variance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import IntegerReading, IntegerWriting, Written
from converter.formats.zhouyi.quantization.requantize import (
    INT16,
    INT32,
    UINT16,
    T,
    bounded,
    limits_of_bits,
    of_sizes,
    reached,
    real,
    rescale,
    scalar_keys,
    stored,
    zeros_of,
)
from converter.formats.zhouyi.quantization.tables import exponentials, look_up
from converter.formats.zhouyi.rules.fields import axes_of
from converter.graph.build import Builder
from converter.graph.demands import axis_of
from converter.graph.infer import Array
from converter.graph.value import Value

# 32768 / sqrt(x) for x from 1 to 4 in steps of 1/64
ROOTS = np.minimum(np.rint(32768 / np.sqrt(1 + np.arange(193) / 64)), 32767)

# Softmax -----------------------------------------------------------------------------------------


def lift_softmax(r: IntegerReading) -> Value:
    """Exponentials by powers of two, or by a table and a quotient of 31 bits; the vendor's two ways
    of the quotient, by the size of the data.
    """
    if "adjust_q" in r.layer.attrs:
        return _by_powers_of_two(r)
    b, shape = r.b, r.static(r.input(0))
    if "float_lut" in r.layer.blobs and r.layer.extra.attrs.get("is_perf_mode"):
        return _by_short_floats(r)
    axis, lut = axis_of(r.attr("axis", int, -1), len(shape)), r.blob("lut").reshape(-1)
    scale, shift, (bits, _) = r.count("scale_value"), r.bit_count("shift_value"), r.width()
    wide = b.Cast(r.input(0), to=T.INT64)
    below = wide - b.ReduceMax(wide, [axis])
    y = b.Cast(look_up(b, below + ((1 << bits) - 1), lut, bits, False), to=T.INT64)
    total = b.Max(b.ReduceSum(y, [axis]), 1)
    width = 30 if lut.max() == 1 else 31
    if bits <= 8 and shape[axis] < 8 and int(np.prod(shape)) // shape[axis] % 128 == 0:
        extra = _spare_bits(width, lut.max())
        z = (y * (1 << extra) + total / 2) / total
        by = scale * 2.0 ** -(shift + extra)
    else:
        extra = _spare_bits(width, scale)
        z = y * ((scale << extra) / total)
        by = 2.0 ** -(shift + extra)
    return r.requantized(real(b, z), by)


def _spare_bits(width: int, number: float) -> int:
    """How many bits a number of `width` bits has above this one."""
    extra = width - int(np.ceil(np.log2(float(number)))) if number >= 1 else -1
    if extra < 0:
        raise MappingError(f"a scale or table of a Softmax with {number}", "R110")
    return extra


def _by_powers_of_two(r: IntegerReading) -> Value:
    """The method FAST_EXP: 2 ** n for whole n, and a logarithm of the sum that knows halves at most
    (`adjust_q`, its bits behind the point); the zero point of the result is not used.
    """
    finer, most = (r.bit_count(key, least=0) for key in ("adjust_q", "pow2_out_q"))
    b = r.b
    if 1 < finer < 8:
        raise MappingError(f"which halves does a Softmax with adjust_q={finer} know?")
    axis = axis_of(r.attr("axis", int, -1), len(r.static(r.input(0))))
    by = r.factor_of("input")
    x = b.Cast(r.input(0), to=T.DOUBLE)
    x = x - b.ReduceMax(x, [axis])
    if finer >= 8:
        return _by_tables_of_powers(r, b.Floor(x * by * 2.0**finer), axis)
    power = b.Floor(x * by)
    total = b.ReduceSum(_power_of_two(b, power + most, most), [axis])
    total = b.Clip(total, 1, 2**31 - 1)
    levels = 2.0 ** np.arange(1, 31)
    if finer:  # from this 31-bit number the logarithm is rounded up to the next half
        levels = np.append(levels, np.floor(1518500250 * 2.0 ** -np.arange(31)) + 1)
    steps, bits = 1 << finer, r.tensors.bits
    quotient = b.Floor(((power + (most + bits)) * steps - reached(b, total, levels)) / steps)
    y = _power_of_two(b, quotient, bits)
    return r.stored(rescale(b, y, 1.0, 0, r.limits()))


def _by_tables_of_powers(r: IntegerReading, power: Value, axis: int) -> Value:
    """The same with `adjust_q` bits behind the point, of which tables of 256 entries know eight."""
    b, finer, most = r.b, r.bit_count("adjust_q"), r.bit_count("pow2_out_q")
    total = b.ReduceSum(_from_table_of_powers(r, power, most), [axis])
    total = b.Clip(total, 1, 2**31 - 1)
    digits = reached(b, total, 2.0 ** np.arange(1, 31))  # floor(log2(total))
    at = b.Cast(digits, to=T.INT64)
    part = b.Floor(total * b.Gather(b.const(2.0 ** (8 - np.arange(31)), "normal"), at))
    logarithms = b.const(r.blob("log2_lut").reshape(-1).astype(np.float64), "log2_lut")
    entry = b.Gather(logarithms, b.Cast(part - 256.0, to=T.INT64))
    logarithm = b.Floor(entry * 2.0 ** (finer - 15)) + (digits - most) * 2.0**finer
    y = _from_table_of_powers(r, power - logarithm, r.tensors.bits)
    return r.stored(rescale(b, y, 1.0, 0, r.limits()))


def _from_table_of_powers(r: IntegerReading, power: Value, most: int) -> Value:
    """2 ** power with `adjust_q` bits behind the point, cut off, times 2 ** most."""
    b, finer = r.b, r.bit_count("adjust_q")
    exponent = b.Floor(power * 2.0**-finer)
    rest = b.Floor((power - exponent * 2.0**finer) * 2.0 ** (8 - finer))
    powers = b.const(r.blob("pow2_lut").reshape(-1).astype(np.float64), "pow2_lut")
    entry = b.Gather(powers, b.Cast(rest, to=T.INT64))
    return b.Floor(entry * 2.0 ** (exponent + (most - 15)))


def _by_short_floats(r: IntegerReading) -> Value:
    """Powers of two by a table of floats with 16 bits (`float_lut`), in floats of which all but 16
    bits are cut off; the two that are multiplied at last are a table of the distance to the
    largest.
    """
    b, (bits, _), lut = r.b, r.width(), r.blob("float_lut").reshape(-1).astype(np.float32)
    axis = axis_of(r.attr("axis", int, -1), len(r.static(r.input(0))))
    if lut.size <= 512:
        raise MappingError(f"a table of {lut.size} powers, 513 are needed", "R105")
    distances = np.arange(1 << bits).astype(np.float32)
    before, behind = r.tensors.scales
    step = _cut_float(np.float32(-1) / (np.float32(0.6931471) * np.float32(before)))
    powers = _short_powers(_cut_float(distances * step), lut)
    with np.errstate(over="ignore"):
        halves = _cut_float(powers.astype(np.float16).astype(np.float32))
    scaled = (halves * np.float32(behind)).astype(np.float32)
    wide = b.Cast(r.input(0), to=T.INT64)
    below = b.ReduceMax(wide, [axis]) - wide
    total = b.ReduceSum(b.Gather(b.const(powers.astype(np.float64), "powers"), below), [axis])
    share = _short(b, 1 / _short(b, total))
    y = b.Gather(b.const(scaled, "scaled"), below) * b.Cast(share, to=T.FLOAT)
    return r.requantized(b.Cast(y, to=T.DOUBLE), 1.0)


def _cut_float(x: Array | np.float32) -> Array:
    """32-bit floats without their lowest 8 bits."""
    return np.asarray((np.asarray(x, np.float32).view(np.int32) & ~0xFF).view(np.float32))


def _short_powers(exponents: Array, lut: Array) -> Array:
    """2 ** exponents as the executor computes it: the table at the nine highest bits behind the
    point, a straight line of seven bits between two entries.
    """
    x = np.clip(exponents, np.float32(-126.9), np.float32(126.9)).astype(np.float32)
    whole = np.floor(x)
    rest = ((x - whole) * np.float32(65535)).astype(np.int64)
    index, part = rest >> 7, (rest & 127).astype(np.float32)
    line = (lut[index + 1] - lut[index]) * part * np.float32(2.0**-7)
    return _cut_float((lut[index] + line) * np.exp2(whole))


def _short(b: Builder, x: Value) -> Value:
    """Doubles between 2 ** -16 and 2 ** 16 as floats of 32 bits, all but 16 bits cut off."""
    x = b.Cast(b.Cast(x, to=T.FLOAT), to=T.DOUBLE)
    digits = b.Cast(reached(b, x, 2.0 ** np.arange(-15, 17)), to=T.INT64)
    up = b.Gather(b.const(2.0 ** (31 - np.arange(33)), "up"), digits)
    return b.Floor(x * up) / up


def _power_of_two(b: Builder, exponent: Value, most: int) -> Value:
    """2 ** exponent for whole exponents up to `most`, 0 for those below 0; doubles."""
    entries = np.append(0.0, 2.0 ** np.arange(most + 1))
    at = b.Clip(exponent + 1, 0, most + 1)
    return b.Gather(b.const(entries, "powers"), b.Cast(at, to=T.INT64))


def lower_softmax(w: IntegerWriting) -> Written:
    w.demand_npu()
    keys = {"quantize_method": "LUT", **scalar_keys(1 / w.result.scale, w.bits)}
    return w.written(keys, lut=exponentials(w.sources[0]))


def lift_log_softmax(r: IntegerReading) -> Value:
    """By a table of floats, or a quotient as in Softmax, from 0 to the width of the result's range,
    and a table of logarithms.
    """
    b, shape = r.b, r.static(r.input(0))
    lut, (bits, _), (low, high) = r.blob("lut_exp").reshape(-1), r.width(), r.limits()
    axis = axis_of(r.attr("axis", int, -1), len(shape))
    wide = b.Cast(r.input(0), to=T.INT64)
    below = wide - b.ReduceMax(wide, [axis])
    if lut.dtype.kind == "f":
        return _by_floats(r, below, lut, axis)
    scale, shift = r.count("scale_value"), r.bit_count("shift_value")
    y = b.Cast(look_up(b, below + ((1 << bits) - 1), lut, bits, False), to=T.INT64)
    total = b.Max(b.ReduceSum(y, [axis]), 1)
    if shape[axis] < 8 and int(np.prod(shape)) // shape[axis] % 128 == 0:
        z, by = (y * 2048 + total / 2) / total, scale * 2.0 ** -(shift + 11)
    else:
        extra = _spare_bits(30 if lut.max() == 1 else 31, scale)
        z, by = y * ((scale << extra) / total), 2.0 ** -(shift + extra)
    part = rescale(b, b.Cast(z, to=T.DOUBLE), by, 0, (0, high - low))
    return r.stored(r.looked_up(part, "lut_log", bits, False))


def _by_floats(r: IntegerReading, below: Value, lut: Array, axis: int) -> Value:
    """A table of exponentials as floats, their sum and its logarithm."""
    b, (bits, _) = r.b, r.width()
    of_input, of_sum = r.number_list("quantize_scale", 2)
    size = max(lut.size.bit_length() - 1, 0)
    if lut.size != 1 << size or size > bits:
        raise MappingError(f"a table of {lut.size} entries for {bits} bits", "R105")
    step = 1 << (bits - size)
    index = below + ((1 << bits) - 1)
    high = index / step
    table = np.append(lut, lut[-1]).astype(np.float32)
    rest = b.Cast(index - high * step, to=T.FLOAT)
    first = b.Gather(b.const(table, "lut_exp"), high)
    slope = b.Gather(b.const(np.diff(table), "slope"), high)
    total = b.ReduceSum(first + slope * rest / step, [axis])
    return r.requantized(b.Cast(below, to=T.FLOAT) * of_input - b.Log(total) * of_sum, 1.0)


# mean and variance -------------------------------------------------------------------------------


@dataclass
class Groups:
    """What is normalised together.

    `shape`: the shape of the data while it is normalised; `axes`: the axes of mean and variance
    there; `weights` and `scales`: the shapes in which weights and factors broadcast to the data.
    """

    shape: list[int]
    axes: list[int]
    weights: list[int]
    scales: list[int]


def _groups(r: IntegerReading) -> Groups:
    layer, shape = r.layer, list(r.static(r.input(0)))
    rank = len(shape)
    if layer.kind == "GroupNorm":
        channel = axis_of(r.attr("axis", int, -1), rank)
        groups, along = r.count("group", 1), _kept(shape, [channel])
        if shape[channel] % groups:
            raise MappingError(f"{groups} groups of {shape[channel]} channels", "R105")
        cut = [*shape[:channel], groups, shape[channel] // groups, *shape[channel + 1 :]]
        axes = [a for a in range(1, rank + 1) if a != channel]
        return Groups(cut, axes, along, along)
    if layer.kind == "InstanceNorm" and "axis" not in layer.attrs:
        along = _kept(shape, [rank - 1])
        return Groups(shape, list(range(1, rank - 1)), along, along)
    axes = axes_of(layer) if "axis" in layer.attrs else [rank - 1]
    axes = [axis_of(a, rank) for a in axes]
    if layer.kind == "InstanceNorm":
        along = _kept(shape, [rank - 1])
        return Groups(shape, axes, along, along)
    return Groups(shape, axes, _kept(shape, axes), _kept(shape, axes[-1:]))


def _kept(shape: list[int], axes: list[int]) -> list[int]:
    return [size if a in axes else 1 for a, size in enumerate(shape)]


def lift_normalization(r: IntegerReading) -> list[Value]:
    """LayerNorm, GroupNorm, InstanceNorm and MVN: the distance from the rounded mean times the
    reciprocal root of the variance, then weights and biases of integers. A LayerNorm may give mean
    and root as well.
    """
    count = len(r.layer.outputs)
    if count not in (1, 3 if r.layer.kind == "LayerNorm" else 1):
        raise MappingError(f"what are {count} results of a {r.layer.kind}?")
    lut = r.layer.blobs.get("lut")
    if lut is not None and not np.array_equal(np.asarray(lut).reshape(-1), ROOTS):
        raise MappingError("what does a table of other numbers than reciprocal roots stand for?")
    b, groups = r.b, _groups(r)
    x = b.Cast(r.input(0), to=T.DOUBLE)
    y, *more = _normalized(r, b.Reshape(x, groups.shape), groups.axes)
    y = b.Reshape(y, list(r.static(x)))
    by = np.array(1.0)
    if r.layer.kind != "MVN":
        by = _shaped(r.factor, groups.scales)
        y = _weighted(r, y, groups.weights)
    results = [r.requantized(y, by)]
    for i, v in enumerate(more[: count - 1], 1):
        v = b.Reshape(v - float(r.tensors.zeros[i]), r.static(r.layer.outputs[i]))
        results.append(stored(b, bounded(b, v, *r.limits(i)), r.tensors.types[i]))
    return results


def _shaped(numbers: Array, shape: list[int]) -> Array:
    """One number for all, or one for each element of `shape`."""
    of_sizes(numbers, "scale, weights or biases", 1, int(np.prod(shape)))
    return numbers if numbers.size == 1 else numbers.reshape(shape)


def _normalized(r: IntegerReading, x: Value, axes: list[int]) -> tuple[Value, Value, Value]:
    """(x - mean) / deviation, in integers of the width of the result; the mean and the reciprocal
    root of the variance.
    """
    b, (bits, _) = r.b, r.width()
    prefix = "" if r.layer.kind == "MVN" else "norm_"
    scale = r.attr(f"{prefix}scale_value", float, 1.0)
    shift = r.bit_count(f"{prefix}shift_value", 0)
    mean = b.Round(b.ReduceMean(x, axes))
    squares = (x - mean) * (x - mean)
    if bits <= 8:
        bits_off = r.bit_count("var_shift_value")
        # the executor's shift to the right by less than 0 bits, for four elements or fewer, is 0
        by = 2.0**-bits_off if bits_off >= 0 else 0.0
        variance = b.Floor(b.ReduceSum(squares, axes) * by)
        root = b.Floor((_reciprocal_root(b, variance) + 32768) / 65536)
        product, by = (x - mean) * root, scale * 2.0 ** -(8 + shift)
    else:
        root = _reciprocal_root(b, b.Floor(b.ReduceMean(squares, axes)))
        root = b.Floor((root + 32768) / 65536)
        root = rescale(b, root, scale * 2.0**-shift, 0, (0, 65535))
        product, by = b.Floor((x - mean) / 2) * root, 2.0**-7
    low = -(1 << (r.tensors.bits - 1)) if r.tensors.types[0].is_signed() else 0
    return rescale(b, product, by, 0, (low, low + (1 << r.tensors.bits) - 1)), mean, root


def lift_rms_norm(r: IntegerReading) -> Value:
    """Times the reciprocal root of the mean of squares, then weights and biases of integers."""
    b, x, shape = r.b, r.double(), list(r.static(r.input(0)))
    axes = [axis_of(a, len(shape)) for a in axes_of(r.layer)]
    root = _reciprocal_root(b, b.Floor(b.ReduceMean(x * x, axes)))
    root = b.Floor((root + 32768) / 65536)
    by = r.factor_of("norm")
    root = rescale(b, root, by, 0, UINT16)
    y = bounded(b, b.Floor((x * root + 128.0) / 256), *limits_of_bits(r.tensors.bits, True))
    y = _weighted(r, y, _kept(shape, axes))
    return r.requantized(y, _shaped(r.factor, _kept(shape, axes[-1:])))


def _weighted(r: IntegerReading, y: Value, shape: list[int]) -> Value:
    """Times the weights, with the biases, where there are such."""
    for name, combine in (("weights", r.b.Mul), ("biases", r.b.Add)):
        if name in r.layer.blobs:
            given = r.blob(name).reshape(-1).astype(np.float64)
            given = given + of_sizes(zeros_of(r.layer, name), f"{name}_zp", 1, given.size)
            y = combine(y, r.b.const(_shaped(given, shape), name))
    return y


def lift_moments(r: IntegerReading) -> list[Value]:
    """The rounded mean as it is, and the variance from scale to scale."""
    b, axes, keep = r.b, axes_of(r.layer), int(r.attr("keepdims", bool, True))
    by = r.factor_of("input", 1, 0)
    x = b.Floor(b.Cast(r.input(0), to=T.DOUBLE) * by)
    mean = b.Round(b.ReduceMean(x, axes))
    variance = b.Floor(b.ReduceMean((x - mean) * (x - mean), axes))
    factor = r.factor_of("var")
    if r.width()[0] > 8:  # the executor's upper and lower half are rounded apart
        upper = b.Floor(variance / 65536)
        halves = (upper, factor * 65536), (variance - upper * 65536, factor)
        first, second = (rescale(b, half, f, 0, (0, 2**32 - 1)) for half, f in halves)
        variance, factor = first + second, 1.0
    variance = rescale(b, variance, factor, r.tensors.zeros[1], r.limits(1))
    pair = (mean, variance) if keep else (b.Squeeze(v, axes) for v in (mean, variance))
    return [stored(b, v, t) for v, t in zip(pair, r.tensors.types, strict=True)]


def lift_norm(r: IntegerReading) -> Value:
    """Division by the sum of amounts (L1), or by the root of the sum of squares (L2)."""
    axes, method = axes_of(r.layer), r.attr("method", str).upper()
    scale, shift = r.attr("scale_value", int), r.bit_count("shift_value")
    if method == "L2":
        return _by_root(r, axes, scale, shift)
    if method != "L1":
        raise MappingError(f"by which root of integers does a Normalization of {method} divide?")
    b, x = r.b, r.double()
    total = b.ReduceSum(b.Abs(x), axes)
    if shift < 0:
        total, shift = b.Floor(total * 2.0**shift), 0
    some = b.Max(total, 1)
    quotient = b.Cast(x * scale, to=T.FLOAT) / b.Cast(some, to=T.FLOAT)
    whole = b.Cast(b.Cast(quotient, to=T.INT64), to=T.DOUBLE)
    whole = b.Where(b.Equal(total, 0), 0, whole)
    return r.requantized(whole, 2.0**-shift)


def _by_root(r: IntegerReading, axes: list[int], scale: int, shift: int) -> Value:
    x = r.double()
    before = r.bit_count("reciprocal_shift_value")
    return by_reciprocal_root(r, x, r.b.ReduceSum(x * x, axes), scale, before, shift)


def by_reciprocal_root(
    r: IntegerReading, x: Value, total: Value, scale: float, before: int, shift: int
) -> Value:
    """The result: x * scale / sqrt(total) * 2 ** -shift, where the product with the scale loses
    `before` bits.

    The root has its 15 highest bits, and counts where their point is.
    """
    b = r.b
    pairs = reached(b, total, 2.0 ** np.arange(31, 63, 2))  # of bits beyond 31
    quarters = b.const(4.0 ** -np.arange(17), "quarters")
    part = b.Floor(total * b.Gather(quarters, b.Cast(pairs, to=T.INT64)))
    root = _reciprocal_root(b, part)
    # counted as the logarithm in a float, which calls what is just above a power of two that power
    just_above = 2.0 ** np.arange(15, 32) * (1 + np.log(2) * 2.0**-20)
    dropped = reached(b, root, just_above)
    halves = b.const(2.0 ** -np.arange(18), "halves")
    root = b.Floor(root * b.Gather(halves, b.Cast(dropped, to=T.INT64)))
    root = b.Min(root, 32767)
    y = rescale(b, x, float(scale), 0, INT32)
    y = rescale(b, y, 2.0**-before, 0, INT16, "Floor")
    y = rescale(b, y * root, 1.0, 0, INT32)
    y = y * 2.0 ** (dropped - pairs)
    return r.requantized(y, 2.0 ** -(shift + 31 - before))


def _reciprocal_root(b: Builder, x: Value) -> Value:
    """2 ** 31 / sqrt(x) for whole doubles below 2 ** 31, as the executor computes it: `ROOTS` by
    the seven highest bits of x, between two of them a straight line of 15 bits.
    """
    digits = reached(b, x, 2.0 ** np.arange(1, 31))  # floor(log2(x))
    at = b.Cast(digits, to=T.INT64)
    whole = x * b.Gather(b.const(2.0 ** (30 - np.arange(31)), "normal"), at)
    halved = b.const(np.where(np.arange(31) % 2 == 0, 0.5, 1.0), "halved")
    part = b.Floor(b.Floor(whole * b.Gather(halved, at)) / 128)
    index = b.Max(b.Floor(part / 65536) - 64, 0)
    rest = b.Floor(part / 2)
    rest = rest - b.Floor(rest / 32768) * 32768
    place = b.Cast(index, to=T.INT64)
    table = b.const(ROOTS, "roots")
    here = b.Gather(table, place)
    line = here * 65536 - (here - b.Gather(table, place + 1)) * rest * 2
    falling = b.const(2.0 ** -(np.arange(31) // 2), "falling")
    return b.Floor(line * b.Gather(falling, at))
