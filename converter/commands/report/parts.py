"""The parts of the HTML page about one case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from converter.commands.report import plot
from converter.commands.report.codes import linked
from converter.commands.report.table import Cell, table
from converter.commands.report.text import group
from converter.commands.verify.compare import Difference
from converter.commands.verify.result import EQUAL, INHERITED, NOISE, WRONG, Result, Tensor
from converter.commands.verify.text import STATUSES, lines
from converter.errors import Diagnostic, counted
from converter.io.files import size_text
from converter.io.strict_json import Json

SHOWN = 40  # groups of diagnostics, fields, names


def color(code: int) -> str:
    """Return the style of an exit code: success, a result to look at, or a failure."""
    return "s-ok" if code == 0 else "s-warn" if code in (3, 6, 9, 130) else "s-bad"


def outputs(result: Result) -> str:
    """Return how far the outputs differ, in a sentence and one by one, the worst first."""
    worst_first = sorted(result.outputs, key=lambda o: (o.passed, -o.difference.excess))
    rows = [
        (
            o.reference,
            Cell(_verdict(o.passed)),
            _measure(o.difference.max_abs),
            _allowed(o.difference),
            _percent(o.difference.l2),
            Cell(f"{o.difference.cos:.6f}", o.difference.cos),
            _measure(o.difference.ulp),
            o.feed,
        )
        for o in worst_first
    ]
    head = ("output", "verdict", "largest difference", "× tolerance")
    return f"<h3>Outputs</h3><p>{escape(how_wrong(result))}</p>" + table(
        (*head, "relative (L2)", "cosine", "ulp", "on input"),
        rows,
        numbers={2, 3, 4, 5, 6},
        kind="sortable" if len(rows) > 1 else "",
        extra={5, 6, 7},
    )


def how_wrong(result: Result) -> str:
    """Return how wrong the outputs are, in a sentence."""
    failed = [o for o in result.outputs if not o.passed]
    within = "the measured rounding noise" if result.measured else "the given tolerance"
    if not failed:
        wrong = len(result.findings)
        layers = f", but {counted(wrong, 'layer')} {'is' if wrong == 1 else 'are'} wrong"
        largest = f"the largest difference is {result.max_difference:.3g}"
        return f"All outputs agree within {within}{layers if wrong else ''}; {largest}."
    worst = max(failed, key=lambda o: o.difference.excess)
    d = worst.difference
    verb = "differs" if len(failed) == 1 else "differ"
    differ = f"{len(failed)} of {counted(len(result.outputs), 'output')} {verb}"
    if d.note and math.isinf(d.max_abs):
        return f'{differ}; "{worst.reference}": {d.note}.'
    share = f" ({100 * d.l2:.2g} %)" if math.isfinite(d.l2) else ""
    times = f", {d.excess:.2g} times {within}" if math.isfinite(d.excess) else ""
    return f'{differ}; "{worst.reference}" by up to {d.max_abs:.3g}{share}{times}.'


def _allowed(d: Difference) -> Cell:
    known = math.isfinite(d.excess) and d.excess > 0
    return Cell(f"{d.excess:.2g}" if known else "", d.excess if known else -1)


def _percent(value: float) -> Cell:
    return Cell(f"{100 * value:.3g} %", value) if math.isfinite(value) else Cell("∞", 1e308)


def printed(result: Result) -> str:
    """Return the result as a terminal shows it."""
    text = escape("\n".join(lines(result)))
    folded = f"<details><summary>as netconv verify prints it</summary><pre>{text}</pre></details>"
    return f"<h3>Text</h3>{folded}"


def errors(tensors: Sequence[Tensor]) -> str:
    """Return the error along the graph and a histogram of errors."""
    drawn, bars = plot.curve(tensors), plot.histogram(tensors)
    curve = f"<h3>Error along the graph</h3>{drawn}" if drawn else ""
    return curve + (f"<h3>Layers by error</h3>{bars}" if bars else "")


def _verdict(passed: bool) -> str:
    kind, word = ("s-ok", "same") if passed else ("s-bad", "differs")
    return f'<span class="badge {kind}">{word}</span>'


def native(result: Result) -> str:
    """Return the verdicts of the files' own engines."""
    rows = [
        (n.role, n.file, n.engine, n.status, Cell(linked(f"{n.code} {n.message}".strip())))
        for n in result.native
    ]
    return (
        "<h3>The files in their own engines</h3>"
        + table(("", "file", "engine", "verdict", ""), rows)
        if rows
        else ""
    )


