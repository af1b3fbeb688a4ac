"""The contexts in which layers of a network are read and written.

A layer's attributes are the fields of its parameter message (see params.py), its blobs the weights
by path. Blobs are float32 and have at least one axis; in the graph a value keeps its natural type.
A row takes floats unless one of its fields says otherwise: `InputType` for indices and booleans,
`any_type` for layers that only move numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.neuralnetwork import operands as blobs
from converter.formats.coreml.neuralnetwork.collector import CoreLowering, scalar, small
from converter.formats.coreml.neuralnetwork.weight_encoding import (
    LayerWeights,
    of_array,
    stored_form,
)
from converter.formats.coreml.neuralnetwork.weights import WeightData
from converter.formats.coreml.proto import NeuralNetwork_pb2
from converter.graph.demands import axis_of
from converter.graph.infer import Array
from converter.graph.value import Value, known_sizes
from converter.mapping import context
from converter.mapping.codecs import PLAIN, Codec, Kind, same
from converter.mapping.context import Results
from converter.mapping.fields import InputType
from converter.mapping.node import Layer
from converter.passes.constants import evaluate_constant

SPELLING: Mapping[Kind, Codec] = {**PLAIN, dict: same}


@cache
def _messages() -> Mapping[str, Any]:
    fields = NeuralNetwork_pb2.NeuralNetworkLayer.DESCRIPTOR.oneofs_by_name["layer"].fields
    return {f.name: f.message_type for f in fields}


def with_defaults(message: Any, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a message, with protobuf's defaults for those that are not set: zeros
    and empty lists.
    """
    found = dict(attrs)
    for f in message.fields:
        inner, given = f.message_type, found.get(f.name)
        if inner is None and f.containing_oneof is None and f.name not in found:
            enum = f.enum_type
            zero = f.default_value if enum is None else enum.values_by_number[0].name
            found[f.name] = [] if f.is_repeated else zero
        elif isinstance(given, dict) and inner is not None and not f.is_repeated:  # not a map
            found[f.name] = with_defaults(inner, given)
    return found


class LiftContext(context.LiftContext):
    """The context of a layer that is read. `lead`: the number of axes before [C, H, W] that all
    blobs of the network have. A row may return an existing value (`alias`).
    """

    _same: ir.Value | None = None

    def __init__(
        self,
        layer: Layer,
        b: Any,
        version: int = 0,
        spelling: Mapping[Kind, Codec] = SPELLING,
        channels_last: bool = False,
    ) -> None:
        message = _messages().get(layer.kind)
        attrs = layer.attrs if message is None else with_defaults(message, layer.attrs)
        stored = {k: LayerWeights.of(v, f"{layer.name}.{k}") for k, v in layer.blobs.items()}
        layer = replace(layer, attrs=attrs, blobs=stored)
        super().__init__(layer, b, version, spelling, channels_last)
        self.lead: int = layer.extra.lead if layer.extra is not None else 2
        self._given = list(layer.inputs)

    def begin(self, rule: context.Row) -> None:
        typed = {i for f in rule.fields if isinstance(f, InputType) for i in f.positions}
        inputs = [
            v if i in typed or v is None else self.cast(v, ir.DataType.FLOAT)
            for i, v in enumerate(self._given)
        ]
        self.layer = replace(self.layer, inputs=inputs)
        super().begin(rule)
        self._same = None

    def alias(self, value: ir.Value | None) -> None:
        """Make `value` the result; no operator is made."""
        self._same = value

    def emit(self) -> Results:
        return super().emit() if self._same is None else [self._same]

    def cast(self, value: ir.Value, dtype: ir.DataType) -> Value:
        return blobs.cast(self.b, value, dtype)

    def floats(self, index: int = 0) -> Value:
        return self.cast(self.input(index), ir.DataType.FLOAT)

    def axis(self, key: str, rank: int) -> int:
        """Return the axis under `key` as a non-negative number."""
        return axis_of(self.attr(key, int), rank)

    def weights(self, path: str, shape: Sequence[int], axis: int = 0) -> Value:
        """Return weights of that shape, compact as in the file; scales of channels are along
        `axis`.
        """
        stored: LayerWeights = self.layer.blobs[path]
        return stored.lift(self.b, shape, axis)

    def numbers(self, path: str, shape: Sequence[int]) -> Array:
        """Return small weights as an array."""
        stored: LayerWeights = self.layer.blobs[path]
        return stored.array(shape)

    def plain(self, path: str, shape: Sequence[int]) -> Value:
        """Return small weights as a constant."""
        return self.b.const(self.numbers(path, shape), f"{self.layer.name}.{path}")


class LowerContext(context.LowerContext):
    """The context of a layer that is written. `version` is the highest allowed
    specificationVersion. A row may return an existing value (`alias`).
    """

    low: CoreLowering
    _same: ir.Value | None = None

    def begin(self, rule: context.Row) -> None:
        super().begin(rule)
        self._same = None

    def alias(self, value: ir.Value) -> None:
        """Make `value` the result; no layer is written."""
        self._same = value

    def emit_layer(self) -> None:
        if self._same is not None:
            self.low.alias(self.node.outputs[0], self._same)
            return
        super().emit_layer()

    # operands ------------------------------------------------------------------------------------

    def scalar(self, index: int) -> float | None:
        """Return the number in a constant of one element."""
        return scalar(self.optional(index))

    def known(self, index: int) -> list[Any] | None:
        """Return an operand (axes, sizes ...) as a flat list; None when it is known only at
        run time.
        """
        return small(self.optional(index))

    def numbers(self, index: int, what: str) -> Array:
        """Return a constant operand, dequantized if it is compact."""
        array = evaluate_constant(self.optional(index))
        if array is None:
            raise MappingError(f"{what} must be constant")
        return array

    def dims(self, value: ir.Value) -> list[Any] | None:
        """Return the sizes of a value, None for those that are not known; None when not
        even the rank is.
        """
        return known_sizes(value)

    # weights -------------------------------------------------------------------------------------

    def stored(self, value: ir.Value | None, what: str = "weights", axis: int = 0) -> WeightData:
        """Return how a constant operand is stored; raise MappingError if it is computed at
        run time.
        """
        data = stored_form(value, self.low.half, axis)
        if data is None:
            name = "absent" if value is None else value.name
            message = f"the {what} ({name}) must be constant: Core ML stores them with the layer"
            raise MappingError(message)
        return data

    def unquantized(self, value: ir.Value | None) -> WeightData:
        """Return the same as `stored`, for a layer that does not support quantized weights."""
        data = self.stored(value)
        if data.kind in ("float32", "float16"):
            return data
        array = evaluate_constant(value)
        assert array is not None
        return self.plain(array)

    def plain(self, array: Array) -> WeightData:
        half = array.dtype == np.float16
        return of_array(array if half else np.asarray(array, np.float32), self.low.half)
