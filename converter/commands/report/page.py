"""The page of one comparison."""

from __future__ import annotations

from converter import version
from converter.commands import report
from converter.commands.report import facts, machine
from converter.commands.verify.result import Result


def of_result(result: Result) -> str:
    """Return the page of a comparison, as `netconv verify --page` writes it."""
    data = machine.document("verify", int(result.code), result.diagnostics, result.as_json(), {})
    entries = tuple(facts.of_data(data, "verify"))
    return report.render(facts.Report("verify", version.__version__, entries), "html")
