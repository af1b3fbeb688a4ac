"""Document -> the shared graph."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.diagnostics import Diagnostic
from converter.errors import ReadError
from converter.formats.zhouyi import fused
from converter.formats.zhouyi.integer import INTEGER, Quantised, keeps_integers
from converter.formats.zhouyi.integer.dequantise import without_integer_keys
from converter.formats.zhouyi.integer.grids import Grid, dequantised, grids, quantised, stores_steps
from converter.formats.zhouyi.ir import Document, Graph, Layer, Tensor
from converter.formats.zhouyi.lift_bodies import CONTROL, lift_control
from converter.formats.zhouyi.mapping import mapping
from converter.formats.zhouyi.operators import common, find_operator, key_aliases
from converter.formats.zhouyi.topology import check_graphs
from converter.formats.zhouyi.types import ir_dtype
from converter.formats.zhouyi.vague import question
from converter.formats.zhouyi.validate import check_layer
from converter.formats.zhouyi.values import DType
from converter.graph.build import Builder, new_model
from converter.graph.infer import set_type, shape_of
from converter.graph.names import set_public_name
from converter.mapping.drive import Lifting, refuse
from converter.mapping.node import Layer as FarLayer
from converter.mapping.node import MappingError
from converter.mapping.trouble import TROUBLE, told
from converter.model import Model
from converter.passes.channels_last import to_first
from converter.passes.tidy import tidy

# a format without these types keeps them as others: a result of the left type is declared as one of the right
BORDERS = ("Quantize", "DeQuantize")
_KEPT_AS = {ir.DataType.BOOL: ir.DataType.UINT8, ir.DataType.INT64: ir.DataType.INT32}


def lift(document: Document, dequantise: bool = False) -> Model:
    """A Model with the tensors of the header as its boundary, in the layout and types of the file.

    An integer IR is the exact integer arithmetic, or with `dequantise` float operators between DequantizeLinear and QuantizeLinear;
    a quantised file of the parser, which leaves the arithmetic to its quantiser, always the latter.

    ReadError R105 when the graph is not sound; UnsupportedError with every layer that has no counterpart.
    """
    from converter.formats.zhouyi.lift_numbers import NumbersLift

    faults = check_graphs(document)
    if errors := [d for d in faults if d.level == "error"]:
        raise ReadError(errors)
    model, b = new_model(document.name or "main")
    reader = NumbersLift(document, b) if dequantise or stores_steps(document) else GraphLift(document, b)
    reader.run()
    refuse(reader.lifting.problems)
    reader.outputs()
    to_first(model)
    tidy(model)
    return Model(model, "zhouyi", notes=[*faults, *reader.notes])


class GraphLift:
    """Lifts the layers of one document; `env` maps tensor names to values."""

    def __init__(self, document: Graph, builder: Builder, outer: GraphLift | None = None) -> None:
        self.document, self.builder = document, builder
        self.subgraphs: dict[str, Graph] = outer.subgraphs if outer else {g.name: g for g in getattr(document, "subgraphs", ())}
        self.open: list[Graph] = [*outer.open, document] if outer else [document]
        self.lifting = Lifting(mapping(), builder, "zhouyi")
        self.env: dict[str, ir.Value] = {}
        self.notes: list[Diagnostic] = []
        self.zeros = {t.name: z for layer in document.layers for t, z in zip(layer.outputs, zero_points(layer), strict=False)}
        self.steps: bool = outer.steps if outer else stores_steps(document)
        self.grids = grids(document, self.steps)
        self.ranges = {name: (g.low, g.high) for name, g in self.grids.items() if isinstance(g, Grid)}

    def run(self) -> None:
        layers = ordered(self.document)
        inputs = {t.name: (layer, t) for layer in layers if layer.type == "Input" for t in layer.outputs}
        listed = [n for n in self.document.input_tensors if n in inputs]
        for name in dict.fromkeys([*listed, *inputs]):
            if name in self.env and len(self.open) > 1:
                continue  # an input of a sub-graph, fed by its layer
            self._try(inputs[name][0], lambda pair=inputs[name]: self._input(*pair))
        for layer in layers:
            if layer.type == "Constant":
                self._try(layer, lambda layer=layer: self._constant(layer))
            elif layer.type != "Input" and all(t.name in self.env for t in layer.inputs):
                self._layer(layer)

    def outputs(self) -> None:
        for name in self.document.output_tensors:
            self.builder.output(self.env[name])
            set_public_name(self.builder.graph.outputs[-1], name)

    def _try(self, layer: Layer, step: Any) -> None:
        try:
            step()
        except TROUBLE as e:
            code, message, help = told(e)
            self.lifting.problems.append(Diagnostic(code, message, where=layer.where(), help=help))

    def _input(self, layer: Layer, tensor: Tensor) -> None:
        if tensor.dtype is None or tensor.shape is None:
            raise MappingError("an input needs its shape and its type", "R103")
        value = self.builder.input(tensor.name, ir_dtype(tensor.dtype), tensor.shape)
        set_public_name(value, tensor.name)
        self.env[tensor.name] = value

    def _constant(self, layer: Layer) -> None:
        found = layer.constants.get("weights")
        if found is None or len(layer.outputs) != 1:
            raise MappingError("a Constant needs one output and the constant weights", "R103")
        tensor = layer.outputs[0]
        array = found.array
        if tensor.shape is not None and array.shape != tensor.shape and array.size == int(np.prod(tensor.shape)):
            array = array.reshape(tensor.shape)
        self.env[tensor.name] = self.builder.const(array, tensor.name)

    def _layer(self, layer: Layer) -> None:
        if layer.type in CONTROL:
            lift_control(self, layer)
            return
        far = self._far(layer)
        if far.kind in BORDERS and self._border(layer, far):
            return
        if is_integer(layer) and not keeps_integers(far):
            self._integer(layer, far)
        else:
            self._plain(layer, without_integer_keys(far) if is_integer(layer) else far)

    def _border(self, layer: Layer, far: FarLayer) -> bool:
        """Between numbers and stored integers, where the integers' tensor says how; else the layer's own constants do."""
        stored = (layer.outputs if far.kind == "Quantize" else layer.inputs)[0]
        grid = self.grids.get(stored.name)
        if not isinstance(grid, Grid):
            return False
        step = quantised if far.kind == "Quantize" else dequantised
        with self.builder.provenance(format="zhouyi", layer=layer.name, type=layer.type, where=str(layer.where().line)):
            self.env[layer.outputs[0].name] = self._declared(layer.outputs[0], step(self.builder, self.env[layer.inputs[0].name], grid))
        return True

    def _plain(self, layer: Layer, far: FarLayer) -> None:
        """A layer of numbers, or one that moves whatever is stored."""
        if reason := question(far.kind.split("/")[0]):
            self.lifting.refuse(far, reason, "X201")
            return
        attrs, blobs = fused.take(far.attrs, far.blobs) if fused.carries(far.kind.split("/")[0]) else ({}, {})
        results = self.lifting.layer(far)
        if results is None:
            return
        b = self.builder
        try:
            with b.provenance(format="zhouyi", layer=layer.name, type=layer.type, where=str(layer.where().line)):
                results[0] = fused.apply(b, results[0], attrs, blobs)
                if len(results) < len(layer.outputs):
                    raise MappingError(f"the layer has {len(layer.outputs)} outputs, {len(results)} are known", "R105")
                for tensor, value in zip(layer.outputs, results, strict=False):
                    self.env[tensor.name] = self._declared(tensor, value)
        except TROUBLE as e:
            code, message, help = told(e)
            self.lifting.refuse(far, message, code, help)

    def _integer(self, layer: Layer, far: FarLayer) -> None:
        """A layer of an integer IR: the integer form of its type."""
        b = self.builder
        try:
            with b.provenance(format="zhouyi", layer=layer.name, type=layer.type, where=str(layer.where().line)):
                for tensor, value in zip(layer.outputs, self._integer_values(layer, far), strict=True):
                    self.env[tensor.name] = self._declared(tensor, value)
        except TROUBLE as e:
            code, message, help = told(e)
            self.lifting.refuse(far, message, code, help)

    def _integer_values(self, layer: Layer, far: FarLayer, types: list[ir.DataType] | None = None) -> list[ir.Value]:
        step = INTEGER.get(far.kind.split("/")[0])
        if step is None:
            raise MappingError(f"{layer.type} has no integer form here", "X201")
        inputs, outputs = ([self.zeros.get(t.name, 0) for t in tensors] for tensors in (layer.inputs, layer.outputs))
        declared, sources = ([ir_dtype(t.dtype) for t in tensors if t.dtype is not None] for tensors in (layer.outputs, layer.inputs))
        bits = declared[0].bitwidth if declared else 8
        first, last = (self.grids.get(tensors[0].name) if tensors else None for tensors in (layer.inputs, layer.outputs))
        ratio = first.scale / last.scale if isinstance(first, Grid) and isinstance(last, Grid) else 1.0
        ranges = [self.ranges.get(t.name) for t in layer.outputs]
        found = step(far, self.builder, Quantised(inputs, outputs, types or declared, ranges, sources, bits, ratio))
        return [found] if isinstance(found, ir.Value) else list(found)

    def _declared(self, tensor: Tensor, value: ir.Value) -> ir.Value:
        """`value` in the type and shape that the file declares, where the format keeps a type as another."""
        b = self.builder
        declared = ir_dtype(tensor.dtype) if tensor.dtype is not None else _KEPT_AS.get(value.dtype) if value.dtype else None
        if declared is not None and value.dtype is not None and declared != value.dtype:
            if value.dtype.is_floating_point() != declared.is_floating_point():
                raise MappingError(f"layer_top_type says {tensor.dtype}, the layer computes {value.dtype.name}", "R105")
            value = b.op("Cast", value, to=int(declared), name=tensor.name)
        found = shape_of(value)
        if tensor.shape is None or found == tensor.shape:
            return value
        if found is None:
            if value.shape is not None and len(value.shape) != len(tensor.shape):
                raise MappingError(f"layer_top_shape says {list(tensor.shape)}, the layer computes {len(value.shape)} axes", "R105")
            value.shape = ir.Shape(tensor.shape)
            return value
        if [d for d in found if d != 1] != [d for d in tensor.shape if d != 1]:
            raise MappingError(f"layer_top_shape says {list(tensor.shape)}, the layer computes {list(found)}", "R105")
        return b.op("Reshape", value, list(tensor.shape), name=tensor.name)

    def _far(self, layer: Layer) -> FarLayer:
        """The layer as rows and pairs see it: known keys only, words in upper case, the method in the kind where a pair wants it."""
        operator = find_operator(layer.type)
        kind = operator.name if operator is not None else layer.type
        attrs = {key_aliases().get(k, k): upper(v) for k, v in layer.attrs.items() if not _general(k)}
        blobs: dict[str, Any] = {k: c.array for k, c in layer.constants.items() if not _general(k)}
        if operator is not None:
            self._drop_unknown(layer, attrs)
        special = f"{kind}/{attrs.get('method')}"
        inputs: list[ir.Value | None] = [self.env[t.name] for t in layer.inputs]
        outputs = [declared(t) for t in layer.outputs]
        return FarLayer(special if special in self.lifting.mapping.lift_special else kind, layer.name, attrs, blobs, inputs, outputs, layer.where(), layer)

    def _drop_unknown(self, layer: Layer, attrs: dict[str, Any]) -> None:
        """Keys of one's own are allowed (section 4.5); they are named in a warning and left out."""
        for d in check_layer(layer):
            if d.code == "R111":
                self.notes.append(Diagnostic(d.code, d.message, "warning", d.where, help=d.help))
                attrs.pop(d.message.rsplit(" ", 1)[-1], None)


