"""Just enough of protobuf's wire format to cut large tensor data out of a ModelProto before parsing
it.

A tensor's bytes are replaced by an `external_data` entry that says where in the file they lie, so
protobuf parses a few kilobytes and the weights stay in the mapped file. A file that does not follow
the wire format is handed to protobuf as it is, whose error then tells.
"""

from __future__ import annotations

import re

import numpy as np
import onnx

SPAN, FLOATS = "netconv.span", "netconv.floats"  # keys of the entry: raw_data, packed float_data
THRESHOLD = 1024  # bytes from which a field is worth cutting out
_DEPTH = 50

# message -> {field number: message of the field}; onnx.proto
_INTO: dict[str, dict[int, str]] = {
    "Model": {7: "Graph", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor"},
    "Function": {7: "Node"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph"},
}
_DATA = {4: FLOATS, 9: SPAN}  # of TensorProto
# an entry {key: "location", value: path} of external_data; each string is preceded by its length
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x00-\x7f]|[\x80-\xff][\x00-\x7f])")
Chunks = list[bytes | memoryview]


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def header(field: int, size: int) -> bytes:
    """The bytes before a length-delimited field."""
    return varint(field << 3 | 2) + varint(size)


class _Malformed(Exception):
    pass


def skeleton(data: np.ndarray) -> bytes:
    """The file without the contents of large tensors; the file itself when there are none or it is
    malformed.
    """
    view = data.data if data.size else memoryview(b"")
    try:
        chunks = _message(view, 0, len(view), "Model", 0)
    except _Malformed:
        chunks = None
    return b"".join(chunks) if chunks is not None else bytes(view)


def locations(data: np.ndarray) -> set[str]:
    """The side files that the tensors of a file name."""
    found, content = set(), skeleton(data)
    for match in _LOCATION.finditer(content):
        length = sum((b & 0x7F) << 7 * i for i, b in enumerate(match[1]))
        text = content[match.end() : match.end() + length]
        if b"\0" not in text:
            found.add(text.decode("utf-8", "replace"))
    return found


def _number(view: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = view[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise _Malformed


def _message(view: memoryview, start: int, end: int, kind: str, depth: int) -> Chunks | None:
    """The message's bytes with large data cut out; None when nothing was."""
    if depth > _DEPTH:
        raise _Malformed
    if kind == "Tensor":
        return _tensor(view, start, end)
    into, chunks, kept, at = _INTO[kind], [], start, start
    while at < end:
        begin = at
        tag, at = _number(view, at, end)
        at, size = _skip(view, at, end, tag & 7)
        if size < THRESHOLD or tag & 7 != 2 or tag >> 3 not in into:
            continue
        inner = _message(view, at - size, at, into[tag >> 3], depth + 1)
        if inner is not None:
            chunks += [view[kept:begin], header(tag >> 3, sum(len(c) for c in inner)), *inner]
            kept = at
    return [*chunks, view[kept:end]] if chunks else None


def _tensor(view: memoryview, start: int, end: int) -> Chunks | None:
    chunks: Chunks = []
    kept = at = start
    cut: dict[int, tuple[int, int]] = {}
    while at < end:
        begin = at
        tag, at = _number(view, at, end)
        at, size = _skip(view, at, end, tag & 7)
        if tag >> 3 in _DATA and (tag & 7 != 2 or tag >> 3 in cut):
            return None  # unpacked or repeated: protobuf knows how to join them
        if tag >> 3 in _DATA and size >= THRESHOLD:
            chunks.append(view[kept:begin])
            cut[tag >> 3], kept = (at - size, size), at
    if len(cut) != 1:
        return None
    (field, (offset, size)) = cut.popitem()
    note = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    note.external_data.add(key=_DATA[field], value=f"{offset}:{size}")
    return [*chunks, view[kept:end], note.SerializeToString()]


def _skip(view: memoryview, at: int, end: int, wire: int) -> tuple[int, int]:
    """Behind the field, and the size of its contents."""
    if wire == 0:
        _, after = _number(view, at, end)
        return after, after - at
    if wire == 2:
        size, at = _number(view, at, end)
    elif wire in (1, 5):
        size = 8 if wire == 1 else 4
    else:
        raise _Malformed
    if at + size > end:
        raise _Malformed
    return at + size, size
