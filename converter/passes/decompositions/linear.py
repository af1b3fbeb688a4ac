"""Products of tensors of any rank as matrix products, and computed biases of convolutions."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import constant, rank_of, shape_of
from converter.graph.value import optional
from converter.passes.decompositions.activations import x_of
from converter.passes.decompositions.table import Table

MOST_ROWS = 4  # rows of a matrix whose determinant is expanded into 24 products


def matmul(node: ir.Node, b: Builder) -> Value | None:
    """Turn vectors into matrices; flatten the first operand to rows if the second is a matrix;
    else expand the batch axes of both.
    """
    x, w, ranks = x_of(node), x_of(node, 1), (rank_of(x_of(node)), rank_of(x_of(node, 1)))
    out = shape_of(node.outputs[0])
    if None in ranks or ranks == (2, 2):
        return None
    if 1 in ranks:
        left = x[None] if ranks[0] == 1 else x
        right = w[:, None] if ranks[1] == 1 else w
        if out is not None:
            return b.Reshape(left @ right, list(out))
        return b.Squeeze(left @ right, [axis - 2 for axis in (0, 1) if ranks[axis] == 1])
    if out is None:
        return None
    if ranks[1] == 2:
        rows = shape_of(x)
        return (
            None
            if rows is None
            else b.Reshape(b.Reshape(x, [int(np.prod(rows[:-1])), rows[-1]]) @ w, list(out))
        )
    matrix = _one_matrix(w)
    if matrix is not None and rank_of(x) == len(out):
        return x @ b.const(matrix)
    return _batches(b, x, w, out)


def _one_matrix(w: Value) -> np.ndarray | None:
    """Return constant weights of which all matrices of a batch are one, as this matrix."""
    array, shape = constant(w), shape_of(w)
    if array is None or shape is None or math.prod(shape[:-2]) != 1:
        return None
    return array.reshape(shape[-2:])


def _batches(b: Builder, x: Value, w: Value, out: tuple[int, ...]) -> Value | None:
    """Expand batch axes that differ, because not every target broadcasts them as ONNX does."""
    shapes = shape_of(x), shape_of(w)
    if shapes[0] is None or shapes[1] is None or shapes[0][:-2] == shapes[1][:-2]:
        return None
    operands = [
        b.Expand(v, [*out[:-2], *s[-2:]]) if s[:-2] != out[:-2] else v
        for v, s in ((x, shapes[0]), (w, shapes[1]))
    ]
    return b.MatMul(*operands)


def determinant(node: ir.Node, b: Builder) -> Value | None:
    """Compute small determinants by expansion along the first row."""
    x, shape = x_of(node), shape_of(x_of(node))
    if shape is None or not 1 <= shape[-1] <= MOST_ROWS:
        return None
    rows = [b.Squeeze(b.Slice(x, [i], [i + 1], [-2]), [-2]) for i in range(shape[-1])]
    cells = [
        [b.Squeeze(b.Slice(row, [j], [j + 1], [-1]), [-1]) for j in range(shape[-1])]
        for row in rows
    ]
    return _expanded(b, cells)


def _expanded(b: Builder, cells: list[list[Value]]) -> Value:
    total = None
    for j, cell in enumerate(cells[0]):
        rest = [[*row[:j], *row[j + 1 :]] for row in cells[1:]]
        part = cell * _expanded(b, rest) if rest else cell
        total = part if total is None else b.operator("Sub" if j % 2 else "Add")(total, part)
    assert total is not None
    return total


def bias_after(node: ir.Node, b: Builder) -> Value | None:
    """Add the bias after a convolution."""
    bias, rank = optional(node, 2), rank_of(x_of(node))
    if bias is None or rank is None:
        return None
    y: Value = b.operator(node.op_type)(*node.inputs[:2], **attrs_of(node))
    return y + b.Reshape(bias, [-1, *[1] * (rank - 2)])


def bias_apart(node: ir.Node, b: Builder) -> Value | None:
    """Add the bias after a convolution if it, or the weights, are computed."""
    stored = constant(optional(node, 2)) is not None and constant(node.inputs[1]) is not None
    return None if stored else bias_after(node, b)


TABLE: Table = {
    ("", "Conv"): bias_apart,
    ("", "ConvTranspose"): bias_apart,
    ("", "MatMul"): matmul,
    ("", "Det"): determinant,
}
