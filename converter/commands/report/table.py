"""Tables of a page: names break after their separators, never inside a word."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape


@dataclass(frozen=True)
class Cell:
    """A cell with more than text: `html` is inserted unescaped, `value` is the sort key, `kind` its
    class, `label` its label where there is no header, `data` is for scripts.
    """

    html: str
    value: float | None = None
    kind: str = ""
    label: str = ""
    data: Mapping[str, str] = field(default_factory=dict)


SHORT = 24  # characters; shorter names never break


def name(text: str) -> str:
    """Escape a name or path; a long one may break after `/`, `.`, `_`, `:`, `;` or `-`."""
    if len(text) <= SHORT:
        return escape(text)
    return re.sub(r"(?<=[^/._:;\s-])([/._:;-]+)(?=[^/._:;\s-])", r"\1<wbr>", escape(text))


def duration(seconds: float) -> str:
    """Format a duration for people: 0.4 s, 12 s, 3 min 5 s."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def _data(found: Mapping[str, str]) -> str:
    return "".join(f' data-{k}="{escape(v)}"' for k, v in found.items() if v)


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str | Cell]],
    numbers: Collection[int] = (),
    kind: str = "",
    states: Sequence[Mapping[str, str]] = (),
    extra: Collection[int] = (),
    filtered: str = "",
) -> str:
    """Return a table. `numbers` are the right-aligned columns, `extra` those that a narrow screen
    omits, `states` the data of each row to filter by, `filtered` the name of the rows if a search
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
        return f"<td{classes(i, c.kind)}{value}{label}{_data(c.data)}>{c.html}</td>"

    def row(number: int, cells: Sequence[str | Cell]) -> str:
        state = _data(states[number]) if states else ""
        return f"<tr{state}>{''.join(cell(i, c) for i, c in enumerate(cells))}</tr>"

    heads = "".join(
        f'<th scope="col"{classes(i)}>{escape(h)}</th>' if h else "<td></td>"
        for i, h in enumerate(head)
    )
    top = f"<thead><tr>{heads}</tr></thead>" if any(head) else ""
    body = "".join(row(i, r) for i, r in enumerate(rows))
    attribute_text = f' class="{kind}"' if kind else ""
    asked = f' data-filter="{escape(filtered)}"' if filtered else ""
    return (
        f'<div class="wide"><table{attribute_text}{asked}>{top}<tbody>{body}</tbody></table></div>'
    )
