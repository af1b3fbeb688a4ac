"""Sums, products, activations, look-up tables, conversions, comparisons and choices."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import (
    IntegerLiftContext,
    IntegerLowerContext,
    Written,
)
from converter.formats.zhouyi.quantization.quant_params import QuantParams
from converter.formats.zhouyi.quantization.requantize import (
    INT16,
    INT32,
    approximate,
    bounded,
    constant_like,
    double,
    entry,
    floor,
    int64,
    limits_of_bits,
    list_keys,
    low_32_bits,
    reached,
    real,
    rescale,
    scalar_keys,
    wrapped,
)
from converter.formats.zhouyi.types import dtype_name
from converter.formats.zhouyi.unsupported import undocumented
from converter.formats.zhouyi.values import DType
from converter.graph.demands import axis_of, of_length
from converter.graph.infer import Array
from converter.graph.sizes import arange
from converter.graph.value import Value
from converter.mapping.codecs import enum
from converter.mapping.node import Layer

TABLES = """Acos Acosh Asin Asinh Atan Atanh Ceil Cosh Cosine Erf Exp Floor Log Reciprocal Round
Rsqrt Sine Sinh Sqrt Square Tan Trunc BNLL"""
METHODS = {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "MAX": "Max", "MIN": "Min"}
MOST_UPDATES = 256
PIECEWISE = ("NONE", "RELU", "RELU6", "LEAKYRELU", "CLIP")
LOGIC = {"AND": "And", "OR": "Or", "XOR": "Xor", "NOT": "Not"}
COMPARISONS = {
    "EQUAL": "Equal",
    "NOT_EQUAL": "Equal",
    "GREATER": "Greater",
    "GREATER_EQUAL": "GreaterOrEqual",
    "LESS": "Less",
    "LESS_EQUAL": "LessOrEqual",
}

# two operands ------------------------------------------------------------------------------------


def lift_eltwise(r: IntegerLiftContext) -> Value:
    """Read Eltwise: ADD, SUB, MAX and MIN first rescale both operands to a common scale, other
    methods multiply the integers directly.
    """
    op = r.attr("method", ~enum(METHODS)) if r.layer.kind == "Eltwise" else r.layer.kind
    x, y = r.real(0), r.real(1)
    if op != "Mul":
        first, second = r.operand_scales()
        x, y = x * first, y * second
    return r.activated(r.b.operator(op)(x, y), r.first_factor)


def lower_eltwise(w: IntegerLowerContext) -> Written:
    """Write Eltwise: ADD, SUB, MAX and MIN first rescale both operands to a common scale of 15
    bits, products use the integers directly.
    """
    scales = np.array([p.scale for p in w.sources], np.float64)
    if w.layer.attrs.get("method", w.layer.kind.upper()) == "MUL":
        return w.with_activation(scalar_keys(scales[0] * scales[1] / w.result.scale, w.bits))
    factor, shift, weights = _common_scale(scales / w.result.scale, w.bits)
    keys = scalar_keys(1.0, w.bits)
    keys |= {"scale_type": [keys["scale_type"], DType.UINT16, DType.UINT16]}
    keys |= {"scale_value": [factor, *weights], "shift_value": shift}
    return w.with_activation(keys)


def _common_scale(steps: Array, bits: int) -> tuple[int, int, list[int]]:
    """Return multiplier, shift and weights so that multiplier * 2 ** -shift * weights is nearest to
    `steps`: of all 15-bit weights those with the smallest error.
    """
    most = np.iinfo(np.int16).max
    largest = np.arange(most // 2 + 1, most + 1)
    weights = np.rint(np.outer(steps / steps.max(), largest))
    factors, shifts = approximate(steps.max() / largest, bits)
    wrong = np.abs(weights * factors * 2.0**-shifts - steps[:, None]).sum(axis=0)
    best = int(np.argmin(wrong))
    return int(factors[best]), int(shifts[best]), [int(v) for v in weights[:, best]]


def lift_divide(r: IntegerLiftContext) -> Value:
    """Multiply by the reciprocal of the divisor's magnitude, from a table; its first entry is the
    value for a divisor of 0.
    """
    b, (x, y) = r.b, r.reals()
    found = r.looked_up(b.Abs(y), "lut", r.width(1)[0], False)
    sign = b.Where(y < 0, b.like(y, -1), 1)
    return r.requantized(sign * x * found)


def lower_divide(w: IntegerLowerContext) -> Written:
    """Write a table of reciprocals for the magnitudes of the divisor; a division by 0 gets the
    largest.
    """
    w.demand_npu()
    x, y = w.sources
    if y.dtype.bitwidth != 8:
        raise MappingError("a table of reciprocals needs an 8-bit divisor")
    with np.errstate(divide="ignore"):
        table = np.minimum(np.rint(65535 / np.arange(256)), 65535).astype(np.uint16)
    return w.written(scalar_keys(x.scale / (y.scale * 65535 * w.result.scale), w.bits), lut=table)


def lift_squared_difference(r: IntegerLiftContext) -> Value:
    """Read SquaredDifference, in two variants of the vendor's tools: with one scale for the
    difference, or with one for each operand.
    """
    x, y = r.reals()
    scales, shifts = r.scales, r.shifts
    if scales.size == 4 and shifts.size == 2:
        d = x * float(scales[1]) - y * float(scales[2])
        d = rescale(d, scales[3] * 2.0 ** -shifts[1], 0, INT32)
    elif scales.size == 3 and shifts.size == 3:
        _, first, second = r.factors(3)
        d = rescale(x, first, 0, INT32) - rescale(y, second, 0, INT32)
    else:
        message = f"{scales.size} scales and {shifts.size} shifts have no integer form here"
        raise MappingError(message, "R110")
    return r.requantized(d * d, r.first_factor)


def lift_mod(r: IntegerLiftContext) -> Value:
    """Read Mod: both operands are first rescaled to the scale of the result, within the ranges of
    their own tensors; a divisor of 0 is replaced by 1.
    """
    b, pairs = r.b, enumerate(r.factors(2))
    x, y = (rescale(r.double(i), by, 0, r.input_limits(i)) for i, by in pairs)
    y = b.Where(b.Equal(y, 0), 1, y)
    rest = b.Mod(x, y, fmod=1) if r.attr("fmod", bool) else x - floor(x / y) * y
    return r.requantized(rest, 1.0)


def lift_pow(r: IntegerLiftContext) -> Value:
    """Read Pow as exp(y * log(x)): both functions are tables, with a 16-bit product between them;
    the sign of x is kept for odd y. With the key `exponent` the first table contains the result.
    """
    b, x, y = r.b, r.double(0), r.double(1)
    log = r.entries("lut_log", r.input(0))
    if "exponent" in r.layer.attrs:
        return r.stored(log)
    product = rescale(log * y, r.first_factor, 0, INT16)
    power = double(r.looked_up(product, "lut_exp", 16, True))
    amount = b.Abs(y)
    odd = amount - floor(amount / 2) * 2
    none = b.Where(b.Equal(y, 0), b.like(x, 1), 0)
    sign = b.Where(b.Equal(x, 0), none, b.Where(odd > 0, b.Sign(x), 1))
    return r.stored(power * sign)


def lift_scatter(r: IntegerLiftContext) -> Value:
    """Read scatters, with data and updates rescaled to a common scale first. ScatterElements clamps
    them to the range of both; wide results of ScatterND are truncated, not rounded.
    """
    signed, by_element = r.types[0].is_signed(), r.layer.kind == "ScatterElements"
    if not signed and any(r.input_limits(i)[0] + r.input_zeros[i] < 0 for i in (0, 2)):
        raise undocumented("which negative numbers an unsigned scatter keeps")
    if r.attr("reduction", str, "NONE") == "MUL":
        return (_elements_multiplied if by_element else _slices_multiplied)(r)
    bits = r.width(0)[0] + r.width(2)[0] if by_element else 48
    data, updates = (
        rescale(r.double(i), scale, 0, limits_of_bits(bits, signed))
        for i, scale in zip((0, 2), r.operand_scales(), strict=True)
    )
    y = r.as_numbers(data, r.input(1), updates)
    rounding = "Floor" if r.bits > 8 and not by_element else "Round"
    return r.stored(r.rescaled(y, r.first_factor, rounding))


def _elements_multiplied(r: IntegerLiftContext) -> Value:
    """Multiply 16-bit numbers by one update after the other: a product of more bits loses its
    lowest ones, by which the shift after the factor is reduced. Zero points are ignored.
    """
    b, signed, first = r.b, r.types[0].is_signed(), r.factors(2)[0]
    limits, axis, index = limits_of_bits(16, signed), r.axis(0), int64(r.input(1))
    y = rescale(r.double(0), first, 0, limits)
    size = r.static(y)[axis]
    index = bounded(b.Where(index < 0, index + size, index), 0, size - 1)
    updates, most = r.double(2), limits[1] + 1
    for i in range(_update_count(r.static(index)[axis])):
        at, by = (b.Slice(v, [i], [i + 1], [axis]) for v in (index, updates))
        product = low_32_bits(b.GatherElements(y, at, axis=axis) * by)
        # so many bits that the remaining ones are 16
        amount = b.Where(product < 0, -product - 1, product)
        lost = reached(amount, most * 2.0 ** np.arange(32 - (15 if signed else 16)))
        fewer = 2.0**lost
        left = floor(product / fewer) * r.scales[1]
        found = floor(left * fewer * 2.0 ** -r.shifts[1])
        y = b.ScatterElements(y, at, found, axis=axis)
    return r.stored(bounded(y, *r.limits()))


def _slices_multiplied(r: IntegerLiftContext) -> Value:
    """Multiply by one slice of the updates after the other; results of more than 8 bits are
    truncated, not rounded.
    """
    b, signed, first = r.b, r.types[0].is_signed(), r.factors(3)[0]
    rounding = "Round" if r.bits <= 8 else "Floor"
    y, updates = r.double(0) * r.scales[1], r.double(2) * r.scales[2]
    index, shape = int64(r.input(1)), r.static(r.input(1))
    rows, depth = int(np.prod(shape[:-1])), shape[-1]
    index = b.Reshape(index, [rows, depth])
    updates = b.Reshape(updates, [rows, *r.static(y)[depth:]])
    for i in range(_update_count(rows)):
        at, by = (v[i : i + 1] for v in (index, updates))
        product = b.GatherND(y, at) * by
        found = rescale(product, 2.0 ** -r.shifts[2], 0, limits_of_bits(32, signed), rounding)
        y = b.ScatterND(y, at, found)
    return r.stored(r.rescaled(y, first, rounding))


def _update_count(count: int) -> int:
    """Return the number of updates that are unrolled."""
    if count > MOST_UPDATES:
        raise MappingError(f"{count} updates multiplied one by one would make the graph too large")
    return count


def lift_in_top_k(r: IntegerLiftContext) -> Value:
    """Compare the integers, which have the same order as the real numbers."""
    return r.stored(r.as_numbers(r.real(narrow=True), r.input(1)))


def lift_one_hot(r: IntegerLiftContext) -> Value:
    """Read OneHot: the two values are used as they are, within the range of the result; positions
    are not wrapped.
    """
    b, rank = r.b, len(r.shape)
    axis, depth = r.attr("axis", int, -1), r.attr("depth", int)
    off, on = r.number_list("values", 2)
    if axis < -1:
        raise undocumented(f"which axis of the result axis={axis} is")
    place = axis_of(axis, rank + 1)
    classes = arange(depth).reshape([-1] + [1] * (rank - place))
    found = b.Equal(b.Unsqueeze(int64(r.input(0)), [place]), classes)
    return r.stored(b.Where(found, *(np.float32(np.clip(v, *r.limits())) for v in (on, off))))


# one operand -------------------------------------------------------------------------------------


def lift_table(r: IntegerLiftContext) -> Value:
    """Read an activation as a lookup table, or as arithmetic if it is piecewise linear."""
    layer, method = r.layer, r.attr("method", str, "")
    if layer.kind == "Activation" and method in PIECEWISE and "lut" not in layer.blobs:
        layer.attrs["with_activation"] = method
        return r.activated(r.real(), r.factor)
    if method == "PRELU" and "negative_slope" in layer.blobs:
        return _lift_prelu(r)
    if method == "CRELU" and "lut" not in layer.blobs:
        x = r.real()
        both = (r.b.Relu(v) for v in (x, -x))
        return r.requantized(r.b.Concat(*both, axis=r.attr("axis", int, -1)))
    if layer.kind in ("Sine", "Cosine") and r.is_scaled():
        return _periodic_table(r)
    if "lut" not in layer.blobs or r.is_scaled():
        what = f"{layer.kind} {method}".strip()
        raise MappingError(
            f"the table of {what} is missing, and its result without one is not documented"
        )
    return r.stored(r.looked_up(r.input(0), "lut", *r.width()))


def _periodic_table(r: IntegerLiftContext) -> Value:
    """Return a table of one period, whose size divides the scaled number."""
    lut = r.blob("lut").reshape(-1)
    if lut.size & (lut.size - 1):
        raise MappingError(f"a table must have a power of two of entries, got {lut.size}", "R105")
    return r.stored(entry(lut, int64(rescale(r.double(), r.factor[0], 0, INT32)) % lut.size))


def lower_table(w: IntegerLowerContext) -> Written:
    """Write a function of one operand as a lookup table."""
    return w.written(lut=w.look_up_table())


def lower_activation(w: IntegerLowerContext) -> Written:
    """Write an activation: a clamp as a requantization, Relu and LeakyRelu by scales, PRelu by its
    slopes, and others by a lookup table.
    """
    if w.method in ("RELU", "RELU6", "CLIP", "LEAKYRELU"):
        found = w.activation("method")
        if found["method"] == "NONE":  # only the range limits
            return requantization(w)
        return w.written(found | scalar_keys(w.factor, w.bits))
    if w.method == "PRELU":
        return _lower_prelu(w)
    if w.method == "CRELU":
        raise MappingError(f"{w.method} has no integer form")
    return lower_table(w)


def _lift_prelu(r: IntegerLiftContext) -> Value:
    """Apply a slope for each element, with `negative_slope_shift` fractional bits; an unsigned
    result has no values below 0.
    """
    b, x, slope = r.b, r.real(), r.blob("negative_slope").astype(np.float32)
    rank = len(r.static(x))
    if slope.ndim > rank:
        slope = slope.reshape(slope.shape[slope.ndim - rank :])
    slope = np.ldexp(slope, -r.bit_count("negative_slope_shift"))
    slopes = constant_like(slope, x, f"{r.layer.name}.negative_slope")
    y = b.Relu(x) + b.Round(b.Min(x, 0) * slopes)
    dtype = r.types[0]
    unsigned = dtype.is_integer() and not dtype.is_signed()
    return r.requantized(b.Max(y, 0) if unsigned else y)


def _signed(params: QuantParams) -> tuple[ir.DataType, int]:
    """Return the signed type with as many bits, and the difference of the same numbers there."""
    bits = params.dtype.bitwidth
    less = 0 if params.dtype.is_signed() else 1 << (bits - 1)
    return (ir.DataType.INT8 if bits == 8 else ir.DataType.INT16), less


def params_of_activation(layer: Layer, source: QuantParams, wanted: QuantParams) -> QuantParams:
    """Give PRELU signed results: otherwise executors clamp negative numbers to 0."""
    dtype, less = _signed(wanted)
    if layer.attrs.get("method") != "PRELU" or not less:
        return wanted
    return QuantParams.of(wanted.scale, wanted.zero - less, dtype)


def _lower_prelu(w: IntegerLowerContext) -> Written:
    """Write slopes as 16-bit integers with one shift for all."""
    slope = np.asarray(w.layer.blobs["negative_slope"], np.float64)
    largest = max(float(np.abs(slope).max()), 2.0**-15)
    shift = int(min(np.floor(np.log2(32767 / largest)), 31))
    keys = {"negative_slope_shift": shift, "negative_slope_type": DType.INT16}
    integers = np.rint(slope * 2.0**shift).astype(np.int16)
    return w.written(keys | scalar_keys(w.factor, w.bits), negative_slope=integers)


def lift_abs(r: IntegerLiftContext) -> Value:
    """Lift Abs: with a scale, the absolute value of the real number; without one, of the integer
    including its zero point.
    """
    if r.is_scaled():
        return r.requantized(r.b.Abs(r.real()))
    wide = int64(r.input(0))
    return wrapped(r.b.Abs(wide), r.types[0])


def lift_negative(r: IntegerLiftContext) -> Value:
    """The scale stays; the zero point of the output is subtracted, and the result clamped to the
    range.

    Raises MappingError if the layer has a scale, which the executor ignores: its writer intended
    another result.
    """
    if (r.factor != 1).any():
        what = f"{r.layer.kind} has a scale, which the executor ignores"
        raise undocumented(f"what it means that {what}")
    return r.requantized(-r.real(), 1.0)


def lift_sign(r: IntegerLiftContext) -> Value:
    """Read Sign: -1, 0 and 1 as integers, independent of the output's scale."""
    return r.stored(r.b.Sign(r.real()))