def is_integer(layer: Layer) -> bool:
    """Whether the outputs are quantised: integers with a scale. An integer IR has float layers too where its `precision` is mixed."""
    return bool(zero_points(layer)) and all(t.dtype is not None and not t.dtype.is_float for t in layer.outputs)


def zero_points(layer: Layer) -> list[int]:
    """`layer_top_zp` of a layer that has `layer_top_scale` too, one for each output."""
    given = layer.attrs.get("layer_top_zp")
    zeros = given if isinstance(given, list) else []
    if "layer_top_zp" in layer.constant_lists:
        zeros = [int(c.array.reshape(-1)[0]) for c in layer.constant_lists["layer_top_zp"]]
    scaled = "layer_top_scale" in layer.attrs or "layer_top_scale" in layer.constant_lists
    known = [int(z) for z in zeros if isinstance(z, int | float)]
    return known if scaled and len(known) == len(zeros) else []


def _general(key: str) -> bool:
    """Keys that any layer may have and that say nothing about a float network."""
    return key in common().attributes or key in common().groups or key.startswith("ds_") or key in ("weights_range", "biases_range")


def upper(value: Any) -> Any:
    if isinstance(value, list):
        return [upper(v) for v in value]
    return value.upper() if isinstance(value, str) and not isinstance(value, DType) else value


def declared(tensor: Tensor) -> ir.Value:
    value = ir.Value(name=tensor.name)
    try:
        set_type(value, None if tensor.dtype is None else ir_dtype(tensor.dtype), tensor.shape)
    except MappingError:
        set_type(value, None, tensor.shape)
    return value


def ordered(document: Graph) -> list[Layer]:
    """The layers so that each stands behind what it reads, otherwise in the order of the file."""
    place = {t.name: i for i, layer in enumerate(document.layers) for t in layer.outputs}
    waiting = [{place[t.name] for t in layer.inputs if t.name in place} for layer in document.layers]
    readers: dict[int, list[int]] = {}
    for i, sources in enumerate(waiting):
        for s in sources:
            readers.setdefault(s, []).append(i)
    ready = [i for i, sources in enumerate(waiting) if not sources]
    result = []
    while ready:
        i = heapq.heappop(ready)
        result.append(document.layers[i])
        for r in readers.get(i, []):
            waiting[r].discard(i)
            if not waiting[r]:
                heapq.heappush(ready, r)
    return result
