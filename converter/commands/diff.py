"""Structural differences between two models: interface, operators, attributes, weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import onnx_ir as ir

from converter.commands.verify.align import Alignment, Side, align
from converter.commands.verify.cause import causes, kind, layer_of
from converter.errors import NothingComparedError
from converter.graph.network import Network


@dataclass(frozen=True)
class Change:
    """One difference. `sign` is "-" (only in the first), "+" (only in the second) or "~" (in both,
    with the differences in `details`).
    """

    sign: str
    layer: str
    kind: str
    details: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the change as data for JSON."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yield the change as lines of text."""
        yield f'{self.sign} {self.kind} "{self.layer}"'
        yield from (f"    {d}" for d in self.details)


def diff(a: Network, b: Network) -> list[Change]:
    """Return all differences. Names of inner tensors and the order of nodes are ignored."""
    try:
        found = align(a, b)
    except NothingComparedError:  # entirely different inputs and outputs: nothing corresponds
        found = Alignment()
    return [*_interface(a, b), *_nodes(a, b, found)]


def _interface(a: Network, b: Network) -> Iterator[Change]:
    for side in ("inputs", "outputs"):
        mine, theirs = ({t.name: t for t in getattr(m, side)} for m in (a, b))
        for name in [*mine, *(n for n in theirs if n not in mine)]:
            if name not in theirs:
                yield Change("-", name, side[:-1], (str(mine[name]),))
            elif name not in mine:
                yield Change("+", name, side[:-1], (str(theirs[name]),))
            elif str(mine[name]) != str(theirs[name]):
                yield Change("~", name, side[:-1], (f"{mine[name]} became {theirs[name]}",))


def partners(left: Side, right: Side, found: Alignment) -> dict[ir.Node, ir.Node]:
    """Map nodes of the first model to their counterparts in the second."""
    partner: dict[ir.Node, ir.Node] = {}
    for r, c in found.pairs.items():
        n, m = (
            s.values[v].producer() if v in s.values else None for s, v in ((left, r), (right, c))
        )  # a side has no unused values
        if n is not None and m is not None:
            partner.setdefault(n, m)
    return partner


def _nodes(a: Network, b: Network, found: Alignment) -> list[Change]:
    """Compare the nodes. Nodes are paired if one of their outputs is; others exist on one side
    only.
    """
    left, right = Side(a.ir.graph), Side(b.ir.graph)
    partner = partners(left, right, found)
    taken = set(partner.values())
    changes = []
    for node in left.nodes:
        if node not in partner:
            changes.append(Change("-", layer_of(node), kind(node)))
        elif texts := tuple(c.text for c in causes([node], [partner[node]], found.back)):
            changes.append(Change("~", layer_of(node), kind(node), texts))
    changes.extend(Change("+", layer_of(n), kind(n)) for n in right.nodes if n not in taken)
    return changes
