"""Kill the processes of a test run, and remove its folders, when the run itself ends, however it
ends.

Every process of a run has its token in the environment. `start` starts a watcher: this file as a
script, which reads a pipe that only the run holds open. When the pipe closes (the run has ended,
or was killed) the watcher kills each process that still has the token, and removes FOLDERS.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress

import psutil

TOKEN = "TEST_RUN"  # the environment variable; xdist's workers and all children inherit it
FOLDERS: list[str] = []
SECONDS = 60  # after which the watcher gives up on a process that cannot be killed


def start() -> subprocess.Popen[bytes]:
    """Mark this process and its future children, and return the watcher, whose standard input
    must stay open during the run.
    """
    os.environ[TOKEN] = f"{os.getpid()}-{time.time_ns()}"
    return subprocess.Popen(
        [sys.executable, __file__, os.environ[TOKEN], *FOLDERS],
        stdin=subprocess.PIPE,
        env={k: v for k, v in os.environ.items() if k != TOKEN},
        start_new_session=True,  # it outlives a Ctrl-C in the terminal
    )


def marked(token: str) -> list[psutil.Process]:
    """Return the live processes of a run."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(TOKEN) == token:
                found.append(process)
    return found


def kill_marked(token: str) -> None:
    """Kill the processes of a run until there are none: one may start another meanwhile."""
    deadline = time.monotonic() + SECONDS
    while (left := marked(token)) and time.monotonic() < deadline:
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(0.1)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    kill_marked(sys.argv[1])
    for folder in sys.argv[2:]:
        shutil.rmtree(folder, ignore_errors=True)
