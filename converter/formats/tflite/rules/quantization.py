"""Conversions between quantized values and real numbers.

Inputs are real numbers, and results are quantized as their tensors declare, so that QUANTIZE and
DEQUANTIZE are identities.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.lite.quantization import (
    ATTRIBUTES,
    FLOATS,
    demand_ordinary,
    node_quantization,
    parameters,
)
from converter.formats.tflite.codec import LiteTensor
from converter.formats.tflite.rules.context import (
    STORED,
    LiftContext,
    LowerContext,
)
from converter.formats.tflite.rules.fields import data, largest_below
from converter.formats.tflite.tensors import is_by_axis, type_of, zero_points
from converter.graph.infer import Array
from converter.graph.value import Value
from converter.mapping.fields import Detail, Field
from converter.mapping.rules import Custom, Rule, custom, op
from converter.record import record

WIDE = (ir.DataType.INT32, ir.DataType.INT64)


def is_wide(tensor: LiteTensor) -> bool:
    """Return whether a tensor holds integers of 32 or 64 bits with a scale, which only QUANTIZE
    reads.
    """
    return bool(tensor.scales) and type_of(tensor) in WIDE


def zero_and_scale(r: LiftContext, tensor: LiteTensor) -> tuple[Array, Array]:
    """Return zero point and scale of a tensor. Raises MappingError R110 for scales by channel."""
    if is_by_axis(tensor):
        raise MappingError("per-channel scales of int32 data are not supported", "R110")
    return np.asarray(zero_points(tensor)[0]), np.asarray(tensor.scales[0], np.float32)


def of_wide(r: LiftContext, x: Value, tensor: LiteTensor) -> Value:
    """Return the real numbers of 32-bit or 64-bit integers."""
    zero, scale = zero_and_scale(r, tensor)
    return r.b.Cast(x - zero if zero else x, to=ir.DataType.FLOAT) * scale


def to_wide(r: LiftContext, x: Value, tensor: LiteTensor) -> Value:
    """Convert real numbers to 32-bit or 64-bit integers, halves rounded up as the kernel does."""
    b, (zero, scale) = r.b, zero_and_scale(r, tensor)
    steps = b.Cast(x, to=ir.DataType.DOUBLE) / scale.astype(np.float64) + float(zero)
    limits, wanted = np.iinfo(zero.dtype), type_of(tensor)
    ends = (float(limits.min), largest_below(float(limits.max), np.dtype(np.float64)))
    inside = b.Clip(b.Floor(steps + 0.5), *(b.const(np.float64(end)) for end in ends))
    return b.Cast(inside, to=wanted)


class SameNumbers(Field):
    """Read, the result is the input, in the type of the result where that is a float."""

    def lift(self, r: LiftContext) -> None:
        wanted, x = type_of(r.result()), data(r)
        if is_wide(r.tensor(0)):
            x = of_wide(r, x, r.tensor(0))
        if is_wide(r.result()) and x.dtype in FLOATS:
            x = to_wide(r, x, r.result())
        r.forwarded = [r.cast(x, wanted) if wanted.is_floating_point() else x]


def read_quantized_range(r: LiftContext) -> None:
    """Round to one of 2^num_bits levels between min and max, which are shifted so that 0 is a
    level.

    Source: TensorFlow Lite, fake_quant.
    """
    low, high = (np.float32(r.attr(k, float)) for k in ("min", "max"))
    bits, narrow = r.attr("num_bits", int), r.attr("narrow_range", bool)
    if not 2 <= bits <= 16:
        raise MappingError(f"num_bits={bits} is not supported", "R110")
    first, last = (1 if narrow else 0), (1 << bits) - 1
    scale = (high - low) / np.float32(last - first)
    zero = min(max(np.float32(first) - low / scale, first), last)
    zero = np.floor(zero + 0.5)
    ends = [np.float32((n - zero) * scale) for n in (first, last)]
    r.node.inputs[1:] = [r.b.const(e) for e in (*ends, *ends)]
    r.set(levels=last - first + 1)


QUANTIZED_RANGE = Detail(
    read=read_quantized_range,
    keys=("min", "max", "num_bits", "narrow_range"),
    names=("levels",),
    inputs=(1, 2, 3, 4),
)


@record
class Scale(SameNumbers):
    """Scale and zero point, which belong to the tensor of the quantized values: the result of a
    QuantizeLinear (`of_result`), the input of a DequantizeLinear.
    """

    of_result: bool
    names = ATTRIBUTES
    inputs = (1, 2)

    def lower(self, w: LowerContext) -> None:
        node = w.out.producer()
        assert node is not None
        scale = node_quantization(node)
        demand_ordinary(scale)
        stored = w.out if self.of_result else w.data
        constant_weights = not self.of_result and stored.const_value is not None
        types = (*STORED, ir.DataType.INT4) if constant_weights else STORED
        if stored.dtype not in types or (stored.dtype == ir.DataType.INT16 and any(scale.zeros)):
            raise MappingError(f"no kernel dequantizes {stored.dtype} with these scales")
        if scale.axis is not None and not constant_weights:
            raise MappingError("per-channel scales are only supported for constants")
        w.low.note(stored, scale)


def between(w: LowerContext) -> None:
    """Remove a DequantizeLinear followed by a QuantizeLinear of the same scale and type."""
    node = w.out.producer()
    if not w.quantized or node is None:
        raise no_match("scale and zero point must not change")
    stored = w.real(w.data)
    found = parameters(node)
    if found is None or found[0].size != 1 or stored.dtype != w.out.dtype:
        raise no_match("the quantized type must not change")
    if w.scale(stored).single != (float(found[0][0]), int(found[1][0])):
        raise no_match("scale and zero point must not change")
    w.low.alias(w.out, stored)


RULES: list[Rule | Custom] = [
    custom("QuantizeLinear", "", lower=between),
    op("QuantizeLinear", "QUANTIZE", Scale(True), example_inputs="2,3 =[0.5] =i8:[3]"),
    op("DequantizeLinear", "DEQUANTIZE", Scale(False), example_inputs="i8:2,3 =[0.5] =i8:[3]"),
    op("Identity", "DENSIFY", SameNumbers(), lift_only=True),
    op("netconv::FakeQuantize", "FAKE_QUANT", QUANTIZED_RANGE, lift_only=True),
]
