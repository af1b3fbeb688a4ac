"""Files that belong to a model, mostly lists of labels, in a zip archive appended to the
flatbuffer. The `TFLITE_METADATA` entry describes its contents.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from converter.io.strict_json import note

METADATA = "TFLITE_METADATA"
LARGEST = 1 << 24  # bytes of all files together
MOST = 64
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # equal content gives equal bytes


def files_of(path: Path) -> dict[str, bytes]:
    """Return the files appended to the flatbuffer by name; none if there is no archive, or if it is
    damaged or larger than lists of labels are.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [e for e in archive.infolist() if not e.is_dir()]
            if len(entries) > MOST or sum(e.file_size for e in entries) > LARGEST:
                return {}
            found = {}
            for entry in entries:
                with archive.open(entry) as f:
                    found[entry.filename] = f.read(entry.file_size)
            return found
    except (zipfile.BadZipFile, OSError, RuntimeError, ValueError, EOFError):
        return {}


def texts_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return those files that are texts."""
    found = {}
    for name, content in files.items():
        try:
            found[name] = content.decode()
        except UnicodeDecodeError:
            continue
    return found


def label_files(tables: str) -> dict[str, bytes]:
    """Return files of labels, one label in a line, for tables as converter.passes.labels stores
    them: labels.txt, labels_2.txt and so on.
    """
    stored = note(tables, {str: [(str, int)]}) or {}
    found = [[str(label) for label in labels] for labels in stored.values()]
    lines = [t for t in found if not any("\n" in label for label in t)]
    names = ["labels.txt", *(f"labels_{i}.txt" for i in range(2, len(lines) + 1))]
    return {
        n: "".join(f"{label}\n" for label in t).encode() for n, t in zip(names, lines, strict=False)
    }


def write_files(file: BinaryIO, files: Mapping[str, bytes]) -> None:
    """Append the archive."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), content)
