"""Blob storage, version 2: weights in a separate file, each after 64 bytes that describe it.

At the offset that a value refers to: u32 0xDEADBEEF, u32 type, u64 size in bytes, u64 offset of the
data, u64 bits of padding. Elements of less than a byte are a bit stream, the least significant bit
first. Source: MILBlob, StorageFormat.hpp.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path
from typing import BinaryIO

import numpy as np

from converter.errors import Where, unreadable
from converter.graph.equal_weights import EqualWeights
from converter.graph.infer import Array
from converter.graph.lazy_tensor import LazyTensor
from converter.io.chunks import write_array
from converter.io.mapped_file import MappedFile

SENTINEL = 0xDEADBEEF
BITS = {25: 4, 35: 4, 36: 2, 37: 1, 38: 6, 39: 3}  # of types of less than a byte
_HEAD = 64  # bytes before each weight; its offset is a multiple of this
# types of the storage -> those of a program (MIL.proto, DataType)
TYPES = {
    **{1: 10, 2: 11, 3: 31, 4: 21, 5: 13, 6: 22, 7: 32, 8: 25, 9: 37, 10: 36, 11: 35, 12: 39},
    **{13: 38, 14: 23, 15: 33, 16: 40, 17: 41},
}


class Blobs:
    """The files of a model's weights, mapped on first use. `weights`: the file to use under any
    name, or the folder with all files. `package`: the package that contains `folder`, if any.
    """

    def __init__(
        self, folder: Path, weights: Path | None = None, package: Path | None = None
    ) -> None:
        self.folder, self.weights = folder, weights
        inside = package is not None and folder.is_relative_to(package)
        self.package = package if package is not None and inside else folder
        self._files: dict[str, MappedFile] = {}

    def open(self, name: str, where: Where) -> MappedFile:
        """Return the file that a value names, opened without following a link in the package."""
        from converter.formats.coreml.package import open_part_of

        path = self.path_of(name, where)
        if path == self.weights:
            return MappedFile(path)
        return open_part_of(self.package if self.weights is None else self.weights, path)

    def path_of(self, name: str, where: Where) -> Path:
        """Return the path of the file that a value names."""
        from converter.formats.coreml.package import inside

        relative = name.removeprefix("@model_path/")
        if self.weights is None:
            return inside(self.folder, relative, where)
        if self.weights.is_dir():
            return inside(self.weights, relative.rsplit("/", 1)[-1], where)
        if self._files:
            message = f"the model has a second weights file, {relative!r}"
            raise unreadable(
                "R102", message, where, "name the folder that contains both with --weights"
            )
        return self.weights

    def bytes(self, name: str, offset: int, dtype: int) -> Array:
        """Return the bytes of one blob, a view of the file; ReadError R102, R103 or R107."""
        where = Where(str(self.folder), path=name)
        if name not in self._files:
            self._files[name] = self.open(name, where)
        file = self._files[name]
        head = file.slice(offset, 64, where).tobytes()
        sentinel, kind, size, start = struct.unpack_from("<IIQQ", head)
        if sentinel != SENTINEL or TYPES.get(kind) != dtype:
            message = f"there is no weight of type {dtype} at offset {offset}"
            raise unreadable("R103", message, where)
        return np.asarray(file.slice(start, size, where))


class NewBlobs:
    """The weights file of a model that is written: offsets are assigned at once, contents are
    written at the end. Equal weights are stored once.
    """

    def __init__(self) -> None:
        self.tensors: list[tuple[int, LazyTensor]] = []
        self._places: dict[int, EqualWeights[int]] = defaultdict(EqualWeights)
        self._end = _HEAD

    def add(self, tensor: LazyTensor, dtype: int) -> int:
        """Return the offset that a value has to refer to; `dtype` is the program's."""
        return self._places[dtype].once(tensor, lambda: self._append(tensor, dtype))

    def _append(self, tensor: LazyTensor, dtype: int) -> int:
        offset = self._end + -self._end % _HEAD
        self.tensors.append((dtype, tensor))
        self._end = offset + _HEAD + tensor.length
        return offset

    def write(self, file: BinaryIO) -> None:
        """Write the storage: a head, and each tensor with its own head, aligned."""
        stored = {program: own for own, program in TYPES.items()}
        at = file.write(struct.pack("<II56x", len(self.tensors), 2))
        for dtype, tensor in self.tensors:
            at += file.write(bytes(-at % _HEAD))
            size, unused = tensor.length, -tensor.size * BITS.get(dtype, 8) % 8
            head = struct.pack("<IIQQQ32x", SENTINEL, stored[dtype], size, at + _HEAD, unused)
            at += file.write(head) + write_array(file, tensor.stored())
