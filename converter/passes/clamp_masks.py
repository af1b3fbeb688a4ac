"""Clamp the numbers of attention masks that are below the range of half precision.

before:  y = Softmax(s + m), where m holds 0 and -3.4e38
after:   y = Softmax(s + m), where m holds 0 and -30000

A masked score only has to be so low that its exponential is 0. Two masks may be added to each other
without leaving the range of half precision, whose lowest number is -65504.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, Where
from converter.graph import MOVES
from converter.graph.build import builder_before
from converter.graph.infer import constant
from converter.graph.names import Names
from converter.graph.value import optional, producer_if
from converter.graph.walk import all_graphs
from converter.passes.pipeline import Context, Pass

C = TypeVar("C", bound=Context)
LOWEST = -30000.0
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
_ALONE = MOVES | {"Trilu", "Cast"}  # operators of one mask


def clamp_masks(model: ir.Model) -> list[str]:
    """Clamp constants that only reach the input of a Softmax, in place; return their names."""
    names, clamped = Names(model), []
    for graph in all_graphs(model.graph):
        for value in list(graph.initializers.values()):
            array = constant(value) if value.dtype in _FLOATS and value.uses() else None
            if array is None or value.is_graph_output() or not _is_low(array):
                continue
            if not _only_masks(value, set()):
                continue
            b = builder_before(next(iter(graph)), names)
            low = np.isfinite(array) & (array < LOWEST)
            small = np.where(low, LOWEST, array).astype(array.dtype)
            value.replace_all_uses_with(b.const(small, str(value.name)))
            del graph.initializers[str(value.name)]
            clamped.append(str(value.name))
    return clamped


def _is_low(array: np.ndarray) -> bool:
    """Return whether a number is finite but below the range of half precision."""
    return bool((np.isfinite(array) & (array < np.finfo(np.float16).min)).any())


def _only_masks(value: ir.Value, visited: set[ir.Value]) -> bool:
    """Return whether every use of `value` ends in the input of a Softmax."""
    if value in visited:
        return True
    visited.add(value)
    if value.is_graph_output() or not value.uses():
        return False
    return all(_masks(use.node, use.idx, visited) for use in value.uses())


def _masks(node: ir.Node, index: int, visited: set[ir.Value]) -> bool:
    """Return whether operand `index` of a node is used as a mask, or passed on as one."""
    kind = node.op_type
    if node.domain:
        return kind == "ScaledDotProductAttention" and index == 3
    if kind == "Softmax":
        return True
    if kind == "Equal":
        return _compares_with_zero(node, index)
    passes_on = (
        kind in ("Add", "Sum", "Max")
        or (kind in _ALONE and index == 0)
        or (kind == "Sub" and index == 0)
        or (kind == "Where" and index > 0)
        or (kind == "Concat")
        or (kind == "Mul" and _is_flag(optional(node, 1 - index)))
    )
    return passes_on and all(_only_masks(out, visited) for out in node.outputs)


def _compares_with_zero(node: ir.Node, index: int) -> bool:
    """Return whether the other operand is 0, which clamping does not make equal."""
    other = optional(node, 1 - index)
    array = None if other is None else constant(other)
    return array is not None and not array.any()


def _is_flag(value: ir.Value | None) -> bool:
    """Return whether a value is 0 or 1: a Cast of integers or booleans, or 1 minus it."""
    if value is None:
        return False
    if (difference := producer_if(value, "Sub")) is not None:
        one = optional(difference, 0)
        array = None if one is None else constant(one)
        return array is not None and bool((array == 1).all()) and _is_flag(difference.inputs[1])
    if (cast := producer_if(value, "Cast")) is not None:
        source = cast.inputs[0]
        return source is not None and source.dtype not in (None, *_FLOATS)
    moved = value.producer()
    if moved is not None and moved.op_type in _ALONE and not moved.domain:
        return _is_flag(moved.inputs[0])
    array = constant(value)
    return array is not None and bool(np.isin(array, (0, 1)).all())


def _clamp(model: ir.Model, context: Context) -> None:
    for name in clamp_masks(model):
        message = (
            f"attention mask {name} contains numbers outside the range of half "
            f"precision; they are stored as {LOWEST:g}"
        )
        context.notes.append(Diagnostic("X207", message, "warning", where=Where(layer=name)))


def clamp_masks_to_halves(applies: Callable[[C], bool]) -> Pass[C]:
    """Return the pass of a pipeline; see `clamp_masks`."""
    effect = "Clamp attention masks to the range of half precision"
    return Pass("clamp-masks", effect, _clamp, applies)
