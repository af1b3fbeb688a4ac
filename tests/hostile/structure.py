"""Structured damage: one element of a model file changed to something the format can spell and no
one expects.

`changes(path)` lists every element of a file with every replacement; each is a description and a
function that gives the new bytes. The kinds of elements depend on the form: fields of a
protobuf message (ONNX, Core ML), attributes, texts and elements of XML, entries of `key=value`
lines (Zhouyi), values of JSON (NNAPI), words of a flat binary (the NNAPI blob, TensorFlow Lite).
"""

from __future__ import annotations

import copy
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from lxml import etree

Change = tuple[str, Callable[[], bytes]]
NUMBERS = (
    *(
        "0",
        "-1",
        "1",
        "2",
        "7",
        "65536",
        "100000000",
        "2147483647",
        "2147483648",
        "-2147483649",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
    ),
    *(
        "-9223372036854775808",
        "18446744073709551616",
        "1e999",
        "-1e999",
        "1e-999",
        "1e30",
        "nan",
        "-inf",
        "0.5",
        "1.5",
    ),
)
TEXTS = (
    *(
        "",
        " ",
        "x",
        "\u0661",
        "0x10",
        "1_000",
        "+1",
        "true",
        "null",
        "FLOAT",
        "i64",
        "string",
        "1,1",
        "0,0",
        "-1,-1",
        "65536,65536,65536",
        "1,2,3,4,5,6,7,8,9",
    ),
    *(
        "[1, 1]",
        "[[1, 2], [3]]",
        "[]",
        "[-1, 0]",
        "[65536, 65536, 65536]",
        "../../etc/passwd",
        "a" * 70_000,
        "1," * 20_000 + "1",
    ),
)
INTEGERS = tuple(int(n) for n in NUMBERS if re.fullmatch(r"-?\d+", n))
FLOATS = (0.0, -0.0, -1.0, 1e30, 3.4e38, 1e-40, math.nan, math.inf, -math.inf)


def changes(path: Path) -> list[Change]:
    """Every change of the file itself (not of its side files)."""
    return changes_of(path.read_bytes(), path.suffix)


def changes_of(data: bytes, suffix: str) -> list[Change]:
    if suffix == ".onnx":
        return list(_protobuf(onnx.ModelProto.FromString(data)))
    if suffix == ".mlmodel":
        from converter.formats.coreml.proto import Model_pb2

        return list(_protobuf(Model_pb2.Model.FromString(data)))
    if suffix == ".xml":
        return list(_xml(data))
    if suffix == ".txt":
        return list(_lines(data.decode()))
    if suffix == ".json":
        return list(_json(json.loads(data)))
    return list(_words(data))


def beside(data: bytes) -> list[Change]:
    """Changes of a side file: a possible integer of a shape, an axis, an index, and the first
    numbers of every kind.
    """
    found: list[Change] = []
    for size in (8, 4):
        for at in range(0, min(len(data), 40_000) - size + 1, size):
            if (
                at < 256
                or -64 <= int.from_bytes(data[at : at + size], "little", signed=True) <= 4096
            ):
                for new in (
                    0,
                    1,
                    -1,
                    2,
                    5,
                    1 << 16,
                    (1 << 31) - 1,
                    -(1 << 31),
                    *((1 << 40, (1 << 63) - 1, -(1 << 63)) if size == 8 else ()),
                ):
                    word = new.to_bytes(size, "little", signed=True)
                    found.append(
                        (
                            f"{size} bytes at {at} = {new}",
                            lambda at=at, word=word: data[:at] + word + data[at + len(word) :],
                        )
                    )
    return found


def sample(path: Path, count: int, seed: int) -> Iterator[Change]:
    """`count` of the changes, drawn without repetition as long as there are enough; some have a
    second one upon it.
    """
    found = changes(path)
    rng = random.Random(f"{path.name} {seed}")
    for i, (description, make) in enumerate(rng.sample(found, min(count, len(found)))):
        yield (
            (description, make) if i % 16 else _twice(description, make, path.suffix, rng.random())
        )


