"""Where integer layers are entered, and their common arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.special.register import blob
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.mapping.node import Layer, MappingError

FLOAT = int(ir.DataType.FLOAT)
EXACT = 1 << 24  # up to here a float holds every integer


@dataclass(frozen=True)
class Quantised:
    """What the file says about the tensors around a layer: zero points by port, types and ranges (`layer_top_range`) of the outputs,
    types of the inputs. Where the operands are floats that hold integers, so are the results (their type is FLOAT)."""

    inputs: Sequence[int]
    outputs: Sequence[int]
    types: Sequence[ir.DataType] = field(default=())
    ranges: Sequence[tuple[int, int] | None] = field(default=())
    sources: Sequence[ir.DataType | None] = field(default=())
    bits: int = 8  # width of the first output's integers
    ratio: float = 1.0  # step of the first input / step of the first output

    def limits(self, port: int = 0) -> tuple[int, int]:
        given = self.ranges[port] if port < len(self.ranges) else None
        if given is not None:
            return given
        info = np.iinfo(self.types[port].numpy())
        return int(info.min), int(info.max)


IntegerLift = Callable[[Layer, Builder, Quantised], "ir.Value | Sequence[ir.Value]"]
INTEGER: dict[str, IntegerLift] = {}
# layers that do the same to stored integers as to numbers: the zero point of the output is that of the input
_MOVING = """Transpose Reshape Slice Crop Split Tile Gather GatherElements GatherND ReverseSequence DepthToSpace SpaceToDepth ChannelShuffle
ArgMinMax BatchToSpace BatchToSpaceND Repeat Pad TopK Compress Filter MaxPoolingWithArgMax"""
MOVING = frozenset(_MOVING.split())
_MOVING_METHODS = {"Resize": ("NEAREST",), "Reduce": ("MIN", "MAX")}


ARITHMETIC = ("NONE", "RELU", "RELU6", "LEAKYRELU", "CLIP")


def keeps_integers(layer: Layer) -> bool:
    """Whether a layer does to stored integers what it does to numbers."""
    kind = layer.kind.split("/")[0]
    return kind in MOVING or str(layer.attrs.get("method", "")).upper() in _MOVING_METHODS.get(kind, ())


def integer(*kinds: str) -> Callable[[IntegerLift], IntegerLift]:
    def enter(f: IntegerLift) -> IntegerLift:
        for kind in kinds:
            INTEGER[kind] = f
        return f

    return enter


def real(b: Builder, x: ir.Value, zero: int = 0, narrow: bool = False) -> ir.Value:
    """Stored integers as floats, their zero point added: those of more than 8 bits as doubles, since a float holds none of their products.

    `narrow`: as floats all the same, for kernels that have no other type.
    """
    wide = not narrow and x.dtype is not None and x.dtype.is_integer() and x.dtype.bitwidth > 8
    y = x if x.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE) else b.op("Cast", x, to=int(ir.DataType.DOUBLE) if wide else FLOAT)
    return b.op("Add", y, b.like(y, zero)) if zero else y


def beside(b: Builder, array: Array, x: ir.Value, name: str = "const") -> ir.Value:
    """A constant in the type of `x`."""
    return b.const(np.asarray(array, x.dtype.numpy() if x.dtype is not None else np.float32), name)


def accumulated(b: Builder, x: ir.Value, weights: Array, most: float, product: Callable[[ir.Value, Array], ir.Value]) -> ir.Value:
    """product(x, weights), a sum of products for each row of the weights, exact although kernels compute in floats.

    `most`: the largest amount in `x`. Where a sum may pass what a float holds, x is cut into digits that are multiplied one by one, and the weights
    into bytes, and the parts are put together in doubles.
    """
    rows = float(np.abs(weights.astype(np.float64)).reshape(weights.shape[0], -1).sum(axis=1).max(initial=0))
    if most * rows <= EXACT:
        return product(x, weights)
    bits = int(math.log2(EXACT / rows)) if rows <= EXACT else 0
    if bits < 2:
        high = np.floor(weights / 256)
        parts = [(accumulated(b, x, w.astype(np.float32), most, product), by) for w, by in ((weights - 256 * high, 1.0), (high, 256.0))]
    else:
        parts, rest, by = [], x, 1.0
        while most >= 2**bits:
            above = b.op("Floor", b.op("Mul", rest, b.like(rest, 2.0**-bits)))
            parts.append((product(b.op("Sub", rest, b.op("Mul", above, b.like(rest, 2.0**bits))), weights), by))
            rest, by, most = above, by * 2**bits, most // 2**bits + 1
        parts.append((product(rest, weights), by))
    total: ir.Value | None = None
    for part, by in parts:
        y = stored(b, part, ir.DataType.DOUBLE)
        y = b.op("Mul", y, b.like(y, by)) if by != 1 else y
        total = y if total is None else b.op("Add", total, y)
    assert total is not None
    return total


def numbers(layer: Layer, name: str, default: float) -> Array:
    """`NAME_value` or the constant NAME: one number, or one per channel."""
    if name in layer.blobs:
        return blob(layer, name).reshape(-1).astype(np.float64)
    value = layer.attrs.get(f"{name}_value", default)
    return np.asarray(value, np.float64).reshape(-1)


def is_scaled(layer: Layer) -> bool:
    return "scale_value" in layer.attrs or "scale" in layer.blobs


def unscaled(layer: Layer) -> None:
    """MappingError where a layer has a scale at which the executor does not look: who wrote it meant another result."""
    if (factor(layer) != 1).any():
        raise MappingError(f"{layer.kind} with a scale has no integer form here")


def factor(layer: Layer) -> Array:
    """scale * 2 ** -shift: exact in a float32, as the scale has at most 16 bits."""
    return (numbers(layer, "scale", 1) * 2.0 ** -numbers(layer, "shift", 0)).astype(np.float32)


def rescale(b: Builder, x: ir.Value, by: Any, zero: int, low: float, high: float, rounding: str = "Round") -> ir.Value:
    """clamp(round(x * by) - zero, low, high)."""
    by = np.asarray(by, x.dtype.numpy() if x.dtype is not None else np.float32)
    y = b.op(rounding, b.op("Mul", x, b.const(by.reshape(()) if by.size == 1 else by)))
    if zero:
        y = b.op("Sub", y, b.like(y, zero))
    return b.op("Clip", y, b.like(y, low), b.like(y, high))


def stored(b: Builder, y: ir.Value, dtype: ir.DataType) -> ir.Value:
    return y if y.dtype == dtype else b.op("Cast", y, to=int(dtype))


def wrapped(b: Builder, y: ir.Value, dtype: ir.DataType) -> ir.Value:
    """64-bit integers as others, of which only the lowest bits are kept."""
    if dtype.is_integer() and dtype.bitwidth < 64:
        count, low = 1 << dtype.bitwidth, int(np.iinfo(dtype.numpy()).min)
        y = b.op("Add", b.op("Mod", b.op("Sub", y, b.like(y, low)), b.like(y, count)), b.like(y, low))
    return stored(b, y, dtype)


def look_up(b: Builder, x: ir.Value, table: Array, bits: int, signed: bool) -> ir.Value:
    """The value of a table of 2 ** n entries for integers of `bits` bits: the high bits choose, the low bits interpolate (rounded down)."""
    size = int(math.log2(table.size))
    if 1 << size != table.size:
        raise MappingError(f"a look-up table of {table.size} entries, a power of two is needed", "R105")
    table = np.append(table, table[-1]).astype(np.float32)
    at = real(b, x, 1 << (bits - 1) if signed else 0)
    entries = beside(b, table, at, "lut")
    if bits <= size:
        return b.op("Gather", entries, b.op("Cast", at, to=int(ir.DataType.INT32)))
    step = 1 << (bits - size)
    high = b.op("Floor", b.op("Div", at, b.like(at, step)))
    rest = b.op("Sub", at, b.op("Mul", high, b.like(at, step)))
    index = b.op("Cast", high, to=int(ir.DataType.INT32))
    first, slope = b.op("Gather", entries, index), b.op("Gather", beside(b, np.diff(table, append=table[-1]), at, "slope"), index)
    return b.op("Add", first, b.op("Floor", b.op("Div", b.op("Mul", slope, rest), b.like(at, step))))


def bits_of(q: Quantised, port: int = 0) -> tuple[int, bool]:
    """Width and sign of the integers that an input stores."""
    dtype = q.sources[port] if port < len(q.sources) else None
    if dtype is None or not dtype.is_integer():
        raise MappingError("the input does not store integers", "R105")
    return dtype.bitwidth, dtype.is_signed()


def activated(layer: Layer, b: Builder, x: ir.Value, q: Quantised, by: Array) -> ir.Value:
    """The activation that the layer carries, and the step from the accumulator to the output's integers."""
    name, (low, high) = str(layer.attrs.get("with_activation", "NONE")).upper(), q.limits()
    zero = q.outputs[0]
    if name in ("RELU", "RELU6"):
        x = b.op("Relu", x)
    elif name == "LEAKYRELU":
        slope = float(layer.attrs["negative_slope_value"]) * 2.0 ** -float(layer.attrs.get("negative_slope_shift", q.bits))
        below = b.op("Round", b.op("Mul", b.op("Min", x, b.like(x, 0)), b.like(x, slope)))
        x = b.op("Add", b.op("Relu", x), below)
    elif name == "CLIP":
        first = rescale(b, x, by * (256 if q.bits <= 8 else 1), 0, layer.attrs["clip_min"], layer.attrs["clip_max"])
        return stored(b, rescale(b, first, 1 / 256 if q.bits <= 8 else 1, zero, low, high), q.types[0])
    elif name != "NONE":
        raise MappingError(f"with_activation={name} has no integer form here")
    return stored(b, rescale(b, x, by, zero, low, high), q.types[0])
