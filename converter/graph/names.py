"""Value names that are unique in a model; the names in the source file are stored separately."""

from __future__ import annotations

from itertools import count

import onnx_ir as ir

from converter.errors import Where
from converter.graph.walk import all_graphs

_PUBLIC = "netconv.name"
MADE_FOR = "made for"  # of a node, never written: the operator for which a pass made it


class Names:
    """A generator of unique value names in a model, in amortized constant time per name."""

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
        """Return `hint` itself if it is unused, else `hint_1`, `hint_2`, ..."""
        hint = hint or "v"
        name, count = hint, self._next.get(hint, 0)
        while name in self._taken:
            count += 1
            name = f"{hint}_{count}"
        self._next[hint] = count
        self._taken.add(name)
        return name


def make_node_names_unique(model: ir.Model) -> None:
    """Give the nodes of each graph distinct names, which runtimes require; their names in the
    source file are recorded first.
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


def layer_name(node: ir.Node) -> str:
    """Return the name of the layer that a node was read from, or that of the node."""
    named = node.metadata_props.get("netconv.layer") or node.name
    return named or next((str(o.name) for o in node.outputs if o.name), "")


def public_name(value: ir.Value) -> str:
    """Return the name of a graph input or output as the source file spells it (such names need not
    be unique).
    """
    return value.metadata_props.get(_PUBLIC) or value.name or ""


def unique(names: list[str]) -> list[str]:
    """Return names of outputs that are unique in a dict: a repeated one gets a number (Core ML
    permits duplicates).
    """
    seen: dict[str, int] = {}
    result = []
    for n in names:
        seen[n] = seen.get(n, 0) + 1
        result.append(n if seen[n] == 1 else f"{n}.{seen[n] - 1}")
    return result


def made_for(node: ir.Node) -> str:
    """Return the operator for which a pass made the node, or that of the node."""
    return str(node.meta.get(MADE_FOR) or node.op_type)


def subject_of(node: ir.Node) -> str:
    """Return the operator of a node for a message, and the one that the user knows."""
    known = made_for(node)
    return node.op_type if known == node.op_type else f"{node.op_type} (made for {known})"


def source_location(node: ir.Node) -> Where:
    """Return where in the source file the layer of a node is: a line number, or a path inside."""
    props = node.metadata_props
    place = props.get("netconv.where", "")
    is_line = place.isdecimal() and place.isascii() and len(place) < 10
    return Where(
        line=int(place) if is_line else 0,
        path="" if is_line else place,
        layer=layer_name(node),
        kind=props.get("netconv.type") or made_for(node),
    )


def fresh_public_name(graph: ir.Graph, name: str) -> str:
    """Return `name`, or the first of NAME_1, NAME_2 ... that no input or output has."""
    taken = {public_name(v) for v in (*graph.inputs, *graph.outputs)}
    names = (name if i == 0 else f"{name}_{i}" for i in range(len(taken) + 1))
    return next(n for n in names if n not in taken)


def set_public_name(value: ir.Value, name: str) -> None:
    """Record the name of a value in the file, where it differs from the name in the graph."""
    if name == value.name:
        value.metadata_props.pop(_PUBLIC, None)
    else:
        value.metadata_props[_PUBLIC] = name
