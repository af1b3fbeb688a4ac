"""Files that hold several TensorFlow Lite models: MediaPipe's .task, a zip file, and .litertlm.

Sources: https://ai.google.dev/edge/mediapipe (a task bundle is a zip file without compression) and
https://github.com/google-ai-edge/LiteRT-LM, schema/core/litertlm_header_schema.fbs.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from converter.errors import cannot_read, did_you_mean, unreadable, wrong_call

_LITERTLM, _ZIP = b"LITERTLM", b"PK\x03\x04"
_HEADER = 32  # bytes before the flatbuffer: mark, version, padding, end of the header
_MODEL, _TEXT = 3, 9  # AnySectionDataType.TFLiteModel, VData.StringValue
_MOST = 100  # times the size of the bundle that a member may have

Copy = Callable[[BinaryIO], None]


def members(path: Path) -> dict[str, Copy]:
    """Return the models in a bundle, by name, each with the function that copies it to a file;
    empty for other files. Raise ReadError R103 for a damaged bundle.
    """
    if not path.is_file():  # a pipe would wait for its writer
        return {}
    try:
        with open(path, "rb") as file:
            head = file.read(len(_LITERTLM))
        if head.startswith(_ZIP):
            return _of_zip(path)
        return _of_litertlm(path) if head == _LITERTLM else {}
    except OSError:
        return {}  # the reader of the file reports it


def _of_zip(path: Path) -> dict[str, Copy]:
    try:
        with zipfile.ZipFile(path) as archive:
            found = [i for i in archive.infolist() if i.filename.endswith(".tflite")]
    except (zipfile.BadZipFile, ValueError, RuntimeError):
        return {}
    most = _MOST * path.stat().st_size

    def copy(info: zipfile.ZipInfo) -> Copy:
        def write(target: BinaryIO) -> None:
            if info.file_size > most:
                raise unreadable("R103", f"{info.filename} is too large for its bundle", path)
            with zipfile.ZipFile(path) as archive, archive.open(info) as source:
                shutil.copyfileobj(source, target)

        return write

    return {info.filename: copy(info) for info in found}


def _of_litertlm(path: Path) -> dict[str, Copy]:
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(_HEADER)
        end = struct.unpack_from("<Q", head, 24)[0] if len(head) == _HEADER else 0
        if not _HEADER < end <= size:
            raise unreadable("R103", "the header of the bundle is damaged", path)
        data = file.read(end - _HEADER)
    try:
        sections = _sections(data)
    except (struct.error, IndexError, TypeError, UnicodeDecodeError):
        raise unreadable("R103", "the header of the bundle is damaged", path) from None

    def copy(begin: int, end: int) -> Copy:
        def write(target: BinaryIO) -> None:
            with open(path, "rb") as source:
                source.seek(begin)
                left = end - begin
                while left and (part := source.read(min(left, 1 << 20))):
                    target.write(part)
                    left -= len(part)

        return write

    found: dict[str, Copy] = {}
    for index, (kind, begin, end, name) in enumerate(sections):
        if kind == _MODEL and 0 <= begin < end <= size:
            own = name if name and name not in found else f"section_{index}"
            found[own] = copy(begin, end)
    return found


def _sections(data: bytes) -> Iterator[tuple[int, int, int, str]]:
    """Yield type, begin, end and name of each section of a .litertlm header."""
    from flatbuffers import encode, number_types
    from flatbuffers.table import Table

    def field(table: Table, slot: int) -> int:
        offset = table.Offset(4 + 2 * slot)
        return table.Pos + offset if offset else 0

    def number(table: Table, slot: int, kind: Any) -> int:
        at = field(table, slot)
        return int(table.Get(kind, at)) if at else 0

    def tables(table: Table, slot: int) -> Iterator[Table]:
        offset = table.Offset(4 + 2 * slot)
        for i in range(table.VectorLen(offset) if offset else 0):
            yield Table(data, table.Indirect(table.Vector(offset) + 4 * i))

    def inner(table: Table, slot: int) -> Table:
        return Table(data, table.Indirect(field(table, slot)))

    def text(table: Table, slot: int) -> str:
        return bytes(table.String(field(table, slot))).decode()

    root = Table(data, encode.Get(number_types.UOffsetTFlags.packer_type, data, 0))
    found = []
    for section in tables(inner(root, 1), 0):
        name = ""
        for item in tables(section, 0):
            kind = number(item, 1, number_types.Uint8Flags)
            if text(item, 0) == "model_type" and kind == _TEXT:
                name = text(inner(item, 2), 0)
        begin, end = (number(section, i, number_types.Uint64Flags) for i in (1, 2))
        found.append((number(section, 3, number_types.Uint8Flags), begin, end, name))
    return iter(found)


@contextmanager
def unpacked(path: Path, member: str) -> Iterator[Path]:
    """Yield the file of a model in a bundle, or `path` itself if it is no bundle.

    Without `member` the bundle must hold one model. The file is removed afterwards; data mapped
    into memory stay readable.
    """
    found = members(path)
    if not found:
        if member:
            raise wrong_call("--member is for bundles of several models", where=path)
        yield path
        return
    name = _chosen(found, member, path)
    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        target = Path(folder) / f"{Path(name).name.removesuffix('.tflite')}.tflite"
        try:
            with open(target, "wb") as file:
                found[name](file)
        except (OSError, zipfile.BadZipFile, RuntimeError) as e:
            raise cannot_read(path, OSError(str(e))) from None
        yield target


def _chosen(found: dict[str, Copy], member: str, path: Path) -> str:
    names = ", ".join(found)
    if not member:
        if len(found) == 1:
            return next(iter(found))
        message = f"the bundle contains {len(found)} models: {names}"
        raise unreadable("R101", message, path, "choose one with --member NAME")
    wanted = [n for n in found if member in (n, Path(n).name, Path(n).stem)]
    if len(wanted) != 1:
        help = did_you_mean(member, found, f"it holds {names}")
        raise wrong_call(f"the bundle has no model {member!r}", help=help, where=path)
    return wanted[0]
