"""The shared graph -> Document."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, Where
from converter.formats.format import PADDED, Flavor
from converter.formats.zhouyi import fused
from converter.formats.zhouyi.bodies import GraphBody
from converter.formats.zhouyi.ir import (
    Constant,
    Document,
    Graph,
    Layer,
    Tensor,
    build_document,
    build_subgraph,
)
from converter.formats.zhouyi.mapping import MAPPING
from converter.formats.zhouyi.names import legalize_names
from converter.formats.zhouyi.pipeline import PIPELINE
from converter.formats.zhouyi.types import NARROW, dtype_name
from converter.formats.zhouyi.values import DType
from converter.graph.infer import shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import Names, public_name
from converter.graph.network import Network
from converter.mapping.lifting import refuse
from converter.mapping.lowering import Lowering
from converter.mapping.narrow import Narrowing, narrow_array
from converter.mapping.node import Layer as FarLayer
from converter.passes.pipeline import Context, run_passes


def lower(
    model: Network, flavor: Flavor, notes: list[Diagnostic]
) -> tuple[Document, dict[str, str]]:
    """Return a Document of the graph, and the names that had to change (name in the file -> public
    name).

    Raise UnsupportedError with everything that has no counterpart: X203 for shapes that are not
    static, X204 for constants that do not fit their narrower type, X201 and X202 for operators.
    """
    graph = model.ir.clone()
    run_passes(PIPELINE, graph, Context(model, flavor.io_layout, notes, PADDED in flavor.options))
    layers, problems = lowered(graph.graph)
    refuse(problems)
    notes.extend(d for d in problems if d.level != "error")
    writer = DocumentWriter(graph.graph, notes)
    writer.run(layers)
    refuse(writer.problems)
    return writer.document(model.ir.graph.name or "model")


def lowered(graph: ir.Graph) -> tuple[list[FarLayer], list[Diagnostic]]:
    """Return the layers of a graph, bodies included (`extra` of an If or a Loop), and the nodes
    without layer.
    """
    low = Lowering(MAPPING)
    for node in graph:
        low.node(node)
    problems = [*low.problems, *low.notes]
    for layer in low.layers:
        for body in layer.extra or ():
            body.layers, more = lowered(body.graph)
            problems += more
    return fused.fuse(once(low.layers)), problems


def once(layers: list[FarLayer]) -> list[FarLayer]:
    """Merge equal transposes of the same data: both directions of a recurrent network read the
    steps.
    """
    known: dict[tuple[ir.Value | None, tuple[int, ...]], ir.Value] = {}
    result = []
    for layer in layers:
        if layer.kind == "Transpose":
            (out,), transposed = layer.outputs, (layer.inputs[0], tuple(layer.attrs["perm"]))
            first = known.setdefault(transposed, out)
            if first is not out:
                layer = FarLayer("=", layer.name, inputs=[first], outputs=[out])
        result.append(layer)
    return result


class DocumentWriter:
    """Write a document: names of tensors, Constant layers before their first user,
    narrower types.
    """

    def __init__(
        self, graph: ir.Graph, notes: list[Diagnostic], outer: DocumentWriter | None = None
    ) -> None:
        self.graph = graph
        self.notes = notes
        self.narrowing: Narrowing = outer.narrowing if outer else Narrowing(NARROW, notes)
        self.problems: list[Diagnostic] = outer.problems if outer else []
        self.layers: list[Layer] = []
        self.names: dict[ir.Value, str] = {}
        # names are unique in the whole file, sub-graphs included
        self.tensor_names: Names = outer.tensor_names if outer else Names()
        self.layer_names: Names = outer.layer_names if outer else Names()
        self.subgraphs: list[Graph] = outer.subgraphs if outer else []
        self.constants: set[ir.Value] = set()  # those that are written
        self.same: dict[ir.Value, ir.Value] = {}
        self.public: dict[str, str] = {}

    def run(self, layers: list[FarLayer]) -> None:
        """Write the layers, after the inputs of the graph."""
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
        """Give inputs and outputs their public names first; another value that is the same tensor
        gets that name, too.
        """
        for value in self.graph.inputs:
            self._name(value, public_name(value))
        for value in self.graph.outputs:
            root = self._root(value)
            if (
                root is not value
                and root not in self.names
                and root.const_value is None
                and root.graph is self.graph
                and not root.is_graph_output()
            ):
                self._name(root, public_name(value))
                self.names[value] = self.names[root]
            elif value not in self.names:
                self.same.pop(value, None)
                self._name(value, public_name(value))

    def _name(self, value: ir.Value, hint: str) -> str:
        if value not in self.names:
            self.names[value] = name = self.tensor_names.fresh(hint or "tensor")
            if value.is_graph_input() or value.is_graph_output():
                self.public[name] = hint
        return self.names[value]

    def _copy(self, layer: FarLayer) -> None:
        """Copy a value only at the boundary, where one tensor needs two names: there is no identity
        layer, but a Reshape to the same shape.
        """
        value = layer.outputs[0]
        if value in self.same:
            return
        source = layer.inputs[0]
        assert source is not None
        shape = {"shape": list(shape_of(value) or ())}
        self._layer(FarLayer("Reshape", layer.name, shape, {}, [source], [value]))

    def _layer(self, layer: FarLayer) -> None:
        inputs = [self._operand(v) for v in layer.inputs if v is not None]
        constants = {k: self._constant(v, f"{layer.name}.{k}") for k, v in layer.blobs.items()}
        for body in layer.extra or ():
            self._body(body, layer)
        stored = {k: c for k, c in constants.items() if c is not None}
        name = layer.name or layer.kind
        self._add(layer.kind, name, inputs, layer.outputs, layer.attrs, stored)

    def _body(self, body: GraphBody, layer: FarLayer) -> None:
        """Write a separate sub-graph, named by the attribute `body.key`; its inputs are all of its
        operands.
        """
        index = len(self.subgraphs)
        name = f"{body.key}_{index}"
        self.subgraphs.append(build_subgraph(name, [], [], []))
        inner = DocumentWriter(body.graph, self.notes, self)
        for value in body.inputs:
            inner._add("Input", str(value.name), [], [value])
        inner.run(body.layers)
        outputs = [inner.names[inner._root(v)] for v in body.outputs]
        inputs = [inner.names[v] for v in body.inputs]
        self.subgraphs[index] = build_subgraph(name, inner.layers, inputs, outputs)
        layer.attrs[body.key] = name

    def _operand(self, value: ir.Value) -> ir.Value:
        value = self._root(value)
        if value.const_value is not None and value not in self.constants:
            self.constants.add(value)
            name = str(value.name)
            if value.const_value.size == 0:
                message = f"{name} is an empty constant, which Zhouyi's tools do not read"
                where = Where(layer=name, kind="Constant")
                help = "omit its consumers with --outputs"
                self.problems.append(Diagnostic("X203", message, where=where, help=help))
            constant = self._constant(value.const_value, name)
            if constant is not None:
                self._add("Constant", name, [], [value], constants={"weights": constant})
        return value

    def _constant(self, data: Any, name: str) -> Constant | None:
        """Return the constant of a tensor or an array."""
        tensor = data if isinstance(data, ir.TensorProtocol) else LazyTensor(np.asarray(data))
        target = NARROW.get(tensor.dtype, tensor.dtype)
        try:
            dtype = dtype_name(target)
            if target == tensor.dtype:
                return Constant.of(LazyTensor.of(tensor).decoded(), dtype)
            return Constant.of(narrow_array(tensor.numpy(), target.numpy(), name), dtype)
        except MappingError as e:
            self.problems.append(Diagnostic(e.code, str(e)))
            return None

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
        bottoms = [self._tensor(v, name) for v in inputs]
        entries = {k: plain(v) for k, v in (attrs or {}).items()} | self._more(outputs)
        name = self.layer_names.fresh(name or kind)
        self.layers.append(Layer(name, kind, bottoms, tops, entries, constants or {}))

    def _more(self, outputs: list[ir.Value]) -> dict[str, Any]:
        """Return further keys of a layer; none in a float IR."""
        return {}

    def _tensor(self, value: ir.Value, hint: str) -> Tensor:
        name, shape = self._name(value, str(value.name or hint)), shape_of(value)
        try:
            if shape is None or value.dtype is None:
                raise MappingError(
                    f"{name} has the shape {value.shape}, the target needs static shapes", "X203"
                )
            return Tensor(name, shape, dtype_name(self.narrowing.dtype(value)))
        except MappingError as e:
            self.problems.append(Diagnostic(e.code, str(e), where=Where(layer=hint)))
            return Tensor(name, shape or (), DType.FLOAT32)

    def _main_constant(self) -> None:
        """Add a constant to a main graph without constants: otherwise the vendor's reader reads no
        constants from the .bin for sub-graphs either.
        """
        if any(x.constants for x in self.layers) or not any(
            x.constants for g in self.subgraphs for x in g.layers
        ):
            return
        value = ir.Value(name="unused", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1]))
        value.const_value = LazyTensor(np.zeros(1, np.float32))
        self._operand(value)
        self.layers.insert(sum(x.type == "Input" for x in self.layers), self.layers.pop())

    def document(self, name: str) -> tuple[Document, dict[str, str]]:
        """Return the document with legal names, and the public names of boundary tensors that are
        called otherwise in the file.
        """
        self._main_constant()
        inputs, outputs = (
            [self.names[self._root(v)] for v in values]
            for values in (self.graph.inputs, self.graph.outputs)
        )
        document = build_document(name, self.layers, inputs, outputs, subgraphs=self.subgraphs)
        renaming = legalize_names(document)
        changed = {renaming.tensors.get(n, n): public for n, public in self.public.items()}
        return document, {n: public for n, public in changed.items() if n != public}


def plain(value: Any) -> Any:
    """Convert numpy's numbers to Python's."""
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value
