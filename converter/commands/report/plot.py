"""Plots of errors that need no script: a curve along the graph, and histograms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from converter.commands.report import assets
from converter.commands.verify.compare import Difference
from converter.commands.verify.result import EQUAL, WRONG, Tensor
from converter.commands.verify.text import STATUSES

POINTS = 600  # above this number, only the largest of neighboring points are kept
NAMES = 6  # labeled parts of the curve
WIDTH, HEIGHT = 1000, 200  # of the drawing, which is stretched to the page


def curve(tensors: Sequence[Tensor]) -> str:
    """Draw the error that each layer introduces, the total error and the tolerance in the order of
    execution, on a logarithmic scale, with a line at the first wrong layer, and the data for
    tooltips. Empty without any error.
    """
    chosen = _thin(tensors)
    curves = {
        "own": [_drawn(t.own) for t in chosen],
        "total": [_drawn(t.total) for t in chosen],
        "limit": [_drawn(t.own, "tolerance") for t in chosen],
    }
    exponents = [math.log10(v) for points in curves.values() for v in points if v]
    if not exponents:
        return ""
    low, high = math.floor(min(exponents)), math.ceil(max(exponents))
    high = max(high, low + 1)
    step = WIDTH / max(len(chosen) - 1, 1)

    def xy(i: int, value: float) -> str:
        share = (high - math.log10(value)) / (high - low) if value else 1
        return f"{i * step:.1f},{share * HEIGHT:.1f}"

    marks = range(low, high + 1, max(1, math.ceil((high - low) / 6)))
    heights = [(e, (high - e) / (high - low)) for e in marks]
    drawn = [
        f'<line class="axis" x1="0" x2="{WIDTH}" y1="{y * HEIGHT:.1f}" y2="{y * HEIGHT:.1f}"/>'
        for _, y in heights
    ]
    drawn += [
        f'<polyline class="{name}" points="{" ".join(xy(i, v) for i, v in enumerate(points))}"/>'
        for name, points in curves.items()
        if any(points)
    ]
    first = next((i for i, t in enumerate(chosen) if t.status == WRONG), None)
    if first is not None:
        x = first * step
        drawn.append(f'<line class="first" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HEIGHT}"/>')
    labels = "".join(f'<span class="y" style="top:{y * 100:.1f}%">1e{e}</span>' for e, y in heights)
    count = f"{len(tensors)} tensors in the order of execution"
    return (
        '<figure class="curve"><ul class="legend">'
        '<li><i class="line own"></i>error introduced here</li>'
        '<li><i class="line total"></i>total error</li>'
        f'<li><i class="line limit"></i>tolerance</li><li class="dim">{count}</li></ul>'
        f'<div class="plot" role="group" aria-label="error along the graph, {count}; arrow keys '
        f'go from layer to layer">{labels}<svg viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'preserveAspectRatio="none" aria-hidden="true">{"".join(drawn)}</svg></div>'
        f"{_names(chosen, first)}{assets.data([_point(t) for t in chosen])}</figure>"
    )


def _names(chosen: Sequence[Tensor], first: int | None) -> str:
    """Return the labels below the curve: the first wrong layer, both ends, and others if space
    permits.
    """
    last = max(len(chosen) - 1, 1)
    taken = [] if first is None else [first]
    for i in (0, last, *(round(k * last / NAMES) for k in range(1, NAMES))):
        if i < len(chosen) and all(abs(i - j) > last / NAMES * 0.7 for j in taken):
            taken.append(i)

    def span(i: int) -> str:
        share = i / last
        side = "left:0" if share < 0.05 else "right:0" if share > 0.95 else f"left:{share:.1%}"
        middle = "" if side in ("left:0", "right:0") else ";transform:translateX(-50%)"
        kind = "s-bad" if i == first else "" if i in (0, last) else "extra"
        return f'<span class="{kind}" style="{side}{middle}">{escape(chosen[i].layer)}</span>'

    return f'<div class="under">{"".join(map(span, sorted(taken)))}</div>'


def _point(t: Tensor) -> list[str]:
    own, total = (f"{d.max_abs:.3g}" if d is not None else "none" for d in (t.own, t.total))
    limit = f"{t.own.tolerance:.3g}" if t.own is not None else "none"
    return [t.layer, t.kind, STATUSES[t.status], own, total, limit]


def histogram(tensors: Sequence[Tensor]) -> str:
    """Draw the number of tensors for each power of ten of the own error, with the wrong ones
    marked.
    """
    bins: dict[int, dict[str, int]] = {}
    for t in tensors:
        error = _drawn(t.own)
        if error:
            counts = bins.setdefault(math.floor(math.log10(error)), {})
            kind = "wrong" if t.status == WRONG else "noise"
            counts[kind] = counts.get(kind, 0) + 1
    if not bins:
        return ""
    exact = sum(t.status == EQUAL or not _drawn(t.own) for t in tensors)
    rows = [
        (f"1e{e}", [(kind, n) for kind in ("noise", "wrong") if (n := bins.get(e, {}).get(kind))])
        for e in range(min(bins), max(bins) + 1)
    ]
    below = f'<p class="dim">and {exact} that introduce no error</p>' if exact else ""
    return bars(rows, "tensors by the error introduced there") + below if len(rows) > 1 else ""


def bars(rows: Iterable[tuple[str, Sequence[tuple[str, int]]]], label: str) -> str:
    """Draw a bar for each (label, [(class, count), ...]), with logarithmic heights."""
    rows = list(rows)
    most = math.log1p(max((sum(n for _, n in parts) for _, parts in rows), default=1)) or 1
    # if there are too many bins, labels are omitted, never bars
    every = max(1, math.ceil(len(rows) / 14))

    def bar(i: int, text: str, parts: Sequence[tuple[str, int]]) -> str:
        total = sum(n for _, n in parts)
        height = math.log1p(total) / most * 72
        inner = "".join(
            f'<i class="{kind}" style="height:{height * n / total:.1f}%"></i>' for kind, n in parts
        )
        tooltip = ", ".join(f"{n} {kind}".strip() for kind, n in parts)
        under = escape(text) if i % every == 0 else "&nbsp;"
        return (
            f'<li title="{escape(text)}: '
            f'{tooltip or 0}"><b>{total or ""}</b>{inner}<b>{under}</b></li>'
        )

    drawn = "".join(bar(i, text, parts) for i, (text, parts) in enumerate(rows))
    return f'<ol class="bars" aria-label="{escape(label)}">{drawn}</ol>'


def _drawn(d: Difference | None, field: str = "max_abs") -> float:
    """Return a number of a difference in the range of a logarithmic scale."""
    found: float = getattr(d, field, 0.0)
    return 1e30 if math.isinf(found) else found if found > 1e-45 else 0.0


def _thin(tensors: Sequence[Tensor]) -> list[Tensor]:
    size = max(1, math.ceil(len(tensors) / POINTS))
    return [max(tensors[i : i + size], key=_weight) for i in range(0, len(tensors), size)]


def _weight(t: Tensor) -> tuple[bool, float]:
    return t.status == WRONG, _drawn(t.own)
