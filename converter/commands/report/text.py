"""Diagnostics as text: the problem, its location, the evidence, the number of similar ones, the
remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from converter.commands.explain import CODES
from converter.errors import Diagnostic, counted
from converter.io.escape import escaped

_COLOR = {"error": "red", "warning": "yellow", "note": "blue"}
NAMED = 4  # similar layers that are named


def group(diagnostics: Sequence[Diagnostic]) -> list[list[Diagnostic]]:
    """Group similar diagnostics (same code, level, message, help), in the order of their first."""
    groups: dict[tuple[str, str, str, str], list[Diagnostic]] = {}
    for d in diagnostics:
        groups.setdefault((d.code, d.level, d.message, d.help), []).append(d)
    return list(groups.values())


def render(diagnostics: Sequence[Diagnostic], named: Callable[[str], str] = str) -> str:
    """Render diagnostics with colors, similar ones grouped. Each line is escaped after `named` has
    replaced the names of files.
    """
    return "\n".join(_one(g, named) for g in group(diagnostics))


def _one(alike: Sequence[Diagnostic], named: Callable[[str], str]) -> str:
    d, more = alike[0], alike[1:]
    head = click.style(f"{d.level}[{d.code}]", fg=_COLOR[d.level], bold=True)
    lines = []
    if location := str(d.where):
        lines.append(f"  ┌ {escaped(location)}")
    lines.extend(f"  │ {escaped(e)}" for e in d.evidence)
    if more:
        lines.append(f"  ├ same at {counted(len(more), 'more location')}{_names(more)}")
    explain = f"netconv explain {d.code}" if d.code in CODES else ""
    if d.help:
        lines.append(f"  └ help: {d.help}")
    elif lines and explain:
        lines.append(f"  └ {explain}")
    return "\n".join(
        [f"{head} {escaped(named(d.message))}", *(escaped(named(line)) for line in lines)]
    )


def _names(alike: Sequence[Diagnostic]) -> str:
    names = [f'"{d.where.layer}"' if d.where.layer else str(d.where) for d in alike if str(d.where)]
    shown = names[:NAMED]
    return (": " + ", ".join(shown) + (", ..." if len(names) > NAMED else "")) if shown else ""
