"""Conversions between types, and shifts of bits."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.openvino.opset.codes import CODES
from converter.formats.openvino.opset.constants import HALF, computed
from converter.formats.openvino.opset.fields import element_type
from converter.formats.openvino.opset.special.base import (
    SIGNED,
    Emit,
    attributes,
    filled,
    given,
    lifts,
    lowers,
    operand,
    rank,
)
from converter.graph.build import Builder
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node
from converter.passes.halves import may_round

T = ir.DataType


@lifts("ConvertLike")
def lift_convert_like(layer: Layer, b: Builder) -> ir.Value:
    like = operand(layer, 1)
    if like.dtype is None:
        raise MappingError("the type of input 1 is unknown")
    return _converted(b, operand(layer, 0), like.meta.get(HALF, like.dtype))


@lifts("Convert")
def lift_convert(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer, "no_clamp", "use_rounding", destination_type=str)
    if (name := str(layer.attrs["destination_type"]).strip().lower()) in CODES:
        raise MappingError(f"a conversion to {name} cannot be expressed")
    return _converted(b, operand(layer, 0), T(element_type.lift(name)))


def _converted(b: Builder, x: ir.Value, to: ir.DataType) -> ir.Value:
    """Between types of computation. Half precision is computed in floats: to it, numbers are rounded that are not half already, from it is nothing."""
    if may_round(x.dtype, to) and x.meta.get(HALF) != to:
        x = b.op("Cast", x, to=int(to))
    return x if x.dtype == computed(to) else b.op("Cast", x, to=int(computed(to)))


@lowers("Identity")
def lower_identity(node: Node, low: Lowering) -> None:
    """Before opset16 a Convert to the same type, which does nothing."""
    x = given(node, 0)
    if low.version >= 16:
        Emit(node, low).out("Identity", x)
    else:
        Emit(node, low).out("Convert", x, destination_type=element_type.lower(int(x.dtype or T.FLOAT)))


@lowers("Cast")
def lower_cast(node: Node, low: Lowering) -> None:
    if filled(node).get("saturate", 1) != 1 and T(node.attrs["to"]) in (T.FLOAT8E4M3FN, T.FLOAT8E5M2):
        raise MappingError("saturate=0 cannot be expressed")
    x = given(node, 0)
    if (x.dtype == T.STRING) != (node.attrs["to"] == int(T.STRING)):
        raise MappingError("strings cannot be converted to and from numbers")
    Emit(node, low).out("Convert", x, destination_type=element_type.lower(node.attrs["to"]))


@lifts("ConvertPromoteTypes")
def lift_promote(layer: Layer, b: Builder) -> list[ir.Value]:
    """Both inputs in their common type; a scalar of the same kind does not widen a tensor with `pytorch_scalar_promotion`."""
    a = attributes(layer, promote_unsafe=False, pytorch_scalar_promotion=False, u64_integer_promotion_target="f32")
    x, y = operand(layer, 0), operand(layer, 1)
    if x.dtype is None or y.dtype is None:
        raise MappingError("the types of the inputs are unknown")
    to = _promoted(x, y, a.pytorch_scalar_promotion, computed(T(element_type.lift(a.u64_integer_promotion_target))))
    return [b.op("Cast", v, to=int(to)) for v in (x, y)]


def _promoted(x: ir.Value, y: ir.Value, scalars: bool, u64: ir.DataType) -> ir.DataType:
    assert x.dtype is not None and y.dtype is not None
    if x.dtype == y.dtype:
        return x.dtype
    kinds = ["f" if v.dtype.is_floating_point() else v.dtype.numpy().kind for v in (x, y)]  # type: ignore[union-attr]
    order = [{"b": 0, "u": 1, "i": 1, "f": 2}[k] for k in kinds]
    if scalars and (rank(x) == 0) != (rank(y) == 0) and order[0] != order[1]:
        tensor = y if rank(x) == 0 else x
        if order[(x, y).index(tensor)] > order[1 - (x, y).index(tensor)]:
            return tensor.dtype  # type: ignore[return-value]
    elif scalars and (rank(x) == 0) != (rank(y) == 0):
        return (y if rank(x) == 0 else x).dtype  # type: ignore[return-value]
    if order[0] != order[1]:
        return x.dtype if order[0] > order[1] else y.dtype
    widths = [v.dtype.bitwidth for v in (x, y)]  # type: ignore[union-attr]
    if kinds[0] == kinds[1]:
        if kinds[0] == "f" and widths[0] == widths[1]:
            return T.FLOAT  # two half types
        return x.dtype if widths[0] > widths[1] else y.dtype
    unsigned, signed = (0, 1) if kinds[0] == "u" else (1, 0)
    if widths[unsigned] < widths[signed]:
        return (x, y)[signed].dtype  # type: ignore[return-value]
    if widths[unsigned] == 64:
        return u64
    return {8: T.INT16, 16: T.INT32, 32: T.INT64}[widths[unsigned]]


@lifts("BitwiseLeftShift", "BitwiseRightShift")
def lift_shift(layer: Layer, b: Builder) -> ir.Value:
    """ONNX shifts unsigned numbers; signed ones are shifted as their bits, to the right with the sign's copies."""
    attributes(layer, "auto_broadcast")
    x, n = operand(layer, 0), operand(layer, 1)
    right = layer.kind == "BitwiseRightShift"
    unsigned = SIGNED.get(x.dtype or T.FLOAT)
    if unsigned is None or x.dtype is None:
        return b.op("BitShift", x, n, direction="RIGHT" if right else "LEFT")
    count = b.op("Cast", n, to=int(unsigned))

    def shifted(v: ir.Value) -> ir.Value:
        assert x.dtype is not None and unsigned is not None
        bits = b.op("Cast", v, to=int(unsigned))
        return b.op("Cast", b.op("BitShift", bits, count, direction="RIGHT" if right else "LEFT"), to=int(x.dtype))

    if not right:
        return shifted(x)
    return b.op("Where", b.op("Less", x, b.like(x, 0)), b.op("BitwiseNot", shifted(b.op("BitwiseNot", x))), shifted(x))


@lowers("BitShift")
def lower_shift(node: Node, low: Lowering) -> None:
    kind = {"LEFT": "BitwiseLeftShift", "RIGHT": "BitwiseRightShift"}[node.attrs["direction"]]
    if low.version < 15:
        raise MappingError(f"{kind} needs opset15", "X206")
    Emit(node, low).out(kind, *node.inputs, auto_broadcast="numpy")
