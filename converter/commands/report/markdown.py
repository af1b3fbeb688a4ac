"""A summary in Markdown, for a job summary or a comment."""

from __future__ import annotations

import re

from converter.commands.report.facts import Entry, Report
from converter.io.escape import escaped

MARKS = {0: "✅", 1: "❌", 130: "⏸"}
DETAILED = 20  # failures whose text is shown


def render(report: Report) -> str:
    """Render the verdict, a table of all entries, and the details of failures."""
    rows = [
        f"| {MARKS.get(e.code, '⛔')} | {_cell(e.name)} | "
        f"{e.status}{f' ({e.trend})' if e.trend else ''} | {_cell(e.headline)} |"
        for e in report.entries
    ]
    since = [f"Since {_cell(report.baseline)}: {report.trend}.", ""] if report.baseline else []
    head = [f"## {report.verdict}", "", *since, "| | case | status | |", "|---|---|---|---|", *rows]
    failed = [e for e in report.entries if e.code]
    more = [f"{len(failed) - DETAILED} more failed.", ""] if len(failed) > DETAILED else []
    return "\n".join(
        [
            *head,
            "",
            *(line for e in failed[:DETAILED] for line in _details(e)),
            *more,
            f"netconv {report.version}",
        ]
    )


def _details(e: Entry) -> list[str]:
    text = "\n".join(map(escaped, e.text()))
    fence = "`" * max(3, *(len(m) + 1 for m in re.findall("`+", text)), 3)
    return [
        f"<details><summary>{_html(e.name)}</summary>",
        "",
        fence + "text",
        text,
        fence,
        "",
        "</details>",
        "",
    ]


def _html(text: str) -> str:
    return escaped(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cell(text: str) -> str:
    """Escape text so that it ends neither its cell nor its row."""
    return (
        _html(text)
        .replace("\\", "\\\\")
        .replace("|", "\\|")
        .replace("`", "\\`")
        .replace("*", "\\*")
        .replace("_", "\\_")
    )
