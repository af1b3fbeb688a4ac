"""Activations that another layer carries along: `with_activation`, both ways."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.operators import find_operator
from converter.graph.build import Builder
from converter.mapping.node import Layer

KEYS = (
    "with_activation",
    "clip_min",
    "clip_max",
    "negative_slope_type",
    "negative_slope_value",
    "alpha",
    "gamma",
)
# what the vendor's own parser fuses, and into which layers
CARRIERS = frozenset(
    {
        "Convolution",
        "DepthwiseConv",
        "ConvTranspose",
        "Convolution3D",
        "ConvTranspose3D",
        "FullyConnected",
        "Eltwise",
        "Add",
        "Sub",
        "Mul",
    }
)
FUSED = frozenset({"RELU", "RELU6", "LEAKYRELU"})


def carries(kind: str) -> bool:
    operator = find_operator(kind)
    return operator is not None and "with_activation" in operator.attributes


def take(attrs: dict[str, Any], blobs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Moves the keys of the activation out of a layer's attributes and constants."""
    return {k: attrs.pop(k) for k in KEYS if k in attrs}, {
        k: blobs.pop(k) for k in ("negative_slope",) if k in blobs
    }


def apply(b: Builder, y: ir.Value, attrs: dict[str, Any], blobs: dict[str, Any]) -> ir.Value:
    """The activation behind `y`."""
    name = str(attrs.get("with_activation", "NONE")).upper()
    if name == "NONE":
        return y
    if name == "RELU":
        return b.Relu(y)
    if name == "RELU6":
        return b.Clip(y, 0, 6)
    if name == "CLIP":
        return b.Clip(y, _number(attrs, "clip_min"), _number(attrs, "clip_max"))
    if name == "LEAKYRELU":
        return b.LeakyRelu(y, alpha=_number(attrs, "negative_slope_value"))
    if name == "SELU":
        return b.Selu(y, alpha=_number(attrs, "alpha"), gamma=_number(attrs, "gamma"))
    if name == "PRELU" and "negative_slope" in blobs:
        return b.PRelu(y, b.const(np.asarray(blobs["negative_slope"]), "negative_slope"))
    raise MappingError(f"with_activation={name} has no counterpart", "R110")


def _number(attrs: dict[str, Any], key: str) -> float:
    value = attrs.get(key)
    if not isinstance(value, int | float):
        raise MappingError(f"with_activation={attrs['with_activation']} needs {key}", "R110")
    return float(value)


def fuse(layers: Sequence[Layer], methods: Collection[str] = FUSED) -> list[Layer]:
    """Activations of those methods that alone read what one carrier writes move into it; every
    carrier gets its `with_activation`.
    """
    readers: dict[ir.Value, int] = {}
    for layer in layers:
        for v in layer.inputs:
            if v is not None:
                readers[v] = readers.get(v, 0) + 1
    writers: dict[ir.Value, Layer] = {}
    kept = []
    for layer in layers:
        source = (
            layer.inputs[0]
            if layer.kind == "Activation" and layer.attrs.get("method") in methods
            else None
        )
        carrier = writers.get(source) if source is not None else None
        if (
            source is not None
            and carrier is not None
            and readers[source] == 1
            and not source.is_graph_output()
        ):
            carrier.attrs |= {
                "with_activation": layer.attrs["method"],
                **{k: v for k, v in layer.attrs.items() if k != "method"},
            }
            carrier.outputs = list(layer.outputs)
            del writers[source]
            continue
        kept.append(layer)
        if layer.kind in CARRIERS:
            layer.attrs["with_activation"] = "NONE"
            writers[layer.outputs[0]] = layer
    return kept
