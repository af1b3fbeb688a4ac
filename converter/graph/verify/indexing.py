"""Constraints of operators on indices, bounds and equations: see node.py, which calls these."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.graph.known import constant
from converter.graph.value import optional
from converter.graph.verify.shapes_of import (
    Dims,
    Law,
    attribute,
    differ,
    dims_of,
    in_body,
    sizes_of,
    unlike,
)

MOST_INDICES = 1 << 20  # constant indices that are inspected
_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")  # one term of an Einsum equation


def axis_exists(node: ir.Node) -> str | None:
    """Return the reason why `axis` (default -1) is no axis of the first input, or None."""
    x = dims_of(node, 0)
    return _no_axis(x, int(attribute(node, "axis", -1))) if x else None


def _no_axis(x: Dims, axis: int) -> str | None:
    return None if -len(x) <= axis < len(x) else f"axis {axis} is outside the shape {x}"


def _elements(node: ir.Node) -> str | None:
    x, index = dims_of(node, 0), dims_of(node, 1)
    if x is not None and index is not None and len(x) != len(index):
        return f"indices of {len(index)} axes do not fit data of {len(x)} axes"
    return _gathered(node)


def _inside(node: ir.Node, sizes: Sequence[int | None]) -> str | None:
    """Check that constant indices, whose last axis indexes `sizes`, are between -size and size - 1;
    a branch that is never taken may contain others.
    """
    found = None if in_body(node) else constant(node.inputs[1])
    if found is None or found.size > MOST_INDICES or found.dtype.kind not in "iu":
        return None
    index = found.reshape(-1, max(len(sizes), 1))
    for i, size in enumerate(sizes):
        wrong = (
            index[:, i][(index[:, i] < -size) | (index[:, i] >= size)]
            if size is not None
            else np.zeros(0)
        )
        if wrong.size:
            return f"index {wrong[0]} is outside an axis of {size} elements"
    return None


def nested(node: ir.Node) -> str | None:
    """Check GatherND and ScatterND: the last axis of the indices indexes the first axes of the data
    after the batch axes.
    """
    x, index, batch = dims_of(node, 0), dims_of(node, 1), int(attribute(node, "batch_dims", 0))
    if x is None or index is None:
        return None
    if not 0 <= batch < max(min(len(x), len(index)), 1):
        return f"batch_dims={batch} does not fit data {x} and indices {index}"
    depth = index[-1] if index else 0
    if depth is None:
        return None
    return (
        _inside(node, x[batch : batch + depth])
        if 0 < depth <= len(x) - batch
        else f"indices {index} of depth {depth} do not fit data {x}"
    )


def _gathered(node: ir.Node) -> str | None:
    x, axis = dims_of(node, 0), int(attribute(node, "axis", 0))
    return None if x is None else _no_axis(x, axis) or _inside(node, [x[axis]])


def _compress(node: ir.Node) -> str | None:
    """Check that the elements selected by a constant condition exist; elements after the end of a
    shorter condition are dropped.
    """
    x, axis = dims_of(node, 0), attribute(node, "axis", None)
    if axis is not None and x is not None and (reason := _no_axis(x, axis)):
        return reason
    sizes = sizes_of(node.inputs[0])
    found = None if in_body(node) else constant(node.inputs[1])
    if sizes is None or found is None or found.ndim != 1 or found.size > MOST_INDICES:
        return None
    positions, last = math.prod(sizes) if axis is None else sizes[axis], np.flatnonzero(found)[-1:]
    return (
        f"the condition selects element {last[0]} of {positions}"
        if last.size and last[0] >= positions
        else None
    )


def _one_hot(node: ir.Node) -> str | None:
    """Check that the new axis is valid in the result, and that there are two values."""
    x, values, axis = dims_of(node, 0), sizes_of(node.inputs[2]), int(attribute(node, "axis", -1))
    if x is not None and not -len(x) - 1 <= axis <= len(x):
        return f"a new axis {axis} does not fit the shape {x}"
    return (
        f"values must be off and on, got the shape {values}"
        if values is not None and values != [2]
        else None
    )


def _clip(node: ir.Node) -> str | None:
    sizes = (sizes_of(v) for v in node.inputs[1:])
    arrays = [s for s in sizes if s is not None and math.prod(s) != 1]
    if arrays:
        return f"a bound must be one number, got an array of the shape {arrays[0]}"
    bounds = [
        v.const_value.numpy()
        for v in node.inputs[1:]
        if v is not None and v.const_value is not None
    ]
    return (
        "a bound must be a number"
        if any(b.dtype.kind == "f" and np.isnan(b).any() for b in bounds)
        else None
    )


def _celu(node: ir.Node) -> str | None:
    return "alpha must not be 0" if attribute(node, "alpha", 1.0) == 0 else None


def _einsum(node: ir.Node) -> str | None:
    equation = str(attribute(node, "equation", "")).replace(" ", "")
    terms, _, output = equation.partition("->")
    wrong = [t for t in (*terms.split(","), output) if not _TERM.fullmatch(t)]
    if (
        wrong
        or not set(output) <= set(terms)
        or any(output.count(c) > 1 for c in output if c != ".")
    ):
        return f"{equation[:200]!r} is not a valid equation"
    return (
        None
        if terms.count(",") + 1 == len(node.inputs)
        else f"{equation[:200]!r} must have one term per operand"
    )


def _layers(node: ir.Node) -> str | None:
    """Check that scale and bias of a LayerNormalization broadcast to the normalized axes."""
    x = dims_of(node, 0)
    for i in (1, 2):
        given = dims_of(node, i)
        if (
            x is not None
            and given is not None
            and any(
                s not in (1, None) and differ(s, d)
                for s, d in zip(given[::-1], x[::-1], strict=False)
            )
        ):
            return f"input {i} has the shape {given}, which does not fit the shape {x}"
    return axis_exists(node)


def _suppression(node: ir.Node) -> str | None:
    """Check boxes [images, n, 4], scores [images, classes, n], and limits of one number each."""
    boxes, scores = dims_of(node, 0), dims_of(node, 1)
    if unlike(boxes, [None, None, 4]):
        return f"boxes cannot have the shape {boxes}"
    images, positions = (None, None) if boxes is None else boxes[:2]
    if unlike(scores, [images, None, positions]):
        return f"scores of the shape {scores} do not fit boxes of the shape {boxes}"
    sizes = (sizes_of(optional(node, i)) for i in (2, 3, 4))
    limits = [s for s in sizes if s is not None and math.prod(s) != 1]
    return f"a limit must be one number, got the shape {limits[0]}" if limits else None


CHECKS: dict[str, Law] = {
    "Gather": _gathered,
    "GatherElements": _elements,
    "ScatterElements": _elements,
    "GatherND": nested,
    "ScatterND": nested,
    "Compress": _compress,
    "OneHot": _one_hot,
    "Clip": _clip,
    "Celu": _celu,
    "Einsum": _einsum,
    "NonMaxSuppression": _suppression,
    "LayerNormalization": _layers,
    **dict.fromkeys(
        ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "ArgMax", "ArgMin"), axis_exists
    ),
}
