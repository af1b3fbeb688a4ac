"""Diagnostic codes in a page: each is a link to its explanation in the same page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from html import escape

from converter.commands.explain import CODES

_CODE = re.compile(r"\b[RXWNBU]\d{3}\b")


@cache
def linked(text: str) -> str:
    """Escape a text, with its diagnostic codes as links."""
    return _CODE.sub(lambda m: _link(m[0]), escape(text))


def _link(code: str) -> str:
    return f'<a class="code" href="#{code}">{code}</a>' if code in CODES else code


def explanations(parts: Iterable[str]) -> str:
    """Return the explanations of the codes to which a page links."""
    used = {c for p in parts for c in re.findall(r'href="#([RXWNBU]\d{3})"', p)}
    rows = "".join(
        f'<dt id="{code}">{code} {escape(CODES[code].title)}</dt>'
        f"<dd><p>{escape(CODES[code].text)}</p><p>{escape(CODES[code].help)}</p></dd>"
        for code in sorted(used)
    )
    return f'<h2>Error codes</h2><dl class="codes">{rows}</dl>' if rows else ""
