"""A .zip that holds one package, as packages are downloaded: looked into, and unpacked for reading.

Nothing is unpacked before the list of its entries was looked at: names that lead out of the
package, links, encrypted entries, and more bytes than a network can have are refused.
"""

from __future__ import annotations

import contextlib
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from converter.errors import ConverterError, Where, unreadable
from converter.formats.coreml.package import (
    COMPILED,
    COMPILED_FROM,
    LARGEST,
    MANIFEST,
    SUFFIX,
    model_of,
)

MAGIC = b"PK\x03\x04"
MOST_ENTRIES = 10_000
# uncompressed bytes per byte of the file: weights hardly compress, except for equal numbers
MOST_GROWTH = 200
SMALL = 1 << 26  # uncompressed bytes that are always allowed
_BEGIN = 1 << 24  # bytes of a model that are looked at
_PIECE = 1 << 20


def is_zip(path: Path) -> bool:
    """Return whether a file begins as a zip archive; False if it cannot be read."""
    try:
        with open(path, "rb") as f:
            return f.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def begin_of_model(path: Path) -> bytes:
    """Return the first bytes of the model in a zipped package; none where there is no package.
    Raise ReadError for one that cannot be unpacked.
    """
    with _opened(path) as archive:
        entries = _package(archive, path)
        if not entries:
            return b""
        manifest = entries[MANIFEST]
        with archive.open(manifest) as f:
            named = model_of(f.read(LARGEST))
        inner = entries.get(f"Data/{named}")
        if inner is None:
            raise unreadable("R103", "the manifest names no model", Where(str(path), path=MANIFEST))
        with archive.open(inner) as f:
            return f.read(_BEGIN)


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Provide the package of a .zip in a temporary folder (mapped files stay valid after its
    removal); any other path is returned unchanged. Raises ReadError R103 for an archive that is
    damaged, too large or without a package, R107 for names and links that lead outside.
    """
    if path.is_dir() or not is_zip(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        made = Path(folder) / f"package{SUFFIX}"
        with _opened(path) as archive:
            entries = _package(archive, path)
            if not entries:
                raise unreadable("R103", "the archive contains no package", path)
            for name, entry in entries.items():
                _extract(archive, entry, made / name)
        try:
            yield made
        except ConverterError as e:
            raise type(e)(
                replace(d, where=replace(d.where, file=d.where.file.replace(str(made), str(path))))
                for d in e.diagnostics
            ) from None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; any error becomes a ReadError."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError) as e:
        raise unreadable("R103", f"the archive is damaged: {e}", path) from None
    except OSError as e:
        text = f"cannot unpack: {e.strerror or e}"
        raise unreadable("R100", text, path) from None


def _package(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """Return the files of the one package, by their names in it; empty where there is none."""
    files = [e for e in archive.infolist() if not e.is_dir() and not _of_finder(e.filename)]
    roots = {e.filename[: -len(MANIFEST)] for e in files if _is_manifest(e.filename)}
    if not roots:
        if any(f"{COMPILED}/" in e.filename for e in files):
            text = any(e.filename.endswith(f"{COMPILED}/model.mil") for e in files)
            raise unreadable(
                "R106",
                "the archive contains a model compiled by Core ML (.mlmodelc), "
                "which is not read from archives",
                path,
                "unpack the archive and convert the folder" if text else COMPILED_FROM,
            )
        return {}
    if len(roots) > 1:
        raise unreadable("R103", f"the archive contains {len(roots)} packages, one is needed", path)
    (root,) = roots
    own = [e for e in files if e.filename.startswith(root)]
    _demand_bounded(own, path)
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in own:
        name = entry.filename.removeprefix(root)
        if reason := _reason_against(entry, name, found):
            raise unreadable("R107", f"{entry.filename!r} {reason}", path)
        found[name] = entry
    return found


def _is_manifest(name: str) -> bool:
    """Return whether this is the manifest of a package: at the top, or in a folder that is called
    like one.
    """
    *folders, last = name.split("/")
    return last == MANIFEST and (not folders or folders[-1].endswith(SUFFIX))


def _of_finder(name: str) -> bool:
    """Return whether an entry was added to the archive by macOS."""
    return name.startswith("__MACOSX/") or name.rsplit("/", 1)[-1] == ".DS_Store"


def _demand_bounded(entries: list[zipfile.ZipInfo], path: Path) -> None:
    if len(entries) > MOST_ENTRIES:
        raise unreadable("R103", f"the package has {len(entries)} files, which are too many", path)
    size, packed = sum(e.file_size for e in entries), path.stat().st_size
    if size > max(SMALL, MOST_GROWTH * packed):
        text = f"{packed} bytes unpack to {size}, more than {MOST_GROWTH} times as many"
        raise unreadable("R103", text, path)


def _reason_against(entry: zipfile.ZipInfo, name: str, found: dict[str, zipfile.ZipInfo]) -> str:
    """Return why an entry is not unpacked, "" if it is."""
    mode = entry.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return "is a link" if stat.S_ISLNK(mode) else "is not a regular file"
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or str(pure) != name:
        return "lies outside the package"
    if entry.flag_bits & 1:
        return "is encrypted"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is compressed by an unknown method"
    return "is stored twice" if name in found else ""


def _extract(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, place: Path) -> None:
    """Extract an entry to a file. Content that differs from the list of entries is an error."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as packed, open(place, "xb") as f:
        while piece := packed.read(_PIECE):
            f.write(piece)
