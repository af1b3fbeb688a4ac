"""The three standard streams, any of which may be closed, full, or without a reader.

A closed stream gets a descriptor of its own, so that no file that is opened later gets its number.
If writing to standard output fails, the output is lost without stopping the command, and the final
exit code reports it.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any

# a closed standard input or output remains unreadable or unwritable
_CLOSED = {0: os.O_WRONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}


class _Forgiving(io.FileIO):
    """A stream that stores the first error of writing, and discards everything after it."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            while self.error is None:
                written = super().write(data)
                if written is not None:
                    return written
                select.select([], [self], [])  # a non-blocking pipe that is full at the moment
        except OSError as e:
            self.error = e
        return memoryview(data).nbytes


def prepare() -> None:
    """Set up the streams of this process; called once, before any file is opened or text
    printed.
    """
    for number, flags in _CLOSED.items():
        try:
            os.fstat(number)
        except OSError:
            made = os.open(os.devnull, flags)  # the lowest free number
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
    """Return a text stream like Python's own, which is None for a closed descriptor."""
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
    """Flush standard output and return the error that made it incomplete, if any."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.error if isinstance(raw, _Forgiving) else None
