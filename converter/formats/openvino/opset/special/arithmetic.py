"""Element-wise operations whose meaning depends on types, constants or ranks."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.fields import element_type
from converter.formats.openvino.opset.special.base import (
    SIGNED,
    Emit,
    attributes,
    cast,
    dim,
    filled,
    given,
    is_float,
    lifts,
    lowers,
    needs,
    operand,
    optional,
    rank,
)
from converter.graph.build import Builder
from converter.graph.infer import known, rank_of
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType


@lifts("Divide")
def lift_divide(layer: Layer, b: Builder) -> ir.Value:
    """Of integers: rounds down (`m_pythondiv`, the default) or towards zero."""
    a = attributes(layer, "auto_broadcast", m_pythondiv=True)
    x, y = operand(layer, 0), operand(layer, 1)
    q = b.op("Div", x, y)
    if is_float(x) or x.dtype not in SIGNED or not a.m_pythondiv:
        return q
    rest = b.op("Sub", x, b.op("Mul", q, y))
    zero = b.like(x, 0)
    other_sign = b.op("Xor", b.op("Less", rest, zero), b.op("Less", y, zero))
    inexact = b.op("Not", b.op("Equal", rest, zero))
    assert x.dtype is not None
    return b.op("Sub", q, b.op("Cast", b.op("And", inexact, other_sign), to=int(x.dtype)))


@lowers("Div")
def lower_divide(node: Node, low: Lowering) -> None:
    integers = not is_float(node.input(0))
    Emit(node, low).out("Divide", *node.inputs, auto_broadcast="numpy", m_pythondiv=not integers)


@lifts("FloorMod")
def lift_floor_mod(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer, "auto_broadcast")
    x, y = operand(layer, 0), operand(layer, 1)
    if not is_float(x):
        return b.op("Mod", x, y, fmod=0)
    rest = b.op("Mod", x, y, fmod=1)
    zero = b.like(x, 0)
    turn = b.op("And", b.op("Not", b.op("Equal", rest, zero)), b.op("Xor", b.op("Less", rest, zero), b.op("Less", y, zero)))
    return b.op("Where", turn, b.op("Add", rest, y), rest)


@lifts("SquaredDifference")
def lift_squared_difference(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer, "auto_broadcast")
    d = b.op("Sub", operand(layer, 0), operand(layer, 1))
    return b.op("Mul", d, d)


@lifts("ErfInv")
def lift_erf_inverse(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer)
    return b.ext("ErfInv", operand(layer, 0))


@lowers("ErfInv", domain="netconv")
def lower_erf_inverse(node: Node, low: Lowering) -> None:
    needs(low, "ErfInv", 17)
    Emit(node, low).out("ErfInv", node.input(0))


@lifts("Swish")
def lift_swish(layer: Layer, b: Builder) -> ir.Value:
    x, beta = operand(layer, 0), optional(layer, 1)
    return b.op("Mul", x, b.op("Sigmoid", x if beta is None else b.op("Mul", x, beta)))


@lifts("Selu")
def lift_selu(layer: Layer, b: Builder) -> ir.Value:
    x, alpha, scale = operand(layer, 0), operand(layer, 1), operand(layer, 2)
    a, s = known(alpha), known(scale)
    if a is not None and s is not None and a.size == s.size == 1:
        return b.op("Selu", x, alpha=float(a.reshape(-1)[0]), gamma=float(s.reshape(-1)[0]))
    negative = b.op("Mul", alpha, b.op("Sub", b.op("Exp", x), b.like(x, 1)))
    return b.op("Mul", scale, b.op("Where", b.op("Greater", x, b.like(x, 0)), x, negative))


@lowers("Selu")
def lower_selu(node: Node, low: Lowering) -> None:
    a, x = filled(node), given(node, 0)
    dtype = (x.dtype or T.FLOAT).numpy()
    Emit(node, low).out("Selu", x, np.array([a["alpha"]], dtype), np.array([a["gamma"]], dtype))


@lifts("HardSigmoid")
def lift_hard_sigmoid(layer: Layer, b: Builder) -> ir.Value:
    x, alpha, beta = operand(layer, 0), operand(layer, 1), operand(layer, 2)
    a, s = known(alpha), known(beta)
    if a is not None and s is not None:
        return b.op("HardSigmoid", x, alpha=float(a.reshape(-1)[0]), beta=float(s.reshape(-1)[0]))
    return b.op("Clip", b.op("Add", b.op("Mul", alpha, x), beta), b.like(x, 0), b.like(x, 1))


@lowers("HardSigmoid")
def lower_hard_sigmoid(node: Node, low: Lowering) -> None:
    a, x = filled(node), given(node, 0)
    dtype = (x.dtype or T.FLOAT).numpy()
    Emit(node, low).out("HardSigmoid", x, np.array(a["alpha"], dtype), np.array(a["beta"], dtype))


@lifts("HSigmoid")
def lift_hsigmoid(layer: Layer, b: Builder) -> ir.Value:
    return b.op("HardSigmoid", operand(layer, 0), alpha=1 / 6, beta=0.5)


@lifts("Clamp")
def lift_clamp(layer: Layer, b: Builder) -> ir.Value:
    """Bounds are numbers; for integers they are rounded inwards and cut to the type's range."""
    a, x = attributes(layer, min=float, max=float), operand(layer, 0)
    if is_float(x):
        return b.op("Clip", x, b.like(x, a.min), b.like(x, a.max))
    assert x.dtype is not None
    range_ = np.iinfo(x.dtype.numpy())
    low = range_.min if a.min <= range_.min else range_.max if a.min >= range_.max else math.ceil(a.min)
    high = range_.max if a.max >= range_.max else range_.min if a.max <= range_.min else math.floor(a.max)
    return b.op("Clip", x, b.like(x, low), b.like(x, high))


