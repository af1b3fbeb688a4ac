"""How large an output may become, measured by its source.

A file of some bytes can ask for a constant of some gigabytes, which most targets store as numbers.
Each writer of files says how much it is about to write, before it does.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from converter.errors import Diagnostic, unwritable, wrong_call
from converter.io.limits import size

TIMES = 100  # times the source: what more than that is warned of
ROOM = 8_000_000  # bytes that need no warning, however small the source is
_MULTIPLE = re.compile(r"(\d+(?:\.\d+)?)x")
HELP = "--max-output takes a size (2GB), a multiple of the source (1000x), or off"


@dataclass(frozen=True)
class MaxOutput:
    """The largest output that is written: `times` its source but at least `room` bytes, or `room`
    bytes. `text` is how the limit was specified, "" where there is none.
    """

    text: str = ""
    times: float = 0
    room: int = 0

    def bytes(self, source: int) -> int:
        """The limit for a source of so many bytes; 0: none."""
        return max(int(self.times * source), self.room) if self.text else 0


# where nobody looks at each conversion: in a batch
CAREFUL = MaxOutput(f"{TIMES}x", TIMES, 64_000_000)


def parse(text: str | int) -> MaxOutput:
    """Read "2GB", "100x" or "off"; UsageError for anything else."""
    if str(text) in ("", "off"):
        return MaxOutput()
    if multiple := _MULTIPLE.fullmatch(str(text)):
        times = float(multiple[1])
        if times > 0:
            return MaxOutput(str(text), times)
    elif re.match(r"[0-9]", str(text)) and (room := size(text, "a size of an output", HELP)):
        return MaxOutput(str(text), room=room)
    raise wrong_call(f"{text!r} is not a size of an output", help=HELP)


class Growth:
    """Counts what is written for one source. `warn` is called once, before the output becomes far
    larger than the source.
    """

    def __init__(self, source: int, limit: MaxOutput, warn: Callable[[Diagnostic], None]) -> None:
        self.source, self.limit, self.warn = source, limit, warn
        self.written, self.warned = 0, False
        self._most = limit.bytes(source)
        self._lock = threading.Lock()

    def expect(self, count: int) -> None:
        """Called before `count` more bytes are written. WriteError W304 where that is too much."""
        total = self.written + count
        if self._most and total > self._most:
            raise unwritable(
                "W304",
                f"the output would take at least {size_text(total)}, the source takes "
                f"{size_text(self.source)}: --max-output is {self.limit.text}",
                help=HELP,
            )
        if total <= max(TIMES * self.source, ROOM):
            return
        with self._lock:
            warned, self.warned = self.warned, True
        if not warned:
            message = (
                f"the output takes at least {size_text(total)}, more than {TIMES} times the "
                f"{size_text(self.source)} of the source"
            )
            help = f"--max-output {TIMES}x refuses such a result"
            self.warn(Diagnostic("W304", message, "warning", help=help))

    def add(self, count: int) -> None:
        """Called after `count` bytes were written."""
        with self._lock:
            self.written += count


_by_folder: dict[Path, Growth] = {}


@contextmanager
def measured(folder: Path, growth: Growth) -> Iterator[None]:
    """While this runs, outputs in `folder` count for `growth`."""
    _by_folder[folder] = growth
    try:
        yield
    finally:
        del _by_folder[folder]


def of(folder: Path) -> Growth | None:
    """What outputs in `folder` count for."""
    return _by_folder.get(folder)


def size_text(count: int) -> str:
    """Bytes for people: 13.9 MB."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count} bytes"
