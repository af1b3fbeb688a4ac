"""The style sheets and scripts of pages: readable files in `assets/`, put into a page whole, so
that it needs nothing else. `vendor/` holds dagre, which lays drawings out, with its licence.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "assets"
DRAWING = ("vendor/dagre.min.js", "graph.js")


@cache
def text(name: str) -> str:
    """One file of the folder."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def style(*names: str) -> str:
    """The element that holds these style sheets."""
    return f"<style>{''.join(map(text, names))}</style>"


def script(*names: str) -> str:
    """One element for each script; what comes from elsewhere with its licence."""
    return "".join(f"<script>{_licence(n)}{text(n)}</script>" for n in names)


def _licence(name: str) -> str:
    return f"/*! {text('vendor/dagre.LICENSE')}*/" if name.startswith("vendor/") else ""


def data(value: Any, **attributes: str) -> str:
    """An element that holds data for scripts. No text in it can end the element."""
    told = "".join(f' {k}="{v}"' for k, v in attributes.items())
    inner = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f'<script type="application/json"{told}>{inner.replace("<", chr(92) + "u003c")}</script>'


def page(title: str, styles: str, body: str) -> str:
    """A whole document; `title` and `body` are HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width,initial-scale=1"><title>{title}</title>{styles}</head>\n'
        f"<body>{body}</body></html>\n"
    )
