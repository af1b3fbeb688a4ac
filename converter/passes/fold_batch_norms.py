"""Fold constant factors for each channel into the weights of the layer before them.

before:  y = BatchNormalization(Conv(x, w, b), scale, shift, mean, variance)
after:   y = Conv(x, w * f, b * f + shift - mean * f) with f = scale / sqrt(variance + epsilon)
before:  y = Mul(Conv(x, w, b), f[1,C,1,1])
after:   y = Conv(x, w * f, b * f)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import attributes, attrs_of, builder_before
from converter.graph.extensions import replace
from converter.graph.infer import Array, constant, shape_of
from converter.graph.names import Names
from converter.graph.value import optional, producer_of
from converter.graph.walk import all_graphs
from converter.passes.dead_code import remove_dead_code
from converter.passes.fuse_constants import along

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm")


def fold_batch_norms(model: ir.Model) -> None:
    """Fold in place; results may differ by rounding."""
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            if not node.domain and node.op_type in ("BatchNormalization", "Mul"):
                _fold(node, names)
    remove_dead_code(model)


def _fold(node: ir.Node, names: Names) -> None:
    for x, other in (node.inputs[:2], node.inputs[1::-1]):
        before, shape = producer_of(x), shape_of(node.outputs[0])
        if x is None or before is None or before.domain or before.op_type not in _WEIGHTED:
            continue
        if len(x.uses()) != 1 or x.is_graph_output() or shape is None or shape != shape_of(x):
            continue
        found = affine(node) if node.op_type == "BatchNormalization" else _factor(other, shape)
        weights, bias = constant(before.inputs[1]), constant(optional(before, 2))
        if found is None or weights is None or (bias is None) != (optional(before, 2) is None):
            continue
        attrs = attributes(before)
        if attrs.get("group", 1) != 1 and before.op_type == "ConvTranspose":
            continue
        if before.op_type == "Gemm" and (attrs["beta"] != 1 or attrs["alpha"] != 1):
            continue
        factor, shift = found
        scaled = weights * factor.reshape(_line(before, weights.ndim)).astype(weights.dtype)
        shift = shift if bias is None else bias * factor + shift
        b = builder_before(node, names)
        operands = scaled, np.broadcast_to(shift, shape[1:2]).astype(weights.dtype)
        made = b.op(before.op_type, before.inputs[0], *operands, **attrs_of(before))
        replace(node, [made], b)
        return


def _line(node: ir.Node, rank: int) -> list[int]:
    """Return the shape in which a number for each channel multiplies the weights."""
    axis = channel_axis(node)
    return [-1 if i == axis else 1 for i in range(rank)]


def channel_axis(node: ir.Node) -> int:
    """Return the axis of constant weights that counts the channels of the result."""
    if node.op_type == "Gemm":
        return 0 if attributes(node)["transB"] else 1
    if node.op_type == "MatMul":
        return len(shape_of(node.inputs[1]) or ()) - 1
    return int(node.op_type == "ConvTranspose")


def affine(node: ir.Node) -> tuple[Array, Array] | None:
    """Return factor and summand of each channel of a BatchNormalization."""
    given = [constant(v) for v in node.inputs[1:5]]
    scale, shift, mean, variance = (None if v is None else v.astype(np.float64) for v in given)
    if scale is None or shift is None or mean is None or variance is None:
        return None
    factor = scale / np.sqrt(variance + attributes(node)["epsilon"])
    return factor, shift - mean * factor


def _factor(value: ir.Value | None, shape: tuple[int, ...]) -> tuple[Array, Array] | None:
    array = constant(value)
    found = None if array is None else along(array, shape, 1)
    return None if found is None else (found, np.zeros(1))
