"""All errors that netconv reports. Diagnostics are values; text, JSON, SARIF and exit codes are
renderings of them.

    ConverterError            base of every refusal; carries one or more diagnostics
    ├── UsageError            the call itself is wrong (unknown format, unused option)      exit 2
    ├── UnsupportedError      the model is fine, the target cannot express it              exit 3
    ├── ReadError             the input is unreadable or invalid                           exit 4
    ├── WriteError            the output could not be written                              exit 5
    ├── NothingComparedError  the comparison could not be made                             exit 6
    ├── TimeLimitError        the time limit was exceeded                                  exit 7
    └── MemoryLimitError      the memory limit, or the available memory, was exceeded      exit 8

A user never sees a traceback for one of these; anything else that escapes is our bug (exit 70).
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable
from dataclasses import asdict, field, replace
from typing import Any, Literal

from converter.record import comparable

Level = Literal["error", "warning", "note"]
LONGEST = (
    1000  # characters of one text; longer ones, as of hostile files, are shortened in the middle
)


def _shortened(text: str) -> str:
    return (
        text
        if len(text) <= LONGEST
        else f"{text[: LONGEST // 2]}... ({len(text)} characters) ...{text[-LONGEST // 4 :]}"
    )


@comparable
class Where:
    """A location in a file, as far as it is known.

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


@comparable
class Diagnostic:
    """One finding: the problem (`code`, `message`), its location, the evidence and the remedy."""

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
        """Return the diagnostic as plain data."""
        return asdict(self)


def in_file(diagnostics: Iterable[Diagnostic], file: str) -> tuple[Diagnostic, ...]:
    """Return the diagnostics with `file` added where they name a layer, a line or a path but no
    file.
    """
    return tuple(
        replace(d, where=replace(d.where, file=file))
        if d.where != Where() and not d.where.file
        else d
        for d in diagnostics
    )


class ExitCode(enum.IntEnum):
    """Exit codes of the command line, with their names in a table of jobs and their meanings. The
    documented table is generated from this enum.
    """

    OK = 0, "ok", "done, nothing to report"
    FINDING = (
        1,
        "differs",
        (
            "done, and there is a finding (a difference, an exceeded tolerance, a "
            "warning under --strict)"
        ),
    )
    USAGE = 2, "wrong call", "usage or configuration"
    UNSUPPORTED = 3, "unsupported", "the target does not support the model"
    UNREADABLE = 4, "unreadable", "the input is unreadable or invalid"
    UNWRITABLE = 5, "not written", "the output could not be written"
    NOTHING_COMPARED = (
        6,
        "could not compare",
        ("the models could not be compared (nothing in common, or an engine cannot run one)"),
    )
    TIME_LIMIT = 7, "time limit", "the run exceeded its time limit"
    MEMORY_LIMIT = 8, "memory limit", "the run exceeded its memory limit, or the available memory"
    UNFELT = 9, "hidden difference", "outputs are equal, but layers differ (verify)"
    BUG = 70, "crashed", "a bug in netconv; the traceback is in a file"
    INTERRUPTED = 130, "not run", "interrupted; partial output was removed"

    status: str
    meaning: str

    def __new__(cls, value: int, status: str = "", meaning: str = "") -> ExitCode:
        member = int.__new__(cls, value)
        member._value_ = value
        member.status = status
        member.meaning = meaning
        return member


# the most severe first: of several codes, the first in this order is the exit code
SEVERITY = (
    ExitCode.BUG,
    ExitCode.INTERRUPTED,
    ExitCode.UNWRITABLE,
    ExitCode.USAGE,
    ExitCode.UNREADABLE,
    ExitCode.UNSUPPORTED,
    ExitCode.TIME_LIMIT,
    ExitCode.MEMORY_LIMIT,
    ExitCode.NOTHING_COMPARED,
    ExitCode.FINDING,
    ExitCode.UNFELT,
    ExitCode.OK,
)
# codes for invalid content of a file, as opposed to content that netconv does not know
INVALID = frozenset({"R100", "R101", "R102", "R103", "R105", "R107", "R110", "R131"})


def most_severe(codes: Iterable[int]) -> ExitCode:
    """Return the first of SEVERITY that is among the codes; OK when there are none."""
    found = {ExitCode(c) for c in codes}
    return next((c for c in SEVERITY if c in found), ExitCode.OK)


