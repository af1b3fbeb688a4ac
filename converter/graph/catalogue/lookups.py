"""Extension operators that look up rows by key or by hash."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.extensions import SOME, extension
from converter.graph.infer import known, rank_of, shape_of
from converter.graph.sizes import arange
from converter.graph.value import BOOL, INT32

_F64 = ir.DataType.DOUBLE
_K2 = 0x9AE16A3B2F90404F


@extension
def HashtableLookup(b: Builder, lookups: Value, keys: Value, values: Value) -> tuple[Value, Value]:
    """Rows of `values` whose key equals the lookup; zeros if there is none.

    The second output is 1 for a hit, 0 for a miss (uint8). lookups[k], keys[n] int32, ascending;
    values[n, ...] -> [k, ...] and uint8[k]. Source: NNAPI, HASHTABLE_LOOKUP.
    """
    equal = b.Equal(lookups[:, None], keys[None])
    found = b.Cast(equal, to=INT32)
    hits = b.ReduceMax(found, [1], keepdims=0)
    rows = b.Gather(values, b.ArgMax(found, axis=1, keepdims=0), axis=0)
    hit = b.Reshape(b.Cast(hits, to=BOOL), [-1, *[1] * ((rank_of(values) or 1) - 1)])
    return b.Where(hit, rows, 0), b.Cast(hits, to=ir.DataType.UINT8)


@extension(seeds=2, x=SOME)
def LSHProjection(
    b: Builder, seeds: Value, x: Value, weight: Value | None = None, *, kind: int = 1
) -> Value:
    """Locality-sensitive hashes of the rows of `x` (int32), one per row of `seeds` [hashes, bits],
    as int32.

    A bit is 1 if the (weighted) sum of the rows' signed FarmHash fingerprints of seed and row is
    positive. `kind` 2 (dense): all bits; 1 and 3 (sparse): one number per hash, to which 3 adds its
    index shifted by the number of bits. x [n, ...]; weight [n], by default ones. Result [hashes *
    bits] for dense, [hashes] for sparse. Source: NNAPI, LSH_PROJECTION.
    """
    shape, hashes = shape_of(x), shape_of(seeds)
    if shape is None or hashes is None or x.dtype != INT32:
        raise MappingError("only hashes of int32 rows with static shapes are supported")
    width = int(np.prod(shape[1:]))
    if not 1 <= width <= 3:
        raise MappingError(f"rows must have 1 to 3 elements, got {width}")
    rows = b.Reshape(x, [1, shape[0], width])
    items = [_integer_bits(b, rows[:, :, i : i + 1]) for i in range(width)]
    seed = _float_bits(b, b.Reshape(seeds, [hashes[0] * hashes[1], 1, 1]))
    signed = _signed(b, _farmhash(b, [seed, *items]))
    if weight is not None:
        signed = signed * b.Reshape(b.Cast(weight, to=_F64), [1, shape[0]])
    score = b.ReduceSum(signed, [1], keepdims=0)
    bits = b.Cast(score > 0, to=INT32)
    if kind == 2:
        return bits
    powers = (1 << arange(hashes[1])[::-1]).astype(np.int32)
    signature = b.ReduceSum(b.Reshape(bits, list(hashes)) * powers, [1], keepdims=0)
    return signature + (arange(hashes[0]) << hashes[1]).astype(np.int32) if kind == 3 else signature


# 32-bit and 64-bit words are represented by a last axis of bits, int32 numbers 0 and 1, the lowest
# first. Many engines compute integers in 32 bits, and divide and compare them as floats: except for
# the first steps of _integer_bits, no number here exceeds 2^24.


def _int32(numbers: object) -> np.ndarray:
    return np.array(numbers, np.int32)


def _low_bits(b: Builder, x: Value, count: int) -> Value:
    """Return the lowest `count` bits of numbers >= 0 along their last axis, which has length 1."""
    return x / b.const(_int32(1 << arange(count))) % b.const(_int32(2))


def _integer_bits(b: Builder, x: Value) -> Value:
    """Return the 32 bits of int32 numbers whose last axis has length 1.

    If an engine rounds a quotient differently, the remainder is negative or exceeds the divisor,
    which the carry corrects.
    """
    half = b.const(_int32(1 << 16))
    high = x / half
    low = x - high * half + b.const(_int32(2 << 16))
    high = high + low / half + b.const(_int32((1 << 16) - 2))
    return b.Concat(_low_bits(b, low, 16), _low_bits(b, high, 16), axis=-1)


def _float_bits(b: Builder, x: Value) -> Value:
    """Return the 32 bits of finite float32 numbers whose last axis has length 1; subnormal ones
    become zeros.
    """
    array = known(x)
    if array is not None:
        words = array.astype(np.float32).view(np.uint32)
        return b.const((words >> arange(32).astype(np.uint32) & 1).astype(np.int32))
    size, powers = b.Abs(x), np.exp2(arange(1, 255) - 127).astype(np.float32)
    reached = b.Cast(size >= b.const(powers), to=INT32)
    exponent = b.ReduceSum(reached, [-1], keepdims=1)
    # magnitude / 2^exponent in two factors, each of them a normal number
    away = 127 - arange(255)
    for part in (away // 2, away - away // 2):
        factors = b.const(np.exp2(part).astype(np.float32))
        size = size * b.Gather(factors, exponent, axis=0)
    fraction = (size - 1) * (1 << 23)
    normal = exponent > b.const(_int32(0))
    fraction = b.Cast(b.Where(normal, fraction, 0), to=INT32)
    negative = b.Cast(x < 0, to=INT32)
    parts = [_low_bits(b, fraction, 23), _low_bits(b, exponent, 8), negative]
    return b.Concat(*parts, axis=-1)


def _sum_of_products(b: Builder, terms: list[tuple[Value, int]], plus: int = 0) -> Value:
    """Return the sum of 64-bit words, each times a constant, and a constant, modulo 2^64: its 8
    bytes, the lowest first.

    A word times a constant is the sum of shifted copies of the constant that the word's bits
    select, byte by byte.
    """
    total = b.const(_int32(list(plus.to_bytes(8, "little"))))
    for word, factor in terms:
        copies = [(factor << i) % 2**64 for i in range(64)]
        table = b.const(_int32([list(c.to_bytes(8, "little")) for c in copies]))
        chosen = word[..., None] * table
        total = b.ReduceSum(chosen, [-2], keepdims=0) + total
    found: list[Value] = []
    carry = None
    for i in range(8):
        column = total[..., i : i + 1]
        column = column if carry is None else column + carry
        carry = column / b.const(_int32(256))
        found.append(column - carry * b.const(_int32(256)))
    return b.Concat(*found, axis=-1)


def _farmhash(b: Builder, words: list[Value]) -> Value:
    """Return FarmHash's Fingerprint64 (farmhashna) of 8 to 16 bytes, given as 2 to 4 32-bit words,
    as 8 bytes.
    """

    def pair(low: Value, high: Value) -> Value:
        return b.Concat(*_same_sizes(b, low, high), axis=-1)

    def bits(bytes_: Value) -> Value:
        shape = [*(shape_of(bytes_) or ())[:-1], 64]
        return b.Reshape(_low_bits(b, bytes_[..., None], 8), shape)

    def rotate(v: Value, n: int) -> Value:
        """Rotate bits to the right."""
        return b.Concat(v[..., n:64], v[..., :n], axis=-1)

    def xor(v: Value, w: Value) -> Value:
        return b.Abs(v - w)

    def mixed(v: Value) -> Value:
        """Return v XOR (v shifted right by 47)."""
        low = v[..., : 64 - 47]
        shifted = v[..., 47:64]
        return b.Concat(xor(low, shifted), v[..., 64 - 47 : 64], axis=-1)

    mul = _K2 + 4 * len(words) * 2
    first = bits(_sum_of_products(b, [(pair(words[0], words[1]), 1)], _K2))
    last = pair(words[-2], words[-1])
    u = bits(_sum_of_products(b, [(rotate(last, 37), mul), (first, 1)]))
    v = bits(_sum_of_products(b, [(rotate(first, 25), mul), (last, mul)]))
    x = mixed(bits(_sum_of_products(b, [(xor(u, v), mul)])))
    y = mixed(bits(_sum_of_products(b, [(xor(v, x), mul)])))
    return _sum_of_products(b, [(y, mul)])


def _same_sizes(b: Builder, low: Value, high: Value) -> tuple[Value, Value]:
    """Expand seeds [n, 1, 32] and items [1, m, 32] to [n, m, 32]."""
    zeros = [v * b.const(_int32(0)) for v in (low, high)]
    return low + zeros[1], high + zeros[0]


def _signed(b: Builder, bytes_: Value) -> Value:
    """Return the signed 64-bit number of 8 bytes, as a double; engines with floats only preserve
    its sign and 24 bits.
    """
    top = bytes_[..., 7:8]
    sign = top / b.const(_int32(128)) * b.const(_int32(-256))
    lower = bytes_[..., :7]
    parts = b.Cast(b.Concat(lower, top + sign, axis=-1), to=_F64)
    scaled = parts * b.const(256.0 ** (arange(8) % 4))
    low, high = (b.ReduceSum(scaled[..., i : i + 4], [-1], keepdims=0) for i in (0, 4))
    return high * 2.0**32 + low
