"""Rank-preserving operators that work on any order of axes, and how their attributes are permuted.

All data inputs and outputs of such an operator share one order. Operators that are neither here nor
in reassociation.py, and have no channels-last variant, need the canonical order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph import BROADCAST, EXTENSION_DOMAIN, REDUCTIONS
from converter.graph import UNARY as ELEMENTWISE
from converter.graph.build import Builder, attributes, attrs_of
from converter.graph.extensions import can_expand, definition_of
from converter.graph.infer import InferenceError, known, rank_of
from converter.graph.value import optional
from converter.passes.layout import axes
from converter.passes.layout.axes import Dim, Perm
from converter.record import record

Remap = Callable[[ir.Node, Perm, Builder], None]

UNARY = ELEMENTWISE | {"DynamicQuantizeLinear"}
# operators whose data are the first operand and all results
_OF_ONE_AXIS = frozenset(["Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "TopK", "Split"])


@record
class Free:
    """A rank-preserving operator for any order.

    `inputs` and `outputs` hold data in one order; `remap` adapts attributes and constant operands
    to it.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    remap: Remap
    rank: int


def _nothing(node: ir.Node, perm: Perm, b: Builder) -> None: ...


def free(node: ir.Node, memo: dict[Any, bool]) -> Free | None:
    """Return how a rank-preserving operator works on any order; None if it does not.

    `memo` caches results for extension operators.
    """
    out = node.outputs[0] if node.outputs else None
    rank = rank_of(out)
    if rank is None or node.inputs[:1] == (None,) or not node.inputs:
        return None
    found = _free_ports(node, rank, memo)
    if found is None:
        return None
    inputs, outputs, remap = found
    ranks = [rank_of(v) for i in inputs if (v := optional(node, i)) is not None]
    if None in ranks or any(rank_of(node.outputs[i]) != rank for i in outputs):
        return None
    if len(inputs) == 1 and ranks != [rank] and node.op_type != "Expand":
        return None
    return Free(inputs, outputs, remap, rank)


Ports = tuple[tuple[int, ...], tuple[int, ...], Remap]


def _free_ports(node: ir.Node, rank: int, memo: dict[Any, bool]) -> Ports | None:
    if node.domain == EXTENSION_DOMAIN and node.op_type in _EXTENSIONS:
        return _EXTENSIONS[node.op_type](node, rank)
    if node.domain:
        return (
            _every(node)
            if node.domain == EXTENSION_DOMAIN and _elementwise_extension(node, memo)
            else None
        )
    op = node.op_type
    if op in UNARY:
        return (0,), ((0, 1) if op == "Dropout" and len(node.outputs) > 1 else (0,)), _nothing
    if op in BROADCAST:
        return _every(node)
    if op in REDUCTIONS or op in ("ArgMax", "ArgMin"):
        return _reduce(node)
    special = _SPECIAL.get(op)
    if special is not None:
        return special(node, rank)
    return ((0,), tuple(range(len(node.outputs))), _axis) if op in _OF_ONE_AXIS else None


def _every(node: ir.Node) -> Ports:
    return tuple(range(len(node.inputs))), tuple(range(len(node.outputs))), _nothing


def _elementwise_extension(node: ir.Node, memo: dict[Any, bool]) -> bool:
    """Return whether the operator's definition consists only of elementwise operators and
    scalars.
    """
    if not can_expand(node):
        return False
    key = (
        node.op_type,
        repr(sorted(attrs_of(node).items(), key=lambda a: a[0])),
        tuple(rank_of(v) for v in node.inputs),
    )
    if key not in memo:
        try:
            memo[key] = all(_scalar_or_elementwise(n) for n in definition_of(node))
        except (MappingError, InferenceError, KeyError):
            memo[key] = False
    return memo[key]


def _scalar_or_elementwise(node: ir.Node) -> bool:
    if node.op_type == "Constant":
        value = known(node.outputs[0])
        return value is not None and value.size == 1
    return (
        node.domain == ""
        and (node.op_type in UNARY or node.op_type in BROADCAST)
        and node.op_type != "DynamicQuantizeLinear"
    )


def _axis(node: ir.Node, perm: Perm, b: Builder) -> None:
    place = axes.inverse(perm)[attributes(node)["axis"] % len(perm)]
    node.attributes["axis"] = ir.AttrInt64("axis", place)


def set_input(node: ir.Node, index: int, value: ir.Value) -> None:
    """Replace or append an input of a node."""
    if index >= len(node.inputs):
        node.resize_inputs(index + 1)
    node.replace_input_with(index, value)


def dims_of(value: ir.Value) -> list[Dim]:
    """Return the sizes of a value; dynamic ones as names, or None without one."""
    assert value.shape is not None
    return [d if isinstance(d, int) else d.value for d in value.shape]


