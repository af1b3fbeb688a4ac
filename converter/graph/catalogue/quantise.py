"""Extension operators of quantised networks."""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension


@extension
def FakeQuantize(b: Builder, x: ir.Value, input_low: ir.Value, input_high: ir.Value, output_low: ir.Value, output_high: ir.Value, *, levels: int) -> ir.Value:
    """x rounded to one of `levels` values between the input bounds, then scaled to the output bounds; all operands broadcast.

    At and below the lower of the input bounds the result is output_low, above the higher one output_high. Rounds halves to even.
    """
    steps = b.like(x, levels - 1)
    scale = b.op("Div", steps, b.op("Sub", input_high, input_low))
    shift = b.op("Mul", b.op("Neg", input_low), scale)
    step = b.op("Div", b.op("Sub", output_high, output_low), steps)
    clipped = b.op("Min", b.op("Max", x, b.op("Min", input_low, input_high)), b.op("Max", input_low, input_high))
    level = b.op("Round", b.op("Add", b.op("Mul", clipped, scale), shift))
    return b.op("Add", b.op("Mul", level, step), output_low)


@extension
def FakeConvert(b: Builder, x: ir.Value, scale: ir.Value, shift: ir.Value | None = None, *, to: int) -> ir.Value:
    """x times `scale`, minus `shift`, through the 8-bit float type `to` (beyond its range: its largest number) and back."""
    y = b.op("Mul", x, scale)
    if shift is not None:
        y = b.op("Sub", y, shift)
    narrow = b.op("Cast", b.op("Cast", y, to=to, saturate=1), to=int(x.dtype or ir.DataType.FLOAT))
    return b.op("Div", narrow if shift is None else b.op("Add", narrow, shift), scale)
