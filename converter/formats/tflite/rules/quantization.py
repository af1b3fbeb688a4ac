"""The way between stored integers and real numbers.

Inputs are real numbers, and results are stored as their tensors say, so that QUANTIZE and
DEQUANTIZE leave nothing to compute.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, not_meant
from converter.formats.tflite.codec import LiteTensor
from converter.formats.tflite.rules.context import (
    LARGEST_SCALE,
    STORED,
    Quantisation,
    Reading,
    Writing,
    parameters,
)
from converter.formats.tflite.rules.fields import data, largest_below
from converter.formats.tflite.tensors import FLOATS, is_by_axis, quantisation, type_of
from converter.graph.build import attrs_of
from converter.graph.infer import Array
from converter.graph.record import record
from converter.graph.value import Value
from converter.mapping.fields import Field
from converter.mapping.rules import Custom, Rule, custom, op

WIDE = (ir.DataType.INT32, ir.DataType.INT64)


def is_wide(tensor: LiteTensor) -> bool:
    """Whether a tensor holds integers of 32 or 64 bits with a scale, which only QUANTIZE reads."""
    return bool(tensor.scales) and type_of(tensor) in WIDE


def zero_and_scale(r: Reading, tensor: LiteTensor) -> tuple[Array, Array]:
    if is_by_axis(tensor):
        raise MappingError("scales for each channel of integers of 32 bits", "R110")
    scale, zero = quantisation(tensor)
    return np.asarray(zero), np.asarray(scale)


def of_wide(r: Reading, x: Value, tensor: LiteTensor) -> Value:
    """The real numbers of integers of 32 or 64 bits."""
    zero, scale = zero_and_scale(r, tensor)
    return r.b.Cast(x - zero if zero else x, to=ir.DataType.FLOAT) * scale


def to_wide(r: Reading, x: Value, tensor: LiteTensor) -> Value:
    """Real numbers as integers of 32 or 64 bits, halves rounded up as the kernel does."""
    b, (zero, scale) = r.b, zero_and_scale(r, tensor)
    steps = b.Cast(x, to=ir.DataType.DOUBLE) / scale.astype(np.float64) + float(zero)
    limits, wanted = np.iinfo(zero.dtype), type_of(tensor)
    ends = (float(limits.min), largest_below(float(limits.max), np.dtype(np.float64)))
    inside = b.Clip(b.Floor(steps + 0.5), *(b.const(np.float64(end)) for end in ends))
    return b.Cast(inside, to=wanted)


class SameNumbers(Field):
    """Read, the result is the input, in the type of the result where that is a float."""

    def lift(self, r: Reading) -> None:
        wanted, x = type_of(r.result()), data(r)
        if is_wide(r.tensor(0)):
            x = of_wide(r, x, r.tensor(0))
        if is_wide(r.result()) and x.dtype in FLOATS:
            x = to_wide(r, x, r.result())
        r.ready = [r.cast(x, wanted) if wanted.is_floating_point() else x]


class Range(Field):
    """Rounds to one of 2^num_bits steps between min and max, which are moved so that 0 is one.

    Source: TensorFlow Lite, fake_quant.
    """

    keys = ("min", "max", "num_bits", "narrow_range")
    names = ("levels",)
    inputs = (1, 2, 3, 4)

    def lift(self, r: Reading) -> None:
        low, high = (np.float32(r.attr(k, float)) for k in ("min", "max"))
        bits, narrow = r.attr("num_bits", int), r.attr("narrow_range", bool)
        if not 2 <= bits <= 16:
            raise MappingError(f"num_bits={bits}", "R110")
        first, last = (1 if narrow else 0), (1 << bits) - 1
        scale = (high - low) / np.float32(last - first)
        zero = min(max(np.float32(first) - low / scale, first), last)
        zero = np.floor(zero + 0.5)
        ends = [np.float32((n - zero) * scale) for n in (first, last)]
        r.node.inputs[1:] = [r.b.const(e) for e in (*ends, *ends)]
        r.set(levels=last - first + 1)


@record
class Scale(SameNumbers):
    """Scale and zero point, which belong to the tensor of the stored integers: the result of a
    QuantizeLinear (`of_result`), the input of a DequantizeLinear.
    """

    of_result: bool
    names = ("axis", "block_size", "output_dtype", "precision", "saturate")
    inputs = (1, 2)

    def lower(self, w: Writing) -> None:
        node = w.out.producer()
        found = None if node is None else parameters(node)
        if node is None or found is None:
            raise MappingError("scale and zero point must be constant")
        scales, zeros = found
        least, most = float(scales.min(initial=1)), float(scales.max(initial=1))
        if not np.finfo(np.float32).tiny <= least <= most < LARGEST_SCALE:
            raise MappingError("a scale that is no ordinary number")
        stored = w.out if self.of_result else w.data
        constant_weights = not self.of_result and stored.const_value is not None
        types = (*STORED, ir.DataType.INT4) if constant_weights else STORED
        if stored.dtype not in types or (stored.dtype == ir.DataType.INT16 and zeros.any()):
            raise MappingError(f"no kernel reads {stored.dtype} with such a scale")
        if scales.size != 1 and not constant_weights:
            raise MappingError("scales for each channel belong to constants")
        axis = int(attrs_of(node).get("axis", 1)) % max(1, w.rank())
        scale = Quantisation(
            tuple(map(float, scales)),
            tuple(map(int, np.broadcast_to(zeros, scales.shape))),
            axis if scales.size > 1 else 0,
        )
        w.low.note(stored, scale)


def between(w: Writing) -> None:
    """What stands between a DequantizeLinear and a QuantizeLinear of one scale is nothing."""
    node = w.out.producer()
    if not w.quantised or node is None:
        raise not_meant("a way between two scales")
    stored = w.real(w.data)
    found = parameters(node)
    if found is None or found[0].size != 1 or stored.dtype != w.out.dtype:
        raise not_meant("a way between two types")
    if w.scale(stored).single != (float(found[0][0]), int(found[1][0])):
        raise not_meant("a way between two scales")
    w.low.alias(w.out, stored)


RULES: list[Rule | Custom] = [
    custom("QuantizeLinear", "", lower=between),
    op("QuantizeLinear", "QUANTIZE", Scale(True), given="2,3 =[0.5] =i8:[3]"),
    op("DequantizeLinear", "DEQUANTIZE", Scale(False), given="i8:2,3 =[0.5] =i8:[3]"),
    op("Identity", "DENSIFY", SameNumbers(), lift_only=True),
    op("netconv::FakeQuantize", "FAKE_QUANT", Range(), lift_only=True),
]
