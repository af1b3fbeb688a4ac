"""Convert a network to the data of a drawing: layers with attributes, tensors and weights, the
tensors between them, and the scopes in which they are folded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from converter.commands.costs import describe
from converter.commands.inspect import summary
from converter.commands.verify.cause import input_label, kind, layer_of, show
from converter.commands.view import scopes, weights
from converter.commands.view.scopes import BODY, LAYER, PREFIX, Step
from converter.graph.build import attrs_of
from converter.graph.infer import constant
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.graph.walk import all_nodes, subgraphs
from converter.io.strict_json import Json

TEXT = 300  # characters of an attribute


@dataclass
class Drawing:
    """The `nodes`, `edges`, `scopes` and `weights` are plain data for the page; `places` maps each
    layer to the index of its node.
    """

    nodes: list[Json] = field(default_factory=list)
    edges: list[tuple[int, int, str]] = field(default_factory=list)
    scopes: list[Json] = field(default_factory=list)
    weights: list[Json] = field(default_factory=list)
    places: dict[ir.Node, int] = field(default_factory=dict)
    about: Json = field(default_factory=dict)

    def as_json(self) -> Json:
        shown = ("nodes", "edges", "scopes", "weights", "about")
        return {k: getattr(self, k) for k in shown}


def draw(model: Network, name: str) -> Drawing:
    """Draw a model under the name `name`."""
    maker = _Maker(model)
    maker.graph(model.ir.graph, ())
    made = maker.drawing
    kinds = [n["k"] for n in made.nodes]
    folded = scopes.fold(maker.paths, kinds, [(a, b) for a, b, _ in made.edges])
    for node, place in zip(made.nodes, folded.of, strict=True):
        node["scope"] = place
    made.scopes = folded.scopes
    told = summary(model)
    about = {k: told[k] for k in ("format", "inputs", "outputs", "layers", "operators", "weights")}
    made.about = {"name": name, **about}
    return made


class _Maker:
    """Visit a model in the order of execution; bodies come before the layer that owns them."""

    def __init__(self, model: Network) -> None:
        self.drawing = Drawing()
        self.paths: list[tuple[Step, ...]] = []
        self._made: dict[ir.Value, int] = {}  # value -> the drawn node that produces it
        self._known: dict[ir.Value, int] = {}  # constant -> its index in `weights`
        self._parts = _splitter(layer_of(n) for n in all_nodes(model.ir.graph))
        self._size = _sizes(model.ir.graph)

    def graph(self, graph: ir.Graph, around: tuple[Step, ...]) -> None:
        for value in graph.inputs:
            self._made[value] = self._port("input", value, around)
        for node in graph:
            self._node(node, around)
        for value in graph.outputs if not around else ():
            place = self._port("output", value, around)
            self._link(value, place)

    def _port(self, what: str, value: ir.Value, around: tuple[Step, ...]) -> int:
        name = public_name(value)
        told = [["", name, describe(value), -1]]
        data = {"k": what, "n": name, "port": what, "out" if what == "input" else "in": told}
        return self._add(data, around)

    def _add(self, data: Json, path: tuple[Step, ...]) -> int:
        self.drawing.nodes.append(data)
        self.paths.append(path)
        return len(self.paths) - 1

    def _node(self, node: ir.Node, around: tuple[Step, ...]) -> None:
        layer = layer_of(node)
        props = node.metadata_props
        path = around + tuple((PREFIX, p) for p in self._parts(layer)[:-1])
        leaf = self._parts(layer)[-1]
        bodies = [a for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]
        if self._size.get(props.get("netconv.layer", "")) or bodies:
            title = f"{leaf} ({props.get('netconv.type') or kind(node)})"
            path = (*path, (LAYER if not bodies else BODY, title))
        for attribute in bodies:
            self.graph(attribute.as_graph(), (*path, (BODY, attribute.name)))
        data: Json = {"k": kind(node), "n": layer}
        data |= {
            key: text
            for key, text in (
                ("t", props.get("netconv.type", "")),
                ("w", props.get("netconv.where", "")),
            )
            if text and text != data["k"]
        }
        attributes = [[k, show(v)[:TEXT]] for k, v in sorted(attrs_of(node).items()) if _plain(v)]
        data |= {"a": attributes} if attributes else {}
        data["in"] = [
            [input_label(node, i), str(v.name), describe(v), self._weight(v)]
            for i, v in enumerate(node.inputs)
            if v is not None
        ]
        data["out"] = [["", str(o.name), describe(o), -1] for o in node.outputs if o.name]
        place = self._add(data, path)
        self.drawing.places[node] = place
        self._made.update((o, place) for o in node.outputs)
        for value in dict.fromkeys(v for v in node.inputs if v is not None):
            self._link(value, place)
        for body in subgraphs(node):
            for value in body.outputs:
                self._link(value, place)

    def _link(self, value: ir.Value, place: int) -> None:
        source = self._made.get(value)
        if source is not None and source != place:
            self.drawing.edges.append((source, place, f"{value.name} {describe(value)}"))

    def _weight(self, value: ir.Value) -> int:
        """Return the index of a constant in `weights`, -1 for computed values."""
        if value.producer() is not None or value.is_graph_input():
            return -1
        if value not in self._known:
            array = constant(value)
            if array is None:
                return -1
            data = {"n": str(value.name), "d": describe(value), "bytes": int(array.nbytes)}
            self._known[value] = len(self.drawing.weights)
            self.drawing.weights.append(data | weights.described(array))
        return self._known[value]


def _plain(value: Any) -> bool:
    return not isinstance(value, ir.Graph)


def _sizes(graph: ir.Graph) -> dict[str, bool]:
    """Return, for each layer of the file, whether it is several operators here."""
    found: dict[str, bool] = {}
    for node in all_nodes(graph):
        layer = node.metadata_props.get("netconv.layer", "")
        if layer:
            found[layer] = layer in found
    return found


def _splitter(names: Iterator[str]) -> Callable[[str], list[str]]:
    """Return a function that splits the names of a model: at `/` and `.` if many names have these,
    else at `_`.
    """
    known = list(names)

    def often(separator: str) -> bool:
        return sum(separator in n.strip(separator) for n in known) * 3 > len(known)

    found = "".join(filter(often, "/.")) or "".join(filter(often, "_"))
    separator = re.compile(f"[{re.escape(found)}]+") if found else None

    def parts(name: str) -> list[str]:
        name = name.partition(";")[0]  # TensorFlow Lite joins the names of fused layers
        split = [p for p in separator.split(name) if p] if separator is not None else []
        return split or [name]

    return parts
