"""The end of a process that is interrupted before it can clean up."""

from __future__ import annotations

import os
from typing import Any, NoReturn

INTERRUPTED = 130  # ExitCode.INTERRUPTED, which is not loaded yet


def leave(number: int = 0, frame: Any = None) -> NoReturn:
    """Ends the process at once: an exception could get lost in what Python is just importing, or
    come out as a traceback.
    """
    del number, frame
    try:
        os.write(2, b"interrupted\n")
    finally:  # also when nobody listens
        os._exit(INTERRUPTED)