def lower_abs(w: IntegerLowerContext) -> Written:
    """Write Abs with a scale: without one the executor ignores zero points."""
    return w.written(scalar_keys(w.factor, w.bits))


def lower_as_it_is(w: IntegerLowerContext) -> Written:
    """Write a layer without scales: its integers are those of the operands."""
    return w.written()


def same_params(layer: Layer, source: QuantParams, wanted: QuantParams) -> QuantParams:
    """Return the quantization of the operand for the result."""
    return source


def has_slopes(layer: Layer) -> bool:
    """Return whether negative inputs of an activation are rounded twice, first with the scale of
    the data.
    """
    return layer.attrs.get("method") in ("LEAKYRELU", "PRELU")


def params_of_negative(layer: Layer, source: QuantParams, wanted: QuantParams) -> QuantParams:
    """Return the same scale with the range mirrored, signed."""
    dtype, less = _signed(source)
    return QuantParams.of(source.scale, less - 1 - source.zero, dtype)


def params_of_sign(layer: Layer, source: QuantParams, wanted: QuantParams) -> QuantParams:
    """Return the quantization of a sign: -1, 0 and 1 as int8 with scale 1."""
    return QuantParams.of(1.0, 0, ir.DataType.INT8)


# conversions -------------------------------------------------------------------------------------


