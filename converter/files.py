"""Bytes in and bytes out: mapped input files with checked slices, and outputs that appear complete or not at all."""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import stat
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from converter import publish
from converter.diagnostics import Diagnostic, Where
from converter.errors import WriteError, unreadable

SLAB = 1 << 22  # bytes that are made for writing at once
_RELEASE = 1 << 24  # bytes after which mapped pages are given back
_PIECE = 1 << 19  # bytes of one write; larger ones make Linux look for larger pages, which takes several times as long
_MAPS: weakref.WeakKeyDictionary[mmap.mmap, tuple[int, int]] = weakref.WeakKeyDictionary()  # mapped files: address, descriptor
_LINE, _TILE, _FAR = 64, 1 << 15, 256  # bytes of a cache line, of the first cache; distance of neighbours from which each costs a line


class MappedFile:
    """One read-only mmap of one file; `slice` hands out bounds-checked views that keep the map alive."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            if not stat.S_ISREG(os.stat(self.path).st_mode):  # opening a pipe would wait for its other end
                raise OSError(errno.EINVAL, "not a regular file")
            with open(self.path, "rb") as f:
                size = os.fstat(f.fileno()).st_size
                self._bytes = np.frombuffer(_map(f.fileno()) if size else b"", np.uint8)  # an empty file cannot be mapped
        except (OSError, ValueError) as e:
            raise unreadable("R100", f"cannot read: {getattr(e, 'strerror', None) or e}", Where(str(path))) from None

    def __len__(self) -> int:
        return int(self._bytes.size)

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """The whole file as uint8, not copied."""
        return self._bytes

    def slice(self, offset: int, size: int, where: Where | None = None) -> npt.NDArray[np.uint8]:
        """`size` bytes from `offset` as a uint8 view; ReadError R102 when they lie outside the file."""
        if offset < 0 or size < 0 or offset + size > len(self):
            raise unreadable("R102", f"bytes {offset}..{offset + size} are outside {self.path.name}, which has {len(self)}", where or Where(str(self.path)))
        return self._bytes[offset : offset + size]


def _map(descriptor: int) -> mmap.mmap:
    made = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    own = os.dup(descriptor)
    weakref.finalize(made, os.close, own)
    _MAPS[made] = _address(made), own
    return made


def _address(buffer: Any) -> int:
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


def _copied(data: memoryview, target: int) -> int:
    """How many bytes of `data` the system itself copied to the descriptor, because they are those of a mapped file; 0 when it cannot.

    Nothing is mapped for that, which takes longer than the copying.
    """
    if not hasattr(os, "copy_file_range") or not data.nbytes:
        return 0
    low = _address(data)
    for mapped, (start, source) in list(_MAPS.items()):
        if start <= low and low + data.nbytes <= start + len(mapped):
            with contextlib.suppress(OSError):  # file systems that cannot; what is wrong with the target, writing will say
                return os.copy_file_range(source, target, data.nbytes, low - start)
    return 0


def _release() -> None:
    """Gives the memory of all mapped pages back; one that is used again comes from the system's cache."""
    if hasattr(mmap, "MADV_DONTNEED"):
        for mapped in list(_MAPS):
            mapped.madvise(mmap.MADV_DONTNEED)


