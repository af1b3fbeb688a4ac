"""Integer forms of products, reductions, averages, quotients, signs, resampling and normalisation."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.integer.grids import Grid
from converter.formats.zhouyi.ops.fields import axes_of
from converter.formats.zhouyi.quantised.approximate import approximate, scalar_keys
from converter.formats.zhouyi.quantised.forms import FORMS, OWN, Filled, Form, activation, form
from converter.formats.zhouyi.special.register import static
from converter.formats.zhouyi.values import DType
from converter.mapping.node import Layer, MappingError

INTERPOLATION_BITS = 13
__all__ = ["FORMS"]


def _same(layer: Layer, source: Grid) -> Grid:
    return source


def _amounts(layer: Layer, source: Grid) -> Grid:
    """Distances from the zero point: unsigned, from 0."""
    return Grid.of(source.scale, 0, ir.DataType.UINT8 if source.dtype.bitwidth == 8 else ir.DataType.UINT16)


def _turned(layer: Layer, source: Grid) -> Grid:
    """The same steps, the range mirrored; signed."""
    signed = ir.DataType.INT8 if source.dtype.bitwidth == 8 else ir.DataType.INT16
    half = 1 << (source.dtype.bitwidth - 1)
    return Grid.of(source.scale, -source.zero - 1 if source.dtype.is_signed() else half - 1 - source.zero, signed)


OWN |= {
    "Pooling": _same,
    "Abs": _amounts,
    "Negative": _turned,
    "Sign": lambda layer, source: Grid.of(1.0, 0, ir.DataType.INT8),
    "Resize": _same,
    "SpaceToBatch": _same,
}


@form("Pooling")
def average(f: Form) -> Filled:
    """Averages of stored integers keep the grid; the reciprocals of the sizes have 8 bits and stand nowhere."""
    if f.layer.attrs.get("method") != "AVG":
        raise MappingError(f"{f.layer.attrs.get('method')} has no integer form")
    return "Pooling", f.attrs, {}


@form("Abs", "Negative", "Sign")
def sign(f: Form) -> Filled:
    return f.layer.kind, f.attrs, {}


@form("MatMul")
def product(f: Form) -> Filled:
    factor = f.sources[0].scale * f.sources[1].scale / f.result.scale
    return "MatMul", {**f.attrs, **activation(f.layer.attrs, "with_activation", f.result), **scalar_keys(factor)}, {}


@form("Reduce")
def reduction(f: Form) -> Filled:
    """One factor for the number of elements and both steps."""
    method, factor = f.layer.attrs.get("method"), f.factor
    if method == "MEAN":
        factor /= int(np.prod([static(f.inputs[0])[a] for a in axes_of(f.layer)]))
    elif method != "SUM":
        raise MappingError(f"{method} has no integer form to write")
    return "Reduce", f.attrs | scalar_keys(factor), {}


@form("Div")
def quotient(f: Form) -> Filled:
    """A table of reciprocals for the amounts of the divisor; what divides by 0 gets the largest."""
    if f.sources[1].dtype.bitwidth != 8:
        raise MappingError("a table of reciprocals needs a divisor of 8 bits")
    with np.errstate(divide="ignore"):
        table = np.minimum(np.rint(65535 / np.arange(256)), 65535).astype(np.uint16)
    return "Div", f.attrs | scalar_keys(f.sources[0].scale / (f.sources[1].scale * 65535 * f.result.scale)), {"lut": table}


@form("Resize")
def resampled(f: Form) -> Filled:
    if f.layer.attrs.get("method") != "BILINEAR" or f.layer.attrs.get("antialias"):
        raise MappingError(f"{f.layer.attrs.get('method')} has no integer form")
    return "Resize", {**f.attrs, "interp_shift_value": INTERPOLATION_BITS, "interp_shift_type": DType.INT8}, {}


@form("LRN")
def across_channels(f: Form) -> Filled:
    """The sum of squares as 16 bits chooses from 256 entries of (bias + alpha / size * sum) ** -beta, which have 16 bits too."""
    attrs, source = f.layer.attrs, f.sources[0]
    if source.dtype.bitwidth != 8:
        raise MappingError(f"{source.dtype.name} has no integer form here, 8 bits are needed")
    size, widest = int(attrs["size"]), max(abs(source.low - source.zero), abs(source.high - source.zero))
    sums = scalar_keys(65535 / (size * widest**2))
    steps = sums["scale_value"] * 2.0 ** -sums["shift_value"]
    real = np.arange(256) * 256 / steps * source.scale**2
    values = (float(attrs["bias"]) + float(attrs["alpha"]) / size * real) ** -float(attrs["beta"])
    if not np.all(np.isfinite(values)) or values.max() <= 0:
        raise MappingError("the powers of the sums are not finite")
    entry = 65535 / values.max()
    keys = {f"{k}_sum_{part}": sums[f"{k}_{part}"] for k in ("scale", "shift") for part in ("value", "type")}
    return "LRN", {**f.attrs, **keys, **scalar_keys(source.scale / (entry * f.result.scale))}, {"lut": np.rint(values * entry).astype(np.uint16)}


@form("Logical")
def comparison(f: Form) -> Filled:
    """Both operands on a common step of 13 bits, as the vendor's quantiser takes."""
    if len(f.sources) != 2 or f.layer.attrs.get("method") in ("AND", "OR", "XOR"):
        raise MappingError(f"{f.layer.attrs.get('method')} of numbers has no integer form")
    steps = np.array([g.scale for g in f.sources], np.float64)
    weights = np.maximum(np.rint(steps / steps.min() * min(8192.0, 32767 * steps.min() / steps.max())), 1)
    return "Logical", {**f.attrs, "scale_value": [int(w) for w in weights], "scale_type": [DType.UINT16] * 2}, {}


@form("SpaceToBatch")
def blocks(f: Form) -> Filled:
    return "SpaceToBatch", f.attrs, {}


@form("Where")
def choice(f: Form) -> Filled:
    """Either operand comes to the grid of the result."""
    multipliers, shifts = approximate([g.scale / f.result.scale for g in f.sources[1:]])
    keys = {"scale_value": [int(m) for m in multipliers], "shift_value": [int(s) for s in shifts]}
    return "Where", {**f.attrs, **keys, "scale_type": [DType.UINT16] * 2, "shift_type": [DType.INT8] * 2}, {}
