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
    """Return the cases as JUnit XML; errors of the command itself are cases of their own."""
    given = [*cases]
    if not given or any(d.level == "error" for d in diagnostics):
        for alike in group(diagnostics):
            errors = "\n".join(str(d) for d in alike if d.level == "error")
            given.append(Case(f"{alike[0].code} {alike[0].message}", command, errors))
    given = given or [Case(command, command)]
    kinds = [_kind(c) for c in given]
    counts = " ".join(
        f'{name}="{kinds.count(kind)}"'
        for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    )
    seconds = sum(c.seconds or 0 for c in given)
    head = f'tests="{len(given)}" {counts} time="{seconds:.3f}"'
    body = "".join(map(_case, given, kinds))
    name = quoteattr(f"netconv {command}")
    suite = f"<testsuite name={name} {head}>\n{body}</testsuite>"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites {head}>\n{suite}\n</testsuites>'


def _kind(case: Case) -> str:
    """Return the element for a case that did not pass, "" for one that did."""
    if not case.failure:
        return ""
    return "skipped" if case.skipped else "error" if case.error else "failure"


def _case(case: Case, kind: str) -> str:
    time = "" if case.seconds is None else f' time="{case.seconds:.3f}"'
    head = (
        f"<testcase classname={quoteattr(_clean(case.group))} "
        f"name={quoteattr(_clean(case.name))}{time}"
    )
    if not kind:
        return f"{head}/>\n"
    first, _, rest = _clean(case.failure).partition("\n")
    return f"{head}><{kind} message={quoteattr(first)}>{escape(rest)}</{kind}></testcase>\n"


def _clean(text: str) -> str:
    """Remove the control characters that XML cannot hold."""
    return "".join(c for c in text if c in "\t\n" or ord(c) >= 32)
