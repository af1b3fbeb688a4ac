"""Models in stores that fsspec reaches: fetched as a whole, and replaced so that a reader finds the
old files, the new ones, or no model.

A store has no transactions, and can only replace a single object at once. So a result of several
objects is put in steps: the old objects are copied to a hidden folder next to them, the old model
itself is removed, the new side files are put, and finally the new model itself, which for a package
is the manifest. After a failure the old objects are copied back, the model last. If that fails too,
there is no model, and the error names the location of the copies.

A reader checks the model's object again after reading the side files, and starts over if it has
changed.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from converter import formats
from converter.errors import (
    ConverterError,
    WriteError,
    cannot_read,
    cannot_write,
    unreadable,
    unwritable,
)
from converter.formats import sidefiles
from converter.formats.coreml.package import MANIFEST, PROGRAM, is_model_folder
from converter.io.atomic import PREFIX, uninterrupted

ATTEMPTS = 3
# properties that show that an object was replaced
_VERSION = (
    *("ETag", "etag", "md5Hash", "generation", "VersionId", "size"),
    *("LastModified", "last_modified", "mtime", "updated", "created"),
)


def fetch(system: Any, place: str, folder: Path, url: str) -> Path:
    """Copy a model with its side files, or a folder, to a local folder. Raises ReadError R100, also
    if the model is replaced repeatedly in the meantime.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / os.path.basename(place)
    try:
        for _ in range(ATTEMPTS):
            before = _version(system, place)
            get(system, place, model)
            alone = model.is_file() and not _get_side_files(system, place, model)
            if alone or _version(system, place) == before:
                return model
            for copied in folder.iterdir():
                shutil.rmtree(copied) if copied.is_dir() else copied.unlink()
    except Exception as e:  # drivers raise their own exception types
        raise cannot_read(url, e) from None
    message = "cannot read: another program is replacing the model"
    raise unreadable("R100", message, url, "try again when it has ended")


def _get_side_files(system: Any, place: str, model: Path) -> bool:
    """Copy the side files of a copied model; return whether it names any."""
    folder, parent = model.parent, os.path.dirname(place)
    names = sidefiles.names(model)
    for name in names:
        side = (folder / name).resolve()
        if side.is_relative_to(folder.resolve()) and _is_readable(system, f"{parent}/{name}"):
            side.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(f"{parent}/{name}", str(side))
    return bool(names)


def is_there(system: Any, place: str, kinds: tuple[str, ...] = ("file", "directory")) -> bool:
    """Return whether an object or folder exists in a store. Unlike `exists` of fsspec, it raises if
    the store does not answer.
    """
    try:
        return system.info(place)["type"] in kinds
    except FileNotFoundError:
        return False


def _is_readable(system: Any, place: str) -> bool:
    """Return whether an object is readable. Stores without the right to list reject missing objects
    instead of reporting them.
    """
    try:
        return is_there(system, place)
    except PermissionError:
        return False


def _version(system: Any, place: str) -> Any:
    """Return the properties that distinguish the object of a model, or the marker of a package,
    from its replacement; None if the store reports none.
    """
    system.invalidate_cache()
    stem = place.rstrip("/")
    for name in (place, f"{stem}/{MANIFEST}", f"{stem}/{PROGRAM}"):
        try:
            facts = system.info(name)
        except Exception:  # copying will report the error
            continue
        if facts.get("type") == "file":
            return name, *(str(facts.get(k)) for k in _VERSION)
    return None


def get(system: Any, place: str, path: Path) -> None:
    """Copy a file, or all files of a folder (a package, or a data set), to this machine."""
    if system.isfile(place):
        system.get_file(place, str(path))
        return
    stem = place.rstrip("/")
    for file in system.find(stem):
        name = PurePosixPath(os.path.relpath(file, stem))
        if ".." in name.parts or "\\" in str(name):
            raise OSError(errno.EINVAL, f"{str(name)!r} is not a valid file name")
        part = path / name
        part.parent.mkdir(parents=True, exist_ok=True)
        system.get_file(file, str(part))


def put(system: Any, folder: Path, place: str, url: str) -> None:
    """Copy everything in a folder to the parent of `place`, which names one of the files. Raises
    WriteError W301 if the store refuses, W302 for a side file that another model uses.
    """
    replacement = _Replacement(system, folder, place)
    try:
        replacement.perform()
    except ConverterError:
        raise
    except Exception as e:  # drivers raise their own exception types
        raise replacement.refusal(url, e) from None


