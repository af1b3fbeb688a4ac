"""Rewrites of operators on images for legacy IR."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.openvino.legacy.legalise import rewrites
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import known, shape_of


@rewrites("Conv", "ConvTranspose")
def bias_apart(node: ir.Node, b: Builder) -> ir.Value | None:
    """A bias that is not constant is added behind."""
    if len(node.inputs) < 3 or node.inputs[2] is None or known(node.inputs[2]) is not None or node.inputs[2].const_value is not None:
        return None
    shape = shape_of(node.outputs[0])
    if shape is None:
        return None
    y = b.op(node.op_type, *node.inputs[:2], **attrs_of(node))
    return b.op("Add", y, b.op("Reshape", node.inputs[2], [1, shape[1], *[1] * (len(shape) - 2)]))


@rewrites("Round")
def round_half_even(node: ir.Node, b: Builder) -> ir.Value:
    """floor(x + 0.5), less one where x lies in the middle below an odd number."""
    x = node.inputs[0]
    assert x is not None
    up = b.op("Floor", b.op("Add", x, b.like(x, 0.5)))
    middle = b.op("Equal", b.op("Sub", up, x), b.like(x, 0.5))
    odd = b.op("Sub", up, b.op("Mul", b.op("Floor", b.op("Mul", up, b.like(x, 0.5))), b.like(x, 2)))
    return b.op("Sub", up, b.op("Mul", b.op("Cast", middle, to=int(x.dtype or ir.DataType.FLOAT)), odd))
