"""One node as operators of a TensorFlow Lite file, and back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.api import Model
from converter.engines import litert
from converter.errors import Where
from converter.formats.tflite.codec import (
    LiteGraph,
    LiteModel,
    LiteOperator,
    LiteTensor,
    read_flat,
    write_flat,
)
from converter.formats.tflite.collector import LiteLowering
from converter.formats.tflite.lift import GraphLifting
from converter.formats.tflite.lower import FileWriter, GraphWriter, States
from converter.formats.tflite.mapping import MAPPING
from converter.formats.tflite.rules.context import LiftContext
from converter.formats.tflite.tensors import shape_in_graph, type_of
from converter.formats.tflite.versions import version_of
from converter.graph.build import Builder
from converter.graph.infer import RANDOM
from converter.graph.network import Network
from converter.graph.states import Variables
from converter.io.files import Output
from converter.mapping.lifting import refuse
from converter.mapping.node import Layer, Node
from converter.mapping.rules import Rule, Table
from laws.adapters import Adapter, ReadBack, Sample, as_declared, computed_before
from laws.numbers import feeds_of


class TFLiteAdapter(Adapter):
    """Layers are the operators of a file's only subgraph: all tensors are inputs."""

    rtol, atol = 1e-4, 1e-5
    symmetric = False

    def __init__(self) -> None:
        super().__init__("tflite", MAPPING)

    def write(self, by: Rule | Table, rule: Rule, node: Node, b: Builder, version: int) -> Sample:
        low = LiteLowering(MAPPING)
        by.lower(low.writing(node))
        before = computed_before(low.layers, b)
        written = file_of(low, node, b, before)
        lite = read_again(written)
        layers = [layer_of(o, lite.graphs[0]) for o in lite.graphs[0].operators]
        return Sample(rule, node, layers, b, version, (lite, [*before, *b.graph.inputs], written))

    def add_operand(self, s: Sample) -> ir.Value:
        lite, inputs, _ = s.file
        graph = lite.graphs[0]
        value, index = s.b.input("surplus", ir.DataType.FLOAT, [2, 3]), len(graph.tensors)
        graph.tensors.append(LiteTensor("surplus", 0, [2, 3]))
        graph.inputs.append(index)
        inputs.append(value)
        graph.operators[s.own].inputs.append(index)
        return value

    def read_back(self, s: Sample) -> ReadBack:
        return FileReadBack(self, s)

    def judge(self, s: Sample, folder: Path) -> None:
        """LiteRT computes the same as the node."""
        lite, inputs, written = s.file
        path = folder / "one.tflite"
        with Output(path) as out:
            write_flat(written, out)
        b, outputs = s.b, s.node.outputs
        b.graph.outputs.clear()
        before = [v for v in inputs if v not in b.graph.inputs]
        b.output(*outputs, *before)
        model = Model(ir.Model(b.graph, ir_version=10), "onnx")
        feeds = feeds_of(model, s.node.op)
        results = list(model.run(feeds).values())
        given = [*results[len(outputs) :], *feeds.values()]
        types = [type_of(lite.graphs[0].tensors[i]).numpy() for i in lite.graphs[0].inputs]
        found = litert.invoke(path, [v.astype(t) for v, t in zip(given, types, strict=True)])
        if s.node.op in RANDOM:
            drawn, a = found[0], s.node.attrs
            assert drawn.shape == tuple(s.node.outputs[0].shape or ())
            middle, width = a.get("mean"), a.get("scale")
            if "low" in a:
                middle, width = (a["low"] + a["high"]) / 2, (a["high"] - a["low"]) / 12**0.5
            np.testing.assert_allclose([drawn.mean(), drawn.std()], [middle, width], atol=0.15)
            return
        for expected, actual in zip(results, found, strict=False):
            assert actual.shape == expected.shape
            actual = actual.astype(np.float64) if actual.dtype.kind == "f" else actual
            np.testing.assert_allclose(actual, expected, rtol=self.rtol, atol=self.atol)