class _Replacement:
    """The replacement of one set of objects by another: `new` by key, `models` the keys of the
    objects that readers open first, `copies` the temporary locations of the old ones.
    """

    def __init__(self, system: Any, folder: Path, place: str) -> None:
        self.system, self.place = system, place
        self.parent = os.path.dirname(place)
        self.new = {self._key(folder, p): p for p in sorted(folder.rglob("*")) if p.is_file()}
        self.packages = [self._key(folder, p) for p in folder.iterdir() if is_model_folder(p)]
        self.models = [k for k in self.new if self._is_model(k)]
        self.hidden = f"{self.parent}/{PREFIX}{os.urandom(6).hex()}"
        self.copies: dict[str, str] = {}
        self.left = ""

    def _key(self, folder: Path, path: Path) -> str:
        return f"{self.parent.rstrip('/')}/{path.relative_to(folder).as_posix()}"

    def _is_model(self, key: str) -> bool:
        """Return whether readers open this object first."""
        if package := next((p for p in self.packages if key.startswith(f"{p}/")), ""):
            return key in (f"{package}/{MANIFEST}", f"{package}/{PROGRAM}")
        return key == self.place or formats.of_suffix(Path(key)) is not None

    def perform(self) -> None:
        for folder in sorted({os.path.dirname(k) for k in self.new}):
            self.system.makedirs(folder, exist_ok=True)
        if len(self.new) == 1:  # a single object, which the store replaces at once
            self._put_all()
            return
        self.system.invalidate_cache()
        old = self._old()
        self._demand_unused([k for k in old if k not in self.models])
        try:
            self._copy_away(old)
        except BaseException:
            self._drop_copies()
            raise
        try:
            for key in [k for k in self.models if k in old]:
                self._remove(key)
        except BaseException:
            self._undo(self._return_models)
            raise
        try:
            for key in [k for k in old if k not in self.new]:
                self._remove(key)
            self._put_all()
        except BaseException:
            self._undo(self._return_all)
            raise
        if not self._drop_copies():
            self.left = (
                "the new files are complete and in place, but copies of the "
                f"old ones may remain in {self._shown()}"
            )
            raise OSError(errno.EIO, "a copy cannot be removed")

    def refusal(self, url: str, error: Exception) -> WriteError:
        return cannot_write(url, error, "", self.left)

    def _old(self) -> list[str]:
        """Return the replaced objects: those of the same name, and all objects of a replaced
        package.
        """
        found = [k for k in self.new if self._is_there(k)]
        for package in self.packages:
            if self.system.isdir(package):
                found += [k for k in map(self._as_key, self.system.find(package))
                          if k not in self.new]  # fmt: skip
        return found

    def _as_key(self, found: str) -> str:
        """Convert a name that the store lists to the form that this class uses."""
        return f"{self.parent.rstrip('/')}/{os.path.relpath(found, self.parent or '/')}"

    def _is_there(self, key: str) -> bool:
        return is_there(self.system, key, ("file",))

    def _demand_unused(self, sides: list[str]) -> None:
        """Raise WriteError W302 for a side file that a remaining model of the same stem uses."""
        names = {os.path.basename(k) for k in sides if os.path.dirname(k) == self.parent}
        for other in self._others() if names else ():
            with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
                copy = Path(folder) / os.path.basename(other)
                self.system.get_file(other, str(copy))
                used = {os.path.normpath(n) for n in sidefiles.names(copy)} & names
            if used:
                message = f"the output would overwrite a file that {copy.name} uses"
                place = f"{self.parent}/{min(used)}"
                help = "choose another name or folder for the output"
                raise unwritable("W302", message, self.system.unstrip_protocol(place), help)

    def _others(self) -> Iterator[str]:
        """Yield the other models in the folder that have side files and the same stem as a new
        model.
        """
        known = [f for n in formats.present() if (f := formats.get(n)).side_names is not None]
        suffixes = tuple(s for f in known for s in f.suffixes)
        stems = {_stem(k) for k in self.models}
        for found in sorted(self.system.ls(self.parent, detail=False)):
            key = self._as_key(found)
            if key.endswith(suffixes) and key not in self.new and _stem(key) in stems:
                yield key

    def _copy_away(self, old: list[str]) -> None:
        for number, key in enumerate(old):
            if not number:
                self.system.makedirs(self.hidden, exist_ok=True)
            copy = f"{self.hidden}/{os.path.relpath(key, self.parent or '/')}"
            self.system.makedirs(os.path.dirname(copy), exist_ok=True)
            self.copies[key] = copy
            self._copy(key, copy)

    def _copy(self, source: str, target: str) -> None:
        try:
            self.system.cp_file(source, target)
        except RuntimeError:  # of fsspec, for a store without a copy operation
            with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
                self.system.get_file(source, f"{folder}/copy")
                self.system.put_file(f"{folder}/copy", target)

    def _put_all(self) -> None:
        for key in sorted(self.new, key=lambda k: k in self.models):
            self.system.put_file(str(self.new[key]), key)

    def _remove(self, key: str) -> None:
        try:
            self.system.rm_file(key)
        except FileNotFoundError:
            return

    def _undo(self, steps: Any) -> None:
        """Put the old objects back; if that fails too, keep the copies and name their location."""
        with uninterrupted():
            try:
                steps()
            except Exception:
                if self.copies:
                    self.left = (
                        "the old files could not be restored; copies of them "
                        f"are in {self._shown()}"
                    )
                return
            self._drop_copies()

    def _return_models(self) -> None:
        """Restore models after a failed removal; their side files are unchanged."""
        for key in [k for k in self.models if k in self.copies]:
            if not self._is_there(key):
                self._copy(self.copies[key], key)

    def _return_all(self) -> None:
        for key in sorted(self.new, key=lambda k: k not in self.models):
            if key in self.models or key not in self.copies:
                self._remove(key)
        for key in sorted(self.copies, key=lambda k: k in self.models):
            self._copy(self.copies[key], key)

    def _drop_copies(self) -> bool:
        """Remove the copies; return whether none is left. Failed requests are retried."""
        for copy in self.copies.values():
            for _ in range(ATTEMPTS):
                try:
                    self._remove(copy)
                    break
                except Exception:  # retried
                    continue
            else:
                return False
        try:
            if self.copies and self.system.isdir(self.hidden):  # only in stores with folders
                self.system.rm(self.hidden, recursive=True)
        except Exception:
            return True
        return True

    def _shown(self) -> str:
        return str(self.system.unstrip_protocol(self.hidden))


def _stem(key: str) -> str:
    return os.path.basename(key).partition(".")[0]
