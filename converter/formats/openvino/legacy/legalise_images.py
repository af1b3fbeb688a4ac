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
