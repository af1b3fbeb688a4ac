"""A self-contained page: no network access, readable in light and dark, on a narrow screen and
without JavaScript. Failures come first; with scripts, entries can be filtered, sorted and unfolded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from html import escape

from converter.commands.report import assets, matrix, parts, wrong
from converter.commands.report.causes import first_error
from converter.commands.report.codes import explanations, linked
from converter.commands.report.facts import Entry, Report
from converter.commands.report.origin import shown
from converter.commands.report.table import Cell, duration, name, table
from converter.errors import ExitCode
from converter.io.files import size_text

ROWS = 2500  # rows of layer tables in one page
LIMIT = 950_000  # bytes; the list of cases is always complete, and details get at least half
SECTIONS = 200  # entries with full details
FEW = 20  # up to this number, passed entries also have full details
OPEN = 3  # failures that are unfolded
HEADLINE = 240  # characters of a headline in the list

Link = Callable[[int, Entry], str]
# exit codes that are listed last, in this order; all others are separate kinds of failures
LAST = [
    int(c)
    for c in (
        ExitCode.UNFELT,
        ExitCode.NOTHING_COMPARED,
        ExitCode.UNSUPPORTED,
        ExitCode.INTERRUPTED,
        ExitCode.OK,
    )
]


def render(report: Report, link: Link | None = None, home: str = "") -> str:
    """Return the page, below 1 MB except for thousands of cases. `link` gives the address of an
    entry's own page; without it the details are on this page. `home` is the address of the list
    that this page belongs to.
    """
    share, bare = 1.0, _page(report, link, home, 0)
    limit = max(LIMIT, len(bare.encode("utf-8", "backslashreplace")) + LIMIT // 2)
    while (
        len((page := _page(report, link, home, share)).encode("utf-8", "backslashreplace")) > limit
        and share > 0.02
    ):
        share *= 0.7
    return page


def order(report: Report) -> list[int]:
    """Return the indices of the entries, new failures first, then the others."""

    def rank(i: int) -> tuple[bool, int, str, int]:
        e = report.entries[i]
        late = LAST.index(e.code) + 1 if e.code in LAST else 0
        return e.trend != "new", late, "" if late else e.status, i

    return sorted(range(len(report.entries)), key=rank)


def _page(report: Report, link: Link | None, home: str, share: float) -> str:
    """Return the page with a `share` of the maximum details: of sections, and of rows of their
    tables.
    """
    locations = order(report)
    alone = len(locations) == 1
    few = len(locations) <= FEW
    wanted = [] if link else [i for i in locations if few or report.entries[i].code]
    detailed = wanted[: math.ceil(SECTIONS * share)]
    known = set(detailed)
    address = link or (lambda i, e: f"#e{i}" if i in known else "")
    rows = max(int(ROWS * share) // max(len(detailed), 1), 20)
    body = (
        []
        if alone
        else [matrix.grouped(report, locations, address), _cases(report, locations, address)]
    )
    if detailed and not alone:
        body.append(_folds())
    for number, i in enumerate(detailed):
        body.append(_section(i, report.entries[i], rows, alone, number < OPEN))
    if left := len(wanted) - len(detailed):
        body.append(
            f'<p class="dim">{left} more are not told in full; the results hold their details.</p>'
        )
    inner = "".join([*body, explanations(body)])
    scripts = ["report.js"]
    if 'class="picture"' in inner:
        scripts = [*assets.DRAWING, *scripts]
    return assets.page(
        f"{escape(report.verdict)} · netconv",
        assets.style("page.css", "report.css"),
        f'<a class="skip" href="#main">to the results</a>{_head(report, home)}<main id="main">'
        f"{inner}</main>\n{_data(report)}{assets.script(*scripts)}",
    )


def _head(report: Report, home: str) -> str:
    since = (
        f'<p>Since {escape(report.baseline)}: <span class="trend">{report.trend}</span></p>'
        if report.baseline
        else ""
    )
    seconds = [e.seconds for e in report.entries if e.seconds is not None]
    spent = f" · {duration(sum(seconds))}" if seconds else ""
    back = f'<p><a href="{escape(home)}">all cases</a></p>' if home else ""
    counts = _counts(report)
    verdict = ", ".join(
        f'<span class="{kind}">{n} {escape(status)}</span>' for status, kind, n in counts
    )
    title = "netconv: "
    if len(report.entries) == 1:
        ((status, kind, _),) = counts
        word = _SINGLE.get(status, status.capitalize())
        title, verdict = "", f'<span class="{kind}">{word}</span>'
    segments = "".join(
        f'<span class="{kind}" style="flex:{n}" title="{n} {escape(status)}"></span>'
        for status, kind, n in counts
    )
    label = f'role="img" aria-label="{escape(report.verdict)}"'
    bar = f'<div class="totals" {label}>{segments}</div>' if len(report.entries) > 1 else ""
    return (
        f'<header>{back}<h1>{title}<span class="verdict">{verdict}</span></h1>{bar}'
        f'<p class="dim">{name(report.title)} · netconv {escape(report.version)} · exit '
        f"code {report.code}{spent}{_within(report)}</p>{shown(report.origin)}{since}</header>"
    )


def _within(report: Report) -> str:
    """Return the tolerance within which numbers were compared, as text."""
    found = {e.numbers.measured for e in report.entries if e.numbers is not None}
    words = {True: "the measured rounding noise", False: "the given tolerance"}
    return f" · compared within {' or '.join(words[m] for m in sorted(found))}" if found else ""


# the name of the page of one case
_SINGLE = {"ok": "Same", "differs": "Different"}


def _counts(report: Report) -> list[tuple[str, str, int]]:
    """Return status, color and number, in the order of the cases."""
    found = Counter(
        (report.entries[i].status, parts.color(report.entries[i].code)) for i in order(report)
    )
    return [(status, kind, n) for (status, kind), n in found.items()]


def _cases(report: Report, locations: Sequence[int], address: Link) -> str:
    columns = matrix.columns(report)
    if columns is None:
        return _list(report, locations, address)
    return matrix.matrix(report, locations, columns, address)


def _list(report: Report, locations: Sequence[int], address: Link) -> str:
    """Return a row for each case. Empty columns are omitted."""
    entries = [(i, report.entries[i]) for i in locations]
    split = all(e.source and e.target for _, e in entries)
    timed = any(e.seconds is not None for _, e in entries)
    sized = any(e.files for _, e in entries)
    actions = split and len({e.group for _, e in entries}) > 1
    head = ["status", *(("model", "target") if split else ("case",))]
    head += [*(["action"] if actions else []), "what"]
    head += [*(["time"] if timed else []), *(["size"] if sized else [])]

    def row(i: int, e: Entry) -> Iterator[Cell]:
        trend = f' <b class="s-warn">{escape(e.trend)}</b>' if e.trend else ""
        yield Cell(
            f'<span class="badge {parts.color(e.code)}">{escape(e.status)}</span>{trend}',
            kind="st",
        )
        to, title = address(i, e), name(e.source if split else e.name)
        yield Cell(f'<a href="{to}">{title}</a>' if to else title, kind="name")
        if split:
            yield Cell(name(e.target), label="to")
        if actions:
            yield Cell(escape(e.group), label="by")
        cut = e.headline if len(e.headline) <= HEADLINE else e.headline[: HEADLINE - 1] + "…"
        yield Cell(linked(cut), kind="what")
        if timed:
            yield _timed(e)
        if sized:
            total = sum(f["bytes"] for f in e.files.values())
            yield Cell(size_text(total) if total else "", total, label="size")

    last = len(head) - timed - sized
    body = table(
        head,
        (list(row(i, e)) for i, e in entries),
        numbers=range(last, len(head)),
        kind="cases sortable",
        states=[_state(i, e) for i, e in entries],
        filtered="cases",
    )
    return f"<h2>Cases</h2>{body}"


def _state(i: int, e: Entry) -> dict[str, str]:
    """Return the attributes of a row by which scripts filter it."""
    return {"s": e.status, "c": first_error(e), "n": e.trend, "i": str(i)}


def _timed(e: Entry) -> Cell:
    return Cell("", -1) if e.seconds is None else Cell(duration(e.seconds), e.seconds, label="in")


def _folds() -> str:
    return (
        '<h2>Details</h2><div class="tools"><button type="button" data-fold="open" hidden>unfold '
        'all</button><button type="button" data-fold="shut" hidden>fold all</button></div>'
    )


def _section(i: int, e: Entry, rows: int, alone: bool, unfolded: bool) -> str:
    trend = f' <b class="s-warn">{e.trend}</b>' if e.trend else ""
    badge = f'<span class="badge {parts.color(e.code)}">{escape(e.status)}</span>{trend}'
    headline = f'<p class="headline">{linked(e.headline)}</p>'
    inner = "".join(_parts(e, rows))
    if alone:
        return f'<section id="e{i}"><h2>{name(e.name)} {badge}</h2>{headline}{inner}</section>'
    state = f'data-i="{i}"{" open" if e.code and unfolded else ""}'
    return (
        f'<details class="case" {state}><summary>{badge} '
        f'{name(e.name)}</summary><div id="e{i}">{headline}{inner}</div></details>'
    )


def _parts(e: Entry, rows: int) -> Iterator[str]:
    if e.numbers is not None:
        yield parts.outputs(e.numbers)
        yield wrong.first(e.numbers)
    yield wrong.summary_of(e)
    if e.numbers is not None:
        yield wrong.picture(e.numbers)
        yield wrong.samples(e.numbers)
        yield parts.errors(e.numbers.tensors)
        yield parts.native(e.numbers)
    yield parts.grouped_diagnostics(e.diagnostics)
    if e.coverage is not None:
        yield parts.coverage(e.coverage)
    if e.numbers is not None and e.numbers.tensors:
        yield parts.layers(e.numbers.tensors, rows)
    if e.structure:
        yield parts.structure(e.structure)
    if e.files:
        yield parts.files(e.files)
    if e.roundtrip is not None:
        yield parts.losses(e.roundtrip)
    if e.numbers is not None:
        yield parts.printed(e.numbers)


def _data(report: Report) -> str:
    """Return the facts of the page for programs."""
    long = len(report.entries) > FEW
    cases = [
        {"name": e.name, "status": e.status}
        | ({} if long else {"headline": e.headline, "trend": e.trend})
        for e in report.entries
    ]
    return assets.data(
        {
            "verdict": report.verdict,
            "exit_code": report.code,
            "trend": report.trend,
            "cases": cases,
        },
        id="facts",
    )
