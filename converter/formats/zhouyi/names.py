"""Names that every reader of the format takes: the allowed characters, and nothing that would be
read as a number, a boolean or a data type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from converter.formats.zhouyi.ir import Document
from converter.formats.zhouyi.values import parse_value

# section 4.5; a quote is allowed too, but readers strip it from the ends of list elements
_BAD = re.compile(r"[^a-zA-Z0-9.:/_;']")


@dataclass(frozen=True, slots=True)
class Renaming:
    """The new names of renamed layers and of renamed tensors, which are two name spaces. Both maps
    are one-to-one on all names of the document.
    """

    tensors: dict[str, str] = field(default_factory=dict)
    layers: dict[str, str] = field(default_factory=dict)


def legal_name(name: str) -> str:
    """Return `name` with every other character replaced by `_`; `12`, `1e5`, `true` and `int8` get
    a `_` appended.
    """
    legal = _BAD.sub("_", name).strip("'") or "_"
    return legal if type(parse_value(legal)) is str and legal.lower() != "none" else legal + "_"


def legal_names(names: Iterable[str]) -> dict[str, str]:
    """Return a one-to-one map of all names (first come, first served; legal names are kept) to
    legal ones, deterministically.
    """
    unique = list(dict.fromkeys(names))
    mapping = {n: n for n in unique if legal_name(n) == n}
    taken = set(mapping)
    counters: dict[str, int] = {}
    for name in unique:
        if name in mapping:
            continue
        base = new = legal_name(name)
        while new in taken:
            counters[base] = counters.get(base, 0) + 1
            new = f"{base}_{counters[base]}"
        mapping[name] = new
        taken.add(new)
    return {n: mapping[n] for n in unique}


def legalize_names(document: Document) -> Renaming:
    """Rename tensors and layers of a document in place where necessary, in all its graphs, and
    return the new names.

    The vendor's parser replaces characters in the same way, so most names are those that it would
    have written.
    """
    layers = [layer for graph in document.graphs for layer in graph.layers]
    tensors = legal_names(
        n
        for graph in document.graphs
        for n in [t.name for x in graph.layers for t in (*x.outputs, *x.inputs)]
        + graph.input_tensors
        + graph.output_tensors
    )
    names = legal_names(layer.name for layer in layers)
    for layer in layers:
        layer.name = names[layer.name]
        layer.inputs = [t._replace(name=tensors[t.name]) for t in layer.inputs]
        layer.outputs = [t._replace(name=tensors[t.name]) for t in layer.outputs]
    for graph in document.graphs:
        for key in ("input_tensors", "output_tensors"):
            listed = graph.header.get(key)
            if isinstance(listed, list):
                graph.header[key] = [tensors.get(str(n), str(n)) for n in listed]
    return Renaming(
        {a: b for a, b in tensors.items() if a != b}, {a: b for a, b in names.items() if a != b}
    )
