"""Numbers of less than a byte, as Apple's formats store them: in a stream of bits, the first number
in the lowest bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from converter.graph.infer import Array
from converter.graph.lazy_tensor import LazyTensor

_PIECE = 1 << 20  # numbers that are packed at once, a multiple of 8


def unpacked(data: Array, bits: int) -> Array:
    """Return the numbers of a given bit width in a stream of bits, as bytes; an incomplete last one
    is left out.
    """
    flat = data.reshape(-1).view(np.uint8)
    width, count = bits // math.gcd(bits, 8), 8 // math.gcd(bits, 8)  # bytes of complete numbers
    groups = np.concatenate([flat, np.zeros(-len(flat) % width, np.uint8)]).reshape(-1, width)
    found = np.empty((len(groups), count), np.uint8)
    mask = (1 << bits) - 1
    for i in range(count):
        first, shift = divmod(i * bits, 8)
        numbers = groups[:, first] >> shift
        if shift + bits > 8:
            numbers = numbers | groups[:, first + 1] << (8 - shift)
        found[:, i] = numbers & mask
    return found.reshape(-1)[: len(flat) * 8 // bits]


@dataclass(frozen=True)
class Packed:
    """The conversion of bytes to a stream of numbers of a given bit width, for
    `LazyTensor.derived`.
    """

    bits: int

    def __call__(self, array: Array) -> Array:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        made = np.empty(-(-flat.size * self.bits // 8), np.uint8)
        for start in range(0, flat.size, _PIECE):
            piece = flat[start : start + _PIECE, None]
            single = np.unpackbits(piece, axis=1, count=self.bits, bitorder="little")
            packed = np.packbits(single.reshape(-1), bitorder="little")
            first = start * self.bits // 8
            made[first : first + packed.size] = packed
        return made


def packed_tensor(data: Array, bits: int, dtype: ir.DataType, sizes: Sequence[int]) -> LazyTensor:
    """Return numbers without copying them: 2-bit and 4-bit numbers are packed as in ONNX, others
    are unpacked when they are needed.
    """
    if dtype.bitwidth == bits:
        return LazyTensor(data, dtype, sizes)
    count = math.prod(sizes)

    def numbers() -> Array:
        found = unpacked(data, bits)[:count].reshape(sizes)
        if not dtype.is_signed():
            return found
        half = np.int8(1 << bits - 1)
        return (found.astype(np.int8) ^ half) - half

    return LazyTensor(numbers, dtype, sizes)
