"""Every way in which netconv says no.

    ConverterError            base of every refusal; carries one or more diagnostics
    ├── UsageError            the call itself is wrong (unknown format, unused option)      exit 2
    ├── UnsupportedError      the model is fine, the target cannot express it              exit 3
    ├── ReadError             the input is unreadable or invalid                           exit 4
    ├── WriteError            the output could not be written                              exit 5
    └── NothingComparedError  a comparison that compared nothing                           exit 6

A user never sees a traceback for one of these; anything else that escapes is our bug (exit 70).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from converter.diagnostics import Diagnostic, Where


class ExitCode(enum.IntEnum):
    """Exit codes of the command line; the documented table is generated from this enum."""

    OK = 0, "done, nothing to report"
    FINDING = 1, "done, and there is a finding (differs, exceeds tolerance, a warning under --strict)"
    USAGE = 2, "usage or configuration"
    UNSUPPORTED = 3, "cannot be expressed in the target"
    UNREADABLE = 4, "input unreadable or invalid"
    UNWRITABLE = 5, "output could not be written"
    NOTHING_COMPARED = 6, "nothing was compared"
    BUG = 70, "a bug in netconv; the traceback is in a file"
    INTERRUPTED = 130, "interrupted, partial output removed"

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


class ConverterError(Exception):
    """A refusal: `diagnostics` says what, where and why; `exit_code` is what a shell sees."""

    exit_code = ExitCode.FINDING

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        super().__init__("\n".join(str(d) for d in self.diagnostics))

    def __reduce__(self) -> tuple[type[ConverterError], tuple[tuple[Diagnostic, ...]]]:
        return type(self), (self.diagnostics,)


class UsageError(ConverterError):
    exit_code = ExitCode.USAGE


class UnsupportedError(ConverterError):
    exit_code = ExitCode.UNSUPPORTED


class ReadError(ConverterError):
    exit_code = ExitCode.UNREADABLE


class WriteError(ConverterError):
    exit_code = ExitCode.UNWRITABLE


class NothingComparedError(ConverterError):
    exit_code = ExitCode.NOTHING_COMPARED


def unreadable(code: str, message: str, where: Where | None = None, help: str = "") -> ReadError:
    """A ReadError with one diagnostic: `raise unreadable("R102", "the weights file is missing", Where(path))`."""
    return ReadError(Diagnostic(code, message, where=where or Where(), help=help))
