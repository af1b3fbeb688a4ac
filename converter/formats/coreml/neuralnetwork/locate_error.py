"""The location of the damage in a Core ML file, as a protobuf path; called only when an error is
certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from converter.io.protobuf import LEN, Field, WireError, fields


def path_at(data: memoryview, descriptor: Any, offset: int) -> str:
    """Return the path of the innermost message of type `descriptor` around byte `offset`, such as
    `neuralNetwork.layers[3].convolution`.
    """
    return _innermost(data, descriptor, lambda _, field: field.start <= offset < field.end)


def undecodable(data: memoryview, descriptor: Any) -> str:
    """Return the path of the innermost message or string that protobuf cannot decode; "" when that
    is the whole.
    """
    return _innermost(data, descriptor, lambda kind, field: not _decodes(data, kind, field))


def _innermost(data: memoryview, descriptor: Any, meant: Callable[[Any, Field], bool]) -> str:
    """Return the path to the first matching member, to the first of its members, and so on."""
    steps: list[str] = []
    start, end = 0, len(data)
    while descriptor is not None:
        found = (m for m in _members(data, descriptor, start, end) if meant(*m[1:]))
        step, descriptor, field = next(found, ("", None, None))
        if field is not None:
            steps.append(step)
            start, end = field.start, field.end
    return ".".join(steps)


def _decodes(data: memoryview, kind: Any, field: Field) -> bool:
    raw = bytes(data[field.start : field.end])
    try:
        _ = raw.decode() if kind is None else GetMessageClass(kind).FromString(raw)
    except (DecodeError, UnicodeDecodeError):
        return False
    return True


def _members(
    data: memoryview, descriptor: Any, start: int, end: int
) -> Iterator[tuple[str, Any, Field]]:
    """Yield the messages and strings in a message, as far as it can be parsed: name (with index),
    descriptor (None for a string) and byte range.
    """
    seen: dict[int, int] = {}
    try:
        for field in fields(data, start, end):
            known = descriptor.fields_by_number.get(field.number)
            if (
                known is None
                or field.wire != LEN
                or known.type not in (known.TYPE_MESSAGE, known.TYPE_STRING)
            ):
                continue
            index = seen[field.number] = seen.get(field.number, -1) + 1
            repeated = known.message_type is not None and not known.has_presence
            yield f"{known.name}[{index}]" if repeated else known.name, known.message_type, field
    except WireError:
        return
