"""Softmax, and normalization by mean and variance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import (
    IntegerLiftContext,
    IntegerLowerContext,
    Written,
)
from converter.formats.zhouyi.quantization.requantize import (
    INT16,
    INT32,
    UINT16,
    bounded,
    cut,
    double,
    entry,
    floor,
    int64,
    limits_of_bits,
    of_sizes,
    reached,
    rescale,
    scalar_keys,
    single,
)
from converter.formats.zhouyi.quantization.tables import exponentials, look_up
from converter.formats.zhouyi.quantization.weights import with_zero_points
from converter.formats.zhouyi.rules.fields import axes_of
from converter.formats.zhouyi.unsupported import undocumented
from converter.graph.demands import axis_of
from converter.graph.infer import Array
from converter.graph.value import Value

# 32768 / sqrt(x) for x from 1 to 4 in steps of 1/64
ROOTS = np.minimum(np.rint(32768 / np.sqrt(1 + np.arange(193) / 64)), 32767)

# Softmax -----------------------------------------------------------------------------------------


def lift_softmax(r: IntegerLiftContext) -> Value:
    """Read Softmax: exponentials by powers of two, or by a table and a 31-bit quotient."""
    if "adjust_q" in r.layer.attrs:
        return _by_powers_of_two(r)
    if "float_lut" in r.layer.blobs and r.layer.extra.attrs.get("is_perf_mode"):
        return _by_short_floats(r)
    shares, by = _shares(r, r.blob("lut").reshape(-1), r.axis(-1))
    return r.requantized(shares, by)


def _below(r: IntegerLiftContext, axis: int) -> Value:
    """Return quantized values minus the largest along an axis: int64, at most 0."""
    x = int64(r.input(0))
    return x - r.b.ReduceMax(x, [axis])


def _shares(r: IntegerLiftContext, lut: Array, axis: int) -> tuple[Value, float]:
    """Return the exponentials of a table divided by their sum, and the remaining factor; the
    vendor's executor computes the quotient in two ways, depending on the size of the data.
    """
    b, shape, logarithm = r.b, r.shape, r.layer.kind == "LogSoftmax"
    scale, shift, (bits, _) = r.count("scale_value"), r.bit_count("shift_value"), r.width()
    y = int64(look_up(_below(r, axis) + ((1 << bits) - 1), lut, bits, False))
    total = b.Max(b.ReduceSum(y, [axis]), 1)
    width = 30 if lut.max() == 1 else 31
    small = shape[axis] < 8 and int(np.prod(shape)) // shape[axis] % 128 == 0
    if small and (logarithm or bits <= 8):
        extra = 11 if logarithm else _spare_bits(width, lut.max())
        shares = (y * (1 << extra) + total / 2) / total
        return double(shares), scale * 2.0 ** -(shift + extra)
    extra = _spare_bits(width, scale)
    return double(y * ((scale << extra) / total)), 2.0 ** -(shift + extra)


def _spare_bits(width: int, number: float) -> int:
    """Return how many bits are free above a number of `width` bits."""
    extra = width - int(np.ceil(np.log2(float(number)))) if number >= 1 else -1
    if extra < 0:
        raise MappingError(f"a scale or table of a Softmax with {number} is not known", "R110")
    return extra


def _by_powers_of_two(r: IntegerLiftContext) -> Value:
    """Return the method FAST_EXP: 2 ** n for integer n, and a logarithm of the sum with at most
    half-integer precision (`adjust_q` is its number of fractional bits); the zero point of the
    result is ignored.
    """
    finer, most = (r.bit_count(key, least=0) for key in ("adjust_q", "pow2_out_q"))
    if 1 < finer < 8:
        raise undocumented(f"how a Softmax with adjust_q={finer} rounds")
    b, x, axis, by = r.b, r.whole(), r.axis(-1), r.factor_of("input")
    x = x - b.ReduceMax(x, [axis])
    if finer >= 8:
        return _by_tables_of_powers(r, floor(x * by * 2.0**finer), axis)
    power = floor(x * by)
    total = b.Clip(b.ReduceSum(_power_of_two(power + most, most), [axis]), 1, 2**31 - 1)
    levels = 2.0 ** np.arange(1, 31)
    if finer:  # from this 31-bit number the logarithm is rounded up to the next half
        levels = np.append(levels, np.floor(1518500250 * 2.0 ** -np.arange(31)) + 1)
    steps, bits = 1 << finer, r.bits
    quotient = floor(((power + (most + bits)) * steps - reached(total, levels)) / steps)
    return r.stored(rescale(_power_of_two(quotient, bits), 1.0, 0, r.limits()))


def _by_tables_of_powers(r: IntegerLiftContext, power: Value, axis: int) -> Value:
    """Compute FAST_EXP with `adjust_q` fractional bits, of which the tables of 256 entries resolve
    eight.
    """
    b, finer, most = r.b, r.bit_count("adjust_q"), r.bit_count("pow2_out_q")
    total = b.ReduceSum(_from_table_of_powers(r, power, most), [axis])
    total = b.Clip(total, 1, 2**31 - 1)
    digits = reached(total, 2.0 ** np.arange(1, 31))  # floor(log2(total))
    part = floor(total * entry(2.0 ** (8 - np.arange(31)), digits))
    logarithm = floor(entry(r.flat("log2_lut"), part - 256.0) * 2.0 ** (finer - 15))
    logarithm = logarithm + (digits - most) * 2.0**finer
    y = _from_table_of_powers(r, power - logarithm, r.bits)
    return r.stored(rescale(y, 1.0, 0, r.limits()))


def _from_table_of_powers(r: IntegerLiftContext, power: Value, most: int) -> Value:
    """Return 2 ** power with `adjust_q` fractional bits, truncated, times 2 ** most."""
    finer = r.bit_count("adjust_q")
    exponent = floor(power * 2.0**-finer)
    rest = floor((power - exponent * 2.0**finer) * 2.0 ** (8 - finer))
    return floor(entry(r.flat("pow2_lut"), rest) * 2.0 ** (exponent + (most - 15)))


def _by_short_floats(r: IntegerLiftContext) -> Value:
    """Compute powers of two by a table of 16-bit floats (`float_lut`), truncated to 16 bits; both
    factors of the result are table values of the distance to the largest element.
    """
    b, (bits, _), lut = r.b, r.width(), r.blob("float_lut").reshape(-1).astype(np.float32)
    axis = r.axis(-1)
    if lut.size <= 512:
        raise MappingError(f"a table of powers must have 513 entries, got {lut.size}", "R105")
    distances = np.arange(1 << bits).astype(np.float32)
    before, behind = r.stated
    step = _cut_float(np.float32(-1) / (np.float32(0.6931471) * np.float32(before)))
    powers = _short_powers(_cut_float(distances * step), lut)
    with np.errstate(over="ignore"):
        halves = _cut_float(powers.astype(np.float16).astype(np.float32))
    scaled = (halves * np.float32(behind)).astype(np.float32)
    below = -_below(r, axis)
    total = b.ReduceSum(entry(powers.astype(np.float64), below), [axis])
    share = _short(1 / _short(total))
    return r.requantized(entry(scaled, below) * single(share), 1.0)


def _cut_float(x: Array | np.float32) -> Array:
    """Clear the lowest 8 bits of 32-bit floats."""
    return np.asarray((np.asarray(x, np.float32).view(np.int32) & ~0xFF).view(np.float32))


def _short_powers(exponents: Array, lut: Array) -> Array:
    """Return 2 ** exponents as the executor computes it: the table indexed by the nine highest
    fractional bits, linearly interpolated with seven bits.
    """
    x = np.clip(exponents, np.float32(-126.9), np.float32(126.9)).astype(np.float32)
    whole = np.floor(x)
    rest = ((x - whole) * np.float32(65535)).astype(np.int64)
    index, part = rest >> 7, (rest & 127).astype(np.float32)
    line = (lut[index + 1] - lut[index]) * part * np.float32(2.0**-7)
    return _cut_float((lut[index] + line) * np.exp2(whole))


def _short(x: Value) -> Value:
    """Return doubles between 2 ** -16 and 2 ** 16 as 32-bit floats, truncated to 16 bits."""
    x = double(single(x))
    up = entry(2.0 ** (31 - np.arange(33)), reached(x, 2.0 ** np.arange(-15, 17)))
    return floor(x * up) / up


def _power_of_two(exponent: Value, most: int) -> Value:
    """Return 2 ** exponent for integer exponents up to `most`, 0 for negative ones; doubles."""
    powers = np.append(0.0, 2.0 ** np.arange(most + 1))
    return entry(powers, bounded(exponent + 1, 0, most + 1))


def lower_softmax(w: IntegerLowerContext) -> Written:
    """Write Softmax with a table of exponentials."""
    w.demand_npu()
    keys = {"quantize_method": "LUT", **scalar_keys(1 / w.result.scale, w.bits)}
    return w.written(keys, lut=exponentials(w.sources[0]))


def lift_log_softmax(r: IntegerLiftContext) -> Value:
    """Use a table of floats, or a quotient as in Softmax, from 0 to the width of the result's
    range, and a table of logarithms.
    """
    lut, (bits, _), (low, high) = r.blob("lut_exp").reshape(-1), r.width(), r.limits()
    if lut.dtype.kind == "f":
        return _by_floats(r, lut, r.axis(-1))
    shares, by = _shares(r, lut, r.axis(-1))
    part = rescale(shares, by, 0, (0, high - low))
    return r.stored(r.looked_up(part, "lut_log", bits, False))


def _by_floats(r: IntegerLiftContext, lut: Array, axis: int) -> Value:
    """Compute softmax by a table of exponentials as floats, their sum and its logarithm."""
    b, below, (bits, _) = r.b, _below(r, axis), r.width()
    of_input, of_sum = r.number_list("quantize_scale", 2)
    size = max(lut.size.bit_length() - 1, 0)
    if lut.size != 1 << size or size > bits:
        raise MappingError(f"a table for {bits} bits must not have {lut.size} entries", "R105")
    step = 1 << (bits - size)
    index = below + ((1 << bits) - 1)
    high = index / step
    table = np.append(lut, lut[-1]).astype(np.float32)
    rest = single(index - high * step)
    line = entry(table, high) + entry(np.diff(table), high) * rest / step
    total = b.ReduceSum(line, [axis])
    return r.requantized(single(below) * of_input - b.Log(total) * of_sum, 1.0)


# mean and variance -------------------------------------------------------------------------------


@dataclass
class NormalizedGroups:
    """The elements that are normalized together.

    `shape`: the shape of the data while it is normalized; `axes`: the axes of mean and variance
    there; `weights` and `scales`: the shapes in which weights and factors broadcast to the data.
    """

    shape: list[int]
    axes: list[int]
    weights: list[int]
    scales: list[int]


def _groups(r: IntegerLiftContext) -> NormalizedGroups:
    layer, shape = r.layer, list(r.shape)
    rank = len(shape)
    if layer.kind == "GroupNorm":
        channel = r.axis(-1)
        groups, along = r.count("group", 1), _kept(shape, [channel])
        if shape[channel] % groups:
            raise MappingError(
                f"{shape[channel]} channels cannot be divided into {groups} groups", "R105"
            )
        cut = [*shape[:channel], groups, shape[channel] // groups, *shape[channel + 1 :]]
        axes = [a for a in range(1, rank + 1) if a != channel]
        return NormalizedGroups(cut, axes, along, along)
    usual = list(range(1, rank - 1)) if layer.kind == "InstanceNorm" else [rank - 1]
    axes = [axis_of(a, rank) for a in axes_of(layer)] if "axis" in layer.attrs else usual
    if layer.kind == "InstanceNorm":
        along = _kept(shape, [rank - 1])
        return NormalizedGroups(shape, axes, along, along)
    return NormalizedGroups(shape, axes, _kept(shape, axes), _kept(shape, axes[-1:]))


def _kept(shape: list[int], axes: list[int]) -> list[int]:
    return [size if a in axes else 1 for a, size in enumerate(shape)]


def lift_normalization(r: IntegerLiftContext) -> list[Value]:
    """Read LayerNorm, GroupNorm, InstanceNorm and MVN: the distance from the rounded mean times the
    reciprocal root of the variance, then integer weights and biases. A LayerNorm may also return
    mean and root.
    """
    count = len(r.layer.outputs)
    if count not in (1, 3 if r.layer.kind == "LayerNorm" else 1):
        raise undocumented(f"what the {count} outputs of a {r.layer.kind} are")
    lut = r.layer.blobs.get("lut")
    if lut is not None and not np.array_equal(np.asarray(lut).reshape(-1), ROOTS):
        raise undocumented("what a table other than reciprocal square roots means")
    b, groups = r.b, _groups(r)
    x = r.whole()
    y, *more = _normalized(r, b.Reshape(x, groups.shape), groups.axes)
    y = b.Reshape(y, list(r.static(x)))
    by = np.array(1.0)
    if r.layer.kind != "MVN":
        by = _shaped(r.factor, groups.scales)
        y = _weighted(r, y, groups.weights)
    results = [r.requantized(y, by)]
    for i, v in enumerate(more[: count - 1], 1):
        v = b.Reshape(v - r.zeros[i], r.static(r.layer.outputs[i]))
        results.append(bounded(v, *r.limits(i)))
    return r.all_stored(results)


def _shaped(numbers: Array, shape: list[int]) -> Array:
    """Return one number for all elements, or one for each element of `shape`."""
    of_sizes(numbers, "scale, weights or biases", 1, int(np.prod(shape)))
    return numbers if numbers.size == 1 else numbers.reshape(shape)


def _normalized(r: IntegerLiftContext, x: Value, axes: list[int]) -> tuple[Value, Value, Value]:
    """Return (x - mean) / deviation in integers of the result's width, and the mean and the
    reciprocal root of the variance.
    """
    b, (bits, _) = r.b, r.width()
    prefix = "" if r.layer.kind == "MVN" else "norm_"
    scale = r.attr(f"{prefix}scale_value", float, 1.0)
    shift = r.bit_count(f"{prefix}shift_value", 0)
    mean = b.Round(b.ReduceMean(x, axes))
    d = x - mean
    if bits <= 8:
        bits_off = r.bit_count("var_shift_value")
        # the executor's shift to the right by less than 0 bits, for four elements or fewer, is 0
        by = 2.0**-bits_off if bits_off >= 0 else 0.0
        root = _short_root(b.ReduceSum(d * d, axes) * by)
        product, by = d * root, scale * 2.0 ** -(8 + shift)
    else:
        root = rescale(_short_root(b.ReduceMean(d * d, axes)), scale * 2.0**-shift, 0, UINT16)
        product, by = floor(d / 2) * root, 2.0**-7
    low = -(1 << (r.bits - 1)) if r.types[0].is_signed() else 0
    return rescale(product, by, 0, (low, low + (1 << r.bits) - 1)), mean, root


def lift_rms_norm(r: IntegerLiftContext) -> Value:
    """Multiply by the reciprocal root of the mean of squares, then apply integer weights and
    biases.
    """
    b, x, shape = r.b, r.double(), list(r.shape)
    axes = [axis_of(a, len(shape)) for a in axes_of(r.layer)]
    root = rescale(_short_root(b.ReduceMean(x * x, axes)), r.factor_of("norm"), 0, UINT16)
    y = bounded(floor((x * root + 128.0) / 256), *limits_of_bits(r.bits, True))
    y = _weighted(r, y, _kept(shape, axes))
    return r.requantized(y, _shaped(r.factor, _kept(shape, axes[-1:])))


def _weighted(r: IntegerLiftContext, y: Value, shape: list[int]) -> Value:
    """Multiply by the weights, and add the biases, where they exist."""
    for name, combine in (("weights", r.b.Mul), ("biases", r.b.Add)):
        if name in r.layer.blobs:
            y = combine(y, _shaped(with_zero_points(r.layer, name), shape))
    return y


def lift_moments(r: IntegerLiftContext) -> list[Value]:
    """Return the rounded mean unscaled, and the variance rescaled."""
    b, axes, keep = r.b, axes_of(r.layer), int(r.attr("keepdims", bool, True))
    x = floor(r.whole() * r.factor_of("input", 1, 0))
    mean = b.Round(b.ReduceMean(x, axes))
    d = x - mean
    variance = floor(b.ReduceMean(d * d, axes))
    factor = r.factor_of("var")
    if r.width()[0] > 8:  # the executor's upper and lower half are rounded apart
        upper = floor(variance / 65536)
        halves = (upper, factor * 65536), (variance - upper * 65536, factor)
        first, second = (rescale(half, f, 0, (0, 2**32 - 1)) for half, f in halves)
        variance, factor = first + second, 1.0
    variance = rescale(variance, factor, r.zeros[1], r.limits(1))
    pair = (mean, variance) if keep else (b.Squeeze(v, axes) for v in (mean, variance))
    return r.all_stored(pair)


def lift_norm(r: IntegerLiftContext) -> Value:
    """Read Norm: divide by the sum of magnitudes (L1), or by the root of the sum of
    squares (L2).
    """
    axes, method = axes_of(r.layer), r.attr("method", str)
    scale, shift = r.attr("scale_value", int), r.bit_count("shift_value")
    b, x = r.b, r.double()
    if method == "L2":
        before = r.bit_count("reciprocal_shift_value")
        return by_reciprocal_root(r, x, b.ReduceSum(x * x, axes), scale, before, shift)
    if method != "L1":
        raise undocumented(f"how a Normalization of {method} takes its root")
    total = b.ReduceSum(b.Abs(x), axes)
    if shift < 0:
        total, shift = floor(total * 2.0**shift), 0
    whole = cut(single(x * scale) / single(b.Max(total, 1)))
    return r.requantized(b.Where(b.Equal(total, 0), 0, whole), 2.0**-shift)


def by_reciprocal_root(
    r: IntegerLiftContext, x: Value, total: Value, scale: float, before: int, shift: int
) -> Value:
    """Return x * scale / sqrt(total) * 2 ** -shift; the product with the scale loses its lowest
    `before` bits.


    The root is a 15-bit number and the position of its binary point.
    """
    pairs = reached(total, 2.0 ** np.arange(31, 63, 2))  # of bits beyond 31
    root = _reciprocal_root(floor(total * entry(4.0 ** -np.arange(17), pairs)))
    # counted as the logarithm in a float, which rounds numbers just above a power of two to that
    # power
    just_above = 2.0 ** np.arange(15, 32) * (1 + np.log(2) * 2.0**-20)
    dropped = reached(root, just_above)
    root = r.b.Min(floor(root * entry(2.0 ** -np.arange(18), dropped)), 32767)
    y = rescale(x, scale, 0, INT32)
    y = rescale(y, 2.0**-before, 0, INT16, "Floor")
    y = rescale(y * root, 1.0, 0, INT32)
    y = y * 2.0 ** (dropped - pairs)
    return r.requantized(y, 2.0 ** -(shift + 31 - before))


def _short_root(x: Value) -> Value:
    """Return 2 ** 15 / sqrt(x), rounded; fractions of the doubles x are ignored."""
    return floor((_reciprocal_root(floor(x)) + 32768) / 65536)


def _reciprocal_root(x: Value) -> Value:
    """Return 2 ** 31 / sqrt(x) for integer doubles below 2 ** 31, as the executor computes it:
    `ROOTS` indexed by the seven highest bits of x, with linear interpolation of 15 bits.
    """
    steps = np.arange(31)
    digits = int64(reached(x, 2.0 ** steps[1:]))  # floor(log2(x))
    whole = x * entry(2.0 ** (30 - steps), digits)
    part = floor(floor(whole * entry(np.where(steps % 2 == 0, 0.5, 1.0), digits)) / 128)
    place = int64(bounded(floor(part / 65536) - 64, 0, len(ROOTS) - 2))
    rest = floor(part / 2)
    rest = rest - floor(rest / 32768) * 32768
    here = entry(ROOTS, place)
    line = here * 65536 - (here - entry(ROOTS, place + 1)) * rest * 2
    return floor(line * entry(2.0 ** -(steps // 2), digits))
