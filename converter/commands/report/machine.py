"""Results for programs: one document for one run of a command.

json    {"schema", "command", "exit_code", "diagnostics", "result"}, schemas/report/run.json
github, sarif, junit: converter.commands.report.github, .sarif, .junit
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from converter.commands.report import github, junit, sarif
from converter.commands.report.cases import Case
from converter.errors import Diagnostic
from converter.io.strict_json import Json

FORMATS = ("text", "json", "github", "sarif", "junit")


def render(
    format: str,
    command: str,
    code: int,
    diagnostics: Sequence[Diagnostic],
    cases: Sequence[Case],
    result: Any,
    about: Json | None = None,
) -> str:
    """Render one run of a command; `about` is data about the run itself for JSON: "arguments" and
    "seconds".
    """
    match format:
        case "json":
            data = document(command, code, diagnostics, result, about or {})
            return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
        case "github":
            return github.render(diagnostics, cases)
        case "sarif":
            return sarif.render(diagnostics, cases)
        case "junit":
            return junit.render(command, diagnostics, cases)
        case _:
            raise ValueError(format)


def document(
    command: str,
    code: int,
    diagnostics: Sequence[Diagnostic],
    result: Any,
    about: Json,
) -> Json:
    """Return one run of a command (schemas/report/run.json)."""
    return {
        "schema": "netconv/run/1",
        "command": command,
        "exit_code": code,
        "diagnostics": [d.as_json() for d in diagnostics],
        "result": result,
        **about,
    }