@lowers("Clip")
def lower_clip(node: Node, low: Lowering) -> None:
    """Clamp keeps bounds as doubles; bounds that are computed or that a double cannot hold become Maximum and Minimum."""
    x, e = given(node, 0), Emit(node, low)
    bounds = [known(v) for v in (node.input(1), node.input(2))]
    absent = [node.input(i) is None for i in (1, 2)]
    if all(k is not None or a for k, a in zip(bounds, absent, strict=True)) and is_float(x):
        low_, high = (float(k.reshape(-1)[0]) if k is not None else d for k, d in zip(bounds, (-math.inf, math.inf), strict=True))
        if low_ <= high:
            e.out("Clamp", x, min=max(low_, -float(np.finfo(np.float32).max)) if math.isinf(low_) else low_, max=high)
            return
    steps = [(kind, v) for kind, v in (("Maximum", node.input(1)), ("Minimum", node.input(2))) if v is not None]
    if not steps:
        raise MappingError("without bounds")
    for i, (kind, v) in enumerate(steps):
        if i + 1 < len(steps):
            x = e.op(kind, x, v, auto_broadcast="numpy")
        else:
            e.out(kind, x, v, auto_broadcast="numpy")


@lifts("PReLU")
def lift_prelu(layer: Layer, b: Builder) -> ir.Value:
    """A slope of rank 1 whose size is that of axis 1 belongs to the channels; every other slope broadcasts as usual."""
    x, slope = operand(layer, 0), operand(layer, 1)
    if rank_of(slope) == 1 and rank(x) > 2 and dim(slope, 0) != 1:
        channels, count = dim(x, 1), dim(slope, 0)
        if channels is None and count != dim(x, -1):
            channels = count
        if count is None or channels is None:
            raise MappingError("whether the slope belongs to the channels depends on a dynamic dimension", "X203")
        if count == channels:
            slope = b.op("Reshape", slope, [-1, *[1] * (rank(x) - 2)])
    elif rank_of(x) == 0 and rank_of(slope) != 0:
        slope = b.op("Reshape", slope, np.zeros(0, np.int64))
    return b.op("PRelu", x, slope if x.dtype is None else cast(b, slope, x.dtype))


