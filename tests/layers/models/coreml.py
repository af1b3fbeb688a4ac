"""One layer of a Core ML neural network, and the kit's interpreter, which computes its numbers.

Attributes are the fields of the layer's message, weights among them. Arrays have the shapes that
are declared (exact mapping).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from converter.formats.coreml.neuralnetwork.boundary import DTYPES
from converter.formats.coreml.neuralnetwork.codec import write_mlmodel
from converter.formats.coreml.neuralnetwork.lift import lift as lift
from converter.formats.coreml.neuralnetwork.mapping import MAPPING as MAPPING
from converter.formats.coreml.neuralnetwork.model import MLModel
from converter.formats.coreml.proto import Model_pb2
from converter.io.files import Output
from layers.cases import Case, Tensor
from layers.models.judged import JudgeEngine

TARGET, LAYOUT, SUFFIX = "coreml", "", ".mlmodel"
_EXACT, _RANK4 = 1, 1  # mappings of array and image inputs
_CODES = {dtype.numpy(): code for code, dtype in DTYPES.items()}


def build(case: Case) -> MLModel:
    proto = Model_pb2.Model(specificationVersion=int(case.version))
    network = proto.neuralNetwork
    network.arrayInputShapeMapping, network.imageInputShapeMapping = _EXACT, _RANK4
    for i, t in enumerate(case.inputs):
        if t.constant:
            constant = network.layers.add(name=f"x{i}", output=[f"x{i}"]).loadConstantND
            constant.shape.extend(t.shape)
            constant.data.floatValue.extend(t.values.reshape(-1).tolist())
        else:
            _declare(proto.description.input, f"x{i}", t)
    layer = network.layers.add(name="layer")
    layer.input.extend(f"x{i}" for i in range(len(case.inputs)))
    layer.output.extend(f"y{i}" for i in range(len(case.outputs)))
    own = getattr(layer, case.kind)
    own.SetInParent()
    json_format.ParseDict(case.attributes, own)
    for i, t in enumerate(case.outputs):
        if not t.unread:
            _declare(proto.description.output, f"y{i}", t)
    model = MLModel("one")
    model.proto.ParseFromString(model.skeleton(memoryview(proto.SerializeToString())))
    return model


def _declare(features: Any, name: str, t: Tensor) -> None:
    array = features.add(name=name).type.multiArrayType
    array.shape.extend(t.shape)
    array.dataType = _CODES[t.dtype]


def write(model: MLModel, path: Path) -> None:
    with Output(path) as out:
        write_mlmodel(model, out)


def taken(path: Path, kind: str) -> Case | str:
    """The only layer of a file, or why there is none: a file says no shapes within a network."""
    proto = Model_pb2.Model()
    proto.ParseFromString(path.read_bytes())
    layers = [(x, x.WhichOneof("layer")) for x in proto.neuralNetwork.layers]
    own = [(x, kind) for x, kind in layers if kind not in ("loadConstant", "loadConstantND")]
    if len(own) != 1:
        return f"{len(own)} layers: {' '.join(kind for _, kind in own)}"
    layer, kind = own[0]
    known = {f.name: _tensor(f) for f in (*proto.description.input, *proto.description.output)}
    for x, constant in layers:
        if constant in ("loadConstant", "loadConstantND"):
            found = getattr(x, constant)
            numbers = np.array(found.data.floatValue, np.float32).reshape(list(found.shape))
            known[x.output[0]] = Tensor.of(numbers, constant=True)
    outputs = [known.get(n, Tensor("float32", (), unread=True)) for n in layer.output]
    return Case(kind, str(proto.specificationVersion), attributes=fields(getattr(layer, kind)),
                inputs=[known[n] for n in layer.input], outputs=outputs)  # fmt: skip


def fields(message: Any) -> dict[str, Any]:
    """The fields that are set, as `json_format.ParseDict` takes them."""
    return {f.name: _field(f, value) for f, value in message.ListFields()}


def _field(field: Any, value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_single(field, v) for v in value]
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return fields(value)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return field.enum_type.values_by_number[value].name
    if isinstance(value, bytes):
        raise ValueError(f"{field.name}: bytes")
    return value


def _tensor(feature: Any) -> Tensor:
    array = feature.type.multiArrayType
    return Tensor(DTYPES[array.dataType].numpy().name, tuple(array.shape))


class Engine(JudgeEngine):
    judge, name = "coreml-interp", "an interpreter in torch after NeuralNetwork.proto"