def _twice(description: str, make: Callable[[], bytes], suffix: str, which: float) -> Change:
    def both() -> bytes:
        data = make()
        if len(data) > 60_000:
            return data
        try:
            found = changes_of(data, suffix)
        except (DecodeError, ValueError):  # the first change made it unreadable to the tool as well
            return data
        return found[int(which * len(found))][1]() if found else data

    return f"{description}, and one more", both


# --- protobuf: an element is a field of a message, reached by a path of (field, index)

Place = tuple[tuple[str, int], ...]
_RANGE = {
    **dict.fromkeys(
        (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32),
        (-(1 << 31), 1 << 31),
    ),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), (0, 1 << 32)),
    **dict.fromkeys(
        (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64),
        (-(1 << 63), 1 << 63),
    ),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), (0, 1 << 64)),
    FieldDescriptor.TYPE_ENUM: (-(1 << 31), 1 << 31),
}


def _protobuf(root: Message) -> Iterator[Change]:
    texts = sorted({t for t in _texts(root) if len(t) < 200})
    for place, message in _messages(root, ()):
        for field in message.DESCRIPTOR.fields:
            yield from _field(root, place, message, field, texts)


def _messages(message: Message, place: Place) -> Iterator[tuple[Place, Message]]:
    yield place, message
    for field, value in message.ListFields():
        if field.type != FieldDescriptor.TYPE_MESSAGE or field.message_type.GetOptions().map_entry:
            continue
        for i, inner in enumerate(value if _many(field) else [value]):
            yield from _messages(inner, (*place, (field.name, i if _many(field) else -1)))


def _many(field: FieldDescriptor) -> bool:
    return (
        bool(field.is_repeated)
        if hasattr(field, "is_repeated")
        else field.label == FieldDescriptor.LABEL_REPEATED
    )


def _texts(root: Message) -> Iterator[str]:
    for _, message in _messages(root, ()):
        for field, value in message.ListFields():
            if field.type == FieldDescriptor.TYPE_STRING:
                yield from value if _many(field) else [value]


def _field(
    root: Message, place: Place, message: Message, field: FieldDescriptor, texts: list[str]
) -> Iterator[Change]:
    name = "/".join([f"{n}[{i}]" if i >= 0 else n for n, i in place] + [field.name])
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        if field.message_type.GetOptions().map_entry:
            return
        if not _many(field):
            yield (
                f"{name} empty",
                _edited(
                    root,
                    place,
                    lambda m: (m.ClearField(field.name), getattr(m, field.name).SetInParent()),
                ),
            )
            return
        for i in range(min(len(getattr(message, field.name)), 40)):
            yield (
                f"{name}[{i}] removed",
                _edited(root, place, lambda m, i=i: getattr(m, field.name).__delitem__(i)),
            )
            yield (
                f"{name}[{i}] twice",
                _edited(
                    root,
                    place,
                    lambda m, i=i: getattr(m, field.name).append(getattr(m, field.name)[i]),
                ),
            )
        yield f"{name} reversed", _edited(root, place, lambda m: getattr(m, field.name).reverse())
        return
    set_ = {f.name for f, _ in message.ListFields()}
    values = list(_values(field, texts))
    if _many(field):
        held = list(getattr(message, field.name))
        for new in [
            [],
            held[:-1],
            held + held[-1:],
            held[::-1],
            *([v] for v in values),
            *([*held[:i], v, *held[i + 1 :]] for i in range(min(len(held), 6)) for v in values),
        ]:
            if new != held:
                yield (
                    f"{name} = {str(new)[:80]}",
                    _edited(
                        root,
                        place,
                        lambda m, new=new: (
                            m.ClearField(field.name),
                            getattr(m, field.name).extend(new),
                        ),
                    ),
                )
        if held:
            yield (
                f"{name} long",
                _edited(root, place, lambda m: getattr(m, field.name).extend(held[:1] * 5_000)),
            )
    elif field.name in set_ or message.ByteSize() < 200:
        for v in values:
            yield (
                f"{name} = {str(v)[:60]!r}",
                _edited(root, place, lambda m, v=v: setattr(m, field.name, v)),
            )
        yield f"{name} absent", _edited(root, place, lambda m: m.ClearField(field.name))


