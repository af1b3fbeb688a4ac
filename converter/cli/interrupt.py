"""Exit of a process that is interrupted before it can clean up."""

from __future__ import annotations

import os
from typing import Any, NoReturn

INTERRUPTED = 130  # ExitCode.INTERRUPTED, which is not loaded yet


def leave(number: int = 0, frame: Any = None) -> NoReturn:
    """End the process at once: an exception could be lost in a running import, or be printed as a
    traceback.
    """
    del number, frame
    try:
        os.write(2, b"interrupted\n")
    finally:  # also if the output is closed
        os._exit(INTERRUPTED)