def lift_cast(r: IntegerLiftContext) -> Value:
    """Lift Cast. With a scale: rescale. Without one: change the zero point, or keep the integer as
    it is, reduced to the bits of the type.

    A result of more than 16 bits is truncated, not rounded.
    """
    dtype = r.types[0]
    if r.is_scaled():
        wide = dtype.is_integer() and dtype.bitwidth > 16
        return r.stored(r.rescaled(r.real(), r.factor, "Identity" if wide else "Round"))
    if r.attr("clip_mode", str, "SATURATION") == "TRUNCATION":
        return wrapped(int64(r.input(0)), dtype)
    if r.layer.attrs.get("ignore_scale_zp"):
        return r.stored(rescale(real(r.input(0)), 1.0, 0, r.limits()))
    return r.requantized(r.real(), 1.0)


def requantization(w: IntegerLowerContext) -> Written:
    """Convert from one scale and zero point to another."""
    keys = {
        "to_dtype": dtype_name(w.result.dtype),
        "ignore_scale_zp": False,
        "clip_mode": "SATURATION",
    }
    return "Cast", keys | scalar_keys(w.factor, w.bits), {}


def lift_concat(r: IntegerLiftContext) -> Value:
    """Lift Concat; operands with other scales are rescaled first."""
    axis = r.attr("axis", int)
    if not r.is_scaled():
        return r.b.Concat(*r.layer.inputs, axis=axis)
    pairs = zip(r.reals(), r.factors(len(r.layer.inputs)), strict=True)
    parts = [r.rescaled(v, by) for v, by in pairs]
    return r.stored(r.b.Concat(*parts, axis=axis))


