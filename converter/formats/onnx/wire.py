"""Large tensor data is cut out of a ModelProto before protobuf parses it.

A tensor's bytes are replaced by an `external_data` entry that says where in the file they lie, so
protobuf parses a few kilobytes and the weights stay in the mapped file. A file that does not follow
the wire format is handed to protobuf as it is, whose error explains why.
"""

from __future__ import annotations

import re

import numpy as np
import onnx

from converter.io.protobuf import (
    LEN,
    Piece,
    Rewrite,
    Route,
    WireError,
    buffers,
    encode_tag,
    encode_varint,
    fields,
)

SPAN, FLOATS = "netconv.span", "netconv.floats"  # keys of the entry: raw_data, packed float_data
THRESHOLD = 1024  # bytes from which a field is worth cutting out

_TO_TENSORS = Route(onnx.ModelProto.DESCRIPTOR, onnx.TensorProto.DESCRIPTOR)
_DATA = {4: FLOATS, 9: SPAN}  # of TensorProto
# an entry {key: "location", value: path} of external_data; each string is preceded by its length
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x00-\x7f]|[\x80-\xff][\x00-\x7f])")


def header(field: int, size: int) -> bytes:
    """Return the bytes before a length-delimited field."""
    return encode_tag(field, LEN) + encode_varint(size)


def skeleton(data: np.ndarray) -> bytes:
    """Return the file without the contents of large tensors; the file itself when it is
    malformed.
    """
    view = data.data if data.size else memoryview(b"")

    def cut_out(start: int, end: int) -> list[Piece]:
        return _tensor(view, start, end)

    splice = Rewrite(view, lambda start, end: end - start >= THRESHOLD, cut_out)
    try:
        return b"".join(buffers(splice.pieces(_TO_TENSORS, 0, len(view))))
    except WireError:
        return bytes(view)


def locations(data: np.ndarray) -> set[str]:
    """Return the side files that the tensors of a file name."""
    found, content = set(), skeleton(data)
    for match in _LOCATION.finditer(content):
        length = sum((b & 0x7F) << 7 * i for i, b in enumerate(match[1]))
        text = content[match.end() : match.end() + length]
        if b"\0" not in text:
            found.add(text.decode("utf-8", "replace"))
    return found


def _tensor(view: memoryview, start: int, end: int) -> list[Piece]:
    chunks: list[Piece] = []
    kept, cut = start, {}
    for field in fields(view, start, end):
        if field.number not in _DATA:
            continue
        if field.wire != LEN or field.number in cut:
            return [view[start:end]]  # unpacked or repeated: protobuf can join them
        if field.end - field.start >= THRESHOLD:
            chunks.append(view[kept : field.tag])
            cut[field.number], kept = field, field.end
    if len(cut) != 1:
        return [view[start:end]]
    ((number, field),) = cut.items()
    note = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    note.external_data.add(key=_DATA[number], value=f"{field.start}:{field.end - field.start}")
    return [*chunks, view[kept:end], memoryview(note.SerializeToString())]
