"""The parts of the HTML page about one case."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from converter.commands.report.plot import svg
from converter.commands.report.text import group
from converter.commands.verify.compare import Difference
from converter.commands.verify.result import EQUAL, NOISE, WRONG, Result, Tensor
from converter.commands.verify.text import lines
from converter.errors import Diagnostic

SHOWN = 40  # groups of diagnostics, fields, names


def colour(code: int) -> str:
    return "s-ok" if code == 0 else "s-warn" if code in (3, 130) else "s-bad"


def comparison(result: Result) -> str:
    """What was found, the first wrong layer, the outputs, the error along the graph."""
    text = escape("\n".join(lines(result)))
    rows = [
        (
            o.reference,
            "same" if o.passed else "differs",
            _number(o.difference.max_abs),
            f"{o.difference.cos:.6f}",
            _number(o.difference.ulp),
            o.feed,
        )
        for o in result.outputs
    ]
    outputs = table(
        ("output", "verdict", "largest difference", "cosine", "ulp", "on input"),
        rows,
        numbers={2, 3, 4},
    )
    native = _native(result)
    drawn = svg(result.tensors)
    plot = f"<h3>Error along the graph</h3>{drawn}" if drawn else ""
    return f"<h3>Numbers</h3><pre>{text}</pre>{outputs}{native}{_first(result)}{plot}"


def _native(result: Result) -> str:
    rows = [
        (n.role, n.file, n.engine, n.status, f"{n.code} {n.message}".strip()) for n in result.native
    ]
    return (
        "<h3>The files in their own engines</h3>"
        + table(("", "file", "engine", "verdict", ""), rows)
        if rows
        else ""
    )


def _first(result: Result) -> str:
    first = result.first
    if first is None:
        return ""
    rows = [
        ("layer", f"{first.index} {first.layer} ({first.kind})"),
        *((model, place) for model, place in zip(result.models, first.where, strict=True) if place),
        (
            "own error",
            f"{_number(first.own.max_abs)}, tolerance {_number(first.own.tolerance)}, "
            f"inherited {_number(first.inherited)}",
        ),
        *(("cause", cause) for cause in first.causes),
    ]
    return (
        '<h3>First divergence</h3><div class="first-divergence">' + table(("", ""), rows) + "</div>"
    )


def layers(tensors: Sequence[Tensor], limit: int) -> str:
    """The table of layers; of too many the ones that are wrong and the largest errors."""
    chosen = list(tensors)
    if len(chosen) > limit:
        worst = sorted(
            chosen, key=lambda t: (t.status != WRONG, t.status in (EQUAL, NOISE), -_size(t.own))
        )[:limit]
        chosen = sorted(worst, key=lambda t: t.index)
    rows = [
        (
            str(t.index),
            t.layer,
            t.kind,
            t.status,
            _maybe(t.own),
            _maybe(t.total),
            t.reference,
            t.candidate,
        )
        for t in chosen
    ]
    shown = f"{len(chosen)} of {len(tensors)}" if len(chosen) < len(tensors) else str(len(tensors))
    body = table(
        (
            "",
            "layer",
            "operator",
            "status",
            "own error",
            "total error",
            "tensor",
            "in the candidate",
        ),
        rows,
        numbers={0, 4, 5},
        kind="layers",
    )
    return f"<h3>Layers</h3><details open><summary>{shown} tensors</summary>{body}</details>"


def structure(sides: Sequence[Mapping[str, Any]]) -> str:
    """Operators before and after, weights, sizes."""
    names = list(dict.fromkeys(n for s in sides for n in s["operators"]))
    rows: list[tuple[str, ...]] = [
        (n, *(str(s["operators"].get(n, "")) for s in sides)) for n in sorted(names)
    ]
    rows.append(("all nodes", *(str(s["nodes"]) for s in sides)))
    rows += [
        (f"weights: {k}", *(f"{s['weights'][k]:,}" for s in sides))
        for k in ("tensors", "elements", "bytes")
    ]
    rows += [
        (side, *(", ".join(f"{t['name']} {t['type']}{t['shape']}" for t in s[side]) for s in sides))
        for side in ("inputs", "outputs")
    ]
    return "<h3>Structure, weights and sizes</h3>" + table(
        ("", *(s["format"] for s in sides)), rows, numbers=set(range(1, len(sides) + 1))
    )


def coverage(data: Mapping[str, Any]) -> str:
    rows = [
        (what, str(data[what]["all"]), str(data[what]["convert"]))
        for what in ("layers", "operators")
    ]
    return f"<h3>Coverage of {escape(data['target'])}</h3>" + table(
        ("", "all", "convert"), rows, numbers={1, 2}
    )


def files(found: Mapping[str, Any]) -> str:
    rows = [(name, f"{facts['bytes']:,}", facts["sha256"]) for name, facts in found.items()]
    return "<h3>Files</h3>" + table(("file", "bytes", "SHA-256"), rows, numbers={1})


def losses(trip: Mapping[str, Any]) -> str:
    """What came back differently from a round trip."""
    changes = [
        f"{c['sign']} {c['kind']} {c['layer']} {'; '.join(c['details'])}"
        for c in trip["structure"]["changes"]
    ]
    renamed = [f"{a} became {b}" for a, b in trip["structure"]["renamed"].items()]
    told = [
        (
            "bytes",
            ["the same"]
            if trip["bytes"]["same"]
            else [f"normalised: {n}" for n in trip["bytes"]["normalised"]] or ["not the same"],
        )
    ]
    told += [("structure", changes or ["the same"]), ("names", renamed or ["kept"])]
    rows = [
        (
            what,
            "; ".join(texts[:SHOWN])
            + (f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""),
        )
        for what, texts in told
    ]
    return "<h3>There and back</h3>" + table(("", ""), rows)


def said(diagnostics: Sequence[Diagnostic]) -> str:
    """Diagnostics, alike ones as one."""
    groups = group(diagnostics)
    rows = [
        (
            g[0].code,
            g[0].level,
            g[0].message + (f" (help: {g[0].help})" if g[0].help else ""),
            _places(g),
        )
        for g in groups[:SHOWN]
    ]
    more = f'<p class="dim">and {len(groups) - SHOWN} more</p>' if len(groups) > SHOWN else ""
    return f"<h3>Diagnostics</h3>{table(('code', '', 'what', 'where'), rows)}{more}" if rows else ""


def _places(alike: Sequence[Diagnostic]) -> str:
    places = [str(d.where) for d in alike if str(d.where)]
    return "; ".join(places[:4]) + (f"; and {len(places) - 4} more" if len(places) > 4 else "")


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Collection[int] = (),
    kind: str = "",
) -> str:
    def row(cells: Sequence[str]) -> str:
        return (
            "<tr>"
            + "".join(
                f'<td class="n">{escape(c)}</td>' if i in numbers else f"<td>{escape(c)}</td>"
                for i, c in enumerate(cells)
            )
            + "</tr>"
        )

    top = (
        f"<thead><tr>{''.join(f'<th>{escape(h)}</th>' for h in head)}</tr></thead>"
        if any(head)
        else ""
    )
    return f'<div class="wide"><table{f" class={kind}" if kind else ""}>{top}<tbody>{"".join(map(row, rows))}</tbody></table></div>'


def _number(value: float) -> str:
    return f"{value:.3g}"


def _size(d: Difference | None) -> float:
    return d.max_abs if d is not None else 0.0


def _maybe(d: Difference | None) -> str:
    return "" if d is None else _number(d.max_abs)