def _axes_input(index: int) -> Remap:
    def remap(node: ir.Node, perm: Perm, b: Builder) -> None:
        given = known(optional(node, index))
        if given is not None:
            where = axes.inverse(perm)
            set_input(
                node,
                index,
                b.const(
                    np.array(
                        [where[int(a) % len(perm)] for a in given.reshape(-1)], given.dtype
                    ).reshape(given.shape),
                    "axes",
                ),
            )

    return remap


def _reduce(node: ir.Node) -> Ports | None:
    if not attributes(node)["keepdims"]:
        return None
    if node.op_type.startswith("Arg"):
        return (0,), (0,), _axis
    given = optional(node, 1)
    return None if given is not None and known(given) is None else ((0,), (0,), _axes_input(1))


def _concat(node: ir.Node, rank: int) -> Ports:
    return tuple(range(len(node.inputs))), (0,), _axis


def _gather(node: ir.Node, rank: int) -> Ports | None:
    indices = node.inputs[1]
    return ((0,), (0,), _axis) if indices is not None and rank_of(indices) == 1 else None


def _elements(node: ir.Node, rank: int) -> Ports:
    return tuple(range(len(node.inputs))), (0,), _axis


def _compress(node: ir.Node, rank: int) -> Ports | None:
    return ((0,), (0,), _axis) if "axis" in node.attributes else None


def _cumsum(node: ir.Node, rank: int) -> Ports | None:
    return ((0,), (0,), _axes_input(1)) if known(optional(node, 1)) is not None else None


def _axes_attribute(node: ir.Node, rank: int) -> Ports:
    def remap(node: ir.Node, perm: Perm, b: Builder) -> None:
        where = axes.inverse(perm)
        given = attributes(node)["axes"]
        node.attributes["axes"] = ir.AttrInt64s("axes", [where[a % len(perm)] for a in given])

    return (0,), (0,), remap


def _slice(node: ir.Node, rank: int) -> Ports | None:
    """Permute a Slice; without axes, its starts refer to the leading axes."""
    given, starts = optional(node, 3), optional(node, 1)
    if given is not None:
        return ((0,), (0,), _axes_input(3)) if known(given) is not None else None
    if (
        starts is None
        or starts.shape is None
        or len(starts.shape) != 1
        or not isinstance(starts.shape[0], int)
    ):
        return None
    count = starts.shape[0]

    def remap(node: ir.Node, perm: Perm, b: Builder) -> None:
        set_input(node, 3, b.const([axes.inverse(perm)[a] for a in range(count)], "axes"))

    return (0,), (0,), remap


def _pad(node: ir.Node, rank: int) -> Ports | None:
    if optional(node, 3) is not None:
        return ((0,), (0,), _axes_input(3)) if known(optional(node, 3)) is not None else None
    if known(node.inputs[1]) is None:
        return None

    def remap(node: ir.Node, perm: Perm, b: Builder) -> None:
        amounts = known(node.inputs[1])
        assert amounts is not None
        set_input(
            node,
            1,
            b.const(
                np.ascontiguousarray(amounts.reshape(2, -1)[:, list(perm)].reshape(-1)), "pads"
            ),
        )

    return (0,), (0,), remap


def _per_axis_list(index: int) -> Callable[[ir.Node, int], Ports | None]:
    """Permute a constant list with one entry per axis; missing leading entries (Expand) are 1."""

    def ports(node: ir.Node, rank: int) -> Ports | None:
        given = known(optional(node, index))
        if given is None or given.ndim != 1 or len(given) > rank:
            return None

        def remap(node: ir.Node, perm: Perm, b: Builder) -> None:
            entries = [1] * (rank - len(given)) + given.tolist()
            set_input(node, index, b.const([entries[a] for a in perm], "shape"))

        return (0,), (0,), remap

    return ports


def _quantize(node: ir.Node, rank: int) -> Ports | None:
    """Permute a quantization: the scale is a scalar, a vector along `axis`, or (blocked) has the
    data's rank.
    """
    scale = node.inputs[1]
    scale_rank = rank_of(scale)
    if scale_rank is None:
        return None
    if scale_rank == rank and rank > 1:
        return tuple(range(len(node.inputs))), (0,), _axis
    return (0,), (0,), _axis if scale_rank == 1 and rank > 1 else _nothing


# extension operators that declare their axes (elementwise ones are found by their definition)
_EXTENSIONS: dict[str, Callable[[ir.Node, int], Ports | None]] = {
    "MVN": _axes_attribute,
    "NormalizeL2": _axes_attribute,
    "CumProd": lambda node, rank: ((0,), (0,), _axis),
}
_SPECIAL: dict[str, Callable[[ir.Node, int], Ports | None]] = {
    "Concat": _concat,
    "Gather": _gather,
    "GatherElements": _elements,
    "ScatterElements": _elements,
    "Compress": _compress,
    "CumSum": _cumsum,
    "MeanVarianceNormalization": _axes_attribute,
    "Slice": _slice,
    "Pad": _pad,
    "Tile": _per_axis_list(1),
    "Expand": _per_axis_list(1),
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _quantize,
}
