"""Quantisation in arithmetic, and quantised operators around operators on floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.infer import rank_of, shape_of
from converter.passes.decompose import decomposes
from converter.passes.decompositions.activations import x_of

_T = ir.DataType
_RANGES = {_T.INT4: (-8, 7), _T.UINT4: (0, 15), _T.INT8: (-128, 127), _T.UINT8: (0, 255), _T.INT16: (-32768, 32767), _T.UINT16: (0, 65535)}


def _along(b: Builder, node: ir.Node, value: ir.Value, x: ir.Value) -> ir.Value | None:
    """Scale or zero point in a shape that broadcasts against x: one number, one for each place of an axis, or blocks."""
    rank, own, attrs = rank_of(x), shape_of(value), attrs_of(node)
    if own is None or rank is None:
        return None
    if own in ((), (1,)):
        return value
    axis, block = int(attrs.get("axis", 1)) % max(rank, 1), int(attrs.get("block_size", 0))
    if not block:
        return b.op("Reshape", value, [-1 if i == axis else 1 for i in range(rank)])
    shape = shape_of(x)
    if shape is None:
        return None
    apart = b.op("Unsqueeze", value, [axis + 1])
    wide = b.op("Expand", apart, [*own[: axis + 1], block, *own[axis + 1 :]])
    joined = b.op("Reshape", wide, [*own[:axis], own[axis] * block, *own[axis + 1 :]])
    return joined if own[axis] * block == shape[axis] else b.op("Slice", joined, [0], [shape[axis]], [axis])


@decomposes("DequantizeLinear")
def dequantize_linear(node: ir.Node, b: Builder) -> ir.Value | None:
    """(x - zero point) * scale"""
    x, scale = x_of(node), _along(b, node, x_of(node, 1), x_of(node))
    if scale is None or scale.dtype is None:
        return None
    real = b.op("Cast", x, to=int(scale.dtype))
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        zero = _along(b, node, node.inputs[2], x)
        if zero is None:
            return None
        real = b.op("Sub", real, b.op("Cast", zero, to=int(scale.dtype)))
    return b.op("Mul", real, scale)


@decomposes("QuantizeLinear")
def quantize_linear(node: ir.Node, b: Builder) -> ir.Value | None:
    """clip(round(x / scale) + zero point)"""
    x, scale, to = x_of(node), _along(b, node, x_of(node, 1), x_of(node)), node.outputs[0].dtype
    if scale is None or to not in _RANGES or x.dtype != scale.dtype or scale.dtype != _T.FLOAT:
        return None
    whole = b.op("Round", b.op("Div", x, scale))
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        zero = _along(b, node, node.inputs[2], x)
        if zero is None:
            return None
        whole = b.op("Add", whole, b.op("Cast", zero, to=_T.FLOAT))
    low, high = _RANGES[to]
    return b.op("Cast", b.op("Clip", whole, b.like(x, low), b.like(x, high)), to=int(to))


def _weight(b: Builder, node: ir.Node, index: int, axis: int) -> ir.Value:
    scale, zero = x_of(node, index + 1), node.inputs[index + 2]
    return b.op("DequantizeLinear", x_of(node, index), scale, zero, axis=axis if shape_of(scale) not in ((), (1,)) else None)


@decomposes("QLinearMatMul")
def qlinear_matmul(node: ir.Node, b: Builder) -> ir.Value | None:
    rank = rank_of(x_of(node, 3))
    if rank is None or any((rank_of(x_of(node, i)) or 0) > 1 for i in (1, 4)) or shape_of(x_of(node, 1)) not in ((), (1,)):
        return None
    y = b.op("MatMul", _weight(b, node, 0, 0), _weight(b, node, 3, rank - 1))
    return b.op("QuantizeLinear", y, node.inputs[6], node.inputs[7])


@decomposes("QLinearConv")
def qlinear_conv(node: ir.Node, b: Builder) -> ir.Value:
    """The bias is in units of the input's scale times the weight's."""
    bias: Any = None
    if len(node.inputs) > 8 and node.inputs[8] is not None:
        unit = b.op("Mul", x_of(node, 1), x_of(node, 4))
        bias = b.op("Mul", b.op("Cast", node.inputs[8], to=_T.FLOAT), unit)
    y = b.op("Conv", _weight(b, node, 0, 1), _weight(b, node, 3, 0), bias, **attrs_of(node))
    return b.op("QuantizeLinear", y, node.inputs[6], node.inputs[7])


def _shifted(b: Builder, node: ir.Node, index: int, shape: Sequence[int] | None) -> ir.Value:
    """An integer operand without its zero point, as floats; sums stay exact up to 2^24."""
    real = b.op("Cast", x_of(node, index), to=_T.FLOAT)
    zero = node.inputs[index + 2] if len(node.inputs) > index + 2 else None
    if zero is None:
        return real
    point = b.op("Cast", zero, to=_T.FLOAT)
    return b.op("Sub", real, b.op("Reshape", point, list(shape)) if shape is not None and shape_of(zero) not in ((), (1,)) else point)


@decomposes("MatMulInteger")
def matmul_integer(node: ir.Node, b: Builder) -> ir.Value | None:
    inner = shape_of(x_of(node))
    if inner is None or inner[-1] * 255 * 255 >= 1 << 24 or (rank_of(x_of(node, 1)) or 0) < 2:
        return None
    y = b.op("MatMul", _shifted(b, node, 0, [-1, 1]), _shifted(b, node, 1, None))
    return b.op("Cast", y, to=_T.INT32)


@decomposes("ConvInteger")
def conv_integer(node: ir.Node, b: Builder) -> ir.Value | None:
    weight = shape_of(x_of(node, 1))
    if weight is None or int(np.prod(weight[1:])) * 255 * 255 >= 1 << 24:
        return None
    per_filter = [-1, *[1] * (len(weight) - 1)]
    return b.op("Cast", b.op("Conv", _shifted(b, node, 0, None), _shifted(b, node, 1, per_filter), **attrs_of(node)), to=_T.INT32)
