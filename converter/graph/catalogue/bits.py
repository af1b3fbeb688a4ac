"""Packed numbers of 1 to 8 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.extensions import extension
from converter.graph.sizes import arange

# the sixteen quantiles of the normal distribution in QLoRA
NF4 = np.array(
    [
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    ],
    np.float32,
)
UINT8, UINT32 = int(ir.DataType.UINT8), int(ir.DataType.UINT32)


@extension
def UnpackBits(
    b: Builder, packed: Value, *, bits: int, shape: Sequence[int], order: str = "msb"
) -> Value:
    """Unpack uint8[n], a stream of unsigned numbers of `bits` bits, to uint8 of `shape`; numbers
    may straddle bytes, and the stream may end with padding.

    order "msb": the first number is in the most significant bits of the first byte; "lsb": in the
    least significant ones. Every 8 numbers occupy `bits` bytes. Within such a group each number
    occupies at most two adjacent bytes, which are gathered, combined into a word, shifted and
    masked.
    """
    if not 1 <= bits <= 8 or order not in ("msb", "lsb"):
        raise MappingError(f"UnpackBits with bits={bits}, order={order!r} is not supported", "R110")
    count = int(np.prod(shape, dtype=np.int64)) if len(shape) else 1
    groups = -(-count // 8)
    size = packed.shape[0] if packed.shape is not None and len(packed.shape) == 1 else None
    missing = groups * bits - size if isinstance(size, int) else 0
    if missing > 0:
        packed = b.Concat(packed, np.zeros(missing, np.uint8), axis=0)
    elif missing < 0:
        packed = packed[: groups * bits]
    grouped = b.Reshape(packed, [groups, bits])
    start = arange(8) * bits
    first, last = start // 8, (start + bits - 1) // 8
    left, right = (first, last) if order == "msb" else (last, first)
    high = b.Cast(b.Gather(grouped, left, axis=1), to=UINT32)
    low = b.Cast(b.Gather(grouped, right, axis=1), to=UINT32)
    word = high * b.const(np.array(256, np.uint32)) + low
    shift = np.where(first == last, 8, 16) - bits - start % 8 if order == "msb" else start % 8
    shifted = b.BitShift(word, shift.astype(np.uint32), direction="RIGHT")
    masked = b.BitwiseAnd(shifted, np.array((1 << bits) - 1, np.uint32))
    numbers = b.Reshape(b.Cast(masked, to=UINT8), [-1])[:count]
    return b.Reshape(numbers, [int(d) for d in shape])
