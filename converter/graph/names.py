"""Value names: unique inside a model; the names of the source format live beside them."""

from __future__ import annotations

from itertools import count

import onnx_ir as ir

from converter.errors import Where
from converter.graph.walk import all_graphs

_PUBLIC = "netconv.name"


class Names:
    """Hands out value names that no other value of the model has. Amortised constant time per
    name.
    """

    def __init__(self, model: ir.Model | None = None) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        if model is not None:
            for graph in all_graphs(model.graph):
                self._taken.update(
                    v.name for v in [*graph.inputs, *graph.initializers.values()] if v.name
                )
                self._taken.update(o.name for n in graph for o in n.outputs if o.name)

    def fresh(self, hint: str) -> str:
        """`hint` itself when free, else `hint_1`, `hint_2`, ..."""
        hint = hint or "v"
        name, count = hint, self._next.get(hint, 0)
        while name in self._taken:
            count += 1
            name = f"{hint}_{count}"
        self._next[hint] = count
        self._taken.add(name)
        return name


def tell_nodes_apart(model: ir.Model) -> None:
    """No two nodes of a graph have one name, which runtimes refuse; what a node is called in its
    source file is kept first.
    """
    for graph in all_graphs(model.graph):
        own = {n.name for n in graph if n.name == n.metadata_props.get("netconv.layer")}
        taken = {n.name for n in graph}
        seen: set[str] = set()
        for node in graph:
            name = node.name or ""
            if name and (
                name in seen or (name in own and name != node.metadata_props.get("netconv.layer"))
            ):
                name = next(n for i in count(1) if (n := f"{name}_{i}") not in taken)
                node.name = name
                taken.add(name)
            seen.add(name)


def public_name(value: ir.Value) -> str:
    """The name of a graph input or output as the source file spells it (names there need not be
    unique).
    """
    return value.metadata_props.get(_PUBLIC) or value.name or ""


def unique(names: list[str]) -> list[str]:
    """Names of outputs for a dict: a repeated one gets a number (Core ML lets two outputs share
    one).
    """
    seen: dict[str, int] = {}
    result = []
    for n in names:
        seen[n] = seen.get(n, 0) + 1
        result.append(n if seen[n] == 1 else f"{n}.{seen[n] - 1}")
    return result


def place_of(node: ir.Node) -> Where:
    """The layer of the source that a node came from, as a place for diagnostics."""
    return Where(layer=node.metadata_props.get("netconv.layer", ""), kind=node.op_type)


def fresh_public_name(graph: ir.Graph, name: str) -> str:
    """`name`, or the first of NAME_1, NAME_2 ... that no input or output has."""
    taken = {public_name(v) for v in (*graph.inputs, *graph.outputs)}
    names = (name if i == 0 else f"{name}_{i}" for i in range(len(taken) + 1))
    return next(n for n in names if n not in taken)


def set_public_name(value: ir.Value, name: str) -> None:
    if name == value.name:
        value.metadata_props.pop(_PUBLIC, None)
    else:
        value.metadata_props[_PUBLIC] = name
