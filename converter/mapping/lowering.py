"""Lowering a graph into layers, with all refusals collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, Where
from converter.graph.build import attrs_of
from converter.graph.channels_last import base_domain, is_channels_last
from converter.graph.infer import InferenceError
from converter.graph.lazy_tensor import lazy
from converter.graph.names import source_location, subject_of
from converter.graph.shapes import freezing
from converter.graph.windows import FIX
from converter.mapping.codecs import Codec, Kind
from converter.mapping.context import LowerContext
from converter.mapping.node import Layer, Node
from converter.mapping.rules import Table


class LayerTable(Protocol):
    """The layers that a format can write: a part of a `FormatMapping`."""

    @property
    def table(self) -> Table: ...
    @property
    def spelling(self) -> Mapping[Kind, Codec]: ...
    @property
    def writing(self) -> Callable[[Node, Any], LowerContext]: ...


class Lowering:
    """Collect the layers of a graph; `name` is the name of the operator that is being written."""

    def __init__(self, mapping: LayerTable, version: int = 0) -> None:
        self.mapping, self.version, self.spelling = mapping, version, mapping.spelling
        self.layers: list[Layer] = []
        self.problems: list[Diagnostic] = []
        self.notes: list[Diagnostic] = []
        self.name = ""
        self._count = 0

    def add(
        self,
        kind: str,
        inputs: Sequence[ir.Value | None],
        outputs: Sequence[ir.Value],
        attrs: dict[str, Any] | None = None,
        blobs: dict[str, Any] | None = None,
        extra: Any = None,
    ) -> Layer:
        """Append a layer, which has the name of the node, and return it."""
        attrs, blobs = dict(attrs or {}), dict(blobs or {})
        layer = Layer(kind, self.name, attrs, blobs, list(inputs), list(outputs), extra=extra)
        self.check(layer)
        self.layers.append(layer)
        return layer

    def check(self, layer: Layer) -> None:
        """Refuse a layer whose types, sizes or ranks the format does not support.

        A format overrides it.
        """

    def value(self, name: str, dtype: ir.DataType | None, shape: Iterable[Any] | None) -> ir.Value:
        """Return a new intermediate value between two layers of one node."""
        self._count += 1
        return ir.Value(
            name=f"{name}.{self._count}",
            type=ir.TensorType(dtype) if dtype else None,
            shape=None if shape is None else ir.Shape(shape),
        )

    def constant(self, array: Any, name: str = "const") -> ir.Value:
        """Return a constant operand of a layer: an array, a tensor, or Python integers (int64)."""
        if isinstance(array, int | list | tuple | range):
            array = np.asarray(array, np.int64)
        plain = isinstance(array, np.ndarray | np.generic)
        tensor = lazy(np.asarray(array)) if plain else array
        value = self.value(name, tensor.dtype, tensor.shape.numpy())
        value.const_value = tensor
        return value

    def node(self, node: ir.Node) -> None:
        """Append the layers of `node`, or record why it cannot be written."""
        mark = len(self.layers)
        try:
            self.lower(node)
        except MappingError as e:
            del self.layers[mark:]
            self.problems.append(refusal(node, e))

    def lower(self, node: ir.Node) -> None:
        """Append the layers of a node. Raises MappingError if it cannot be lowered."""
        self.name = node.metadata_props.get("netconv.layer") or node.name or node.op_type
        mark = len(self.layers)
        try:
            self.lower_view(view_of(node))
        except InferenceError as e:  # usually a table that would be too large
            raise MappingError(str(e)) from None
        except MemoryError:
            message = "its decomposition is too large to be written"
            raise MappingError(message) from None
        self._name(self.layers[mark:], node)
        for layer in self.layers[mark:]:
            if layer.source is None:
                layer.source = node

    def _name(self, layers: Sequence[Layer], node: ir.Node) -> None:
        """Add a suffix to the names of layers that do not produce a result of the operator, so that
        a lookup by its name finds the producing layer.
        """
        inner = [x for x in layers if not set(x.outputs) & set(node.outputs)]
        if len(inner) < len(layers):
            for layer in inner:
                if layer.name == self.name:
                    layer.name = f"{self.name}_{layer.kind.lower()}"

    def writing(self, node: Node) -> LowerContext:
        """Return the context in which a node is lowered."""
        return self.mapping.writing(node, self)

    def lower_view(self, node: Node) -> None:
        """Append the layers of an operator that need not be part of a graph."""
        self.mapping.table.lower(self.writing(node))


def view_of(node: ir.Node) -> Node:
    """Return the detached view of a graph node, which rows and custom converters use."""
    attrs = {k: v for k, v in attrs_of(node).items() if k != "base_domain"}
    inputs, outputs = list(node.inputs), list(node.outputs)
    return Node(node.op_type, base_domain(node), attrs, inputs, outputs, is_channels_last(node))


def refusal(node: ir.Node, error: MappingError) -> Diagnostic:
    """Return the diagnostic for a node that cannot be lowered: its location in the source, the
    shapes of its inputs, and for dynamic shapes the option that fixes them.
    """
    shapes = tuple(f"{v.name} {v.dtype}{v.shape}" for v in node.inputs if v is not None)
    message = f"{subject_of(node)}: {error}"
    help = error.help
    dynamic = error.code == "X203" or "--inputs" in help
    branches = node.op_type in ("If", "Loop") and not node.domain
    if dynamic or branches:
        help = "; ".join(filter(None, (help, freezing([*node.inputs, *node.outputs]))))
    if branches and not help:  # a count or a condition that depends on sizes only
        help = FIX
    return Diagnostic(error.code, message, where=source_location(node), evidence=shapes, help=help)


def layer_refusal(layer: Layer, error: MappingError) -> Diagnostic:
    """Return the diagnostic for a layer that cannot be written: that of the node it stands for."""
    if layer.source is not None:
        return refusal(layer.source, error)
    where = Where(layer=layer.name, kind=layer.kind)
    return Diagnostic(error.code, str(error), where=where, help=error.help)
