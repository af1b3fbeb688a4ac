"""Groups of values that must share one order of axes, and the choice of that order.

Rank-preserving operators join their data inputs and outputs into groups (union-find). The group of
a layout-sensitive operator takes that operator's order. Any other group stays canonical, unless
more of its values come from operators that may propagate another order than are produced or needed
in the canonical one; then it takes the first order that is propagated to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

import onnx_ir as ir

from converter.graph.infer import rank_of
from converter.graph.value import optional
from converter.graph.walk import all_nodes, subgraphs
from converter.passes.layout import axes
from converter.passes.layout.axes import Perm
from converter.passes.layout.reassociation import RankChange, rank_change
from converter.passes.layout.rules import Free, free
from converter.record import record


@record
class Sensitive:
    """An operator whose data inputs and outputs must have the pass's order."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@record
class Transposed:
    """A node that transposes its operand."""

    perm: tuple[int, ...]


@record
class Other:
    """An operator that needs canonical inputs, except `Shape`, which works on any order if its
    result is permuted.
    """

    any_order: bool = False


Kind = Sensitive | Free | RankChange | Transposed | Other
Direction = Callable[[ir.Node], Sensitive | None]


@record
class _Group:
    transposed: bool = False
    fixed: Perm | None = None
    # produced by an operator that may propagate another order
    soft: set[ir.Value] = field(default_factory=set)
    # needed, or produced, in the canonical order
    needed: set[ir.Value] = field(default_factory=set)
    # outputs of operators that propagate the group's order
    followers: list[tuple[ir.Value, RankChange | Transposed]] = field(default_factory=list)


def classify(node: ir.Node, sensitive: Direction, memo: dict[Any, bool]) -> Kind:
    """Return the layout behavior of a node: that of `sensitive`, else a transposition, an operator
    without a layout, one that changes the rank, or any other. `memo` caches bodies.
    """
    found = sensitive(node)
    if found is not None:
        return found
    x = node.inputs[0] if node.inputs else None
    rank = rank_of(x)
    if node.domain == "" and node.op_type == "Transpose" and rank is not None:
        perm = (
            tuple(node.attributes["perm"].as_ints())
            if "perm" in node.attributes
            else tuple(reversed(range(rank)))
        )
        return Transposed(perm)
    if node.domain == "" and node.op_type in ("Shape", "Size"):
        return Other(any_order=rank is not None)
    return free(node, memo) or rank_change(node) or Other()


def data_of(node: ir.Node, inputs: Sequence[int], outputs: Sequence[int] = ()) -> list[ir.Value]:
    """Return the given operands and results, without those that the node does not have."""
    results = [node.outputs[i] for i in outputs if i < len(node.outputs)]
    return [*(v for i in inputs if (v := optional(node, i)) is not None), *results]


class Groups:
    """The groups of one graph.

    `kinds` has the kind of each node; `wanted(value)` returns the order of its group (None: any).
    """

    def __init__(
        self, graph: ir.Graph, sensitive: Direction, target: Callable[[int], Perm]
    ) -> None:
        self.target = target
        self.kinds: dict[ir.Node, Kind] = {}
        self._parent: dict[ir.Value, ir.Value] = {}
        self._groups: dict[ir.Value, _Group] = defaultdict(_Group)
        memo: dict[Any, bool] = {}
        for node in graph:
            kind = self.kinds[node] = classify(node, sensitive, memo)
            if isinstance(kind, Free):
                self._tie(node, kind)
        for node in graph:
            self._look(node, self.kinds[node])
        for v in [*graph.inputs, *graph.outputs]:
            self._group(v).needed.add(v)

    def _find(self, value: ir.Value) -> ir.Value:
        root = value
        while (up := self._parent.get(root)) is not None:
            root = up
        while value is not root:
            self._parent[value], value = root, self._parent[value]
        return root

    def _group(self, value: ir.Value) -> _Group:
        return self._groups[self._find(value)]

    def _tie(self, node: ir.Node, kind: Free) -> None:
        first = node.outputs[kind.outputs[0]]
        others = [node.outputs[i] for i in kind.outputs[1:]]
        data = data_of(node, kind.inputs)
        others += [v for v in data if not is_constant(v) and rank_of(v) == kind.rank]
        for v in others:
            a, b = self._find(first), self._find(v)
            if a is not b:
                self._parent[b] = a

    def _look(self, node: ir.Node, kind: Kind) -> None:
        """Add the constraints of a node to the groups of its values."""
        data: tuple[int, ...] = ()
        if isinstance(kind, Sensitive):
            data = kind.inputs
            for v in data_of(node, kind.inputs, kind.outputs):
                if not is_constant(v):
                    self._group(v).transposed = True
        elif isinstance(kind, Free):
            data = kind.inputs
        elif isinstance(kind, RankChange | Transposed):
            data = (0,)
            self._group(node.outputs[0]).soft.add(node.outputs[0])
            x = node.inputs[0]
            assert x is not None
            self._group(x).followers.append((node.outputs[0], kind))
        elif kind.any_order:
            data = (0,)
        else:
            for v in node.outputs:
                self._group(v).needed.add(v)
        moved = set(data)  # searching a tuple of thousands of indices is slow
        others = [i for i in range(len(node.inputs)) if i not in moved]
        for v in (*data_of(node, others), *captured(node)):
            self._group(v).needed.add(v)

    def wanted(self, value: ir.Value) -> Perm | None:
        """Return the order of the value's group; None while it is undecided."""
        group, rank = self._group(value), rank_of(value)
        if rank is None:
            return None
        if group.transposed:
            return self.target(rank)
        if group.fixed is None and len(group.needed) >= len(group.soft):
            group.fixed = axes.identity(rank)
        return group.fixed

    def transposed(self, value: ir.Value) -> bool:
        """Return whether the value's group contains a layout-sensitive operator."""
        return self._group(value).transposed

    def fix(self, value: ir.Value, perm: Perm) -> None:
        """Fix the axis order of the group to which a value belongs."""
        self._group(value).fixed = perm


def is_constant(value: ir.Value) -> bool:
    """Return whether a value is a constant that a caller cannot replace."""
    return value.const_value is not None and not value.is_graph_input()


def captured(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values of the graph around `node` that its sub-graphs use."""
    for body in subgraphs(node):
        yield from (
            v
            for inner in all_nodes(body)
            for v in inner.inputs
            if v is not None and v.graph is node.graph
        )
        yield from (v for v in body.outputs if v.graph is node.graph)
