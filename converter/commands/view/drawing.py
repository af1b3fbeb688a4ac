"""Convert a network to the data of a drawing: layers with attributes, tensors and weights, the
tensors between them, and the scopes in which they are folded. Shapes are those of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from converter.commands.costs import costs, describe, headline, shape
from converter.commands.inspect import about, facts, precision, summary
from converter.commands.verify.cause import input_label, kind, layer_of, location_of, show
from converter.commands.view import constants, scopes, weights
from converter.commands.view.families import family
from converter.commands.view.scopes import BODY, LAYER, PREFIX, Step
from converter.graph.build import attrs_of
from converter.graph.channels_last import as_in_file
from converter.graph.infer import constant
from converter.graph.names import public_name
from converter.graph.network import Network
from converter.graph.walk import all_nodes, constant_nodes, subgraphs
from converter.io.strict_json import Json

TEXT = 300  # characters of an attribute


@dataclass
class Drawing:
    """The `nodes`, `edges`, `scopes` and `weights` are plain data for the page; `places` maps each
    layer to the index of its node. A layer in `folded`, which has no node of its own, belongs to
    the node of a layer that reads its result.
    """

    nodes: list[Json] = field(default_factory=list)
    edges: list[tuple[int, int, str]] = field(default_factory=list)
    scopes: list[Json] = field(default_factory=list)
    weights: list[Json] = field(default_factory=list)
    places: dict[ir.Node, int] = field(default_factory=dict)
    folded: set[ir.Node] = field(default_factory=set)
    about: Json = field(default_factory=dict)

    def as_json(self) -> Json:
        """Return the drawing as plain data."""
        shown = ("nodes", "edges", "scopes", "weights", "about")
        return {k: getattr(self, k) for k in shown}


def draw(model: Network, name: str) -> Drawing:
    """Draw a model under the name `name`."""
    producer = _Maker(model)
    producer.graph(model.ir.graph, ())
    made = producer.drawing
    kinds = [n["k"] for n in made.nodes]
    names = [n["n"] for n in made.nodes]
    folded = scopes.fold(producer.paths, kinds, names, [(a, b) for a, b, _ in made.edges])
    for node, location in zip(made.nodes, folded.of, strict=True):
        node["scope"] = location
    made.scopes = folded.scopes
    overview = summary(model)
    shown = {k: overview[k] for k in ("inputs", "outputs", "layers", "operators", "weights")}
    made.about = {"name": name, **shown, "facts": [*_facts(model)]}
    return made


def _facts(model: Network) -> Iterator[tuple[str, str]]:
    """Yield the facts of a model, as titles and texts."""
    said = about(model)
    yield "format", f"{model.format} ({said['format']})" if "format" in said else model.format
    yield from facts(said)
    if stored := precision(model):
        yield "weights are", stored
    yield "costs", headline(costs(model.ir))


def described(value: ir.Value) -> str:
    """Describe a tensor with the shape that it has in the file, and with its scale."""
    dims = value.shape
    sizes = None if dims is None else [d if isinstance(d, int) else d.value for d in dims]
    kind = "?" if value.dtype is None else str(value.dtype).lower()
    scale = constants.scale_of(value)
    text = f"{kind}{shape(None if sizes is None else as_in_file(value, sizes))}"
    return f"{text}, {scale}" if scale else text


class _Maker:
    """Visit a model in the order of execution; bodies come before the layer that owns them."""

    def __init__(self, model: Network) -> None:
        self.drawing = Drawing()
        self.paths: list[tuple[Step, ...]] = []
        self._made: dict[ir.Value, int] = {}  # value -> the drawn node that produces it
        self._known: dict[ir.Value, int] = {}  # constant -> its index in `weights`
        self._parts = _splitter(layer_of(n) for n in all_nodes(model.ir.graph))
        self._format = model.format
        self._texts: dict[ir.Value, str] = {}
        self._fixed = constant_nodes(model.ir.graph)
        self.drawing.folded |= self._fixed
        if model.format != "onnx":  # a file of integers has no such layers
            self.drawing.folded |= {n for n in all_nodes(model.ir.graph) if _of_reading(n)}
        self._size = _sizes(model.ir.graph, self.drawing.folded)

    def graph(self, graph: ir.Graph, around: tuple[Step, ...]) -> None:
        for value in graph.inputs:
            self._made[value] = self._port("input", value, around)
        for node in graph:
            if node in self.drawing.folded:
                self._fold(node)
            else:
                self._node(node, around)
        for value in graph.outputs if not around else ():
            location = self._port("output", value, around)
            self._link(value, location)

    def _port(self, what: str, value: ir.Value, around: tuple[Step, ...]) -> int:
        name = public_name(value)
        overview = [["", name, self._described(value), -1]]
        data = {"k": what, "n": name, "port": what, "out" if what == "input" else "in": overview}
        return self._add(data, around)

    def _add(self, data: Json, path: tuple[Step, ...]) -> int:
        self.drawing.nodes.append(data)
        self.paths.append(path)
        return len(self.paths) - 1

    def _own(self, node: ir.Node) -> str:
        """Return the operator as the file calls it; "" if it is not from this file."""
        props = node.metadata_props
        return props.get("netconv.type", "") if props.get("netconv.format") == self._format else ""

    def _described(self, value: ir.Value) -> str:
        if value not in self._texts:
            self._texts[value] = described(value)
        return self._texts[value]

    def _fold(self, node: ir.Node) -> None:
        """Remove a node from the drawing: its consumers are connected with the producer of its
        operand.
        """
        source = self._made.get(node.inputs[0]) if node.inputs[0] is not None else None
        if source is not None:
            self._made[node.outputs[0]] = source

    def _node(self, node: ir.Node, around: tuple[Step, ...]) -> None:
        layer = layer_of(node)
        props = node.metadata_props
        path = around + tuple((PREFIX, p) for p in self._parts(layer)[:-1])
        leaf = self._parts(layer)[-1]
        bodies = [a for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]
        if self._size.get(props.get("netconv.layer", "")) or bodies:
            title = f"{leaf} ({self._own(node) or kind(node)})"
            path = (*path, (LAYER if not bodies else BODY, title))
        for attribute in bodies:
            self.graph(attribute.as_graph(), (*path, (BODY, attribute.name)))
        data: Json = {"k": kind(node), "n": layer, "f": family(kind(node))}
        data |= {
            key: text
            for key, text in (
                ("t", self._own(node)),
                ("w", _location(node)),
            )
            if text and text != data["k"]
        }
        attributes = [[k, show(v)[:TEXT]] for k, v in sorted(attrs_of(node).items()) if _plain(v)]
        data |= {"a": attributes} if attributes else {}
        data["in"] = [
            [input_label(node, i), *self._input(v)] for i, v in enumerate(node.inputs) if v
        ]
        data["out"] = [["", str(o.name), self._described(o), -1] for o in node.outputs if o.name]
        location = self._add(data, path)
        self.drawing.places[node] = location
        for value in node.inputs:
            self._belongs(value, location)
        self._made.update((o, location) for o in node.outputs)
        for value in dict.fromkeys(v for v in node.inputs if v is not None):
            self._link(value, location)
        for body in subgraphs(node):
            for value in body.outputs:
                self._link(value, location)

    def _link(self, value: ir.Value, location: int) -> None:
        source = self._made.get(value)
        if source is not None and source != location:
            value = self._unfolded(value)
            self.drawing.edges.append((source, location, f"{value.name} {self._described(value)}"))

    def _belongs(self, value: ir.Value | None, location: int) -> None:
        """Assign the folded layers that compute a value to a node that reads it."""
        node = value.producer() if value is not None else None
        if node in self.drawing.folded and node not in self.drawing.places:
            self.drawing.places[node] = location
            for v in node.inputs:
                self._belongs(v, location)

    def _unfolded(self, value: ir.Value) -> ir.Value:
        """Return the value of the file from which a folded layer computes this one."""
        node = value.producer()
        if node is None or node not in self.drawing.folded or node in self._fixed:
            return value
        assert node.inputs[0] is not None
        return node.inputs[0]

    def _input(self, value: ir.Value) -> tuple[str, str, int]:
        """Return name, description and weight (-1 for a computed value) of an operand."""
        value = self._unfolded(value)
        return str(value.name), self._described(value), self._weight(value)

    def _weight(self, value: ir.Value) -> int:
        """Return the index of a constant in `weights`, -1 for computed values."""
        fixed = value.producer() in self._fixed
        if (value.producer() is not None and not fixed) or value.is_graph_input():
            return -1
        if value not in self._known:
            source = constants.stored(value)
            array = constant(source)
            if array is None:
                return -1
            tensor = source.const_value
            size = int(array.nbytes if tensor is None else tensor.nbytes)
            data = {
                "n": str(source.name),
                "d": describe(source) if fixed else self._described(source),
                "bytes": size,
            }
            if fixed:
                data["steps"] = [*constants.steps(value)]
            self._known[value] = len(self.drawing.weights)
            self.drawing.weights.append(data | weights.described(array))
        return self._known[value]


def _plain(value: Any) -> bool:
    return not isinstance(value, ir.Graph)


def _location(node: ir.Node) -> str:
    """Return the location of a node in its file."""
    found = location_of(node)
    return f"line {found}" if found.isdecimal() else found


def _of_reading(node: ir.Node) -> bool:
    """Return whether a node only turns stored integers into numbers, as no layer of the file."""
    scale = node.inputs[1] if len(node.inputs) > 1 else None
    return (
        node.op_type == "DequantizeLinear"
        and "netconv.layer" not in node.metadata_props
        and constant(scale) is not None
        and not node.outputs[0].is_graph_output()
    )


def _sizes(graph: ir.Graph, folded: Collection[ir.Node]) -> dict[str, bool]:
    """Return, for each layer of the file, whether it is several operators here."""
    found: dict[str, bool] = {}
    for node in all_nodes(graph):
        if node in folded:
            continue
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
