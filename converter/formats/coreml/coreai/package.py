"""The folder .aimodel: the bytecode of a program, its SHA-256, and its author's metadata.

NAME.aimodel/main.mlirb NAME.aimodel/main.hash NAME.aimodel/metadata.json
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from converter.errors import Diagnostic, Where, unreadable
from converter.formats.coreml.package import CORE_AI, Hashed, digest, files_of, inside
from converter.formats.coreml.package import PROGRAM as MAIN
from converter.io.files import Output
from converter.io.strict_json import parse

HASH, METADATA = "main.hash", "metadata.json"
VERSION = "2.0"
TEXTS = ("author", "license", "description")
_COMPILED = (".odix", ".debuginfo")
_HELP = "convert the .aimodel that it was compiled from"


def main_of(path: Path) -> Path:
    """Return the bytecode file of a package, or the file itself. Raises ReadError R106 for a result
    of Apple's compiler, R102 if there is no program, R107 for links.
    """
    if not path.is_dir():
        return path
    names = {p.name for p in files_of(path)}
    compiled = path.name.endswith(".aimodelx") or any(n.endswith(_COMPILED) for n in names)
    if compiled or (MAIN not in names and any(_is_bundle(n) for n in names)):
        message = "this compiled Core AI model contains no program that can be read"
        raise unreadable("R106", message, path, _HELP)
    if MAIN not in names and not path.name.endswith(CORE_AI):
        raise unreadable(
            "R100",
            f"cannot read: a Core AI model contains {MAIN}, which this folder does not",
            path,
        )
    return inside(path, MAIN, Where(str(path)))


def _is_bundle(name: str) -> bool:
    """Return whether a file is the program for one device (`main-h18p.mlirb`)."""
    return name.startswith("main-") and name.endswith(".mlirb")


def metadata_of(path: Path) -> dict[str, Any]:
    """Return the metadata of the package; raises ReadError R103 and R104 where Apple's loader
    rejects it.
    """
    file = path.with_name(METADATA)
    if not file.is_file():
        return {}
    try:
        found = parse(file.read_bytes())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise unreadable("R103", f"{METADATA} is not a JSON object", path.parent)
    version = found.get("assetVersion")
    if version != VERSION:
        message = f"assetVersion must be {VERSION}, got {version!r}"
        raise unreadable("R104", message, Where(str(path.parent), path=METADATA))
    return found


def hash_note(path: Path) -> list[Diagnostic]:
    """Return a warning if main.hash is not the SHA-256 of the bytecode; Apple's loader
    ignores it.
    """
    file = path.with_name(HASH)
    if not file.is_file():
        return []
    made = digest()
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            made.update(piece)
    if file.read_bytes() == made.digest():
        return []
    message = f"{HASH} is not the SHA-256 of {MAIN}: the program was changed after it was written"
    return [Diagnostic("R103", message, "warning", where=Where(str(path.parent), path=HASH))]


def write_package(
    out: Output, said: Mapping[str, Any], program: Callable[[BinaryIO], None]
) -> None:
    """Write the target of `out` as a package whose bytecode `program` writes; without dates, so
    that equal programs give equal bytes.
    """
    made = digest()
    with out.open(inside=MAIN) as f:
        program(cast(BinaryIO, Hashed(f, made)))
    with out.open(inside=HASH) as f:
        f.write(made.digest())
    with out.open(inside=METADATA) as f:
        data = {**said, "assetVersion": VERSION, "producer": "netconv"}
        f.write(json.dumps(data, indent=2, sort_keys=True).encode() + b"\n")
