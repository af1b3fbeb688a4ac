"""The sections of MLIR bytecode, as far as weights need them: where the bytes of resources lie, and
how a file gets other bytes without its program being read.

https://mlir.llvm.org/docs/BytecodeFormat/ describes the file: a magic number, a version, the name
of the producer, and sections. Numbers are prefix-encoded: the trailing zero bits of the first byte
count the bytes that follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from converter.errors import unreadable
from converter.graph.lazy_tensor import LazyTensor
from converter.io.chunks import write_array

MAGIC = b"ML\xefR"
STRINGS, RESOURCES, RESOURCE_OFFSETS = 0, 5, 6
ALIGNMENT = 16  # of the bytes of a resource; small files have no larger alignment in memory
PADDING = 0xCB
_BLOB = 0  # the kind of a resource that is bytes
Bytes = npt.NDArray[np.uint8]


class Cursor:
    """A position in bytes that are read in order; raise ReadError R103 beyond their end."""

    def __init__(self, data: Bytes, start: int, end: int, path: str) -> None:
        self.data, self.at, self.end, self.path = data, start, end, path

    def damaged(self) -> Exception:
        """Return the error of a damaged file, R103."""
        return unreadable("R103", "the MLIR bytecode is damaged", self.path)

    def take(self, count: int) -> Bytes:
        """Take bytes. Raises ReadError R103 beyond the end."""
        if count < 0 or self.at + count > self.end:
            raise self.damaged()
        self.at += count
        return self.data[self.at - count : self.at]

    def byte(self) -> int:
        """Take one byte."""
        return int(self.take(1)[0])

    def number(self) -> int:
        """Take an integer of variable length, as MLIR's bytecode encodes it."""
        first = self.byte()
        if first & 1:
            return first >> 1
        if not first:
            return int.from_bytes(self.take(8).tobytes(), "little")
        more = (first & -first).bit_length() - 1
        whole = first | int.from_bytes(self.take(more).tobytes(), "little") << 8
        return whole >> (more + 1)

    def align(self, to: int) -> None:
        """Skip bytes up to a multiple of `to`. Raises ReadError R103."""
        if not 0 < to <= 1 << 30:
            raise self.damaged()
        self.take(-self.at % to)


@dataclass(frozen=True)
class Section:
    """One section: its number, the alignment that its header demands (0: none), and its bytes."""

    number: int
    alignment: int
    start: int
    end: int


@dataclass(frozen=True)
class Resource:
    """A named resource; `size` bytes in its section, of which `data` (start, length) are those of
    the tensor.
    """

    name: str
    size: int
    data: tuple[int, int]


