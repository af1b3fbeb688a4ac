"""Tables of a page: names break after their separators, never inside a word."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Cell:
    """A cell with more than text: `html` is inserted unescaped, `value` is the sort key, `kind` its
    class, `label` its label where there is no header.
    """

    html: str
    value: float | None = None
    kind: str = ""
    label: str = ""


SHORT = 24  # characters; shorter names never break


def name(text: str) -> str:
    """Escape a name or path; a long one may break after `/`, `.`, `_`, `:`, `;` or `-`."""
    if len(text) <= SHORT:
        return escape(text)
    return re.sub(r"(?<=[^/._:;\s-])([/._:;-]+)(?=[^/._:;\s-])", r"\1<wbr>", escape(text))


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str | Cell]],
    numbers: Collection[int] = (),
    kind: str = "",
    states: Sequence[str] = (),
    extra: Collection[int] = (),
    filtered: str = "",
) -> str:
    """Return a table. `numbers` are the right-aligned columns, `extra` those that a narrow screen
    omits, `states` a status for each row to filter by, `filtered` the name of the rows if a search
    field is wanted.
    """

    def classes(i: int, own: str = "") -> str:
        found = [own, "n" if i in numbers else "", "extra" if i in extra else ""]
        text = " ".join(c for c in found if c)
        return f' class="{text}"' if text else ""

    def cell(i: int, c: str | Cell) -> str:
        if isinstance(c, str):
            return f"<td{classes(i)}>{name(c)}</td>"
        value = "" if c.value is None else f' data-v="{c.value:.6g}"'
        label = f' data-label="{escape(c.label)}"' if c.label else ""
        return f"<td{classes(i, c.kind)}{value}{label}>{c.html}</td>"

    def row(number: int, cells: Sequence[str | Cell]) -> str:
        state = f' data-s="{escape(states[number])}"' if states else ""
        return f"<tr{state}>{''.join(cell(i, c) for i, c in enumerate(cells))}</tr>"

    heads = "".join(
        f'<th scope="col"{classes(i)}>{escape(h)}</th>' if h else "<td></td>"
        for i, h in enumerate(head)
    )
    top = f"<thead><tr>{heads}</tr></thead>" if any(head) else ""
    body = "".join(row(i, r) for i, r in enumerate(rows))
    told = f' class="{kind}"' if kind else ""
    asked = f' data-filter="{escape(filtered)}"' if filtered else ""
    return f'<div class="wide"><table{told}{asked}>{top}<tbody>{body}</tbody></table></div>'
