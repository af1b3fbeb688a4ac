"""Compare two files of the same format field by field. Weights count as one field."""

from __future__ import annotations

import filecmp
import hashlib
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from converter.formats import sidefiles
from converter.formats.coreml.package import files_of, model_in, open_model
from converter.io.strict_json import parse

Fields = Iterator[tuple[str, str]]  # location and value
LIMIT = 1000  # fields that are listed


def compare(a: Path, b: Path) -> tuple[bool, list[str]]:
    """Return whether the bytes are the same (including side files, and all files of packages), and
    the differing fields.
    """
    x, y = (open_model(p).bytes.tobytes() for p in (a, b))
    side = _side_files(a, b) + _parts(a, b)
    if x == y and not side:
        return True, []
    left, right = dict(_fields(x)), dict(_fields(y))
    found = [k for k in {**left, **right} if left.get(k) != right.get(k)]
    return False, [*found[:LIMIT], *side]


def _side_files(a: Path, b: Path) -> list[str]:
    names = {n for f in (a, b) for n in sidefiles.names(f) if (f.parent / n).is_file()}
    return [n for n in sorted(names) if not _same(a.parent / n, b.parent / n)]


def _parts(a: Path, b: Path) -> list[str]:
    """Return the differing files of packages, except those of the models."""
    if not (a.is_dir() and b.is_dir()):
        return []
    names = {str(p.relative_to(f)) for f in (a, b) for p in files_of(f) if p != model_in(f)}
    return [n for n in sorted(names) if not _same(a / n, b / n)]


def _same(a: Path, b: Path) -> bool:
    return a.is_file() and b.is_file() and filecmp.cmp(a, b, shallow=False)


def _fields(data: bytes) -> Fields:
    head = data[:200].lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"<"):
        yield from _xml(data)
    elif head.startswith((b"{", b"[")):
        yield from _json(parse(data), "")
    elif head[:1] == b"\x08":
        yield from _protobuf(data)
    elif b"\0" not in data[:4096] and b"=" in head:
        yield from _lines(data.decode("utf-8", "replace"))


def _xml(data: bytes) -> Fields:
    from lxml import etree

    root = etree.fromstring(
        data, etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
    )
    tree = root.getroottree()
    for element in root.iter(etree.Element):
        location = tree.getpath(element)
        yield location, (element.text or "").strip()
        yield from ((f"{location}/@{k!s}", str(v)) for k, v in element.attrib.items())


def _json(value: object, location: str) -> Fields:
    if isinstance(value, dict):
        for k, v in value.items():
            yield from _json(v, f"{location}.{k}" if location else k)
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from _json(v, f"{location}[{i}]")
    else:
        yield location, json.dumps(value)


def _protobuf(data: bytes) -> Fields:
    """Yield the fields of an ONNX or Core ML model by name; nothing if it is neither."""
    from google.protobuf.message import DecodeError

    for module, name in (("onnx", "ModelProto"), ("converter.formats.coreml.proto", "Model_pb2")):
        found = getattr(importlib.import_module(module), name)
        try:
            message = getattr(found, "Model", found).FromString(data)
        except DecodeError:
            continue
        if message.HasField("graph") if name == "ModelProto" else message.WhichOneof("Type"):
            yield from _message(message, "")
            return


def _message(message: Any, location: str) -> Fields:
    from google.protobuf.message import Message

    for field, value in message.ListFields():
        path = f"{location}.{field.name}" if location else field.name
        if not isinstance(value, Message | str | bytes | int | float):  # repeated
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                yield from ((f"{path}[{k}]", str(value[k])) for k in sorted(value))
            elif field.message_type is None:
                yield path, hashlib.sha256(repr(list(value)).encode()).hexdigest()
            else:
                for i, item in enumerate(value):
                    yield from _message(item, f"{path}[{i}]")
        elif field.message_type is not None:
            yield from _message(value, path)
        else:
            yield (
                path,
                hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else str(value),
            )


def _lines(text: str) -> Fields:
    """Yield `key=value` lines in blocks that start with an id (Compass IR)."""
    block = ""
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if key.strip() == "layer_id":
            block = f"layer {value.strip()}."
        if equals:
            yield f"{block}{key.strip()}", value.strip()
