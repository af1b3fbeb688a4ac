"""One page that needs nothing else: no network, readable in light and dark, on a narrow screen and
without JavaScript.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from html import escape

from converter.commands.report import parts
from converter.commands.report.facts import Entry, Report
from converter.commands.report.style import CSS, SCRIPT

ROWS = 2500  # rows of layer tables in one page
CASES = 4000  # rows of the table of cases
LIMIT = 950_000  # bytes
SECTIONS = 200  # entries that are told in full
FEW = 20  # up to so many, those that passed are told in full as well

Link = Callable[[int, Entry], str]


def render(report: Report, link: Link | None = None) -> str:
    """The page, below 1 MB. `link` gives the address of an entry's own page; without it entries are
    told on this one.
    """
    share = 1.0
    while (
        len((page := _page(report, link, share)).encode("utf-8", "backslashreplace")) > LIMIT
        and share > 1e-3
    ):
        share /= 2
    return page


def _page(report: Report, link: Link | None, share: float) -> str:
    """`share` of the details that a page may hold: of sections, rows of tables, and, when it is
    small, of cases that passed.
    """
    failed = [i for i, e in enumerate(report.entries) if e.code]
    wanted = (
        [] if link else failed if len(report.entries) > FEW else list(range(len(report.entries)))
    )
    told = wanted[: max(1, int(SECTIONS * share))]
    listed = [(i, e) for i, e in enumerate(report.entries) if share > 0.1 or e.code][
        : int(CASES * share)
    ]
    address = link or (lambda i, e: f"#e{i}" if i in set(told) else "")
    body = [_head(report), _matrix(listed, address) if len(report.entries) > 1 else ""]
    if len(listed) < len(report.entries):
        body.append(
            f'<p class="dim">{len(report.entries) - len(listed)} of {len(report.entries)} '
            "cases are not listed; the results hold them.</p>"
        )
    rows = max(int(ROWS * share) // max(len(told), 1), 20)
    body += [_section(i, report.entries[i], rows, len(report.entries) == 1) for i in told]
    if left := len(wanted) - len(told):
        body.append(
            f'<p class="dim">{left} more are not told in full; the results hold their details.</p>'
        )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width,initial-scale=1">'
        f"<title>{escape(report.verdict)} · netconv</title><style>{CSS}</style></head>\n"
        f"<body>{''.join(body)}\n{_data(report, [e for _, e in listed])}<script>{SCRIPT}</script></body></html>\n"
    )


def _head(report: Report) -> str:
    since = (
        f'<p>Since {escape(report.baseline)}: <span class="trend">{report.trend}</span></p>'
        if report.baseline
        else ""
    )
    kind = parts.colour(report.code)
    return (
        f'<header><h1>netconv <span class="verdict {kind}">{escape(report.verdict)}</span></h1>'
        f'<p class="dim">{escape(report.title)} · netconv {escape(report.version)} · exit '
        f"code {report.code}</p>{since}</header>"
    )


def _matrix(entries: Sequence[tuple[int, Entry]], address: Link) -> str:
    """Models against targets where every case has both; a list otherwise."""
    cells = {(e.source, e.target, e.group): (i, e) for i, e in entries}
    targets = list(dict.fromkeys((e.target, e.group) for _, e in entries))
    if (
        len(cells) < len(entries)
        or not all(e.source and e.target for _, e in entries)
        or len(targets) > 12
    ):
        return _list(entries, address)
    groups = len({g for _, g in targets}) > 1
    head = "".join(f"<th>{escape(t)}{f' ({g})' if groups else ''}</th>" for t, g in targets)
    rows = []
    for source in dict.fromkeys(e.source for _, e in entries):
        found = (cells.get((source, *t)) for t in targets)
        rows.append(
            f"<tr><td>{escape(source)}</td>{''.join('<td></td>' if c is None else _cell(*c, address) for c in found)}</tr>"
        )
    return f'<h2>Cases</h2><div class="wide"><table class="matrix"><thead><tr><th>model</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _cell(i: int, e: Entry, address: Link) -> str:
    to = address(i, e)
    text = f'<span class="{parts.colour(e.code)}">{e.status}</span>' + (
        f' <b class="s-warn">{e.trend}</b>' if e.trend else ""
    )
    below = f'<br><span class="dim">{escape(e.headline[:160])}</span>' if e.code else ""
    return f"<td>{f'<a href={to!r}>{text}</a>' if to else text}{below}</td>"


def _list(entries: Sequence[tuple[int, Entry]], address: Link) -> str:
    rows = "".join(f"<tr><td>{escape(e.name)}</td>{_cell(i, e, address)}</tr>" for i, e in entries)
    return f'<h2>Cases</h2><div class="wide"><table class="matrix"><thead><tr><th>case</th><th>result</th></tr></thead><tbody>{rows}</tbody></table></div>'


def _section(i: int, e: Entry, rows: int, alone: bool) -> str:
    trend = f' <b class="s-warn">{e.trend}</b>' if e.trend else ""
    head = f'<h2>{escape(e.name)} <span class="{parts.colour(e.code)}">{e.status}</span>{trend}</h2><p class="headline">{escape(e.headline)}</p>'
    inner = "".join(_parts(e, rows))
    if not alone and not e.code:
        inner = f"<details><summary>details</summary>{inner}</details>"
    return f'<section id="e{i}">{head}{inner}</section>'


def _parts(e: Entry, rows: int) -> Iterable[str]:
    if e.numbers is not None:
        yield parts.comparison(e.numbers)
    yield parts.said(e.diagnostics)
    if e.coverage is not None:
        yield parts.coverage(e.coverage)
    if e.structure:
        yield parts.structure(e.structure)
    if e.files:
        yield parts.files(e.files)
    if e.roundtrip is not None:
        yield parts.losses(e.roundtrip)
    if e.numbers is not None and e.numbers.tensors:
        yield parts.layers(e.numbers.tensors, rows)


def _data(report: Report, listed: Sequence[Entry]) -> str:
    """The facts of the page for programs."""
    cases = [
        {"name": e.name, "status": e.status, "headline": e.headline, "trend": e.trend}
        for e in listed
    ]
    text = json.dumps(
        {
            "verdict": report.verdict,
            "exit_code": report.code,
            "trend": report.trend,
            "cases": cases,
        },
        ensure_ascii=False,
    )
    return f'<script type="application/json" id="facts">{text.replace("<", chr(92) + "u003c")}</script>'
