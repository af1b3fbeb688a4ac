"""Integer products of two activations, reductions, signs, quotients, comparisons, resampling: what the vendor's executor computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.integer.register import (
    Quantised,
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
    unscaled,
    wrapped,
)
from converter.formats.zhouyi.ops.fields import axes_of, axis_of
from converter.formats.zhouyi.special.products import lift_mat_mul
from converter.formats.zhouyi.special.register import LIFT, blob, choose, need, need_int, need_number, operand, static
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.graph.sizes import arange
from converter.mapping.node import Layer, MappingError

LOW, HIGH = float(-(2**31)), float(2**31 - 1)
RATIOS = {"HALF_PIXEL", "PYTORCH_HALF_PIXEL", "ALIGN_CORNERS", "ASYMMETRIC"}


def operands(layer: Layer, b: Builder, q: Quantised) -> list[ir.Value]:
    """All inputs as floats with their zero points."""
    return [real(b, operand(layer, i), q.inputs[i]) for i in range(len(layer.inputs))]


def ended(layer: Layer, b: Builder, q: Quantised, x: ir.Value, by: Any = None) -> ir.Value:
    low, high = q.limits()
    return stored(b, rescale(b, x, factor(layer) if by is None else by, q.outputs[0], low, high), q.types[0])


def product_of(layer: Layer, b: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    found = lift_mat_mul(Layer(layer.kind, layer.name, layer.attrs, {}, [x, y], layer.outputs), b)
    return found if isinstance(found, ir.Value) else found[0]


@integer("MatMul")
def mat_mul(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    if need_number(layer, "fused_multiplier", 1.0) != 1.0:
        raise MappingError("fused_multiplier has no integer form here")
    x, y = operands(layer, b, q)
    return activated(layer, b, product_of(layer, b, x, y), q, factor(layer))


@integer("Gemm")
def gemm(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """With a third operand both parts come to a common scale first; alpha and beta are in the scales, but for their signs."""
    parts, signs = operands(layer, b, q), [float(np.sign(need_number(layer, k, 1.0))) for k in ("alpha", "beta")]
    product = product_of(layer, b, parts[0], parts[1])
    if len(parts) == 2:
        low, high = q.limits()
        y = rescale(b, product, factor(layer), q.outputs[0], low, high)
        return stored(b, y if signs[0] > 0 else b.op("Neg", y), q.types[0])
    scales, shift = numbers(layer, "scale", 1), numbers(layer, "shift", 0)
    if scales.size != 3:
        raise MappingError(f"scale_value should be three numbers, not {scales.tolist()}", "R110")
    first, second = (b.op("Round", b.op("Mul", p, b.like(p, s * sign))) for p, s, sign in zip((product, parts[2]), scales[1:], signs, strict=True))
    return ended(layer, b, q, b.op("Add", first, second), (scales[:1] * 2.0 ** -shift[:1]).astype(np.float32))


@integer("BatchNorm")
def batch_norm(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """The stored input times the weights of its channel; the input's zero point is in the biases."""
    x = operand(layer)
    rank = len(static(x))
    axis = axis_of(need_int(layer, "axis", -1), rank)

    def along(array: Array) -> Array:
        flat = np.asarray(array, np.float32).reshape(-1)
        return flat if flat.size == 1 else flat.reshape([-1 if i == axis else 1 for i in range(rank)])

    def shifted(name: str) -> Array:
        zero = layer.blobs.get(f"{name}_zp", layer.attrs.get(f"{name}_zp", 0))
        return np.asarray(blob(layer, name).reshape(-1).astype(np.float64) + np.asarray(zero, np.float64).reshape(-1))

    y = real(b, x)
    y = b.op("Mul", y, beside(b, along(shifted("weights")), y, f"{layer.name}.weights"))
    return activated(layer, b, b.op("Add", y, beside(b, along(shifted("biases")), y, f"{layer.name}.biases")), q, along(factor(layer)))


