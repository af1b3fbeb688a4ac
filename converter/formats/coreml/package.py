"""An .mlpackage: a folder with a manifest, the model's protobuf message, and weights next to it.

    NAME.mlpackage/Manifest.json
    NAME.mlpackage/Data/com.apple.CoreML/model.mlmodel
    NAME.mlpackage/Data/com.apple.CoreML/weights/weight.bin

The manifest says where the model is, the model where its weights are; the names above are those
that Core ML's own tools choose, and that are written here.
"""

from __future__ import annotations

import errno
import io
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from converter.errors import ReadError, Where, cannot_read, unreadable
from converter.io.files import Output, in_cache, open_part
from converter.io.mapped_file import MappedFile
from converter.io.strict_json import note

if TYPE_CHECKING:
    import hashlib

SUFFIX, COMPILED = ".mlpackage", ".mlmodelc"
ESPRESSO = ".espresso.net"  # the graph of a compiled neural network
COMPILED_FROM = "convert the .mlpackage or .mlmodel that it was compiled from"
TEXT, COMPILED_DATA = "model.mil", "coremldata.bin"  # of a compiled program
MANIFEST = "Manifest.json"
CORE_AI, PROGRAM = ".aimodel", "main.mlirb"  # a folder of Core AI, and the program in it
FOLDERS = (SUFFIX, CORE_AI)  # suffixes of folders that are one model
LARGEST = 1 << 24  # bytes of a manifest
_FORM = {"rootModelIdentifier": str, "itemInfoEntries": {str: {"path": str}}}

# where parts are written, below the package
MODEL = "Data/com.apple.CoreML/model.mlmodel"
WEIGHTS = "Data/com.apple.CoreML/weights/weight.bin"
_AUTHOR = "com.apple.CoreML"


def is_package(path: Path) -> bool:
    """Return whether a folder is a package, by its name or because its manifest names a model."""
    return path.is_dir() and (path.name.endswith(SUFFIX) or names_model(path))


def is_compiled_program(path: Path) -> bool:
    """Return whether a folder is a program compiled by Core ML, whose text can be read."""
    files = (path / TEXT, path / COMPILED_DATA)
    return path.is_dir() and all(file.is_file() for file in files)


def is_core_ai(path: Path) -> bool:
    """Return whether a folder is a Core AI model, by its name or by the program in it."""
    return path.is_dir() and (path.name.endswith(CORE_AI) or (path / PROGRAM).is_file())


def is_model_folder(path: Path) -> bool:
    """Return whether a folder is a model, of Core ML or of Core AI."""
    return is_package(path) or is_core_ai(path) or is_compiled_program(path)


def marker(path: Path) -> str:
    """Return the name of the file without which a folder is not a model; it is written last."""
    if is_compiled_program(path):
        return TEXT
    return PROGRAM if is_core_ai(path) else MANIFEST


def holds_model(path: Path) -> bool:
    """Return whether a folder has the files of a model, under any name."""
    return names_model(path) or (path / PROGRAM).is_file()


def names_model(path: Path) -> bool:
    """Return whether a folder has a manifest that names a model."""
    try:
        return bool(manifest_of(path))
    except ReadError:
        return False


def model_in(path: Path) -> Path:
    """Return the model file of a package, the root of its manifest; a file is returned itself. Its
    folder is the meaning of `@model_path`.

    Raises ReadError: R103 for an invalid manifest, R102 for a missing model, R107 for one outside
    the package, and for links, R106 for a compiled model.
    """
    if not path.is_dir():
        return path
    if is_core_ai(path):
        files_of(path)
        return inside(path, PROGRAM, Where(str(path)))
    if not is_package(path):
        demand_not_compiled(path)
    files_of(path)
    if is_compiled_program(path):
        return inside(path, TEXT, Where(str(path)))
    where = Where(str(path / MANIFEST))
    name = manifest_of(path)
    if not name:
        raise unreadable("R103", "the manifest names no model", where)
    return inside(path / "Data", name, where)


def open_model(path: Path) -> MappedFile:
    """Return the file that `model_in` finds, opened from the package's folder without following a
    link.
    """
    place = model_in(path)
    return MappedFile(path) if place == path else open_part_of(path, place)


def open_part_of(package: Path, file: Path) -> MappedFile:
    """Return a file of a package, opened from the package's folder without following a link
    below it.
    """
    try:
        return MappedFile(file, open_part(package, file.relative_to(package)))
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENOTDIR):
            name = str(file.relative_to(package))
            raise unreadable("R107", f"{name!r} is a link", package) from None
        raise cannot_read(file, e) from None


def manifest_of(path: Path) -> str:
    """`model_of` the manifest of a package. Raise ReadError R100 if it cannot be read."""
    return model_of(open_part_of(path, path / MANIFEST).bytes[:LARGEST].tobytes())


def model_of(content: bytes) -> str:
    """Return the name of the model below `Data` according to a manifest; "" if there is none."""
    try:
        found = note(content, _FORM) or {}
    except (UnicodeDecodeError, RecursionError, json.JSONDecodeError):
        return ""
    entry = found.get("itemInfoEntries", {}).get(found.get("rootModelIdentifier"), {})
    return str(entry.get("path", ""))


