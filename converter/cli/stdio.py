"""The three standard streams, of which any may be closed, full, or without a reader.

A closed one is replaced by a descriptor of its own, so that no file that is opened later gets its
number. What cannot be written to standard output is lost without stopping the command; the exit
code says so in the end.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any

# a closed standard input or output stays one that cannot be read or written
_CLOSED = {0: os.O_WRONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}


class _Forgiving(io.FileIO):
    """Writes as long as that works; the first error is kept, and everything after it dropped."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            while self.error is None:
                written = super().write(data)
                if written is not None:
                    return written
                select.select([], [self], [])  # a pipe that does not block, and is full for now
        except OSError as e:
            self.error = e
        return memoryview(data).nbytes


def prepare() -> None:
    """Arrange the streams of this process; once, before anything is opened or printed."""
    for number, flags in _CLOSED.items():
        try:
            os.fstat(number)
        except OSError:
            made = os.open(os.devnull, flags)  # the lowest number that is free
            if made != number:
                os.dup2(made, number)
                os.close(made)
            os.set_inheritable(number, True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - it stays
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(1, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(2, sys.stderr)


def _stream(number: int, before: Any) -> io.TextIOWrapper:
    """A text stream like the one that Python made, which is None for a closed descriptor."""
    if before is not None:
        before.flush()
    strict = before is None or before.errors == "strict"
    return io.TextIOWrapper(
        io.BufferedWriter(_Forgiving(number, "w", closefd=False)),
        encoding="utf-8" if before is None else before.encoding,
        errors="backslashreplace" if strict else before.errors,
        line_buffering=before is not None and before.line_buffering,
        write_through=before is None or before.write_through,
    )


def lost() -> OSError | None:
    """Return the error because of which standard output is incomplete, after flushing it."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.error if isinstance(raw, _Forgiving) else None
