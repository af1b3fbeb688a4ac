"""Canonical arithmetic -> legacy layers; the Model Optimizer's own choices: Power and ScaleShift for constants, Eltwise for the rest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.access import kind_before
from converter.formats.openvino.legacy.register import lowers
from converter.formats.openvino.legacy.types import keeps_type
from converter.formats.openvino.legacy.writing import (
    array_of,
    const,
    csv,
    finish,
    is_float,
    need,
    reshaped,
    scalar_of,
    static,
    step,
    widened,
)
from converter.graph.infer import Array, constant
from converter.mapping.codecs import is_single, number_text
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node

ELTWISE = {
    "Add": "sum", "Sub": "sub", "Mul": "mul", "Div": "div", "Max": "max", "Min": "min", "Pow": "pow", "Less": "less", "LessOrEqual": "less_equal",
    "Greater": "greater", "GreaterOrEqual": "greater_equal", "Equal": "equal", "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor",
}  # fmt: skip
LARGEST = float(np.finfo(np.float32).max)
MOST_AXES = 5  # of layers that go through the elements one by one


def power(low: Lowering, x: ir.Value, out: ir.Value, exponent: float = 1.0, scale: float = 1.0, shift: float = 0.0) -> None:
    low.add("Power", [x], [out], {"power": number_text(exponent), "scale": number_text(scale), "shift": number_text(shift)})


@lowers("Add", "Sub", "Mul", "Div", "Pow")
def lower_arithmetic(node: Node, low: Lowering) -> None:
    """x + c, x * c, x ^ c with one number are Power; with one number for each channel ScaleShift."""
    x, y, out = need(node, 0), need(node, 1), node.outputs[0]
    for data, other, first in ((x, y, True), (y, x, False)):
        c = scalar_of(other)
        if c is None or not is_float(out) or data.const_value is not None or static(data) != static(out) or not is_single(c):
            continue
        if _power(node.op, low, data, out, c, first):
            return
    if node.op in ("Add", "Mul") and _scale_shift(node, low):
        return
    eltwise(low, ELTWISE[node.op], [x, y], out)


def _power(op: str, low: Lowering, data: ir.Value, out: ir.Value, c: float, first: bool) -> bool:
    """Writes op(data, c), or op(c, data) when not `first`, if a Power layer says it."""
    if op == "Add":
        power(low, data, out, shift=c)
    elif op == "Mul":
        power(low, data, out, scale=c)
    elif op == "Sub":
        power(low, data, out, shift=-c if first else c, scale=1.0 if first else -1.0)
    elif op == "Pow" and first:
        power(low, data, out, exponent=c)
    elif op == "Div" and first and c != 0 and float(np.float32(1.0 / c)) * c == 1.0:
        power(low, data, out, scale=1.0 / c)
    else:
        return False
    return True


def _scale_shift(node: Node, low: Lowering) -> bool:
    out = node.outputs[0]
    for data, other in ((need(node, 0), need(node, 1)), (need(node, 1), need(node, 0))):
        channels = per_channel(other, static(out))
        if channels is not None and data.const_value is None and static(data) == static(out) and len(static(out)) >= 4:
            ones = np.ones_like(channels)
            blobs = {"weights": channels, "biases": np.zeros_like(channels)} if node.op == "Mul" else {"weights": ones, "biases": channels}
            low.add("ScaleShift", [data], [out], {}, blobs)
            return True
    return False


def per_channel(value: ir.Value, shape: list[int]) -> Array | None:
    """The float numbers of a constant that has one for each channel (axis 1) of `shape`."""
    array = constant(value) if value.const_value is not None else None
    if array is None or array.dtype.kind != "f" or len(shape) < 2 or array.ndim > len(shape):
        return None
    full = (1,) * (len(shape) - array.ndim) + array.shape
    return array.reshape(-1) if full == (1, shape[1], *[1] * (len(shape) - 2)) else None


def eltwise(low: Lowering, operation: str, operands: list[ir.Value], out: ir.Value) -> None:
    """All operands in the rank of the result, which is five axes at most where it is spread over them."""
    shape = static(out)
    together = merged([static(v) for v in operands], shape) if len(shape) > MOST_AXES else None
    if shape and together is None:
        low.add("Eltwise", [widened(low, v, len(shape)) for v in operands], [out], {"operation": operation})
        return
    shapes, whole = together or ([[1]] * len(operands), [1])
    if len(whole) > MOST_AXES:
        operands, shapes, whole = [full(low, v, shape) for v in operands], [[math.prod(shape)]] * len(operands), [math.prod(shape)]
    inputs = [reshaped(low, v, s) for v, s in zip(operands, shapes, strict=True)]
    finish(low, step(low, "Eltwise", inputs, out, whole, {"operation": operation}), out)


def merged(shapes: list[list[int]], out: list[int]) -> tuple[list[list[int]], list[int]]:
    """The operands' shapes, and that of the result, with neighbouring axes as one where every operand is spread over both or neither."""
    wide = [[1] * (len(out) - len(s)) + s for s in shapes]
    columns: list[list[int]] = []
    for column in zip(*wide, out, strict=True):
        if columns and all((a == columns[-1][-1]) == (b == column[-1]) or 1 in (columns[-1][-1], column[-1]) for a, b in zip(columns[-1], column, strict=True)):
            columns[-1] = [a * b for a, b in zip(columns[-1], column, strict=True)]
        else:
            columns.append(list(column))
    return [list(c) for c in zip(*columns, strict=True)][:-1], [c[-1] for c in columns]


