"""Every way in which netconv says no. Diagnostics are values; text, JSON, SARIF and exit codes are
renderings of them.

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
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Level = Literal["error", "warning", "note"]
LONGEST = (
    1000  # characters of one text; what a hostile file makes longer is shortened in the middle
)


def _shortened(text: str) -> str:
    return (
        text
        if len(text) <= LONGEST
        else f"{text[: LONGEST // 2]}... ({len(text)} characters) ...{text[-LONGEST // 4 :]}"
    )


@dataclass(frozen=True)
class Where:
    """A place in a file: whatever of it is known.

    `line` counts from 1; `path` is a protobuf or JSON path such as
    `neuralNetwork.layers[87].upsample.mode`.
    """

    file: str = ""
    line: int = 0
    path: str = ""
    layer: str = ""
    kind: str = ""

    def __post_init__(self) -> None:
        for name, text in (("path", self.path), ("layer", self.layer), ("kind", self.kind)):
            if len(text) > LONGEST:
                object.__setattr__(self, name, _shortened(text))

    def __str__(self) -> str:
        parts = [
            f"{self.file}:{self.line}"
            if self.file and self.line
            else self.file or (f"line {self.line}" if self.line else "")
        ]
        parts.append(self.path)
        if self.layer or self.kind:
            parts.append(f'layer "{self.layer}"' + (f" ({self.kind})" if self.kind else ""))
        return "  ".join(p for p in parts if p)


@dataclass(frozen=True)
class Diagnostic:
    """One finding: what (`code`, `message`), where, the evidence for it, and what to do about
    it.
    """

    code: str
    message: str
    level: Level = "error"
    where: Where = field(default_factory=Where)
    evidence: tuple[str, ...] = ()
    help: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", _shortened(self.message))
        object.__setattr__(self, "help", _shortened(self.help))
        object.__setattr__(self, "evidence", tuple(_shortened(e) for e in self.evidence))

    def __str__(self) -> str:
        place = str(self.where)
        return (
            f"{self.level}[{self.code}] {self.message}"
            + (f" at {place}" if place else "")
            + (f" (help: {self.help})" if self.help else "")
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def in_file(diagnostics: Iterable[Diagnostic], file: str) -> tuple[Diagnostic, ...]:
    """The diagnostics with `file` where they name a layer, a line or a path but no file."""
    return tuple(
        replace(d, where=replace(d.where, file=file))
        if d.where != Where() and not d.where.file
        else d
        for d in diagnostics
    )


class ExitCode(enum.IntEnum):
    """Exit codes of the command line; the documented table is generated from this enum."""

    OK = 0, "done, nothing to report"
    FINDING = (
        1,
        "done, and there is a finding (differs, exceeds tolerance, a warning under --strict)",
    )
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
        self.diagnostics: tuple[Diagnostic, ...] = (
            (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        )
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
    """A ReadError with one diagnostic: `raise unreadable("R102", "the weights file is missing",
    Where(path))`.
    """
    return ReadError(Diagnostic(code, message, where=where or Where(), help=help))


class MappingError(Exception):
    """A row or a converter that cannot carry a layer across, and why. `code` is the diagnostic's.

    `not_meant`: a condition of the row says that the layer is none of its own; reasons of other
    rows tell more. `choice`: key, found value and the value that the row is for, where that is the
    condition.
    """

    def __init__(self, message: str, code: str = "X202", help: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.help = help
        self.not_meant = False
        self.choice: tuple[str, str, Any] | None = None


def not_meant(message: str, code: str = "X202") -> MappingError:
    """The error of a field by which a row is told from others."""
    error = MappingError(message, code)
    error.not_meant = True
    return error
