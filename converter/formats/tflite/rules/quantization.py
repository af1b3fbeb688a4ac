"""The way between stored integers and real numbers.

Inputs are real numbers, and results are stored as their tensors say, so that QUANTIZE and
DEQUANTIZE leave nothing to compute.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.tflite.rules.fields import data, reading
from converter.formats.tflite.tensors import type_of
from converter.graph.value import Value, with_operators
from converter.mapping.context import Reading
from converter.mapping.fields import Field
from converter.mapping.rules import Custom, Rule, custom, op


def same_numbers(r: Reading) -> ir.Value:
    """In the type of the result, where that is a float."""
    wanted = type_of(reading(r).result())
    return r.cast(data(r), wanted) if wanted.is_floating_point() else data(r)


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
        first, last = (1 if narrow else 0), (1 << bits) - 1
        scale = (high - low) / np.float32(last - first)
        zero = min(max(np.float32(first) - low / scale, first), last)
        zero = np.floor(zero + 0.5)
        ends = [np.float32((n - zero) * scale) for n in (first, last)]
        r.node.inputs[1:] = [r.b.const(e) for e in (*ends, *ends)]
        r.node.attrs["levels"] = last - first + 1


def identity(r: Reading) -> Value:
    return with_operators(data(r))


RULES: list[Rule | Custom] = [
    custom("", "QUANTIZE DEQUANTIZE", same_numbers),
    custom("", "DENSIFY", identity),
    op("netconv::FakeQuantize", "FAKE_QUANT", Range()),
]
