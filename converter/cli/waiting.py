"""A line on a terminal that names the current step if it takes longer than two seconds."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from converter.io import progress
from converter.io.escape import escaped

PATIENCE = 2.0  # seconds
PERIOD = 0.25
WIDTH = 79
_CLEAR = "\r\x1b[K"
_writing = threading.Lock()
_visible = False


@contextlib.contextmanager
def shown(wanted: bool) -> Iterator[None]:
    """Show each step that takes long inside the block, and its duration in seconds, in a line on
    standard error; the line disappears with the step. Does nothing unless `wanted` and standard
    error is a terminal.
    """
    if not wanted or not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        clear()


def clear() -> None:
    """Remove the line before other output is printed."""
    global _visible
    with _writing:
        if _visible:
            _visible = False
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


def _watch(over: threading.Event) -> None:
    global _visible
    while not over.wait(PERIOD):
        name, seconds = progress.current()
        if not name or seconds < PATIENCE:
            clear()
            continue
        with _writing:
            _visible = True
            sys.stderr.write(f"{_CLEAR}{escaped(name)[: WIDTH - 8]} {seconds:.0f} s")
            sys.stderr.flush()