def slabs(array: npt.NDArray[Any], size: int = SLAB) -> Iterator[npt.NDArray[Any]]:
    """The array in C order in contiguous pieces; a permuted view is copied a few rows at a time, never whole."""
    if array.flags.c_contiguous:
        yield np.ascontiguousarray(array)
    elif array.nbytes <= size:
        yield _packed(array)
    elif array[0].nbytes > size:
        for row in array:
            yield from slabs(row, size)
    else:
        rows = max(1, size // array[0].nbytes)
        for i in range(0, len(array), rows):
            yield from slabs(array[i : i + rows], size)


def _packed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A contiguous copy. Across the order of memory as many elements are taken at once as a cache line holds, of a matrix as many as stay
    in the first cache, packed in the order in which they lie there: several times faster.
    """
    if abs(array.strides[-1]) <= _FAR:
        return np.ascontiguousarray(array)
    copy, width = np.empty(array.shape, array.dtype), max(1, _LINE // array.itemsize)
    if matrix := array.ndim == 2:
        width = max(width, _TILE * array.shape[-1] // array.nbytes)
    for i in range(0, array.shape[-1], width):
        part = array[..., i : i + width]
        copy[..., i : i + width] = part.copy(order="K") if matrix else part
    return copy


def pieces(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.uint8]]:
    """The bytes of the elements in C order, as they are in memory; of a permuted view each piece is made while the one before is used."""
    made = slabs(array) if array.flags.c_contiguous or array.nbytes <= SLAB else _ahead(slabs(array))
    return (slab.reshape(-1).view(np.uint8) for slab in made)


def _ahead(made: Iterator[npt.NDArray[Any]]) -> Iterator[npt.NDArray[Any]]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as worker:
        coming = worker.submit(next, made, None)
        while (piece := coming.result()) is not None:
            coming = worker.submit(next, made, None)
            yield piece


def write_array(f: BinaryIO, array: npt.NDArray[Any]) -> int:
    """Writes the elements in C order, as they are in memory; the number of bytes."""
    return sum(f.write(piece.data) for piece in pieces(array))


class _Sink(io.FileIO):
    """Writes piece by piece. In between the disk is set to work, so that little is left for the end, and the pages of mapped inputs are given back:
    weights that go by do not gather in memory.
    """

    _waiting = _mapped = 0

    def write(self, data: Any) -> int:
        whole = memoryview(data)
        written = _copied(whole[:_RELEASE], self.fileno()) or super().write(whole[:_PIECE])
        self._waiting += written
        self._mapped += written
        if self._waiting >= SLAB:
            if hasattr(os, "posix_fadvise"):  # of pages that are not yet on the disk, Linux begins to write them and keeps them
                os.posix_fadvise(self.fileno(), self.tell() - self._waiting, self._waiting, os.POSIX_FADV_DONTNEED)
            self._waiting = 0
        if self._mapped >= _RELEASE:
            self._mapped = 0
            _release()
        return written


def side_file(model: Path, name: str, where: Where | None = None) -> Path:
    """The path of a side file that `model` refers to by `name`; it may not leave the model's folder (R107)."""
    try:
        folder = model.resolve().parent
        target = (folder / name).resolve()
        inside = not os.path.isabs(name) and target.is_relative_to(folder)
    except (OSError, ValueError, RuntimeError):  # a name that no file can have: NUL, lone surrogates, a loop of links
        inside = False
    if not inside:
        raise unreadable("R107", f"the side file {name!r} lies outside the model's folder", where or Where(str(model)))
    return target


class Output:
    """A set of files that is made aside and appears at once, or not at all; converter.publish says how.

    >>> with Output("net.xml") as out:
    ...     with out.open(".xml") as f: ...
    ...     with out.open(".bin") as f: ...

    `open(suffix)` names a file beside the target with the target's own stem; `open("")` is the target itself. `check` is told the places of
    all files before any appears, and may refuse. Whoever writes to `out.made`, with an Output of its own, adds to this one.
    """

    def __init__(self, target: str | os.PathLike[str], suffix: str = "", check: Callable[[Sequence[Path]], None] | None = None) -> None:
        self.target = Path(target)
        name = self.target.name
        self.stem = name[: -len(suffix)] if suffix and name.endswith(suffix) else self.target.stem
        self.files: list[Path] = []  # the places of all files, once they have appeared
        self._check = check
        self._open = contextlib.ExitStack()
        self._work = Path()

    @property
    def made(self) -> Path:
        """Where the target is made."""
        return self._work / self.target.name

    def path(self, suffix: str) -> Path:
        return self.target if not suffix else self.target.with_name(self.stem + suffix)

    @contextlib.contextmanager
    def open(self, suffix: str = "") -> Iterator[BinaryIO]:
        final = self.path(suffix)
        try:
            _replaceable(final)
            file = io.BufferedWriter(_Sink(self._work / final.name, "xb"), 1 << 20)
        except (OSError, ValueError) as e:
            raise _unwritable(final, e) from None
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except OSError as e:
            raise _unwritable(final, e) from None

    def adopt(self, made: Path) -> None:
        """Takes a file that is complete, under its own name."""
        final = self.target.with_name(made.name)
        try:
            _replaceable(final)
            place = self._work / made.name
            try:
                os.rename(made, place)
            except OSError:  # another file system
                import shutil

                shutil.copyfile(made, place)
            with open(place, "rb") as f:
                os.fsync(f.fileno())
        except OSError as e:
            raise _unwritable(final, e) from None

    def __enter__(self) -> Output:
        if self.target.parent in publish.workspaces:
            self._work = self.target.parent
            return self
        try:
            self._work = self._open.enter_context(publish.workspace(self.target))
        except (OSError, ValueError) as e:
            raise _unwritable(self.target, e) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._open:
            if kind is None and self._work != self.target.parent:
                self._publish()

    def _publish(self) -> None:
        try:
            names = sorted(p.name for p in self._work.iterdir())
            self.files = [self.target.with_name(n) for n in names]
            if self._check is not None:
                self._check(self.files)
            for file in self.files:
                _replaceable(file)
            if names:
                publish.publish(self._work, names, self.target)
        except OSError as e:
            raise _unwritable(self.target, e) from None


def _replaceable(final: Path) -> None:
    """OSError when something has the name that no file may replace; known before all is made, and before anything appears."""
    try:
        mode = os.lstat(final).st_mode  # once: another writer may take it away between two looks
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "a folder has this name")
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise OSError(errno.EINVAL, "not a regular file")


def _unwritable(path: Path, e: OSError | ValueError) -> WriteError:
    inside = publish.workspaces.get(path.parent)
    shown = path if inside is None else inside.target.with_name(path.name)
    return WriteError(Diagnostic("W301", f"cannot write: {getattr(e, 'strerror', None) or e}", where=Where(str(shown))))
