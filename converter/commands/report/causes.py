"""Failures grouped by their cause: many models fail for one reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from converter.commands.report.facts import Entry
from converter.errors import SEVERITY, ExitCode

NAMED = 4  # cases that a line names


@dataclass(frozen=True)
class Cause:
    """Failures with the same first error or, without errors, with the same status."""

    code: int
    text: str
    entries: tuple[Entry, ...]

    @property
    def new(self) -> int:
        return sum(e.trend == "new" for e in self.entries)

    def line(self) -> str:
        """Return number, cause and the names of some cases."""
        names = ", ".join(e.name for e in self.entries[:NAMED])
        more = f", and {len(self.entries) - NAMED} more" if len(self.entries) > NAMED else ""
        new = f" ({self.new} new)" if self.new else ""
        return f"{len(self.entries)} x {self.text}{new}: {names}{more}"


def causes(entries: Iterable[Entry]) -> list[Cause]:
    """Return the causes of failures: those with new failures first, then the most severe, then the
    most frequent.
    """
    groups: dict[tuple[int, str], list[Entry]] = {}
    for e in entries:
        if e.code:
            groups.setdefault((e.code, _alike(_text(e))), []).append(e)
    found = [Cause(code, _common(alike, g), _new_first(g)) for (code, alike), g in groups.items()]
    rank = {code: i for i, code in enumerate(SEVERITY)}
    return sorted(found, key=lambda c: (not c.new, rank[ExitCode(c.code)], -len(c.entries), c.text))


def _common(alike: str, entries: Sequence[Entry]) -> str:
    texts = {_text(e) for e in entries}
    return texts.pop() if len(texts) == 1 else alike


def _new_first(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda e: e.trend != "new"))


def first_error(e: Entry) -> str:
    """Return the code of the first error, "" without any."""
    return next((d.code for d in e.diagnostics if d.level == "error"), "")


# names and sizes of one model in a message: texts in quotes, shapes, paths, tensors such as x:0
_OWN = re.compile(r"""'[^']*'|"[^"]*"|\[[\d,?\w ]*\]|\S*[\w.]/\S*|\S+:\d+\b""")


def _text(e: Entry) -> str:
    first = next((d for d in e.diagnostics if d.level == "error"), None)
    return f"{e.status}: {first.code} {first.message}" if first is not None else e.status


def _alike(text: str) -> str:
    """Return a message without the names and sizes that differ from model to model."""
    return _OWN.sub("…", text)
