"""Random numbers and custom layers: carried, not computed."""

from __future__ import annotations

import json
from typing import Any

import onnx_ir as ir

from converter.formats.coreml.blobs import floats, operand, operands, vector
from converter.formats.coreml.special.registry import lifts
from converter.graph.build import Builder
from converter.mapping.node import Layer

Value = ir.Value
_KINDS = {"Normal": ("mean", "stdDev"), "Uniform": ("minVal", "maxVal"), "Bernoulli": ("prob",)}
_NAMES = {"mean": "mean", "stdDev": "scale", "minVal": "low", "maxVal": "high", "prob": "prob"}


@lifts(" ".join(f"random{kind}{form}" for kind in _KINDS for form in ("Like", "Static", "Dynamic")))
def lift_random(layer: Layer, b: Builder) -> Value:
    """The three forms differ in where the shape comes from."""
    p = layer.attrs
    kind = next(k for k in _KINDS if layer.kind.startswith(f"random{k}"))
    if layer.kind.endswith("Static"):
        shape: Value = b.const([int(d) for d in p["outputShape"]])
    else:
        shape = b.op("Shape", operand(layer)) if layer.kind.endswith("Like") else vector(b, operand(layer))
    parameters: dict[str, Any] = {_NAMES[k]: float(p[k]) for k in _KINDS[kind]}
    return b.ext(f"Random{kind}", shape, seed=int(p["seed"]), **parameters)


@lifts("categoricalDistribution")
def lift_categorical(layer: Layer, b: Builder) -> Value:
    p = layer.attrs
    return b.ext(
        "RandomCategorical",
        floats(b, operand(layer)),
        seed=int(p["seed"]),
        samples=int(p["numSamples"]),
        logits=int(p["isLogits"]),
        eps=p["eps"] or 1e-10,
        temperature=p["temperature"] or 1.0,
    )


@lifts("custom")
def lift_custom(layer: Layer, b: Builder) -> tuple[Value, ...]:
    """Everything of the layer, weights as further inputs."""
    p = layer.attrs
    weights = [_weights(b, blob) for _, blob in sorted(layer.blobs.items(), key=lambda kv: int(kv[0].split("[")[1][:-1]))]
    return b.exts(
        "CustomLayer",
        *(floats(b, v) for v in operands(layer)),
        *weights,
        outputs=max(1, len(layer.outputs)),
        class_name=p["className"],
        description=p["description"],
        parameters=json.dumps(p["parameters"], sort_keys=True),
        weights=len(weights),
    )


def _weights(b: Builder, blob: object) -> Value:
    from converter.formats.coreml.stored import Stored

    assert isinstance(blob, Stored)
    return blob.lift(b, [blob.data().count])
