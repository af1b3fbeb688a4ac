"""Einsum as Transpose, Reshape, MatMul and ReduceSum.

A Reshape infers one unknown size itself; several are computed from the shapes of the operands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder, Value, attrs_of
from converter.graph.value import with_operators
from converter.passes.decompositions.table import Table

Labelled = tuple[Value, str]
Size = int | str  # the label if the number is unknown


def einsum(node: ir.Node, b: Builder) -> Value | None:
    """Join the operands from the left.

    A label that occurs twice in one operand takes the diagonal; an ellipsis covers the remaining
    axes of its operand.
    """
    parsed = _parse(node)
    if parsed is None:
        return None
    operands, output, sizes = parsed
    operands = [_thin(b, _diagonal(b, operand), sizes) for operand in operands]
    result = operands[0]
    for i, other in enumerate(operands[1:], 1):
        needed = set(output) | {c for _, labels in operands[i + 1 :] for c in labels}
        result = _join(b, result, other, needed, sizes)
    return _ordered(b, _reduced(b, result, set(output)), output)


def _parse(node: ir.Node) -> tuple[list[Labelled], str, dict[str, Size]] | None:
    equation = str(attrs_of(node)["equation"]).replace(" ", "")
    left, arrow, output = equation.partition("->")
    values = [with_operators(v) for v in node.inputs if v is not None]
    shapes = [_sizes(v) for v in values]
    terms = left.split(",")
    if len(terms) != len(values) or any(s is None for s in shapes):
        return None
    spare = [c for c in map(chr, range(0x3B1, 0x3C9)) if c not in equation]
    ranks = [
        len(s) - len(t.replace("...", ""))
        for t, s in zip(terms, shapes, strict=True)
        if s is not None and "..." in t
    ]
    if min(ranks, default=0) < 0 or max(ranks, default=0) > len(spare):
        return None
    dots = "".join(spare[: max(ranks, default=0)])
    own = iter(ranks)
    terms = [t.replace("...", dots[len(dots) - next(own) :]) if "..." in t else t for t in terms]
    if not arrow:
        labels = "".join(terms)
        output = dots + "".join(sorted(c for c in set(labels) - set(dots) if labels.count(c) == 1))
    sizes: dict[str, Size] = {}
    for term, shape in zip(terms, shapes, strict=True):
        if (
            shape is None
            or len(term) != len(shape)
            or any(not _agree(sizes, c, n, c in dots) for c, n in zip(term, shape, strict=True))
        ):
            return None
    return list(zip(values, terms, strict=True)), output.replace("...", dots), sizes


def _sizes(value: Value) -> list[Size] | None:
    return (
        None
        if value.shape is None
        else [
            d if isinstance(d, int) else d.value or f"{i} of {value.name}"
            for i, d in enumerate(value.shape)
        ]
    )


def _agree(sizes: dict[str, Size], label: str, n: Size, broadcasts: bool) -> bool:
    """Record the size of a label and return whether it agrees; axes of an ellipsis may be 1 in one
    operand.
    """
    if broadcasts and (isinstance(n, str) or isinstance(sizes.get(label, n), str)):
        return False
    if broadcasts and 1 in (n, sizes.get(label, n)):
        n = sizes[label] = max(n, sizes.get(label, n))
    return sizes.setdefault(label, n) == n


def _diagonal(b: Builder, operand: Labelled) -> Labelled:
    """Take the elements with equal indices along axes with the same label."""
    value, labels = operand
    for c in dict.fromkeys(labels):
        while labels.count(c) > 1:
            first, second = labels.index(c), labels.index(c, labels.index(c) + 1)
            n, rank = (_sizes(value) or ())[first], len(labels)
            if isinstance(n, str):
                raise MappingError("the diagonal of dynamic axes is not supported")
            eye = np.eye(n, dtype=bool).reshape(
                [n if i in (first, second) else 1 for i in range(rank)]
            )
            value = b.ReduceSum(b.Where(eye, value, 0), [second], keepdims=0)
            labels = labels[:second] + labels[second + 1 :]
    return value, labels


def _thin(b: Builder, operand: Labelled, sizes: dict[str, Size]) -> Labelled:
    """Remove axes of an ellipsis that are 1 here and longer elsewhere, because they broadcast."""
    value, labels = operand
    axes = [
        i
        for i, (c, n) in enumerate(zip(labels, _sizes(value) or (), strict=True))
        if n == 1 != sizes[c]
    ]
    kept = "".join(c for i, c in enumerate(labels) if i not in axes)
    return (b.Squeeze(value, axes) if axes else value), kept


def _reduced(b: Builder, operand: Labelled, kept: set[str]) -> Labelled:
    value, labels = operand
    axes = [i for i, c in enumerate(labels) if c not in kept]
    return (b.ReduceSum(value, axes, keepdims=0) if axes else value), "".join(
        c for c in labels if c in kept
    )


def _ordered(b: Builder, operand: Labelled, labels: str) -> Value:
    value, own = operand
    return value if own == labels else b.Transpose(value, perm=[own.index(c) for c in labels])


def _join(
    b: Builder, first: Labelled, second: Labelled, needed: set[str], sizes: dict[str, Size]
) -> Labelled:
    """Combine batch labels, free labels of either operand, and summed labels in one batched matrix
    product.
    """
    first = _reduced(b, first, needed | set(second[1]))
    second = _reduced(b, second, needed | set(first[1]))
    common = [c for c in first[1] if c in second[1]]
    batch, inner = (
        "".join(c for c in common if c in needed),
        "".join(c for c in common if c not in needed),
    )
    rows, columns = (
        "".join(c for c in first[1] if c not in common),
        "".join(c for c in second[1] if c not in common),
    )
    left, right, labels = (
        _ordered(b, first, batch + rows + inner),
        _ordered(b, second, batch + inner + columns),
        batch + rows + columns,
    )
    if len(rows) == len(inner) == len(columns) == 1 and any(
        isinstance(sizes[c], str) for c in batch + rows + inner + columns
    ):
        return left @ right, labels  # already in matrix form

    left_labels, right_labels = (batch, rows, inner), (batch, inner, columns)
    places = {
        c: (v, i)
        for v, order in ((left, left_labels), (right, right_labels))
        for i, c in enumerate("".join(order))
    }
    left = _in_shape(b, left, left_labels, sizes, places)
    right = _in_shape(b, right, right_labels, sizes, places)
    return _in_shape(b, left @ right, tuple(labels), sizes, places), labels


def _in_shape(
    b: Builder,
    value: Value,
    groups: Sequence[str],
    sizes: Mapping[str, Size],
    places: Mapping[str, tuple[Value, int]],
) -> Value:
    """Reshape to one axis for each group of labels. Several unknown sizes are computed from the
    values and axes in `places`.
    """
    known = [math.prod(n for c in g if isinstance(n := sizes[c], int)) for g in groups]
    unknown = [[places[c] for c in g if isinstance(sizes[c], str)] for g in groups]
    if sum(map(bool, unknown)) < 2:
        shape = [-1 if axes else n for axes, n in zip(unknown, known, strict=True)]
        return b.Reshape(value, shape)
    parts = []
    for axes, number in zip(unknown, known, strict=True):
        part = b.const([number])
        for v, i in axes:
            part = part * b.Shape(v)[i : i + 1]
        parts.append(part)
    return b.Reshape(value, b.Concat(*parts, axis=0))


TABLE: Table = {
    ("", "Einsum"): einsum,
}