def lower_concat(w: IntegerLowerContext) -> Written:
    """Write Concat, with a scale for each operand unless all are quantized alike."""
    if len({(p.scale, p.zero, p.dtype) for p in (*w.sources, w.result)}) == 1:
        return w.written()
    return w.written(list_keys([p.scale / w.result.scale for p in w.sources], w.bits))


# truth -------------------------------------------------------------------------------------------


def lift_logical(r: IntegerLiftContext) -> Value:
    """Read Logical: comparisons rescale both operands to a common scale; other methods treat every
    nonzero value as true.
    """
    b, method = r.b, r.attr("method", str)
    if method in COMPARISONS:
        scales = r.scales
        if scales.size not in (1, 2):
            message = f"scale_value must be two numbers, got {scales.tolist()}"
            raise MappingError(message, "R110")
        pairs = zip(r.reals(), np.broadcast_to(scales, 2), strict=True)
        truth = b.operator(COMPARISONS[method])(*(v * float(s) for v, s in pairs))
        truth = ~truth if method == "NOT_EQUAL" else truth
    else:
        values = [real(v) for v in r.operands]
        found = [~b.Equal(v, 0) for v in values]
        truth = b.operator(r.attr("method", ~enum(LOGIC)))(*found)
    return b.Cast(truth, to=r.types[0])


