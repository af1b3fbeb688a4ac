"""Element types that the shared graph does not have: their bytes in the .bin <-> numbers of a type
that it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

import numpy as np
import onnx_ir as ir

from converter.graph.catalogue.bits import NF4
from converter.graph.infer import Array
from converter.graph.lazy_tensor import LazyTensor
from converter.passes.constants import unpack

Unpack = Callable[[Array], Array]
F4E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def _fields(raw: Array, bits: int, first_low: bool) -> Array:
    """Return the parts of `bits` bits of each byte, from the low end or the high end on."""
    fields = (raw[:, None] >> _shifts(bits, first_low)) & ((1 << bits) - 1)
    return fields.astype(np.uint8).reshape(-1)


def _packed(fields: Array, bits: int, first_low: bool) -> Array:
    """Return the bytes of which these are the parts."""
    shifted = fields.reshape(-1, 8 // bits) << _shifts(bits, first_low)
    return np.asarray(np.bitwise_or.reduce(shifted, axis=1), np.uint8)


def _shifts(bits: int, first_low: bool) -> Array:
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return shifts if first_low else shifts[::-1]


def _split(bits: int) -> Unpack:
    """Pack elements of 3 or 6 bits: three bytes contain the low parts of their elements, then the
    high parts.
    """
    high = bits // 3
    low = bits - high

    def unpack(raw: Array) -> Array:
        groups = raw.reshape(-1, 3)
        upper = _fields(groups[:, 2].copy(), high, False) << low
        return np.asarray(_fields(groups[:, :2].reshape(-1), low, False) | upper, np.uint8)

    return unpack


def _looked_up(table: Array, raw: Array) -> Array:
    return np.asarray(table[_fields(raw, 4, True)])


def _exponents(raw: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.where(raw == 255, np.nan, np.exp2(raw.astype(np.float64) - 127)).astype(
            np.float32
        )


# 4-bit element types that are indices into a table, the first one in the low half of a byte
TABLES = {"nf4": NF4, "f4e2m1": F4E2M1}

U8, F32 = ir.DataType.UINT8, ir.DataType.FLOAT
# element type -> (type of the numbers, how to unpack all of them)
CODES: dict[str, tuple[ir.DataType, Unpack]] = {
    "u1": (U8, lambda raw: _fields(raw, 1, False)),
    "u2": (U8, lambda raw: _fields(raw, 2, True)),
    "u3": (U8, _split(3)),
    "u6": (U8, _split(6)),
    **{name: (F32, partial(_looked_up, table)) for name, table in TABLES.items()},
    "f8e8m0": (F32, _exponents),
}


AS_STORED = "openvino.stored"  # in the meta of a value: its reader wants the stored type itself


def coded(element: str, raw: Array, shape: Sequence[int], name: str) -> LazyTensor:
    """Return numbers that are stored in one of the `CODES` and unpacked when they are used."""
    dtype, unpack = CODES[element]
    return LazyTensor(raw, dtype, shape, name, element=element, decode=unpack)


def code_of(tensor: ir.TensorProtocol | None) -> str:
    """Return the element type of `CODES` in which a constant is stored; "" for all others."""
    return tensor.element if isinstance(tensor, LazyTensor) and tensor.element in CODES else ""


def bits(values: Array, name: str, order: Literal["big", "little"] = "big") -> LazyTensor:
    """Pack zeros and ones as u1, the first one in the highest ("big") or the lowest bit
    of a byte.
    """
    packed = np.packbits(values.reshape(-1).astype(np.uint8), bitorder=order)
    return coded("u1", packed, values.shape, name)


def with_lowest_first(tensor: LazyTensor) -> LazyTensor:
    """Return the numbers of a u1 constant, where the first one is the lowest bit of a byte."""
    raw, shape = tensor.stored(), tensor.shape.numpy()
    count = math.prod(shape)
    return LazyTensor(
        lambda: _fields(raw, 1, True)[:count].reshape(shape), U8, shape, str(tensor.name)
    )


def narrowest(tensor: LazyTensor) -> LazyTensor:
    """Return integers of 2 bits as u2, and 8-bit floats that are all numbers of 4 bits as f4e2m1:
    ONNX has no such types in the opset of the graph. Other tensors are unchanged.
    """
    if code_of(tensor) or not tensor.size:
        return tensor
    if tensor.dtype == ir.DataType.FLOAT8E4M3FN:
        return _four_bits(tensor)
    if tensor.dtype not in (U8, ir.DataType.UINT4):
        return tensor
    raw, four = tensor.bytes(), tensor.dtype == ir.DataType.UINT4
    most = 0x33 if four else 3
    if (raw[:4096] & ~np.uint8(most)).any() or (raw & ~np.uint8(most)).any():
        return tensor
    array = _fields(raw, 4, True)[: tensor.size] if four else raw
    packed = _packed(np.pad(array, (0, -array.size % 4)), 2, True)
    return coded("u2", packed, tensor.shape.numpy(), str(tensor.name))


def _four_bits(tensor: LazyTensor) -> LazyTensor:
    """Return 8-bit floats (E4M3) as f4e2m1 if it has all of the numbers."""
    raw, codes = tensor.bytes(), _CODES_OF_BYTES
    if (codes[raw[:4096]] > 15).any() or (codes[raw] > 15).any():
        return tensor
    found = codes[raw]
    packed = _packed(np.pad(found, (0, found.size % 2)), 4, True)
    return coded("f4e2m1", packed, tensor.shape.numpy(), str(tensor.name))


def _codes_of_bytes() -> Array:
    """Return the code of f4e2m1 for each byte of E4M3, 255 where it lacks the number."""
    table = np.full(256, 255, np.uint8)
    table[F4E2M1.astype(ir.DataType.FLOAT8E4M3FN.numpy()).view(np.uint8)] = np.arange(16)
    return table


_CODES_OF_BYTES = _codes_of_bytes()


def powers(tensor: LazyTensor) -> LazyTensor:
    """Return floats that are all powers of two as f8e8m0; other tensors unchanged."""
    if code_of(tensor) or tensor.dtype != F32 or not tensor.size:
        return tensor
    bits = tensor.bytes().view(np.uint32)
    exponents = bits >> 23
    if (bits & 0x007FFFFF).any() or not ((exponents > 0) & (exponents < 255)).all():
        return tensor  # a sign is a part of the exponent here
    return coded("f8e8m0", exponents.astype(np.uint8), tensor.shape.numpy(), str(tensor.name))


_FIRST_LOW = {
    1: False,
    2: True,
    4: True,
}  # bits -> whether the first number of a byte is in its low end


def repacked(stream: Array, bits: int, order: str, shape: list[int], name: str) -> LazyTensor:
    """Return a stream of numbers of 1 to 8 bits (order: msb or lsb first) as a constant of `shape`;
    unpacked when it is written.
    """
    count = math.prod(shape)

    if bits not in _FIRST_LOW:
        return LazyTensor(lambda: unpack(stream, bits, order)[:count], U8, shape, name)
    raw = stream[: -(-count * bits // 8)]
    if _FIRST_LOW[bits] == (order == "msb"):  # the numbers of each byte the other way round
        raw = _packed(_fields(raw, bits, order == "lsb"), bits, _FIRST_LOW[bits])
    if bits == 4:
        return LazyTensor(raw, ir.DataType.UINT4, shape, name)
    return coded(f"u{bits}", raw, shape, name)


def read_strings(raw: Array, shape: list[int]) -> ir.StringTensor:
    """Return strings from int32 numbers: their count, the begin of the first (0), the end of each;
    then all their bytes. Raise ValueError for inconsistent numbers.
    """
    count = int(np.prod(shape))
    head = raw[: 4 * (count + 2)].view(np.int32)
    text = raw[4 * (count + 2) :].tobytes()
    if (
        head.size != count + 2
        or head[0] != count
        or head[1]
        or np.any(np.diff(head[1:]) < 0)
        or head[-1] > len(text)
    ):
        raise ValueError("the offsets of the strings are invalid")
    return ir.StringTensor([text[a:z] for a, z in pairwise(head[1:])], shape=ir.Shape(shape))


def write_strings(tensor: ir.TensorProtocol) -> LazyTensor:
    """Return strings as the bytes of a Const: their number, their offsets, and their UTF-8 text."""
    texts = [v if isinstance(v, bytes) else str(v).encode() for v in tensor.numpy().reshape(-1)]
    ends = np.cumsum([0, *map(len, texts)])
    raw = np.array([len(texts), *ends], np.int32).tobytes() + b"".join(texts)
    return LazyTensor(np.frombuffer(raw, np.uint8))
