"""Layers that the engine runs in part: others around them where it does not."""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx_ir as ir

from converter.formats.openvino.legacy.rules.context import MOST_AXES, Writing
from converter.formats.openvino.legacy.rules.fields import SPELLING
from converter.formats.openvino.legacy.types import written
from converter.graph.infer import shape_of
from converter.mapping.lifting import FormatMapping
from converter.mapping.lowering import Lowering
from converter.mapping.node import Layer
from converter.mapping.rules import Table

FIVE_AXES = (
    "Activation",
    "ReLU",
    "Clamp",
)  # layers that take the elements one by one, but no more axes
MOVING = (
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Tile",
    "Crop",
)  # behind these the engine takes the integers of a Permute for floats


def fitted(layers: Iterable[Layer]) -> list[Layer]:
    low = Lowering(FormatMapping(Table([]), spelling=SPELLING))
    w = Writing.beside(low)
    made: dict[ir.Value, str] = {}
    places: dict[ir.Value, Layer] = {}  # integers that are what an ArgMax gives as floats
    scaled: dict[ir.Value, Layer] = {}  # multiples: the layer behind can take the factor
    for layer in layers:
        low.name = layer.name
        x = layer.inputs[0] if layer.inputs else None
        if (
            layer.kind == "Convert"
            and x is not None
            and made.get(x) == "ArgMax"
            and written(layer.outputs[0].dtype) == ir.DataType.INT32
        ):
            places[layer.outputs[0]] = next(la for la in reversed(low.layers) if x in la.outputs)
        if (
            layer.kind == "Convert"
            and x in places
            and written(layer.outputs[0].dtype) == ir.DataType.FLOAT
        ):
            low.add("ArgMax", places[x].inputs, layer.outputs, places[x].attrs)
        elif layer.kind == "Power" and x in scaled and layer.attrs["scale"] == "1":
            low.add(
                "Power",
                scaled[x].inputs,
                layer.outputs,
                {**layer.attrs, "scale": scaled[x].attrs["scale"]},
            )
        elif (
            layer.kind == "Permute"
            and x is not None
            and made.get(x) in MOVING
            and written(x.dtype) == ir.DataType.INT32
        ):
            _through_floats(w, layer, x)
        elif layer.kind in FIVE_AXES and x is not None and len(shape_of(x) or ()) > MOST_AXES:
            flat = [math.prod(w.shape(x))]
            inner = w.reshaped(x, flat)
            like = layer.outputs[0]
            w.finish(w.step(layer.kind, inner, like=like, shape=flat, **layer.attrs), like)
        else:
            low.layers.append(layer)
        if layer.kind == "Power" and layer.attrs["power"] == "1" and layer.attrs["shift"] == "0":
            scaled[layer.outputs[0]] = layer
        made.update((o, low.layers[-1].kind) for o in layer.outputs)
    return low.layers


def _through_floats(w: Writing, layer: Layer, x: ir.Value) -> None:
    out = layer.outputs[0]
    number = w.converted(x, ir.DataType.FLOAT)
    turned = w.step("Permute", number, like=number, shape=w.shape(out), **layer.attrs)
    w.put("Convert", turned, outputs=[out], precision="I32")
