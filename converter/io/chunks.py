"""Arrays into files, a piece at a time, in whatever order they lie in memory."""

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

SLAB = 1 << 22  # bytes that are made for writing at once
# bytes of one write; larger ones make Linux look for larger pages, which takes several times as
# long
_PIECE = 1 << 19
# bytes after which mapped pages are given back; a matrix that is turned is gone through for each
# slab
_RELEASE = 1 << 25
_LINE, _TILE, _FAR = (
    64,
    1 << 15,
    256,
)  # bytes of a cache line, of the first cache; distance of neighbours from which each costs a line


def slabs(array: npt.NDArray[Any], size: int = SLAB) -> Iterator[npt.NDArray[Any]]:
    """The array in C order in contiguous pieces; a permuted view is copied a few rows at a time,
    never whole.
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
    """A contiguous copy. Across the order of memory as many elements are taken at once as a cache
    line holds, of a matrix as many as stay in the first cache, packed in the order in which they
    lie there: several times faster.
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
    """The bytes of the elements in C order, as they are in memory; of a permuted view each piece is
    made while the one before is used.
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
    """Writes the elements in C order, as they are in memory; the number of bytes."""
    return sum(f.write(piece.data) for piece in _pieces(array))


class Sink(io.FileIO):
    """Writes piece by piece. In between the disk is set to work, so that little is left for the
    end, and the pages of mapped inputs are given back: weights that go by do not gather in memory.
    What is about to be written is told to `growth`, which may refuse it.
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
            ):  # of pages that are not yet on the disk, Linux begins to write them and keeps them
                with contextlib.suppress(OSError):  # it is advice
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
