"""Replace values without elements, and results that depend only on them, by constants.

before:  Y[2,0] = Gather(X[3,0], [1,2])         after:  Y = a constant of shape [2,0]
before:  Y[2,3] = MatMul(A[2,0], B[0,3])        after:  Y = zeros [2,3]
before:  Y[2] = ReduceMax(X[2,0], axes=[1])     after:  Y = [-inf, -inf]

Engines seldom handle axes of size 0: they divide by the size, read uninitialized memory, or return
the largest finite number instead of infinity. Only known shapes are considered.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of, builder_before
from converter.graph.extensions import replace
from converter.graph.infer import RANDOM, known, shape_of
from converter.graph.names import Names
from converter.graph.states import is_begun
from converter.graph.value import Value, operand, optional
from converter.graph.walk import all_graphs, is_needed, subgraphs
from converter.passes.dead_code import remove_dead_code
from converter.passes.pipeline import Context, Pass

LARGEST = 1 << 20  # elements above which a uniform constant is written as an Expand
_BITS = 8  # elements of fewer bits are weights


def fold_empty(model: ir.Model, storable: bool = True) -> None:
    """Fold in place.

    `storable`: whether the target has constants without elements; if not, only values with elements
    are folded.
    """
    names: Names | None = None
    for graph in all_graphs(model.graph):
        for node in list(graph):
            if not any(map(_is_empty, (*node.inputs, *node.outputs))):
                continue
            if not _is_pure(node) or not _is_certain(node, storable):
                continue
            names = names or Names(model)
            b = builder_before(node, names)
            with b:
                results = [_result(node, o, b) if is_needed(o) else None for o in node.outputs]
            replace(node, results, b)
    if names is not None:
        remove_dead_code(model)


def _is_empty(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and 0 in value.shape


def _is_pure(node: ir.Node) -> bool:
    """Return whether the operator is deterministic; constants and their Identities are left
    alone.
    """
    if any(subgraphs(node)) or is_begun(node) or (not node.domain and node.op_type in RANDOM):
        return False
    first = optional(node, 0)
    return bool(node.inputs) and not (
        node.op_type == "Identity" and first is not None and first.const_value is not None
    )


def _is_certain(node: ir.Node, storable: bool) -> bool:
    """Return whether the types, shapes and elements of all used results are known."""
    rule = None if node.domain else _OF_NOTHING.get(node.op_type)
    for out in filter(is_needed, node.outputs):
        dtype, shape = out.dtype, shape_of(out)
        if shape is None or dtype in (None, ir.DataType.STRING) or dtype.bitwidth < _BITS:
            return False
        if 0 in shape and not storable:
            return False
        if 0 not in shape and (rule is None or not rule.applies(node)):
            return False
    return any(map(is_needed, node.outputs))


def _result(node: ir.Node, out: ir.Value, b: Builder) -> Value:
    shape = shape_of(out) or ()
    if 0 in shape:
        return b.const(np.zeros(shape, _numpy(out)))
    return _OF_NOTHING[node.op_type].write(node, b)


def _numpy(value: ir.Value) -> np.dtype:
    return np.dtype((value.dtype or ir.DataType.FLOAT).numpy())


def _filled(node: ir.Node, b: Builder, number: object) -> Value:
    """Return the result of a node, filled with `number`."""
    out = node.outputs[0]
    shape, one = shape_of(out) or (), np.array(number, _numpy(out))
    if math.prod(shape) > LARGEST:
        return b.Expand(b.const(one), list(shape))
    return b.const(np.full(shape, one))


def _sum_of_nothing(node: ir.Node, b: Builder) -> Value:
    """Return zeros, plus the third operand of a Gemm or the bias of a convolution."""
    zeros, addend = _filled(node, b, 0), None
    if node.op_type in ("Gemm", "Conv", "ConvTranspose"):
        addend = optional(node, 2)
    if addend is None:
        return zeros
    if node.op_type == "Gemm":
        beta = float(attrs_of(node).get("beta", 1.0))
        return zeros + (addend if beta == 1 else addend * b.like(addend, beta))
    rank = len(shape_of(node.outputs[0]) or ())
    array = known(addend)
    bias = [-1, *[1] * (rank - 2)]
    return zeros + (b.Reshape(addend, bias) if array is None else array.reshape(bias))


def _is_sum_of_nothing(node: ir.Node) -> bool:
    operands = node.inputs[:2] if node.op_type in ("Gemm", "Conv", "ConvTranspose") else node.inputs
    return any(map(_is_empty, operands))


def _neutral(node: ir.Node) -> object | None:
    """Return the neutral element of a reduction over an empty axis; None if it has none."""
    dtype = operand(node).dtype
    if dtype is None:
        return None
    sign = {"ReduceMax": -1, "ReduceMin": 1, "ReduceLogSum": -1, "ReduceLogSumExp": -1}.get(
        node.op_type
    )
    if sign is None:
        return int(node.op_type == "ReduceProd")
    if dtype.is_floating_point():
        return sign * np.inf
    if "Log" in node.op_type:
        return None
    if dtype == ir.DataType.BOOL:
        return sign > 0
    return int(dtype.max if sign > 0 else dtype.min)


def _begun(node: ir.Node, b: Builder) -> Value:
    return _filled(node, b, _neutral(node))


def _is_reduction_of_nothing(node: ir.Node) -> bool:
    """Return whether a non-empty result of an empty operand has lost every axis of size 0."""
    return _is_empty(node.inputs[0]) and _neutral(node) is not None


def _padding(node: ir.Node, b: Builder) -> Value:
    """Return the padding value alone, the result of a constant Pad of an empty operand."""
    value = optional(node, 2)
    if value is None:
        return _filled(node, b, 0)
    return b.Expand(b.Reshape(value, []), list(shape_of(node.outputs[0]) or ()))


def _is_padding_alone(node: ir.Node) -> bool:
    return _is_empty(node.inputs[0]) and attrs_of(node).get("mode", "constant") == "constant"


class _Rule:
    """A rule for a result with elements from operands without any.

    applies: whether the result of a node is certain
    write: creates it
    """

    def __init__(
        self, applies: Callable[[ir.Node], bool], write: Callable[[ir.Node, Builder], Value]
    ) -> None:
        self.applies, self.write = applies, write


_SUMS = ["MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "ConvInteger", "MatMulInteger"]
_REDUCTIONS = ["Sum", "Prod", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]
_OF_NOTHING = {
    **dict.fromkeys(_SUMS, _Rule(_is_sum_of_nothing, _sum_of_nothing)),
    **{f"Reduce{r}": _Rule(_is_reduction_of_nothing, _begun) for r in _REDUCTIONS},
    "Pad": _Rule(_is_padding_alone, _padding),
}


def fold_empty_values(storable: bool = True) -> Pass[Context]:
    """Return the pass of a pipeline; see `fold_empty`."""
    return Pass(
        "fold-empty",
        "Replace empty values, and sums over no elements, by constants",
        lambda model, _: fold_empty(model, storable),
    )
