"""Labels, counts, bits and positions, which are stored without scale; and segments of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import IntegerLiftContext
from converter.formats.zhouyi.quantization.normalization import by_reciprocal_root
from converter.formats.zhouyi.quantization.requantize import (
    bounded,
    cut,
    double,
    floor,
    int64,
    limits_of_bits,
    reached,
    real,
    rescale,
)
from converter.formats.zhouyi.unsupported import undocumented
from converter.graph.sizes import arange
from converter.graph.value import Value

# without scale
# -------------------------------------------------------------------------------------


# results of these layers on integers are not quantized
PLAIN = """AccidentalHits BitShift Bitwise DivMod MatMulInteger Meshgrid NonZero QueryRebatch
Unique"""


def lift_plain(r: IntegerLiftContext) -> list[Value]:
    """Apply the layer to the integers, regardless of scales."""
    return r.all_stored(r.all_as_numbers(*r.operands))


def lift_same(r: IntegerLiftContext) -> Value:
    """Pass the data on: they are quantized already."""
    return r.b.Identity(r.input(0))


def lift_count(r: IntegerLiftContext) -> list[Value]:
    """Read Count, whose bounds have the scale of the data."""
    return r.all_stored(r.all_as_numbers(_numbers(r)))


def lift_ctc(r: IntegerLiftContext) -> list[Value]:
    """Lift the CTC decoders, which compare quantized values."""
    return r.all_stored(r.all_as_numbers(_numbers(r), r.input(1)))


def lift_valid_count(r: IntegerLiftContext) -> list[Value]:
    """Read ValidCount: the threshold has the scale of the scores; the filler -1 is stored unscaled,
    or as 0 in an unsigned type.
    """
    keys: dict[str, Any] = {
        k: r.attr(k, int) for k in ("score_index", "id_index") if k in r.layer.attrs
    }
    keys["score_threshold"] = r.attr("score_threshold_value", int)
    count, rows, places = r.all_as_numbers(_numbers(r), attrs=keys)
    if r.limits(1)[0] >= 0:
        real = r.b.Unsqueeze(places >= 0, [2])
        rows = r.b.Where(real, rows, 0)
    return r.all_stored([count, rows, places])


def lift_by_index(r: IntegerLiftContext) -> Value:
    """Read scatters into a result whose other elements are the quantized value of 0."""
    y = r.as_numbers(r.real(narrow=True), r.input(1))
    return r.stored(y - r.input_zeros[0])


def _numbers(r: IntegerLiftContext) -> Value:
    """Return the integers of the first input as floats."""
    return real(r.input(0), narrow=True)


# segments ----------------------------------------------------------------------------------------


def _members(r: IntegerLiftContext, ids: Value) -> Value:
    """Return doubles [rows, n]: 1 where ids[n] is the row."""
    every = arange(r.declared_size(0, 0)).reshape(-1, 1)
    return double(r.b.Equal(int64(r.b.Reshape(ids, [1, -1])), every))


def _flat(r: IntegerLiftContext, x: Value) -> Value:
    shape = r.static(x)
    return r.b.Reshape(x, [shape[0], int(np.prod(shape[1:]))])


def lift_segment_sum(r: IntegerLiftContext) -> Value:
    """Lift SegmentSum as a product with a matrix of members. Raises MappingError R105 unless each
    row has a segment.
    """
    x, ids = r.double(), r.input(1)
    count, named = r.static(x)[0], int(np.prod(r.static(ids)))
    if count != named:
        raise MappingError(f"{named} of {count} rows belong to a segment", "R105")
    ids = int64(ids) + r.input_zeros[1]
    y = _members(r, ids) @ _flat(r, x)
    shape = [r.declared_size(0, 0), *r.static(x)[1:]]
    return r.b.Reshape(r.requantized(y, r.first_factor), shape)


def lift_embeddings(r: IntegerLiftContext) -> Value:
    """Read embedding sums; a mean is a truncated quotient, a square root comes from a table."""
    b, combiner = r.b, r.attr("combiner", str, "MEAN")
    if r.attr("max_norm", str, "NONE") != "NONE":
        raise undocumented("to which norm the rows of an embedding are scaled")
    params, weights = r.double(0), b.Reshape(r.double(3), [-1, 1])
    rows = r.input(1)
    if len(r.static(rows)) != 1:
        rows = rows[:, 0]
    members = _members(r, rows)
    ids = int64(b.Reshape(r.input(2), [-1]))
    total = members @ (b.Gather(_flat(r, params), ids) * weights)
    if combiner == "SUM":
        y = r.requantized(total)
    elif combiner == "MEAN":
        y = _mean(r, total, members @ weights)
    elif combiner == "SQRTN":
        y = _by_norm(r, total, members @ (weights * weights))
    else:
        raise MappingError(f"combiner={combiner} is not known", "R110")
    return b.Reshape(y, [r.declared_size(0, 0), *r.static(params)[1:]])


def _mean(r: IntegerLiftContext, total: Value, weight: Value) -> Value:
    """Return the quotient of a 32-bit sum and a 16-bit weight. If the largest weight of the tensor
    has more bits, the lowest bits of all are removed.
    """
    b = r.b
    signs = [r.input_limits(i)[0] + r.input_zeros[i] < 0 for i in (0, 3)]
    total, first = _of_bits(r, total * r.scales[0], 32, signs[0])
    weight, second = _of_bits(r, weight, 16, signs[1])
    none = b.Equal(weight, 0)
    quotient = b.Where(none, 0, cut(total / b.Where(none, 1, weight)))
    return r.requantized(quotient * (first / second), 2.0 ** -r.shifts[0])


def _of_bits(r: IntegerLiftContext, x: Value, bits: int, signed: bool) -> tuple[Value, Value]:
    """Remove as many of the lowest bits of `x` as needed so that every element has at most `bits`;
    return the result and the divisor.
    """
    b, limits = r.b, limits_of_bits(bits, signed)
    most = b.ReduceMax(x, keepdims=0)
    if signed:
        most = b.Max(most, -1 - b.ReduceMin(x, keepdims=0))
    by = 2.0 ** reached(most, (limits[1] + 1) * 2.0 ** np.arange(32))
    return bounded(floor(x / by), *limits), by


def _by_norm(r: IntegerLiftContext, total: Value, squares: Value) -> Value:
    """Multiply 32-bit numbers by a reciprocal square root."""
    first, _ = r.factors(2)
    signed = r.input_limits(0)[0] + r.input_zeros[0] < 0
    x = rescale(total, first, 0, limits_of_bits(r.width(0)[0], signed))
    before = r.bit_count("reciprocal_shift_value")
    return by_reciprocal_root(r, x, squares, float(r.scales[1]), before, int(r.shifts[1]))
