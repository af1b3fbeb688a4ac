"""A report for people in a terminal."""

from __future__ import annotations

from converter.commands.report.facts import Report
from converter.io.escape import escaped


def render(report: Report) -> str:
    """Render one line for each entry, its faults below it, the verdict last."""
    found = []
    for e in report.entries:
        found.append(f"{e.status:11} {e.name}" + (f"  [{e.trend}]" if e.trend else ""))
        found.append(f"  {e.headline}")
        if e.code:
            found.extend(f"  | {line}" for line in e.text() if line != e.headline)
    since = f"   since {report.baseline}: {report.trend}" if report.baseline else ""
    return "\n".join(map(escaped, [*found, report.verdict + since]))
