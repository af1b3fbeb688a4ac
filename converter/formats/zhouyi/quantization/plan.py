"""The layers of a quantized network that compute on integers, and the layers between them.

    x -> QuantizeLinear -> DequantizeLinear -> Conv -> Relu -> QuantizeLinear
      -> DequantizeLinear -> y
    becomes    x -> Quantize -> Convolution (int8, with_activation=RELU) -> DeQuantize -> y

A layer computes on integers when all its inputs are dequantized and all its outputs are quantized
again. Other layers of the network stay float layers. Layers that only move data are applied to the
integers; a DequantizeLinear before them, or a QuantizeLinear after them, is treated as if it was on
their other side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError
from converter.formats.zhouyi.fused import FUSED, fuse
from converter.formats.zhouyi.quantization.constants import QuantizedConstant, lazy_value
from converter.formats.zhouyi.quantization.context import IntegerLowerContext
from converter.formats.zhouyi.quantization.elementwise import requantization
from converter.formats.zhouyi.quantization.lowering import DEQUANTIZE, QUANTIZE
from converter.formats.zhouyi.quantization.quant_params import QuantParams
from converter.formats.zhouyi.quantization.requantize import INT16
from converter.formats.zhouyi.quantization.rules import TABLE, keeps_integers
from converter.formats.zhouyi.quantization.weights import made
from converter.formats.zhouyi.types import is_float
from converter.graph.infer import constant
from converter.mapping.lowering import refusal
from converter.mapping.node import Layer

# integers are bounded by the range of the layer's result, a float CLIP is a separate layer
_FUSED = FUSED | {"CLIP"}
_BOUNDS = ("RELU", "RELU6", "CLIP")  # the same before and after rounding
UNWRITTEN = "no integer form can be written"
BOOLEAN = QuantParams.of(1.0, 0, ir.DataType.UINT8)


def moves(layer: Layer) -> bool:
    """Return whether a layer has the same effect on integers as on real numbers (its padding value
    is quantized too).
    """
    return (
        layer.kind == "="
        or keeps_integers(layer)
        or (layer.kind == "Pooling" and layer.attrs.get("method") == "MAX")
    )


def _scale_text(params: QuantParams) -> str:
    return f"scale {params.scale:.7g} and zero point {params.zero}"


class Plan:
    """Converts the float layers of a quantized network to integer layers, in order.

    `npu`      as in `IntegerWriting`
    `layers`   the written layers
    `params`   scale and zero point of every quantized value
    `reals`    real numbers -> their quantized value and its params
    `floats`   layers that compute in floats, and why, where the network has them quantized
    """

    def __init__(
        self, layers: Sequence[Layer], constants: dict[ir.Value, QuantizedConstant], npu: bool
    ) -> None:
        self.sources = fuse(layers, _FUSED)
        self.constants, self.npu = constants, npu
        self.readers: dict[ir.Value, list[Layer]] = defaultdict(list)
        for layer in self.sources:
            for v in filter(None, layer.inputs):
                self.readers[v].append(layer)
        self.layers: list[Layer] = []
        self.problems: list[Diagnostic] = []
        self.params: dict[ir.Value, QuantParams] = {}
        self.reals: dict[ir.Value, tuple[ir.Value, QuantParams]] = {}
        self.floats: dict[str, str] = {}

    def run(self) -> None:
        """Determine the quantization of each layer; refusals are added to `problems`."""
        for layer in self.sources:
            if layer.kind == DEQUANTIZE:
                self.params.setdefault(_first(layer), layer.attrs["params"])
        for layer in self.sources:
            try:
                self._layer(layer)
            except MappingError as e:
                message = str(e) if layer.kind[0] == "(" else f"{layer.kind}: {e}"
                self.problems.append(refusal(made(layer).node, MappingError(message, e.code)))
        self._spread()
        for layer in self.layers:
            layer.extra = None  # the writer looks there for the bodies of loops only

    def _layer(self, layer: Layer) -> None:
        if layer.kind == DEQUANTIZE:
            self.reals[layer.outputs[0]] = (_first(layer), layer.attrs["params"])
            self._shown(layer)
        elif layer.kind == QUANTIZE:
            self._quantize(layer)
        elif moves(layer) and layer.inputs[0] in self.reals:
            self._move(layer)
        elif moves(layer) and not _is_real(_first(layer)):
            self.layers.append(layer)
        elif not (self._quantized(layer) and self._integer(layer)):
            self._float(layer)

    def _put(self, layer: Layer, inputs: Sequence[ir.Value | None], *outputs: ir.Value) -> None:
        """Return the layer with other operands and results."""
        self.layers.append(replace(layer, inputs=[*inputs], outputs=[*outputs]))

    def _quantize(self, layer: Layer) -> None:
        source, out, params = _first(layer), layer.outputs[0], layer.attrs["params"]
        read = self.params.setdefault(out, params)
        # an integer layer has its own factor, all other scales are written once, with the tensor
        if read.zero != params.zero or (read.scale != params.scale and source not in self.reals):
            raise MappingError(
                f"{out.name} is quantized with {_scale_text(params)} but dequantized "
                f"with {_scale_text(read)}; a Zhouyi tensor has one scale and one "
                "zero point"
            )
        plain = replace(layer, kind="Quantize", attrs={})
        if source not in self.reals:
            self._put(plain, [source], out)
            return
        stored, own = self.reals[source]
        if own != params and stored is not out:
            self._cast(layer, stored, own, out, params)
        elif stored is not out:
            self._put(replace(plain, kind="="), [stored], out)

    def _cast(
        self, layer: Layer, stored: ir.Value, own: QuantParams, out: ir.Value, params: QuantParams
    ) -> None:
        """Convert from one scale and zero point to another."""
        kind, attrs, blobs = requantization(
            IntegerLowerContext(layer, [stored], [own], params, self.npu)
        )
        name = f"{layer.name}.requantise"
        self._put(replace(layer, kind=kind, name=name, attrs=attrs, blobs=blobs), [stored], out)
        self.params.setdefault(out, params)

    def _move(self, layer: Layer) -> None:
        """Move the quantized values."""
        stored, params = self.reals[_first(layer)]
        outputs = []
        for out in layer.outputs:
            place = out
            if _is_real(out):
                wanted, found = self._wanted(out)
                place = found if wanted == params and found is not None else _stored_as(out, params)
                self.reals[out] = (place, params)
                self.params.setdefault(place, params)
            outputs.append(place)
        attrs = dict(layer.attrs)
        if layer.kind == "Pad" and attrs.get("mode") == "CONSTANT":
            number = np.asarray(attrs.get("constant_value", 0.0))
            attrs["constant_value"] = int(params.quantize(number))
        self._put(replace(layer, attrs=attrs), [stored, *layer.inputs[1:]], *outputs)
        self._shown(layer)

    def _shown(self, layer: Layer) -> None:
        """Dequantize results that are outputs of the network."""
        for out in layer.outputs:
            if out.is_graph_output() and out in self.reals:
                self._number(out)

    def _wanted(self, value: ir.Value) -> tuple[QuantParams | None, ir.Value | None]:
        """Return the parameters that all consumers of a value require, and the value to which they
        apply (None after a layer that only moves elements).
        """
        readers = self.readers[value]
        if value.is_graph_output() or not readers:
            return None, None
        for reader in readers:
            if reader.kind == QUANTIZE:
                continue
            bounds = reader.kind == "Activation" and reader.attrs.get("method") in _BOUNDS
            alone = len(readers) == len(reader.outputs) == 1 and reader.inputs[0] is value
            if not alone or not (bounds or moves(reader)):
                return None, None
            return self._wanted(reader.outputs[0])[0], None
        return readers[0].attrs["params"], readers[0].outputs[0]

    def _quantized(self, layer: Layer) -> bool:
        """Return whether the layer is between DequantizeLinear and QuantizeLinear."""
        real = [v for v in layer.inputs if v is not None and _is_real(v)]
        known = all(v in self.reals or v in self.constants or _is_number(v) for v in real)
        if not known or not any(v in self.reals for v in real):
            return False
        results = [v for v in layer.outputs if _is_real(v)]
        if not results:
            return layer.kind == "Logical"
        return all(self._target(layer, v)[0] is not None for v in results)

    def _target(self, layer: Layer, value: ir.Value) -> tuple[QuantParams | None, ir.Value | None]:
        """Return the parameters of a result. A multiple that another layer reads has as many
        quantization levels as its operand, and so has a Relu.
        """
        params, place = self._wanted(value)
        quantized = any(r.kind == QUANTIZE for r in self.readers[value])
        if params is not None or value.is_graph_output() or quantized:
            return params, place
        source, method = layer.inputs[0], layer.attrs.get("method", layer.kind.upper())
        if layer.kind == "Activation" and method == "RELU" and source in self.reals:
            return self.reals[source][1], None
        return (self._multiple(layer) if method == "MUL" else None), None

    def _multiple(self, layer: Layer) -> QuantParams | None:
        """Return the parameters of a product with one positive number, with as many levels as the
        other operand.
        """
        if len(layer.inputs) != 2 or layer.attrs.get("with_activation", "NONE") != "NONE":
            return None
        x, y = layer.inputs if layer.inputs[0] in self.reals else layer.inputs[::-1]
        array = None if y in self.reals else constant(y)
        if x not in self.reals or array is None or array.size != 1 or not array.item() > 0:
            return None
        params = self.reals[x][1]
        return replace(params, scale=params.scale * float(array.item()))

    def _integer(self, layer: Layer) -> bool:
        """Write the layer in its integer form, if that is accurate to one quantized value of the
        network.
        """
        known = dict(self.reals)
        try:
            self._stored(layer)
        except MappingError as e:
            self.reals = known  # without the operands that were stored for it
            self.floats[layer.name] = f"{layer.kind}: {e}"
            return False
        return True

    def _stored(self, layer: Layer) -> None:
        rule = TABLE.get(layer.kind)
        if rule is None or rule.lower is None or len(layer.outputs) != 1:
            raise MappingError(UNWRITTEN)
        out = layer.outputs[0]
        params, place = self._target(layer, out) if _is_real(out) else (BOOLEAN, out)
        assert params is not None
        operands = [
            self._operand(v) if _is_real(v) else (v, BOOLEAN) for v in layer.inputs if v is not None
        ]
        inputs, sources = [v for v, _ in operands], [p for _, p in operands]
        if any(p.dtype.bitwidth > 16 for p in (*sources, params)):
            raise MappingError("integers of more than 16 bits have no integer form")
        if rule.finer(layer) and (not self.npu or params.scale < sources[0].scale):
            inputs[0], sources[0] = self._finer(layer, inputs[0], sources[0])
        own = rule.result(layer, sources[0], params)
        kind, attrs, blobs = rule.lower(IntegerLowerContext(layer, inputs, sources, own, self.npu))
        stored = _stored_as(out, params) if place is None else place
        first = stored if own == params else _stored_as(out, own)
        self.params.setdefault(first, own)
        self._put(replace(layer, kind=kind, attrs=attrs, blobs=blobs), inputs, first)
        if first is not stored:
            self._cast(layer, first, own, stored, params)
        self.params.setdefault(stored, params)
        if _is_real(out):
            self.reals[out] = (stored, params)

    def _finer(
        self, layer: Layer, stored: ir.Value, params: QuantParams
    ) -> tuple[ir.Value, QuantParams]:
        """Return the same numbers with 16 bits, with a scale that is smaller by the largest factor
        that fits.
        """
        if params.dtype.bitwidth > 8:
            return stored, params
        reach = max(abs(params.low - params.zero), abs(params.high - params.zero))
        times = 1 << int(np.log2(INT16[1] // reach))
        fine = QuantParams.of(params.scale / times, 0, ir.DataType.INT16)
        out = ir.Value(
            name=f"{stored.name}.finer", type=ir.TensorType(fine.dtype), shape=stored.shape
        )
        self._cast(layer, stored, params, out, fine)
        return out, fine

    def _operand(self, value: ir.Value) -> tuple[ir.Value, QuantParams]:
        """Return the quantized value of a real number; a constant keeps its integers, a single
        number gets a scale in which it is the largest value.
        """
        if value in self.reals:
            return self.reals[value]
        held = self.constants.get(value)
        if held is None:
            array = constant(value)
            assert array is not None
            number = float(array.item())
            if not np.isfinite(number):
                raise MappingError("an infinite constant has no integer form")
            params = QuantParams.of(abs(number) / 127 if number else 1.0, 0, ir.DataType.INT8)
            integers = params.quantize(array)
        else:
            found = held.params()
            if found is None:
                raise MappingError("a constant operand with several scales has no integer form")
            params, integers = found, np.asarray(held.stored)
        stored = lazy_value(f"{value.name}.stored", params.dtype, integers.shape, lambda: integers)
        self.params.setdefault(stored, params)
        self.reals[value] = (stored, params)
        return stored, params

    def _float(self, layer: Layer) -> None:
        """Write a layer that the network computes in floats, or one that replaces several operators
        of which only the first input and the last result are quantized.
        """
        stored = [v for v in layer.inputs if v in self.reals and v not in self.constants]
        for v in filter(None, stored):
            self._number(v)
        if any(_is_real(v) for v in layer.outputs) and not moves(layer):
            rule = TABLE.get(layer.kind)
            unwritten = bool(stored) and (rule is None or rule.lower is None)
            why = f"{layer.kind}: {UNWRITTEN}" if unwritten else layer.kind
            self.floats.setdefault(layer.name, why)
        self.layers.append(layer)

    def _number(self, value: ir.Value) -> None:
        """Return the result of a DeQuantize layer for `value`, created once."""
        if not any(x.kind == "DeQuantize" and x.outputs[0] is value for x in self.layers):
            stored, _ = self.reals[value]
            self._put(Layer("DeQuantize", f"{value.name}.dequantise"), [stored], value)

    def _spread(self) -> None:
        """Propagate the parameters through layers that only move elements, in both directions."""
        changed = True
        while changed:
            changed = False
            for layer in filter(moves, self.layers):
                dtype = layer.outputs[0].dtype
                around = [v for v in (_first(layer), *layer.outputs) if v.dtype == dtype]
                known = [self.params[v] for v in around if v in self.params]
                for v in around:
                    if known and v not in self.params:
                        self.params[v], changed = known[0], True


def _first(layer: Layer) -> ir.Value:
    """Return the first operand."""
    value = layer.inputs[0]
    assert value is not None
    return value


def _is_real(value: ir.Value) -> bool:
    return is_float(value.dtype)


def _is_number(value: ir.Value) -> bool:
    return value.const_value is not None and value.const_value.size == 1


def _stored_as(value: ir.Value, params: QuantParams) -> ir.Value:
    """Return a new value for the integers of `value`."""
    name, dtype = f"{value.name}.stored", ir.TensorType(params.dtype)
    return ir.Value(name=name, type=dtype, shape=value.shape)
