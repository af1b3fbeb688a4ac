"""Quantised document -> the shared graph, as numbers: float operators between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

import onnx_ir as ir

from converter.diagnostics import Diagnostic
from converter.formats.zhouyi import fused
from converter.formats.zhouyi.integer import INTEGER
from converter.formats.zhouyi.integer import dequantise as numbers
from converter.formats.zhouyi.integer.grids import Grid, dequantised
from converter.formats.zhouyi.ir import Graph, Layer, Tensor
from converter.formats.zhouyi.lift import GraphLift
from converter.graph.build import Builder
from converter.mapping.node import Layer as FarLayer
from converter.mapping.node import MappingError
from converter.mapping.trouble import TROUBLE, told


class NumbersLift(GraphLift):
    """Lifts quantised layers as numbers; `reals` maps tensor names to their dequantised values, shared by all readers."""

    def __init__(self, document: Graph, builder: Builder, outer: GraphLift | None = None) -> None:
        super().__init__(document, builder, outer)
        self.reals: dict[str, ir.Value] = {}

    def _grid(self, tensor: Tensor) -> Grid | None:
        found = self.grids.get(tensor.name)
        if isinstance(found, MappingError):
            raise found
        return found

    def _layer(self, layer: Layer) -> None:
        b = self.builder
        try:
            sources, results = ([self._grid(t) for t in tensors] for tensors in (layer.inputs, layer.outputs))
            far = self._far(layer)
            if not any(g is not None and not g.indices for g in (*sources, *results)) or numbers.moves(far, [*sources, *results]):
                self._plain(layer, numbers.without_integer_keys(far) if any(g is not None for g in results) else far)
                return
            with b.provenance(format="zhouyi", layer=layer.name, type=layer.type, where=str(layer.where().line)):
                values = self._numbers(layer, far, sources, results)
                for tensor, value, grid in zip(layer.outputs, values, results, strict=False):
                    self.env[tensor.name] = self._declared(tensor, numbers.written_back(b, value, grid))
        except TROUBLE as e:
            code, message, help = told(e)
            self.lifting.problems.append(Diagnostic(code, message, where=layer.where(), help=help))

    def _numbers(self, layer: Layer, far: FarLayer, sources: list[Grid | None], results: list[Grid | None]) -> list[ir.Value]:
        """What the layer computes as numbers; what it stores where only its integer form is known."""
        kind, source = far.kind.split("/")[0], sources[0] if sources else None
        if kind in ("Cast", "Quantize", "DeQuantize"):
            return [self._real(layer.inputs[0], source)]
        if kind in numbers.EXACT and not self.steps:
            return self._whole(layer, far, sources, results)
        for i, (tensor, grid) in enumerate(zip(layer.inputs, sources, strict=True)):
            if numbers.is_number(kind, i, grid):
                far.inputs[i] = self._real(tensor, grid)
        if kind in numbers.STORED and source is not None and far.blobs["weights"].dtype.kind in "iu":
            return [numbers.lift_stored(far, self.builder, source, results[0], self.steps)]
        known = len(self.lifting.problems)
        plain = numbers.float_layer(far, sources, results, self.steps)
        attrs, blobs = fused.take(plain.attrs, plain.blobs) if fused.carries(kind) else ({}, {})
        values = self.lifting.layer(plain)
        if values is not None:
            values[0] = fused.apply(self.builder, values[0], attrs, blobs)
            return values
        if self.steps or INTEGER.get(kind) is None:
            reasons = self.lifting.problems[known:]
            del self.lifting.problems[known:]
            raise MappingError("; ".join(d.message for d in reasons), reasons[0].code)
        del self.lifting.problems[known:]
        return self._whole(layer, self._far(layer), sources, results)

    def _whole(self, layer: Layer, far: FarLayer, sources: list[Grid | None], results: list[Grid | None]) -> list[ir.Value]:
        """The integer form, on floats that hold integers."""
        b = self.builder
        whole = numbers.whole_layer(far, b, [self._real(t, g) for t, g in zip(layer.inputs, sources, strict=True)], sources)
        values = self._integer_values(layer, whole, [ir.DataType.FLOAT] * len(layer.outputs))
        return [numbers.number_of(b, v, g) for v, g in zip(values, results, strict=True)]

    def _real(self, tensor: Tensor, grid: Grid | None) -> ir.Value:
        if grid is None:
            return self.env[tensor.name]
        if tensor.name not in self.reals:
            self.reals[tensor.name] = dequantised(self.builder, self.env[tensor.name], grid)
        return self.reals[tensor.name]
