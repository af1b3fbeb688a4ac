"""A Core ML model in memory: the protobuf message, and its weights separately."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from typing import Any

import numpy as np

from converter.errors import Where, unreadable
from converter.formats.coreml.neuralnetwork.weights import (
    FIELDS,
    KEY,
    PAYLOADS,
    Array,
    Kind,
    WeightData,
    headed,
    reference,
    take_apart,
)
from converter.formats.coreml.proto import Model_pb2, NeuralNetwork_pb2
from converter.graph.lazy_tensor import LazyTensor
from converter.io.protobuf import Piece, Rewrite, Route, WireError, buffers

NETWORKS = ("neuralNetwork", "neuralNetworkClassifier", "neuralNetworkRegressor")
PIPELINES = ("pipeline", "pipelineClassifier", "pipelineRegressor")

_TO_WEIGHTS = Route(Model_pb2.Model.DESCRIPTOR, NeuralNetwork_pb2.WeightParams.DESCRIPTOR)
# shorter messages are left to protobuf: looking into them costs more than it saves
_WORTH_SPLICING = 1024
_NUMBERS = itertools.count()


class MLModel:
    """A Core ML model: `proto` is the message; the content of its WeightParams is reached through
    `weights` and `set_weights` only.

    Large payloads are not in the message (see `weights.py`). A WeightParams that refers to one
    keeps its meaning when it is copied or moved within this model; put into another model it is an
    AssertionError on use.
    """

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.proto: Any = Model_pb2.Model()
        self._payloads: list[dict[int, LazyTensor]] = []
        self._number = next(_NUMBERS)

    @property
    def kind(self) -> str:
        """Return the kind of model that is set, such as `neuralNetworkClassifier`; "" when
        none is.
        """
        return self.proto.WhichOneof("Type") or ""

    def skeleton(self, data: memoryview) -> bytes:
        """Return the serialized model `data` without its large payloads, which are kept here as
        slices of it; raise WireError if it is malformed.
        """

        def take_out(start: int, end: int) -> list[Piece]:
            parts = take_apart(data, start, end)
            return (
                [*parts.rest, memoryview(self._keep(parts.payloads))]
                if parts.payloads
                else [data[start:end]]
            )

        splice = Rewrite(data, lambda start, end: end - start > _WORTH_SPLICING, take_out)
        return b"".join(buffers(splice.pieces(_TO_WEIGHTS, 0, len(data))))

    def weights(self, params: Any, where: Where | None = None) -> WeightData:
        """Return the content of a WeightParams of this model; one without content is an empty
        float32 array.

        Raises ReadError: R103 damaged, R110 several kinds of content or an impossible quantization.
        Lengths are not compared with shapes.
        """
        where = where or Where(self.path)
        found, _ = self._resolve(params.SerializeToString(), where)
        payloads = {number: weight for number, weight in found.items() if weight.nbytes}
        if len(payloads) > 1:
            raise unreadable(
                "R110",
                "weights are stored in several types at once: "
                + ", ".join(PAYLOADS[n] for n in sorted(payloads)),
                where,
            )
        number, weight = next(
            iter(payloads.items()), (FIELDS["float32"], LazyTensor(np.empty(0, "<f4")))
        )
        kind = PAYLOADS[number]
        if kind == "float16" and weight.nbytes % 2:
            raise unreadable(
                "R103", f"{weight.nbytes} bytes cannot be split into float16 weights", where
            )
        return (
            _quantized(kind, weight, params.quantization, where)
            if kind in ("quantised", "int8")
            else WeightData(kind, weight)
        )

    def set_weights(self, params: Any, data: WeightData) -> None:
        """Make `data` the content of a WeightParams of this model; its bytes are not requested
        before the model is written.
        """
        updatable = params.isUpdatable
        params.Clear()
        params.isUpdatable = updatable
        if data.bits:
            params.quantization.numberOfBits = data.bits
        if data.lut.size:
            params.quantization.lookupTableQuantization.floatValue.extend(data.lut.tolist())
        elif data.scale.size or data.bias.size:
            params.quantization.linearQuantization.scale.extend(data.scale.tolist())
            params.quantization.linearQuantization.bias.extend(data.bias.tolist())
        params.MergeFromString(self._keep({FIELDS[data.kind]: data.weight}))

    def pieces(self) -> list[Piece]:
        """Yield the serialized model with its payloads, in file order; no payload has been computed
        or copied yet.
        """
        whole = self.proto.SerializeToString(deterministic=True)
        data = memoryview(whole)
        marks = _positions(whole, KEY)

        def has_reference(start: int, end: int) -> bool:
            first = bisect_left(marks, start)
            return first < len(marks) and marks[first] < end

        def put_back(start: int, end: int) -> list[Piece]:
            payloads, rest = self._resolve(data[start:end], Where(self.path))
            return [*headed(payloads), *rest]

        return Rewrite(data, has_reference, put_back).pieces(_TO_WEIGHTS, 0, len(data))

    def to_bytes(self) -> bytes:
        """Return the content of the file in memory: for small models and tests."""
        return b"".join(buffers(self.pieces()))

    def _keep(self, payloads: dict[int, LazyTensor]) -> bytes:
        """Store payloads and return the field that refers to them."""
        self._payloads.append(payloads)
        return reference(self._number, len(self._payloads) - 1)

    def _resolve(
        self, params: bytes | memoryview, where: Where
    ) -> tuple[dict[int, LazyTensor], list[memoryview]]:
        """Return the payloads of a serialized WeightParams by field number, and the rest of it.

        Protobuf merges repeated occurrences of a message. How a large and a small one interleave is
        no longer known then, so both are refused.
        """
        try:
            parts = take_apart(memoryview(params), 0, len(params))
        except WireError as e:
            raise unreadable("R103", f"the weights are damaged: {e}", where) from None
        if len(parts.references) + bool(parts.payloads) > 1:
            raise unreadable("R103", "one set of weights is spread over several messages", where)
        for number, index in parts.references:
            if number != self._number:
                raise AssertionError(
                    "the weights of one model were put into another; use set_weights to copy them"
                )
            return self._payloads[index], parts.rest
        return parts.payloads, parts.rest


def _quantized(kind: Kind, weight: LazyTensor, quantization: Any, where: Where) -> WeightData:
    bits = int(quantization.numberOfBits)
    lut = _floats(quantization.lookupTableQuantization.floatValue)
    linear = quantization.linearQuantization
    method = quantization.WhichOneof("QuantizationType")
    allowed = range(8, 9) if kind == "int8" else range(1, 9)
    if bits not in allowed:
        raise unreadable(
            "R110",
            f"quantized weights of {bits} bits are not supported; "
            f"{'8' if kind == 'int8' else '1 to 8'} bits are",
            where,
        )
    if method is None:
        raise unreadable("R110", "quantized weights have neither scales nor a lookup table", where)
    if method == "lookupTableQuantization" and lut.size != 1 << bits:
        raise unreadable(
            "R110",
            f"a lookup table for {bits} bits must have {1 << bits} entries, got {lut.size}",
            where,
        )
    return WeightData(kind, weight, bits, _floats(linear.scale), _floats(linear.bias), lut)


def _floats(repeated: Any) -> Array:
    return np.fromiter(repeated, np.float32, len(repeated))


def _positions(data: bytes, key: bytes) -> list[int]:
    """Return the positions of `key`, ascending."""
    found = []
    at = data.find(key)
    while at >= 0:
        found.append(at)
        at = data.find(key, at + len(key))
    return found