@integer("Reduce")
def reduce(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """Sums and means are one sum and one factor; variances first round the mean. Conditions are 0 and 1."""
    method, axes = str(need(layer, "method")).upper(), axes_of(layer)
    x = real(b, operand(layer), q.inputs[0])
    if method in ("SUM", "MEAN"):
        return ended(layer, b, q, b.op("ReduceSum", x, axes))
    if method in ("VARIANCE", "UNBIASED_VARIANCE"):
        whole = real(b, operand(layer))
        d = b.op("Sub", whole, b.op("Round", b.op("ReduceMean", whole, axes)))
        return ended(layer, b, q, b.op("ReduceSum", b.op("Mul", d, d), axes))
    if method in ("ANY", "ALL"):
        true = b.op("Cast", b.op("Not", b.op("Equal", x, b.like(x, 0))), to=int(ir.DataType.FLOAT))
        return stored(b, b.op("ReduceMax" if method == "ANY" else "ReduceMin", true, axes), q.types[0])
    raise MappingError(f"{method} has no integer form here")


@integer("Negative")
def negative(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """The scale stays; the zero point of the output is taken off, the range bounds."""
    unscaled(layer)
    return ended(layer, b, q, b.op("Neg", real(b, operand(layer), q.inputs[0])), 1.0)


@integer("Sign")
def sign(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """-1, 0 and 1 as they are, whatever the grid of the output."""
    return stored(b, b.op("Sign", real(b, operand(layer), q.inputs[0])), q.types[0])


@integer("Abs")
def absolute(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """With a scale, the number on the grid of the output; without one, the amount of the stored integer, zero point and all."""
    if is_scaled(layer):
        return ended(layer, b, q, b.op("Abs", real(b, operand(layer), q.inputs[0])))
    return wrapped(b, b.op("Abs", b.op("Cast", operand(layer), to=int(ir.DataType.INT64))), q.types[0])


@integer("Div")
def divide(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """Times the reciprocal of the divisor's amount, from a table; what 0 stands for is its first entry."""
    x, y = operands(layer, b, q)
    bits, _ = bits_of(q, 1)
    found = look_up(b, b.op("Abs", y), blob(layer, "lut").reshape(-1), bits, False)
    sign = b.op("Where", b.op("Less", y, b.like(y, 0)), b.like(y, -1), b.like(y, 1))
    return ended(layer, b, q, b.op("Mul", b.op("Mul", sign, x), found))


COMPARISONS = {"EQUAL": "Equal", "GREATER": "Greater", "GREATER_EQUAL": "GreaterOrEqual", "LESS": "Less", "LESS_EQUAL": "LessOrEqual"}


@integer("Logical")
def logical(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """Comparisons bring both operands to a common scale; the others take what is not 0 as true."""
    method = str(need(layer, "method")).upper()
    if method in COMPARISONS or method == "NOT_EQUAL":
        scales = numbers(layer, "scale", 1)
        if scales.size not in (1, 2):
            raise MappingError(f"scale_value should be two numbers, not {scales.tolist()}", "R110")
        x, y = (b.op("Mul", v, b.like(v, s)) for v, s in zip(operands(layer, b, q), np.broadcast_to(scales, 2), strict=True))
        truth = b.op(COMPARISONS.get(method, "Equal"), x, y)
        truth = b.op("Not", truth) if method == "NOT_EQUAL" else truth
    else:
        op = choose(layer, "method", {"AND": "And", "OR": "Or", "XOR": "Xor", "NOT": "Not"})
        values = [real(b, operand(layer, i)) for i in range(len(layer.inputs))]
        truth = b.op(op, *[b.op("Not", b.op("Equal", v, b.like(v, 0))) for v in values])
    return b.op("Cast", truth, to=int(q.types[0]))


@integer("SquaredDifference")
def squared_difference(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """Two ways of the vendor's tools, told apart by the number of scales: a scale for the difference, or one for each operand."""
    x, y = operands(layer, b, q)
    scales, shifts = numbers(layer, "scale", 1), numbers(layer, "shift", 0)
    if scales.size == 4 and shifts.size == 2:
        d = b.op("Sub", b.op("Mul", x, b.like(x, scales[1])), b.op("Mul", y, b.like(y, scales[2])))
        d = rescale(b, d, scales[3] * 2.0 ** -shifts[1], 0, LOW, HIGH)
    elif scales.size == 3 and shifts.size == 3:
        x, y = (rescale(b, v, scales[i] * 2.0 ** -shifts[i], 0, LOW, HIGH) for i, v in ((1, x), (2, y)))
        d = b.op("Sub", x, y)
    else:
        raise MappingError(f"{scales.size} scales and {shifts.size} shifts have no integer form here", "R110")
    return ended(layer, b, q, b.op("Mul", d, d), scales[0] * 2.0 ** -shifts[0])


@integer("Resize")
def resize(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """BILINEAR: the four neighbours of each place, with weights of `interp_shift_value` bits."""
    choose(layer, "method", {"BILINEAR": True})
    x, mode = operand(layer), str(need(layer, "mode", "HALF_PIXEL")).upper()
    shape = static(layer.outputs[0])
    if len(shape) != 4 or mode not in RATIOS:
        raise MappingError(f"mode={mode} has no integer form here")
    steps = 2.0 ** need_int(layer, "interp_shift_value", 13)
    rows, columns = (_places(static(x)[a], shape[a], mode, layer.attrs.get(f"ratio_{'yx'[a - 1]}")) for a in (1, 2))
    y = real(b, x)
    total = None
    for i in (0, 1):
        for j in (0, 1):
            weights = np.floor(np.outer(rows[1][i], columns[1][j]) * steps + 0.5).astype(np.float32)[None, :, :, None]
            part = b.op("Mul", b.op("Gather", b.op("Gather", y, rows[0][i], axis=1), columns[0][j], axis=2), beside(b, weights, y))
            total = part if total is None else b.op("Add", total, part)
    assert total is not None
    low, high = q.limits()
    return stored(b, rescale(b, total, 1 / steps, 0, low, high), q.types[0])


def _places(size: int, count: int, mode: str, ratio: Any) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """For each of `count` places along an axis: the two neighbours, and their weights."""
    i = arange(count, dtype=np.float32)
    step = np.float32(1 / ratio) if isinstance(ratio, int | float) and ratio > 0 else np.float32(size / count)
    if mode == "ALIGN_CORNERS":
        at = i * np.float32((size - 1) / max(1, count - 1))
    elif mode == "ASYMMETRIC":
        at = i * step
    else:
        at = (i + np.float32(0.5)) * step - np.float32(0.5)
        at = at if mode == "HALF_PIXEL" or count > 1 else np.zeros_like(at)
    first, second = np.maximum(np.floor(at), 0), np.minimum(np.ceil(at), size - 1)
    rest = at - first
    return (first.astype(np.int64), second.astype(np.int64)), (1 - rest, rest)


@integer("SpaceToBatch")
def space_to_batch(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """Padded with what stands for 0."""
    plain = Layer(layer.kind, layer.name, layer.attrs, {}, [real(b, operand(layer), q.inputs[0])], layer.outputs)
    found = LIFT["SpaceToBatch"](plain, b)
    return ended(layer, b, q, found if isinstance(found, ir.Value) else found[0], 1.0)


@integer("Where")
def where(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """Either operand comes to the grid of the result by a factor of its own; the condition is what is not 0."""
    condition, *sides = operands(layer, b, q)
    scales, shifts, (low, high) = numbers(layer, "scale", 1), numbers(layer, "shift", 0), q.limits()
    if len(sides) != 2 or scales.size not in (1, 2) or shifts.size != scales.size:
        raise MappingError(f"{len(sides)} operands, {scales.size} scales and {shifts.size} shifts", "R110")
    factors = np.broadcast_to(scales * 2.0**-shifts, 2)
    x, y = (rescale(b, v, f, q.outputs[0], low, high) for v, f in zip(sides, factors, strict=True))
    true = b.op("Not", b.op("Equal", condition, b.like(condition, 0)))
    return stored(b, b.op("Where", true, x, y), q.types[0])


@integer("Dilation", "Erosion")
def morphology(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """Data and weights come to a common scale first."""
    scales, shift = numbers(layer, "scale", 1), numbers(layer, "shift", 0)
    if scales.size != 3:
        raise MappingError(f"scale_value should be three numbers, not {scales.tolist()}", "R110")
    x = real(b, operand(layer), q.inputs[0])
    x = b.op("Mul", x, b.like(x, scales[1]))
    weights = np.asarray(blob(layer, "weights") * scales[2], x.dtype.numpy() if x.dtype is not None else np.float32)
    found = LIFT[layer.kind](Layer(layer.kind, layer.name, layer.attrs, {"weights": weights}, [x], layer.outputs), b)
    return ended(layer, b, q, found if isinstance(found, ir.Value) else found[0], (scales[:1] * 2.0 ** -shift[:1]).astype(np.float32))


def prelu(layer: Layer, b: Builder, q: Quantised) -> ir.Value:
    """A slope for each element, `negative_slope_shift` bits behind its point."""
    x, slope = real(b, operand(layer), q.inputs[0]), blob(layer, "negative_slope").astype(np.float32)
    rank = len(static(x))
    if slope.ndim > rank:
        slope = slope.reshape(slope.shape[slope.ndim - rank :])
    slope = np.ldexp(slope, -need_int(layer, "negative_slope_shift"))
    below = b.op("Round", b.op("Mul", b.op("Min", x, b.like(x, 0)), beside(b, slope, x, f"{layer.name}.negative_slope")))
    return ended(layer, b, q, b.op("Add", b.op("Relu", x), below))
