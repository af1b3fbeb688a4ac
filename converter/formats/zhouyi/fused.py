"""Activations that another layer carries along: `with_activation`, both ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.operators import find_operator
from converter.mapping.node import Layer

# the keys and constants that each needs
NEEDED = {
    "RELU": (),
    "RELU6": (),
    "CLIP": ("clip_min", "clip_max"),
    "LEAKYRELU": ("negative_slope_value",),
    "SELU": ("alpha", "gamma"),
    "PRELU": ("negative_slope",),
}
KEYS = ("with_activation", "negative_slope_type", *(k for keys in NEEDED.values() for k in keys))
# the activations that the vendor's own parser fuses, and the layers into which it does
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
    """Return whether layers of this type may have `with_activation`."""
    operator = find_operator(kind)
    return operator is not None and "with_activation" in operator.attributes


def take(attrs: dict[str, Any], blobs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Move the keys and constants of the activation out of a layer's."""
    moved, constants = ({k: part.pop(k) for k in KEYS if k in part} for part in (attrs, blobs))
    return moved, constants


def activation(y: ir.Value, attrs: dict[str, Any], blobs: dict[str, Any]) -> Layer | None:
    """Apply the fused activation that these keys specify, as a layer after `y`."""
    name = str(attrs.get("with_activation", "NONE")).upper()
    if name == "NONE":
        return None
    if name not in NEEDED:
        raise MappingError(f"with_activation={name} is not supported", "R110")
    for key in NEEDED[name]:
        if key not in attrs and key not in blobs:
            raise MappingError(f"with_activation={name} needs {key}", "R110")
    own, constants = ({k: part[k] for k in NEEDED[name] if k in part} for part in (attrs, blobs))
    return Layer("Activation", "", {"method": name, **own}, constants, [y])


def fuse(layers: Sequence[Layer], methods: Collection[str] = FUSED) -> list[Layer]:
    """Move activations of those methods into the layer before them if they are its single consumer;
    every carrier layer gets its `with_activation`.
    """
    readers = Counter(v for layer in layers for v in layer.inputs)
    writers: dict[ir.Value | None, Layer] = {}
    kept = []
    for layer in layers:
        source = layer.inputs[0] if layer.inputs else None
        carrier = writers.get(source) if layer.attrs.get("method") in methods else None
        alone = source is not None and readers[source] == 1 and not source.is_graph_output()
        if layer.kind == "Activation" and carrier is not None and alone:
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
