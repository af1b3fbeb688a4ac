"""Activations and elementwise arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.blobs import bools, floats, operand, operands, rank, together
from converter.formats.coreml.special.registry import lifts
from converter.graph.build import Builder
from converter.graph.infer import rank_of
from converter.mapping.node import Layer, MappingError

Value = ir.Value


def affine(b: Builder, x: Value, scale: float, shift: float) -> Value:
    """x * scale + shift, without the parts that say nothing."""
    y = x if scale == 1.0 else b.op("Mul", x, scale)
    return y if shift == 0.0 else b.op("Add", y, shift)


def per_channel(b: Builder, layer: Layer, path: str, x: Value) -> Value:
    """A weight of length C or 1 for axis -3 of x, as [C,1,1]."""
    array = layer.blobs[path].array([layer.blobs[path].data().count])
    channels = x.shape[-3] if rank(x) >= 3 and x.shape is not None else None
    if isinstance(channels, int) and array.size > max(channels, 1):
        array = array[:channels]
    return b.const(array.reshape(-1, 1, 1) if array.size > 1 or rank(x) >= 3 else array.reshape(()), path.split(".")[-1])


def lift_prelu(layer: Layer, b: Builder, x: Value, p: dict[str, Any]) -> Value:
    return b.op("PRelu", x, per_channel(b, layer, "PReLU.alpha", x))


def lift_parametric_softplus(layer: Layer, b: Builder, x: Value, p: dict[str, Any]) -> Value:
    alpha, beta = (per_channel(b, layer, f"parametricSoftplus.{n}", x) for n in ("alpha", "beta"))
    return b.op("Mul", b.op("Softplus", b.op("Mul", x, beta)), alpha)


def lift_thresholded(layer: Layer, b: Builder, x: Value, p: dict[str, Any]) -> Value:
    """x where x >= alpha, else 0. ONNX compares with >, hence the next smaller bound."""
    return b.op("ThresholdedRelu", x, alpha=float(np.nextafter(np.float32(p["alpha"]), np.float32(-np.inf))))


def _scaled_tanh(layer: Layer, b: Builder, x: Value, p: dict[str, Any]) -> Value:
    return affine(b, b.op("Tanh", affine(b, x, p["beta"], 0.0)), p["alpha"], 0.0)


ACTIVATIONS: dict[str, Callable[[Layer, Builder, Value, dict[str, Any]], Value]] = {
    "linear": lambda layer, b, x, p: affine(b, x, p["alpha"], p["beta"]),
    "ReLU": lambda layer, b, x, p: b.op("Relu", x),
    "leakyReLU": lambda layer, b, x, p: b.op("LeakyRelu", x, alpha=p["alpha"]),
    "thresholdedReLU": lift_thresholded,
    "PReLU": lift_prelu,
    "tanh": lambda layer, b, x, p: b.op("Tanh", x),
    "scaledTanh": _scaled_tanh,
    "sigmoid": lambda layer, b, x, p: b.op("Sigmoid", x),
    "sigmoidHard": lambda layer, b, x, p: b.op("HardSigmoid", x, alpha=p["alpha"], beta=p["beta"]),
    "ELU": lambda layer, b, x, p: b.op("Elu", x, alpha=p["alpha"]),
    "softsign": lambda layer, b, x, p: b.op("Softsign", x),
    "softplus": lambda layer, b, x, p: b.op("Softplus", x),
    "parametricSoftplus": lift_parametric_softplus,
}


@lifts("activation")
def lift_activation(layer: Layer, b: Builder) -> Value:
    if len(layer.attrs) != 1:
        raise MappingError("the activation has no type", "R110")
    ((kind, parameters),) = layer.attrs.items()
    x = floats(b, operand(layer))
    y = ACTIVATIONS[kind](layer, b, x, parameters)
    return y if y is not x else b.op("Identity", x)


def _power(b: Builder, x: Value, alpha: float) -> Value:
    return b.op("Mul", x, x) if alpha == 2.0 else b.op("Pow", x, alpha)


@lifts("unary")
def lift_unary(layer: Layer, b: Builder) -> Value:
    """f(scale * x + shift); epsilon is added inside RSQRT, INVERSE and LOG (the text forgets LOG)."""
    p = layer.attrs
    epsilon = p["epsilon"] or 1e-6
    x = affine(b, floats(b, operand(layer)), p["scale"] or 1.0, p["shift"])
    kinds: dict[str, Callable[[], Value]] = {
        "SQRT": lambda: b.op("Sqrt", x),
        "RSQRT": lambda: b.op("Reciprocal", b.op("Sqrt", b.op("Add", x, epsilon))),
        "INVERSE": lambda: b.op("Reciprocal", b.op("Add", x, epsilon)),
        "POWER": lambda: _power(b, x, p["alpha"]),
        "EXP": lambda: b.op("Exp", x),
        "LOG": lambda: b.op("Log", b.op("Add", x, epsilon)),
        "ABS": lambda: b.op("Abs", x),
        "THRESHOLD": lambda: b.op("Max", x, p["alpha"]),
    }
    if p["type"] not in kinds:
        raise MappingError(f"type={p['type']!r} is not known", "R110")
    return kinds[p["type"]]()


def aligned(b: Builder, values: list[Value]) -> list[Value]:
    """Operands of the older elementwise layers: of equal rank; a vector beside larger blobs means channels ([C] is axis -3)."""
    return [floats(b, v) for v in values]


@lifts("add multiply")
def lift_sum_product(layer: Layer, b: Builder) -> Value:
    """Of all inputs; of one input with `alpha`, which is 0 when unset."""
    op = {"add": "Add", "multiply": "Mul"}[layer.kind]
    values = aligned(b, operands(layer))
    if len(values) == 1:
        return b.op(op, values[0], float(layer.attrs["alpha"]))
    result = values[0]
    for v in values[1:]:
        result = b.op(op, result, v)
    return result


@lifts("average max min")
def lift_variadic(layer: Layer, b: Builder) -> Value:
    op = {"average": "Mean", "max": "Max", "min": "Min"}[layer.kind]
    return b.op(op, *aligned(b, operands(layer)))


def channel_constant(b: Builder, layer: Layer, path: str, shape: list[int], x: Value) -> Value:
    """A weight of shape [1], [C], [1,H,W] or [C,H,W] for the axes -3, -2, -1 of x."""
    if len(shape) not in (1, 3):
        raise MappingError(f"{path} has the shape {shape}; [1], [C], [1,H,W] or [C,H,W] is known", "R110")
    full = [int(shape[0]), 1, 1] if len(shape) == 1 else [int(d) for d in shape]
    if full == [1, 1, 1] and (rank_of(x) or 0) < 3:
        full = [1]
    value: Value = layer.blobs[path].lift(b, full)
    return value


@lifts("scale")
def lift_scale(layer: Layer, b: Builder) -> Value:
    x = floats(b, operand(layer))
    y = b.op("Mul", x, channel_constant(b, layer, "scale", layer.attrs["shapeScale"], x))
    if not layer.attrs["hasBias"]:
        return y
    return b.op("Add", y, channel_constant(b, layer, "bias", layer.attrs["shapeBias"], x))


@lifts("bias")
def lift_bias(layer: Layer, b: Builder) -> Value:
    x = floats(b, operand(layer))
    return b.op("Add", x, channel_constant(b, layer, "bias", layer.attrs["shape"], x))


@lifts("exp2")
def lift_exp2(layer: Layer, b: Builder) -> Value:
    return b.op("Pow", 2.0, floats(b, operand(layer)))


@lifts("gelu")
def lift_gelu(layer: Layer, b: Builder) -> Value:
    x, mode = floats(b, operand(layer)), layer.attrs["mode"]
    if mode == "SIGMOID_APPROXIMATION":
        return b.op("Mul", x, b.op("Sigmoid", b.op("Mul", x, 1.702)))
    return b.op("Gelu", x, approximate={"EXACT": "none", "TANH_APPROXIMATION": "tanh"}[mode])


@lifts("clip")
def lift_clip(layer: Layer, b: Builder) -> Value:
    return b.op("Clip", floats(b, operand(layer)), float(layer.attrs["minVal"]), float(layer.attrs["maxVal"]))


@lifts("clampedReLU")
def lift_clamped_relu(layer: Layer, b: Builder) -> Value:
    alpha, beta = layer.attrs["alpha"], layer.attrs["beta"]
    x = floats(b, operand(layer))
    if alpha == 0.0 and beta > 0:
        return b.op("Clip", x, 0.0, float(beta))
    return b.op("Min", b.op("LeakyRelu", x, alpha=alpha), float(beta))


@lifts("equal notEqual lessThan lessEqual greaterThan greaterEqual")
def lift_comparison(layer: Layer, b: Builder) -> Value:
    op = {
        "equal": "Equal", "notEqual": "Equal", "lessThan": "Less", "lessEqual": "LessOrEqual", "greaterThan": "Greater", "greaterEqual": "GreaterOrEqual",
    }[layer.kind]  # fmt: skip
    values: list[Any] = [floats(b, v) for v in operands(layer)]
    result = b.op(op, values[0], values[1] if len(values) > 1 else float(layer.attrs["alpha"]))
    return b.op("Not", result) if layer.kind == "notEqual" else result


@lifts("logicalAnd logicalOr logicalXor logicalNot")
def lift_logical(layer: Layer, b: Builder) -> Value:
    op = layer.kind.removeprefix("logical")
    values = [bools(b, v) for v in operands(layer)]
    if op == "Not" or len(values) == 1:
        return b.op("Not", values[0]) if op == "Not" else values[0]
    return b.op(op, *values)


@lifts("modBroadcastable")
def lift_mod(layer: Layer, b: Builder) -> Value:
    """x - y * floor(x / y): the sign of the divisor."""
    x, y = (floats(b, v) for v in operands(layer))
    return b.op("Sub", x, b.op("Mul", y, b.op("Floor", b.op("Div", x, y))))


@lifts("floorDivBroadcastable")
def lift_floor_div(layer: Layer, b: Builder) -> Value:
    x, y = (floats(b, v) for v in operands(layer))
    return b.op("Floor", b.op("Div", x, y))


@lifts("whereBroadcastable")
def lift_where(layer: Layer, b: Builder) -> Value:
    condition, x, y = operands(layer)
    return b.op("Where", bools(b, condition), *together(b, [x, y]))


@lifts("copy")
def lift_copy(layer: Layer, b: Builder) -> Value:
    return operand(layer)


@lifts("dot")
def lift_dot(layer: Layer, b: Builder) -> Value:
    """Along axis -3; the cosine is the dot product of vectors divided by their norms."""
    x, y = (floats(b, v) for v in operands(layer))
    if layer.attrs["cosineSimilarity"]:
        x, y = (b.op("Div", v, b.op("ReduceL2", v, [-3], keepdims=1)) for v in (x, y))
    return b.op("ReduceSum", b.op("Mul", x, y), [-3], keepdims=1)