class ConverterError(Exception):
    """A refusal: `diagnostics` give the problem, the location and the reason; `exit_code` is the
    exit code of the process.
    """

    exit_code = ExitCode.FINDING

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = (
            (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        )
        super().__init__("\n".join(str(d) for d in self.diagnostics))

    @property
    def message(self) -> str:
        """Return the message of the first diagnostic."""
        return self.diagnostics[0].message if self.diagnostics else ""

    def __reduce__(self) -> tuple[type[ConverterError], tuple[tuple[Diagnostic, ...]]]:
        return type(self), (self.diagnostics,)


class UsageError(ConverterError):
    """The call is wrong: an unknown option, value or name."""

    exit_code = ExitCode.USAGE


class UnsupportedError(ConverterError):
    """The model cannot be converted, or an engine cannot run it."""

    exit_code = ExitCode.UNSUPPORTED


class ReadError(ConverterError):
    """A file cannot be read, or is not valid."""

    exit_code = ExitCode.UNREADABLE


class WriteError(ConverterError):
    """A file cannot be written."""

    exit_code = ExitCode.UNWRITABLE


class NothingComparedError(ConverterError):
    """A comparison found nothing to compare."""

    exit_code = ExitCode.NOTHING_COMPARED


class TimeLimitError(ConverterError):
    """A run exceeded its time limit."""

    exit_code = ExitCode.TIME_LIMIT


class MemoryLimitError(ConverterError):
    """A run exceeded its memory limit."""

    exit_code = ExitCode.MEMORY_LIMIT


class UnreadableFileError(ReadError, OSError):
    """A ReadError for programs, which also catch it as an OSError."""


class MissingFileError(UnreadableFileError, FileNotFoundError):
    """A ReadError for a file that is not there."""


class UnwritableFileError(WriteError, OSError):
    """A WriteError for programs, which also catch it as an OSError."""


class WrongCallError(UsageError, ValueError):
    """A UsageError for programs, which also catch it as a ValueError."""


class NetconvWarning(UserWarning):
    """A warning about a conversion: something that the result lacks, or has in another form."""


def python_error(error: ConverterError) -> ConverterError:
    """Return an error that is also one of Python's own classes, where there is a fitting one.

    Inside netconv only the plain classes are raised: `except OSError` there means the system.
    """
    if type(error) is ReadError:
        files = [d.where.file for d in error.diagnostics if d.code == "R100"]
        absent = any(f and not os.path.lexists(f) for f in files)
        return (MissingFileError if absent else UnreadableFileError)(error.diagnostics)
    if type(error) is WriteError:
        return UnwritableFileError(error.diagnostics)
    return WrongCallError(error.diagnostics) if type(error) is UsageError else error


def refused_file(error: UnsupportedError) -> ConverterError:
    """Return the error for a file that cannot be read: a ReadError if one of its layers is invalid,
    else `error` itself.
    """
    invalid = any(d.level == "error" and d.code in INVALID for d in error.diagnostics)
    return ReadError(error.diagnostics) if invalid else error


def closest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar of `names` if its similarity to `name` is at least `cutoff`
    (0 to 1).
    """
    import difflib  # takes a millisecond, which conversions without errors save

    return next(iter(difflib.get_close_matches(name, list(names), 1, cutoff)), None)


def counted(number: int, noun: str) -> str:
    """Return "1 layer", "2 layers"."""
    return f"{number} {noun}" + "s" * (number != 1)


def did_you_mean(given: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the help for an unknown name: a known name that it is a prefix of, or that is spelled
    similarly; else `otherwise`.
    """
    lower, asked = {n.lower(): n for n in known}, given.lower()
    longer = [n for n in lower if asked and n.startswith(asked)]
    close = min(longer, key=len) if longer else closest(asked, lower)
    return f"perhaps you meant {lower[close]!r}" if close else otherwise


Place = Where | str | os.PathLike[str]  # a location in a file, or the file


def wrong_call(message: str, help: str = "", where: Place = "", code: str = "U501") -> UsageError:
    """Return a UsageError with one diagnostic: `raise wrong_call("a folder needs a target")`."""
    return UsageError(_one(code, message, where, help))


def unreadable(code: str, message: str, where: Place = "", help: str = "") -> ReadError:
    """Return a ReadError with one diagnostic: `raise unreadable("R102", "the weights file is
    missing", path)`.
    """
    return ReadError(_one(code, message, where, help))


def unwritable(code: str, message: str, where: Place = "", help: str = "") -> WriteError:
    """Return a WriteError with one diagnostic."""
    return WriteError(_one(code, message, where, help))


def _one(code: str, message: str, where: Place, help: str) -> Diagnostic:
    place = where if isinstance(where, Where) else Where(os.fspath(where))
    return Diagnostic(code, message, where=place, help=help)


def cannot_read(where: Place, error: Exception, help: str = "") -> ReadError:
    """Return R100: the system reports that a file cannot be read."""
    return unreadable("R100", f"cannot read: {_reason(error)}", where, help)


def cannot_write(where: Place, error: Exception, what: str = "", left: str = "") -> WriteError:
    """Return W301: the system reports that a file cannot be written. `what` names the file in the
    message; `left` describes the files that remain if they are not those from before.
    """
    message = f"cannot write{what}: {_reason(error)}" + (f"; {left}" if left else "")
    folder = os.path.dirname(where.file if isinstance(where, Where) else os.fspath(where))
    absent = isinstance(error, FileNotFoundError) and folder and not os.path.isdir(folder)
    return unwritable("W301", message, where, f"make the folder {folder!r} first" if absent else "")


def output_exists(where: Place, what: str = "the output exists") -> WriteError:
    """Return W302: the output exists, and only --force overwrites it."""
    return unwritable("W302", what, where, "use --force to overwrite it")


def overwrites_input(where: Place) -> UsageError:
    """Return W302: the output has the same path as an input."""
    message, help = "the output would overwrite the input", "give the output another name"
    return wrong_call(message, help=help, where=where, code="W302")


def _reason(error: Exception) -> object:
    """Return the system's message, without the number and the path that Python adds."""
    return getattr(error, "strerror", None) or error


class MappingError(Exception):
    """The reason why a row or a converter cannot convert a layer. `code` is the diagnostic's.

    `no_match`: a condition of the row shows that it is for other layers, so that the reasons of
    other rows are more helpful. `choice`: key, actual value and the row's value, if that is the
    condition.
    """

    def __init__(self, message: str, code: str = "X202", help: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.help = help
        self.no_match = False
        self.choice: tuple[str, str, Any] | None = None


def no_match(message: str, code: str = "X202") -> MappingError:
    """Return the error of a field that selects the row for a layer."""
    error = MappingError(message, code)
    error.no_match = True
    return error
