"""Quantisation between float networks, as the arithmetic that it is."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.rewrites.register import attributes, operand, optional, rewrites, static
from converter.graph.build import Builder
from converter.mapping.node import MappingError


def _along(b: Builder, value: ir.Value, x: ir.Value, axis: int) -> ir.Value:
    """A scale or zero point per slice of `axis`, shaped to broadcast over x."""
    if len(static(value)) != 1 or static(value) == [1]:
        return b.op("Reshape", value, [1] * len(static(x))) if static(value) else value
    rank = len(static(x))
    return b.op("Reshape", value, [-1 if i == (axis + rank) % rank else 1 for i in range(rank)])


@rewrites("DequantizeLinear")
def dequantize(node: ir.Node, b: Builder) -> ir.Value:
    """(x - zero point) * scale."""
    x, scale, zero, a = operand(node), operand(node, 1), optional(node, 2), attributes(node)
    _plain(a, scale)
    wide = int(scale.dtype or ir.DataType.FLOAT)
    y = b.op("Cast", x, to=wide)
    if zero is not None:
        y = b.op("Sub", y, b.op("Cast", _along(b, zero, x, a["axis"]), to=wide))
    return b.op("Mul", y, _along(b, scale, x, a["axis"]))


@rewrites("QuantizeLinear")
def quantize(node: ir.Node, b: Builder) -> ir.Value | None:
    """clamp(round(x / scale) + zero point)."""
    x, scale, zero, a = operand(node), operand(node, 1), optional(node, 2), attributes(node)
    _plain(a, scale)
    dtype = node.outputs[0].dtype
    if dtype is None or not dtype.is_integer() or dtype.bitwidth < 8 or x.dtype is None or not x.dtype.is_floating_point():
        return None
    y = b.op("Round", b.op("Div", x, _along(b, scale, x, a["axis"])))
    if zero is not None:
        y = b.op("Add", y, b.op("Cast", _along(b, zero, x, a["axis"]), to=int(x.dtype)))
    limits = np.iinfo(dtype.numpy())
    return b.op("Cast", b.op("Clip", y, b.like(y, limits.min), b.like(y, limits.max)), to=int(dtype))


def _plain(a: dict[str, object], scale: ir.Value) -> None:
    if a.get("block_size") or len(static(scale)) > 1:
        raise MappingError("scales of blocks have no counterpart")
