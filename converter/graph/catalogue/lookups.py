"""Extension operators that look rows up by key or by hash."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension
from converter.graph.infer import known, rank_of, shape_of
from converter.graph.sizes import arange
from converter.mapping.node import MappingError

_U64, _I64, _F64 = int(ir.DataType.UINT64), int(ir.DataType.INT64), int(ir.DataType.DOUBLE)
_K2 = 0x9AE16A3B2F90404F


@extension
def HashtableLookup(b: Builder, lookups: ir.Value, keys: ir.Value, values: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Rows of `values` whose key equals the lookup; a miss gives zeros. The second output says 1 for a hit, 0 for a miss (uint8)."""
    equal = b.op("Equal", b.op("Unsqueeze", lookups, [1]), b.op("Unsqueeze", keys, [0]))
    found = b.op("Cast", equal, to=int(ir.DataType.INT32))
    hits = b.op("ReduceMax", found, [1], keepdims=0)
    rows = b.op("Gather", values, b.op("ArgMax", found, axis=1, keepdims=0), axis=0)
    hit = b.op("Reshape", b.op("Cast", hits, to=int(ir.DataType.BOOL)), [-1, *[1] * ((rank_of(values) or 1) - 1)])
    return b.op("Where", hit, rows, b.like(values, 0)), b.op("Cast", hits, to=int(ir.DataType.UINT8))


@extension
def LSHProjection(b: Builder, seeds: ir.Value, x: ir.Value, weight: ir.Value | None = None, *, kind: int = 1) -> ir.Value:
    """Locality-sensitive hashes of the rows of `x` (int32), one for each row of `seeds` [hashes, bits], as int32.

    A bit is 1 when the (weighted) sum of the rows' signed FarmHash fingerprints of seed and row is positive. `kind` 2 (dense): all bits;
    1 and 3 (sparse): one number for each hash, with 3 plus its index shifted by the number of bits.
    """
    shape, hashes = shape_of(x), shape_of(seeds)
    if shape is None or hashes is None or x.dtype != ir.DataType.INT32:
        raise MappingError("hashes are known of int32 rows with static shapes")
    width = int(np.prod(shape[1:]))
    if not 1 <= width <= 3:
        raise MappingError(f"rows have {width} elements; 1 to 3 are possible")
    words = b.op("BitwiseAnd", b.op("Cast", b.op("Reshape", x, [1, shape[0], width]), to=_I64), b.const(np.array(0xFFFFFFFF)))
    items = [b.op("Cast", b.op("Slice", words, [i], [i + 1], [2]), to=_U64) for i in range(width)]
    seed = b.op("Reshape", _float_bits(b, seeds), [hashes[0] * hashes[1], 1, 1])
    signed = b.op("Cast", b.op("Cast", _farmhash(b, [seed, *items]), to=_I64), to=_F64)
    if weight is not None:
        signed = b.op("Mul", signed, b.op("Reshape", b.op("Cast", weight, to=_F64), [1, shape[0], 1]))
    score = b.op("ReduceSum", signed, [1, 2], keepdims=0)
    bits = b.op("Cast", b.op("Greater", score, b.like(score, 0)), to=int(ir.DataType.INT32))
    if kind == 2:
        return bits
    powers = (1 << arange(hashes[1])[::-1]).astype(np.int32)
    signature = b.op("ReduceSum", b.op("Mul", b.op("Reshape", bits, list(hashes)), powers), [1], keepdims=0)
    return b.op("Add", signature, (arange(hashes[0]) << hashes[1]).astype(np.int32)) if kind == 3 else signature


def _float_bits(b: Builder, x: ir.Value) -> ir.Value:
    """The bits of normal float32 numbers and zeros, as uint64."""
    array = known(x)
    if array is not None:
        return b.const(array.astype(np.float32).view(np.uint32).astype(np.uint64))
    wide = b.op("Cast", x, to=_F64)
    size, two = b.op("Abs", wide), b.like(wide, 2)
    zero = b.op("Equal", size, b.like(wide, 0))
    size = b.op("Where", zero, b.like(wide, 1), size)
    exponent = b.op("Floor", b.op("Div", b.op("Log", size), b.like(wide, float(np.log(2)))))
    for low in (True, False):  # the logarithm may be rounded across a power of two
        power = b.op("Pow", two, exponent)
        off = b.op("Less", size, power) if low else b.op("GreaterOrEqual", size, b.op("Mul", power, two))
        step = b.op("Cast", off, to=_F64)
        exponent = b.op("Sub" if low else "Add", exponent, step)
    mantissa = b.op("Mul", b.op("Div", size, b.op("Pow", two, exponent)), b.like(wide, 2.0**23))
    number = b.op("Add", b.op("Mul", b.op("Add", exponent, b.like(wide, 126)), b.like(wide, 2.0**23)), mantissa)
    number = b.op("Where", zero, b.like(wide, 0), number)
    sign = b.op("Mul", b.op("Cast", b.op("Less", wide, b.like(wide, 0)), to=_F64), b.like(wide, 2.0**31))
    return b.op("Cast", b.op("Cast", b.op("Add", number, sign), to=_I64), to=_U64)


def _farmhash(b: Builder, words: list[ir.Value]) -> ir.Value:
    """FarmHash's Fingerprint64 (farmhashna) of 8 to 16 bytes, given as 2 to 4 little-endian 32-bit words."""

    def c(n: int) -> ir.Value:
        return b.const(np.array(n & (2**64 - 1), np.uint64))

    def pair(low: ir.Value, high: ir.Value) -> ir.Value:
        return b.op("BitwiseOr", low, b.op("BitShift", high, c(32), direction="LEFT"))

    def rotate(v: ir.Value, n: int) -> ir.Value:
        return b.op("BitwiseOr", b.op("BitShift", v, c(n), direction="RIGHT"), b.op("BitShift", v, c(64 - n), direction="LEFT"))

    def mixed(v: ir.Value) -> ir.Value:
        return b.op("BitwiseXor", v, b.op("BitShift", v, c(47), direction="RIGHT"))

    mul = c(_K2 + 4 * len(words) * 2)
    first, last = b.op("Add", pair(words[0], words[1]), c(_K2)), pair(words[-2], words[-1])
    u = b.op("Add", b.op("Mul", rotate(last, 37), mul), first)
    v = b.op("Mul", b.op("Add", rotate(first, 25), last), mul)
    x = mixed(b.op("Mul", b.op("BitwiseXor", u, v), mul))
    y = mixed(b.op("Mul", b.op("BitwiseXor", v, x), mul))
    return b.op("Mul", y, mul)
