"""Limit the size of an output relative to the size of its source.

A file of a few bytes can request a constant of several gigabytes, which most targets store element
by element. Each file writer reports the number of bytes before it writes them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from converter.errors import Diagnostic, unwritable, wrong_call
from converter.io.limits import size
from converter.record import comparable

TIMES = 100  # multiple of the source's size above which a warning is given
NO_WARNING_BELOW = 8_000_000  # bytes that need no warning, however small the source is
HELP = "--max-output takes a size (2GB), a multiple of the source (1000x), or off"


@comparable
class MaxOutput:
    """The largest output that is written: `times` the size of its source but at least `room` bytes,
    or `room` bytes. `text` is the limit as the user specified it, "" if there is none.
    """

    text: str = ""
    times: float = 0
    room: int = 0

    def bytes(self, source: int) -> int:
        """Return the limit in bytes for a source of this many bytes; 0: no limit."""
        return max(int(self.times * source), self.room) if self.text else 0


# for batches, where no user watches each conversion
CAREFUL = MaxOutput(f"{TIMES}x", TIMES, 64_000_000)


def parse(text: str | int) -> MaxOutput:
    """Parse "2GB", "100x" or "off"; raise UsageError for anything else."""
    if str(text) in ("", "off"):
        return MaxOutput()
    if multiple := re.fullmatch(r"(\d+(?:\.\d+)?)x", str(text)):
        times = float(multiple[1])
        if times > 0:
            return MaxOutput(str(text), times)
    elif re.match(r"[0-9]", str(text)) and (room := size(text, "a size of an output", HELP)):
        return MaxOutput(str(text), room=room)
    raise wrong_call(f"--max-output {text!r} is not a valid size", help=HELP)


class Growth:
    """Count the bytes that are written for one source. `warn` is called once, before the output
    becomes far larger than the source.
    """

    def __init__(self, source: int, limit: MaxOutput, warn: Callable[[Diagnostic], None]) -> None:
        self.source, self.limit, self.warn = source, limit, warn
        self.written, self.warned = 0, False
        self._most = limit.bytes(source)
        self._lock = threading.Lock()

    def expect(self, count: int) -> None:
        """Announce `count` more bytes before they are written. Raises WriteError W304 beyond the
        limit.
        """
        total = self.written + count
        if self._most and total > self._most:
            raise unwritable(
                "W304",
                f"the output would have at least {size_text(total)}, but "
                f"--max-output is {self.limit.text} (the source has "
                f"{size_text(self.source)})",
                help=HELP,
            )
        if total <= max(TIMES * self.source, NO_WARNING_BELOW):
            return
        with self._lock:
            warned, self.warned = self.warned, True
        if not warned:
            message = (
                f"the output has at least {size_text(total)}, more than {TIMES} "
                f"times the {size_text(self.source)} of the source"
            )
            help = f"use --max-output {TIMES}x to refuse such results"
            self.warn(Diagnostic("W304", message, "warning", help=help))

    def add(self, count: int) -> None:
        """Add `count` bytes after they were written."""
        with self._lock:
            self.written += count


_by_folder: dict[Path, Growth] = {}


@contextmanager
def measured(folder: Path, growth: Growth) -> Iterator[None]:
    """Count outputs in `folder` for `growth` while this runs."""
    _by_folder[folder] = growth
    try:
        yield
    finally:
        del _by_folder[folder]


def of(folder: Path) -> Growth | None:
    """Return the Growth object that counts outputs in `folder`."""
    return _by_folder.get(folder)


def size_text(count: int) -> str:
    """Format a number of bytes for people: 13.9 MB."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count} bytes"
