"""Adapters with which the laws write one node with a row of a format, and read the layers back.

An `Adapter` writes a sample node with one row, or with the whole table, and gives its layers. A
`ReadBack` reads them again, one after the other, into the graph of the node, so that both can be
compared there. The classes of this module serve formats whose layers are a list of `Layer`; the
other modules of this folder are those of formats with operands, tensors or messages around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.infer import constant, rank_of
from converter.mapping.context import LiftContext
from converter.mapping.lifting import FormatMapping, Lifting
from converter.mapping.node import Layer, Node
from converter.mapping.rules import Rule, Table
from mapping_samples import sample


@dataclass
class Sample:
    """A node and the layers that a row wrote of it.

    `b`     the builder of its graph, whose only node it is
    `file`  the container of the layers, where the format has more than layers
    `context`, `attrs`: the operands and attributes of the node
    """

    rule: Rule
    node: Node
    layers: list[Layer]
    b: Builder
    version: int
    file: Any = None
    context: str = ""
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def own(self) -> int:
        """The position of the row's layer among those that it writes."""
        kinds = [layer.kind for layer in self.layers]
        return max((i for i, k in enumerate(kinds) if k == self.rule.kind), default=len(kinds) - 1)


class Adapter:
    """A format whose layers are a list. `rtol` and `atol` are those of its numbers."""

    rtol, atol = 1e-5, 1e-6
    symmetric = True  # rows that only read are of fields that work both ways

    def __init__(self, name: str, mapping: FormatMapping) -> None:
        self.name, self.mapping = name, mapping

    @property
    def table(self) -> Table:
        return self.mapping.table

    def has_sample(self, rule: Rule) -> bool:
        """Whether the row writes a layer, be it only for the laws."""
        return not (rule.lift_only and (rule.has_hook or not self.symmetric))

    def versions(self, rule: Rule) -> Sequence[int]:
        """Versions at which the row may hold; the first that has a sample is taken."""
        newest = max((r.since for r in self.table.rules), default=0)
        return (min(max(newest, rule.since), rule.until),)

    def node(self, rule: Rule, context: str, attrs: dict[str, Any]) -> tuple[Node, Builder]:
        return sample(rule, context, attrs, self.mapping.channels_last)

    def write(self, by: Rule | Table, rule: Rule, node: Node, b: Builder, version: int) -> Sample:
        """Return the layers that a row, or the whole table, writes; MappingError for refusals."""
        low = self.mapping.lowering(self.mapping, version)
        by.lower(low.writing(node))
        return Sample(rule, node, low.layers, b, version)

    def read_back(self, s: Sample) -> ReadBack:
        return ReadBack(self, s)

    def add_operand(self, s: Sample) -> ir.Value | None:
        """Give the row's layer one more operand, an input of the graph; None where layers have
        operands by name, which are parameters that no field owns.
        """
        value = s.b.input("surplus", ir.DataType.FLOAT, [2, 3])
        s.layers[s.own].inputs.append(value)
        return value

    def declared(self, expected: ir.Value, value: ir.Value, b: Builder) -> ir.Value:
        """A result as the boundary of a model would give it."""
        return value

    def judge(self, s: Sample, folder: Path) -> None:
        """Assert that an engine from outside agrees with the written layers, where there is one."""


def computed_before(layers: Iterable[Layer], b: Builder) -> list[ir.Value]:
    """Layers for operators that come before theirs in the graph."""
    made = {v for layer in layers for v in layer.outputs} | set(b.graph.inputs)
    read = [v for layer in layers for given in operands(layer) for v in given]
    return [v for v in dict.fromkeys(read) if v not in made and v.producer() is not None]


def operands(layer: Layer) -> Iterator[list[ir.Value]]:
    """The values of the graph that a layer reads, as inputs or as parameters."""
    for given in (layer.inputs, *layer.attrs.values()):
        several = given if isinstance(given, list | tuple) else [given]
        yield [v for v in several if isinstance(v, ir.Value) and v.const_value is None]


class ReadBack:
    """The layers of a sample on their way back into its graph."""

    def __init__(self, adapter: Adapter, s: Sample) -> None:
        self.adapter, self.sample = adapter, s
        self.lifting = Lifting(adapter.mapping, s.b, "test", s.version)
        self.known: dict[ir.Value, ir.Value] = {}

    def reading(self, index: int) -> LiftContext:
        """The context of a layer; those before it have been read."""
        layer = self.sample.layers[index]
        far = replace(layer, inputs=[self._in_graph(v) for v in layer.inputs])
        return self.lifting.reading(far)

    def _in_graph(self, value: ir.Value | None) -> Any:
        """The value of the graph that an operand is: constants of the writer become its own."""
        if value is None or value in self.known:
            return None if value is None else self.known[value]
        if value.const_value is not None and value.graph is None:
            self.known[value] = self.sample.b.const(value.const_value, "c")
            return self.known[value]
        return value

    def enter(self, index: int, results: Sequence[ir.Value]) -> None:
        """Record the results of a layer for later layers."""
        self.known |= dict(zip(self.sample.layers[index].outputs, results, strict=False))

    def results(self) -> list[tuple[ir.Value, ir.Value]]:
        """Results of the operator, each with that of the lifted layers."""
        declared, b = self.adapter.declared, self.sample.b
        outputs = [v for v in self.sample.node.outputs if v in self.known]
        return [(v, declared(v, self.known[v], b)) for v in outputs]


class CoreMLAdapter(Adapter):
    """Core ML's tensors are float32 of one axis at least."""

    def declared(self, expected: ir.Value, value: ir.Value, b: Builder) -> ir.Value:
        return as_declared(expected, value, b)


def as_declared(expected: ir.Value, value: ir.Value, b: Builder) -> ir.Value:
    """A value in the type of another, and without the axis that stands for none."""
    if value.dtype != expected.dtype and expected.dtype is not None:
        value = b.op("Cast", value, to=int(expected.dtype))
    return value if rank_of(expected) or rank_of(value) != 1 else b.op("Squeeze", value, [0])


# comparing layers --------------------------------------------------------------------------------


def normal_layer(layer: Layer) -> tuple[Any, ...]:
    """The content of a layer, constants by their elements, so that two of one meaning are equal."""
    blobs = {k: plain(v) for k, v in layer.blobs.items() if v is not None}
    attrs = {k: _number(plain(v)) for k, v in layer.attrs.items()}
    return layer.kind, attrs, blobs, [plain(v) for v in layer.inputs]


def plain(value: Any) -> Any:
    """A value by its elements where it is constant, else by its name; arrays as lists."""
    if isinstance(value, ir.Value):
        found = by_value(value)
        return found.name if isinstance(found, ir.Value) else found
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return np.asarray(value).tolist() if hasattr(value, "__array__") else value


def by_value(value: ir.Value | None) -> Any:
    """A constant by its elements and their type, any other value as it is."""
    if value is None:
        return None
    array = constant(value)
    return value if array is None else (np.asarray(array).tolist(), str(np.asarray(array).dtype))


def _number(value: Any) -> Any:
    """Two texts of one number are the same."""
    try:
        return float(np.float32(value)) if isinstance(value, str) else value
    except ValueError:
        return value