@lowers("Max", "Min", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "And", "Or", "Xor")
def lower_eltwise(node: Node, low: Lowering) -> None:
    if len(node.inputs) != 2:
        raise MappingError("two operands are needed")
    eltwise(low, ELTWISE[node.op], [need(node, 0), need(node, 1)], node.outputs[0])


@lowers("Mod")
def lower_mod(node: Node, low: Lowering) -> None:
    """floor_mod of the engine works on integers, and truncates: ONNX's fmod."""
    if is_float(need(node, 0)) or not node.attrs.get("fmod"):
        raise MappingError("only the truncating remainder of integers is known to the target")
    eltwise(low, "floor_mod", [need(node, 0), need(node, 1)], node.outputs[0])


@lowers("Not")
def lower_not(node: Node, low: Lowering) -> None:
    low.add("Activation", [need(node, 0)], node.outputs, {"type": "not"})


@lowers("Where")
def lower_where(node: Node, low: Lowering) -> None:
    """Operands of the result's shape, in four axes at most; the condition as integers."""
    out = node.outputs[0]
    shape = static(out)
    operands = [full(low, need(node, i), shape or [1]) for i in range(3)]
    if operands[0].dtype != ir.DataType.INT32:
        operands[0] = step(low, "Convert", [operands[0]], const(low, np.int32(0)), shape or [1], {"precision": "I32"})
    if 1 <= len(shape) <= 4:
        low.add("Select", operands, [out])
    else:
        flat = [math.prod(shape)]
        finish(low, step(low, "Select", [reshaped(low, v, flat) for v in operands], out, flat), out)


def full(low: Lowering, value: ir.Value, shape: list[int]) -> ir.Value:
    """`value`, spread over all of `shape`."""
    array = constant(value) if value.const_value is not None else None
    if array is not None:
        return const(low, np.broadcast_to(array, shape), value.name or "const")
    wide = widened(low, value, len(shape))
    if static(wide) == shape:
        return wide
    return step(low, "Broadcast", [wide, const(low, np.array(shape, np.int64))], value, shape)


@lowers("Relu", "LeakyRelu")
def lower_relu(node: Node, low: Lowering) -> None:
    slope = node.attrs.get("alpha", 0.01) if node.op == "LeakyRelu" else 0.0
    low.add("ReLU", [need(node, 0)], node.outputs, {"negative_slope": number_text(slope)} if slope else {})


@lowers("Elu")
def lower_elu(node: Node, low: Lowering) -> None:
    low.add("Activation", [need(node, 0)], node.outputs, {"type": "elu", "alpha": number_text(node.attrs.get("alpha", 1.0))})


