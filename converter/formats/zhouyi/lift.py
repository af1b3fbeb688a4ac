"""The layers of a graph, one after the other -> the shared graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError
from converter.formats.zhouyi import fused
from converter.formats.zhouyi.ir import Graph, Layer, Tensor
from converter.formats.zhouyi.mapping import MAPPING
from converter.formats.zhouyi.operators import common, find_operator, key_aliases
from converter.formats.zhouyi.quantization.context import IntegerLiftContext, without_integer_keys
from converter.formats.zhouyi.quantization.quant_params import (
    QuantParams,
    dequantized,
    of_parser,
    params_of_tensors,
    per_output,
    quantized,
)
from converter.formats.zhouyi.quantization.rules import TABLE, keeps_integers
from converter.formats.zhouyi.topology import ordered
from converter.formats.zhouyi.types import ir_dtype
from converter.formats.zhouyi.unsupported import question
from converter.formats.zhouyi.validate import check_layer
from converter.formats.zhouyi.values import DType
from converter.graph.build import Builder
from converter.graph.infer import set_type, shape_of
from converter.graph.names import set_public_name
from converter.graph.value import type_name, with_operators
from converter.mapping.conversion_errors import CONVERSION_ERRORS, code_message_help
from converter.mapping.lifting import Lifting
from converter.mapping.node import Layer as FarLayer
from converter.mapping.node import Parameters
from converter.mapping.rules import Custom

# a format without these types keeps them as others: a result of the left type is declared as one of
# the right
BORDERS = ("Quantize", "DeQuantize")
_COMPARED = frozenset(("Reduce", "MaxPoolingWithArgMax"))
_SHORT = (ir.DataType.INT16, ir.DataType.UINT16)
_KEPT_AS = {ir.DataType.BOOL: ir.DataType.UINT8, ir.DataType.INT64: ir.DataType.INT32}


Control = Mapping[str, Callable[[Any, Layer], Sequence[ir.Value]]]


class GraphLift:
    """Lift the layers of one document. `env` maps tensor names to values, `control` the types of
    layers with sub-graphs to their lifting functions.
    """

    control: Control = {}  # noqa: RUF012 - replaced as a whole, never changed

    def __init__(self, document: Graph, builder: Builder, outer: GraphLift | None = None) -> None:
        self.document, self.builder = document, builder
        self.subgraphs: dict[str, Graph] = (
            outer.subgraphs if outer else {g.name: g for g in getattr(document, "subgraphs", ())}
        )
        self.open: list[Graph] = [*outer.open, document] if outer else [document]
        self.lifting = Lifting(MAPPING, builder, "zhouyi")
        self.env: dict[str, ir.Value] = {}
        self.notes: list[Diagnostic] = []
        self.zeros = {
            t.name: z
            for layer in document.layers
            for t, z in zip(layer.outputs, zero_points(layer), strict=False)
        }
        self.parser: bool = outer.parser if outer else of_parser(document)
        self.params = params_of_tensors(document, self.parser)

    def run(self) -> None:
        """Lift the document: its inputs, constants and layers."""
        layers = ordered(self.document)
        inputs = {
            t.name: (layer, t) for layer in layers if layer.type == "Input" for t in layer.outputs
        }
        listed = [n for n in self.document.input_tensors if n in inputs]
        for name in dict.fromkeys([*listed, *inputs]):
            if name not in self.env or len(self.open) == 1:  # others are fed by their layer
                self._input(*inputs[name])
        for layer in layers:
            if layer.type == "Constant":
                self._constant(layer)
            elif layer.type != "Input" and all(t.name in self.env for t in layer.inputs):
                self._layer(layer)

    @contextmanager
    def _noting(self, layer: Layer) -> Iterator[None]:
        """Mark new nodes as belonging to this layer; if it cannot be lifted, note the reason as a
        problem.
        """
        place = {"layer": layer.name, "type": layer.type, "where": str(layer.where().line)}
        try:
            with self.builder, self.builder.provenance(format="zhouyi", **place):
                yield
        except CONVERSION_ERRORS as e:
            code, message, help = code_message_help(e)
            inputs = [self.env[t.name] for t in layer.inputs if t.name in self.env]
            refused = FarLayer(layer.type, layer.name, inputs=[*inputs], where=layer.where())
            self.lifting.refuse(refused, message, code, help)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return `value` in a type that the format stores as another."""
        return self.lifting.reading(FarLayer("")).cast(value, dtype)

    def outputs(self) -> None:
        """Add the outputs of the document to the graph."""
        for name in self.document.output_tensors:
            self.builder.output(self.env[name])
            set_public_name(self.builder.graph.outputs[-1], name)

    def _input(self, layer: Layer, tensor: Tensor) -> None:
        with self._noting(layer):
            if tensor.dtype is None or tensor.shape is None:
                raise MappingError("an input must have a shape and a type", "R103")
            value = self.builder.input(tensor.name, ir_dtype(tensor.dtype), tensor.shape)
            set_public_name(value, tensor.name)
            self.env[tensor.name] = value

    def _constant(self, layer: Layer) -> None:
        with self._noting(layer):
            found = layer.constants.get("weights")
            if found is None or len(layer.outputs) != 1:
                message = "a Constant must have one output and the constant weights"
                raise MappingError(message, "R103")
            (tensor,), array = layer.outputs, found.array
            if tensor.shape is not None and array.size == math.prod(tensor.shape):
                array = array.reshape(tensor.shape)
            self.env[tensor.name] = self.builder.const(array, tensor.name)

    def _layer(self, layer: Layer) -> None:
        with self._noting(layer):
            results = self._results(layer)
            if len(results) < len(layer.outputs):
                declared = f"the layer has {len(layer.outputs)} outputs"
                raise MappingError(f"{declared}, but {len(results)} are known", "R105")
            for tensor, value in zip(layer.outputs, results, strict=False):
                self.env[tensor.name] = self._declared(tensor, value)

    def _results(self, layer: Layer) -> Sequence[ir.Value]:
        """Return the results of the layer, not yet in the types and shapes that the file
        declares.
        """
        if layer.type in self.control:
            return self.control[layer.type](self, layer)
        far = self._far(layer)
        if far.kind in BORDERS and (value := self._border(layer, far.kind)) is not None:
            return [value]
        if is_integer(layer) and not keeps_integers(far):
            return self._integers(layer, far)
        return self._moved(far)

    def _border(self, layer: Layer, kind: str) -> ir.Value | None:
        """Quantize or dequantize a value, by the parameters of the integers' tensor if given, else
        by the layer's own constants.
        """
        reads = kind == "Quantize"
        carriers = layer.outputs if reads else layer.inputs
        params = self.quant_params(carriers[0]) if carriers and layer.inputs else None
        if params is None:
            return None
        x = with_operators(self.env[layer.inputs[0].name])
        return (quantized if reads else dequantized)(self.builder, x, params)

    def _numbers(self, far: FarLayer) -> list[ir.Value]:
        """Lift a layer on real numbers, or one that only moves elements."""
        far = without_integer_keys(far)
        if reason := question(far.kind):
            raise MappingError(reason, "X201")
        taken = fused.take(far.attrs, far.blobs) if fused.carries(far.kind) else ({}, {})
        y, *more = self.lifting.mapping.table.lift(self.lifting.reading(far))
        self._note_unread(far)
        behind = fused.activation(y, *taken)
        return [y if behind is None else self._numbers(behind)[0], *more]

    def _moved(self, far: FarLayer) -> list[ir.Value]:
        """Lift a layer that moves integers; kernels compare 16-bit numbers as floats only."""
        x = far.inputs[0] if far.inputs else None
        if far.kind not in _COMPARED or x is None or x.dtype not in _SHORT:
            return self._numbers(far)
        far.inputs[0] = self.builder.Cast(x, to=ir.DataType.FLOAT)
        results = self._numbers(far)
        return [self.builder.Cast(results[0], to=x.dtype), *results[1:]]

    def quant_params(self, tensor: Tensor) -> QuantParams | None:
        """Return the quantization parameters in the file, where they are valid."""
        found = self.params.get(tensor.name)
        return found if isinstance(found, QuantParams) else None

    def _integers(
        self, layer: Layer, far: FarLayer, types: list[ir.DataType] | None = None
    ) -> Sequence[ir.Value]:
        """Read a layer of an integer IR in the integer form of its type; `types` are those of its
        results if they differ from the file's.
        """
        rule = TABLE.get(far.kind)
        if rule is None or rule.lift is None:
            message = f"it is not documented how {layer.type} scales its integers"
            raise MappingError(message, "X201")
        inputs, outputs = layer.inputs, layer.outputs
        own = _types(outputs)
        sources, params = ([self.quant_params(t) for t in ts] for ts in (inputs, outputs))
        first, result = ([*ps, None][0] for ps in (sources, params))
        reading = IntegerLiftContext(
            far,
            self.builder,
            input_zeros=[self.zeros.get(t.name, 0) for t in inputs],
            input_types=_types(inputs),
            input_ranges=[None if p is None else (p.low, p.high) for p in sources],
            zeros=[self.zeros.get(t.name, 0) for t in outputs],
            types=types or own,
            ranges=[None if p is None else (p.low, p.high) for p in params],
            bits=own[0].bitwidth if own else 8,
            stated=(first.stated, result.stated) if first and result else (1.0, 1.0),
        )
        found = rule.lift(reading)
        return [found] if isinstance(found, ir.Value) else found

    def _declared(self, tensor: Tensor, value: ir.Value) -> ir.Value:
        """Return `value` in the type and shape that the file declares, if the format stores the
        type as another.
        """
        b = self.builder
        declared = _KEPT_AS.get(value.dtype) if value.dtype is not None else None
        if tensor.dtype is not None:
            declared = ir_dtype(tensor.dtype)
        if declared is not None and value.dtype is not None and declared != value.dtype:
            if value.dtype.is_floating_point() != declared.is_floating_point():
                computes = f"the layer computes {type_name(value.dtype)}"
                raise MappingError(
                    f"layer_top_type declares {tensor.dtype}, but {computes}", "R105"
                )
            value = b.Cast(value, to=declared, name=tensor.name)
        found, shape = shape_of(value), tensor.shape
        if shape is None or found == shape:
            return value
        if found is None and (value.shape is None or len(value.shape) == len(shape)):
            value.shape = ir.Shape(shape)
            return value
        if found is None or [d for d in found if d != 1] != [d for d in shape if d != 1]:
            computed = f"{len(value.shape or ())} axes" if found is None else list(found)
            message = f"layer_top_shape declares {list(shape)}, but the layer computes {computed}"
            raise MappingError(message, "R105")
        return b.Reshape(value, list(shape), name=tensor.name)

    def _far(self, layer: Layer) -> FarLayer:
        """Return the layer for use in rows: known keys only, words in upper case."""
        operator = find_operator(layer.type)
        kind = operator.name if operator is not None else layer.type
        attrs = {
            key_aliases().get(k, k): upper(v) for k, v in layer.attrs.items() if not _general(k)
        }
        blobs: dict[str, Any] = {k: c.array for k, c in layer.constants.items() if not _general(k)}
        if operator is not None:
            self._drop_unknown(layer, attrs)
        if kind in TABLE and is_integer(layer):
            attrs = {k: v for k, v in attrs.items() if k not in TABLE[kind].ignored}
        inputs: list[ir.Value | None] = [self.env[t.name] for t in layer.inputs]
        outputs = [declared(t) for t in layer.outputs]
        return FarLayer(kind, layer.name, attrs, blobs, inputs, outputs, layer.where(), layer)

    def _note_unread(self, far: FarLayer) -> None:
        """Note keys that a converter did not read, of layer types whose keys are not all
        documented: of the others `_drop_unknown` does.
        """
        operator = find_operator(far.kind)
        entries = MAPPING.table.entries_of(far.kind)
        if operator is None or not operator.open or not isinstance(entries[0], Custom):
            return
        assert isinstance(far.attrs, Parameters)
        for key in sorted(far.attrs.keys() - far.attrs.read - entries[0].ignored):
            message = f"{far.kind}: the key {key} is not known and was not read"
            self.notes.append(Diagnostic("R111", message, "warning", far.where))

    def _drop_unknown(self, layer: Layer, attrs: dict[str, Any]) -> None:
        """Drop custom keys, which are allowed (section 4.5), with a warning."""
        for d in check_layer(layer):
            if d.code == "R111":
                self.notes.append(Diagnostic(d.code, d.message, "warning", d.where, help=d.help))
                attrs.pop(d.message.rsplit(" ", 1)[-1], None)


