"""What this process is doing, for whoever shows it: steps that may take long say so here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_steps: list[tuple[str, float]] = []


@contextmanager
def step(name: str) -> Iterator[None]:
    """While this runs, `name` (a participle: "reading net.onnx") is what is going on."""
    _steps.append((name, time.monotonic()))
    try:
        yield
    finally:
        _steps.pop()


def current() -> tuple[str, float]:
    """The innermost step, and for how many seconds it has been going on; ("", 0) between steps."""
    try:
        name, since = _steps[-1]
    except IndexError:  # also when the step ends just now, in another thread
        return "", 0.0
    return name, time.monotonic() - since
