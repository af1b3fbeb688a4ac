"""Float layers -> integer layers, by kind. A form takes the layer as a float IR has it and the grids around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.integer.dequantise import CONVOLUTIONS
from converter.formats.zhouyi.integer.grids import Grid
from converter.formats.zhouyi.integer.layers import TABLES
from converter.formats.zhouyi.quantised.approximate import approximate, channel_constants, scalar_keys
from converter.formats.zhouyi.quantised.lowering import Stored, made
from converter.formats.zhouyi.quantised.tables import exponentials, table
from converter.formats.zhouyi.types import dtype_name
from converter.formats.zhouyi.values import DType
from converter.graph.infer import Array
from converter.mapping.node import Layer, MappingError

INT32 = np.iinfo(np.int32)


@dataclass(eq=False)
class Form:
    """One layer: its operands as stored integers with their grids, and the grid of its result."""

    layer: Layer
    inputs: list[ir.Value]
    sources: list[Grid]
    result: Grid

    @property
    def attrs(self) -> dict[str, Any]:
        return {k: v for k, v in self.layer.attrs.items() if k not in _ACTIVATION}

    @property
    def factor(self) -> float:
        return self.sources[0].scale / self.result.scale


Filled = tuple[str, dict[str, Any], dict[str, Any]]  # kind, attributes, constants
FormOf = Callable[[Form], Filled]
FORMS: dict[str, FormOf] = {}
_ACTIVATION = ("with_activation", "clip_min", "clip_max", "negative_slope_value", "negative_slope_type")


# layers that cannot choose the grid of their result: what it is for a grid of the input
OWN: dict[str, Callable[[Layer, Grid], Grid | None]] = {}


def form(*kinds: str) -> Callable[[FormOf], FormOf]:
    def enter(f: FormOf) -> FormOf:
        for kind in kinds:
            FORMS[kind] = f
        return f

    return enter


def activation(attrs: dict[str, Any], key: str, result: Grid) -> dict[str, Any]:
    """The activation behind a layer, in integers; bounds that the grid has anyway vanish. `key` holds its name."""
    name = str(attrs.get(key, "NONE"))
    if name == "LEAKYRELU":
        return _leaky(key, float(attrs["negative_slope_value"]))
    if name not in ("RELU", "RELU6", "CLIP"):
        if name != "NONE":
            raise MappingError(f"{key}={name} has no integer form")
        return {key: name}
    low, high = {"RELU": (0.0, np.inf), "RELU6": (0.0, 6.0)}.get(name, (float(attrs.get("clip_min", 0)), float(attrs.get("clip_max", 0))))
    bounded_below = np.rint(low / result.scale) + result.zero > result.low
    bounded_above = np.rint(high / result.scale) + result.zero < result.high
    if not bounded_above and not bounded_below:
        return {key: name if name != "CLIP" and key == "with_activation" else "NONE"}
    if not bounded_above and low == 0.0:
        return {key: "RELU"}
    finer = 256 if result.dtype.bitwidth <= 8 else 1
    bounds = [int(np.clip(np.rint(v / result.scale * finer), INT32.min, INT32.max)) for v in (low, high)]
    return {key: "CLIP", "clip_min": bounds[0], "clip_max": bounds[1]}


def _leaky(key: str, slope: float) -> dict[str, Any]:
    if slope < 0:
        raise MappingError(f"the slope {slope} is negative")
    if slope == 0:
        return {key: "RELU"}
    multiplier, shift = approximate(slope)
    return {key: "LEAKYRELU", "negative_slope_type": DType.UINT16, "negative_slope_value": int(multiplier), "negative_slope_shift": int(shift)}


def stored_weights(f: Form) -> Stored:
    found = made(f.layer).stored
    if found is None:
        raise MappingError("the weights are not stored integers behind a DequantizeLinear")
    return found


@form(*CONVOLUTIONS, "FullyConnected")
def weighted(f: Form) -> Filled:
    """The input is taken as stored: its zero point times the sum of each row goes into the biases."""
    held, source = stored_weights(f), f.sources[0]
    whole = held.weights.astype(np.int64)
    channels = f.layer.blobs["biases"].size
    scales, zeros = (np.broadcast_to(a, (channels,)) if a.size == 1 else a for a in (held.scales, held.zeros))
    rows = held.weights.shape[0]
    if scales.size not in (rows, channels) or (zeros.size != rows and np.ptp(zeros)):
        raise MappingError("the zero points of grouped weights differ")
    zeros = zeros[:rows]
    whole -= zeros.reshape([-1] + [1] * (whole.ndim - 1))
    if scales.size != channels:
        scales = np.tile(scales, channels // scales.size)
    absorbed = -source.zero * whole.reshape(rows, -1).sum(axis=1)
    biases = _biases(f, held, scales) + np.tile(absorbed, channels // rows)
    if biases.min() < INT32.min or biases.max() > INT32.max:
        raise MappingError("the biases with the input's zero point do not fit 32 bits", "X204")
    constants = {"weights": held.weights, "biases": biases.astype(np.int32)}
    constants |= channel_constants(source.scale * scales.astype(np.float64) / f.result.scale)
    ours = 1 / (scales[:rows] if np.array_equal(scales, np.tile(scales[:rows], channels // rows)) else scales).astype(np.float64)
    constants |= {"weights_scale": ours.astype(np.float32), "weights_zp": (-zeros).astype(np.int32)}
    constants |= {"biases_scale": (1 / (scales.astype(np.float64) * source.scale)).astype(np.float32), "biases_zp": np.zeros(1, np.int32)}
    return f.layer.kind, {**f.attrs, **activation(f.layer.attrs, "with_activation", f.result)}, constants


def _biases(f: Form, held: Stored, scales: Array) -> Array:
    """In steps of input step * weight step: as stored where they have these steps, else the nearest."""
    steps = scales.astype(np.float64) * f.sources[0].scale
    real = np.asarray(f.layer.blobs["biases"], np.float64).reshape(-1)
    found = held.biases
    if found is not None and found.stored.size == real.size and not found.zeros.any() and np.allclose(found.scales.reshape(-1), steps, rtol=1e-5, atol=0):
        return found.stored.reshape(-1).astype(np.int64)
    return np.rint(real / steps).astype(np.int64)


@form("Eltwise", "Add", "Sub", "Mul")
def eltwise(f: Form) -> Filled:
    """ADD, SUB, MAX, MIN first bring both operands to a common step of 15 bits; products are taken as they are."""
    method = str(f.layer.attrs.get("method", f.layer.kind.upper()))
    steps = np.array([g.scale for g in f.sources], np.float64)
    attrs = {**f.attrs, **activation(f.layer.attrs, "with_activation", f.result)}
    if method == "MUL":
        return f.layer.kind, attrs | scalar_keys(steps[0] * steps[1] / f.result.scale), {}
    finest = np.iinfo(np.int16).max / steps.max()
    weights = np.rint(steps * finest).astype(np.int64)
    keys = scalar_keys(1 / (finest * f.result.scale))
    keys["scale_value"], keys["scale_type"] = [keys["scale_value"], *(int(w) for w in weights)], [DType.UINT16] * 3
    return f.layer.kind, attrs | keys, {}


@form("Concat")
def concat(f: Form) -> Filled:
    if all((g.scale, g.zero, g.dtype) == (f.result.scale, f.result.zero, f.result.dtype) for g in f.sources):
        return "Concat", f.attrs, {}
    multipliers, shifts = approximate([g.scale / f.result.scale for g in f.sources])
    keys = {"scale_value": [int(m) for m in multipliers], "shift_value": [int(s) for s in shifts]}
    return "Concat", {**f.attrs, **keys, "scale_type": [DType.UINT16] * len(f.sources), "shift_type": [DType.INT8] * len(f.sources)}, {}


@form("Activation")
def activate(f: Form) -> Filled:
    method = str(f.layer.attrs["method"])
    if method in ("RELU", "RELU6", "CLIP", "LEAKYRELU"):
        found = activation(f.layer.attrs, "method", f.result)
        if found["method"] == "NONE":  # the grid alone bounds
            return requantised(f)
        rest = {k: v for k, v in f.attrs.items() if k != "method"}
        return "Activation", rest | found | scalar_keys(f.factor), {}
    if method == "PRELU":
        return _prelu(f)
    if method == "CRELU":
        raise MappingError(f"{method} has no integer form")
    return "Activation", f.attrs, {"lut": table(made(f.layer).node, f.sources[0], f.result)}


def _prelu(f: Form) -> Filled:
    """Slopes with one shift for all, as 16-bit integers."""
    slope = np.asarray(f.layer.blobs["negative_slope"], np.float64)
    largest = max(float(np.abs(slope).max()), 2.0**-15)
    shift = int(min(np.floor(np.log2(32767 / largest)), 31))
    attrs = {**f.attrs, "negative_slope_shift": shift, "negative_slope_type": DType.INT16}
    return "Activation", attrs | scalar_keys(f.factor), {"negative_slope": np.rint(slope * 2.0**shift).astype(np.int16)}


@form(*TABLES.split())
def tabled(f: Form) -> Filled:
    return f.layer.kind, f.attrs, {"lut": table(made(f.layer).node, f.sources[0], f.result)}


@form("Softmax")
def softmax(f: Form) -> Filled:
    return "Softmax", {**f.attrs, "quantize_method": "LUT", **scalar_keys(1 / f.result.scale)}, {"lut": exponentials(f.sources[0])}


def requantised(f: Form) -> Filled:
    """From one grid to another."""
    keys = {"to_dtype": dtype_name(f.result.dtype), "ignore_scale_zp": False, "clip_mode": "SATURATION"}
    return "Cast", keys | scalar_keys(f.factor), {}
