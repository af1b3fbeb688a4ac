"""Outputs that appear complete or not at all, and the names of side files."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from converter.errors import (
    ReadError,
    Where,
    WriteError,
    cannot_read,
    cannot_write,
    unreadable,
    unwritable,
)
from converter.io import atomic, growth
from converter.io.chunks import Sink, write_array
from converter.io.growth import size_text as size_text
from converter.io.mapped_file import MappedFile

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    import numpy.typing as npt

# bytes of small writes that are collected; a larger buffer takes parts of large writes, which then
# are copied twice
_BUFFER = 1 << 16
# flags to open a folder on the path to a file; O_PATH also works without the right to list it
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def side_file(model: Path, name: str, where: Where | None = None) -> Path:
    """Return the location of the side file that `model` refers to by `name`, whether or not it
    exists.

    It is searched next to the model; if the model is a link, next to the link's target and then
    next to the link. It must not leave the searched folder, neither by its name nor through a link
    (R107). The only exception is a link inside one Hugging Face cache: from a model in
    CACHE/snapshots/REVISION to a regular file directly in CACHE/blobs.
    """
    places = []
    try:
        for folder in dict.fromkeys((model.resolve().parent, model.parent.resolve())):
            place = (folder / name).resolve()
            inside = not os.path.isabs(name) and Path(
                os.path.normpath(folder / name)
            ).is_relative_to(folder)
            if not inside or not (place.is_relative_to(folder) or _in_cache(folder, place)):
                raise _outside(model, name, where)
            if os.path.lexists(place):
                return place
            places.append(place)
    except (
        OSError,
        ValueError,
        RuntimeError,
    ):  # an invalid file name: NUL, lone surrogates, a loop of links
        raise _outside(model, name, where) from None
    return places[0]


def open_side_file(model: Path, name: str, where: Where | None = None) -> MappedFile | None:
    """Open the side file that `model` refers to by `name`; return None if it is missing. Raises
    R107 if `side_file` rejects its location.
    """
    place = side_file(model, name, where)
    try:
        descriptor = _open_without_links(place)
    except OSError as e:
        if e.errno == errno.ELOOP:
            raise _outside(model, name, where) from None
        if e.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            return None
        raise cannot_read(where or place, e) from None
    return MappedFile(place, descriptor)


def _outside(model: Path, name: str, where: Where | None) -> ReadError:
    return unreadable(
        "R107",
        f"side file {name!r} lies outside the model's folder",
        where or model,
    )


def _in_cache(folder: Path, place: Path) -> bool:
    """Return whether a model in `folder` may refer to `place` as models in a cache of
    huggingface_hub do, where each file is a link to its content.
    """
    caches = (
        revision.parent.parent
        for revision in (folder, *folder.parents)
        if revision.parent.name == "snapshots"
    )
    return any(place.parent == cache / "blobs" for cache in caches) and (
        place.is_file() or not os.path.lexists(place)
    )


def in_cache(link: Path) -> bool:
    """Return whether a link in a snapshot of huggingface_hub leads to its content in the same
    cache.
    """
    try:
        return _in_cache(link.parent.resolve(), link.resolve())
    except (OSError, RuntimeError):
        return False


def sha256_of(file: Path | int) -> str:
    """Return the SHA-256 of a file, given its path or an open descriptor, in hexadecimal."""
    import hashlib

    with open(file, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def npz_files(path: Path) -> list[Path]:
    """Return the .npz files of a folder in order, or the path itself if it is not a folder."""
    return sorted(path.glob("*.npz")) if path.is_dir() else [path]


def open_part(folder: Path, name: str | Path) -> int:
    """Return a descriptor of a file below a folder. The folders between are opened one by one, so
    that the only links followed are those of a Hugging Face cache. Any other link raises
    OSError (ELOOP or ENOTDIR).
    """
    try:
        return _open_below(os.open(folder, _FOLDER & ~os.O_NOFOLLOW), Path(name).parts)
    except OSError as e:
        if e.errno not in (errno.ELOOP, errno.ENOTDIR) or not in_cache(folder / name):
            raise
        return _open_without_links((folder / name).resolve())


def _open_without_links(place: Path) -> int:
    """Open a resolved path one folder after the other, so that a link created since the path was
    checked is not followed.
    """
    return _open_below(os.open(place.anchor, _FOLDER), place.relative_to(place.anchor).parts)


def _open_below(folder: int, parts: Sequence[str]) -> int:
    """Open a file by its path components below an open folder; the folder is closed."""
    try:
        *folders, name = parts
        for part in folders:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
        )
    finally:
        os.close(folder)


class Output:
    """A set of files that is written to a temporary folder and appears at once, or not at all; see
    converter.io.atomic.

    >>> with Output("net.xml") as out:
    ...     with out.open(".xml") as f: ...
    ...     with out.open(".bin") as f: ...

    `open(suffix)` creates a file next to the target with the target's own stem; `open("")` creates
    the target itself. With `inside`, the target becomes a folder, and `inside` is the path of the
    file in it; missing folders are created. `check` receives the final paths of all files and
    folders before any of them appears, and may raise. A folder replaces another only if there is a
    `check`. An Output with the target `out.made` adds its files to this one.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        suffix: str = "",
        check: Callable[[Sequence[Path]], None] | None = None,
    ) -> None:
        self.target = Path(target)
        name = self.target.name
        self.stem = name[: -len(suffix)] if suffix and name.endswith(suffix) else self.target.stem
        self.files: list[Path] = []  # the final paths of all files, once they have appeared
        self._check = check
        self._open = contextlib.ExitStack()
        self._work = Path()
        self._threads: ThreadPoolExecutor | None = None
        self._jobs: list[Future[None]] = []
        self._over = False
        self._nested = self.target.parent in atomic.workspaces

    @property
    def made(self) -> Path:
        """Return the temporary path of the target."""
        return self._work / self.target.name

    def path(self, suffix: str) -> Path:
        """Return the path of the side file with a suffix, or that of the output for ""."""
        return self.target if not suffix else self.target.with_name(self.stem + suffix)

    def place(self, suffix: str) -> Path:
        """Return the final path of the file."""
        return _final(self.path(suffix))

    @contextlib.contextmanager
    def open(self, suffix: str = "", inside: str = "") -> Iterator[BinaryIO]:
        """Create a file that is synced to the disk when the Output ends."""
        final = self.path(suffix)
        made = self._work / final.name / inside
        try:
            if inside:
                made.parent.mkdir(parents=True, exist_ok=True)
            self._demand_replaceable(final, bool(inside))
            file = io.BufferedWriter(Sink(made, "xb", growth.of(self.target.parent)), _BUFFER)
        except (OSError, ValueError) as e:
            raise _unwritable(final, e) from None
        try:
            with contextlib.ExitStack() as unfinished:
                unfinished.enter_context(file)
                yield file
                file.flush()
                unfinished.pop_all()
        except OSError as e:
            raise _unwritable(final, e) from None
        self._meanwhile(_settle, file, final)

    def stream(self, suffix: str, pieces: Iterable[npt.NDArray[Any]]) -> None:
        """Write a new file of these arrays in the background."""
        self._meanwhile(self._stream, suffix, pieces)

    def _stream(self, suffix: str, pieces: Iterable[npt.NDArray[Any]]) -> None:
        with self.open(suffix) as f:
            for piece in pieces:
                if self._over:  # abandoned
                    return
                write_array(f, piece)

    def _meanwhile(self, work: Callable[..., None], *arguments: Any) -> None:
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(2)
        self._jobs.append(self._threads.submit(work, *arguments))

    def adopt(self, made: Path) -> None:
        """Take over a complete file or folder under its own name."""
        final = self.target.with_name(made.name)
        try:
            self._demand_replaceable(final, made.is_dir())
            place = self._work / made.name
            try:
                os.rename(made, place)
            except OSError:  # another file system
                import shutil

                (shutil.copytree if made.is_dir() else shutil.copyfile)(made, place)
            for file in [p for p in place.rglob("*") if p.is_file()] or [place]:
                with open(file, "rb") as f:
                    os.fsync(f.fileno())
        except OSError as e:
            raise _unwritable(final, e) from None

    def _demand_replaceable(self, final: Path, folder: bool) -> None:
        """Raise OSError if the name is taken by something that no file, or no folder, may replace,
        before the output is written.
        """
        try:  # only one call: another writer may remove it between two
            mode = os.lstat(final).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISDIR(mode) and not (folder and (self._check is not None or self._nested)):
            raise OSError(errno.EISDIR, "a folder has this name")
        if folder and not stat.S_ISDIR(mode):
            raise OSError(errno.ENOTDIR, "a file or a link has this name")
        if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode) and not stat.S_ISDIR(mode):
            raise OSError(errno.EINVAL, "this is not a regular file")

    def __enter__(self) -> Output:
        if self._nested:
            self._work = self.target.parent
            return self
        try:
            self._work = self._open.enter_context(atomic.workspace(self.target))
        except (OSError, ValueError) as e:
            raise _unwritable(self.target, e) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with self._open:
            try:
                if kind is None:
                    for job in self._jobs:  # a finished file adds a job
                        job.result()
            finally:
                self._over = True
                if self._threads is not None:
                    with atomic.uninterrupted():
                        self._threads.shutdown()
            if kind is None and not self._nested:
                self._publish()

    def _publish(self) -> None:
        try:
            names = sorted(p.name for p in self._work.iterdir())
            self.files = [self.target.with_name(n) for n in names]
            if self._check is not None:
                self._check(self.files)
            for file in self.files:
                self._demand_replaceable(file, (self._work / file.name).is_dir())
            if names:
                atomic.publish(self._work, names, self.target)
        except atomic.NotRestoredError as e:
            raise cannot_write(self.target, e, "", _not_restored(e, self.target)) from None
        except atomic.NotSyncedError as e:
            raise _not_synced(self.target, e) from None
        except OSError as e:
            raise _unwritable(self.target, e) from None


def _settle(file: BinaryIO, final: Path) -> None:
    try:
        with file:
            os.fsync(file.fileno())
    except OSError as e:
        raise _unwritable(final, e) from None


def _unwritable(path: Path, e: OSError | ValueError) -> WriteError:
    return cannot_write(_final(path), e)


def _not_restored(e: atomic.NotRestoredError, target: Path) -> str:
    if e.old is None:
        return (
            "files already put in place could not be removed; the other files "
            f"are in {e.workspace}, and the next read or write of {target.name} "
            "by netconv restores them"
        )
    return (
        "the old files could not be restored: those missing from their folder "
        f"are in {e.old}, the new ones in {e.workspace}; the next read or write "
        f"of {target.name} by netconv completes one of the two sets"
    )


def _not_synced(target: Path, e: OSError) -> WriteError:
    message = (
        f"the new files are complete and in place, but syncing the folder failed: {e.strerror}"
    )
    return unwritable("W301", message, target, "the old files may reappear after a power failure")


def _final(path: Path) -> Path:
    """Return the final path of a file that is written to a workspace."""
    inside = atomic.workspaces.get(path.parent)
    return path if inside is None else inside.target.with_name(path.name)
