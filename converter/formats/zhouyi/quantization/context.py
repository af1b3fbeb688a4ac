"""Views of a layer on quantized values, for converters.

IntegerReading  the layer of a file on its way into the graph, as integer arithmetic
IntegerWriting  a float layer between DequantizeLinear and QuantizeLinear, on its way to integers
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi import fused
from converter.formats.zhouyi.mapping import MAPPING
from converter.formats.zhouyi.operators import common, find_operator
from converter.formats.zhouyi.quantization.quant_params import QuantParams
from converter.formats.zhouyi.quantization.requantize import (
    INT32,
    MOST_BITS,
    Limits,
    bits_of,
    constant_like,
    double,
    limits_of_bits,
    numbers,
    of_sizes,
    real,
    rescale,
    scalar_keys,
    stored,
)
from converter.formats.zhouyi.quantization.tables import look_up, table_of
from converter.formats.zhouyi.quantization.weights import made
from converter.formats.zhouyi.rules.context import LiftContext
from converter.formats.zhouyi.unsupported import undocumented
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.graph.value import Value, with_operators
from converter.mapping.context import REQUIRED
from converter.mapping.lifting import Lifting
from converter.mapping.node import Layer

_OF_CONSTANTS = frozenset(
    f"{g}_{k}" for g in ("weights", "biases", "negative_slope") for k in ("scale", "zp", "range")
)
_ACTIVATION = (
    "with_activation",
    "clip_min",
    "clip_max",
    "negative_slope_value",
    "negative_slope_type",
)


def without_integer_keys(layer: Layer) -> Layer:
    """Return the layer without the keys and constants that only integer forms have."""
    operator = find_operator(layer.kind)
    parts = [common()]
    if operator is not None:
        parts += [operator, operator.methods.get(str(layer.attrs.get("method")), operator)]
    drop = {a.name for p in parts for a in p.attributes.values() if a.part == "int"}
    drop |= {g.name for p in parts for g in p.groups.values() if g.part == "int"} | _OF_CONSTANTS
    attrs, blobs = (
        {k: v for k, v in given.items() if k not in drop} for given in (layer.attrs, layer.blobs)
    )
    return replace(layer, attrs=attrs, blobs=blobs)


def _limits_of(dtype: ir.DataType) -> Limits:
    if not dtype.is_integer():
        raise MappingError("a tensor has no layer_top_scale or layer_top_zp", "R110")
    return limits_of_bits(dtype.bitwidth, dtype.is_signed())


@dataclass(eq=False)
class IntegerLiftContext(LiftContext):
    """One layer on quantized values; its builder's `with` block is open.

    The file declares of the tensors around it: zero points, types and ranges (`layer_top_range`) of
    operands and results, the `bits` of the first result, and how it states the scales of the first
    operand and result. Where the operands are floats that hold integers, so are the results: their
    type is FLOAT.
    """

    layer: Layer
    b: Builder
    input_zeros: Sequence[int]
    input_types: Sequence[ir.DataType]
    input_ranges: Sequence[Limits | None]
    zeros: Sequence[int]
    types: Sequence[ir.DataType]
    ranges: Sequence[Limits | None]
    bits: int
    stated: tuple[float, float]

    def __post_init__(self) -> None:
        super().__init__(self.layer, self.b, 0, MAPPING.spelling, MAPPING.channels_last)

    @property
    def is_wide(self) -> bool:
        """Return whether any operand has more than 8 bits."""
        return any(t.is_integer() and t.bitwidth > 8 for t in self.input_types)

    def real(self, index: int = 0, narrow: bool = False) -> Value:
        """Return an operand as a float with its zero point; as a double where any operand has more
        than 8 bits.
        """
        x = real(self.input(index), self.input_zeros[index], narrow)
        floats = any(v is not None and v.dtype == ir.DataType.FLOAT for v in self.layer.inputs)
        return x if narrow or floats or not self.is_wide else double(x)

    def double(self, index: int = 0) -> Value:
        """Return an operand as a double with its zero point: products of 16-bit integers
        stay exact.
        """
        x, zero = self.whole(index), self.input_zeros[index]
        return x + zero if zero else x

    def whole(self, index: int = 0) -> Value:
        """Return the integers of an operand as doubles."""
        return double(self.input(index))

    def reals(self) -> list[Value]:
        """Return all operands as floats with their zero points."""
        return [self.real(i) for i in range(len(self.layer.inputs))]

    def width(self, port: int = 0) -> tuple[int, bool]:
        """Return width and signedness of the integers that an input stores."""
        types = self.input_types
        if port >= len(types) or not types[port].is_integer():
            raise MappingError("the input must be quantized", "R105")
        return types[port].bitwidth, types[port].is_signed()

    def limits(self, port: int = 0) -> Limits:
        """Return the range of a result."""
        return self.ranges[port] or _limits_of(self.types[port])

    def input_limits(self, port: int) -> Limits:
        """Return the range of an input."""
        return self.input_ranges[port] or _limits_of(self.input_types[port])

    def flat(self, name: str) -> Array:
        """Return the numbers of a constant of the layer, flattened, as doubles."""
        return self.blob(name).reshape(-1).astype(np.float64)

    def looked_up(self, x: ir.Value, table: str, bits: int, signed: bool) -> Value:
        """Return the entry of a table of the layer for each integer of `bits` bits."""
        return look_up(x, self.blob(table).reshape(-1), bits, signed)

    def entries(self, table: str, x: ir.Value, port: int = 0) -> Value:
        """Return the entries of a table as doubles, for integers as an input stores them."""
        return double(self.looked_up(x, table, *self.width(port)))

    # factors -------------------------------------------------------------------------------------

    def bit_count(self, key: str, default: Any = REQUIRED, least: int = -MOST_BITS) -> int:
        """Return an attribute that is a number of bits to shift by."""
        return bits_of(self.attr(key, int, default), key, least)

    def factor_of(self, name: str, *default: int) -> float:
        """Return scale * 2 ** -shift of the keys NAME_scale_value and NAME_shift_value."""
        scale = self.attr(f"{name}_scale_value", int, *default[:1])
        return float(scale * 2.0 ** -self.bit_count(f"{name}_shift_value", *default[1:]))

    @property
    def scales(self) -> Array:
        return numbers(self.layer, "scale", 1)

    @property
    def shifts(self) -> Array:
        return numbers(self.layer, "shift", 0)

    @property
    def factor(self) -> Array:
        """Return scale * 2 ** -shift as a double."""
        scales, shifts = self.scales, self.shifts
        if scales.size > 1:
            of_sizes(shifts, "shift", 1, scales.size)
        return scales * 2.0**-shifts

    def factors(self, count: int) -> Array:
        """Return scale * 2 ** -shift for equally many scales and shifts."""
        scales, shifts = self.scales, self.shifts
        if scales.size != count or shifts.size != count:
            message = (
                f"{count} scales and shifts are needed, got {scales.size} scales "
                f"and {shifts.size} shifts"
            )
            raise MappingError(message, "R110")
        return scales * 2.0**-shifts

    @property
    def first_factor(self) -> Array:
        """Return the first factor of layers whose other scales belong to their operands."""
        return self.scales[:1] * 2.0 ** -self.shifts[:1]

    def operand_scales(self) -> list[float]:
        """Return the factors that rescale two operands to a common scale."""
        scales = self.scales
        if scales.size != 3:
            message = f"scale_value must be three numbers, got {scales.tolist()}"
            raise MappingError(message, "R110")
        return [float(s) for s in scales[1:]]

    def is_scaled(self) -> bool:
        """Return whether the layer rescales its result."""
        return "scale_value" in self.layer.attrs or "scale" in self.layer.blobs

    # results -------------------------------------------------------------------------------------

    def stored(self, y: Value) -> Value:
        return stored(y, self.types[0])

    def rescaled(self, x: Value, by: Any, rounding: str = "Round") -> Value:
        """Rescale an accumulator to the scale and zero point of the first result, as a float."""
        return rescale(x, by, self.zeros[0], self.limits(), rounding)

    def requantized(self, x: Value, by: Any = None) -> Value:
        """Return the first result for an accumulator."""
        return self.stored(self.rescaled(x, self.factor if by is None else by))

    def all_stored(self, results: Iterable[ir.Value]) -> list[Value]:
        """Return results in the types that the file declares."""
        return [stored(v, t) for v, t in zip(results, self.types, strict=False)]

    def early_shift(self, total: Value, biases: Array, absorbed: Array) -> tuple[Value, Array]:
        """Return an accumulator, a double, with the biases added, and the remaining factor.

        For data of more than 8 bits only `remain_shift` bits of the shift are applied after the
        biases; the others are applied before them, with rounding, and to the biases too.

        `absorbed`: the part of the file's biases that compensates the input's zero point.
        """
        by, weights = self.factor, self.layer.blobs.get("weights")
        wide = self.is_wide or (weights is not None and np.asarray(weights).dtype.itemsize > 1)
        if wide and "remain_shift" in self.layer.attrs:
            first = float(self.shifts[0])
            early = max(first - self.bit_count("remain_shift"), 0.0)
            plain = self.attr("with_activation", str, "NONE") == "NONE"
            if early and not plain and "shift_value" in self.layer.attrs:
                what = "once or, as the executor does after an activation, twice"
                raise undocumented(f"whether sums are shifted {what} (remain_shift)")
            biases = biases + absorbed
            if self.layer.kind != "FullyConnected":  # its own biases are wider
                biases = biases.astype(np.float32).astype(np.float64)
            biases = np.clip(np.floor(biases * 2.0**-early), *INT32)
            if absorbed.any():
                total = total - constant_like(absorbed, total, "absorbed")
            total = rescale(total, 2.0**-early, 0, INT32)
            by = self.scales * 2.0 ** (early - first)
        if biases.any():
            total = total + constant_like(biases, total, f"{self.layer.name}.biases")
        return total, by

    def activated(self, x: Value, by: Any) -> Value:
        """Apply the activation of the layer, and requantize."""
        b, bits = self.b, self.bits
        name = self.attr("with_activation", str, "NONE")
        if name in ("RELU", "RELU6"):
            x = b.Relu(x)
        elif name == "LEAKYRELU":
            shift = self.bit_count("negative_slope_shift", bits)
            slope = self.attr("negative_slope_value", float) * 2.0**-shift
            x = b.Relu(x) + b.Round(b.Min(x, 0) * slope)
        elif name == "CLIP":
            finer = 256 if bits <= 8 else 1
            bounds = self.attr("clip_min", float), self.attr("clip_max", float)
            return self.requantized(rescale(x, by * finer, 0, bounds), 1 / finer)
        elif name != "NONE":
            raise undocumented(f"on which scale with_activation={name} rounds")
        return self.requantized(x, by)

    def as_numbers(
        self, *inputs: ir.Value, kind: str = "", attrs: dict[str, Any] | None = None, **blobs: Array
    ) -> Value:
        """Return the result of the layer, or of one of type `kind`, as a float layer with these
        operands and constants.
        """
        return self.all_as_numbers(*inputs, kind=kind, attrs=attrs, **blobs)[0]

    def all_as_numbers(
        self, *inputs: ir.Value, kind: str = "", attrs: dict[str, Any] | None = None, **blobs: Array
    ) -> list[Value]:
        """Read layers with several results as real numbers."""
        plain = without_integer_keys(self.layer)
        plain.kind, plain.inputs, plain.blobs = kind or plain.kind, list(inputs), blobs
        plain.attrs = plain.attrs if attrs is None else attrs
        if fused.carries(plain.kind):
            fused.take(plain.attrs, blobs)
        lifting = Lifting(MAPPING, self.b, "zhouyi")
        found = lifting.mapping.table.lift(lifting.reading(plain))
        return [with_operators(v) for v in found]


Written = tuple[str, dict[str, Any], dict[str, Any]]  # kind, attributes, constants


@dataclass(eq=False)
class IntegerLowerContext:
    """A float layer with quantized operands and result, and their parameters. `npu`: in the form
    that the vendor's hardware supports; else as exact as its executor computes.
    """

    layer: Layer
    inputs: list[ir.Value]
    sources: list[QuantParams]
    result: QuantParams
    npu: bool

    @property
    def bits(self) -> int:
        """Return the width of multipliers."""
        return 15 if self.npu else 31

    @property
    def node(self) -> ir.Node:
        return made(self.layer).node

    @property
    def factor(self) -> float:
        return self.sources[0].scale / self.result.scale

    @property
    def method(self) -> str:
        return str(self.layer.attrs.get("method"))

    def demand_npu(self) -> None:
        """Raise MappingError unless an integer form that is not exact will do."""
        if not self.npu:
            what = "the integer form, which +npu writes, differs at times by one quantized value"
            raise MappingError(what)

    def written(self, attrs: dict[str, Any] | None = None, **blobs: Array) -> Written:
        """Return the integer layer: its own keys without those of an activation, and `attrs`."""
        own = {k: v for k, v in self.layer.attrs.items() if k not in _ACTIVATION}
        return self.layer.kind, own | (attrs or {}), blobs

    def with_activation(self, attrs: dict[str, Any], **blobs: Array) -> Written:
        """Return the layer with its fused activation."""
        return self.written({**self.activation("with_activation"), **attrs}, **blobs)

    def look_up_table(self) -> Array:
        """Return the table of results for all quantized values of the operand."""
        return table_of(self.node, self.sources[0], self.result)

    def activation(self, key: str) -> dict[str, Any]:
        """Return the activation after a layer, in integers; bounds that the result has anyway are
        dropped.

        `key` is the key of its name.
        """
        attrs, result = self.layer.attrs, self.result
        name = str(attrs.get(key, "NONE"))
        if name == "LEAKYRELU":
            return self._leaky(key, float(attrs["negative_slope_value"]))
        if name not in ("RELU", "RELU6", "CLIP"):
            if name != "NONE":
                raise MappingError(f"{key}={name} has no integer form")
            return {key: name}
        clip = (float(attrs.get("clip_min", 0)), float(attrs.get("clip_max", 0)))
        low, high = {"RELU": (0.0, np.inf), "RELU6": (0.0, 6.0)}.get(name, clip)
        bounded_below = np.rint(low / result.scale) + result.zero > result.low
        bounded_above = np.rint(high / result.scale) + result.zero < result.high
        if not bounded_above and not bounded_below:
            return {key: name if name != "CLIP" and key == "with_activation" else "NONE"}
        if not bounded_above and low == 0.0:
            return {key: "RELU"}
        finer = 256 if result.dtype.bitwidth <= 8 else 1
        bounds = np.rint(np.array([low, high]) / result.scale * finer)
        first, last = (int(v) for v in np.clip(bounds, *INT32))
        return {key: "CLIP", "clip_min": first, "clip_max": last}

    def _leaky(self, key: str, slope: float) -> dict[str, Any]:
        if slope < 0:
            raise MappingError(f"the slope {slope} must not be negative")
        if slope == 0:
            return {key: "RELU"}
        keys = scalar_keys(slope, self.bits)
        return {
            key: "LEAKYRELU",
            "negative_slope_type": keys["scale_type"],
            "negative_slope_value": keys["scale_value"],
            "negative_slope_shift": keys["shift_value"],
        }
