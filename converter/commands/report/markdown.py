"""A summary in Markdown, for a job summary or a comment."""

from __future__ import annotations

import re
from collections.abc import Sequence

from converter.commands.report.causes import causes
from converter.commands.report.facts import Entry, Report
from converter.io.escape import escaped

MARKS = {0: "✅", 1: "❌", 130: "⏸"}
DETAILED = 20  # failures whose text is shown
CAUSES, OPEN = 15, 8  # causes, and failures, that are not folded: the rest fits one screen
MOST = 300  # rows of a table: a job summary of GitHub has a limit of 1 MiB


def render(report: Report) -> str:
    """Render the verdict, the causes of failures, the failures, new ones first, with their details,
    folded if they are many, and the cases that passed, folded.
    """
    since = [f"Since {_code(report.baseline)}: {report.trend}.", ""] if report.baseline else []
    failed = sorted((e for e in report.entries if e.code), key=lambda e: e.trend != "new")
    passed = [e for e in report.entries if not e.code]
    grouped = causes(failed)
    lines = [f"## {report.verdict}", "", *since]
    if len(grouped) > 1 or len(failed) > 1:
        more = len(grouped) - CAUSES
        lines += [f"* {_cell(c.line())}" for c in grouped[:CAUSES]]
        lines += [f"* and {more} more causes", ""] if more > 0 else [""]
    if failed:
        shown = [*_table(failed), "", *(line for e in failed[:DETAILED] for line in _details(e))]
        left = len(failed) - DETAILED
        shown += [f"{left} more failed.", ""] if left > 0 else []
        lines += _folded(f"{len(failed)} failed", shown) if len(failed) > OPEN else shown
    if passed:
        shown = [*_table(passed), ""]
        fold = bool(failed) or len(passed) > DETAILED
        lines += _folded(f"{len(passed)} passed", shown) if fold else shown
    return "\n".join([*lines, f"netconv {report.version}"])


def _folded(head: str, lines: Sequence[str]) -> list[str]:
    return [f"<details><summary>{head}</summary>", "", *lines, "</details>", ""]


def _table(entries: Sequence[Entry]) -> list[str]:
    rows = [
        f"| {MARKS.get(e.code, '⛔')} | {_code(e.name)} | "
        f"{e.status}{f' ({e.trend})' if e.trend else ''} | {_cell(e.headline)} |"
        for e in entries[:MOST]
    ]
    left = len(entries) - MOST
    more = [f"| | and {left} more | | |"] if left > 0 else []
    return ["| | case | status | |", "|---|---|---|---|", *rows, *more]


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


def _code(text: str) -> str:
    """Return text as inline code, in which few characters are special."""
    plain = escaped(text)
    return _cell(text) if {"`", "|", "\\", "\n"} & {*plain} else f"`{plain}`"


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
