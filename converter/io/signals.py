"""Termination requests, and the detection of moments when a handler must not raise."""

from __future__ import annotations

import signal
from importlib.machinery import ExtensionFileLoader
from types import FrameType

REQUESTS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


def loading(frame: FrameType | None) -> bool:
    """Return whether a C++ module is being loaded, which swallows an exception or crashes on it."""
    while frame is not None:
        if frame.f_code.co_name in ("create_module", "exec_module") and isinstance(
            frame.f_locals.get("self"), ExtensionFileLoader
        ):
            return True
        frame = frame.f_back
    return False
