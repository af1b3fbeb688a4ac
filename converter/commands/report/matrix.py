"""The cases of a batch as a matrix, a row for each model and a column for each target, and its
failures grouped by cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from urllib.parse import urlencode

from converter.commands.report import parts
from converter.commands.report.causes import Cause, causes, first_error
from converter.commands.report.codes import linked
from converter.commands.report.facts import Entry, Report
from converter.commands.report.table import Cell, duration, name, table
from converter.errors import SEVERITY, ExitCode
from converter.io.files import size_text

Link = Callable[[int, Entry], str]
NAMED = 200  # cases that are named for one cause
_RANK = {code: i for i, code in enumerate(SEVERITY)}


def columns(report: Report) -> dict[int, str] | None:
    """Return the column of each entry; None if the entries are no matrix, such as the cases of one
    target.
    """
    actions = len({e.group for e in report.entries}) > 1
    found = {
        i: f"{e.group} {e.target}" if actions else e.target for i, e in enumerate(report.entries)
    }
    locations = {(e.source, found[i]) for i, e in enumerate(report.entries)}
    complete = all(e.source and e.target for e in report.entries)
    fits = len(locations) == len(report.entries) and len(set(found.values())) > 1
    several = len({e.source for e in report.entries}) < len(report.entries)
    return found if complete and fits and several else None


def matrix(report: Report, order: Sequence[int], of: dict[int, str], link: Link) -> str:
    """Return the matrix; models with new failures come first, then those with others."""
    targets = sorted(set(of.values()))
    rows: dict[str, dict[str, int]] = {}
    for i in order:
        rows.setdefault(report.entries[i].source, {})[of[i]] = i

    def row(source: str, cells: dict[str, int]) -> list[Cell]:
        found = [Cell(name(source), kind="name")]
        for target in targets:
            i = cells.get(target)
            found.append(Cell("") if i is None else _cell(report.entries[i], i, target, link))
        return found

    body = table(
        ("model", *targets),
        (row(*r) for r in rows.items()),
        kind="cases matrix sortable",
        filtered="cases",
    )
    return f"<h2>Cases</h2>{body}"


def _cell(e: Entry, i: int, target: str, link: Link) -> Cell:
    to = link(i, e)
    badge = f'<span class="badge {parts.color(e.code)}">{escape(e.status)}</span>'
    badge = f'<a href="{escape(to)}" title="{escape(e.headline)}">{badge}</a>' if to else badge
    total = sum(f["bytes"] for f in e.files.values())
    said = [
        duration(e.seconds) if e.seconds is not None else "",
        size_text(total) if total else "",
    ]
    small = f'<span class="dim">{" · ".join(filter(None, said))}</span>' if any(said) else ""
    data = {"s": e.status, "t": target, "c": first_error(e), "n": e.trend, "i": str(i)}
    return Cell(f"{badge}{_trend(e.trend)} {small}", _RANK[ExitCode(e.code)], "st", target, data)


def grouped(report: Report, order: Sequence[int], link: Link) -> str:
    """Return the failures grouped by their causes, each with its cases; "" without failures."""
    index = {(e.group, e.name): i for i, e in enumerate(report.entries)}

    def case(e: Entry) -> str:
        to, shown = link(index[e.group, e.name], e), name(e.name)
        return f"<li>{_anchor(to, shown)}{_trend(e.trend)}</li>"

    groups = [_group(c, case) for c in causes(report.entries[i] for i in order)]
    return f"<h2>Failures by cause</h2>{''.join(groups)}" if groups else ""


def _group(c: Cause, case: Callable[[Entry], str]) -> str:
    status, code = c.entries[0].status, first_error(c.entries[0])
    asked = urlencode({"status": status} | ({"code": code} if code else {}))
    more = len(c.entries) - NAMED
    listed = [*map(case, c.entries[:NAMED]), *([f"<li>and {more} more</li>"] if more > 0 else [])]
    new = _trend(f"{c.new} new" if c.new else "")
    text = c.text.removeprefix(status).removeprefix(": ")
    badge = f'<span class="badge {parts.color(c.code)}">{escape(status)}</span>'
    return (
        f'<details class="cause"><summary><b>{len(c.entries)} ×</b> {badge}{new} {escape(text)}'
        f'</summary><p>{linked(code)} <a href="#{escape(asked)}">only these cases</a></p>'
        f"<ul>{''.join(listed)}</ul></details>"
    )


def _trend(text: str) -> str:
    return f' <b class="s-warn">{escape(text)}</b>' if text else ""


def _anchor(to: str, shown: str) -> str:
    return f'<a href="{escape(to)}">{shown}</a>' if to else shown
