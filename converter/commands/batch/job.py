"""One job, and its outcome."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any

from converter.errors import ConverterError, Diagnostic, ExitCode
from converter.io.strict_json import Json, has_form

ACTIONS = ("convert", "check", "roundtrip", "quantize")
WRITING = ("convert", "quantize")  # actions with a result
Outcome = dict[
    str, Any
]  # exit_code, diagnostics, files; depending on the action: coverage, structure, numbers, roundtrip

# outcomes that depend only on the job's key; the others (limits, crashes, a full disk) are retried
# by the next run
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
    """One job. `source` and `output` are paths or URLs. `timeout` in seconds and `memory` in bytes
    are limits, 0: none. `folder` is the folder of all results, below which links are not followed.
    """

    id: str
    action: str
    source: str
    target: str
    output: str = ""
    options: Json = field(default_factory=dict)
    timeout: float = 0
    memory: int = 0
    folder: str = ""

    @property
    def shown(self) -> str:
        """Return the name of the source in reports, as in its id."""
        return self.id.rsplit(" -> ", 1)[0]


@dataclass(frozen=True)
class Done:
    """A job's outcome; `seconds` and `attempts` are about this run only, `kept` marks the outcome
    of an earlier run.
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


_INPUTS = [{"name": str, "type": str, "shape": ([(int, str, None)], None)}]
_COUNTS = {str: int}
_TWO = {"all": int, "convert": int}
_NOTE = {
    "code": str,
    "message": str,
    "level": ("error", "warning", "note"),
    "where": {"file": str, "line": int, "path": str, "layer": str, "kind": str},
    "evidence": [str],
    "help": str,
}
# the form of an outcome (schemas/report/batch.json), without the comparison
_FORM = {
    "exit_code": tuple(int(c) for c in ExitCode),
    "diagnostics": [_NOTE],
    "files": {str: {"sha256": str, "bytes": int}},
}
_MORE = {
    "structure": [
        {
            "format": str,
            "inputs": _INPUTS,
            "outputs": _INPUTS,
            "layers": _COUNTS,
            "nodes": int,
            "operators": _COUNTS,
            "weights": {"tensors": int, "elements": int, "bytes": int, "types": _COUNTS},
            "notes": [_NOTE],
        }
    ],
    "coverage": {"target": str, "layers": _TWO, "operators": _TWO},
    "roundtrip": {
        "file": str,
        "via": str,
        "bytes": {"same": bool, "normalised": [str]},
        "structure": {
            "same": bool,
            "changes": [{"sign": ("-", "+", "~"), "layer": str, "kind": str, "details": [str]}],
            "renamed": {str: str},
        },
    },
}
_DEEPEST, _LARGEST = 100, 1 << 63
STATES = {"equal", "noise", "wrong", "inherited"}  # of compared tensors


def is_outcome(data: Any) -> bool:
    """Return whether stored data of untrusted origin have the form of an outcome."""
    if not isinstance(data, dict) or not data.keys() <= {*_FORM, *_MORE, "numbers"}:
        return False
    form = {k: v for k, v in {**_FORM, **_MORE}.items() if k in _FORM or k in data}
    rest = {k: v for k, v in data.items() if k != "numbers"}
    return (
        is_bounded(data)
        and has_form(rest, form, whole=True)
        and all(map(_is_file_name, data["files"]))
        and ("numbers" not in data or _is_comparison(data["numbers"]))
    )


def _is_file_name(name: str) -> bool:
    try:
        os.fsencode(name)
    except ValueError:
        return False
    return name not in ("", ".", "..") and not {"/", "\0"} & set(name)


def _is_comparison(data: Any) -> bool:
    """Return whether this is a stored comparison that reports can show."""
    from converter.commands.report import facts, html
    from converter.commands.verify.stored import result_of

    try:
        found = result_of(data)
        if not has_form(data.get("structure", []), _MORE["structure"], whole=True):
            return False
        name = " -> ".join(found.models)
        entry = facts.Entry(name, "verify", int(found.code), "", numbers=found)
        entry.text()
        if found.findings or found.samples or found.picture is not None:
            html.render(facts.Report(name, "", (entry,)))
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, StopIteration):
        return False
    return {t.status for t in found.tensors} <= STATES


def is_bounded(data: Any) -> bool:
    """Return whether all numbers are finite and fit into 64 bits, and nesting is limited."""
    level = [data]
    for _ in range(_DEEPEST):
        if not all(_is_number(v) for v in level if isinstance(v, int | float)):
            return False
        level = [
            v
            for outer in level
            if isinstance(outer, dict | list)
            for v in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return True
    return False


def _is_number(value: float) -> bool:
    return -_LARGEST <= value < _LARGEST if isinstance(value, int) else math.isfinite(value)


def outcome(code: ExitCode, *diagnostics: Diagnostic, **more: Any) -> Outcome:
    """Return the outcome of a job without files; `more` are other parts of it."""
    said = [d.as_json() for d in diagnostics]
    return {"exit_code": int(code), "diagnostics": said, "files": {}, **more}


def refused(error: ConverterError) -> Outcome:
    """Return the outcome for a refusal."""
    return outcome(error.exit_code, *error.diagnostics)
