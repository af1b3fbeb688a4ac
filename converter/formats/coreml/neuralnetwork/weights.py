"""Weights outside the message: `WeightParams` payloads as slices of the mapped file, or as arrays
that are made while they are written.

A payload that was taken out leaves a reference in its WeightParams: an extra field with the highest
number protobuf allows, holding a key that is random per process, the number of the model and an
index. Protobuf carries unknown fields through copies and merges of messages, so the reference moves
with its message; no file can hold the key. Source: NeuralNetwork.proto, message WeightParams.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from converter.graph.lazy_tensor import LazyTensor
from converter.io.protobuf import (
    FIXED32,
    LEN,
    Piece,
    WireError,
    encode_tag,
    encode_varint,
    read_field,
)
from converter.record import record

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Kind = Literal["float32", "float16", "quantised", "int8"]

# field of WeightParams -> kind of its content; they precede all other fields
PAYLOADS: dict[int, Kind] = {1: "float32", 2: "float16", 30: "quantised", 31: "int8"}
FIELDS: dict[Kind, int] = {kind: number for number, kind in PAYLOADS.items()}
DTYPES: dict[Kind, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "quantised": np.dtype("u1"),
    "int8": np.dtype("i1"),
}

REFERENCE = (1 << 29) - 1
KEY = os.urandom(12)
# payload chunks below this size are copied together instead of being kept one by one
_SMALL_CHUNK = 4096


def _no_floats() -> npt.NDArray[np.float32]:
    return np.empty(0, np.float32)


@record
class WeightData:
    """The content of one WeightParams.

    `kind` is the encoding of the bytes: "float32" and "float16" little-endian numbers, "int8"
    signed bytes (weights of dynamically quantized layers), "quantized" a stream of `bits`-wide
    (1..8) unsigned numbers, most significant bit first, elements straddling bytes. Quantized values
    q represent q * scale + bias (linear: `scale` set, `bias` possibly empty) or for lut[q] (2**bits
    entries).
    """

    kind: Kind
    weight: LazyTensor
    bits: int = 0
    scale: npt.NDArray[np.float32] = field(default_factory=_no_floats)
    bias: npt.NDArray[np.float32] = field(default_factory=_no_floats)
    lut: npt.NDArray[np.float32] = field(default_factory=_no_floats)

    @classmethod
    def of(cls, array: Array) -> WeightData:
        """Plain weights: a float32 or float16 array of any shape, stored row-major."""
        kinds: dict[np.dtype[Any], Kind] = {
            DTYPES["float32"]: "float32",
            DTYPES["float16"]: "float16",
        }
        return cls(kinds[array.dtype], LazyTensor(array))

    @classmethod
    def lazy(
        cls, kind: Literal["float32", "float16"], count: int, make: Callable[[], Array]
    ) -> WeightData:
        """Plain weights of `count` elements that `make` computes while the file is written (in the
        dtype of `kind`, row-major).
        """
        return cls(kind, LazyTensor(make, ir.DataType.from_numpy(DTYPES[kind]), [count]))

    @property
    def count(self) -> int:
        """Return the number of elements. For "quantized" the most that fit: the last byte may be
        padded.
        """
        return (
            self.weight.nbytes * 8 // self.bits
            if self.kind == "quantised"
            else self.weight.nbytes // DTYPES[self.kind].itemsize
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.array(), dtype)

    def array(self) -> Array:
        """Return the flat content in its stored type (the packed bytes for "quantized"). A view of
        the file, read-only and perhaps unaligned, where possible.
        """
        return self.weight.bytes().view(DTYPES[self.kind])


@record
class WeightParts:
    """A parsed WeightParams message: payloads by field number, references (model, index), and
    slices of everything else.
    """

    payloads: dict[int, LazyTensor] = field(default_factory=dict)
    references: list[tuple[int, int]] = field(default_factory=list)
    rest: list[memoryview] = field(default_factory=list)


def take_apart(data: memoryview, start: int, end: int) -> WeightParts:
    """Parse the WeightParams in `data[start:end]`, without copying payloads. As in protobuf, packed
    and unpacked pieces of `floatValue` are one list, and of several values of a bytes field the
    last one counts.
    """
    parts, floats = WeightParts(), _Floats(np.frombuffer(data, np.uint8))
    copied = at = start
    while at < end:
        this = read_field(data, at, end)
        after = this.end
        if this.number == 1 and this.wire in (LEN, FIXED32):
            if (this.end - this.start) % 4:
                raise WireError(
                    this.tag, f"{this.end - this.start} bytes cannot be split into floats", 1
                )
            after = floats.add(this.tag, this.start, this.end, end)
        elif this.number in PAYLOADS and this.wire == LEN:
            parts.payloads[this.number] = LazyTensor(floats.data[this.start : this.end])
        elif (
            this.number == REFERENCE
            and this.wire == LEN
            and data[this.start : this.end][:-8] == KEY
        ):
            parts.references.append(struct.unpack("<II", data[this.end - 8 : this.end]))
        else:
            at = this.end
            continue
        if this.tag > copied:
            parts.rest.append(data[copied : this.tag])
        copied = at = after
    if end > copied:
        parts.rest.append(data[copied:end])
    if weight := floats.weight():
        parts.payloads[1] = weight
    return parts


class _Floats:
    """Collects the pieces of a repeated float field."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self._pieces: list[Bytes] = []
        self._small = bytearray()

    def add(self, tag: int, start: int, end: int, stop: int) -> int:
        """Add the piece with value `start..end`, and all directly following ones with the same tag
        and length; return the offset after them.
        """
        repeats, stride = self._repeats(tag, start, end, stop), end - tag
        after = tag + repeats * stride
        piece = self.data[tag:after].reshape(repeats, stride)[:, start - tag :]
        if piece.size < _SMALL_CHUNK:
            self._small += piece.tobytes()
        else:
            self._flush()
            self._pieces.append(piece)
        return after

    def _repeats(self, tag: int, start: int, end: int, stop: int) -> int:
        """Return the number of times the bytes `tag..start` repeat every `end - tag` bytes:
        unpacked floats are millions of five-byte fields.
        """
        header, stride = self.data[tag:start], end - tag
        if self.data[end : end + header.size].tobytes() != header.tobytes():
            return 1
        count, block = 1, 4
        while rows := min(block, (stop - tag) // stride - count):
            at = tag + count * stride
            same = (
                self.data[at : at + rows * stride].reshape(rows, stride)[:, : header.size] == header
            ).all(axis=1)
            if not same.all():
                return count + int(same.argmin())
            count, block = count + rows, min(block * 4, 1 << 18)
        return count

    def _flush(self) -> None:
        if self._small:
            self._pieces.append(np.frombuffer(bytes(self._small), np.uint8))
            self._small.clear()

    def weight(self) -> LazyTensor | None:
        """Return all pieces as one; None if there were none. Several pieces are only joined on
        request.
        """
        self._flush()
        pieces = self._pieces
        if not pieces:
            return None
        size = sum(piece.size for piece in pieces)
        if len(pieces) == 1:
            return LazyTensor(pieces[0])
        return LazyTensor(
            lambda: np.concatenate([piece.reshape(-1) for piece in pieces]),
            ir.DataType.UINT8,
            [size],
        )


def reference(model: int, index: int) -> bytes:
    """Return the field that refers to the payloads `index` of model number `model`."""
    return (
        encode_tag(REFERENCE, LEN)
        + encode_varint(len(KEY) + 8)
        + KEY
        + struct.pack("<II", model, index)
    )


def headed(payloads: dict[int, LazyTensor]) -> Iterator[Piece]:
    """Yield the payloads as fields of a WeightParams, each after its tag and length."""
    for number, weight in sorted(payloads.items()):
        yield memoryview(encode_tag(number, LEN) + encode_varint(weight.nbytes))
        yield weight
