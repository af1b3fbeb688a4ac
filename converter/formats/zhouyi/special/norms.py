"""Normalisation: folded batch statistics, statistics over any axes, moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.ops.fields import axes_of, axis_of
from converter.formats.zhouyi.special.register import blob, choose, fixed, lifts, lowers, need_int, need_number, operand, static, twin
from converter.graph.build import Builder
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node


@lifts("BatchNorm")
def lift_batch_norm(layer: Layer, b: Builder) -> ir.Value:
    """x * weights + biases along `axis`: the statistics are folded in, epsilon says nothing any more."""
    x, rank = operand(layer), len(static(operand(layer)))
    weights, biases = blob(layer, "weights").reshape(-1), blob(layer, "biases").reshape(-1)
    axis = axis_of(need_int(layer, "axis", -1), rank)
    if rank >= 3 and axis in (1, rank - 1):
        nought, one = b.const(np.zeros_like(weights), "mean"), b.const(np.ones_like(weights), "variance")
        operands = (x, b.const(weights, f"{layer.name}.weights"), b.const(biases, f"{layer.name}.biases"), nought, one)
        return twin(b, "BatchNormalization", *operands, epsilon=0.0)[0] if axis == rank - 1 else b.op("BatchNormalization", *operands, epsilon=0.0)
    shape = [-1 if i == axis else 1 for i in range(rank)]
    return b.op("Add", b.op("Mul", x, b.const(weights.reshape(shape))), b.const(biases.reshape(shape)))


@lowers("BatchNormalization")
def lower_batch_norm(node: Node, low: Lowering) -> None:
    x = operand(node)
    if node.attrs.get("training_mode", 0) or len(node.outputs) > 1:
        raise MappingError("statistics of the batch have no counterpart")
    scale, shift, mean, variance = (fixed(node, i, "the statistics") for i in range(1, 5))
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    with np.errstate(divide="ignore", invalid="ignore"):  # a variance below 0 gives what the operator gives
        weights = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    biases = shift.astype(np.float64) - mean.astype(np.float64) * weights
    rank = len(static(x))
    attrs = {"axis": rank - 1 if rank >= 3 else 1, "epsilon": float(str(np.float32(epsilon)))}
    low.add("BatchNorm", [x], node.outputs, attrs, {"weights": weights.astype(scale.dtype), "biases": biases.astype(scale.dtype)})


@lifts("GroupNorm")
def lift_group_norm(layer: Layer, b: Builder) -> ir.Value:
    """`axis` is the channel axis, not always the last."""
    x, rank = operand(layer), len(static(operand(layer)))
    given = axes_of(layer) if "axis" in layer.attrs else [-1]
    axis = axis_of(given[0], rank)
    operands = (x, b.const(blob(layer, "weights").reshape(-1), f"{layer.name}.weights"), b.const(blob(layer, "biases").reshape(-1), f"{layer.name}.biases"))
    attrs: dict[str, Any] = {"num_groups": need_int(layer, "group", 32), "epsilon": need_number(layer, "epsilon", 1e-5)}
    if len(given) != 1 or axis not in (1, rank - 1) or rank < 3:
        raise MappingError(f"axis={given} is neither the second nor the last axis", "R110")
    return twin(b, "GroupNormalization", *operands, **attrs)[0] if axis == rank - 1 else b.op("GroupNormalization", *operands, **attrs)


@lifts("MVN")
def lift_mvn(layer: Layer, b: Builder) -> ir.Value:
    return _standardised(b, operand(layer), axes_of(layer), need_number(layer, "epsilon", 1e-5))


def _standardised(b: Builder, x: ir.Value, axes: list[int], epsilon: float) -> ir.Value:
    d, variance = _moments(b, x, axes)[1:]
    return b.op("Div", d, b.op("Sqrt", b.op("Add", variance, b.like(x, epsilon))))


def _moments(b: Builder, x: ir.Value, axes: list[int]) -> tuple[ir.Value, ir.Value, ir.Value]:
    mean = b.op("ReduceMean", x, axes)
    d = b.op("Sub", x, mean)
    return mean, d, b.op("ReduceMean", b.op("Mul", d, d), axes)


@lifts("RMSNorm")
def lift_rms_norm(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    axes = axes_of(layer) if "axis" in layer.attrs else [-1]
    square = b.op("ReduceMean", b.op("Mul", x, x), axes)
    y = b.op("Div", x, b.op("Sqrt", b.op("Add", square, b.like(x, need_number(layer, "epsilon", 1e-5)))))
    return b.op("Mul", y, b.const(blob(layer, "weights"), f"{layer.name}.weights")) if "weights" in layer.blobs else y


@lifts("Normalization")
def lift_normalization(layer: Layer, b: Builder) -> ir.Value:
    """x / sum |x| or x / sqrt(sum x * x); epsilon is the least sum that counts."""
    x, axes = operand(layer), axes_of(layer)
    epsilon = b.like(x, need_number(layer, "epsilon", 1e-12))
    if choose(layer, "method", {"L1": True, "L2": False}):
        return b.op("Div", x, b.op("Max", b.op("ReduceL1", x, axes), epsilon))
    return b.op("Div", x, b.op("Sqrt", b.op("Max", b.op("ReduceSum", b.op("Mul", x, x), axes), epsilon)))


@lifts("LRN/WITHIN_CHANNEL")
def lift_lrn_within(layer: Layer, b: Builder) -> ir.Value:
    """The sum of squares over size * size neighbours of the same channel, divided by their number."""
    x, size = operand(layer), need_int(layer, "size")
    alpha, beta, bias = (need_number(layer, k, d) for k, d in (("alpha", 1.0), ("beta", 0.5), ("bias", 1.0)))
    pads = [(size - 1) // 2, (size - 1) // 2, size // 2, size // 2]
    mean = twin(b, "AveragePool", b.op("Mul", x, x), kernel_shape=[size, size], strides=[1, 1], pads=pads, count_include_pad=1)[0]
    return b.op("Div", x, b.op("Pow", b.op("Add", b.op("Mul", mean, b.like(x, alpha)), b.like(x, bias)), b.like(x, beta)))


@lifts("Moments")
def lift_moments(layer: Layer, b: Builder) -> list[ir.Value]:
    x, axes = operand(layer), axes_of(layer)
    mean, _, variance = _moments(b, x, axes)
    if layer.attrs.get("keepdims", True):
        return [mean, variance]
    return [b.op("Squeeze", mean, axes), b.op("Squeeze", variance, axes)]


@lifts("NormalizedMoments")
def lift_normalized_moments(layer: Layer, b: Builder) -> list[ir.Value]:
    """From sums of x - shift and of its square to mean and variance."""
    total, squares, shift = operand(layer), operand(layer, 1), operand(layer, 2)
    count = b.like(total, need_number(layer, "counts"))
    mean = b.op("Div", total, count)
    return [b.op("Add", mean, shift), b.op("Sub", b.op("Div", squares, count), b.op("Mul", mean, mean))]


@lifts("SufficientStatistics")
def lift_sufficient_statistics(layer: Layer, b: Builder) -> list[ir.Value]:
    axes = axes_of(layer)
    d = b.op("Sub", operand(layer), operand(layer, 1))
    return [b.op("ReduceSum", d, axes), b.op("ReduceSum", b.op("Mul", d, d), axes)]


@lifts("Quantize", "DeQuantize")
def lift_quantize(layer: Layer, b: Builder) -> ir.Value:
    """Scales and zero points in constants of the layer, in ONNX's sense: x / scale + zero point, and back."""
    x, scale, zero = operand(layer), blob(layer, "quantize_scale").astype(np.float32), blob(layer, "quantize_zp")
    axis = need_int(layer, "axis", 1)
    dtype = layer.outputs[0].dtype if layer.kind == "Quantize" and layer.outputs else x.dtype
    if dtype is None or not dtype.is_integer():
        raise MappingError("the stored type is not an integer", "R105")
    flat = scale.reshape(()) if scale.size == 1 else scale.reshape(-1)
    op = "QuantizeLinear" if layer.kind == "Quantize" else "DequantizeLinear"
    return b.op(op, x, b.const(flat), b.const(zero.astype(dtype.numpy()).reshape(flat.shape)), axis=axis)
