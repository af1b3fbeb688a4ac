"""Memory-mapped input files with checked slices, and the file location of a slice, so that the
system can copy unchanged bytes from file to file.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from converter.errors import Where, cannot_read, unreadable

# descriptor of a mapped file -> its map, address, size and path. Iterate over a copy: other threads
# map files, and the garbage collector removes entries.
_MAPS: dict[int, tuple[weakref.ref[mmap.mmap], int, int, Path]] = {}


class MappedFile:
    """A read-only mmap of one file; `slice` returns bounds-checked views that keep the map alive.

    `descriptor`: the file if it is already open; it is closed here.
    """

    def __init__(self, path: str | os.PathLike[str], descriptor: int | None = None) -> None:
        self.path = Path(path)
        try:
            # without O_NONBLOCK, opening a pipe would wait for its other end
            file = (
                os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                if descriptor is None
                else descriptor
            )
            try:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    raise OSError(errno.EINVAL, "this is not a regular file")
                self._bytes = np.frombuffer(
                    _map(file, self.path) if status.st_size else b"", np.uint8
                )  # an empty file cannot be mapped
            finally:
                os.close(file)
        except (OSError, ValueError) as e:
            raise cannot_read(path, e) from None

    def __len__(self) -> int:
        return int(self._bytes.size)

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """Return the whole file as uint8, not copied."""
        return self._bytes

    def slice(
        self, offset: int, size: int, where: Where | Callable[[], Where] | None = None
    ) -> npt.NDArray[np.uint8]:
        """Return `size` bytes from `offset` as a uint8 view. Raises ReadError R102 if they exceed
        the file. `where` may be a function that is called on an error only.
        """
        if offset < 0 or size < 0 or offset + size > len(self):
            place = where() if callable(where) else where or Where(str(self.path))
            raise unreadable(
                "R102",
                f"bytes {offset}..{offset + size} are outside {self.path.name}, "
                f"which has {len(self)} bytes",
                place,
            )
        return self._bytes[offset : offset + size]


def _map(descriptor: int, path: Path) -> mmap.mmap:
    made = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    own = os.dup(descriptor)
    _MAPS[own] = weakref.ref(made), _address(made), len(made), path
    weakref.finalize(made, _forget, own)
    return made


def _forget(descriptor: int) -> None:
    del _MAPS[descriptor]
    os.close(descriptor)


def _address(buffer: Any) -> int:
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


def copied(data: memoryview, target: int) -> int:
    """Copy `data` to the descriptor by a system call if it is a part of a mapped file; return the
    number of bytes copied, 0 if that is not possible.

    Nothing is mapped for this; mapping takes longer than copying.
    """
    if not hasattr(os, "copy_file_range") or not data.nbytes:
        return 0
    low = _address(data)
    for source, (_, start, size, _) in _MAPS.copy().items():
        if start <= low and low + data.nbytes <= start + size:
            with contextlib.suppress(
                OSError
            ):  # unsupported by the file system; an error of the target appears when writing
                return os.copy_file_range(source, target, data.nbytes, low - start)
    return 0


def file_offset_of(array: npt.NDArray[Any]) -> tuple[Path, int] | None:
    """Return the file and offset of a contiguous array that is a part of a mapped file, provided
    that its path still refers to that file; None for any other array.
    """
    if not array.flags.c_contiguous or not array.nbytes:
        return None
    low = array.__array_interface__["data"][0]
    for descriptor, (_, start, size, path) in _MAPS.copy().items():
        if start <= low and low + array.nbytes <= start + size:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                    return path.resolve(), low - start
    return None


def release() -> None:
    """Release the memory of all mapped pages; a page that is used again comes from the system's
    cache.
    """
    if hasattr(mmap, "MADV_DONTNEED"):
        for reference, *_ in _MAPS.copy().values():
            if (mapped := reference()) is not None:
                mapped.madvise(mmap.MADV_DONTNEED)
