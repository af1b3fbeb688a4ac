"""The current activity of this process, for progress displays: steps that may take long register
here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_steps: list[tuple[str, float]] = []
Listener = Callable[[str], None]
_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Call `listener` with the name of each step that begins while this runs."""
    if listener is None:
        yield
        return
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Register `name` (a participle: "reading net.onnx") as the current step while this runs."""
    _steps.append((name, time.monotonic()))
    for listener in [*_listeners]:
        listener(name)
    try:
        yield
    finally:
        _steps.pop()


def current() -> tuple[str, float]:
    """Return the innermost step and its duration so far in seconds; ("", 0) between steps."""
    try:
        name, since = _steps[-1]
    except IndexError:  # also if the step ends just now, in another thread
        return "", 0.0
    return name, time.monotonic() - since