@lowers("Clip")
def lower_clip(node: Node, low: Lowering) -> None:
    """A bound that is left out is the largest number."""
    if not is_float(need(node, 0)):
        raise MappingError("Clamp keeps its bounds as floats")
    bounds = []
    for i, default in ((1, -LARGEST), (2, LARGEST)):
        value = scalar_of(node.input(i)) if node.input(i) is not None else default
        if value is None:
            raise MappingError("the bounds must be constant")
        bounds.append(min(max(value, -LARGEST), LARGEST))
    low.add("Clamp", [need(node, 0)], node.outputs, {"min": number_text(bounds[0]), "max": number_text(bounds[1])})


@lowers("Sqrt")
def lower_sqrt(node: Node, low: Lowering) -> None:
    power(low, need(node, 0), node.outputs[0], exponent=0.5)


@lowers("Reciprocal")
def lower_reciprocal(node: Node, low: Lowering) -> None:
    if kind_before(node.outputs[0]) == "Power":
        power(low, need(node, 0), node.outputs[0], exponent=-1.0)
    else:
        low.add("Reciprocal", [need(node, 0)], node.outputs)


@lowers("PRelu")
def lower_prelu(node: Node, low: Lowering) -> None:
    x = need(node, 0)
    slope = array_of(node, 1, "the slopes")
    channels = slope.reshape(-1) if slope.size == 1 else per_channel(need(node, 1), static(x))
    if channels is None or not 2 <= len(static(x)) <= MOST_AXES:
        raise MappingError("the slopes must be one number, or one for each channel, of five axes at most")
    low.add("PReLU", [x], node.outputs, {"channel_shared": "1" if slope.size == 1 else "0"}, {"weights": channels})


@lowers("BatchNormalization")
def lower_batch_normalization(node: Node, low: Lowering) -> None:
    """The layer of that name has no scale and shift; with these it becomes one ScaleShift."""
    scale, bias, mean, variance = (array_of(node, i, "the statistics") for i in range(1, 5))
    if node.attrs.get("training_mode") or len(static(need(node, 0))) < 4:
        raise MappingError("only inference on images is known to the target")
    epsilon = node.attrs.get("epsilon", 1e-5)
    if np.all(scale == 1) and not bias.any():
        low.add("BatchNormalization", [need(node, 0)], node.outputs[:1], {"epsilon": number_text(epsilon)}, {"weights": variance, "biases": mean})
        return
    with np.errstate(divide="ignore", invalid="ignore"):  # a variance below 0 gives what the operator gives
        factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    shift = bias - mean * factor
    low.add("ScaleShift", [need(node, 0)], node.outputs[:1], {}, {"weights": factor.astype(scale.dtype), "biases": shift.astype(scale.dtype)})


@lowers("Gemm")
def lower_gemm(node: Node, low: Lowering) -> None:
    """FullyConnected with weights [out, in] and a bias for each output; anything else is a product and a sum."""
    a, out = need(node, 0), node.outputs[0]
    w = array_of(node, 1, "the weights of a fully connected layer")
    if node.attrs.get("transA"):
        raise MappingError("a transposed first operand is not known to FullyConnected")
    w = w if node.attrs.get("transB") else w.T
    alpha, beta = node.attrs.get("alpha", 1.0), node.attrs.get("beta", 1.0)
    w = w if alpha == 1 else (w * np.asarray(alpha, w.dtype))
    blobs = {"weights": w}
    if node.input(2) is not None:
        bias = array_of(node, 2, "the bias")
        if bias.size not in (1, w.shape[0]) or (bias.ndim == 2 and bias.shape[0] != 1):
            raise MappingError("the bias must have one number for each output")
        blobs["biases"] = np.broadcast_to((bias if beta == 1 else bias * np.asarray(beta, bias.dtype)).reshape(-1), [w.shape[0]])
    low.add("FullyConnected", [_image(a)], [out], {"out-size": str(w.shape[0])}, blobs)


def _image(rows: ir.Value) -> ir.Value:
    """The images of which `rows` are the flat form: the layer flattens them itself."""
    producer = rows.producer()
    before = producer.inputs[0] if producer is not None and producer.op_type in ("Reshape", "Flatten") and not producer.domain else None
    return before if before is not None and len(static(before)) == 4 and static(before)[0] == static(rows)[0] else rows