def _values(field: FieldDescriptor, texts: list[str]) -> Iterator[Any]:
    if field.type == FieldDescriptor.TYPE_BOOL:
        yield from (True, False)
    elif field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        yield from FLOATS
    elif field.type == FieldDescriptor.TYPE_BYTES:
        yield from (b"", b"\0", b"\xff\xfe", b"x" * 5000)
    elif field.type == FieldDescriptor.TYPE_STRING:
        yield from (*texts[:30], "", "x", "\0", "../../x", "a" * 70_000)
    else:
        low, high = _RANGE[field.type]
        extra = (3, 4, 8, 16, 99) if field.type == FieldDescriptor.TYPE_ENUM else ()
        yield from (
            n
            for n in (*INTEGERS, *extra)
            if low <= n < high and (field.type != FieldDescriptor.TYPE_ENUM or _is_enum(field, n))
        )


def _is_enum(field: FieldDescriptor, number: int) -> bool:
    """proto2 does not let an unknown number be set."""
    return field.file.name.startswith("onnx") is False or number in field.enum_type.values_by_number


def _edited(root: Message, place: Place, edit: Callable[[Any], object]) -> Callable[[], bytes]:
    def make() -> bytes:
        new = copy.deepcopy(root)
        target: Any = new
        for name, index in place:
            target = getattr(target, name) if index < 0 else getattr(target, name)[index]
        edit(target)
        return new.SerializeToString()

    return make


# --- XML


def _xml(data: bytes) -> Iterator[Change]:
    root = etree.fromstring(data)
    seen: dict[str, set[str]] = {}
    for e in root.iter():
        for k, v in e.attrib.items():
            seen.setdefault(k, set()).add(v)
    for n, e in enumerate(root.iter(etree.Element)):
        place = f"<{e.tag}> number {n}"
        for k, v in e.attrib.items():
            others = sorted(seen[k] - {v})[:12]
            for new in (*others, *NUMBERS, *TEXTS, *_parts(v)):
                if new != v:
                    yield (
                        f"{place}: {k}={new[:60]!r}",
                        _edited_xml(data, n, lambda e, k=k, new=new: e.set(k, new)),
                    )
            yield f"{place}: without {k}", _edited_xml(data, n, lambda e, k=k: e.attrib.pop(k))
        if e.text and e.text.strip():
            for new in (*NUMBERS, *TEXTS):
                yield (
                    f"{place}: text {new[:60]!r}",
                    _edited_xml(data, n, lambda e, new=new: setattr(e, "text", new)),
                )
        if e.getparent() is not None:
            yield f"{place} removed", _edited_xml(data, n, lambda e: e.getparent().remove(e))
            yield f"{place} twice", _edited_xml(data, n, lambda e: e.addnext(copy.deepcopy(e)))
            yield f"{place} first", _edited_xml(data, n, lambda e: e.getparent().insert(0, e))
            yield (
                f"{place} within itself",
                _edited_xml(data, n, lambda e: e.append(copy.deepcopy(e))),
            )


def _parts(text: str) -> Iterator[str]:
    """A list with one entry changed, one less or one more."""
    parts = text.split(",")
    if len(parts) > 1:
        yield ",".join(parts[:-1])
        yield text + "," + parts[-1]
        for i in range(min(len(parts), 4)):
            yield from (",".join([*parts[:i], n, *parts[i + 1 :]]) for n in NUMBERS)


def _edited_xml(data: bytes, number: int, edit: Callable[[Any], object]) -> Callable[[], bytes]:
    def make() -> bytes:
        root = etree.fromstring(data)
        edit(next(e for n, e in enumerate(root.iter(etree.Element)) if n == number))
        return bytes(etree.tostring(root))

    return make


