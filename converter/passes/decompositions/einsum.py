"""Einsum of static shapes as Transpose, Reshape, MatMul and ReduceSum."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.infer import shape_of
from converter.passes.decompose import decomposes

Labelled = tuple[ir.Value, str]


@decomposes("Einsum")
def einsum(node: ir.Node, b: Builder) -> ir.Value | None:
    """Operands are joined from the left; repeated labels within one operand and ellipses of unequal rank do not apply."""
    parsed = _parse(node)
    if parsed is None:
        return None
    operands, output, sizes = parsed
    result = operands[0]
    for i, other in enumerate(operands[1:], 1):
        needed = set(output) | {c for _, labels in operands[i + 1 :] for c in labels}
        result = _join(b, result, other, needed, sizes)
    return _ordered(b, _reduced(b, result, set(output)), output)


def _parse(node: ir.Node) -> tuple[list[Labelled], str, dict[str, int]] | None:
    equation = str(attrs_of(node)["equation"]).replace(" ", "")
    left, arrow, output = equation.partition("->")
    values = [v for v in node.inputs if v is not None]
    shapes = [shape_of(v) for v in values]
    terms = left.split(",")
    if len(terms) != len(values) or any(s is None for s in shapes):
        return None
    spare = [c for c in map(chr, range(0x3B1, 0x3C9)) if c not in equation]
    ranks = {len(s) - len(t.replace("...", "")) for t, s in zip(terms, shapes, strict=True) if s is not None and "..." in t}
    if len(ranks) > 1 or min(ranks, default=0) < 0 or max(ranks, default=0) > len(spare):
        return None
    dots = "".join(spare[: max(ranks, default=0)])
    terms = [t.replace("...", dots) for t in terms]
    if not arrow:
        labels = "".join(terms)
        output = dots + "".join(sorted(c for c in set(labels) - set(dots) if labels.count(c) == 1))
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        if (
            shape is None
            or len(set(term)) != len(term)
            or len(term) != len(shape)
            or any(sizes.setdefault(c, n) != n for c, n in zip(term, shape, strict=True))
        ):
            return None
    return list(zip(values, terms, strict=True)), output.replace("...", dots), sizes


def _reduced(b: Builder, operand: Labelled, kept: set[str]) -> Labelled:
    value, labels = operand
    axes = [i for i, c in enumerate(labels) if c not in kept]
    return (b.op("ReduceSum", value, axes, keepdims=0) if axes else value), "".join(c for c in labels if c in kept)


def _ordered(b: Builder, operand: Labelled, labels: str) -> ir.Value:
    value, own = operand
    return value if own == labels else b.op("Transpose", value, perm=[own.index(c) for c in labels])


def _join(b: Builder, first: Labelled, second: Labelled, needed: set[str], sizes: dict[str, int]) -> Labelled:
    """Batch labels, free labels of either, and the labels summed over, as one batched product of matrices."""
    first = _reduced(b, first, needed | set(second[1]))
    second = _reduced(b, second, needed | set(first[1]))
    common = [c for c in first[1] if c in second[1]]
    batch, inner = "".join(c for c in common if c in needed), "".join(c for c in common if c not in needed)
    rows, columns = "".join(c for c in first[1] if c not in common), "".join(c for c in second[1] if c not in common)

    def extent(labels: str) -> int:
        return int(np.prod([sizes[c] for c in labels]))

    left = b.op("Reshape", _ordered(b, first, batch + rows + inner), [extent(batch), extent(rows), extent(inner)])
    right = b.op("Reshape", _ordered(b, second, batch + inner + columns), [extent(batch), extent(inner), extent(columns)])
    labels = batch + rows + columns
    return b.op("Reshape", b.op("MatMul", left, right), [sizes[c] for c in labels]), labels
