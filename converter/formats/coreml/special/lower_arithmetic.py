"""Elementwise operators -> layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.lowering import CoreLowering, attrs_with_defaults, is_float, numbers, rank_of_value, shape_list, x_of
from converter.formats.coreml.special.registry import lowers
from converter.graph.infer import constant
from converter.mapping.codecs import is_single
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node

Value = ir.Value
INTEGERS = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16, ir.DataType.UINT32)
# added to the argument of a logarithm where the file format insists on an epsilon: changes no number but zero
TINY = float(np.float32(1.4e-45))


def core(low: Lowering) -> CoreLowering:
    assert isinstance(low, CoreLowering)
    return low


def scalar(value: Value | None) -> float | None:
    """The number in a constant of one element."""
    array = constant(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 and array.dtype.kind in "iufb" else None


def unary(low: Lowering, near: Node, kind: str, **attrs: Any) -> None:
    low.add("unary", [x_of(near)], near.outputs[:1], {"type": kind, "scale": 1.0, **attrs})


@lowers("Sqrt Exp Abs")
def lower_unary(near: Node, low: Lowering) -> None:
    unary(low, near, near.op.upper())


@lowers("Reciprocal")
def lower_reciprocal(near: Node, low: Lowering) -> None:
    """1 / sqrt(x + c) is one layer; else the power -1 (INVERSE would add an epsilon)."""
    inner = _producer(near.input(0), "Sqrt")
    total = _producer(inner.inputs[0], "Add") if inner is not None else None
    epsilon = scalar(total.inputs[1]) if total is not None else None
    if total is not None and epsilon is not None and epsilon > 0:
        low.add("unary", [total.inputs[0]], near.outputs, {"type": "RSQRT", "scale": 1.0, "epsilon": epsilon})
    else:
        unary(low, near, "POWER", alpha=-1.0)


def _producer(value: Value | None, op_type: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type == op_type and not node.domain else None


@lowers("Log")
def lower_log(near: Node, low: Lowering) -> None:
    """The layer computes log(x + epsilon): an Add of a positive constant is that epsilon."""
    inner = _producer(near.input(0), "Add")
    epsilon = scalar(inner.inputs[1]) if inner is not None else None
    if inner is not None and epsilon is not None and epsilon > 0:
        low.add("unary", [inner.inputs[0]], near.outputs, {"type": "LOG", "scale": 1.0, "epsilon": epsilon})
    else:
        unary(low, near, "LOG", epsilon=TINY)


def is_short(value: Value) -> bool:
    """Whether it is of integers that a sum of two soon leaves: what is beyond has to wrap around."""
    return value.dtype in INTEGERS and value.dtype.bitwidth <= 16


def shifts_out(node: ir.Node | None) -> bool:
    """Whether 32-bit integers are multiplied by a power of two that is known only at run time, as exporters write shifts to the left."""
    if node is None or node.op_type != "Mul" or node.outputs[0].dtype not in (ir.DataType.INT32, ir.DataType.UINT32):
        return False
    return any(_power_of_two(v) for v in node.inputs)


def _power_of_two(value: Value | None) -> bool:
    node = value.producer() if value is not None else None
    while node is not None and node.op_type in ("Cast", "Round", "Floor") and not node.domain and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    base = scalar(node.inputs[0]) if node is not None and node.op_type == "Pow" and not node.domain else None
    return base is not None and base > 1 and math.frexp(base)[0] == 0.5


def _demand_room(near: Node) -> None:
    out = near.outputs[0]
    if is_short(out) or shifts_out(out.producer()):
        raise MappingError(f"{near.op} of {out.dtype.name if out.dtype else ''} wraps around, which floats do not")


@lowers("Neg")
def lower_neg(near: Node, low: Lowering) -> None:
    _demand_room(near)
    low.add("multiply", [x_of(near)], near.outputs, {"alpha": -1.0})


_ACTIVATIONS: dict[str, tuple[str, dict[str, str]]] = {
    "Relu": ("ReLU", {}), "Sigmoid": ("sigmoid", {}), "Softplus": ("softplus", {}), "Softsign": ("softsign", {}),
    "LeakyRelu": ("leakyReLU", {"alpha": "alpha"}),
    "Elu": ("ELU", {"alpha": "alpha"}), "HardSigmoid": ("sigmoidHard", {"alpha": "alpha", "beta": "beta"}),
}  # fmt: skip


@lowers(" ".join(_ACTIVATIONS))
def lower_activation(near: Node, low: Lowering) -> None:
    kind, keys = _ACTIVATIONS[near.op]
    attrs = attrs_with_defaults(near)
    low.add("activation", [x_of(near)], near.outputs, {kind: {far: attrs[n] for n, far in keys.items()}})


@lowers("ThresholdedRelu")
def lower_thresholded(near: Node, low: Lowering) -> None:
    """x > alpha there, x >= alpha here: the next larger number."""
    alpha = attrs_with_defaults(near)["alpha"]
    low.add("activation", [x_of(near)], near.outputs, {"thresholdedReLU": {"alpha": float(np.nextafter(np.float32(alpha), np.float32(np.inf)))}})


@lowers("PRelu")
def lower_prelu(near: Node, low: Lowering) -> None:
    slope, x = numbers(near.input(1), "the slope"), x_of(near)
    rank = rank_of_value(x)
    channels = slope.ndim >= 3 and slope.size == slope.shape[-3] and rank >= 3
    if slope.size != 1 and not channels:
        raise MappingError("a slope that is neither one number nor one per channel (axis -3)")
    if rank < 3:  # the layer with slopes wants channels
        low.add("activation", [x], near.outputs, {"leakyReLU": {"alpha": float(slope.reshape(-1)[0])}})
        return
    low.add("activation", [x], near.outputs, {"PReLU": {}}, {"PReLU.alpha": core(low).plain(slope.reshape(-1))})


@lowers("Gelu")
def lower_gelu(near: Node, low: Lowering) -> None:
    mode = {"none": "EXACT", "tanh": "TANH_APPROXIMATION"}[attrs_with_defaults(near)["approximate"]]
    low.add("gelu", [x_of(near)], near.outputs, {"mode": mode})


@lowers("Clip")
def lower_clip(near: Node, low: Lowering) -> None:
    limits = []
    for index, least in ((1, -3.4028234e38), (2, 3.4028234e38)):
        value = near.input(index)
        number = scalar(value) if value is not None else least
        if number is None:
            raise MappingError("the limits of Clip must be constant")
        limits.append(float(np.clip(number, -3.4028234e38, 3.4028234e38)))
    low.add("clip", [x_of(near)], near.outputs, {"minVal": limits[0], "maxVal": limits[1]})


_BINARY = {"Add": "addBroadcastable", "Mul": "multiplyBroadcastable", "Sub": "subtractBroadcastable", "Pow": "powBroadcastable"}
_VARIADIC = {"Max": "maxBroadcastable", "Min": "minBroadcastable"}


@lowers("Add Mul Sub Pow")
def lower_binary(near: Node, low: Lowering) -> None:
    """With a constant number: the layers that hold it. MatMul plus a constant vector is an inner product with bias."""
    if near.op == "Add" and _biased_product(near, low):
        return
    _demand_room(near)
    x, y = x_of(near, 0), x_of(near, 1)
    a, c = scalar(x), scalar(y)
    if near.op in ("Add", "Mul") and a is not None and c is None:
        x, y, c = y, x, a
    if near.op == "Pow" and x.dtype in INTEGERS and not (c is not None and c >= 0):  # a negative power of a whole number is a fraction
        truncated(core(low), core(low).one("powBroadcastable", [x, y], shape_list(near.outputs[0])), near.outputs)
        return
    fits = c is not None and rank_of_value(y) <= max(rank_of_value(x), 1) and is_single(c)
    if fits and c is not None and near.op in ("Add", "Mul", "Sub"):
        low.add("multiply" if near.op == "Mul" else "add", [x], near.outputs, {"alpha": -c if near.op == "Sub" else c})
    elif fits and c is not None and near.op == "Pow":
        low.add("unary", [x], near.outputs, {"type": "POWER", "scale": 1.0, "alpha": c})
    else:
        low.add(_BINARY[near.op], [x, y], near.outputs)


def _biased_product(near: Node, low: Lowering) -> bool:
    from converter.formats.coreml.special.lower_matrix import product_with_bias

    for i in (0, 1):
        node = _producer(near.input(i), "MatMul")
        bias = near.input(1 - i)
        if node is not None and bias is not None and len(node.outputs[0].uses()) == 1 and constant(bias) is not None:
            return product_with_bias(node, bias, near.outputs, core(low))
    return False


@lowers("Max Min")
def lower_extremum(near: Node, low: Lowering) -> None:
    if len(near.inputs) != 2:
        raise MappingError(f"{near.op} of {len(near.inputs)} operands (2 are taken at once)")
    x, y = x_of(near, 0), x_of(near, 1)
    c = scalar(y)
    if near.op == "Max" and c is not None and is_single(c) and rank_of_value(y) <= max(1, rank_of_value(x)):
        low.add("unary", [x], near.outputs, {"type": "THRESHOLD", "scale": 1.0, "alpha": c})
    else:
        low.add(_VARIADIC[near.op], [x, y], near.outputs)


@lowers("Mean")
def lower_mean(near: Node, low: Lowering) -> None:
    if len({tuple(map(str, shape_list(v) or ["?"])) for v in near.inputs if v is not None}) != 1 or shape_list(x_of(near)) is None:
        raise MappingError("the mean of operands of different shapes")
    low.add("average", near.inputs, near.outputs)


def truncated(low: CoreLowering, x: Value, outputs: list[Value]) -> None:
    """Towards zero: sign(x) * floor(|x|)."""
    shape = shape_list(x)
    size = low.one("unary", [x], shape, {"type": "ABS", "scale": 1.0})
    low.add("multiplyBroadcastable", [low.one("sign", [x], shape), low.one("floor", [size], shape)], outputs)


@lowers("Div")
def lower_div(near: Node, low: Lowering) -> None:
    """Of integers: towards zero."""
    x, y, out = x_of(near, 0), x_of(near, 1), near.outputs[0]
    if is_float(out):
        low.add("divideBroadcastable", [x, y], near.outputs)
    else:
        truncated(core(low), core(low).one("divideBroadcastable", [x, y], shape_list(out)), near.outputs)


@lowers("Mod")
def lower_mod(near: Node, low: Lowering) -> None:
    """The layer has the divisor's sign; fmod the dividend's: x - y * trunc(x / y)."""
    x, y, out = x_of(near, 0), x_of(near, 1), near.outputs[0]
    if not attrs_with_defaults(near).get("fmod", 0):
        low.add("modBroadcastable", [x, y], near.outputs)
        return
    shape, c = shape_list(out), core(low)
    whole = c.value("trunc", out.dtype, shape)
    truncated(c, c.one("divideBroadcastable", [x, y], shape), [whole])
    low.add("subtractBroadcastable", [x, c.one("multiplyBroadcastable", [whole, y], shape)], near.outputs)


_COMPARISONS = {"Equal": "equal", "Less": "lessThan", "LessOrEqual": "lessEqual", "Greater": "greaterThan", "GreaterOrEqual": "greaterEqual"}


@lowers(" ".join(_COMPARISONS))
def lower_comparison(near: Node, low: Lowering) -> None:
    x, y = x_of(near, 0), x_of(near, 1)
    c = scalar(y)
    if x.dtype == ir.DataType.STRING:
        raise MappingError("texts cannot be compared")
    if c is not None and np.isfinite(c) and rank_of_value(y) <= max(1, rank_of_value(x)):
        low.add(_COMPARISONS[near.op], [x], near.outputs, {"alpha": c})
    else:
        low.add(_COMPARISONS[near.op], [x, y], near.outputs)


@lowers("And Or Xor")
def lower_logical(near: Node, low: Lowering) -> None:
    low.add(f"logical{near.op}", near.inputs, near.outputs)


@lowers("Not")
def lower_not(near: Node, low: Lowering) -> None:
    """Not(Equal) is notEqual."""
    inner = _producer(near.input(0), "Equal")
    if inner is None:
        low.add("logicalNot", [x_of(near)], near.outputs)
        return
    c = scalar(inner.inputs[1])
    both = c is None or not np.isfinite(c) or rank_of_value(inner.inputs[1]) > max(1, rank_of_value(inner.inputs[0]))  # type: ignore[arg-type]
    low.add("notEqual", list(inner.inputs) if both else [inner.inputs[0]], near.outputs, {} if both else {"alpha": c})


@lowers("Where")
def lower_where(near: Node, low: Lowering) -> None:
    low.add("whereBroadcastable", near.inputs, near.outputs)


@lowers("IsNaN")
def lower_is_nan(near: Node, low: Lowering) -> None:
    low.add("notEqual", [x_of(near), x_of(near)], near.outputs)


@lowers("Identity")
def lower_identity(near: Node, low: Lowering) -> None:
    core(low).alias(near.outputs[0], x_of(near))


@lowers("Dropout")
def lower_dropout(near: Node, low: Lowering) -> None:
    if any(o.uses() or o.is_graph_output() for o in near.outputs[1:]):
        raise MappingError("the mask of Dropout")
    if near.input(2) is not None and constant(near.input(2)) != np.array(False):
        raise MappingError("a Dropout in training mode drops elements by chance")
    core(low).alias(near.outputs[0], x_of(near))
