"""Comparisons, logic and bits."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.openvino.opset.special.base import Emit, attributes, cast, lifts, lowers, operand
from converter.graph.build import Builder
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, Node

T = ir.DataType


@lifts("NotEqual")
def lift_not_equal(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer, "auto_broadcast")
    return b.op("Not", b.op("Equal", operand(layer, 0), operand(layer, 1)))


ORDERS = {"Less": "Less", "LessEqual": "LessOrEqual", "Greater": "Greater", "GreaterEqual": "GreaterOrEqual"}


@lifts(*ORDERS)
def lift_order(layer: Layer, b: Builder) -> ir.Value:
    """Of booleans false comes before true, which ONNX does not compare."""
    attributes(layer, "auto_broadcast")
    operands = [cast(b, v, T.UINT8) if v.dtype == T.BOOL else v for v in (operand(layer, 0), operand(layer, 1))]
    return b.op(ORDERS[layer.kind], *operands)


@lowers(*ORDERS.values())
def lower_order(node: Node, low: Lowering) -> None:
    Emit(node, low).out(next(far for far, near in ORDERS.items() if near == node.op), *node.inputs, auto_broadcast="numpy")


@lifts("LogicalXor", "Xor")
def lift_xor(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer, "auto_broadcast")
    return b.op("Xor", operand(layer, 0), operand(layer, 1))


@lowers("Xor")
def lower_xor(node: Node, low: Lowering) -> None:
    Emit(node, low).out("LogicalXor", *node.inputs, auto_broadcast="numpy")


@lifts("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
def lift_bitwise(layer: Layer, b: Builder) -> ir.Value:
    """Of booleans these are the logical operations."""
    attributes(layer, "auto_broadcast")
    operands = [operand(layer, i) for i in range(len(layer.inputs))]
    return b.op(layer.kind.removeprefix("Bitwise") if operands[0].dtype == T.BOOL else layer.kind, *operands)


@lifts("IsFinite")
def lift_is_finite(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer, 0)
    return b.op("Not", b.op("Or", b.op("IsInf", x), b.op("IsNaN", x)))
