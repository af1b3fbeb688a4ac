"""Where a damaged Core ML file is damaged, as a protobuf path; called only when an error is
certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from converter.formats.coreml_wire import LEN, Field, WireError, fields


def path_at(data: memoryview, descriptor: Any, offset: int) -> str:
    """The path of the innermost message of type `descriptor` around byte `offset`, such as
    `neuralNetwork.layers[3].convolution`.
    """
    steps: list[str] = []
    start, end = 0, len(data)
    while descriptor is not None:
        inside = (
            (step, kind, field)
            for step, kind, field in _members(data, descriptor, start, end)
            if field.start <= offset < field.end
        )
        step, descriptor, field = next(inside, ("", None, None))
        if field is not None:
            steps.append(step)
            start, end = field.start, field.end
    return ".".join(steps)


def undecodable(data: memoryview, descriptor: Any) -> str:
    """The path of the innermost message or string that protobuf cannot decode; "" when that is the
    whole.
    """
    steps: list[str] = []
    start, end = 0, len(data)
    while descriptor is not None:
        bad = (
            (step, kind, field)
            for step, kind, field in _members(data, descriptor, start, end)
            if not _decodes(data, kind, field)
        )
        step, descriptor, field = next(bad, ("", None, None))
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
    """The messages and strings in a message, as far as it can be walked: name (with index),
    descriptor (None for a string) and place.
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