def layers(tensors: Sequence[Tensor], limit: int) -> str:
    """Return the table of layers; if there are too many, the wrong ones and the largest errors."""
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
            Cell(_status(t.status)),
            _maybe(t.own),
            _maybe(t.total),
            t.reference,
            t.candidate,
        )
        for t in chosen
    ]
    shown = f"{len(chosen)} of {len(tensors)}" if len(chosen) < len(tensors) else str(len(tensors))
    head = ("#", "layer", "operator", "status", "error introduced", "total error")
    body = table(
        (*head, "tensor", "in the candidate"),
        rows,
        numbers={0, 4, 5},
        kind="layers sortable",
        states=[{"s": STATUSES[t.status]} for t in chosen],
        extra={0, 2, 5, 6, 7},
        filtered="layers",
    )
    return f"<h3>Layers</h3><details open><summary>{shown} tensors</summary>{body}</details>"


def _status(status: str) -> str:
    kind = {WRONG: "s-bad", INHERITED: "s-warn"}.get(status, "s-ok")
    return f'<span class="badge {kind}">{escape(STATUSES[status])}</span>'


def structure(sides: Sequence[Json]) -> str:
    """Return operators before and after, weights, sizes."""
    names = list(dict.fromkeys(n for s in sides for n in s["operators"]))
    rows: list[tuple[str, ...]] = [
        (n, *(str(s["operators"].get(n, "")) for s in sides)) for n in sorted(names)
    ]
    rows.append(("all nodes", *(str(s["nodes"]) for s in sides)))
    rows += [
        (f"weights: {k}", *(f"{s['weights'][k]:,}" for s in sides)) for k in ("tensors", "elements")
    ]
    rows.append(("weights", *(size_text(s["weights"]["bytes"]) for s in sides)))
    rows += [
        (side, *(", ".join(f"{t['name']} {t['type']}{t['shape']}" for t in s[side]) for s in sides))
        for side in ("inputs", "outputs")
    ]
    return "<h3>Structure, weights and sizes</h3>" + table(
        ("", *(s["format"] for s in sides)), rows, numbers=set(range(1, len(sides) + 1))
    )


def coverage(data: Json) -> str:
    """Return a table of layers and operators that can be converted, as HTML."""
    rows = [
        (what, str(data[what]["all"]), str(data[what]["convert"]))
        for what in ("layers", "operators")
    ]
    return f"<h3>Coverage of {escape(data['target'])}</h3>" + table(
        ("", "all", "convert"), rows, numbers={1, 2}
    )


def files(found: Json) -> str:
    """Return a table of files with their sizes and hashes, as HTML."""
    rows = [
        (
            name,
            size_text(facts["bytes"]),
            Cell(f'<span class="mono">{escape(facts["sha256"])}</span>'),
        )
        for name, facts in found.items()
    ]
    return "<h3>Files</h3>" + table(("file", "size", "SHA-256"), rows, numbers={1}, extra={2})


def losses(trip: Json) -> str:
    """Return the differences after a round trip."""
    changes = [
        f"{c['sign']} {c['kind']} {c['layer']} {'; '.join(c['details'])}"
        for c in trip["structure"]["changes"]
    ]
    renamed = [f"{a} became {b}" for a, b in trip["structure"]["renamed"].items()]
    findings = [
        (
            "bytes",
            ["the same"]
            if trip["bytes"]["same"]
            else [f"normalised: {n}" for n in trip["bytes"]["normalised"]] or ["not the same"],
        )
    ]
    findings += [("structure", changes or ["the same"]), ("names", renamed or ["kept"])]
    rows = [
        (
            what,
            "; ".join(texts[:SHOWN])
            + (f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""),
        )
        for what, texts in findings
    ]
    return "<h3>There and back</h3>" + table(("", ""), rows)


def grouped_diagnostics(diagnostics: Sequence[Diagnostic]) -> str:
    """Return diagnostics, similar ones grouped."""
    groups = group(diagnostics)
    rows = [
        (
            Cell(linked(g[0].code)),
            g[0].level,
            g[0].message + (f" (help: {g[0].help})" if g[0].help else ""),
            _locations(g),
        )
        for g in groups[:SHOWN]
    ]
    more = f'<p class="dim">and {len(groups) - SHOWN} more</p>' if len(groups) > SHOWN else ""
    return f"<h3>Diagnostics</h3>{table(('code', '', 'what', 'where'), rows)}{more}" if rows else ""


def _locations(alike: Sequence[Diagnostic]) -> str:
    locations = [str(d.where) for d in alike if str(d.where)]
    return "; ".join(locations[:4]) + (
        f"; and {len(locations) - 4} more" if len(locations) > 4 else ""
    )


def _measure(value: float) -> Cell:
    return Cell(f"{value:.3g}", value if math.isfinite(value) else 1e308)


def _size(d: Difference | None) -> float:
    return d.max_abs if d is not None else 0.0


def _maybe(d: Difference | None) -> Cell:
    return Cell("", -1) if d is None else _measure(d.max_abs)
