"""Element-wise layers, layers with channel parameters, products of matrices and normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.access import (
    BOOL,
    FLOAT,
    as_float,
    axis_of,
    blob,
    cast,
    dims,
    flag,
    integer,
    marked,
    number,
    numbers,
    operand,
    optional,
    shape,
    text,
    weights,
)
from converter.formats.openvino.legacy.register import LIFT, lifts
from converter.graph.build import Builder
from converter.mapping.node import Layer, MappingError

ARITHMETIC = {"sum": "Add", "sub": "Sub", "mul": "Mul", "prod": "Mul", "div": "Div", "max": "Max", "min": "Min", "pow": "Pow"}
COMPARISONS = {"less": "Less", "less_equal": "LessOrEqual", "greater": "Greater", "greater_equal": "GreaterOrEqual", "equal": "Equal", "not_equal": "Equal"}
LOGICAL = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}


@lifts("Eltwise", "operation", "coeff")
def lift_eltwise(layer: Layer, b: Builder) -> ir.Value:
    """Two or more operands; comparisons and logic give 0 and 1 in the type of the output port. `coeff` multiplies the operands of a sum."""
    kind = text(layer, "operation", "sum").lower()
    operands = [operand(layer, i) for i in range(len(layer.inputs))]
    if kind in LOGICAL:
        return _chain(b, LOGICAL[kind], [cast(b, v, BOOL) for v in operands])
    common = _common(operands, layer.outputs[0].dtype if kind not in COMPARISONS else None)
    operands = [cast(b, v, common) for v in operands]
    if kind in COMPARISONS:
        result = _chain(b, COMPARISONS[kind], operands)
        return b.op("Not", result) if kind == "not_equal" else result
    factors = numbers(layer, "coeff", [])
    if factors and kind in ("sum", "sub"):
        operands = [v if f == 1 else b.op("Mul", v, b.like(v, f)) for v, f in zip(operands, factors, strict=True)]
    if kind in ("squared_diff", "sqdiff"):
        difference = _chain(b, "Sub", operands)
        return b.op("Mul", difference, difference)
    if kind == "floor_mod":
        return _chain(b, "Mod", operands, fmod=1)
    if kind == "mean":
        total = _chain(b, "Add", operands)
        return b.op("Div", total, b.like(total, len(operands)))
    if kind not in ARITHMETIC:
        raise MappingError(f"operation={kind!r} is not known", "R110")
    return _chain(b, ARITHMETIC[kind], operands)


def _chain(b: Builder, op: str, operands: Sequence[ir.Value], **attributes: Any) -> ir.Value:
    result = operands[0]
    for v in operands[1:]:
        result = b.op(op, result, v, **attributes)
    return result


def _common(operands: Sequence[ir.Value], declared: ir.DataType | None) -> ir.DataType:
    """One type for all operands: their own when they agree, else that of the result; booleans are numbers."""
    kinds = {v.dtype for v in operands}
    if len(kinds) == 1 and BOOL not in kinds:
        return kinds.pop() or FLOAT
    return declared if declared not in (None, BOOL) and declared is not None else FLOAT


@lifts("Power", "power", "scale", "shift")
def lift_power(layer: Layer, b: Builder) -> ir.Value:
    """(shift + scale*x)^power, without the steps that change nothing."""
    power, scale, shift = (number(layer, k, d) for k, d in (("power", 1.0), ("scale", 1.0), ("shift", 0.0)))
    x = operand(layer)
    if x.dtype != FLOAT and not all(float(v).is_integer() for v in (power, scale, shift)):
        x = as_float(b, x)
    y = x if scale == 1 else b.op("Mul", x, b.like(x, scale))
    y = y if shift == 0 else b.op("Add", y, b.like(y, shift))
    if power == -1:
        return marked(b.op("Reciprocal", as_float(b, y)), layer)
    if power == 0.5:
        return b.op("Sqrt", as_float(b, y))
    return y if power == 1 else b.op("Pow", y, b.like(y, power))


@lifts("ScaleShift", "broadcast")
def lift_scale_shift(layer: Layer, b: Builder) -> ir.Value:
    """y = weights_c * x + biases_c; one weight serves all channels. A second input takes the place of the weights."""
    x = operand(layer)
    gamma = optional(layer, 1) or _per_channel(layer, b, x, "weights")
    beta = optional(layer, 2) or _per_channel(layer, b, x, "biases")
    y = x if gamma is None else b.op("Mul", x, gamma)
    return y if beta is None else b.op("Add", y, beta)


def _per_channel(layer: Layer, b: Builder, x: ir.Value, name: str) -> ir.Value | None:
    array = blob(layer, name)
    if array is None:
        return None
    size = shape(x)
    channels = size[1] if len(size) > 1 else size[0]
    if array.size not in (1, channels):
        raise MappingError(f"the blob {name!r} has {array.size} elements, there are {channels} channels", "R103")
    return b.const(array.reshape(-1, *[1] * max(0, len(size) - 2)), f"{layer.name}.{name}")


@lifts("PReLU", "channel_shared", "filler_type", "filler_value", "min", "max", "mean", "std", "sparse", "variance_norm")
def lift_prelu(layer: Layer, b: Builder) -> ir.Value:
    """One slope for each channel, or one for all; v2 and later keep them in the blob, an input may hold them too."""
    x = operand(layer)
    if optional(layer, 1) is not None:
        slope = operand(layer, 1)
        array = b.op("Reshape", slope, [-1, *[1] * max(0, len(shape(x)) - 2)])
        return b.op("PRelu", x, array)
    slope_ = _per_channel(layer, b, x, "weights")
    if slope_ is None:
        raise MappingError("the blob 'weights' is absent", "R110")
    return b.op("PRelu", x, slope_)


@lifts("BatchNormalization", "epsilon", "eps")
def lift_batch_normalization(layer: Layer, b: Builder) -> ir.Value:
    """The blob `weights` is the variance, `biases` the mean; scale and shift are layers of their own."""
    x = operand(layer)
    channels = shape(x)[1]
    variance, mean = (b.const(weights(layer, n, [channels]), f"{layer.name}.{n}") for n in ("weights", "biases"))
    one, zero = b.const(np.ones(channels, np.float32)), b.const(np.zeros(channels, np.float32))
    return b.op("BatchNormalization", x, one, zero, mean, variance, epsilon=number(layer, "epsilon", 1e-3))


@lifts("FullyConnected InnerProduct", "out-size", "out_size", "alpha", "beta", "transpose_a", "transpose_b")
def lift_fully_connected(layer: Layer, b: Builder) -> ir.Value:
    """Weights [out, C*H*W] on x flattened from axis 1; rank 3 inputs keep their first two axes when the port says so."""
    x, out = operand(layer), dims(layer)
    size = shape(x)
    rows = int(np.prod(out[:-1]))
    inner = int(np.prod(size)) // max(rows, 1)
    flat = x if len(size) == 2 else b.op("Reshape", x, [rows, inner])
    if len(layer.inputs) > 1:
        w: ir.Value = b.op("Reshape", operand(layer, 1), [out[-1], inner])
    else:
        w = b.const(weights(layer, "weights", [out[-1], inner]), f"{layer.name}.weights")
    bias = b.const(weights(layer, "biases", [out[-1]]), f"{layer.name}.biases") if "biases" in layer.blobs else optional(layer, 2)
    y = b.op("Gemm", flat, w, bias, transB=1)
    return y if len(out) == 2 else b.op("Reshape", y, list(out))


@lifts("Gemm GEMM MatMul", "alpha", "beta", "transpose_a", "transpose_b")
def lift_gemm(layer: Layer, b: Builder) -> ir.Value:
    """alpha * A B + beta * C with numpy's broadcasting of the leading axes."""
    a, w = (operand(layer, i) for i in (0, 1))
    for key in ("transpose_a", "transpose_b"):
        if flag(layer, key):
            v = a if key == "transpose_a" else w
            rank = len(shape(v))
            turned = b.op("Transpose", v, perm=[*range(rank - 2), rank - 1, rank - 2]) if rank > 1 else v
            a, w = (turned, w) if key == "transpose_a" else (a, turned)
    y = b.op("MatMul", a, w)
    alpha, beta = number(layer, "alpha", 1.0), number(layer, "beta", 1.0)
    y = y if alpha == 1 else b.op("Mul", y, b.like(y, alpha))
    c = optional(layer, 2)
    if c is None:
        return y
    return b.op("Add", y, c if beta == 1 else b.op("Mul", c, b.like(c, beta)))


