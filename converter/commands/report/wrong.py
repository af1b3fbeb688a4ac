"""The parts of a page about a fault: the layer and its cause, the tensor on both sides, the graph
around it, the next commands.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from converter.commands.report import assets, plot
from converter.commands.report.facts import Entry
from converter.commands.report.table import name
from converter.commands.verify.compare import Difference
from converter.commands.verify.result import INHERITED, WRONG, Finding, Result, Tensor
from converter.commands.verify.text import STATUSES
from converter.io.strict_json import Json

CAUSES = 6  # that are not folded
FOUND = 12  # wrong layers that are named


def commands(e: Entry) -> list[tuple[str, str]]:
    """Return labels and command lines to repeat the comparison, and for the next steps."""
    pair = list(e.numbers.models) if e.numbers is not None else [e.source, e.target]
    if e.arguments[:1] == ("verify",) and e.group == "convert":
        pair = list(e.arguments[1:3])  # the files themselves; the names above are shorter
    again: tuple[str, ...] = e.arguments
    if not again and all(pair):
        again = {
            "verify": ("verify", *pair),
            "convert": ("verify", *pair)
            if e.numbers is not None
            else ("check", pair[0], "-t", pair[1]),
            "check": ("check", pair[0], "-t", pair[1]),
            "roundtrip": ("roundtrip", e.source, "--via", e.target),
        }.get(e.group, ())
    if again[:1] == ("verify",) and not e.arguments and e.numbers is not None and e.numbers.seed:
        again = (*again, "--seed", str(e.numbers.seed))
    found = [(again[0], again)] if again else []
    if e.numbers is not None and not e.numbers.same and e.group in ("verify", "convert"):
        found.append(("reduce", ("reduce", *pair, "-o", "smallest")))
        found.append(("view", ("view", *pair, "--verify", "-o", "view.html")))
    return [(label, shlex.join(["netconv", *line])) for label, line in found]


def summary_of(e: Entry) -> str:
    """Return the commands, each with a copy button."""
    rows = "".join(
        f'<div class="cmd"><code>{escape(line)}</code><button type="button" class="copy" hidden>'
        f"Copy {escape(label)} command</button></div>"
        for label, line in commands(e)
    )
    return f"<h3>Reproduce</h3>{rows}" if rows else ""


def first(result: Result) -> str:
    """Return the first wrong layer with its causes, then the others."""
    if not result.findings:
        return ""
    others = result.findings[1:FOUND]
    more = len(result.findings) - 1 - len(others)
    listed = "".join(
        f"<li>{_layer(f)}: "
        f"{escape(f.causes[0]) if f.causes else f'error introduced here: {f.own.max_abs:.3g}'}</li>"
        for f in others
    )
    also = f"<p>These layers are wrong as well:</p><ul>{listed}</ul>" if others else ""
    if more > 0:
        also += f'<p class="dim">and {more} more</p>'
    return f'<h3>First wrong layer</h3><div class="first-divergence">{_finding(result)}{also}</div>'


def _finding(result: Result) -> str:
    f = result.findings[0]
    rows = [
        *(
            (f"in {model}", f"line {location}" if location.isdecimal() else location)
            for model, location in zip(result.models, f.where, strict=True)
            if location
        ),
        ("error introduced here", _error(f.own)),
        *([("passed on by earlier layers", f"{f.inherited:.3g}")] if f.inherited else []),
        *([("computed by", ", ".join(f.layers[:6]))] if len(f.layers) > 1 else []),
    ]
    causes = _list(f.causes[:CAUSES])
    if more := f.causes[CAUSES:]:
        causes += f"<details><summary>and {len(more)} more</summary>{_list(more)}</details>"
    body = "".join(f'<tr><th scope="row">{name(a)}</th><td>{name(b)}</td></tr>' for a, b in rows)
    return f"<p><strong>{_layer(f)}</strong></p>{causes}<table><tbody>{body}</tbody></table>"


def _list(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(t)}</li>' for t in texts)}</ul>" if texts else ""


def _layer(f: Finding) -> str:
    return f"layer {f.index} {name(f.layer)} ({escape(f.kind)})"


def _error(d: Difference) -> str:
    if d.note and math.isinf(d.max_abs):
        return d.note
    limit = f", allowed {d.tolerance:.3g}" if d.tolerance else ""
    share = f", {100 * d.l2:.3g} % relative (L2)" if math.isfinite(d.l2) else ""
    return f"{d.max_abs:.3g}{limit}{share}"


# ---- the tensor on both sides


def samples(result: Result) -> str:
    """Return the samples of wrong numbers from both models as tables, as HTML."""
    return "".join(_sample(s, result.models) for s in result.samples)


def _sample(s: Json, models: Sequence[str]) -> str:
    corner = list(s["corner"])
    pairs = [
        [_distance(a, b) for a, b in zip(x, y, strict=True)]
        for x, y in zip(s["reference"], s["candidate"], strict=True)
    ]
    most = max((d for row in pairs for d in row), default=0.0)
    sides = zip(("reference", "candidate"), models, s.get("axes", ((), ())), strict=True)
    tables = "".join(
        f'<div><p>{title} {name(model)}<br><span class="dim">{_part(s, title, axes)}</span></p>'
        f"{_numbers(title, s[title], pairs, most, corner)}</div>"
        for title, model, axes in sides
    )
    return (
        f"<h3>Tensor {name(str(s['tensor']))} before and after</h3>"
        f'<p class="dim">around the largest difference, on input {escape(str(s["feed"]))}</p>'
        f'{_shades(most)}<div class="pair">{tables}{_spread(s)}</div>'
    )


def _shades(most: float) -> str:
    """Return the legend of the shades of numbers."""
    return (
        '<ul class="legend"><li><i></i>equal</li><li><i class="least"></i>differs a little</li>'
        '<li><i class="shade"></i>differs most</li><li><i class="frame"></i>largest difference'
        f"{f' {most:.3g}' if math.isfinite(most) else ''}</li></ul>"
    )


def _part(s: Json, side: str, axes: Sequence[int]) -> str:
    """Return the shown part of a tensor, indexed as in the file: [0,3..8,2..7,5]."""
    corner, shape = list(s["corner"]), list(s["shape"])
    rows = s[side]
    sizes = [*[1] * (len(shape) - 2), len(rows), len(rows[0]) if rows else 0]
    pairs = zip(corner, sizes[len(sizes) - len(shape) :], strict=True)
    parts = [f"{c}" if n == 1 else f"{c}..{c + n - 1}" for c, n in pairs]
    order = list(axes) or list(range(len(shape)))
    return f"[{','.join(parts[i] for i in order)}] of [{','.join(str(shape[i]) for i in order)}]"


def _distance(a: Any, b: Any) -> float:
    """Return the distance: 0 for equal values, including NaN; infinite if they cannot be
    subtracted.
    """
    try:
        x, y = float(a), float(b)
    except ValueError:
        return 0.0 if a == b else math.inf
    if x == y or (math.isnan(x) and math.isnan(y)):
        return 0.0
    return abs(x - y) if math.isfinite(x - y) else math.inf


def _numbers(
    title: str,
    rows: Sequence[Sequence[Any]],
    distances: Sequence[Sequence[float]],
    most: float,
    corner: Sequence[int],
) -> str:
    left = corner[-1] if corner else 0
    top = corner[-2] if len(corner) > 1 else 0
    width = len(rows[0]) if rows else 0
    head = "".join(f'<th scope="col">{left + i}</th>' for i in range(width))

    def cell(value: Any, d: float) -> str:
        share = 0 if not d else 45 if math.isinf(most) or not most else round(10 + 35 * d / most)
        tint = f' style="background:color-mix(in srgb,var(--own) {share}%,transparent)"'
        kind = ' class="most"' if d and d == most else ""
        return f"<td{kind}{tint if share else ''}>{escape(_short(value))}</td>"

    body = "".join(
        f'<tr><th scope="row">{top + i}</th>{"".join(map(cell, row, ds))}</tr>'
        for i, (row, ds) in enumerate(zip(rows, distances, strict=True))
    )
    return (
        '<div class="wide"><table class="tensor" '
        f'aria-label="{title}"><thead><tr><td></td>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div>"
    )


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)[:40]


def _spread(s: Json) -> str:
    """Return the number of elements for each magnitude of the error."""
    counts = {int(e): int(n) for e, n in s["errors"]}
    if not counts:
        return ""
    rows = [
        (f"1e{e}", [("wrong", counts[e])] if e in counts else [])
        for e in range(min(counts), max(counts) + 1)
    ]
    same = [f"{s['same']:,} elements are equal"] if s["same"] else []
    same += [f"{s['infinite']:,} are finite on one side only"] if s["infinite"] else []
    return (
        "<div><p>elements by their absolute difference</p>"
        f"{plot.bars(rows, 'elements by their absolute difference')}<p "
        f'class="dim">{"; ".join(same)}</p></div>'
    )


# ---- the graph around it


def picture(result: Result) -> str:
    """Return data for the drawing of assets/graph.js; empty if the results hold no graph."""
    found = result.picture
    if not found or not found.get("nodes"):
        return ""
    known = {t.reference: t for t in result.tensors}
    nodes = [_box(n, known.get(n["tensor"])) for n in found["nodes"]]
    words = {WRONG: f"{STATUSES[WRONG]} ✕", INHERITED: f"{STATUSES[INHERITED]} ↓"}
    words = {**STATUSES, **words}
    legend = "".join(f'<li><i class="{k}"></i>{text}</li>' for k, text in words.items())
    bars = "bars: error introduced here to the left, total error to the right"
    legend += f'<li class="dim">{bars}</li>'
    more = " The drawing shows only its surroundings." if found.get("more") else ""
    return (
        f'<h3>The graph around it</h3><figure class="picture"><ul class="legend">{legend}</ul>'
        '<div class="graph small" hidden aria-label="graph around the first wrong layer; arrow '
        'keys follow the tensors"></div>'
        f'<p class="picked dim" aria-live="polite">Choose a layer to see its errors.{more}</p>'
        '<noscript><p class="dim">The drawing needs JavaScript.</p></noscript>'
        f"{assets.data({'nodes': nodes, 'edges': found['edges'], 'scopes': []})}</figure>"
    )


def _box(n: Json, t: Tensor | None) -> Json:
    return {
        "kind": n["kind"],
        "layer": n["layer"],
        "state": n["status"],
        "scope": -1,
        **errors(t),
        "title": "\n".join(_summary(n, t)),
    }


def errors(t: Tensor | None) -> dict[str, float]:
    """Return the lengths of the two bars of a box, own and total, between 0 and 1."""
    found = {"own": height(t.own), "from": height(t.total)} if t is not None else {}
    return {k: v for k, v in found.items() if v}


def height(d: Difference | None) -> float:
    """Return the height of a bar: the relative error from 1e-7 to 1, logarithmic."""
    if d is None or not d.max_abs:
        return 0.0
    share = d.l2 if math.isfinite(d.l2) else 1.0
    return round(min(1.0, max(0.04, (math.log10(share) + 7) / 7)) if share > 0 else 0.04, 3)


def _summary(n: Json, t: Tensor | None) -> Iterator[str]:
    yield f"{n['index']} {n['layer']} ({n['kind']})"
    if n["shape"] is not None:
        yield f"shape {n['shape']}"
    if t is not None:
        yield STATUSES[t.status]
        for what, d in (("error introduced here", t.own), ("total error", t.total)):
            if d is not None and d.max_abs:
                yield f"{what} {_error(d)}"