class Bytecode:
    """A file of MLIR bytecode; its sections begin at `front`."""

    def __init__(self, data: Bytes, path: str) -> None:
        self.data, self.path = data, path
        if data[:4].tobytes() != MAGIC:
            raise unreadable(
                "R103", "main.mlirb is not MLIR bytecode: its first bytes are different", path
            )
        cursor = Cursor(data, 4, len(data), path)
        self.version = cursor.number()
        while cursor.byte():  # the producer
            pass
        self.front = cursor.at
        self.sections = list(self._sections(cursor))

    def _sections(self, cursor: Cursor) -> Iterator[Section]:
        while cursor.at < cursor.end:
            head, length, alignment = cursor.byte(), cursor.number(), 0
            if head & 0x80:
                alignment = cursor.number()
                cursor.align(alignment)
            start = cursor.at
            cursor.take(length)
            yield Section(head & 0x7F, alignment, start, cursor.at)

    def section(self, number: int) -> Cursor | None:
        """Return a cursor over a section, or None if the file does not have it."""
        for s in self.sections:
            if s.number == number:
                return Cursor(self.data, s.start, s.end, self.path)
        return None

    def strings(self) -> list[str]:
        """Return the strings, whose sizes with a final NUL are stored in reverse order."""
        cursor = self.section(STRINGS)
        if cursor is None:
            return []
        count = cursor.number()
        if count > cursor.end - cursor.at:
            raise cursor.damaged()
        sizes = [cursor.number() for _ in range(count)][::-1]
        return [cursor.take(n).tobytes()[:-1].decode(errors="replace") for n in sizes]

    def groups(self) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
        """The key of each group of resources, and its entries: name, size, kind."""
        cursor = self.section(RESOURCE_OFFSETS)
        if cursor is None:
            return
        cursor.number()  # the number of groups without dialect; these come first
        while cursor.at < cursor.end:
            key, count = cursor.number(), cursor.number()
            if count > cursor.end - cursor.at:
                raise cursor.damaged()
            entries = ((cursor.number(), cursor.number(), cursor.byte()) for _ in range(count))
            yield key, list(entries)

    def resources(self) -> dict[str, Resource]:
        """Return the resources that are bytes, by their names."""
        names, content = self.strings(), self.section(RESOURCES)
        found: dict[str, Resource] = {}
        for _, entries in self.groups():
            for name, size, kind in entries:
                if content is None or name >= len(names):
                    raise Cursor(self.data, 0, 0, self.path).damaged()
                start = content.at
                content.take(size)
                if kind == _BLOB:
                    inner = Cursor(self.data, start, content.at, self.path)
                    alignment, length = inner.number(), inner.number()
                    inner.align(alignment)
                    inner.take(length)
                    data = (inner.at - length, length)
                    found[names[name]] = Resource(names[name], size, data)
        return found

    def write(self, file: BinaryIO, tensors: Mapping[str, LazyTensor]) -> None:
        """Write the file with the bytes of `tensors` as its resources, one after the other at their
        offsets; the rest of it is unchanged.
        """
        names = self.strings()
        order = [[tensors[names[n]] for n, *_ in entries] for _, entries in self.groups()]
        heads = list(_heads([tensor for group in order for tensor in group]))
        out = _Counted(file)
        out.write(self.data[: self.front])
        for s in self.sections:
            if s.number == RESOURCES:
                out.section(RESOURCES, sum(len(h) + t.length for h, t in heads), ALIGNMENT)
                for head, tensor in heads:
                    out.write(head)
                    write_array(out.file, tensor.stored())
                    out.at += tensor.length
            elif s.number == RESOURCE_OFFSETS:
                self._write_offsets(out, s, [len(h) + t.length for h, t in heads])
            else:
                out.section(s.number, s.end - s.start, s.alignment)
                out.write(self.data[s.start : s.end])

    def _write_offsets(self, out: _Counted, s: Section, sizes: Sequence[int]) -> None:
        left = iter(sizes)
        count = Cursor(self.data, s.start, s.end, self.path).number()
        made = bytearray(number(count))
        for key, entries in self.groups():
            made += number(key) + number(len(entries))
            for name, _, kind in entries:
                made += number(name) + number(next(left)) + bytes([kind])
        out.section(RESOURCE_OFFSETS, len(made), 0)
        out.write(made)


class _Counted:
    """A file whose position is counted, since alignments refer to the position in the file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.at = file, 0

    def write(self, data: bytes | bytearray | Bytes) -> None:
        self.file.write(data if isinstance(data, bytes | bytearray) else data.data)
        self.at += len(data)

    def pad(self, to: int) -> None:
        self.write(bytes([PADDING]) * (-self.at % to))

    def section(self, number_: int, length: int, alignment: int) -> None:
        self.write(bytes([number_ | (0x80 if alignment else 0)]) + number(length))
        if alignment:
            self.write(number(alignment))
            self.pad(alignment)


def number(value: int) -> bytes:
    """Return a number in the prefix encoding."""
    for count in range(1, 9):
        if value < 1 << 7 * count:
            return ((value << count) | 1 << (count - 1)).to_bytes(count, "little")
    return b"\0" + value.to_bytes(8, "little")


def _heads(tensors: Sequence[LazyTensor]) -> Iterator[tuple[bytes, LazyTensor]]:
    """Yield the bytes before each resource: alignment, length, and the padding before its data."""
    at = 0
    for tensor in tensors:
        head = number(ALIGNMENT) + number(tensor.length)
        head += bytes([PADDING]) * (-(at + len(head)) % ALIGNMENT)
        yield head, tensor
        at += len(head) + tensor.length