def files_of(path: Path) -> list[Path]:
    """Return all files of a package, its `marker` last. Raises ReadError R107 for a link (except in
    a cache of Hugging Face, where each file is one), R100 for anything but a regular file and for a
    folder that cannot be read.
    """
    found: list[Path] = []
    for folder, folders, names in os.walk(path, onerror=_raise):
        for entry in (Path(folder) / n for n in sorted([*folders, *names])):
            if entry.is_symlink() and not in_cache(entry):
                name = str(entry.relative_to(path))
                raise unreadable("R107", f"{name!r} is a link", path)
            if entry.is_file():
                found.append(entry)
            elif not entry.is_dir():
                raise unreadable("R100", "cannot read: not a regular file", entry)
    last = path / marker(path)
    return sorted(found, key=lambda p: (p == last, p))


def size_of(path: Path) -> int:
    """Return the size of a file, or of all files of a package."""
    return sum(p.stat().st_size for p in (files_of(path) if path.is_dir() else [path]))


def is_inside(path: str | Path) -> bool:
    """Return whether a file is a part of a package, which a search for models finds instead."""
    return any(map(is_model_folder, Path(path).parents))


def _raise(error: OSError) -> None:
    raise cannot_read(error.filename, error) from None


def inside(folder: Path, name: str, where: Where) -> Path:
    """Return a file of a folder by its relative name; raise ReadError R107 if the name or a link
    leads out, R102 where there is none.
    """
    target = folder / name
    try:
        leads_out = not Path(os.path.normpath(target)).is_relative_to(os.path.normpath(folder))
        below = [p for p in (target, *target.parents) if p != folder and p.is_relative_to(folder)]
        linked = any(p.is_symlink() and not in_cache(p) for p in below)
        there = target.is_file()
    except (OSError, ValueError, RuntimeError):
        raise unreadable("R107", f"{name!r} is not a file name", where) from None
    if leads_out or linked:
        raise unreadable("R107", f"{name!r} lies outside the package", where)
    if not there:
        raise unreadable("R102", f"{name!r} does not exist", where)
    return target


def compiled(path: Path) -> ReadError | None:
    """Return the error for a result of Core ML's compiler (a folder .mlmodelc, or the text of a
    program in it); None for anything else.
    """
    try:
        if path.is_dir():
            made = path.name.endswith(COMPILED) or (path / COMPILED_DATA).is_file()
            made = made and not is_compiled_program(path)
        else:
            with open(path, "rb") as f:
                made = f.read(8) == b"program("
    except (OSError, ValueError):
        return None
    if not made:
        return None
    what = "of which only folders with the text of a program (model.mil) can be read"
    if path.is_dir() and any(path.glob(f"*{ESPRESSO}")):
        what = f"a neural network ({ESPRESSO}) whose layers Apple does not document"
    return unreadable(
        "R106", f"this is a model compiled by Core ML (.mlmodelc), {what}", path, COMPILED_FROM
    )


def demand_not_compiled(path: Path) -> None:
    """Raise ReadError R106 for a compiled model."""
    if error := compiled(path):
        raise error


def manifest(content: str, weights: bool) -> bytes:
    """Return the manifest of a package with the parts MODEL and, if `weights`, WEIGHTS. `content`
    is a hash of the package content from which the identifiers are computed, so that equal packages
    have equal bytes.
    """
    parts = [(MODEL, "model.mlmodel", "CoreML Model Specification")]
    if weights:
        parts.append((os.path.dirname(WEIGHTS), "weights", "CoreML Model Weights"))
    entries = {
        str(uuid.uuid5(uuid.NAMESPACE_URL, f"{content}/{name}")): {
            "author": _AUTHOR,
            "description": description,
            "name": name,
            "path": place.removeprefix("Data/"),
        }
        for place, name, description in parts
    }
    data = {
        "fileFormatVersion": "1.0.0",
        "itemInfoEntries": dict(sorted(entries.items())),
        "rootModelIdentifier": next(iter(entries)),
    }
    return json.dumps(data, indent=4).encode() + b"\n"


def write_manifest(out: Output, content: str, weights: bool) -> None:
    """Write the target of `out` as a package, whose parts are written with `out.open(inside=MODEL)`
    and `out.open(inside=WEIGHTS)`; arguments of `manifest`.
    """
    with out.open(inside=MANIFEST) as f:
        f.write(manifest(content, weights))


class Hashed(io.RawIOBase):
    """A file whose bytes are hashed while they are written."""

    def __init__(self, file: BinaryIO, content: Any) -> None:
        self.file, self.content = file, content

    def write(self, data: Any) -> int:
        """Write data, and add them to the hash."""
        self.content.update(data)
        return self.file.write(data)


def digest() -> hashlib._Hash:
    """Return the SHA-256 of the content of a package."""
    import hashlib  # brings OpenSSL, which only packages need

    return hashlib.sha256()


def write_package(
    out: Output, model: bytes, weights: Callable[[BinaryIO], None] | None = None
) -> None:
    """Write the target of `out` as a package of a message and its weights; equal content gives
    equal bytes.
    """
    content = digest()
    content.update(model)
    with out.open(inside=MODEL) as f:
        f.write(model)
    if weights is not None:
        with out.open(inside=WEIGHTS) as f:
            weights(cast(BinaryIO, Hashed(f, content)))
    write_manifest(out, content.hexdigest(), weights is not None)
