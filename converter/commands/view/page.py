"""The page: the data of one or two drawings, and the scripts that draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from converter.commands.report import assets
from converter.commands.report.table import name as breaking
from converter.commands.verify.text import STATUSES
from converter.commands.view import pairing
from converter.commands.view.drawing import draw
from converter.commands.view.families import FAMILIES

if TYPE_CHECKING:
    from converter.commands.verify import Result
    from converter.graph.network import Network

_HINT = "the keys are listed by the button keys"
_KEYS = (
    ("drag", "move the drawing"),
    ("wheel, two fingers, + −", "zoom"),
    ("0", "show everything"),
    ("click", "select a layer; fold or unfold a group"),
    ("Tab", "go to the drawing"),
    ("↓ ↑", "follow a tensor to its consumer or its producer"),
    ("← →", "go to the layer beside"),
    ("Enter", "select; fold or unfold a group"),
    ("/", "search layers, operators and tensors"),
    ("n", "go to the next difference"),
    ("?", "show this list"),
)


def render(
    models: Sequence[tuple[str, Network]],
    result: Result | None = None,
    given: Mapping[str, str] | None = None,
) -> str:
    """Return a self-contained page. `models` are one or two with their names, `result` is their
    comparison (with all tensors), `given` maps names of tensors of the second model to those of the
    first.
    """
    drawn = [draw(model, name) for name, model in models]
    data: dict[str, Any] = {
        "models": [d.as_json() for d in drawn],
        "families": FAMILIES,
        "words": STATUSES,
    }
    if len(models) == 2:
        both = drawn[0], drawn[1]
        data["counts"] = pairing.pair(models[0][1], models[1][1], both, given, result)
        if result is not None:
            data["errors"] = pairing.color(result, both)
            data["passed"] = result.passed
    title = escape(" and ".join(name for name, _ in models))
    return assets.page(
        f"{title} · netconv",
        assets.style("page.css", "view.css"),
        f"{_body([name for name, _ in models])}{assets.data(data, id='models')}"
        f"{assets.script(*assets.DRAWING, 'view.js')}",
    )


def _body(names: Sequence[str]) -> str:
    graphs = "".join(
        f'<section aria-label="{escape(n)}"><h2>{escape(n)}</h2><div class="host" '
        'aria-label="graph '
        f'of {escape(n)}; {_HINT}"></div></section>'
        for n in names
    )
    title = " and ".join(map(breaking, names))
    return (
        '<a class="skip" href="#found">to the details</a>'
        f'<header><h1>{title}</h1><div class="tools" role="search"><input type="search" '
        'aria-label="search layers" placeholder="search layers, operators, tensors" '
        'aria-controls="hits" autocomplete="off"><output aria-live="polite"></output>'
        '<button type="button" id="fold">fold all</button><button type="button" id="unfold">unfold '
        'all</button><button type="button" id="next" hidden>next difference</button>'
        '<button type="button" id="help" aria-haspopup="dialog">keys</button></div>'
        '<ul id="hits" hidden></ul><ul class="legend"></ul></header>'
        f'<main><div class="graphs of-{len(names)}">{graphs}</div>'
        '<aside id="found" tabindex="-1" aria-label="details" aria-live="polite"></aside></main>'
        f"{_keys()}<noscript><p>The drawing needs JavaScript.</p></noscript>"
    )


def _keys() -> str:
    rows = "".join(
        f'<tr><th scope="row"><kbd>{escape(key)}</kbd></th><td>{escape(what)}</td></tr>'
        for key, what in _KEYS
    )
    return (
        '<dialog id="keys" aria-labelledby="keys-title"><h2 id="keys-title">Keys</h2>'
        f'<table><tbody>{rows}</tbody></table><form method="dialog"><p><button>close</button></p>'
        "</form></dialog>"
    )
