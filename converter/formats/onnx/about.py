"""The description of an ONNX file: versions, producer, functions."""

from __future__ import annotations

from pathlib import Path

from converter.graph import EXTENSION_DOMAIN
from converter.io.mapped_file import MappedFile
from converter.io.protobuf import LEN, VARINT, WireError, fields, varint

# fields of ModelProto, see onnx.proto
_IR_VERSION, _PRODUCER, _PRODUCER_VERSION, _DOC, _OPSET, _METADATA, _FUNCTIONS = (
    *(1, 2, 3, 6, 8),
    *(14, 25),
)
_KNOWN = ("author", "license", "description", "version")


def about(path: Path) -> dict[str, str]:
    """Return the versions, the producer and the metadata of a model, without those that cannot
    be read.
    """
    try:
        return _read(MappedFile(path).bytes.data)
    except WireError:
        return {}


def _read(data: memoryview) -> dict[str, str]:
    numbers, texts, opsets, functions = dict[int, int](), dict[int, str](), list[str](), 0
    found: dict[str, str] = {}
    for f in fields(data):
        if f.wire == VARINT:
            numbers[f.number] = varint(data, f.start, f.end)[0]
        elif f.number == _OPSET:
            opsets += _opset(data, f.start, f.end)
        elif f.number == _FUNCTIONS:
            functions += 1
        elif f.number == _METADATA:
            key, value = (_texts(data, f.start, f.end).get(n, "") for n in (1, 2))
            if key.lower() in _KNOWN and value:
                found[key.lower()] = value
        elif f.number in (_PRODUCER, _PRODUCER_VERSION, _DOC) and f.wire == LEN:
            texts[f.number] = bytes(data[f.start : f.end]).decode("utf-8", "replace")
    version = [f"IR version {numbers[_IR_VERSION]}"] if _IR_VERSION in numbers else []
    said = {
        "format": ", ".join([*version, *opsets]),
        "producer": f"{texts.get(_PRODUCER, '')} {texts.get(_PRODUCER_VERSION, '')}".strip(),
        "functions": str(functions) if functions else "",
        "description": texts.get(_DOC, ""),
        **found,
    }
    return {k: v for k, v in said.items() if v}


def _opset(data: memoryview, start: int, end: int) -> list[str]:
    """Return "opset 17", or the name and the version of another set of operators; nothing for
    netconv's own, which every file that it writes declares.
    """
    name = _texts(data, start, end).get(1, "")
    found = [varint(data, f.start, f.end)[0] for f in fields(data, start, end) if f.number == 2]
    number = found[0] if found else 0
    if name == EXTENSION_DOMAIN:
        return []
    return [f"{name} {number}" if name not in ("", "ai.onnx") else f"opset {number}"]


def _texts(data: memoryview, start: int, end: int) -> dict[int, str]:
    return {
        f.number: bytes(data[f.start : f.end]).decode("utf-8", "replace")
        for f in fields(data, start, end)
        if f.wire == LEN
    }
