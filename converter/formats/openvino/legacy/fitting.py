"""Layers that the engine supports only in part: additional layers around them do the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx_ir as ir

from converter.formats.openvino.legacy.rules.context import MOST_AXES, LowerContext
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
)  # after these the engine takes the integers of a Permute for floats
NOTHING = Layer("")


def fitted(layers: Iterable[Layer]) -> list[Layer]:
    """Return the layers as the legacy plugins take them: an ArgMax that is converted to integers
    and back is repeated, consecutive Power layers are fused, integers are moved as floats, and some
    layers of more axes than the limit run on flat data.
    """
    low = Lowering(FormatMapping(Table([]), spelling=SPELLING))
    w = LowerContext.for_no_operator(low)
    made: dict[ir.Value | None, Layer] = {}
    places: dict[ir.Value | None, Layer] = {}  # integers that an ArgMax gives as floats
    for layer in layers:
        low.name, out = layer.name, layer.outputs[0]
        x = layer.inputs[0] if layer.inputs else None
        before = made.get(x, NOTHING)
        to = written(out.dtype) if layer.kind == "Convert" else None
        if before.kind == "ArgMax" and to == ir.DataType.INT32:
            places[out] = before
        if x in places and to == ir.DataType.FLOAT:
            low.add("ArgMax", places[x].inputs, [out], places[x].attrs)
        elif _multiplies(before) and layer.kind == "Power" and layer.attrs["scale"] == "1":
            # the second layer takes the factor
            attrs = {**layer.attrs, "scale": before.attrs["scale"]}
            low.add("Power", before.inputs, [out], attrs)
        elif x is None:
            low.layers.append(layer)
        elif (
            layer.kind == "Permute"
            and before.kind in MOVING
            and written(x.dtype) == ir.DataType.INT32
        ):
            _through_floats(w, layer, x)
        elif layer.kind in FIVE_AXES and len(shape_of(x) or ()) > MOST_AXES:
            flat = [math.prod(w.shape(x))]
            inner = w.reshaped(x, flat)
            w.finish(w.emit(layer.kind, inner, dtype=out.dtype, shape=flat, **layer.attrs), out)
        else:
            low.layers.append(layer)
        made.update((o, low.layers[-1]) for o in layer.outputs)
    return low.layers


def _multiplies(layer: Layer) -> bool:
    return layer.kind == "Power" and layer.attrs["power"] == "1" and layer.attrs["shift"] == "0"


def _through_floats(w: LowerContext, layer: Layer, x: ir.Value) -> None:
    out = layer.outputs[0]
    number = w.converted(x, ir.DataType.FLOAT)
    transposed = w.emit("Permute", number, shape=w.shape(out), **layer.attrs)
    w.put("Convert", transposed, outputs=[out], precision="I32")
