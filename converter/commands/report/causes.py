"""Failures grouped by their cause: many models fail for one reason."""

from __future__ import annotations

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
            groups.setdefault((e.code, _text(e)), []).append(e)
    found = [Cause(code, text, _new_first(g)) for (code, text), g in groups.items()]
    rank = {code: i for i, code in enumerate(SEVERITY)}
    return sorted(found, key=lambda c: (not c.new, rank[ExitCode(c.code)], -len(c.entries), c.text))


def _new_first(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda e: e.trend != "new"))


def _text(e: Entry) -> str:
    first = next((d for d in e.diagnostics if d.level == "error"), None)
    return f"{e.status}: {first.code} {first.message}" if first is not None else e.status