def _types(tensors: Sequence[Tensor]) -> list[ir.DataType]:
    return [ir_dtype(t.dtype) for t in tensors if t.dtype is not None]


def is_integer(layer: Layer) -> bool:
    """Return whether the outputs are quantized: integers with a scale. An integer IR has float
    layers too where its `precision` is mixed.
    """
    return bool(zero_points(layer)) and all(
        t.dtype is not None and not t.dtype.is_float for t in layer.outputs
    )


def zero_points(layer: Layer) -> list[int]:
    """Return `layer_top_zp`, one for each output, of a layer that has `layer_top_scale` too."""
    try:
        zeros = [np.asarray(z).reshape(-1) for z in per_output(layer, "layer_top_zp")]
    except ValueError:  # of lists of unequal lengths
        return []
    sound = all(z.size and z.dtype.kind in "iuf" for z in zeros)
    scaled = bool(per_output(layer, "layer_top_scale"))
    return [int(z[0]) for z in zeros] if sound and scaled else []


def _general(key: str) -> bool:
    """Return the keys that any layer may have and that have no effect in a float network."""
    return (
        key in common().attributes
        or key in common().groups
        or key.startswith("ds_")
        or key in ("weights_range", "biases_range")
    )


def upper(value: Any) -> Any:
    """Return an attribute's value with its words in upper case."""
    if isinstance(value, list):
        return [upper(v) for v in value]
    return value.upper() if isinstance(value, str) and not isinstance(value, DType) else value


def declared(tensor: Tensor) -> ir.Value:
    """Return a value with the type and the shape of a tensor; types that the graph lacks are left
    out.
    """
    value = ir.Value(name=tensor.name)
    try:
        set_type(value, None if tensor.dtype is None else ir_dtype(tensor.dtype), tensor.shape)
    except MappingError:
        set_type(value, None, tensor.shape)
    return value
