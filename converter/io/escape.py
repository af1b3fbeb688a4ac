"""Escape text of files, names and messages for a terminal or a log: a name cannot end a line, move
the cursor, reverse the following text, or give a command to the runner that owns the log.
"""

from __future__ import annotations

import re
import unicodedata

# A CI runner treats a line of its log as a command if the line begins with :: (GitHub) or contains
# ##[ or ##word[ anywhere (Azure Pipelines, TeamCity, GitHub's older form).
_COMMAND = re.compile(r"\A(\s*):(?=:)|#(?=#\w*\[)")


def escaped(text: str) -> str:
    """Return the text as one visible line. Characters that are not printable (control and format
    characters, line and paragraph separators, lone surrogates) are escaped as in Python, `\\x1b`,
    and so is the first character of a command for a runner.
    """
    if not text.isprintable():
        text = "".join(c if _visible(c) else ascii(c)[1:-1] for c in text)
    return _COMMAND.sub(_spelled, text) if "::" in text or "##" in text else text


def _visible(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _spelled(found: re.Match[str]) -> str:
    return "\\x23" if found[1] is None else f"{found[1]}\\x3a"