class OneNode(GraphWriter):
    """A subgraph of the operators that a row wrote."""

    def __init__(
        self, file: FileWriter, lite: LiteGraph, low: LiteLowering, before: list[ir.Value]
    ) -> None:
        super().__init__(file, lite)
        self.low, self.before = low, before

    def _lowered(
        self, nodes: Iterable[ir.Node], more: Iterable[Layer], outputs: Sequence[ir.Value]
    ) -> list[Layer]:
        self.low.spread_scales()
        for value in self.before:
            self.lite.inputs.append(self._input(value))
        return self.low.layers


def file_of(low: LiteLowering, node: Node, b: Builder, before: list[ir.Value]) -> LiteModel:
    """The file with nothing but the operators of a row; MappingError where there is none."""
    file, main = FileWriter(False, True, []), LiteGraph("main")
    file.file.graphs.append(main)
    b.graph.outputs.clear()
    b.output(*node.outputs)
    network = Network(ir.Model(b.graph, ir_version=10), "onnx")
    OneNode(file, main, low, before).network(b.graph, States(network, b.graph))
    refuse(file.problems)
    for operator in main.operators:
        operator.version = version_of(operator, main.tensors)
    return file.file


def read_again(lite: LiteModel) -> LiteModel:
    """The model of a file with this one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.tflite"
        with Output(path) as out:
            write_flat(lite, out)
        return read_flat(path)


def layer_of(operator: LiteOperator, graph: LiteGraph) -> Layer:
    """An operator as the laws compare it: tensors by their names, constants by elements."""
    kind = kind_of(operator)
    content = {"content": operator.content} if operator.custom else {}
    attrs = {**operator.options, **content}
    attrs["inputs"] = [_tensor(graph, i) for i in operator.inputs]
    return Layer(kind, attrs=attrs)


def kind_of(operator: LiteOperator) -> str:
    return operator.custom if operator.builtin == "CUSTOM" else operator.builtin


def _tensor(graph: LiteGraph, index: int) -> Any:
    if index < 0:
        return None
    tensor = graph.tensors[index]
    if tensor.data is None:
        return tensor.name if index in graph.inputs else "", tensor.type, tensor.scales
    return np.asarray(tensor.data).tolist(), tensor.type, tensor.scales


class FileReadBack(ReadBack):
    def __init__(self, adapter: Adapter, s: Sample) -> None:
        super().__init__(adapter, s)
        lite, inputs, _ = s.file
        self.graph = GraphLifting(lite, 0, s.b, "", Variables(s.b))
        for index, value in zip(self.graph.subgraph.inputs, inputs, strict=True):
            self.graph.values[index] = self._entered(value, index)

    def _entered(self, value: ir.Value, index: int) -> ir.Value:
        """An input of the graph in the type that the file has for it."""
        dtype = type_of(self.graph.tensors[index])
        assert len(shape_in_graph(self.graph.tensors[index])) == len(value.shape or ())
        return value if value.dtype == dtype else self.sample.b.op("Cast", value, to=int(dtype))

    def reading(self, index: int) -> LiftContext:
        operator = self.graph.subgraph.operators[index]
        where = Where(kind=kind_of(operator))
        return self.graph.reading(self.graph.layer_of(operator, where))

    def enter(self, index: int, results: Sequence[ir.Value]) -> None:
        operator = self.graph.subgraph.operators[index]
        stored = self.graph.stored(operator, results)
        self.graph.values |= dict(zip(operator.outputs, stored, strict=False))

    def results(self) -> list[tuple[ir.Value, ir.Value]]:
        found = [self.graph.value(i) for i in self.graph.subgraph.outputs]
        pairs = zip(self.sample.node.outputs, found, strict=True)
        return [(v, as_declared(v, y, self.sample.b)) for v, y in pairs]
