"""The shared graph -> Document."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.diagnostics import Diagnostic, Where
from converter.format import Flavour
from converter.formats.zhouyi import fused
from converter.formats.zhouyi.bodies import Body, count_turns
from converter.formats.zhouyi.ir import Array, Constant, Document, Graph, Layer, Tensor, build_document, build_subgraph
from converter.formats.zhouyi.mapping import mapping
from converter.formats.zhouyi.names import legalise_names
from converter.formats.zhouyi.rewrites import REWRITES
from converter.formats.zhouyi.types import NARROW, dtype_name
from converter.formats.zhouyi.values import DType
from converter.graph import EXTENSION_DOMAIN
from converter.graph.infer import shape_of
from converter.graph.names import public_name
from converter.graph.shapes import infer_all
from converter.mapping.drive import Lowering, reason_against, refuse
from converter.mapping.narrow import Narrowing, dynamic_values, narrow_array, other_values
from converter.mapping.node import Layer as FarLayer
from converter.mapping.node import MappingError
from converter.model import Model
from converter.passes.channels_last import to_last
from converter.passes.constants import plain_weights
from converter.passes.fold import fold
from converter.passes.legalise import legalise
from converter.passes.merge import merge
from converter.passes.unroll import unroll


def lower(model: Model, flavour: Flavour, notes: list[Diagnostic]) -> tuple[Document, dict[str, str]]:
    """A Document of the graph, and the names that had to change (name in the file -> public name).

    UnsupportedError with everything that has no counterpart: X203 for shapes that are not static, X204 for constants that
    do not fit their narrower type, X201 and X202 for operators.
    """
    refuse(other_values(model.ir, "Zhouyi"))
    graph = model.ir.clone()
    fold(graph)
    plain_weights(graph)
    merge(graph)
    legalise(graph, hides_loop, {})
    static_loops(graph)
    refuse(dynamic_values(graph))
    legalise(graph, lambda n: reason_against(mapping(), n) is not None, REWRITES)
    if static_loops(graph):
        legalise(graph, lambda n: reason_against(mapping(), n) is not None, REWRITES)
    fold(graph)
    count_turns(graph)
    notes.extend(to_last(graph, flavour.io_layout or "keep"))
    layers, problems = lowered(graph.graph)
    refuse(problems)
    writer = DocumentWriter(graph.graph, notes)
    writer.run(layers)
    refuse(writer.problems)
    return writer.document(model.ir.graph.name or "model")


def hides_loop(node: ir.Node) -> bool:
    """An extension operator whose results have shapes that only its definition, written out, can tell."""
    return (
        node.domain == EXTENSION_DOMAIN
        and any(shape_of(o) is None for o in node.outputs)
        and all(shape_of(v) is not None for v in node.inputs if v is not None)
    )


def static_loops(graph: ir.Model) -> bool:
    """Writes out loops and choices that are known beforehand; whether there were any."""
    found = unroll(graph)
    if found:
        infer_all(graph)
        fold(graph)
    return found


def lowered(graph: ir.Graph) -> tuple[list[FarLayer], list[Diagnostic]]:
    """The layers of a graph, bodies included (`extra` of an If or a Loop), and what has none."""
    low = Lowering(mapping())
    for node in graph:
        low.node(node)
    problems = list(low.problems)
    for layer in low.layers:
        for body in layer.extra or ():
            body.layers, more = lowered(body.graph)
            problems += more
    return fused.fuse(once(low.layers)), problems


def once(layers: list[FarLayer]) -> list[FarLayer]:
    """The same data turned in the same way twice are turned once: both directions of a recurrent network read the steps."""
    known: dict[tuple[ir.Value | None, tuple[int, ...]], ir.Value] = {}
    result = []
    for layer in layers:
        if layer.kind == "Transpose":
            first = known.setdefault((layer.inputs[0], tuple(layer.attrs["perm"])), layer.outputs[0])
            layer = layer if first is layer.outputs[0] else FarLayer("=", layer.name, {}, {}, [first], list(layer.outputs))
        result.append(layer)
    return result


class DocumentWriter:
    """Names tensors, writes Constant layers in front of their first reader, narrows types."""

    def __init__(self, graph: ir.Graph, notes: list[Diagnostic], outer: DocumentWriter | None = None) -> None:
        self.graph = graph
        self.notes = notes
        self.narrowing: Narrowing = outer.narrowing if outer else Narrowing(NARROW, notes)
        self.problems: list[Diagnostic] = outer.problems if outer else []
        self.layers: list[Layer] = []
        self.names: dict[ir.Value, str] = {}
        # names are unique in the whole file, sub-graphs included
        self.taken: set[str] = outer.taken if outer else set()
        self.layer_names: set[str] = outer.layer_names if outer else set()
        self.subgraphs: list[Graph] = outer.subgraphs if outer else []
        self.same: dict[ir.Value, ir.Value] = {}
        self.public: dict[str, str] = {}

    def run(self, layers: list[FarLayer]) -> None:
        written = set(self.names)  # the inputs of a body
        for layer in layers:
            if layer.kind == "=":
                source = layer.inputs[0]
                assert source is not None
                self.same[layer.outputs[0]] = self._root(source)
        self._claim()
        for value in self.graph.inputs:
            if value not in written:
                self._add("Input", public_name(value), [], [value])
        for layer in layers:
            if layer.kind == "=":
                self._copy(layer)
            else:
                self._layer(layer)
        for value in self.graph.outputs:
            if value.producer() is None and value.const_value is not None:
                self._operand(value)

    def _root(self, value: ir.Value) -> ir.Value:
        return self.same.get(value, value)

    def _claim(self) -> None:
        """Boundary tensors get their public names first; an output that is the same tensor as another value lends it its name."""
        for value in self.graph.inputs:
            self._name(value, public_name(value))
        for value in self.graph.outputs:
            root = self._root(value)
            if root is not value and root not in self.names and root.const_value is None and root.graph is self.graph and not root.is_graph_output():
                self._name(root, public_name(value))
                self.names[value] = self.names[root]
            elif value not in self.names:
                self.same.pop(value, None)
                self._name(value, public_name(value))

    def _name(self, value: ir.Value, hint: str) -> str:
        if value not in self.names:
            name, count = hint or "tensor", 0
            while name in self.taken:
                count += 1
                name = f"{hint}_{count}"
            self.taken.add(name)
            self.names[value] = name
            if value.is_graph_input() or value.is_graph_output():
                self.public[name] = hint
        return self.names[value]

    def _copy(self, layer: FarLayer) -> None:
        """Two names for one tensor need a layer only at the boundary: there is none that does nothing, but a Reshape to the same shape."""
        value = layer.outputs[0]
        if value in self.same:
            return
        source = layer.inputs[0]
        assert source is not None
        self._layer(FarLayer("Reshape", layer.name, {"shape": list(shape_of(value) or ())}, {}, [source], [value]))

    def _layer(self, layer: FarLayer) -> None:
        inputs = [self._operand(v) for v in layer.inputs if v is not None]
        constants = {k: self._constant(v, f"{layer.name}.{k}") for k, v in layer.blobs.items()}
        for body in layer.extra or ():
            self._body(body, layer)
        self._add(layer.kind, layer.name or layer.kind, inputs, layer.outputs, layer.attrs, {k: c for k, c in constants.items() if c is not None})

    def _body(self, body: Body, layer: FarLayer) -> None:
        """A sub-graph of its own, named by the attribute `body.key`; its inputs are all that it reads."""
        index = len(self.subgraphs)
        name = f"{body.key}_{index}"
        self.subgraphs.append(build_subgraph(name, [], [], []))
        inner = DocumentWriter(body.graph, self.notes, self)
        for value in body.inputs:
            inner._add("Input", str(value.name), [], [value])
        inner.run(body.layers)
        outputs = [inner.names[inner._root(v)] for v in body.outputs]
        self.subgraphs[index] = build_subgraph(name, inner.layers, [inner.names[v] for v in body.inputs], outputs)
        layer.attrs[body.key] = name

    def _operand(self, value: ir.Value) -> ir.Value:
        value = self._root(value)
        if (value.const_value is not None and value not in self.names) or (value.const_value is not None and value.is_graph_output()):
            if not any(t.name == self.names.get(value) for x in self.layers[-1:] for t in x.outputs):
                self._name(value, str(value.name))
            constant = self._constant(value.const_value.numpy(), str(value.name))
            if constant is not None:
                self._add("Constant", str(value.name), [], [value], constants={"weights": constant})
        return value

    def _constant(self, array: Array, name: str) -> Constant | None:
        """A constant whose bytes are made when they are written."""
        array = np.asarray(array)
        own = ir.DataType.from_numpy(array.dtype)
        target = NARROW.get(own, own)
        try:
            dtype = dtype_name(target)
            if target != own:
                array = narrow_array(array, target.numpy(), name)
        except MappingError as e:
            self.problems.append(Diagnostic(e.code, str(e)))
            return None
        return Constant.lazy(dtype, tuple(array.shape), lambda: array)

    def _add(
        self,
        kind: str,
        name: str,
        inputs: list[ir.Value],
        outputs: list[ir.Value],
        attrs: dict[str, Any] | None = None,
        constants: dict[str, Constant] | None = None,
    ) -> None:
        tops = [self._tensor(v, name) for v in outputs]
        unique, count = name or kind, 0
        while unique in self.layer_names:
            count += 1
            unique = f"{name}_{count}"
        self.layer_names.add(unique)
        bottoms = [self._tensor(v, name) for v in inputs]
        self.layers.append(Layer(unique, kind, bottoms, tops, {k: plain(v) for k, v in (attrs or {}).items()} | self._more(outputs), constants or {}))

    def _more(self, outputs: list[ir.Value]) -> dict[str, Any]:
        """What a layer says besides its own attributes; nothing in a float IR."""
        return {}

    def _tensor(self, value: ir.Value, hint: str) -> Tensor:
        name, shape = self._name(value, str(value.name or hint)), shape_of(value)
        try:
            if shape is None or value.dtype is None:
                raise MappingError(f"{name} has the shape {value.shape}, the target needs static shapes", "X203")
            return Tensor(name, shape, dtype_name(self.narrowing.dtype(value)))
        except MappingError as e:
            self.problems.append(Diagnostic(e.code, str(e), where=Where(layer=hint)))
            return Tensor(name, shape or (), DType.FLOAT32)

    def _main_constant(self) -> None:
        """The vendor's reader takes nothing from the .bin for a sub-graph when it needed nothing for the main graph: then that gets a constant, too."""
        if any(x.constants for x in self.layers) or not any(x.constants for g in self.subgraphs for x in g.layers):
            return
        value = ir.Value(name="unused", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1]))
        value.const_value = ir.Tensor(np.zeros(1, np.float32))
        self._operand(value)
        self.layers.insert(sum(x.type == "Input" for x in self.layers), self.layers.pop())

    def document(self, name: str) -> tuple[Document, dict[str, str]]:
        """The document with legal names, and the public names of boundary tensors that are called otherwise in the file."""
        self._main_constant()
        inputs, outputs = ([self.names[self._root(v)] for v in values] for values in (self.graph.inputs, self.graph.outputs))
        document = build_document(name, self.layers, inputs, outputs, subgraphs=self.subgraphs)
        renaming = legalise_names(document)
        changed = {renaming.tensors.get(n, n): public for n, public in self.public.items()}
        return document, {n: public for n, public in changed.items() if n != public}


def plain(value: Any) -> Any:
    """Python numbers for numpy's."""
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value