# --- lines of key=value


def _lines(text: str) -> Iterator[Change]:
    lines = text.split("\n")
    seen: dict[str, set[str]] = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if equals:
            seen.setdefault(key.strip(), set()).add(value)
    for n, line in enumerate(lines):
        key, equals, value = line.partition("=")
        if not equals:
            continue
        inner = [
            value[: m.start()] + new + value[m.end() :]
            for m in list(re.finditer(r"[^][,\s]+", value))[:5]
            for new in NUMBERS
        ]
        for new in (*sorted(seen[key.strip()] - {value})[:12], *NUMBERS, *TEXTS, *inner):
            if new != value:
                yield f"line {n + 1}: {key}={new[:60]!r}", _joined(lines, n, [f"{key}={new}"])
        yield f"line {n + 1} {key} removed", _joined(lines, n, [])
        yield f"line {n + 1} {key} twice", _joined(lines, n, [line, line])
        yield f"line {n + 1} {key} renamed", _joined(lines, n, [f"{key}x={value}"])


def _joined(lines: list[str], number: int, new: list[str]) -> Callable[[], bytes]:
    return lambda: "\n".join([*lines[:number], *new, *lines[number + 1 :]]).encode()


# --- JSON


def _json(root: Any) -> Iterator[Change]:
    for place, value in _nodes(root, ()):
        name = "/".join(map(str, place))
        for new in (
            *_siblings(root, place, value),
            None,
            True,
            "x",
            "",
            [],
            {},
            [[]],
            -1,
            0,
            1,
            2,
            1.5,
            *INTEGERS,
            math.nan,
            1e30,
            [1] * 5_000,
            [65536] * 4,
            [0, 0],
        ):
            yield f"{name} = {str(new)[:60]}", _edited_json(root, place, new)
        if place:
            yield f"{name} removed", _edited_json(root, place, _GONE)


_GONE = object()


def _nodes(value: Any, place: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield place, value
    for k, v in (
        value.items()
        if isinstance(value, dict)
        else list(enumerate(value))[:12]
        if isinstance(value, list)
        else ()
    ):
        yield from _nodes(v, (*place, k))


def _siblings(root: Any, place: tuple[Any, ...], value: Any) -> list[Any]:
    """The values of the same key elsewhere."""
    if not place or not isinstance(place[-1], str):
        return []
    found = {
        json.dumps(v): v for p, v in _nodes(root, ()) if p and p[-1] == place[-1] and v != value
    }
    return list(found.values())[:12]


def _edited_json(root: Any, place: tuple[Any, ...], new: Any) -> Callable[[], bytes]:
    def make() -> bytes:
        result = copy.deepcopy(root)
        if not place:
            return json.dumps(new).encode()
        target = result
        for k in place[:-1]:
            target = target[k]
        if new is _GONE:
            del target[place[-1]]
        else:
            target[place[-1]] = new
        return json.dumps(result).encode()

    return make


# --- words of a flat binary


def _words(data: bytes) -> Iterator[Change]:
    words = sorted({data[i : i + 4] for i in range(0, min(len(data), 4000), 4)})
    for at in range(0, min(len(data), 8000) - 3, 2):
        for new in (0, 1, -1, 2, 7, 127, 255, 1 << 16, (1 << 31) - 1, -(1 << 31), 1 << 24):
            yield (
                f"word at {at} = {new}",
                lambda at=at, new=new: (
                    data[:at] + new.to_bytes(4, "little", signed=True) + data[at + 4 :]
                ),
            )
        for new in words[at % 7 :: 7]:
            yield (
                f"word at {at} = {new.hex()}",
                lambda at=at, new=new: data[:at] + new + data[at + 4 :],
            )
        yield (
            f"byte at {at + 1} + 1",
            lambda at=at: data[: at + 1] + bytes([(data[at + 1] + 1) % 256]) + data[at + 2 :],
        )
