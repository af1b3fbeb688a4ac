"""Extension operators of quantised networks."""

from __future__ import annotations

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension
from converter.graph.value import FLOAT


@extension
def FakeQuantize(
    b: Builder,
    x: Value,
    input_low: Value,
    input_high: Value,
    output_low: Value,
    output_high: Value,
    *,
    levels: int,
) -> Value:
    """x rounded to one of `levels` values between the input bounds, then scaled to the output
    bounds; all operands broadcast.

    At and below the lower of the input bounds the result is output_low, above the higher one
    output_high. Rounds halves to even. Result: the shape of x. Source: OpenVINO, FakeQuantize-1.
    """
    steps = b.like(x, levels - 1)
    scale = steps / (input_high - input_low)
    shift = -input_low * scale
    step = (output_high - output_low) / steps
    clipped = b.Min(b.Max(x, b.Min(input_low, input_high)), b.Max(input_low, input_high))
    level = b.Round(clipped * scale + shift)
    return level * step + output_low


@extension
def FakeConvert(
    b: Builder, x: Value, scale: Value, shift: Value | None = None, *, to: int
) -> Value:
    """x times `scale`, minus `shift`, through the 8-bit float type `to` (beyond its range: its
    largest number) and back.

    scale and shift (by default 0) broadcast to x, whose shape and type the result has. Source:
    OpenVINO, FakeConvert-13.
    """
    y = x * scale
    if shift is not None:
        y = y - shift
    narrow = b.Cast(b.Cast(y, to=to, saturate=1), to=x.dtype or FLOAT)
    return (narrow if shift is None else narrow + shift) / scale
