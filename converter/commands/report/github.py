"""Workflow commands that GitHub shows as annotations."""

from __future__ import annotations

from collections.abc import Sequence

from converter.commands.report.cases import Case
from converter.errors import Diagnostic, Where

LINES = 5  # of a failure that are shown next to the file


def render(diagnostics: Sequence[Diagnostic], cases: Sequence[Case]) -> str:
    """Return diagnostics and failed cases as annotations of GitHub Actions."""
    failed = [
        _command("error", {**_attributes_of(c.where), "title": c.name}, _brief(c.failure))
        for c in cases
        if c.failure
    ]
    return "\n".join([_annotation(d) for d in diagnostics] + failed)


def _brief(text: str) -> str:
    """Return the first lines of a failure: the report holds the others."""
    lines = text.split("\n")
    return "\n".join([*lines[:LINES], *(["..."] if len(lines) > LINES else [])])


def _attributes_of(where: Where) -> dict[str, str]:
    if not where.file:
        return {}
    return {"file": where.file, **({"line": str(where.line)} if where.line else {})}


def _annotation(d: Diagnostic) -> str:
    properties = {"title": f"{d.code} {d.where.layer}".strip()}
    return _command(
        "notice" if d.level == "note" else d.level,
        {**_attributes_of(d.where), **properties},
        d.message + (f" ({d.help})" if d.help else ""),
    )


def _command(kind: str, properties: dict[str, str], message: str) -> str:
    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    listed = ",".join(
        f"{k}={data(v).replace(':', '%3A').replace(',', '%2C')}" for k, v in properties.items()
    )
    return f"::{kind} {listed}::{data(message)}"
