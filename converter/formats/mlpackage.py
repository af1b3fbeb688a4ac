"""An .mlpackage: a folder with a manifest, the model's protobuf message, and weights beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from converter.errors import Where, unreadable
from converter.io.strict_json import note

MANIFEST = "Manifest.json"
LARGEST = 1 << 24  # bytes of a manifest
_FORM = {"rootModelIdentifier": str, "itemInfoEntries": {str: {"path": str}}}


@dataclass(frozen=True)
class Parts:
    """The file of the model, and the folder that `@model_path` means in it."""

    model: Path

    @property
    def folder(self) -> Path:
        return self.model.parent


def is_package(path: Path) -> bool:
    return path.is_dir() and (path / MANIFEST).is_file()


def parts_of(path: Path) -> Parts:
    """The parts of a package, through the root of its manifest; of a file, the file itself.

    Raises ReadError: R103 for a manifest that is none, R102 for a model that is not there, R107 for
    one that lies outside.
    """
    if not path.is_dir():
        return Parts(path)
    manifest = path / MANIFEST
    try:
        content = manifest.read_bytes()[:LARGEST]
    except OSError as e:
        raise unreadable("R100", f"cannot read: {e.strerror}", Where(str(manifest))) from None
    try:
        found = note(content, _FORM)
    except (UnicodeDecodeError, RecursionError, json.JSONDecodeError):
        found = None
    entry = (found or {}).get("itemInfoEntries", {}).get((found or {}).get("rootModelIdentifier"))
    if not entry or "path" not in entry:
        raise unreadable("R103", "the manifest names no model", Where(str(manifest)))
    return Parts(inside(path / "Data", entry["path"], Where(str(manifest))))


def inside(folder: Path, name: str, where: Where) -> Path:
    """A file of a folder by its relative name; ReadError R107 where the name or a link leads out,
    R102 where there is none.
    """
    try:
        target, root = (folder / name).resolve(), folder.resolve()
        leads_out = not target.is_relative_to(root)
        there = target.is_file()
    except (OSError, ValueError, RuntimeError):
        raise unreadable("R107", f"{name!r} is not a file name", where) from None
    if leads_out or any(p.is_symlink() for p in [folder / name, *(folder / name).parents][:8]):
        raise unreadable("R107", f"{name!r} leads out of the package", where)
    if not there:
        raise unreadable("R102", f"{name!r} is not there", where)
    return folder / name
