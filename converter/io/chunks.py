"""Write arrays of any memory order to files, a chunk at a time."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from converter.io.growth import Growth
from converter.io.mapped_file import copied, release

SLAB = 1 << 22  # bytes that are prepared for writing at once
# bytes of one write; larger ones make Linux look for larger pages, which takes several times as
# long
_PIECE = 1 << 19
# bytes after which mapped pages are released; each slab of a transposed matrix reads all of it
_RELEASE = 1 << 25
_LINE, _TILE, _FAR = (
    64,
    1 << 15,
    256,
)  # bytes of a cache line, of the first cache; stride from which each element costs a line


def slabs(array: npt.NDArray[Any], size: int = SLAB) -> Iterator[npt.NDArray[Any]]:
    """Yield the array in C order in contiguous pieces; a permuted view is copied a few rows at a
    time, never as a whole.
    """
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
    """Return a contiguous copy. If the last axis has a large stride, blocks of it are copied: as
    many elements as a cache line holds or, for a matrix, as many as fit into the first-level cache,
    packed in memory order. This is several times faster.
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


def _pieces(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.uint8]]:
    """Return the bytes of the elements in C order, in native representation; each piece of a large
    permuted view is prepared while the previous one is used.
    """
    made = (
        slabs(array) if array.flags.c_contiguous or array.nbytes <= SLAB else _ahead(slabs(array))
    )
    return (slab.reshape(-1).view(np.uint8) for slab in made)


def _ahead(made: Iterator[npt.NDArray[Any]]) -> Iterator[npt.NDArray[Any]]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as worker:
        coming = worker.submit(next, made, None)
        while (piece := coming.result()) is not None:
            coming = worker.submit(next, made, None)
            yield piece


def write_array(f: BinaryIO, array: npt.NDArray[Any]) -> int:
    """Write the elements in C order, in native representation; return the number of bytes."""
    return sum(f.write(piece.data) for piece in _pieces(array))


class Sink(io.FileIO):
    """A file that is written piece by piece. It starts the transfer to the disk early, so that
    little is left for the end, and releases the pages of mapped inputs, so that weights that pass
    through do not accumulate in memory. `growth` is notified before each write and may reject it.
    """

    _waiting = _mapped = 0

    def __init__(self, path: Path, mode: str, growth: Growth | None = None) -> None:
        super().__init__(path, mode)
        self._growth = growth

    def write(self, data: Any) -> int:
        whole = memoryview(data)
        if self._growth is not None:
            self._growth.expect(whole.nbytes)
        written = copied(whole[:_RELEASE], self.fileno()) or super().write(whole[:_PIECE])
        if self._growth is not None:
            self._growth.add(written)
        self._waiting += written
        self._mapped += written
        if self._waiting >= SLAB:
            if hasattr(
                os, "posix_fadvise"
            ):  # for pages not yet on the disk, Linux starts the write-back and keeps them
                with contextlib.suppress(OSError):  # it is only advice
                    os.posix_fadvise(
                        self.fileno(),
                        self.tell() - self._waiting,
                        self._waiting,
                        os.POSIX_FADV_DONTNEED,
                    )
            self._waiting = 0
        if self._mapped >= _RELEASE:
            self._mapped = 0
            release()
        return written
