"""Collection of the operations of a graph; operators that Core AI does not support are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.coreai.elements import WORDS
from converter.graph.value import type_name
from converter.mapping.lowering import LayerTable, Lowering
from converter.mapping.node import Layer

D = ir.DataType


class CoreAILowering(Lowering):
    """Collect the operations of a graph, or of a block of an operation. `half`: floats are computed
    in half precision, except those in `exact`. `in_composite`: the operations are the body of a
    composite graph, which cannot contain another one.
    """

    def __init__(self, mapping: LayerTable, version: int = 0) -> None:
        super().__init__(mapping, version)
        self.half = self.in_composite = False
        self.exact: set[ir.Value] = set()

    def inner(self) -> CoreAILowering:
        """Return the collector for the operations of a block."""
        low = CoreAILowering(self.mapping, self.version)
        low.name, low.half, low.exact = self.name, self.half, self.exact
        low.notes, low.in_composite = self.notes, self.in_composite
        return low

    def refuses(self, node: ir.Node) -> bool:
        """Return whether no row writes an operator here; the operations are discarded."""
        low = self.inner()
        low.notes = []
        try:
            low.lower(node)
        except MappingError:
            return True
        return bool(low.problems)

    def carried(self, value: ir.Value) -> ir.DataType:
        """Return the type in which a value is written."""
        dtype = value.dtype or D.FLOAT
        return D.FLOAT16 if self.half and dtype == D.FLOAT and value not in self.exact else dtype

    def layer(self, kind: str, inputs: Sequence[Any], outputs: Sequence[ir.Value]) -> Layer:
        """Return a new operation, which is not appended yet."""
        return Layer(kind, self.name, {}, {}, list(inputs), list(outputs))

    def check(self, layer: Layer) -> None:
        """Refuse operands and results of types that tensors of Core AI do not have."""
        for value in (*layer.inputs, *layer.outputs):
            if value is not None and value.dtype is not None and value.dtype not in WORDS:
                raise MappingError(f"{layer.kind} does not support {type_name(value.dtype)}")


@dataclass
class Composite:
    """A separate graph that Apple's tools recognize as one operation; its body has equivalent
    operations, and an `invoke` calls it. `kind` and `attributes` are those of the operation,
    `names` those of its operands.
    """

    kind: str
    attributes: str
    names: Sequence[str]
    inputs: list[ir.Value] = field(compare=False)
    low: CoreAILowering = field(compare=False)
    results: list[ir.Value] = field(compare=False)


def composite_of(layer: Layer) -> Composite | None:
    """Return the graph that an operation calls."""
    found = layer.blobs.get("graph")
    return found if isinstance(found, Composite) else None


def operands_of(layers: Iterable[Layer]) -> Iterator[ir.Value]:
    """Yield the operands of operations and of the blocks in them."""
    for layer in layers:
        yield from (v for v in layer.inputs if v is not None)
        for inner, _, _, results in layer.extra or ():
            yield from results
            yield from operands_of(inner)


def all_layers(layers: Iterable[Layer]) -> Iterator[Layer]:
    """Return all operations, with those in nested blocks and in called graphs."""
    for layer in layers:
        yield layer
        if (graph := composite_of(layer)) is not None:
            yield from all_layers(graph.low.layers)
        for inner, *_ in layer.extra or ():
            yield from all_layers(inner)


def needed(layers: list[Layer], results: Iterable[ir.Value]) -> list[Layer]:
    """Return the operations that results depend on, in their order, also those in blocks."""
    wanted, kept = set(results), []
    for layer in reversed(layers):
        if layer.outputs and wanted.isdisjoint(layer.outputs):
            continue
        if layer.extra:
            layer.extra = [(needed(i, outs), args, end, outs) for i, args, end, outs in layer.extra]
        kept.append(layer)
        wanted.update(operands_of([layer]))
    return kept[::-1]