@lowers("MatMul")
def lower_matmul(node: Node, low: Lowering) -> None:
    """A constant matrix on the right makes FullyConnected, else GEMM between operands of equal rank."""
    a, w, out = need(node, 0), need(node, 1), node.outputs[0]
    weights = constant(w) if w.const_value is not None else None
    if weights is not None and weights.ndim == 2 and len(static(a)) == 2 and a.const_value is None and is_float(a):
        low.add("FullyConnected", [a], [out], {"out-size": str(weights.shape[1])}, {"weights": weights.T})
        return
    left = static(a) if len(static(a)) > 1 else [1, *static(a)]
    right = static(w) if len(static(w)) > 1 else [*static(w), 1]
    rank = max(len(left), len(right))
    left, right = ([1] * (rank - len(s)) + s for s in (left, right))
    front = [max(p, q) for p, q in zip(left[:-2], right[:-2], strict=True)]
    if rank > 4:  # GEMM knows two axes in front of the matrices
        (first, second), fewer = merged([left[:-2], right[:-2]], front)
        if len(fewer) > 2:
            a, w = (full(low, v, [*front, *s[-2:]]) for v, s in ((a, left), (w, right)))
            first = second = fewer = [math.prod(front)]
        left, right, front = [*first, *left[-2:]], [*second, *right[-2:]], fewer
    shape = [*front, left[-2], right[-1]]
    turned = _turned(w) if len(static(w)) == rank <= 4 else None
    inputs = [reshaped(low, a, left), reshaped(low, w, right) if turned is None else turned]
    attrs = {"transpose_a": "False", "transpose_b": str(turned is not None)}
    if not is_float(out):  # behind layers that move integers the engine takes them for floats
        floats = const(low, np.float32(0))
        inputs = [step(low, "Convert", [v], floats, static(v), {"precision": "FP32"}) for v in inputs]
        product = step(low, "GEMM", inputs, floats, shape, attrs)
        finish(low, step(low, "Convert", [product], out, shape, {"precision": "I32"}), out)
    elif shape == static(out):
        low.add("GEMM", inputs, [out], attrs)
    else:
        finish(low, step(low, "GEMM", inputs, out, shape, attrs), out)


def _turned(value: ir.Value) -> ir.Value | None:
    """The matrices of which `value` is the transposed ones."""
    producer = value.producer()
    if producer is None or producer.op_type != "Transpose" or producer.domain or "perm" not in producer.attributes:
        return None
    perm, rank = list(producer.attributes["perm"].as_ints()), len(static(value))
    return producer.inputs[0] if perm == [*range(rank - 2), rank - 1, rank - 2] else None


@lowers("Cast")
def lower_cast(node: Node, low: Lowering) -> None:
    """Between numbers; what becomes a truth value is compared with 0. Truth values are the numbers 0 and 1."""
    x, out = need(node, 0), node.outputs[0]
    target = ir.DataType(node.attrs["to"])
    if target == ir.DataType.STRING or x.dtype == ir.DataType.STRING:
        raise MappingError("text is not known to the target")
    if keeps_type(x):
        finish(low, x, out)  # the one layer between an input of any type and a number of any type
        return
    if target == ir.DataType.BOOL and x.dtype != ir.DataType.BOOL:
        zero = const(low, np.zeros([1] * len(static(out)), x.dtype.numpy() if x.dtype else np.float32))
        eltwise(low, "not_equal", [x, zero], out)
        return
    low.add("Convert", [x], [out], {"precision": "I32" if not is_float(out) and target != ir.DataType.BOOL else "FP32"})


@lowers("Identity")
def lower_identity(node: Node, low: Lowering) -> None:
    copy(low, need(node, 0), node.outputs[0])


def copy(low: Lowering, x: ir.Value, out: ir.Value) -> None:
    """A layer that changes nothing."""
    if is_float(out) or out.dtype == ir.DataType.BOOL:
        power(low, x, out)
    else:
        finish(low, x, out)


def pairs(attrs: dict[str, Any], *names: str) -> dict[str, str]:
    """Attributes as text: lists with commas, flags as 0 and 1."""
    return {n: _text(attrs[n]) for n in names if attrs.get(n) is not None}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return csv(value)
    return number_text(value) if isinstance(value, float) else str(value)
