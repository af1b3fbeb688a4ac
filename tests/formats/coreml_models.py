"""Small Core ML models made from messages, for tests: no file of anyone else, no coremltools
start-up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from converter.formats.coreml.neuralnetwork.codec import write_mlmodel
from converter.formats.coreml.neuralnetwork.model import MLModel
from converter.formats.coreml.neuralnetwork.params import message_at, write_params
from converter.formats.coreml.neuralnetwork.weights import WeightData
from converter.io.files import Output

Array = np.ndarray[Any, Any]


def layer(
    kind: str,
    inputs: str,
    outputs: str,
    blobs: Mapping[str, Array | WeightData] | None = None,
    **attrs: Any,
) -> tuple[Any, ...]:
    """One layer; inputs and outputs are names separated by spaces."""
    return kind, inputs.split(), outputs.split(), dict(blobs or {}), attrs


def network(
    layers: Sequence[tuple[Any, ...]],
    inputs: Mapping[str, Sequence[int]],
    outputs: Sequence[str],
    *,
    exact: bool = True,
    kind: str = "neuralNetwork",
    dtype: int = 65568,
) -> MLModel:
    model = MLModel()
    model.proto.specificationVersion = 5
    for name, shape in inputs.items():
        array = model.proto.description.input.add(name=name).type.multiArrayType
        array.shape.extend(shape)
        array.dataType = dtype
    for name in outputs:
        model.proto.description.output.add(name=name).type.multiArrayType.dataType = 65568
    body = getattr(model.proto, kind)
    body.SetInParent()
    body.arrayInputShapeMapping = int(exact)
    fill(model, body, layers)
    return model


def fill(model: MLModel, body: Any, layers: Sequence[tuple[Any, ...]]) -> None:
    """Appends layers to a network; attributes that are lists of layers fill bodies of control
    flow.
    """
    for i, (kind, inputs, outputs, blobs, attrs) in enumerate(layers):
        message = body.layers.add(name=f"{kind}_{i}")
        message.input.extend(inputs)
        message.output.extend(outputs)
        params = getattr(message, kind)
        bodies = {
            k: v for k, v in attrs.items() if isinstance(v, list) and v and isinstance(v[0], tuple)
        }
        write_params(params, {k: v for k, v in attrs.items() if k not in bodies})
        for key, inner in bodies.items():
            fill(model, getattr(params, key), inner)
        for path, data in blobs.items():
            model.set_weights(
                message_at(params, path),
                data
                if isinstance(data, WeightData)
                else WeightData.of(np.asarray(data, np.float32)),
            )


def saved(model: MLModel, path: Path) -> Path:
    with Output(path) as out:
        write_mlmodel(model, out)
    return path
