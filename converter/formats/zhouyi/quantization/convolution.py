"""Convolutions and FullyConnected: sums of products with stored weights."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import (
    INT32,
    IntegerReading,
    IntegerWriting,
    Written,
)
from converter.formats.zhouyi.quantization.requantize import (
    EXACT,
    accumulated,
    channel_constants,
    largest_row,
    of_sizes,
    stored,
    zeros_of,
)
from converter.formats.zhouyi.quantization.weights import WEIGHTED, WINOGRAD, made
from converter.graph.infer import Array
from converter.graph.value import Value


def weights_and_biases(r: IntegerReading) -> tuple[Array, Array, Array]:
    """Weights with their zero points, and biases without the input's zero point, which the
    quantiser has added to them, and what it has added.

    The input is then taken with its zero point, so that padding is 0.
    """
    if r.layer.attrs.get("with_winograd"):
        raise MappingError(WINOGRAD)
    w = r.blob("weights").astype(np.float64)
    if not w.size or w.ndim != len(WEIGHTED[r.layer.kind]):
        raise MappingError(f"weights of the shape {list(w.shape)}", "R105")
    zeros = of_sizes(zeros_of(r.layer, "weights"), "weights_zp", 1, w.shape[0])
    w += zeros.reshape([-1] + [1] * (w.ndim - 1))
    biases = r.blob("biases").reshape(-1).astype(np.float64)
    if not biases.size or biases.size % w.shape[0]:
        raise MappingError(f"{biases.size} biases of {w.shape[0]} rows of weights", "R105")
    biases = biases + of_sizes(zeros_of(r.layer, "biases"), "biases_zp", 1, biases.size)
    absorbed = r.tensors.input_zeros[0] * w.reshape(w.shape[0], -1).sum(axis=1)
    # transposed weights hold the rows of one group only
    absorbed = np.tile(absorbed, biases.size // absorbed.size)
    return w.astype(np.float32), biases - absorbed, absorbed


def lift_weighted(r: IntegerReading) -> Value:
    """The layer of numbers with these weights and biases, where that is exact in floats; else of
    parts of the input, and the biases behind them.
    """
    weights, biases, absorbed = weights_and_biases(r)
    x, most = r.real(narrow=True), _most(r)
    exact = most * largest_row(weights) + np.abs(biases).max(initial=0) <= EXACT
    if exact and "remain_shift" not in r.layer.attrs:
        y = r.as_numbers(x, weights=weights, biases=biases.astype(np.float32))
        return r.activated(y, r.factor)

    def product(part: Value, weights: Array) -> Value:
        return r.as_numbers(part, weights=weights)

    total = stored(r.b, accumulated(r.b, x, weights, most, product), ir.DataType.DOUBLE)
    return r.activated(*r.early_shift(total, biases, absorbed))


def _most(r: IntegerReading) -> float:
    """The largest amount that the first input may hold, its zero point added."""
    types, zero = r.tensors.input_types, r.tensors.input_zeros[0]
    if not types or not types[0].is_integer():
        return 0.0  # numbers of which nothing is known
    info = np.iinfo(types[0].numpy())
    return float(max(abs(int(info.min) + zero), abs(int(info.max) + zero)))


def lower_weighted(w: IntegerWriting) -> Written:
    """The input is taken as stored: its zero point times the sum of each row goes into the
    biases.
    """
    found, source = made(w.layer).stored, w.sources[0]
    if found is None:
        raise MappingError("the weights are not stored integers behind a DequantizeLinear")
    whole = found.weights.astype(np.int64)
    channels = w.layer.blobs["biases"].size
    scales, zeros = (
        np.broadcast_to(a, (channels,)) if a.size == 1 else a for a in (found.scales, found.zeros)
    )
    rows = found.weights.shape[0]
    if scales.size not in (rows, channels) or (zeros.size != rows and np.ptp(zeros)):
        raise MappingError("the zero points of grouped weights differ")
    zeros = zeros[:rows]
    whole -= zeros.reshape([-1] + [1] * (whole.ndim - 1))
    if scales.size != channels:
        scales = np.tile(scales, channels // scales.size)
    absorbed = -source.zero * whole.reshape(rows, -1).sum(axis=1)
    biases = _biases(w, scales) + np.tile(absorbed, channels // rows)
    if biases.min() < INT32.min or biases.max() > INT32.max:
        raise MappingError("the biases with the input's zero point do not fit 32 bits", "X204")
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


def _biases(w: IntegerWriting, scales: Array) -> Array:
    """In steps of input scale * weight scale: as stored where they have these scales, else the
    nearest.
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
