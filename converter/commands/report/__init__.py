"""Renderings of diagnostics and results. One module for each form.

text.py      diagnostics in a terminal
plain.py     stored results in a terminal
markdown.py  a summary in Markdown
junit.py     JUnit
sarif.py     SARIF
github.py    annotations
machine.py   the formats of --format
html.py      one self-contained page (parts.py, wrong.py, plot.py, table.py)
matrix.py    models and targets of a batch, and failures by cause, in a page
codes.py     error codes as links to explanations in the same page
assets.py    style sheets and scripts of pages
page.py      the page of one comparison
quantized.py the page of a quantization
facts.py     stored results, the input of all renderings
causes.py    failures grouped by their cause
origin.py    when, where and with which versions results were computed
cases.py     passed and failed cases, for JUnit, SARIF, annotations
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from converter.commands.report.facts import Report


def render(report: Report, form: str) -> str:
    """Render a report as `form`: text, junit, sarif, github, md or html."""
    from converter.commands.report import facts, github, html, junit, markdown, plain, sarif

    match form:
        case "junit":
            return junit.render(report.title, [], facts.cases(report))
        case "sarif":
            return sarif.render(report.diagnostics, facts.cases(report))
        case "github":
            return github.render(report.diagnostics, facts.cases(report))
        case "md":
            return markdown.render(report)
        case "html":
            return html.render(report)
        case _:
            return plain.render(report)


def write(path: Path, text: str) -> None:
    """Write a file that appears complete or not at all. Raises WriteError W301."""
    from converter.io.files import Output

    with Output(path) as out, out.open() as f:
        f.write(text.encode("utf-8", "backslashreplace"))
