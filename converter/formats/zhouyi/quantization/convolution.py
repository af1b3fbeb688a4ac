"""Convolutions and FullyConnected: sums of products with stored weights."""

from __future__ import annotations

import numpy as np

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import (
    IntegerLiftContext,
    IntegerLowerContext,
    Written,
)
from converter.formats.zhouyi.quantization.requantize import (
    EXACT,
    INT32,
    accumulated,
    channel_constants,
    double,
    largest_row,
    limits_of_bits,
    within,
)
from converter.formats.zhouyi.quantization.weights import Integers, made
from converter.graph.infer import Array
from converter.graph.value import Value


def lift_weighted(r: IntegerLiftContext) -> Value:
    """Compute the float layer with these weights and biases, if that is exact; else the sum over
    parts of the input, followed by the biases.
    """
    integers = Integers(r.layer, -r.input_zeros[0])
    # the input is taken with its zero point, so that padding is 0
    weights, absorbed = integers.whole().astype(np.float32), integers.absorbed()
    biases = integers.biases()
    assert biases is not None
    x, most = r.real(narrow=True), _most(r)
    exact = most * largest_row(weights) + np.abs(biases).max(initial=0) <= EXACT
    if exact and "remain_shift" not in r.layer.attrs:
        y = r.as_numbers(x, weights=weights, biases=biases.astype(np.float32))
        return r.activated(y, r.factor)

    def product(part: Value, weights: Array) -> Value:
        return r.as_numbers(part, weights=weights)

    total = double(accumulated(x, weights, most, product))
    return r.activated(*r.early_shift(total, biases, absorbed))


def _most(r: IntegerLiftContext) -> float:
    """Return the largest magnitude of the first input with its zero point added."""
    if not r.input_types or not r.input_types[0].is_integer():
        return 0.0  # nothing is known about these numbers
    return max(abs(limit + r.input_zeros[0]) for limit in limits_of_bits(*r.width()))


def lower_weighted(w: IntegerLowerContext) -> Written:
    """Write a layer with weights: the integers are used directly, and the input's zero point times
    the sum of each row is added to the biases.
    """
    found, source = made(w.layer).stored, w.sources[0]
    if found is None:
        raise MappingError("the weights must be quantized constants followed by a DequantizeLinear")
    whole = found.weights.astype(np.int64)
    channels = w.layer.blobs["biases"].size
    scales, zeros = (
        np.broadcast_to(a, (channels,)) if a.size == 1 else a for a in (found.scales, found.zeros)
    )
    rows = found.weights.shape[0]
    if scales.size not in (rows, channels) or (zeros.size != rows and np.ptp(zeros)):
        raise MappingError("the zero points of grouped weights must be equal")
    zeros = zeros[:rows]
    whole -= zeros.reshape([-1] + [1] * (whole.ndim - 1))
    if scales.size != channels:
        scales = np.tile(scales, channels // scales.size)
    absorbed = -source.zero * whole.reshape(rows, -1).sum(axis=1)
    biases = _biases(w, scales) + np.tile(absorbed, channels // rows)
    if not within(biases, *INT32):
        raise MappingError(
            "the biases with the input's zero point are outside the range of int32", "X204"
        )
    repeated = np.array_equal(scales, np.tile(scales[:rows], channels // rows))
    own = (scales[:rows] if repeated else scales).astype(np.float64)
    wide = scales.astype(np.float64)
    return w.with_activation(
        {},
        weights=found.weights,
        biases=biases.astype(np.int32),
        **channel_constants(source.scale * wide / w.result.scale, w.bits),
        weights_scale=(1 / own).astype(np.float32),
        weights_zp=(-zeros).astype(np.int32),
        biases_scale=(1 / (wide * source.scale)).astype(np.float32),
        biases_zp=np.zeros(1, np.int32),
    )


def _biases(w: IntegerLowerContext, scales: Array) -> Array:
    """Return the biases in units of input scale * weight scale: as stored if they have these
    scales, else rounded.
    """
    steps = scales.astype(np.float64) * w.sources[0].scale
    real = np.asarray(w.layer.blobs["biases"], np.float64).reshape(-1)
    weights = made(w.layer).stored
    found = weights.biases if weights is not None else None
    if (
        found is not None
        and found.stored.size == real.size
        and not found.zeros.any()
        and np.allclose(found.scales.reshape(-1), steps, rtol=1e-5, atol=0)
    ):
        return found.stored.reshape(-1).astype(np.int64)
    return np.rint(real / steps).astype(np.int64)
