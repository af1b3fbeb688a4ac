"""The operators of one graph, before they have tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.quantization import Quantization
from converter.formats.tflite.kernels import LIKE_RESULT, is_unscaled
from converter.graph.value import producer_if
from converter.mapping.context import LowerContext
from converter.mapping.fusing import only_user
from converter.mapping.lowering import LayerTable, Lowering
from converter.mapping.node import Layer, Node

D = ir.DataType
EIGHTS = frozenset({D.INT8, D.UINT8})
# Operators whose constants, their weights, have separate scales and types.
WEIGHTED = frozenset(
    {"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "EMBEDDING_LOOKUP"}
)
# Operators that change something which is no result.
EFFECTS = frozenset({"CALL_ONCE", "ASSIGN_VARIABLE", "HASHTABLE_IMPORT"})
# Operators that move quantized values without changing them: input and output share one scale.
_MOVES = """BATCH_TO_SPACE_ND BROADCAST_TO CONCATENATION EXPAND_DIMS GATHER GATHER_ND MAX_POOL_2D
PACK PAD RESHAPE REVERSE_V2 SLICE SPACE_TO_BATCH_ND SPLIT SPLIT_V SQUEEZE STRIDED_SLICE TILE
TRANSPOSE UNPACK"""
MOVES = frozenset(_MOVES.split())


def dequantized(value: ir.Value | None) -> ir.Node | None:
    """Return the DequantizeLinear that produces a value."""
    return producer_if(value, "DequantizeLinear")


def any_quantized(values: Sequence[ir.Value]) -> bool:
    """Return whether results are only read by a QuantizeLinear."""
    user = only_user(values[0]) if values else None
    return user is not None and user.op_type == "QuantizeLinear" and not user.domain


def demand_scales(layer: Layer, scales: dict[ir.Value, Quantization]) -> None:
    """Raise MappingError if a kernel misreads types and scales of quantized values."""
    kind = layer.kind
    scaled = [v for v in (*layer.inputs, *layer.outputs) if v is not None and v in scales]
    if any(is_unscaled(kind, v.dtype or D.FLOAT) for v in scaled):
        raise MappingError(f"{kind} ignores scale and zero point")
    types = {v.dtype for v in scaled}
    if kind == "QUANTIZE":
        if len(types) > 1 and not types <= EIGHTS and types != {D.INT16, D.INT8}:
            raise MappingError("no kernel converts between these quantized types")
        return
    if kind in WEIGHTED or kind == "DEQUANTIZE":
        return
    if len(types) > 1 and kind != "SOFTMAX":
        raise MappingError("quantized data must have one type")
    if kind in LIKE_RESULT and len({scales[v].single for v in scaled}) > 1:
        raise MappingError(f"{kind} does not change the scale of quantized data")


class Operators(LayerTable, Protocol):
    """The rows of the format, and their context, which provides quantized values on request."""

    @property
    def writing(self) -> Callable[..., LowerContext]: ...


class LiteLowering(Lowering):
    """The operators of one graph.

    `scales`    of quantized values
    `absorbed`  nodes that are expressed by an operator before or after them
    `aliases`   values that are the same as others
    `made`      values between two operators of one node
    `exact`     those of them that stay in half precision
    `variables` values that are variable tensors, which operators change; initially zeros
    `held`      network outputs that are states, kept in a variable tensor
    """

    mapping: Operators

    def __init__(self, mapping: Operators, version: int = 0) -> None:
        super().__init__(mapping, version)
        self.scales: dict[ir.Value, Quantization] = {}
        self.absorbed: dict[ir.Node, bool] = {}
        self.aliases: dict[ir.Value, ir.Value] = {}
        self.made: dict[ir.Value, bool] = {}
        self.exact: dict[ir.Value, bool] = {}
        self.variables: dict[ir.Value, bool] = {}
        self.persistent_outputs: dict[ir.Value, bool] = {}
        self._journal: list[tuple[dict[Any, Any], Any]] = []

    # entries can be rolled back ----------------------------------------------------------

    def _enter(self, table: dict[Any, Any], key: Any, entry: Any) -> None:
        if key not in table:
            table[key] = entry
            self._journal.append((table, key))

    def mark(self) -> tuple[int, int]:
        """Return the current state, for `undo`."""
        return len(self.layers), len(self._journal)

    def undo(self, mark: tuple[int, int]) -> None:
        """Remove all that was added since the mark."""
        del self.layers[mark[0] :]
        for table, key in self._journal[mark[1] :]:
            del table[key]
        del self._journal[mark[1] :]

    def note(self, value: ir.Value, scale: Quantization) -> None:
        """Record that `value` has this scale; raise MappingError if it has another."""
        if self.scales.get(value, scale) != scale:
            raise MappingError(f"the quantized data of {value.name} have several scales")
        self._enter(self.scales, value, scale)

    def keep_exact(self, value: ir.Value) -> None:
        """Record that a value stays in half precision."""
        self._enter(self.exact, value, True)

    def variable(self, name: str, shape: Iterable[Any]) -> ir.Value:
        """Return a new variable tensor of floats."""
        made = self.value(name, D.FLOAT, shape)
        self._enter(self.variables, made, True)
        return made

    def hold(self, given: ir.Value, left: ir.Value) -> ir.Value:
        """Set the variable tensor of a state: an input of the network, and the output that is its
        next value.
        """
        self._enter(self.variables, given, True)
        self._enter(self.persistent_outputs, left, True)
        return given

    def absorb(self, node: ir.Node) -> None:
        """Record that another operator computes a node."""
        self._enter(self.absorbed, node, True)

    def alias(self, value: ir.Value, source: ir.Value) -> None:
        """Make `value` the same tensor as `source`."""
        self._enter(self.aliases, value, source)

    def value(self, name: str, dtype: D | None, shape: Iterable[Any] | None) -> ir.Value:
        made = super().value(name, dtype, shape)
        self._enter(self.made, made, True)
        return made

    # nodes ---------------------------------------------------------------------------------------

    def node(self, node: ir.Node) -> None:
        if node not in self.absorbed:
            super().node(node)

    def lower_view(self, node: Node) -> None:
        """Lower a view on the quantized values if a kernel supports them, else on real numbers."""
        behind = any(dequantized(v) is not None for v in node.inputs)
        if node.op != "DequantizeLinear" and (behind or any_quantized(node.outputs)):
            mark = self.mark()
            try:
                self.mapping.table.lower(self.mapping.writing(node, self, quantized=True))
                for layer in self.layers[mark[0] :]:
                    demand_scales(layer, self.scales)
                return
            except MappingError:
                self.undo(mark)
        self.mapping.table.lower(self.mapping.writing(node, self))

    def used(self, outputs: Sequence[ir.Value]) -> list[Layer]:
        """Return the layers that are needed for outputs."""
        needed, found = {self.source(v) for v in outputs}, []
        for layer in reversed(self.layers):
            if layer.kind in EFFECTS or needed.intersection(layer.outputs):
                found.append(layer)
                needed |= {self.source(v) for v in layer.inputs if v is not None}
        return found[::-1]

    def source(self, value: ir.Value) -> ir.Value:
        """Return the value that a value is an alias of, or itself."""
        while value in self.aliases:
            value = self.aliases[value]
        return value

    def spread_scales(self) -> None:
        """Give the input and output of operators that only move quantized values the same scale."""
        for layers in (self.layers, self.layers[::-1]):
            for layer in layers:
                if layer.kind in MOVES:
                    ends = [
                        self.source(v) for v in (*layer.inputs, *layer.outputs) if v is not None
                    ]
                    known = {self.scales[v] for v in ends if v in self.scales}
                    if len(known) == 1 and not len(next(iter(known)).scales) > 1:
                        for v in ends:
                            if v.dtype in (D.INT8, D.UINT8, D.INT16):
                                self._enter(self.scales, v, next(iter(known)))
