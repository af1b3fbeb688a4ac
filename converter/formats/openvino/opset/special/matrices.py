"""Matrix products and attention."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.special.base import Emit, attributes, given, lifts, lowers, operand, optional, rank, transpose
from converter.graph.build import Builder
from converter.graph.infer import rank_of
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType


@lifts("MatMul")
def lift_matmul(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, transpose_a=False, transpose_b=False)
    x, y = operand(layer, 0), operand(layer, 1)
    if a.transpose_a and rank_of(y) == 1 and rank(x) > 1:  # x' y = y x
        return b.op("MatMul", y, x)
    return b.op("MatMul", turned(b, x) if a.transpose_a else x, turned(b, y) if a.transpose_b else y)


def turned(b: Builder, x: ir.Value) -> ir.Value:
    """The last two axes swapped; a vector stays."""
    n = rank(x)
    return x if n < 2 else transpose(b, x, [*range(n - 2), n - 1, n - 2])


@lowers("MatMul")
def lower_matmul(node: Node, low: Lowering) -> None:
    Emit(node, low).out("MatMul", given(node, 0), given(node, 1), transpose_a=False, transpose_b=False)


@lifts("ScaledDotProductAttention")
def lift_attention(layer: Layer, b: Builder) -> ir.Value:
    """softmax(Q K' * scale + mask) V. A boolean mask is what may be seen; causal replaces the mask."""
    a = attributes(layer, causal=bool)
    if len(layer.inputs) > 5:
        raise MappingError("an attention sink")
    q, k, v, mask, scale = operand(layer, 0), operand(layer, 1), operand(layer, 2), optional(layer, 3), optional(layer, 4)
    if scale is None:
        size = b.op("Cast", b.op("Shape", q, start=-1), to=int(q.dtype or T.FLOAT))
        scale = b.op("Div", b.like(q, 1), b.op("Sqrt", size))
    scores = b.op("MatMul", b.op("Mul", q, scale), turned(b, k))
    if a.causal:
        sizes = [b.op("Shape", q, start=-2, end=-1), b.op("Shape", k, start=-2, end=-1)]
        ones = b.op("Expand", b.const(np.float32(1)), b.op("Concat", *sizes, axis=0))
        mask = b.op("Cast", b.op("Trilu", ones, upper=0), to=int(T.BOOL))
    if mask is not None and (rank_of(mask) != 0 or a.causal):
        if mask.dtype == T.BOOL:
            mask = b.op("Where", mask, b.like(q, 0), b.like(q, float("-inf")))
        scores = b.op("Add", scores, mask)
    return b.op("MatMul", b.op("Softmax", scores, axis=-1), v)


@lifts("Einsum")
def lift_einsum(layer: Layer, b: Builder) -> ir.Value:
    """Ellipses of different lengths broadcast: the shorter ones get axes of size 1 in front."""
    equation = str(layer.attrs.get("equation", "")).replace(" ", "")
    operands = [operand(layer, i) for i in range(len(layer.inputs))]
    terms = equation.partition("->")[0].split(",")
    hidden = [rank(x) - len(t.replace("...", "")) for t, x in zip(terms, operands, strict=False) if "..." in t]
    for i, term in enumerate(terms[: len(operands)]):
        if "..." in term and (short := max(hidden) - (rank(operands[i]) - len(term.replace("...", "")))):
            start = term.index("...")
            operands[i] = b.op("Unsqueeze", operands[i], list(range(start, start + short)))
    return b.op("Einsum", *operands, equation=equation)


@lifts("Inverse")
def lift_inverse(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, adjoint=False)
    return b.ext("MatrixInverse", operand(layer, 0), adjoint=int(a.adjoint))


@lowers("MatrixInverse", domain="netconv")
def lower_inverse(node: Node, low: Lowering) -> None:
    if low.version < 14:
        raise MappingError("Inverse needs opset14", "X206")
    Emit(node, low).out("Inverse", node.input(0), adjoint=bool(node.attrs.get("adjoint", 0)))
