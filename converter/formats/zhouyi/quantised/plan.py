"""Which layers of a quantised network compute on stored integers, and what stands between them.

    x -> QuantizeLinear -> DequantizeLinear -> Conv -> Relu -> QuantizeLinear -> DequantizeLinear -> y
    becomes    x -> Quantize -> Convolution (int8, with_activation=RELU) -> DeQuantize -> y

A layer computes on integers when all that it reads is dequantised and all that it gives is quantised again. What the network
computes in floats stays a float layer. Layers that move data do so to the integers; a DequantizeLinear in front of them, or a
QuantizeLinear behind them, counts as if it stood on their other side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from converter.diagnostics import Diagnostic
from converter.formats.zhouyi.fused import FUSED, fuse
from converter.formats.zhouyi.integer.grids import Grid
from converter.formats.zhouyi.integer.register import keeps_integers
from converter.formats.zhouyi.quantised.forms import OWN, Form, requantised
from converter.formats.zhouyi.quantised.forms_more import FORMS
from converter.formats.zhouyi.quantised.held import Held, lazy_value
from converter.formats.zhouyi.quantised.lowering import DEQUANTIZE, QUANTIZE, made
from converter.graph.infer import constant
from converter.mapping.drive import refusal
from converter.mapping.node import Layer, MappingError

_FUSED = FUSED | {"CLIP"}  # integers are bounded by what a layer may give, a float CLIP is a layer of its own
_BOUNDS = ("RELU", "RELU6", "CLIP")  # the same before and behind rounding


def moves(layer: Layer) -> bool:
    """Whether a layer does the same to stored integers as to numbers (the number that it pads with is stored too)."""
    return layer.kind == "=" or keeps_integers(layer) or (layer.kind == "Pooling" and layer.attrs.get("method") == "MAX")


class Plan:
    """Turns the float layers of a quantised network into integer layers, in order. `grids` tells the grid of every stored value."""

    def __init__(self, layers: Sequence[Layer], constants: dict[ir.Value, Held]) -> None:
        self.sources = fuse(layers, _FUSED)
        self.constants = constants
        self.readers: dict[ir.Value, list[Layer]] = {}
        for layer in self.sources:
            for v in layer.inputs:
                if v is not None:
                    self.readers.setdefault(v, []).append(layer)
        self.layers: list[Layer] = []
        self.problems: list[Diagnostic] = []
        self.grids: dict[ir.Value, Grid] = {}
        self.reals: dict[ir.Value, tuple[ir.Value, Grid]] = {}  # numbers -> where they are stored
        self.floats: list[Layer] = []
        self.integers = 0

    def run(self) -> None:
        for layer in self.sources:
            if layer.kind == DEQUANTIZE:
                self._stored(layer.inputs[0], layer.attrs["grid"])
        for layer in self.sources:
            try:
                self._layer(layer)
            except MappingError as e:
                self.problems.append(refusal(made(layer).node, MappingError(f"{layer.kind}: {e}" if layer.kind[0] != "(" else str(e), e.code)))
        self._spread()
        for layer in self.layers:
            layer.extra = None  # what the writer looks for there are the bodies of loops

    def _stored(self, value: ir.Value | None, grid: Grid) -> None:
        assert value is not None
        self.grids.setdefault(value, grid)

    def _layer(self, layer: Layer) -> None:
        if layer.kind == DEQUANTIZE:
            self._dequantise(layer)
        elif layer.kind == QUANTIZE:
            self._quantise(layer)
        elif moves(layer) and self._move(layer):
            return
        elif self._quantised(layer):
            self._integer(layer)
        else:
            self._float(layer)

    def _dequantise(self, layer: Layer) -> None:
        source, out = layer.inputs[0], layer.outputs[0]
        assert source is not None
        self.reals[out] = (source, layer.attrs["grid"])
        if out.is_graph_output():
            self._number(out)

    def _quantise(self, layer: Layer) -> None:
        source, out, grid = layer.inputs[0], layer.outputs[0], layer.attrs["grid"]
        assert source is not None
        self._stored(out, grid)
        if source not in self.reals:
            self.layers.append(Layer("Quantize", layer.name, {}, {}, [source], [out], extra=layer.extra))
            return
        stored, own = self.reals[source]
        if stored is out:
            return
        if own == grid:
            self.layers.append(Layer("=", layer.name, {}, {}, [stored], [out], extra=layer.extra))
        else:
            self._cast(layer, stored, own, out, grid)

    def _cast(self, layer: Layer, stored: ir.Value, own: Grid, out: ir.Value, grid: Grid) -> None:
        kind, attrs, blobs = requantised(Form(layer, [stored], [own], grid))
        self.integers += 1
        self.layers.append(Layer(kind, f"{layer.name}.requantise", attrs, blobs, [stored], [out], extra=layer.extra))
        self._stored(out, grid)

    def _move(self, layer: Layer) -> bool:
        """Moves the stored integers. False when the data are numbers that are not stored."""
        source = layer.inputs[0]
        if source is None or source not in self.reals:
            return source is not None and source.dtype is not None and not source.dtype.is_floating_point() and self._plain(layer)
        stored, grid = self.reals[source]
        self.integers += 1
        outputs = []
        for out in layer.outputs:
            if out.dtype is not None and out.dtype.is_floating_point():
                wanted, place = self._wanted(out)
                fits = wanted == grid and place is not None
                outputs.append(place if fits and place is not None else self._new(out, grid))
                self.reals[out] = (outputs[-1], grid)
                self._stored(outputs[-1], grid)
            else:
                outputs.append(out)
        attrs = dict(layer.attrs)
        if layer.kind == "Pad" and attrs.get("mode") == "CONSTANT":
            attrs["constant_value"] = int(grid.quantise(np.asarray(attrs.get("constant_value", 0.0))))
        self.layers.append(Layer(layer.kind, layer.name, attrs, layer.blobs, [stored, *layer.inputs[1:]], outputs, extra=layer.extra))
        for out in layer.outputs:
            if out.is_graph_output() and out in self.reals:
                self._number(out)
        return True

    def _plain(self, layer: Layer) -> bool:
        self.layers.append(layer)
        return True

    def _wanted(self, value: ir.Value) -> tuple[Grid | None, ir.Value | None]:
        """The grid in which all readers want a number, and the value that is to hold it (None behind a layer that moves it)."""
        readers = self.readers.get(value, [])
        if value.is_graph_output() or not readers:
            return None, None
        for reader in readers:
            if reader.kind == QUANTIZE:
                continue
            through = moves(reader) or (reader.kind == "Activation" and reader.attrs.get("method") in _BOUNDS)
            if len(readers) > 1 or not through or reader.inputs[0] is not value or len(reader.outputs) != 1:
                return None, None
            return self._wanted(reader.outputs[0])[0], None
        return readers[0].attrs["grid"], readers[0].outputs[0]

    def _new(self, value: ir.Value, grid: Grid) -> ir.Value:
        return ir.Value(name=f"{value.name}.stored", type=ir.TensorType(grid.dtype), shape=value.shape)

    def _quantised(self, layer: Layer) -> bool:
        """Whether the layer stands between DequantizeLinear and QuantizeLinear."""
        real = [v for v in layer.inputs if v is not None and _is_real(v)]
        known = [v in self.reals or v in self.constants or (v.const_value is not None and v.const_value.size == 1) for v in real]
        results = [v for v in layer.outputs if _is_real(v)]
        active = any(v in self.reals for v in real)
        if not results and layer.kind == "Logical":
            return active and all(known)
        return active and all(known) and bool(results) and all(self._target(layer, v)[0] is not None for v in results)

    def _target(self, layer: Layer, value: ir.Value) -> tuple[Grid | None, ir.Value | None]:
        """The grid of a result; a multiple that another layer reads has as many steps as what it is a multiple of, and so has a Relu."""
        grid, place = self._wanted(value)
        readers = self.readers.get(value, [])
        if grid is not None or value.is_graph_output() or any(r.kind == QUANTIZE for r in readers):
            return grid, place
        source = layer.inputs[0]
        if layer.kind == "Activation" and layer.attrs.get("method") == "RELU" and source in self.reals:
            return self.reals[source][1], None
        factor = self._factor(layer) if layer.attrs.get("method", layer.kind.upper()) == "MUL" else None
        return (None, None) if factor is None else (replace(factor[0], scale=factor[0].scale * factor[1]), None)

    def _factor(self, layer: Layer) -> tuple[Grid, float] | None:
        """What a layer multiplies, and the one positive number by which."""
        if len(layer.inputs) != 2 or layer.attrs.get("with_activation", "NONE") != "NONE":
            return None
        x, y = layer.inputs if layer.inputs[0] in self.reals else layer.inputs[::-1]
        array = None if y is None or y in self.reals else constant(y)
        if x is None or x not in self.reals or array is None or array.size != 1 or not float(array.reshape(-1)[0]) > 0:
            return None
        return self.reals[x][1], float(array.reshape(-1)[0])

    def _integer(self, layer: Layer) -> None:
        make = FORMS.get(layer.kind)
        if make is None or len(layer.outputs) != 1:
            raise MappingError("there is no integer form to write", "X201")
        out = layer.outputs[0]
        grid, place = self._target(layer, out) if _is_real(out) else (Grid.of(1.0, 0, ir.DataType.UINT8), out)
        assert grid is not None
        operands = [self._operand(v) if _is_real(v) else (v, Grid.of(1.0, 0, ir.DataType.UINT8)) for v in layer.inputs if v is not None]
        inputs, sources = [o[0] for o in operands], [o[1] for o in operands]
        own = OWN[layer.kind](layer, sources[0]) if layer.kind in OWN else None
        own = grid if own is None else own
        if not all(g.dtype.bitwidth <= 16 for g in (*sources, grid)):
            raise MappingError("numbers of more than 16 bits have no integer form")
        kind, attrs, blobs = make(Form(layer, inputs, sources, own))
        stored = place if place is not None else self._new(out, grid)
        first = stored if own == grid else self._new(out, own)
        self._stored(first, own)
        self.layers.append(Layer(kind, layer.name, attrs, blobs, list(inputs), [first], extra=layer.extra))
        if first is not stored:
            self._cast(layer, first, own, stored, grid)
        self._stored(stored, grid)
        if _is_real(out):
            self.reals[out] = (stored, grid)
        self.integers += 1

    def _operand(self, value: ir.Value) -> tuple[ir.Value, Grid]:
        """Where a number is stored; constants are stored as they are, a single number of its own as the largest of its grid."""
        if value in self.reals:
            return self.reals[value]
        held = self.constants.get(value)
        if held is None:
            array = constant(value)
            assert array is not None
            number = float(array.reshape(-1)[0])
            grid = Grid.of(abs(number) / 127 if number else 1.0, 0, ir.DataType.INT8)
            made_of = grid.quantise(array)
        else:
            found = held.grid()
            if found is None:
                raise MappingError("a constant operand with several scales has no integer form")
            grid, made_of = found, held.stored
        stored = lazy_value(f"{value.name}.stored", grid.dtype, made_of.shape, lambda: np.asarray(made_of))
        self._stored(stored, grid)
        self.reals[value] = (stored, grid)
        return stored, grid

    def _float(self, layer: Layer) -> None:
        """A layer that the network computes in floats."""
        for v in layer.inputs:
            if v is not None and v in self.reals and v not in self.constants:
                self._number(v)
        if any(_is_real(v) for v in layer.outputs) and not moves(layer):
            self.floats.append(layer)
        self.layers.append(layer)

    def _number(self, value: ir.Value) -> None:
        """A DeQuantize layer that gives `value`, once."""
        if not any(x.kind == "DeQuantize" and x.outputs[0] is value for x in self.layers):
            stored, _ = self.reals[value]
            self.layers.append(Layer("DeQuantize", f"{value.name}.dequantise", {}, {}, [stored], [value]))

    def _spread(self) -> None:
        """Values that were moved have the grid of what they come from, or go to."""
        changed = True
        while changed:
            changed = False
            for layer in self.layers:
                if layer.kind == "=" or moves(layer):
                    around = [v for v in (layer.inputs[0], *layer.outputs) if v is not None and v.dtype == layer.outputs[0].dtype]
                    known = [self.grids[v] for v in around if v in self.grids]
                    for v in around:
                        if known and v not in self.grids:
                            self.grids[v], changed = known[0], True


def _is_real(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


__all__ = ["Plan", "moves"]