@lifts("Norm LRN", "alpha", "beta", "region", "local-size", "local_size", "k", "bias", "size")
def lift_norm(layer: Layer, b: Builder) -> ir.Value:
    """x / (k + alpha/n * sum x^2)^beta over `local-size` channels, or over a window of as many pixels in each spatial axis."""
    x = operand(layer)
    size = integer(layer, "local-size", integer(layer, "local_size", integer(layer, "size", 1)))
    alpha, beta, k = number(layer, "alpha"), number(layer, "beta"), number(layer, "k", number(layer, "bias", 1.0))
    if text(layer, "region", "across").lower() != "same":
        return b.op("LRN", x, alpha=alpha, beta=beta, bias=k, size=size)
    before, after = (size - 1) // 2, size // 2
    rank = len(shape(x)) - 2
    pads = [before] * rank + [after] * rank
    mean = b.op("AveragePool", b.op("Mul", x, x), kernel_shape=[size] * rank, strides=[1] * rank, pads=pads, count_include_pad=1)
    base = b.op("Add", b.op("Mul", mean, b.like(x, alpha)), b.like(x, k))
    return b.op("Div", x, b.op("Pow", base, b.like(x, beta)))


@lifts("Normalize", "across_spatial", "channel_shared", "eps", "scale_filler", "value")
def lift_normalize(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    axes = list(range(1, len(shape(x)))) if flag(layer, "across_spatial") else [1]
    y = b.ext("NormalizeL2", x, axes=axes, eps=number(layer, "eps", 1e-10), eps_mode="add")
    scale = _per_channel(layer, b, x, "weights")
    return y if scale is None else b.op("Mul", y, scale)


@lifts("MVN", "across_channels", "normalize_variance", "eps")
def lift_mvn(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    first = 1 if flag(layer, "across_channels") or len(shape(x)) < 3 else 2
    return b.ext("MVN", x, axes=list(range(first, len(shape(x)))), normalize_variance=int(flag(layer, "normalize_variance", True)),
                 eps=number(layer, "eps", 1e-9), eps_mode="inside_sqrt")  # fmt: skip


@lifts("GRN", "bias")
def lift_grn(layer: Layer, b: Builder) -> ir.Value:
    return b.ext("GRN", operand(layer), bias=number(layer, "bias", 1e-6))


@lifts("SoftMax LogSoftmax", "axis")
def lift_softmax(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    kind = "Softmax" if layer.kind == "SoftMax" else "LogSoftmax"
    return b.op(kind, x, axis=axis_of(layer, len(shape(x)), min(1, len(shape(x)) - 1)))


@lifts("Select")
def lift_select(layer: Layer, b: Builder) -> ir.Value:
    condition, x, y = (operand(layer, i) for i in range(3))
    common = _common([x, y], layer.outputs[0].dtype)
    x, y = cast(b, x, common), cast(b, y, common)
    condition = cast(b, condition, BOOL)
    missing = len(shape(x)) - len(shape(condition))
    if missing > 0:  # one truth value for each row of the leading axes
        condition = b.op("Reshape", condition, [*shape(condition), *[1] * missing])
    return b.op("Where", condition, x, y)


@lifts("ReLU", "negative_slope")
def lift_relu(layer: Layer, b: Builder) -> ir.Value:
    slope = number(layer, "negative_slope", 0.0)
    return b.op("Relu", operand(layer)) if slope == 0 else b.op("LeakyRelu", operand(layer), alpha=slope)


@lifts("ReLU6", "n")
def lift_relu6(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    return b.op("Clip", x, b.like(x, 0), b.like(x, number(layer, "n", 6.0)))


@lifts("Clamp", "min", "max", "min_value", "max_value")
def lift_clamp(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    return b.op("Clip", x, b.like(x, number(layer, "min")), b.like(x, number(layer, "max")))


@lifts("ELU", "alpha")
def lift_elu(layer: Layer, b: Builder) -> ir.Value:
    return b.op("Elu", operand(layer), alpha=number(layer, "alpha", 1.0))


@lifts("Not LogicalNot")
def lift_not(layer: Layer, b: Builder) -> ir.Value:
    return b.op("Not", cast(b, operand(layer), BOOL))


ACTIVATIONS = {"sigmoid": "Sigmoid", "logistic": "Sigmoid", "tanh": "Tanh", "exp": "Exp"}


@lifts("Activation", "type", "alpha", "negative_slope", "n", "min", "max")
def lift_activation(layer: Layer, b: Builder) -> ir.Value:
    """The type of the function is an attribute; any other activation layer's type may stand there too."""
    kind = text(layer, "type").lower()
    if kind in ACTIVATIONS:
        return b.op(ACTIVATIONS[kind], operand(layer))
    spelled = {k.lower(): k for k in ("ReLU", "ReLU6", "ELU", "Clamp", "PReLU", "Not")}.get(kind)
    if spelled is not None:
        return LIFT[spelled](Layer(spelled, layer.name, layer.attrs, layer.blobs, layer.inputs, layer.outputs, layer.where, layer.extra), b)  # type: ignore[return-value]
    simple = {
        k.lower(): k
        for k in ("Abs", "Acos", "Asin", "Atan", "Ceil", "Cos", "Cosh", "Erf", "Floor", "Log", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Tan", "Sqrt")
    }
    if kind not in simple:
        raise MappingError(f"type={text(layer, 'type')!r} is not known", "R110")
    return b.op(simple[kind], operand(layer))


@lifts("FakeQuantize Quantize", "levels")
def lift_fake_quantize(layer: Layer, b: Builder) -> ir.Value:
    return marked(b.ext("FakeQuantize", *(as_float(b, operand(layer, i)) for i in range(5)), levels=integer(layer, "levels")), layer)


@lifts("Convert Copy", "precision")
def lift_convert(layer: Layer, b: Builder) -> ir.Value:
    """The output port's precision is the target type; `precision` repeats it."""
    x, wanted = operand(layer), layer.outputs[0].dtype or FLOAT
    return b.op("Cast", x, to=int(wanted)) if x.dtype != wanted and layer.kind == "Convert" else b.op("Identity", x)
