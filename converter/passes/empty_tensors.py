"""Replaces what has no elements, and what follows from that, by constants.

before:  y = Gather(x[3,0], [1,2])              after:  y = a constant [2,0]
before:  y = MatMul(a[2,0], b[0,3])             after:  y = zeros [2,3]
before:  y = ReduceMax(x[2,0], axes=[1])        after:  y = two minus infinities

Engines seldom expect axes of size 0: they divide by the size, read memory that nobody has written,
or give the largest finite number for infinity. Only shapes that are known are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from converter.graph.infer import RANDOM, constant, shape_of
from converter.graph.names import Names
from converter.graph.value import optional
from converter.graph.walk import all_graphs, is_needed, subgraphs
from converter.passes.dead_code import remove_dead_code
from converter.passes.fold import replace_by_constants

Array = np.ndarray
_PRODUCTS = {"MatMul", "Einsum", "ConvInteger", "MatMulInteger"}
_WINDOWS = {"Conv", "ConvTranspose"}
_NEUTRAL: dict[str, Callable[[np.dtype], object]] = {
    "ReduceMax": lambda dtype: -np.inf if dtype.kind == "f" else _least(dtype),
    "ReduceMin": lambda dtype: np.inf if dtype.kind == "f" else _most(dtype),
    "ReduceProd": lambda dtype: 1,
    "ReduceLogSum": lambda dtype: -np.inf,
    "ReduceLogSumExp": lambda dtype: -np.inf,
    **dict.fromkeys(("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare"), lambda dtype: 0),
}


def _least(dtype: np.dtype) -> object:
    return False if dtype.kind == "b" else np.iinfo(dtype).min


def _most(dtype: np.dtype) -> object:
    return True if dtype.kind == "b" else np.iinfo(dtype).max


def fold_empty_tensors(
    model: ir.Model, keep: Callable[[ir.Node], bool] = lambda node: False
) -> None:
    """Fold in place; nodes for which `keep` is true stay."""
    names: Names | None = None
    for graph in all_graphs(model.graph):
        for node in list(graph):
            if not any(map(_empty, (*node.inputs, *node.outputs))) or not _is_pure(node):
                continue
            if keep(node):
                continue
            arrays = _arrays(node)
            if arrays is not None:
                names = names or Names(model)
                replace_by_constants(node, arrays, names)
    if names is not None:
        remove_dead_code(model)


def _empty(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and 0 in value.shape


def _is_pure(node: ir.Node) -> bool:
    """Whether the operator always gives the same; a constant and an Identity of one stay."""
    if any(subgraphs(node)) or (not node.domain and node.op_type in RANDOM):
        return False
    first = optional(node, 0)
    return bool(node.inputs) and not (
        node.op_type == "Identity" and first is not None and first.const_value is not None
    )


def _arrays(node: ir.Node) -> list[Array] | None:
    """The values of all outputs that are used; None where they are not certain."""
    found = [_array(node, o) if is_needed(o) else np.zeros(0) for o in node.outputs]
    return None if any(a is None for a in found) else [a for a in found if a is not None]


def _array(node: ir.Node, out: ir.Value) -> Array | None:
    shape, dtype = shape_of(out), out.dtype
    if node.op_type == "Unique" and not node.domain and _empty(node.inputs[0]):
        shape = (0,) if out is not node.outputs[0] else _unique_shape(node)
    if shape is None or dtype is None or dtype == ir.DataType.STRING or dtype.bitwidth < 8:
        return None
    kind = dtype.numpy()
    if math.prod(shape) == 0:
        return np.zeros(shape, kind)
    value = _value(node, np.dtype(kind))
    if value is None:
        return None
    return np.asarray(np.broadcast_to(np.asarray(value, kind), shape).copy())


def _unique_shape(node: ir.Node) -> tuple[int, ...] | None:
    x = node.inputs[0]
    return (0,) if "axis" not in node.attributes else shape_of(x)


def _value(node: ir.Node, dtype: np.dtype) -> object | None:
    """What an operator gives of operands without elements, as far as it is one number for each
    channel or all; None where it depends on more.
    """
    if node.domain:
        return None
    if node.op_type in _PRODUCTS and any(map(_empty, node.inputs)):
        return 0
    if node.op_type in _WINDOWS and any(map(_empty, node.inputs[:2])):
        bias = optional(node, 2)
        if bias is None:
            return 0
        array, rank = constant(bias), len(node.outputs[0].shape or ())
        return None if array is None else array.reshape(-1, *[1] * (rank - 2))
    neutral = _NEUTRAL.get(node.op_type)
    return neutral(dtype) if neutral is not None and _empty(node.inputs[0]) else None
