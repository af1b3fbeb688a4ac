"""Walk the protobuf wire format without decoding it: fields as byte ranges, and a rewrite of chosen
messages deep inside a file.

Source: protobuf's encoding document (tag = number * 8 + wire type, little-endian base-128 varints,
length-delimited nesting). Nothing here copies payloads or knows a format; descriptors decide which
messages are entered (`Route`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

VARINT, FIXED64, LEN, START_GROUP, END_GROUP, FIXED32 = range(6)
# protobuf rejects deeper nesting, and so do we: deeper messages are passed on unchanged
MAX_DEPTH = 100


class WireError(ValueError):
    """The bytes are not protobuf: `offset` is the start of the invalid field in the buffer, and
    `number` its field number (0: unknown).
    """

    def __init__(self, offset: int, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.offset, self.number = offset, number


class Field(NamedTuple):
    """One field: its number and wire type, the offset of its tag, and the byte range of its
    value.
    """

    number: int
    wire: int
    tag: int
    start: int
    end: int


class Deferred(Protocol):
    """A piece of an output whose length is known before its content; `bytes` returns any buffer."""

    @property
    def nbytes(self) -> int: ...

    def bytes(self) -> Any: ...


Piece = memoryview | Deferred


def buffers(pieces: list[Piece]) -> Iterator[memoryview]:
    """Yield the bytes of each piece."""
    for piece in pieces:
        yield piece if isinstance(piece, memoryview) else memoryview(piece.bytes())


def varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return the unsigned varint at `at` and the offset after it."""
    if (
        at < end and (first := data[at]) < 0x80
    ):  # the most frequent case, and a file may have millions
        return first, at + 1
    value = shift = 0
    for place in range(at, min(end, at + 10)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place + 1
        shift += 7
    raise WireError(
        at, "a number is not terminated" if end - at >= 10 else "the data ends within a number"
    )


def encode_varint(value: int) -> bytes:
    """Encode `value` >= 0 as a varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_tag(number: int, wire: int) -> bytes:
    """Return the tag of a field: its number and its wire type as a varint."""
    return encode_varint(number << 3 | wire)


def fields(data: memoryview, start: int = 0, end: int | None = None) -> Iterator[Field]:
    """Yield the fields of the message in `data[start:end]`, in file order. Raises WireError if it
    is malformed.
    """
    stop = len(data) if end is None else end
    while start < stop:
        field = read_field(data, start, stop)
        yield field
        start = field.end


def read_field(data: memoryview, at: int, stop: int) -> Field:
    """Return the field whose tag is at `at`, in a message that ends at `stop`."""
    key, value = varint(data, at, stop)
    number, wire = key >> 3, key & 7
    if not 0 < number < 1 << 29:
        raise WireError(at, f"{number} is not a field number")
    try:
        start, end = _extent(data, value, stop, number, wire)
    except WireError as e:
        raise WireError(at, str(e), number) from None
    return Field(number, wire, at, start, end)


def _extent(data: memoryview, at: int, stop: int, number: int, wire: int) -> tuple[int, int]:
    """Return the byte range of the value that follows a tag."""
    if wire == LEN:
        size, at = varint(data, at, stop)
    elif wire == VARINT:
        size = varint(data, at, stop)[1] - at
    elif wire == FIXED32:
        size = 4
    elif wire == FIXED64:
        size = 8
    elif wire == START_GROUP:
        size = _group_end(data, at, stop, number) - at
    else:
        raise WireError(at, f"field {number} has the impossible wire type {wire}", number)
    if size > stop - at:
        raise WireError(at, f"field {number} needs {size} bytes, but {stop - at} are left", number)
    return at, at + size


def _group_end(data: memoryview, at: int, stop: int, number: int) -> int:
    """Return the offset after the end tag of group `number`, whose first field is at `at` (groups
    are long deprecated, but legal unknown fields).
    """
    open_groups = [number]
    while open_groups:
        tag = at
        key, at = varint(data, at, stop)
        inner, wire = key >> 3, key & 7
        if wire == START_GROUP and len(open_groups) < MAX_DEPTH:
            open_groups.append(inner)
        elif wire == END_GROUP and inner == open_groups[-1]:
            open_groups.pop()
        elif wire in (START_GROUP, END_GROUP):
            raise WireError(tag, f"the groups around field {inner} are not nested", inner)
        else:
            _, at = _extent(data, at, stop, inner, wire)
    return at


class Route:
    """A message type on the way from a root to a target type, each a descriptor; `target` is set if
    it is the target itself. The fields of a type are looked up when a message of it is met: a
    schema has hundreds of types, a file few of them.
    """

    def __init__(self, root: Any, target: Any, known: dict[str, Route] | None = None) -> None:
        self._type, self._goal = root, target
        self._known = {} if known is None else known  # by the names of their types
        self.target = root.full_name == target.full_name

    @cached_property
    def onward(self) -> dict[int, Route]:
        """Return the routes of the fields that are messages, by their numbers."""
        inner = {f.number: f.message_type for f in self._type.fields if f.message_type}
        for each in inner.values():
            if each.full_name not in self._known:
                self._known[each.full_name] = Route(each, self._goal, self._known)
        return {number: self._known[each.full_name] for number, each in inner.items()}


@dataclass(eq=False, repr=False)
class Rewrite:
    """Copy a message by reference and replace the target messages within it.

    `enter(start, end)` returns whether the message in that byte range is to be entered;
    `replace(start, end)` returns the pieces that replace a target message. All other bytes, of
    known and unknown fields, pass through as slices of `data`.
    """

    data: memoryview
    enter: Callable[[int, int], bool]
    replace: Callable[[int, int], list[Piece]]

    def pieces(self, route: Route, start: int, end: int, depth: int = 0) -> list[Piece]:
        """Return the pieces that replace the message in `data[start:end]`."""
        if route.target:
            return self.replace(start, end)
        out: list[Piece] = []
        copied = start
        for field in fields(self.data, start, end):
            onward = route.onward.get(field.number)
            if (
                onward is None
                or field.wire != LEN
                or depth >= MAX_DEPTH
                or not self.enter(field.start, field.end)
            ):
                continue
            inner = self.pieces(onward, field.start, field.end, depth + 1)
            header = encode_tag(field.number, LEN) + encode_varint(
                sum(piece.nbytes for piece in inner)
            )
            out += [self.data[copied : field.tag], memoryview(header), *inner]
            copied = field.end
        return [*out, self.data[copied:end]]
