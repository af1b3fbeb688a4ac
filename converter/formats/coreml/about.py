"""The description of a Core ML file: its specification, its author, images."""

from __future__ import annotations

from pathlib import Path

from converter.formats.coreml.package import open_model
from converter.io.protobuf import LEN, WireError, fields, varint

# specificationVersion -> the first system that reads it
# Source: https://apple.github.io/coremltools/mlmodel/Format/Model.html
SYSTEMS = {
    **{1: "iOS 11", 2: "iOS 11.2", 3: "iOS 12", 4: "iOS 13", 5: "iOS 14", 6: "iOS 15"},
    **{7: "iOS 16", 8: "iOS 17", 9: "iOS 18", 10: "iOS 26"},
}
_VERSION, _DESCRIPTION, _METADATA = 1, 2, 100
_TEXTS = {1: "description", 2: "version", 3: "author", 4: "license"}


def about(path: Path) -> dict[str, str]:
    """Return the version, the description and the author of a model, without those that cannot
    be read.
    """
    found: dict[str, str] = {}
    try:
        data = open_model(path).bytes.data
        for field in fields(data):
            if field.number == _VERSION:
                number = varint(data, field.start, field.end)[0]
                system = SYSTEMS.get(number)
                found["format"] = f"specification {number}" + (f" ({system})" if system else "")
            elif field.number == _DESCRIPTION and field.wire == LEN:
                found |= _described(data, field.start, field.end)
    except WireError:
        pass
    return found


def _described(data: memoryview, start: int, end: int) -> dict[str, str]:
    found = {}
    for field in fields(data, start, end):
        if field.number != _METADATA or field.wire != LEN:
            continue
        for text in fields(data, field.start, field.end):
            if text.number in _TEXTS and text.wire == LEN:
                found[_TEXTS[text.number]] = bytes(data[text.start : text.end]).decode(
                    "utf-8", "replace"
                )
    return {k: v for k, v in found.items() if v}
