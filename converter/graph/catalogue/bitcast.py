"""Reinterpretation of the bits of a number as another type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.extensions import extension
from converter.graph.sizes import arange

_T = ir.DataType
_WIDTH = {
    8: (_T.BOOL, _T.INT8, _T.UINT8),
    16: (_T.INT16, _T.UINT16, _T.FLOAT16, _T.BFLOAT16),
    32: (_T.INT32, _T.UINT32, _T.FLOAT),
    64: (_T.INT64, _T.UINT64, _T.DOUBLE),
}


@dataclass(frozen=True)
class _Layout:
    """A binary floating-point type: its width and its fraction bits; `wide` is the type used for
    computation.
    """

    width: int
    fraction: int
    wide: ir.DataType

    @property
    def top(self) -> int:
        """Return the exponent field of infinities."""
        return (1 << (self.width - 1 - self.fraction)) - 1

    def powers(self) -> np.ndarray:
        """Return the weight of a significand of one, for each exponent field; infinite for that of
        infinities.
        """
        bias = self.top // 2
        weights = np.ldexp(np.float64(1), np.maximum(arange(self.top), 1) - bias)
        return np.append(weights, np.inf).astype(self.wide.numpy())


_FLOATS = {
    _T.FLOAT16: _Layout(16, 10, _T.FLOAT),
    _T.BFLOAT16: _Layout(16, 7, _T.FLOAT),
    _T.FLOAT: _Layout(32, 23, _T.FLOAT),
    _T.DOUBLE: _Layout(64, 52, _T.DOUBLE),
}


@extension
def BitCast(b: Builder, x: Value, *, to: int) -> Value:
    """Reinterpret the elements' bits as the type `to`, which has the same width (8 to 64 bits); any
    shape.

    Between integers this is a Cast. The fields of a floating-point number are separated and
    combined in exact arithmetic; of NaNs, only the positive quiet one is supported.
    """
    target, source = _T(to), x.dtype or _T.FLOAT
    if target == source:
        return b.Identity(x)
    if not any(target in types and source in types for types in _WIDTH.values()):
        raise MappingError(
            f"BitCast of {source.name} to {target.name} is not supported: they "
            "have no common width",
            "R110",
        )
    if source in _FLOATS:
        x = _fields(b, x, _FLOATS[source])
    if target in _FLOATS:
        return b.Cast(_number(b, x, _FLOATS[target]), to=target)
    return b.Cast(x, to=target) if x.dtype != target else x


def _fields(b: Builder, x: Value, layout: _Layout) -> Value:
    """Convert a float to its bits as int64, with the sign bit as a two's complement sign."""
    x = b.Cast(x, to=layout.wide)
    zero, size, powers = b.like(x, 0), b.Abs(x), b.const(layout.powers(), "powers")
    field = b.ConstantOfShape(b.Shape(x), value=np.zeros(1, np.int64))
    step = (layout.top + 1) // 2
    while step:  # find the largest exponent whose weight does not exceed the number
        higher = field + np.array(step, np.int64)
        field = b.Where(size >= b.Gather(powers, higher), higher, field)
        step //= 2
    scaled = size / b.Gather(powers, field)
    normal = scaled >= 1
    field = b.Where(normal, b.Max(field, 1), 0)
    return _assembled(b, x, zero, size, scaled, normal, field, layout)


def _assembled(
    b: Builder,
    x: Value,
    zero: Value,
    size: Value,
    scaled: Value,
    normal: Value,
    field: Value,
    layout: _Layout,
) -> Value:
    unit, infinite = 1 << layout.fraction, b.IsInf(size)
    rest = b.Where(infinite, zero, b.Where(normal, scaled - 1, scaled))
    fraction = b.Cast(rest * unit, to=_T.INT64)
    field = b.Where(infinite, np.array(layout.top, np.int64), field)
    bits = field * np.array(unit, np.int64) + fraction
    bits = b.Where(b.IsNaN(x), np.array(layout.top * unit + unit // 2, np.int64), bits)
    below = b.Where(b.Equal(x, zero), b.Reciprocal(x), x) < zero
    return b.Where(below, bits + np.array(-(1 << (layout.width - 1)), np.int64), bits)


def _number(b: Builder, x: Value, layout: _Layout) -> Value:
    """Convert bits as integers to the number in the type `wide`."""
    unit = 1 << layout.fraction
    same_width = {16: _T.UINT16, 32: _T.UINT32, 64: _T.UINT64}[layout.width]
    word = b.Cast(b.Cast(x, to=same_width), to=_T.UINT64)

    def part(start: int, mask: int) -> Value:
        moved = b.BitShift(word, np.array(start, np.uint64), direction="RIGHT") if start else word
        return b.Cast(b.BitwiseAnd(moved, np.array(mask, np.uint64)), to=_T.INT64)

    field, sign = part(layout.fraction, layout.top), part(layout.width - 1, 1)
    fraction = b.Cast(part(0, unit - 1), to=layout.wide)
    leading = b.Cast(field > np.array(0, np.int64), to=layout.wide)
    significand = leading + fraction * (1 / unit)
    size = significand * b.Gather(b.const(layout.powers(), "powers"), field)
    odd = b.Equal(field, np.array(layout.top, np.int64)) & (fraction > 0)
    size = b.Where(odd, np.nan, size)
    return size * b.Where(b.Equal(sign, 1), b.like(size, -1), b.like(size, 1))
