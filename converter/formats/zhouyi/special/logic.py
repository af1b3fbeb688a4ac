"""Truth values, which the format keeps as uint8 0 and 1: comparisons, logic, choice, casts."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.ops.arithmetic import same_shapes
from converter.formats.zhouyi.special.register import choose, constant_value, lifts, lowers, need, operand, static, truth_of
from converter.formats.zhouyi.types import NARROW, dtype_name, ir_dtype
from converter.formats.zhouyi.values import DType
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.graph.sizes import demand_small
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

COMPARISONS = {"EQUAL": "Equal", "GREATER": "Greater", "GREATER_EQUAL": "GreaterOrEqual", "LESS": "Less", "LESS_EQUAL": "LessOrEqual"}
LOGIC = {"AND": "And", "OR": "Or", "XOR": "Xor"}
METHODS = {op: method for method, op in (COMPARISONS | LOGIC).items()}


@lifts("Logical")
def lift_logical(layer: Layer, b: Builder) -> ir.Value:
    method = choose(layer, "method", {m: m for m in (*COMPARISONS, *LOGIC, "NOT", "NOT_EQUAL")})
    x = operand(layer)
    if method == "NOT":
        return b.op("Not", truth_of(b, x))
    y = operand(layer, 1)
    if method in LOGIC:
        return b.op(LOGIC[method], truth_of(b, x), truth_of(b, y))
    if method == "NOT_EQUAL":
        return b.op("Not", b.op("Equal", x, y))
    return b.op(COMPARISONS[method], x, y)


@lowers(*METHODS)
def lower_logical(node: Node, low: Lowering) -> None:
    if not same_shapes(node):
        raise MappingError("operands of unequal shapes have no counterpart")
    low.add("Logical", node.inputs, node.outputs, {"method": METHODS[node.op]})


@lowers("Not")
def lower_not(node: Node, low: Lowering) -> None:
    low.add("Logical", node.inputs, node.outputs, {"method": "NOT"})


@lifts("Where")
def lift_where(layer: Layer, b: Builder) -> ir.Value:
    return b.op("Where", truth_of(b, operand(layer)), operand(layer, 1), operand(layer, 2))


@lowers("Where")
def lower_where(node: Node, low: Lowering) -> None:
    if not same_shapes(node):
        raise MappingError("operands of unequal shapes have no counterpart")
    low.add("Where", node.inputs, node.outputs)


@lifts("Cast")
def lift_cast(layer: Layer, b: Builder) -> ir.Value:
    """SATURATION (the default) clamps to the range of the type, TRUNCATION keeps the low bits; floats lose their fraction."""
    target = need(layer, "to_dtype")
    if not isinstance(target, DType):
        raise MappingError(f"to_dtype={target!r} is not a data type", "R110")
    dtype, x = ir_dtype(target), operand(layer)
    saturate = choose(layer, "clip_mode", {"SATURATION": True, "TRUNCATION": False}, "SATURATION")
    if x.dtype is None or not dtype.is_integer() or x.dtype == ir.DataType.BOOL:
        return b.op("Cast", x, to=int(dtype))
    if saturate:
        x = _clamp(b, x, dtype)
    elif x.dtype is not None and x.dtype.is_floating_point() and dtype.itemsize < 4:
        x = b.op("Cast", x, to=int(ir.DataType.INT32))
    return b.op("Cast", x, to=int(dtype))


def _clamp(b: Builder, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    assert x.dtype is not None
    low, high = np.iinfo(dtype.numpy()).min, np.iinfo(dtype.numpy()).max
    own = x.dtype.numpy()
    if x.dtype.is_integer():
        inner = np.iinfo(own)
        if inner.min >= low and inner.max <= high:
            return x
        return b.op("Clip", x, b.const(np.array(max(low, inner.min), own)), b.const(np.array(min(high, inner.max), own)))
    # the nearest float below 2**31 that casts without overflow
    top = np.nextafter(np.float32(high), np.float32(0)) if high > 1 << 24 else np.float32(high)
    return b.op("Clip", x, b.const(np.array(low, own)), b.const(np.array(top, own)))


@lowers("Cast")
def lower_cast(node: Node, low: Lowering) -> None:
    """A Cast between types that the format keeps as one is nothing; a Cast to truth is a comparison with 0."""
    x, y = operand(node), node.outputs[0]
    if x.dtype is None or y.dtype is None:
        raise MappingError("the types of a Cast must be known")
    if y.dtype == ir.DataType.BOOL and x.dtype != ir.DataType.BOOL:
        demand_small(*static(x))
        zeros = constant_value(low, np.zeros(static(x), x.dtype.numpy()), "zeros")
        low.add("Logical", [x, zeros], [y], {"method": "NOT_EQUAL"})
        return
    if y.dtype.itemsize < 2 and y.dtype.is_floating_point() and not node.attrs.get("saturate", 1):
        raise MappingError("saturate=0 cannot be expressed")
    source, target = NARROW.get(x.dtype, x.dtype), NARROW.get(y.dtype, y.dtype)
    if source == target:
        low.add("=", [x], [y])
        return
    low.add("Cast", [x], [y], {"to_dtype": dtype_name(target), "ignore_scale_zp": True, "clip_mode": "TRUNCATION"})


@lowers("Identity")
def lower_identity(node: Node, low: Lowering) -> None:
    low.add("=", [operand(node)], node.outputs)


@lowers("Dropout")
def lower_dropout(node: Node, low: Lowering) -> None:
    if len(node.outputs) > 1:
        raise MappingError("the mask of a Dropout has no counterpart")
    if node.input(2) is not None and constant(node.input(2)) != np.array(False):
        raise MappingError("a Dropout in training mode drops elements by chance")
    low.add("=", [operand(node)], node.outputs)