@lowers("PRelu")
def lower_prelu(node: Node, low: Lowering) -> None:
    x, slope = given(node, 0), given(node, 1)
    e = Emit(node, low)
    if rank_of(slope) == 1 and dim(slope, 0) != 1 and rank(x) != 1:
        slope = e.reshape(slope, [1] * (rank(x) - 1) + [-1])
    e.out("PReLU", x, slope)


@lowers("LeakyRelu")
def lower_leaky(node: Node, low: Lowering) -> None:
    x = given(node, 0)
    Emit(node, low).out("PReLU", x, np.array([filled(node)["alpha"]], (x.dtype or T.FLOAT).numpy()))


@lifts("Round")
def lift_round(layer: Layer, b: Builder) -> ir.Value:
    a, x = attributes(layer, mode="half_to_even"), operand(layer, 0)
    if not is_float(x):
        return b.op("Identity", x)
    if a.mode == "half_to_even":
        return b.op("Round", x)
    if a.mode != "half_away_from_zero":
        raise MappingError(f"mode={a.mode!r} is not known", "R110")
    size = b.op("Abs", x)
    floor = b.op("Floor", size)
    up = b.op("GreaterOrEqual", b.op("Sub", size, floor), b.like(x, 0.5))
    assert x.dtype is not None
    return b.op("Mul", b.op("Sign", x), b.op("Add", floor, b.op("Cast", up, to=int(x.dtype))))


@lowers("Round")
def lower_round(node: Node, low: Lowering) -> None:
    Emit(node, low).out("Round", node.input(0), mode="half_to_even")


@lifts("Gelu")
def lift_gelu(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, approximation_mode="erf")
    if a.approximation_mode not in ("erf", "tanh"):
        raise MappingError(f"approximation_mode={a.approximation_mode!r} is not known", "R110")
    return b.op("Gelu", operand(layer, 0), approximate="none" if a.approximation_mode == "erf" else "tanh")


@lowers("Gelu")
def lower_gelu(node: Node, low: Lowering) -> None:
    Emit(node, low).out("Gelu", node.input(0), approximation_mode={"none": "ERF", "tanh": "TANH"}[filled(node)["approximate"]])


@lowers("Mod")
def lower_mod(node: Node, low: Lowering) -> None:
    Emit(node, low).out("Mod" if filled(node)["fmod"] else "FloorMod", *node.inputs, auto_broadcast="numpy")


@lowers("Max", "Min")
def lower_extremum(node: Node, low: Lowering) -> None:
    if len(node.inputs) != 2:
        raise MappingError("Maximum and Minimum take two inputs")
    kind = "Maximum" if node.op == "Max" else "Minimum"
    if given(node, 0).dtype == T.BOOL:
        kind = "LogicalOr" if node.op == "Max" else "LogicalAnd"
    Emit(node, low).out(kind, *node.inputs, auto_broadcast="numpy")


@lowers("Pow")
def lower_pow(node: Node, low: Lowering) -> None:
    """Power takes two operands of one type; ONNX gives the result the type of the base."""
    x, y, e = given(node, 0), given(node, 1), Emit(node, low)
    if x.dtype == y.dtype or x.dtype is None:
        e.out("Power", x, y, auto_broadcast="numpy")
    elif is_float(x) or not is_float(y):
        e.out("Power", x, e.op("Convert", y, dtype=x.dtype, destination_type=element_type.lower(int(x.dtype))), auto_broadcast="numpy")
    else:
        wide = e.op("Convert", x, dtype=y.dtype, destination_type=element_type.lower(int(y.dtype or T.FLOAT)))
        power = e.op("Power", wide, y, auto_broadcast="numpy")
        e.out("Convert", power, destination_type=element_type.lower(int(x.dtype)))
