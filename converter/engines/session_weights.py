"""The large weights of an onnxruntime session.

onnxruntime copies weights that it receives as arrays, and maps those that it receives as locations
in a file. So weights of large models stay in the file that they were read from, or are written to a
temporary one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx

from converter.engines.file_child import import_onnxruntime
from converter.graph.infer import Array
from converter.io.mapped_file import file_offset_of, release

LARGE = 1 << 26  # bytes of weights from which a session must not hold them twice
MUCH = 1 << 20  # bytes of weights that are worth releasing
_FOLDER = "session.model_external_initializers_file_folder_path"


class Weights:
    """The weights of one session. `spool`: all of them are written to a temporary file.

    `lent` lists those that are passed as arrays (name, array); `keep` must live as long as the
    session.
    """

    def __init__(self, large: bool, spool: bool = False) -> None:
        self.large = large
        self.lent: list[tuple[str, Array]] = []
        self.keep: list[Any] = []
        self._folder: Path | None = None
        self._spool: IO[bytes] | None = None
        if large and spool:
            with contextlib.suppress(OSError):  # the disk is full: use arrays
                self._spool = tempfile.NamedTemporaryFile(prefix="netconv-", delete=False)  # noqa: SIM115
                self._folder = Path(self._spool.name).resolve().parent

    def proto(self, name: str, data_type: int, array: Array, parts: Iterable[Array]) -> Any:
        """Return the initializer. `array` has its type and shape; `parts` are its elements, flat,
        in sequence, and (without a spool) the same numbers as `array`.
        """
        proto = onnx.TensorProto(
            name=name,
            data_type=data_type,
            dims=array.shape,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        place = self._store(array, parts) if self.large else None
        if place is None:
            self.lent.append((name, np.require(_joined(array, parts), requirements=["C", "A"])))
            place = "in memory", 0
        for key, text in (("location", place[0]), ("offset", place[1]), ("length", array.nbytes)):
            proto.external_data.add(key=key, value=str(text))
        return proto

    def _store(self, array: Array, parts: Iterable[Array]) -> tuple[str, int] | None:
        """Return the file name in the folder, and the offset."""
        if self._spool is not None:
            start = self._spool.tell()
            for part in parts:
                self._spool.write(np.ascontiguousarray(part).data)
            return Path(self._spool.name).name, start
        found = file_offset_of(array)
        if found is None or self._folder not in (None, found[0].parent):
            return None
        self._folder = found[0].parent
        return found[0].name, found[1]

    def apply(self, options: Any) -> None:
        """Set the locations of the weights in a session's options."""
        onnxruntime = import_onnxruntime()

        if self._folder is not None:
            options.add_session_config_entry(_FOLDER, str(self._folder))
        if self.lent:
            names, arrays = zip(*self.lent, strict=True)
            self.keep = [arrays, [onnxruntime.OrtValue.ortvalue_from_numpy(a) for a in arrays]]
            options.add_external_initializers(list(names), self.keep[1])
        if self._spool is not None:
            self._spool.flush()

    def close(self) -> None:
        """Release resources after the session is created: the name of the temporary file, and the
        memory of mapped files that were read for it.
        """
        if self.large or sum(a.nbytes for _, a in self.lent) >= MUCH:
            release()
        if self._spool is not None:
            self._spool.close()
            with contextlib.suppress(OSError):
                os.unlink(self._spool.name)
            self._spool = None


def _joined(array: Array, parts: Iterable[Array]) -> Array:
    pieces = list(parts)
    if len(pieces) == 1 and pieces[0].size == array.size:
        return pieces[0].reshape(array.shape)
    return np.concatenate(pieces).reshape(array.shape) if pieces else array


def be_frugal(options: Any) -> None:
    """Use weights as they are, without a second, faster copy, and release memory after use."""
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.enable_cpu_mem_arena = False
