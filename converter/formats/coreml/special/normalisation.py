"""Normalisations and softmax."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.blobs import dims, floats, operand, rank, with_rank
from converter.formats.coreml.special.registry import lifts
from converter.graph.build import Builder
from converter.mapping.node import Layer, MappingError

Value = ir.Value


@lifts("batchnorm")
def lift_batchnorm(layer: Layer, b: Builder) -> Value:
    """Along axis -3. `computeMeanVar` takes the statistics of each instance, or of the whole batch, instead of the stored ones."""
    p, x = layer.attrs, floats(b, operand(layer))
    channels, epsilon = int(p["channels"]), p["epsilon"] or 1e-5
    names = ("gamma", "beta") if p["computeMeanVar"] else ("gamma", "beta", "mean", "variance")
    values = [b.const(layer.blobs[n].array([channels]), f"{layer.name}.{n}") for n in names if n in layer.blobs]
    if len(values) != len(names):
        raise MappingError("gamma, beta, mean or variance is absent", "R110")
    gamma, beta = values[:2]
    if not p["computeMeanVar"]:
        return with_rank(b, x, 4, lambda v: b.op("BatchNormalization", v, *values, epsilon=epsilon))
    if p["instanceNormalization"]:
        return with_rank(b, x, 4, lambda v: b.op("InstanceNormalization", v, gamma, beta, epsilon=epsilon))
    r = rank(x, 3)
    y = standardised(b, x, [i for i in range(r) if i != r - 3], epsilon)
    return b.op("Add", b.op("Mul", y, b.op("Reshape", gamma, [-1, 1, 1])), b.op("Reshape", beta, [-1, 1, 1]))


def standardised(b: Builder, x: Value, axes: list[int], epsilon: float | None) -> Value:
    """(x - mean) / sqrt(variance + epsilon) over `axes`; only centred when epsilon is None."""
    centred = b.op("Sub", x, b.op("ReduceMean", x, axes, keepdims=1))
    if epsilon is None:
        return centred
    variance = b.op("ReduceMean", b.op("Mul", centred, centred), axes, keepdims=1)
    return b.op("Div", centred, b.op("Sqrt", b.op("Add", variance, epsilon)))


@lifts("mvn")
def lift_mvn(layer: Layer, b: Builder) -> Value:
    """Over C,H,W, or over H,W of each channel; epsilon is inside the square root."""
    p, x = layer.attrs, floats(b, operand(layer))
    r = rank(x, 3)
    axes = [r - 3, r - 2, r - 1] if p["acrossChannels"] else [r - 2, r - 1]
    epsilon = p["epsilon"] or 1e-6
    channels = dims(x)[r - 3]
    if not p["normalizeVariance"]:
        return standardised(b, x, axes, None)
    if not p["acrossChannels"] and channels is not None:
        ones, zeros = b.const(np.ones(channels, np.float32)), b.const(np.zeros(channels, np.float32))
        return with_rank(b, x, 4, lambda v: b.op("InstanceNormalization", v, ones, zeros, epsilon=epsilon))
    size = dims(x)[r - 3 :]
    if p["acrossChannels"] and None not in size and math.prod(int(d or 0) for d in size) <= 1 << 22:
        return b.op("LayerNormalization", x, b.const(np.ones([int(d or 0) for d in size], np.float32)), axis=-3, epsilon=epsilon)
    return standardised(b, x, axes, epsilon)


@lifts("l2normalize")
def lift_l2normalize(layer: Layer, b: Builder) -> Value:
    """x / sqrt(sum of squares + epsilon) over the last three axes."""
    x = floats(b, operand(layer))
    r = rank(x, 3)
    total = b.op("ReduceSumSquare", x, [r - 3, r - 2, r - 1], keepdims=1)
    return b.op("Div", x, b.op("Sqrt", b.op("Add", total, layer.attrs["epsilon"] or 1e-6)))


@lifts("softmax")
def lift_softmax(layer: Layer, b: Builder) -> Value:
    x = floats(b, operand(layer))
    return b.op("Softmax", x, axis=rank(x, 3) - 3)


@lifts("softmaxND")
def lift_softmax_nd(layer: Layer, b: Builder) -> Value:
    return b.op("Softmax", floats(b, operand(layer)), axis=int(layer.attrs["axis"]))


@lifts("lrn")
def lift_lrn(layer: Layer, b: Builder) -> Value:
    p, x = layer.attrs, floats(b, operand(layer))
    return with_rank(b, x, 4, lambda v: b.op("LRN", v, size=p["localSize"], alpha=p["alpha"], beta=p["beta"], bias=p["k"] or 1.0))


@lifts("layerNormalization")
def lift_layer_normalization(layer: Layer, b: Builder) -> Value:
    p, x = layer.attrs, floats(b, operand(layer))
    shape = [int(d) for d in p["normalizedShape"]]
    gamma, beta = (layer.blobs[n].lift(b, shape) for n in ("gamma", "beta"))
    return b.op("LayerNormalization", x, gamma, beta, axis=-len(shape), epsilon=p["eps"])
