"""Every way in which netconv says no. Diagnostics are values; text, JSON, SARIF and exit codes are
renderings of them.

    ConverterError            base of every refusal; carries one or more diagnostics
    ├── UsageError            the call itself is wrong (unknown format, unused option)      exit 2
    ├── UnsupportedError      the model is fine, the target cannot express it              exit 3
    ├── ReadError             the input is unreadable or invalid                           exit 4
    ├── WriteError            the output could not be written                              exit 5
    ├── NothingComparedError  a comparison that could not be made                          exit 6
    ├── TimeLimitError        it took longer than it was given                             exit 7
    └── MemoryLimitError      it needs more memory than it was given, or than there is     exit 8

A user never sees a traceback for one of these; anything else that escapes is our bug (exit 70).
"""

from __future__ import annotations

import enum
import os
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
    """Exit codes of the command line, with the word that a table of jobs has for each, and what it
    means. The documented table is generated from this enum.
    """

    OK = 0, "ok", "done, nothing to report"
    FINDING = (
        1,
        "differs",
        "done, and there is a finding (differs, exceeds tolerance, a warning under --strict)",
    )
    USAGE = 2, "wrong call", "usage or configuration"
    UNSUPPORTED = 3, "unsupported", "cannot be expressed in the target"
    UNREADABLE = 4, "unreadable", "input unreadable or invalid"
    UNWRITABLE = 5, "not written", "output could not be written"
    NOTHING_COMPARED = (
        6,
        "not compared",
        "could not be compared (nothing in common, or an engine cannot run a model)",
    )
    TIME_LIMIT = 7, "time limit", "took longer than its limit"
    MEMORY_LIMIT = 8, "memory limit", "needs more memory than its limit, or than there is"
    UNFELT = 9, "same outputs", "outputs are the same, but layers differ by themselves (verify)"
    BUG = 70, "crashed", "a bug in netconv; the traceback is in a file"
    INTERRUPTED = 130, "not run", "interrupted, partial output removed"

    status: str
    meaning: str

    def __new__(cls, value: int, status: str = "", meaning: str = "") -> ExitCode:
        member = int.__new__(cls, value)
        member._value_ = value
        member.status = status
        member.meaning = meaning
        return member


# the most severe first: what decides where there are several
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
# codes that say that the content of a file is invalid, and not only unknown to netconv
INVALID = frozenset({"R100", "R101", "R102", "R103", "R105", "R107", "R110", "R131"})


def most_severe(codes: Iterable[int]) -> ExitCode:
    """Return the first of SEVERITY that is among the codes; OK when there are none."""
    found = {ExitCode(c) for c in codes}
    return next((c for c in SEVERITY if c in found), ExitCode.OK)


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


class TimeLimitError(ConverterError):
    exit_code = ExitCode.TIME_LIMIT


class MemoryLimitError(ConverterError):
    exit_code = ExitCode.MEMORY_LIMIT


def refused_file(error: UnsupportedError) -> ConverterError:
    """Return what reading a file is refused with: a ReadError where a layer of it is invalid, else
    `error` itself.
    """
    invalid = any(d.level == "error" and d.code in INVALID for d in error.diagnostics)
    return ReadError(error.diagnostics) if invalid else error


def closest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The one of `names` that is spelled most like `name`, if one is at least `cutoff` (0 to 1)
    like it.
    """
    import difflib  # takes a millisecond that a conversion without faults need not wait

    return next(iter(difflib.get_close_matches(name, list(names), 1, cutoff)), None)


def did_you_mean(given: str, known: Iterable[str], otherwise: str = "") -> str:
    """The help for a name that is not known: the known one that it begins, or is spelled nearly
    like; else `otherwise`.
    """
    lower, asked = {n.lower(): n for n in known}, given.lower()
    longer = [n for n in lower if asked and n.startswith(asked)]
    close = min(longer, key=len) if longer else closest(asked, lower)
    return f"did you mean {lower[close]!r}?" if close else otherwise


Place = Where | str | os.PathLike[str]  # a place in a file, or the file


def wrong_call(message: str, help: str = "", where: Place = "", code: str = "U501") -> UsageError:
    """A UsageError with one diagnostic: `raise wrong_call("a folder needs a target")`."""
    return UsageError(_one(code, message, where, help))


def unreadable(code: str, message: str, where: Place = "", help: str = "") -> ReadError:
    """A ReadError with one diagnostic: `raise unreadable("R102", "the weights file is missing",
    path)`.
    """
    return ReadError(_one(code, message, where, help))


def unwritable(code: str, message: str, where: Place = "", help: str = "") -> WriteError:
    """A WriteError with one diagnostic."""
    return WriteError(_one(code, message, where, help))


def _one(code: str, message: str, where: Place, help: str) -> Diagnostic:
    place = where if isinstance(where, Where) else Where(os.fspath(where))
    return Diagnostic(code, message, where=place, help=help)


def cannot_read(where: Place, error: Exception) -> ReadError:
    """R100: the system says that a file cannot be read."""
    return unreadable("R100", f"cannot read: {_reason(error)}", where)


def cannot_write(where: Place, error: Exception, what: str = "", left: str = "") -> WriteError:
    """W301: the system says that a file cannot be written; `what` it is, and what is `left` where
    that is not what was there before.
    """
    message = f"cannot write{what}: {_reason(error)}" + (f"; {left}" if left else "")
    return unwritable("W301", message, where)


def output_exists(where: Place, what: str = "the output exists") -> WriteError:
    """W302: only --force overwrites it."""
    return unwritable("W302", what, where, "--force overwrites it")


def overwrites_input(where: Place) -> UsageError:
    """W302: the place of an output is that of an input."""
    return wrong_call("the output would overwrite the input", where=where, code="W302")


def _reason(error: Exception) -> object:
    """What the system says, without the number and the place that Python adds."""
    return getattr(error, "strerror", None) or error


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
