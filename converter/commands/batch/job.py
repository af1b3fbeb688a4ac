"""One job, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from converter.errors import ConverterError, Diagnostic, ExitCode
from converter.io.strict_json import Json

ACTIONS = ("convert", "check", "roundtrip")
Outcome = dict[
    str, Any
]  # exit_code, diagnostics, files; and by action: coverage, structure, numbers, roundtrip

# outcomes that depend on nothing but the job's key; the others (limits, crashes, a full disk) are
# tried again by the next run
FINAL = {
    ExitCode.OK,
    ExitCode.FINDING,
    ExitCode.USAGE,
    ExitCode.UNSUPPORTED,
    ExitCode.UNREADABLE,
    ExitCode.NOTHING_COMPARED,
    ExitCode.UNFELT,
}


@dataclass(frozen=True)
class Job:
    """`source` and `output` are paths or URLs. `timeout` in seconds and `memory` in bytes are
    limits, 0: none.
    """

    id: str
    action: str
    source: str
    target: str
    output: str = ""
    options: Json = field(default_factory=dict)
    timeout: float = 0
    memory: int = 0

    @property
    def shown(self) -> str:
        """What reports call the source: as its id does."""
        return self.id.rsplit(" -> ", 1)[0]


@dataclass(frozen=True)
class Done:
    """A job's outcome; `seconds` and `attempts` are about this run only, `kept` says that an
    earlier run did it.
    """

    job: Job
    outcome: Outcome
    seconds: float = 0
    attempts: int = 1
    kept: bool = False

    @property
    def code(self) -> ExitCode:
        return ExitCode(self.outcome["exit_code"])

    @property
    def status(self) -> str:
        return self.code.status


def is_outcome(data: Any) -> bool:
    """Whether data that was stored can be what a job made."""
    if not isinstance(data, dict) or data.get("exit_code") not in {int(c) for c in ExitCode}:
        return False
    files, diagnostics = data.get("files"), data.get("diagnostics")
    named = isinstance(files, dict) and all(
        isinstance(f, dict) and {"sha256", "bytes"} <= f.keys() and "/" not in n
        for n, f in files.items()
    )
    said = isinstance(diagnostics, list) and all(
        isinstance(d, dict) and {"code", "message", "level", "where"} <= d.keys()
        for d in diagnostics
    )
    return named and said


def outcome(code: ExitCode, *diagnostics: Diagnostic, **more: Any) -> Outcome:
    """What became of a job that has no files yet; `more` are other parts of its outcome."""
    said = [d.as_json() for d in diagnostics]
    return {"exit_code": int(code), "diagnostics": said, "files": {}, **more}


def refused(error: ConverterError) -> Outcome:
    """The outcome that a refusal is."""
    return outcome(error.exit_code, *error.diagnostics)
