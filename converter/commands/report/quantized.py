"""The page of a quantization: size, loss, the error of each layer, and the layers in floats."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from converter import version
from converter.commands.report import assets, parts
from converter.commands.report.codes import explanations
from converter.commands.report.origin import shown
from converter.commands.report.table import Cell, name, table
from converter.errors import counted
from converter.formats.coreml.package import size_of
from converter.io.files import size_text
from converter.io.strict_json import Json

if TYPE_CHECKING:
    from converter.commands.quantize.result import Quantized

MOST = 60.0  # decibels that fill a bar
BAD, DOUBTFUL = 10.0, 20.0  # decibels below which an error is large, or worth a look
FEW = 20  # layers in a list that is not folded
SHOWN = 2500  # layers in a table


def render(source: str, results: Sequence[Quantized], arguments: Sequence[str], about: Json) -> str:
    """Return the page of the files that were written for one network."""
    body = [_section(made) for made in results]
    command = escape(shlex.join(["netconv", *arguments]))
    again = (
        f'<h2>Reproduce</h2><div class="cmd"><code>{command}</code><button type="button" '
        'class="copy" hidden>Copy quantize command</button></div>'
    )
    inner = "".join([*body, again, explanations(body)])
    return assets.page(
        f"{escape(source)} quantized · netconv",
        assets.style("page.css", "report.css"),
        f'<a class="skip" href="#main">to the results</a><header><h1>{name(source)} quantized</h1>'
        f'<p class="dim">netconv {version.__version__}</p>{shown(about)}</header>'
        f'<main id="main">{inner}</main>{assets.script("report.js")}',
    )


def _section(made: Quantized) -> str:
    files = " + ".join(p.name for p in made.files)
    inner = "".join(
        [
            _sizes(made),
            _quality(made),
            _layers(made),
            _wide(made),
            _floats(made),
            _weights(made),
            parts.grouped_diagnostics(made.notes),
        ]
    )
    title = f'{name(files)} <span class="badge s-ok">{escape(str(made.flavor))}</span>'
    return f"<section><h2>{title}</h2>{inner}</section>"


def _sizes(made: Quantized) -> str:
    share = made.size / max(1, made.before)
    rows = [
        ("float network", size_text(made.before), ""),
        *((p.name, size_text(size_of(p)), "") for p in made.files),
        ("all files", size_text(made.size), f"{share:.0%} of the float network"),
    ]
    return f"<h3>Size</h3>{table(('', 'size', ''), rows, numbers={1})}"


def _quality(made: Quantized) -> str:
    q = made.quality
    if q is None:
        return (
            "<h3>Loss</h3><p>The loss was not measured: name representative data with --data.</p>"
        )
    answers = [(n, f"{c} of {q.samples}", share, around) for n, c, share, around in q.shares()]
    rows = [(output, _decibels(v)) for output, v in sorted(q.sqnr.items(), key=lambda i: i[1])]
    found = table(("output", "signal to noise"), rows, numbers={1})
    if answers:
        head = ("answers", "samples", "share", "interval of 95 %")
        found += table(head, answers, numbers={1, 2, 3})
    return f"<h3>Loss</h3><p>{q.samples} samples in {escape(q.engine)}</p>{found}"


def _layers(made: Quantized) -> str:
    """Return the error of each tensor, with rounding alone and as it was written."""
    names = sorted(
        {*made.layers, *made.rounded}, key=lambda n: made.layers.get(n, made.rounded.get(n, 0.0))
    )
    if not names:
        return ""
    rows = [
        (n, _bar(made.rounded.get(n)), _bar(made.layers.get(n), n not in made.layers))
        for n in names[:SHOWN]
    ]
    states = [{"s": _state(made.layers.get(n))} for n in names[:SHOWN]]
    return (
        '<h3>Error by layer</h3><p class="dim">Signal to noise of each tensor against the float '
        "network: with all layers rounded, and as written, with corrected biases and layers that "
        "were left in floating point. A larger number is better; 20 dB are an error of 10 %.</p>"
    ) + table(
        ("result of layer", "rounded alone", "as written"),
        rows,
        kind="layers sortable",
        states=states,
        filtered="layers",
    )


def _state(value: float | None) -> str:
    if value is None:
        return "in floats"
    return "large error" if value < BAD else "visible error" if value < DOUBTFUL else "small error"


def _bar(value: float | None, floats: bool = False) -> Cell:
    if value is None:
        return Cell("in floats" if floats else "", 1e308 if floats else -1e308)
    width = 100 * max(0.0, min(value, MOST)) / MOST
    kind = {"large error": "s-bad", "visible error": "s-warn"}.get(_state(value), "s-ok")
    return Cell(
        f'<span class="meter {kind}"><i style="width:{width:.0f}%"></i></span> {_words(value)}',
        value,
    )


def _decibels(value: float) -> Cell:
    return Cell(_words(value), value)


def _words(value: float) -> str:
    """Return decibels with the relative error that they mean."""
    from converter.commands.quantize.measure import EXACT

    if value >= EXACT:
        return "exact"
    return f"{value:.1f} dB ({100 * 10 ** (-value / 20):.2g} %)"


def _wide(made: Quantized) -> str:
    if not made.wide:
        return ""
    listed = "".join(f"<li>{name(n)}</li>" for n in made.wide[:SHOWN])
    return f"<h3>Layers with 16 bits</h3><ul>{listed}</ul>"


def _floats(made: Quantized) -> str:
    if not made.floats:
        return ""
    rows = sorted(made.floats.items(), key=lambda i: (i[1], i[0]))
    body = table(("layer", "why"), rows[:SHOWN], kind="sortable")
    few = " open" if len(rows) <= FEW else ""
    count = Counter(made.floats.values())
    reasons = "".join(f"<li>{n} × {escape(why)}</li>" for why, n in count.most_common())
    title = f"<summary>{counted(len(rows), 'layer')}</summary>"
    folded = f"<details{few}>{title}{body}</details>"
    return f"<h3>Layers in floating point</h3><ul>{reasons}</ul>{folded}"


def _weights(made: Quantized) -> str:
    if not made.forms:
        return ""
    return "<h3>Weights</h3>" + table(("layer", "form"), sorted(made.forms.items())[:SHOWN])
