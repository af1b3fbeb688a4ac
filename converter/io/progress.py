"""The current activity of this process, for progress displays: steps that may take long register
here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_steps: list[tuple[str, float]] = []


@contextmanager
def step(name: str) -> Iterator[None]:
    """Register `name` (a participle: "reading net.onnx") as the current step while this runs."""
    _steps.append((name, time.monotonic()))
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
