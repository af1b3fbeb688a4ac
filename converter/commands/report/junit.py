"""JUnit: one test case for each case of a command (an output, a path, a job), or for each
diagnostic.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from converter.commands.report.cases import Case
from converter.commands.report.text import group
from converter.errors import Diagnostic


def render(command: str, diagnostics: Sequence[Diagnostic], cases: Sequence[Case]) -> str:
    given = [*cases]
    if not given or any(d.level == "error" for d in diagnostics):
        for alike in group(diagnostics):
            errors = "\n".join(str(d) for d in alike if d.level == "error")
            given.append(Case(f"{alike[0].code} {alike[0].message}", command, errors))
    given = given or [Case(command, command)]
    failures = sum(bool(c.failure) for c in given)
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


def _case(case: Case) -> str:
    head = (
        f"<testcase classname={quoteattr(_clean(case.group))} name={quoteattr(_clean(case.name))}"
    )
    if not case.failure:
        return f"{head}/>\n"
    text = _clean(case.failure)
    return (
        f"{head}><failure "
        f"message={quoteattr(text.splitlines()[0])}>{escape(text)}</failure></testcase>\n"
    )


def _clean(text: str) -> str:
    """Remove the control characters that XML cannot hold."""
    return "".join(c for c in text if c in "\t\n" or ord(c) >= 32)