def lower_comparison(w: IntegerLowerContext) -> Written:
    """Write a comparison; both operands have a common scale of 13 bits, as in the vendor's
    quantizer.
    """
    if len(w.sources) != 2 or w.method in ("AND", "OR", "XOR"):
        raise MappingError(f"{w.method} of numbers has no integer form")
    scales = np.array([p.scale for p in w.sources], np.float64)
    least, most = scales.min(), scales.max()
    weights = np.maximum(np.rint(scales / least * min(8192.0, 32767 * least / most)), 1)
    keys = {"scale_value": [int(s) for s in weights], "scale_type": [DType.UINT16] * 2}
    return w.written(keys)


def lift_where(r: IntegerLiftContext) -> Value:
    """Read Where: operands are rescaled to the scale of the result, each by its own factor or both
    by one; the condition is true where it is not 0.
    """
    b, (condition, *sides) = r.b, r.reals()
    of_length(2, operands=sides)
    factors = np.broadcast_to(r.factors(1 if r.scales.size == 1 else 2), 2)
    x, y = (r.rescaled(v, f) for v, f in zip(sides, factors, strict=True))
    return r.stored(b.Where(~b.Equal(condition, 0), x, y))


def lower_where(w: IntegerLowerContext) -> Written:
    """Write Where: each operand is rescaled to the scale of the result."""
    return w.written(list_keys([p.scale / w.result.scale for p in w.sources[1:]], w.bits))
