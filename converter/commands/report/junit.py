"""JUnit: one test case for each case of a command (an output, a path, a job), or for each
diagnostic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from converter.commands.report.cases import Cases
from converter.commands.report.text import group
from converter.errors import Diagnostic


def render(command: str, diagnostics: Sequence[Diagnostic], cases: Cases) -> str:
    given: list[dict[str, Any]] = [*cases]
    if not given or any(d.level == "error" for d in diagnostics):
        given += [
            {
                "name": f"{g[0].code} {g[0].message}",
                "group": command,
                "failure": "\n".join(str(d) for d in g if d.level == "error"),
            }
            for g in group(diagnostics)
        ]
    given = given or [{"name": command, "group": command, "failure": ""}]
    failures = sum(bool(c["failure"]) for c in given)
    body = "".join(_case(c) for c in given)
    name = quoteattr(f"netconv {command}")
    suite = (
        f'<testsuite name={name} tests="{len(given)}" failures="{failures}" errors="0" '
        f'skipped="0">\n{body}</testsuite>'
    )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites tests="{len(given)}" '
        f'failures="{failures}">\n{suite}\n</testsuites>'
    )


def _case(case: dict[str, Any]) -> str:
    head = (
        f"<testcase classname={quoteattr(_clean(case['group']))} "
        f"name={quoteattr(_clean(case['name']))}"
    )
    if not case["failure"]:
        return f"{head}/>\n"
    text = _clean(case["failure"])
    return (
        f"{head}><failure "
        f"message={quoteattr(text.splitlines()[0])}>{escape(text)}</failure></testcase>\n"
    )


def _clean(text: str) -> str:
    """Without the control characters that XML cannot hold."""
    return "".join(c for c in text if c in "\t\n" or ord(c) >= 32)
