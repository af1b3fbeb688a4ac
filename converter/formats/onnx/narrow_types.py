"""Types of a few bits that came after opset 21: FLOAT4E2M1, FLOAT6, FLOAT8E8M0, INT2 and UINT2.

No engine exchanges such numbers, and few compute with them. The graph has their values in a wider
type, and a conversion to one of them becomes arithmetic that gives exactly its values. Constants
keep few bits: see `types.fit_tensor`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.op import Op, Results
from converter.formats.onnx.types import NOMINAL, nominal_type
from converter.graph import MOVES
from converter.graph.build import Builder
from converter.graph.infer import rank_of
from converter.graph.value import Value

D = ir.DataType
# data operands by position
DATA: dict[str, slice] = {**dict.fromkeys(MOVES, slice(0, 1)), "Concat": slice(None)}
_READERS = ("Cast", "CastLike", "QuantizeLinear", "DequantizeLinear")
# type -> bits of the fraction, exponents of the least and the greatest normal numbers, the greatest
_FLOATS = {
    "FLOAT4E2M1": (1, 0, 2, 6.0),
    "FLOAT6E2M3": (3, 0, 2, 7.5),
    "FLOAT6E3M2": (2, -2, 4, 28.0),
}
_INTEGERS = {"INT2": (-2, 1), "UINT2": (0, 3)}
_POWERS = np.exp2(np.arange(-127, 128, dtype=np.float64)).astype(np.float32)


def narrow(value: ir.Value | None) -> str:
    """Return the narrow type (a few bits) that the file declares for a value; "" for
    other types.
    """
    return "" if value is None else str(value.meta.get(NOMINAL, ""))


def marked(results: Sequence[Value], name: str) -> Sequence[Value]:
    """Record that values have a type of a few bits."""
    for value in results:
        value.meta[NOMINAL] = name
    return results


def plain_copy(b: Builder, value: Value | ir.Value) -> Value:
    """Return a value with the same numbers that is not marked as a narrow type; constants and
    computed numbers get the type used for computation.
    """
    to = {"INT2": D.INT8, "UINT2": D.UINT8}.get(narrow(value), D.FLOAT)
    return b.op("Identity", value) if value.dtype == to else b.op("Cast", value, to=to)


def begin_move(op: Op, b: Builder) -> str:
    """Replace the data of an operator that moves elements of a narrow type by copies in one type,
    and return the narrow type; "" for other operators.
    """
    if op.domain or op.kind not in DATA or op.kind == "Identity":
        return ""
    places = range(len(op.inputs))[DATA[op.kind]]
    found = {narrow(op.input(i)) for i in places}
    if len(found) != 1 or not (name := found.pop()):
        return ""
    alike = len({op.need(i).dtype for i in places}) == 1
    for i in places:
        value = op.need(i)
        op.set_input(i, b.op("Identity", value) if alike else plain_copy(b, value))
    return name


def lift_narrow(op: Op, b: Builder) -> Results:
    """Return the results of an operator that converts to or from a type of a few bits; None for
    others, and where the wider type of its operands gives the same.
    """
    if op.domain or op.kind not in _READERS:
        return None
    if op.kind == "DequantizeLinear":
        return _dequantized(op, b) if narrow(op.input(0)) else None
    if op.kind == "QuantizeLinear":
        name = narrow(op.input(2)) or nominal_type(op.attr("output_dtype", 0))
        return marked([_quantized(op, b, name)], name) if name else None
    name = narrow(op.input(1)) if op.kind == "CastLike" else nominal_type(op.attr("to", 0))
    if not name:
        return None
    return marked([_cast(b, op.x, name, op.attr("round_mode", "up"))], name)


def _cast(b: Builder, x: Value, name: str, round_mode: str = "up") -> Value:
    """Return the numbers that a type of a few bits has for `x`."""
    with b:
        if name in _INTEGERS:
            return _wrapped(b, x, name)
        number = x if x.dtype == D.FLOAT else b.Cast(x, to=D.FLOAT)
        if name == "FLOAT8E8M0":
            return _power(b, number, round_mode)
        return _rounded(b, number, *_FLOATS[name])


def _wrapped(b: Builder, x: Value, name: str) -> Value:
    """Wrap integers around as narrower ones: the higher bits are removed."""
    low, _ = _INTEGERS[name]
    whole = b.Cast(x, to=D.INT32) % 4
    number = b.Where(whole >= 2, whole - 4, whole) if low else whole
    return b.Cast(number, to=D.INT8 if low else D.UINT8)


def _rounded(b: Builder, x: Value, bits: int, least: int, most: int, limit: float) -> Value:
    """Round to the nearest number with a fraction of `bits` bits, ties to even; numbers beyond the
    greatest become it, and NaN becomes 0, as in ml_dtypes.
    """
    size, spacing = b.Abs(x), b.like(x, 2.0 ** (least - bits))
    for exponent in range(least + 1, most + 1):
        spacing = b.Where(size < 2.0**exponent, spacing, b.like(x, 2.0 ** (exponent - bits)))
    y = b.Min(b.Round(size / spacing) * spacing, b.like(x, limit))
    return b.Where(b.IsNaN(x), b.like(x, 0), b.Where(x < 0, -y, y))


def _power(b: Builder, x: Value, round_mode: str) -> Value:
    """Return powers of two: that below `x`, above it, or the nearer one. Numbers up to 0 become the
    least power, as in onnxruntime; infinite ones are not a number.
    """
    size = b.Max(x, b.like(x, float(_POWERS[0])))
    guess = b.Floor(b.Log(size) * float(1 / np.log(2))) + 127
    place = b.Cast(b.Clip(guess, b.like(x, 0), b.like(x, 254)), to=D.INT64)
    p = b.Gather(b.const(_POWERS, "powers"), place)
    p = b.Where(p > size, p * 0.5, b.Where(p * 2 > size, p, p * 2))
    if round_mode == "up":
        p = b.Where(p < size, p * 2, p)
    elif round_mode == "nearest":
        p = b.Where(size / p < 1.5, p, p * 2)
    p = b.Min(p, b.like(x, float(_POWERS[-1])))
    return b.Where(b.IsNaN(x) | b.IsInf(x), b.like(x, float("nan")), p)


def _quantized(op: Op, b: Builder, name: str) -> Value:
    """Return x / scale + zero point in a type of a few bits, saturated."""
    with b:
        x, scale, zero = (_along(op, b, i) for i in range(3))
        assert x is not None and scale is not None
        number = x / scale
        if name not in _INTEGERS:
            return _cast(b, number if zero is None else number + zero, name)
        low, high = _INTEGERS[name]
        whole = b.Round(number) if zero is None else b.Round(number) + zero
        held = D.INT8 if low else D.UINT8
        return b.Cast(b.Clip(whole, b.like(whole, low), b.like(whole, high)), to=held)


def _dequantized(op: Op, b: Builder) -> Value | None:
    """Return (x - zero point) * scale of numbers in floats; None where the operator takes the type
    that they have here.
    """
    if op.x.dtype != D.FLOAT:
        zero = op.input(2)
        if zero is not None and zero.dtype != op.x.dtype:
            op.set_input(2, b.Cast(zero, to=op.x.dtype))
        return None
    with b:
        x, scale, zero = (_along(op, b, i) for i in range(3))
        assert x is not None and scale is not None
        y = (x if zero is None else x - zero) * scale
        to = op.need(1).dtype or D.FLOAT
        return y if to == D.FLOAT else b.Cast(y, to=to)


def _along(op: Op, b: Builder, index: int) -> Value | None:
    """Return an operand as floats; scales and zero points with the axes of the data."""
    value = op.input(index)
    if value is None:
        return None
    number = value if value.dtype == D.FLOAT else b.Cast(value, to=D.FLOAT)
    rank, own = op.rank(0), rank_of(value)
    if index == 0 or own == 0 or rank == 0:
        return number
    axis, block = op.attr("axis", 1) % rank, op.attr("block_size", 0)
    if block:
        sizes = b.Shape(op.x)
        apart = b.Expand(
            b.Unsqueeze(number, [axis + 1]),
            [*[1] * (axis + 1), block, *[1] * (rank - axis - 1)],
        )
        whole = b.Reshape(apart, [*[0] * axis, -1, *[0] * (rank - axis - 1)])
        return b.Slice(whole, [0], sizes[axis : axis + 1], [axis])
    if own != 1:
        raise MappingError(f"{op.kind} has a scale of {own} axes without block_size", "R105")
    behind = list(range(1, rank - axis))
    return b.Unsqueeze(number, behind) if behind else number
