"""Reductions and BatchNorm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import (
    IntegerLiftContext,
    IntegerLowerContext,
    Written,
)
from converter.formats.zhouyi.quantization.requantize import (
    UINT16,
    constant_like,
    double,
    entry,
    floor,
    of_sizes,
    reached,
    real,
    rescale,
    scalar_keys,
    single,
)
from converter.formats.zhouyi.quantization.weights import with_zero_points
from converter.formats.zhouyi.rules.fields import axes_of
from converter.formats.zhouyi.unsupported import undocumented
from converter.graph.build import open_builder
from converter.graph.demands import axis_of
from converter.graph.infer import Array
from converter.graph.value import Value
from converter.mapping.context import static

LONGEST_PRODUCT = 1024


def lift_reduce(r: IntegerLiftContext) -> Value:
    """Read reductions: sums and means are one sum and one factor; variances first round the mean.
    Conditions are 0 and 1.
    """
    b, method, axes = r.b, r.attr("method", str), axes_of(r.layer)
    x = r.real()
    if method in ("SUM", "MEAN"):
        return r.requantized(b.ReduceSum(x, axes))
    if method in ("VARIANCE", "UNBIASED_VARIANCE"):
        whole = real(r.input(0))
        d = whole - b.Round(b.ReduceMean(whole, axes))
        return r.requantized(b.ReduceSum(d * d, axes))
    if method in ("ANY", "ALL"):
        true = single(~b.Equal(x, 0))
        return r.stored(b.operator("ReduceMax" if method == "ANY" else "ReduceMin")(true, axes))
    if method in _MORE:
        return _MORE[method](r, double(x), axes)
    raise undocumented(f"on which scales a Reduce of {method} computes with integers")


def _lift_sum_of_amounts(r: IntegerLiftContext, x: Value, axes: list[int]) -> Value:
    y, dropped = _highest_bits(r, r.b.ReduceSum(r.b.Abs(x), axes))
    return r.requantized(y * dropped, r.factor)


def _lift_root(r: IntegerLiftContext, x: Value, axes: list[int]) -> Value:
    """Compute the root of the sum of squares, from a table for 16-bit integers."""
    y, dropped = _highest_bits(r, r.b.ReduceSum(x * x, axes))
    total = rescale(y * dropped, r.factor, 0, UINT16)
    return r.stored(r.looked_up(total, "sqrt_lut", 16, False))


def _highest_bits(r: IntegerLiftContext, total: Value) -> tuple[Value, Value]:
    """Truncate 32-bit sums by so many of their lowest bits that the largest of the tensor has 16;
    return them and the divisor.

    The executor counts bits as the logarithm in a float, which rounds numbers just above a power of
    two to that power.
    """
    b = r.b
    total = b.Clip(total, 0, 2**32 - 1)
    most = double(single(b.ReduceMax(total, keepdims=0)))
    just_above = 2.0 ** np.arange(16, 32) * (1 + np.log(2) * 2.0**-20)
    by = entry(2.0 ** np.arange(17), reached(most, just_above))
    return b.Min(floor(total / by), 65535), by


def _lift_product(r: IntegerLiftContext, x: Value, axes: list[int]) -> Value:
    """Multiply one factor after the other; a product that does not fit into 16 bits is halved until
    it does, and the halvings are counted.
    """
    b, shape = r.b, r.static(x)
    axes = [axis_of(a, len(shape)) for a in axes]
    count = int(np.prod([shape[a] for a in axes]))
    rest = [a for a in range(len(shape)) if a not in axes]
    flat = b.Reshape(b.Transpose(x, perm=[*rest, *axes]), [-1, count])
    bits = 15 if r.input_types[0].min + r.input_zeros[0] < 0 else 16
    *_, (product, halvings) = _products(_slices(r, flat, 1), bits)
    y = product * float(r.scales[0]) * 2.0 ** (halvings - float(r.shifts[0]))
    kept = [1 if a in axes else n for a, n in enumerate(shape)]
    return r.requantized(b.Reshape(y, kept), 1.0)


def _slices(r: IntegerLiftContext, x: Value, axis: int) -> list[Value]:
    """Return the factors of a product, one for each element of an axis."""
    count = r.static(x)[axis]
    if count > LONGEST_PRODUCT:
        raise MappingError(f"a product of {count} elements would make the graph too large")
    return list(r.b.Split(x, [1] * count, axis=axis, outputs=count)) if count > 1 else [x]


def _products(factors: Sequence[Value], bits: int) -> Iterator[tuple[Value, Value]]:
    """Return cumulative products, halved and truncated until their magnitudes have `bits` bits, and
    the number of halvings.
    """
    b = open_builder()
    product, halvings = b.like(factors[0], 1), b.like(factors[0], 0)
    for factor in factors:
        product = factor * product
        more = reached(b.Max(product, -1 - product), 2.0 ** (bits + np.arange(18)))
        product, halvings = floor(product * entry(2.0 ** -np.arange(19), more)), more + halvings
        yield product, halvings


_MORE = {"L1": _lift_sum_of_amounts, "L2": _lift_root, "PROD": _lift_product}


def lift_cumulate(r: IntegerLiftContext) -> Value:
    """Read cumulative sums or products, each rescaled from the one before."""
    x = r.double()
    axis = r.axis()
    exclusive, reverse = (int(r.attr(k, bool, False)) for k in ("exclusive", "reverse"))
    if r.attr("method", str) == "PROD":
        return _products_so_far(r, x, axis, exclusive, reverse)
    total = r.b.CumSum(x, axis, exclusive=exclusive, reverse=reverse)
    return r.requantized(total, r.first_factor)


def _products_so_far(
    r: IntegerLiftContext, x: Value, axis: int, exclusive: int, reverse: int
) -> Value:
    """Return cumulative products with a scale for each element; products that do not fit into 16
    bits are halved as in Reduce.
    """
    parts, count = _slices(r, x, axis), r.static(x)[axis]
    if r.scales.size != count or r.shifts.size != count:
        raise MappingError(f"{count} scales are needed, got {r.scales.size}", "R105")
    signed = r.width()[1]
    if not signed and r.input_limits(0)[0] + r.input_zeros[0] < 0:
        raise undocumented("how a negative product of unsigned data is halved")
    parts = parts[::-1] if reverse else parts
    factors = [parts[0] * 0.0 + 1.0, *parts[:-1]] if exclusive else parts
    so_far = zip(_products(factors, 15 if signed else 16), r.scales, r.shifts, strict=True)
    results = [
        r.rescaled(product * float(scale) * 2.0 ** (halvings - float(shift)), 1.0)
        for (product, halvings), scale, shift in so_far
    ]
    return r.stored(r.b.Concat(*(results[::-1] if reverse else results), axis=axis))


def lift_zero_fraction(r: IntegerLiftContext) -> Value:
    """Return the share of zeros in each element of the batch, rounded."""
    b, x = r.b, r.double()
    shape = r.static(x)
    count = int(np.prod(shape[1:]))
    zeros = b.Reshape(double(b.Equal(x, 0)), [shape[0], count])
    total = b.ReduceSum(zeros, [1], keepdims=0)
    share = floor((total * r.attr("output_scale", int) + count // 2) / count)
    return r.stored(share - r.zeros[0])


def lower_reduce(w: IntegerLowerContext) -> Written:
    """Write a reduction with one factor for the number of elements and both scales."""
    factor = w.factor
    if w.method == "MEAN":
        factor /= int(np.prod([static(w.inputs[0])[a] for a in axes_of(w.layer)]))
    elif w.method != "SUM":
        raise MappingError(f"{w.method} has no integer form")
    return w.written(scalar_keys(factor, w.bits))


def lift_batch_norm(r: IntegerLiftContext) -> Value:
    """Multiply the quantized input by the weights of its channel, which BiasAdd omits; the input's
    zero point is in the biases. All in 32-bit floats, as in the executor.
    """
    if "scale1" in r.layer.blobs:
        raise undocumented("in which precision per-channel biases are added to activations")
    x, name = r.input(0), r.layer.name
    sizes, axis = r.static(x), r.axis(-1)

    def along(array: Array) -> Array:
        flat = array.astype(np.float32)
        of_sizes(flat, "weights, biases or scale", 1, sizes[axis])
        shape = [-1 if i == axis else 1 for i in range(len(sizes))]
        return flat if flat.size == 1 else flat.reshape(shape)

    y = real(x, narrow=True)
    if r.layer.kind != "BiasAdd":
        y = y * constant_like(along(with_zero_points(r.layer, "weights")), y, f"{name}.weights")
    y = y + constant_like(along(with_zero_points(r.layer, "biases")), y, f"{name}.biases")
    return r.activated(double(y), along(r.factor).astype(np.float64))
