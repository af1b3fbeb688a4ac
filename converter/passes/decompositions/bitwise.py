"""Bitwise operations on integers, one bit at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import Array, constant
from converter.graph.sizes import arange
from converter.graph.value import array_type
from converter.passes.decompositions.activations import x_of
from converter.passes.decompositions.table import Table

_T = ir.DataType
_UNSIGNED = {_T.INT8: _T.UINT8, _T.INT16: _T.UINT16, _T.INT32: _T.UINT32, _T.INT64: _T.UINT64}


def bitwise(node: ir.Node, b: Builder) -> Value | None:
    """Expand the bits of both operands to 0 and 1 along a new last axis, combine them, and sum them
    with their weights.
    """
    first, second = x_of(node), x_of(node, 1)
    if first.dtype is None or first.dtype.bitwidth < 8:
        return None
    left, right = _bits(b, first), _bits(b, second)
    if node.op_type == "BitwiseAnd":
        joined = left * right
    elif node.op_type == "BitwiseOr":
        joined = b.Max(left, right)
    else:
        joined = b.Abs(left - right)
    return b.Cast(_number(b, joined, first.dtype.bitwidth), to=first.dtype)


def _number(b: Builder, bits: Value, width: int) -> Value:
    """Return the number with these bits, the lowest first; the halves of a 64-bit number are summed
    separately, because engines accumulate in doubles.
    """
    if width < 64:
        return b.ReduceSum(bits * (np.int64(1) << arange(width)), [-1], keepdims=0)
    half = np.int64(1) << arange(32)
    low = b.ReduceSum(bits[..., :32] * half, [-1], keepdims=0)
    top = np.where(arange(32) == 31, -half, half)  # the top bit is the sign
    high = b.ReduceSum(bits[..., 32:64] * top, [-1], keepdims=0)
    return low + high * (1 << 32)


def _bits(b: Builder, x: Value) -> Value:
    assert x.dtype is not None
    word = b.Cast(x[..., None], to=int(_UNSIGNED.get(x.dtype, x.dtype)))
    word = b.Cast(word, to=_T.UINT64)
    shifted = b.BitShift(word, arange(x.dtype.bitwidth, dtype=np.uint64), direction="RIGHT")
    return b.Cast(shifted % np.array(2, np.uint64), to=_T.INT64)


BITS: dict[str, Any] = {
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
}


def by_digits(node: ir.Node, b: Builder, count: int = 8, largest: int = 1 << 31) -> Value | None:
    """Look up four bits of both operands at a time in a table, for targets whose integers have at
    most `4 * count` bits.

    The entries are already shifted to their position; the uppermost four bits are signed. Entries
    with a magnitude above `largest` are 0, because no result of the target can have them.
    """
    x, y = x_of(node), x_of(node, 1)
    if x.dtype not in (_T.INT32, _T.INT64) or any(_longer(constant(v), 4 * count) for v in (x, y)):
        return None
    total = None
    digits_of_both = list(zip(_digits(b, x, count), _digits(b, y, count), strict=True))
    for i, (first, second) in reversed(
        list(enumerate(digits_of_both))
    ):  # from the top: small negative numbers are sums that begin with large ones
        lowest = -8 if i == count - 1 else 0
        digits = np.arange(lowest, lowest + 16, dtype=np.int64)
        table = BITS[node.op_type](digits[:, None], digits[None, :]) * 16**i
        table[np.abs(table) > largest] = 0
        index = first * 16 + second
        index = index + -17 * lowest if lowest else index
        part = b.Gather(table.reshape(-1).astype(x.dtype.numpy()), index, axis=0)
        total = part if total is None else total + part
    return total


def _longer(numbers: Array | None, bits: int) -> bool:
    """Return whether a number needs more bits, including the sign."""
    most = 1 << (bits - 1)
    return numbers is not None and bool(np.any((numbers < -most) | (numbers >= most)))


def _digits(b: Builder, x: Value, count: int) -> list[Value]:
    """Return the digits, the lowest first; the last one includes the sign."""
    found, array, sixteen = [], constant(x), b.like(x, 16)
    for _ in range(count - 1):
        rest = b.FloorDiv(x, sixteen) if array is None else b.const(array // 16)
        found.append(x - rest * sixteen if array is None else b.const(array % 16))
        x, array = rest, None if array is None else array // 16
    return [*found, x]


def bitwise_not(node: ir.Node, b: Builder) -> Value | None:
    """Compute -1 - x, or the largest number minus x if unsigned."""
    x = x_of(node)
    if x.dtype is None or x.dtype.bitwidth < 8:
        return None
    return (-1 if x.dtype.is_signed() else int(np.iinfo(x.dtype.numpy()).max)) - x


def shifted(node: ir.Node, b: Builder) -> Value | None:
    """Shift unsigned integers by dividing or multiplying by powers of two.

    Shifting left first removes the bits that leave the number, so that no product overflows. A
    number shifted by its width or more is 0.
    """
    x, amount, left = x_of(node), x_of(node, 1), attrs_of(node).get("direction") == "LEFT"
    if x.dtype is None or x.dtype not in _UNSIGNED.values():
        return None
    width, count = x.dtype.bitwidth, constant(amount)
    index = b.Cast(b.Min(amount, b.like(amount, width)), to=_T.INT64) if count is None else None

    def power_of_two(exponents: Array) -> Value:
        """Return 2^exponents[amount]."""
        powers = (np.uint64(1) << exponents.astype(np.uint64)).astype(array_type(x))
        if count is not None:
            return b.const(np.asarray(powers[np.minimum(count, width).astype(np.int64)]), "powers")
        return b.Gather(powers, index, axis=0)

    power = power_of_two(arange(width + 1) % width)
    if left:
        kept = x % power_of_two(np.minimum(width - arange(width + 1), width - 1))
        y = b.Where(b.Equal(amount, b.like(amount, 0)), x, kept) * power
    else:
        y = x / power
    if count is not None and (count < width).all():
        return y
    return b.Where(b.Less(amount, b.like(amount, width)), y, b.like(x, 0))


TABLE: Table = {
    ("", "BitwiseAnd"): bitwise,
    ("", "BitwiseOr"): bitwise,
    ("", "BitwiseXor"): bitwise,
    ("", "BitwiseNot"): bitwise_not,
    ("", "BitShift"): shifted,
}
