"""Quantised layers as float operators between DequantizeLinear and QuantizeLinear.

    x (int8) -> DequantizeLinear -> Conv(weights: DequantizeLinear of int8) -> Relu -> QuantizeLinear -> y (uint8)

Layers that only move data keep the stored integers. Recurrent layers, and those whose float form is not known, take their integer
form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi import fused
from converter.formats.zhouyi.integer.grids import Grid, dequantised, quantised
from converter.formats.zhouyi.integer.register import keeps_integers
from converter.formats.zhouyi.integer.stored import Weights
from converter.formats.zhouyi.operators import common, find_operator
from converter.formats.zhouyi.ops.windows import CONV_2D, CONV_3D, DECONV_2D, DECONV_3D
from converter.formats.zhouyi.special.register import blob, need_int, operand, static, twin
from converter.formats.zhouyi.special.windows import window_attrs
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.mapping.node import Layer, MappingError

CONVOLUTIONS = {"Convolution": CONV_2D, "DepthwiseConv": CONV_2D, "Convolution3D": CONV_3D, "ConvTranspose": DECONV_2D, "ConvTranspose3D": DECONV_3D}
# operands that are positions, lengths or conditions: never numbers of a grid
_WHOLE: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "ScatterND", "ScatterElements", "ReverseSequence", "MaxUnpool", "UpsampleByIndex"), (1,)),
    **dict.fromkeys(("InTopK", "Compress", "SegmentReduce", "Repeat", "CTCGreedyDecoder"), (1,)),
    **dict.fromkeys(("Where", "OneHot"), (0,)),
    "CropAndResize": (2,),
    "RoiAlign": (2,),
}
_OF_CONSTANTS = frozenset(f"{g}_{k}" for g in ("weights", "biases", "negative_slope") for k in ("scale", "zp", "range"))
# gates come from tables whose steps the file does not tell, and what is 1 among them is the largest stored number
EXACT = frozenset({"BasicLSTM", "GRUv1", "GRUv3"})
_STAYS_WHOLE = frozenset({"Logical", "Bitwise", "BitShift", "Shape", "NonZero"})


def is_number(kind: str, port: int, grid: Grid | None) -> bool:
    """Whether input `port` of a layer is read as numbers of a grid."""
    return grid is not None and not grid.indices and kind not in _STAYS_WHOLE and port not in _WHOLE.get(kind, ())


def moves(layer: Layer, grids: list[Grid | None]) -> bool:
    """Whether the layer moves stored integers: the result has the grid of the first operand, or none."""
    first = grids[0] if grids else None
    return keeps_integers(layer) and (first is None or all(g is None or g.indices or (g.scale, g.zero) == (first.scale, first.zero) for g in grids))


def without_integer_keys(layer: Layer) -> Layer:
    """The layer without the keys and constants that only integer forms have."""
    operator = find_operator(layer.kind.split("/")[0])
    parts = [p for p in (operator, common(), operator.methods.get(str(layer.attrs.get("method"))) if operator else None) if p is not None]
    drop = {a.name for p in parts for a in p.attributes.values() if a.part == "int"} | {g.name for p in parts for g in p.groups.values() if g.part == "int"}
    drop |= _OF_CONSTANTS
    attrs, blobs = ({k: v for k, v in given.items() if k not in drop} for given in (layer.attrs, layer.blobs))
    return Layer(layer.kind, layer.name, attrs, blobs, layer.inputs, layer.outputs, layer.where, layer.extra)


def float_layer(layer: Layer, sources: list[Grid | None], results: list[Grid | None], steps: bool) -> Layer:
    """The layer without the keys of the integer form, its constants as numbers."""
    plain = without_integer_keys(layer)
    own, blobs = plain.attrs, plain.blobs
    if not steps:
        own |= _numbers_of_activation(layer, results[0] if results else None)
        if "negative_slope" in blobs:
            blobs["negative_slope"] = np.ldexp(blob(layer, "negative_slope").astype(np.float32), -int(layer.attrs.get("negative_slope_shift", 0)))
    if "weights" in blobs and np.asarray(blobs["weights"]).dtype.kind in "iu" and sources and sources[0] is not None:
        blobs |= _numbers(layer, sources[0], results[0] if results else None, steps)
    return plain


def _numbers(layer: Layer, source: Grid, result: Grid | None, steps: bool) -> dict[str, Array]:
    """Weights and biases of layers that have no operand for stored weights: each row with its step."""
    held = Weights(layer, source, result, steps)
    found = {"weights": held.real()}
    whole = held.biases() if layer.kind == "BatchNorm" else None
    if whole is not None:
        found["biases"] = np.asarray(whole * held.bias_scales(), np.float32)
    elif "biases" in layer.blobs:
        biases = blob(layer, "biases").astype(np.float64)
        scales, zeros = (np.asarray(layer.blobs.get(f"biases_{k}", layer.attrs.get(f"biases_{k}", d)), np.float64) for k, d in (("scale", 1.0), ("zp", 0.0)))
        found["biases"] = np.asarray((biases - zeros) * scales if steps else (biases + zeros) / scales, np.float32)
    return found


def _numbers_of_activation(layer: Layer, result: Grid | None) -> dict[str, Any]:
    """Slopes and bounds, which an integer IR stores as integers."""
    name = str(layer.attrs.get("with_activation", layer.attrs.get("method", ""))).upper()
    slope, found = layer.attrs.get("negative_slope_value"), {}
    if name == "LEAKYRELU" and isinstance(slope, int | float) and result is not None:
        shift = layer.attrs.get("negative_slope_shift", result.dtype.bitwidth)
        found["negative_slope_value"] = float(slope) * 2.0 ** -float(shift)
    if name == "CLIP" and result is not None:
        finer = 256 if result.dtype.bitwidth <= 8 else 1
        for key in ("clip_min", "clip_max"):
            found[key] = float(layer.attrs[key]) * result.scale / finer
    return found


StoredLift = Callable[[Layer, Builder, Weights], ir.Value]


def _convolve(layer: Layer, b: Builder, held: Weights) -> ir.Value:
    x, order = operand(layer), CONVOLUTIONS[layer.kind]
    perm = tuple(int(i) for i in np.argsort(order))
    group = static(x)[-1] if layer.kind == "DepthwiseConv" else need_int(layer, "group", 1)
    rank = 3 if layer.kind.endswith("3D") else 2
    op, more = "Conv", dict[str, Any]()
    if layer.kind.startswith("ConvTranspose"):
        extra = [int(layer.attrs.get(f"output_padding_{a}", 0)) for a in "zyx"[3 - rank :]]
        op, more = "ConvTranspose", {"output_padding": extra} if any(extra) else {}
    return twin(b, op, x, held.near_weights(b, perm), held.near_biases(b), group=group, **window_attrs(layer, rank), **more)[0]


def _dense(layer: Layer, b: Builder, held: Weights) -> ir.Value:
    x = operand(layer)
    w, bias = held.near_weights(b, (1, 0)), held.near_biases(b)
    if len(static(x)) == 2:
        return b.op("Gemm", x, w, bias)
    y = b.op("MatMul", x, w)
    return y if bias is None else b.op("Add", y, bias)


STORED: dict[str, StoredLift] = {**dict.fromkeys(CONVOLUTIONS, _convolve), "FullyConnected": _dense}


def whole_layer(layer: Layer, b: Builder, reals: list[ir.Value], sources: list[Grid | None]) -> Layer:
    """The layer of the file with its operands as floats that hold the stored integers."""
    inputs: list[ir.Value | None] = []
    for value, grid in zip(reals, sources, strict=True):
        if grid is not None and not grid.plain:
            value = b.op("Round", b.op("Div", value, b.like(value, grid.scale)))
            value = b.op("Add", value, b.like(value, grid.zero)) if grid.zero else value
        inputs.append(value)
    return Layer(layer.kind, layer.name, layer.attrs, layer.blobs, inputs, layer.outputs, layer.where, layer.extra)


def number_of(b: Builder, value: ir.Value, grid: Grid | None) -> ir.Value:
    """What a float that holds a stored integer stands for."""
    if grid is None or grid.plain or value.dtype != ir.DataType.FLOAT:
        return value
    y = b.op("Sub", value, b.like(value, grid.zero)) if grid.zero else value
    return b.op("Mul", y, b.like(y, grid.scale))


def lift_stored(layer: Layer, b: Builder, source: Grid, result: Grid | None, steps: bool) -> ir.Value:
    """A layer whose weights stay integers; `layer` is the one of the file, its input already numbers."""
    if layer.attrs.get("with_winograd"):
        raise MappingError("weights in the Winograd form have no counterpart")
    held = Weights(layer, source, result, steps)
    floats = {**layer.attrs, **({} if steps else _numbers_of_activation(layer, result))}
    attrs, blobs = fused.take(floats, dict(layer.blobs))
    if not steps and "negative_slope" in blobs:
        blobs["negative_slope"] = np.ldexp(np.asarray(blobs["negative_slope"], np.float32), -int(layer.attrs.get("negative_slope_shift", 0)))
    return fused.apply(b, STORED[layer.kind](layer, b, held), attrs, blobs)


def written_back(b: Builder, value: ir.Value, grid: Grid | None) -> ir.Value:
    """What a layer computes, as the file stores it."""
    if grid is None or value.dtype is None or not value.dtype.is_floating_point():
        return value
    return quantised(b, value, grid)


__all__ = ["EXACT", "STORED", "dequantised", "float_layer", "is_number", "lift_stored", "moves", "number_of", "whole_layer", "written_back"]
