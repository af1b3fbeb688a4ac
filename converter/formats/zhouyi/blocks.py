"""Lines into blocks: `key=value` lines, blocks between blank lines (section 4.1). Every damaged
line becomes one diagnostic, none stops the reading.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import NamedTuple

from converter.errors import Diagnostic, Where
from converter.record import record

_KEY = re.compile(r"[A-Za-z0-9.:/_;'-]+\Z")
# NUL and similar characters, and the separators at which other readers break a line
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f\x85\u2028\u2029]")
_BLANKS = " \t\r"
MAX_FINDINGS = 100


class Entry(NamedTuple):
    """A value of a text, with its line."""

    text: str
    line: int


@record
class TextBlock:
    """The keys of one block in file order; `line` is that of its first key."""

    line: int
    entries: dict[str, Entry] = field(default_factory=dict)


class LimitedFindings:
    """The diagnostics of one file; after MAX_FINDINGS they are only counted, so that a damaged file
    does not result in a report of the same size.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.list: list[Diagnostic] = []
        self.more = 0

    def add(
        self, message: str, line: int = 0, *, help: str = "", layer: str = "", kind: str = ""
    ) -> None:
        """Add a finding, R103; those beyond the limit are only counted."""
        if len(self.list) < MAX_FINDINGS:
            where = Where(self.file, line, layer=layer, kind=kind)
            self.list.append(Diagnostic("R103", message, where=where, help=help))
        else:
            self.more += 1

    def all(self) -> list[Diagnostic]:
        """Return the findings, and the number of those that were omitted."""
        if not self.more:
            return self.list
        message = f"{self.more} more findings of this kind were omitted"
        return [*self.list, Diagnostic("R103", message, where=Where(self.file))]


def parse_blocks(text: str, findings: LimitedFindings) -> list[TextBlock]:
    """Return all blocks of a text. A value that was broken across lines is joined again,
    superfluous characters in a key are removed: with a finding each.
    """
    for m in _CONTROL.finditer(text):
        findings.add(
            f"character U+{ord(m[0]):04X} is not allowed in a line",
            text.count("\n", 0, m.start()) + 1,
        )
        if findings.more:
            break
    blocks: list[TextBlock] = []
    current: TextBlock | None = None
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip(_BLANKS)
        if not line:
            current = None
            continue
        if current is None:
            current = TextBlock(number)
            blocks.append(current)
        _parse_line(line, number, current, findings)
    for block in blocks:
        for key, entry in block.entries.items():
            if entry.text.startswith("[") and entry.text.count("[") != entry.text.count("]"):
                findings.add(f"the brackets in the value of {key} are not balanced", entry.line)
    return [b for b in blocks if b.entries]


def _parse_line(line: str, number: int, block: TextBlock, findings: LimitedFindings) -> None:
    key, equals, value = line.partition("=")
    if not equals:
        _continue_line(line, number, block, findings)
        return
    key, value = key.strip(_BLANKS), value.strip(_BLANKS)
    if not _KEY.match(key):
        repaired = re.sub(r"\s+", "_", key.strip(" \t[](){}<>,\"'`*#-"))
        findings.add(
            f"{_short(key)} is not a valid key",
            number,
            help=f"perhaps {repaired} is meant"
            if _KEY.match(repaired)
            else "a key must consist of a-z A-Z 0-9 . : / _ ; '",
        )
        if not _KEY.match(repaired):
            return
        key = repaired
    if key in block.entries:
        findings.add(
            f"{key} occurs twice in this block, first in line {block.entries[key].line}", number
        )
        return
    block.entries[key] = Entry(value, number)


def _continue_line(line: str, number: int, block: TextBlock, findings: LimitedFindings) -> None:
    key, last = next(reversed(block.entries.items()), ("", Entry("", 0)))
    if last.text.count("[") > last.text.count("]"):
        findings.add(
            f"the value of {key} continues on another line",
            number,
            help=f"put it on line {last.line}, where it begins",
        )
        block.entries[key] = Entry(last.text + line, last.line)
    else:
        findings.add(
            f"{_short(line)} is not a key=value line",
            number,
            help="remove comments; the format does not allow them"
            if line[:1] in ("#", "/", ";")
            else "",
        )


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
