"""Extension operators of quantized networks."""

from __future__ import annotations

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension
from converter.graph.infer import constant
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
    output_high, even if both are equal. Ties are rounded to even. Result: the shape of x. Source:
    OpenVINO, FakeQuantize-1.
    """
    steps = b.like(x, levels - 1)
    width = input_high - input_low
    distinct = _all_distinct(input_low, input_high)
    if not distinct:
        width = b.Where(b.Equal(width, b.like(x, 0)), b.like(x, 1), width)
    scale = steps / width
    shift = -input_low * scale
    step = (output_high - output_low) / steps
    if distinct:
        # levels have the same bounds in all channels
        level = b.Round(b.Clip(x * scale + shift, 0, levels - 1))
        return level * step + output_low
    clipped = b.Min(b.Max(x, b.Min(input_low, input_high)), b.Max(input_low, input_high))
    y = b.Round(clipped * scale + shift) * step + output_low
    # equal bounds are a threshold, as in binary networks
    above = b.Where(x > input_high, output_high, output_low)
    return b.Where(b.Equal(input_low, input_high), above, y)


def _all_distinct(low: Value, high: Value) -> bool:
    """Return whether it is known that no bounds are equal."""
    lows, highs = constant(low), constant(high)
    return lows is not None and highs is not None and not np.equal(lows, highs).any()


@extension
def FakeConvert(
    b: Builder, x: Value, scale: Value, shift: Value | None = None, *, to: int
) -> Value:
    """x times `scale`, minus `shift`, converted to the 8-bit float type `to` (saturating) and back.

    scale and shift (by default 0) broadcast to x, and the result has the shape and type of x.
    Source: OpenVINO, FakeConvert-13.
    """
    y = x * scale
    if shift is not None:
        y = y - shift
    narrow = b.Cast(b.Cast(y, to=to, saturate=1), to=x.dtype or FLOAT)
    return (narrow if shift is None else narrow + shift) / scale
