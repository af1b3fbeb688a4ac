"""Integer convolutions, sums, tables, softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.integer.arithmetic import prelu
from converter.formats.zhouyi.integer.register import (
    ARITHMETIC,
    EXACT,
    Quantised,
    accumulated,
    activated,
    beside,
    bits_of,
    factor,
    integer,
    is_scaled,
    look_up,
    numbers,
    real,
    rescale,
    stored,
    wrapped,
)
from converter.formats.zhouyi.ops.fields import axis_of
from converter.formats.zhouyi.ops.windows import CONV_2D, CONV_3D, DECONV_2D, DECONV_3D
from converter.formats.zhouyi.special.register import blob, choose, need_int, operand, static, twin
from converter.formats.zhouyi.special.windows import window_attrs
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.mapping.node import Layer, MappingError

ORDERS = {"Convolution": CONV_2D, "DepthwiseConv": CONV_2D, "Convolution3D": CONV_3D, "ConvTranspose": DECONV_2D, "ConvTranspose3D": DECONV_3D}


def weights_and_biases(layer: Layer, zero: int) -> tuple[Array, Array]:
    """Weights with their zero points, and biases without the input's zero point, which the quantiser has added to them.

    The input is then taken with its zero point, so that padding is 0.
    """
    w = blob(layer, "weights").astype(np.float64)
    w += _zero(layer, "weights").reshape([-1] + [1] * (w.ndim - 1))
    biases = blob(layer, "biases").reshape(-1).astype(np.float64) + _zero(layer, "biases")
    absorbed = zero * w.reshape(w.shape[0], -1).sum(axis=1)
    # transposed weights hold the rows of one group only
    return w.astype(np.float32), np.asarray(biases - np.tile(absorbed, biases.size // absorbed.size))


def _zero(layer: Layer, name: str) -> Array:
    if f"{name}_zp" in layer.blobs:
        return blob(layer, f"{name}_zp").reshape(-1).astype(np.float64)
    return np.asarray(layer.attrs.get(f"{name}_zp", 0), np.float64).reshape(-1)


@integer(*ORDERS)
def convolve(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    if layer.attrs.get("with_winograd"):
        raise MappingError("weights in the Winograd form have no counterpart")
    x, order = operand(layer), ORDERS[layer.kind]
    w, biases = weights_and_biases(layer, q.inputs[0])
    group = static(x)[-1] if layer.kind == "DepthwiseConv" else need_int(layer, "group", 1)
    attrs: dict[str, Any] = window_attrs(layer, 3 if layer.kind.endswith("3D") else 2)
    op = "ConvTranspose" if layer.kind.startswith("ConvTranspose") else "Conv"

    def product(part: ir.Value, weights: Array, *more: ir.Value) -> ir.Value:
        return twin(b, op, part, b.const(weights.transpose(np.argsort(order)), f"{layer.name}.weights"), *more, group=group, **attrs)[0]

    return _summed(layer, b, q, w, biases, product)


def _summed(layer: Layer, b: Builder, q: Quantised, w: Array, biases: Array, product: Callable[..., ir.Value]) -> ir.Value:
    """product(input, weights, biases), where that is exact in floats; else of parts of the input, and the biases behind them."""
    x, most = real(b, operand(layer), q.inputs[0], narrow=True), _most(q)
    rows = np.abs(w.astype(np.float64)).reshape(w.shape[0], -1).sum(axis=1).max(initial=0)
    if most * rows + np.abs(biases).max(initial=0) <= EXACT:
        return activated(layer, b, product(x, w, b.const(biases.astype(np.float32), f"{layer.name}.biases")), q, factor(layer))
    total = stored(b, accumulated(b, x, w, most, product), ir.DataType.DOUBLE)
    return activated(layer, b, b.op("Add", total, beside(b, biases, total, f"{layer.name}.biases")), q, factor(layer))


def _most(q: Quantised) -> float:
    """The largest amount that the first input may hold, its zero point added."""
    dtype = q.sources[0] if q.sources else None
    if dtype is None or not dtype.is_integer():
        return 0.0  # numbers of which nothing is known
    info = np.iinfo(dtype.numpy())
    return float(max(abs(int(info.min) + q.inputs[0]), abs(int(info.max) + q.inputs[0])))


@integer("FullyConnected")
def fully_connected(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    w, biases = weights_and_biases(layer, q.inputs[0])

    def product(part: ir.Value, weights: Array, *more: ir.Value) -> ir.Value:
        y = b.op("MatMul", part, b.const(weights.T, f"{layer.name}.weights"))
        return b.op("Add", y, *more) if more else y

    return _summed(layer, b, q, w, biases, product)


@integer("Eltwise", "Add", "Sub", "Mul")
def eltwise(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """Both operands on a common scale first (ADD, SUB, MAX, MIN), or multiplied as they are."""
    op = layer.kind if layer.kind != "Eltwise" else choose(layer, "method", {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "MAX": "Max", "MIN": "Min"})
    x, y = (real(b, operand(layer, i), q.inputs[i]) for i in (0, 1))
    scales, shift = numbers(layer, "scale", 1), numbers(layer, "shift", 0)
    if op != "Mul":
        if scales.size != 3:
            raise MappingError(f"scale_value should be three numbers, not {scales.tolist()}", "R110")
        x, y = b.op("Mul", x, b.like(x, scales[1])), b.op("Mul", y, b.like(y, scales[2]))
    return activated(layer, b, b.op(op, x, y), q, (scales[:1] * 2.0 ** -shift[:1]).astype(np.float32))


@integer("Concat")
def concat(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    scales, shifts, (low, high) = numbers(layer, "scale", 1), numbers(layer, "shift", 0), q.limits()
    count, axis = len(layer.inputs), need_int(layer, "axis")
    if "scale_value" not in layer.attrs and "scale" not in layer.blobs:
        return b.op("Concat", *layer.inputs, axis=axis)
    if scales.size != count or shifts.size != count:
        raise MappingError(f"{count} inputs, but {scales.size} scales and {shifts.size} shifts", "R110")
    parts = [rescale(b, real(b, operand(layer, i), q.inputs[i]), scales[i] * 2.0 ** -shifts[i], q.outputs[0], low, high) for i in range(count)]
    return stored(b, b.op("Concat", *parts, axis=axis), q.types[0])


@integer("Cast")
def cast(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """With a scale, from one grid to another. Without one, from one zero point to another, or the stored integer as it is, cut to the bits of the type.

    A result of more than 16 bits is not rounded: what lies behind the point is cut off.
    """
    x, dtype, (low, high) = operand(layer), q.types[0], q.limits()
    if is_scaled(layer):
        wide = dtype.is_integer() and dtype.bitwidth > 16
        return stored(b, rescale(b, real(b, x, q.inputs[0]), factor(layer), q.outputs[0], low, high, "Identity" if wide else "Round"), dtype)
    if str(layer.attrs.get("clip_mode", "SATURATION")).upper() == "TRUNCATION":
        return wrapped(b, b.op("Cast", x, to=int(ir.DataType.INT64)), dtype)
    before, behind = (0, 0) if layer.attrs.get("ignore_scale_zp") else (q.inputs[0], q.outputs[0])
    return stored(b, rescale(b, real(b, x, before), 1.0, behind, low, high), dtype)


TABLES = "Acos Acosh Asin Asinh Atan Atanh Ceil Cosh Cosine Erf Exp Floor Log Reciprocal Round Rsqrt Sine Sinh Sqrt Square Tan Trunc BNLL"


@integer("Activation", *TABLES.split())
def table(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """A look-up table, or arithmetic for the piecewise linear ones."""
    x, method = operand(layer), str(layer.attrs.get("method", "")).upper()
    if layer.kind == "Activation" and method in ARITHMETIC and "lut" not in layer.blobs:
        layer.attrs["with_activation"] = method
        return activated(layer, b, real(b, x, q.inputs[0]), q, factor(layer))
    if method == "PRELU" and "negative_slope" in layer.blobs:
        return prelu(layer, b, q)
    if "lut" not in layer.blobs or "scale_value" in layer.attrs or "scale" in layer.blobs:
        raise MappingError(f"{layer.kind} {method} without a plain look-up table has no integer form here")
    bits, signed = bits_of(q)
    return stored(b, look_up(b, x, blob(layer, "lut").reshape(-1), bits, signed), q.types[0])


@integer("Softmax")
def softmax(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """A table of exponentials, then a quotient with 31 bits; the vendor's two ways, by the size of the data."""
    x, (low, high) = operand(layer), q.limits()
    shape = static(x)
    axis = axis_of(need_int(layer, "axis", -1), len(shape))
    if "lut" not in layer.blobs:
        raise MappingError("Softmax without a table of exponentials (FAST_EXP) has no integer form here")
    lut, scale, shift = blob(layer, "lut").reshape(-1), need_int(layer, "scale_value"), need_int(layer, "shift_value")
    bits, _ = bits_of(q)
    if 1 << bits != lut.size:
        raise MappingError(f"a table of {lut.size} exponentials for {bits} bits has no counterpart")
    wide = b.op("Cast", x, to=int(ir.DataType.INT64))
    below = b.op("Sub", wide, b.op("ReduceMax", wide, [axis]))
    y = b.op("Gather", b.const(lut.astype(np.int64), "lut"), b.op("Add", below, b.like(below, (1 << bits) - 1)))
    total = b.op("Max", b.op("ReduceSum", y, [axis]), b.like(y, 1))
    if shape[axis] < 8 and int(np.prod(shape)) // shape[axis] % 128 == 0:
        extra = 31 - int(np.ceil(np.log2(float(lut.max()))))
        z = b.op("Div", b.op("Add", b.op("Mul", y, b.like(y, 1 << extra)), b.op("Div", total, b.like(y, 2))), total)
        by = scale * 2.0 ** -(shift + extra)
    else:
        extra = 31 - int(np.ceil(np.log2(float(scale))))
        z = b.op("Mul", y, b.op("Div", b.like(y, scale << extra), total))
        by = 2.0 ** -(shift + extra)
    return stored(b, rescale(b, real(b, z), by, q.outputs[0], low, high), q.types[0])
