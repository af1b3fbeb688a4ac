"""The passes of a format, and the changes that each of them makes in a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from converter.commands.convert import Coverage, check
from converter.graph.network import Network
from converter.graph.walk import all_graphs, all_nodes
from converter.passes.pipeline import Context, Pass, observing


@dataclass(frozen=True)
class Change:
    """The effect of a pass: the operators that it `removed` and `added`, those that it `rewrote` in
    place, and the numbers of nodes and of constants before and after. `refused`: a condition of the
    pass did not hold. `attempt`: the version, if the format tries several.
    """

    name: str
    attempt: str
    removed: dict[str, int]
    added: dict[str, int]
    rewrote: dict[str, int]
    nodes: tuple[int, int]
    constants: tuple[int, int]
    refused: bool = False

    @property
    def changed(self) -> bool:
        """Return whether the pass changed or refused anything."""
        counts = self.constants[0] != self.constants[1]
        return bool(self.removed or self.added or self.rewrote or counts or self.refused)

    def text(self) -> str:
        """Describe the change in one line."""
        if not self.changed:
            return "unchanged"
        before, after = self.nodes
        words = (("removed", self.removed), ("added", self.added), ("rewrote", self.rewrote))
        parts = [f"{word} {_listed(found)}" for word, found in words if found]
        if self.constants[0] != self.constants[1]:
            parts.append("constants {} -> {}".format(*self.constants))
        if self.refused:
            parts.append("refused")
        tried = f" ({self.attempt})" if self.attempt else ""
        return f"{before} -> {after} nodes{tried}: {'; '.join(parts)}"

    def as_json(self) -> dict[str, Any]:
        """Return the change as plain data."""
        return {
            "pass": self.name,
            "attempt": self.attempt,
            "removed": self.removed,
            "added": self.added,
            "rewrote": self.rewrote,
            "nodes": list(self.nodes),
            "constants": list(self.constants),
            "refused": self.refused,
        }


def _listed(found: dict[str, int]) -> str:
    return ", ".join(name if n == 1 else f"{n} {name}" for name, n in found.items())


class _Snapshot:
    """The nodes of a model at one time. References to them are kept, so that no new node is
    mistaken for one of them.
    """

    def __init__(self, model: ir.Model) -> None:
        self.nodes = {n: _form(n) for n in all_nodes(model.graph)}
        self.constants = sum(len(g.initializers) for g in all_graphs(model.graph))


def _form(node: ir.Node) -> list[Any]:
    """Return the properties of a node that count as changes; names of its operands do not."""
    return [
        _name(node),
        len(node.inputs),
        *(v.dtype for v in node.outputs),
        *node.attributes.values(),
    ]


def _name(node: ir.Node) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _changed(before: list[Any], after: list[Any]) -> bool:
    return len(before) != len(after) or any(
        a is not b and (isinstance(a, ir.Attr) or a != b)
        for a, b in zip(before, after, strict=True)
    )


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _change(name: str, attempt: str, before: _Snapshot, after: _Snapshot, refused: bool) -> Change:
    kept = before.nodes.keys() & after.nodes.keys()
    return Change(
        name,
        attempt,
        _counted(f[0] for n, f in before.nodes.items() if n not in kept),
        _counted(f[0] for n, f in after.nodes.items() if n not in kept),
        _counted(after.nodes[n][0] for n in kept if _changed(before.nodes[n], after.nodes[n])),
        (len(before.nodes), len(after.nodes)),
        (before.constants, after.constants),
        refused,
    )


def trace(model: Network, target: str, source: Path) -> tuple[list[Change], Coverage]:
    """Return the changes of each pass when the model is written in a format, in the order in which
    they run (some formats try several versions), and the coverage. No file is kept.
    """
    found: list[Change] = []

    @contextmanager
    def watched(each: Pass[Any], graph: ir.Model, context: Context) -> Iterator[None]:
        before, refused = _Snapshot(graph), True
        try:
            yield
            refused = False
        finally:
            after = _Snapshot(graph)
            found.append(_change(each.name, context.attempt, before, after, refused))

    with observing(watched):
        return found, check(model, target, source)


def lines(rows: Sequence[tuple[int, str, str]]) -> Iterator[str]:
    """Yield lines of numbers, names and descriptions."""
    width = max((len(name) for _, name, _ in rows), default=0)
    for number, name, text in rows:
        yield f"{number:3}  {name:{width}}  {text}"


def changed_lines(changes: Sequence[Change], all_: bool) -> Iterator[str]:
    """Yield the changes of passes, and with `all_` the passes without changes."""
    rows = [(i, c) for i, c in enumerate(changes, 1) if all_ or c.changed]
    yield from lines([(i, c.name, c.text()) for i, c in rows])
    if len(rows) < len(changes):
        yield (
            f"{len(changes) - len(rows)} of {len(changes)} passes changed nothing "
            "(list them with -v)"
        )
