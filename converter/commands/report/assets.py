"""The style sheets and scripts of pages: readable files in `assets/`, embedded into a page, so that
it is self-contained. `vendor/` holds dagre, which computes the layout of drawings, with its
license.
"""

from __future__ import annotations

import json
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "assets"
DRAWING = ("vendor/dagre.min.js", "graph.js")


@cache
def text(name: str) -> str:
    """Return one file of the folder."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def style(*names: str) -> str:
    """Return the element that holds these style sheets."""
    return f"<style>{''.join(map(text, names))}</style>"


def script(*names: str) -> str:
    """Return one element for each script; third-party ones include their license."""
    return "".join(f"<script>{_licence(n)}{text(n)}</script>" for n in names)


def _licence(name: str) -> str:
    return f"/*! {text('vendor/dagre.LICENSE')}*/" if name.startswith("vendor/") else ""


def data(value: Any, **attributes: str) -> str:
    """Return an element that holds data for scripts. No text in it can end the element."""
    attribute_text = "".join(f' {k}="{v}"' for k, v in attributes.items())
    inner = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    inner = inner.replace("<", chr(92) + "u003c")
    return f'<script type="application/json"{attribute_text}>{inner}</script>'


def frame(content: str, title: str, height: int = 600) -> str:
    """Return a page as an element of a notebook: its styles and scripts stay inside."""
    return (
        f'<iframe title="{escape(title)}" srcdoc="{escape(content)}" '
        f'style="width: 100%; height: {height}px; border: 0"></iframe>'
    )


def page(title: str, styles: str, body: str) -> str:
    """Return a whole document; `title` and `body` are HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width,initial-scale=1"><title>{title}</title>{styles}</head>\n'
        f"<body>{body}</body></html>\n"
    )
