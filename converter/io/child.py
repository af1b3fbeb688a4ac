"""Start every Python process of netconv isolated from the working folder.

Python puts the working folder, or the folder of a script, first on its search path. A file
`json.py` there would be imported, and executed, instead of the standard module.
"""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
from pathlib import Path

# the folder that contains the package `converter`
_HOME = str(Path(__file__).resolve().parent.parent.parent)


def python_command(*arguments: str) -> list[str]:
    """Return the command line of a Python that never imports from the working folder, nor from the
    user's own packages where this process does not.
    """
    apart = [] if _user_site() in sys.path else ["-s"]
    return [sys.executable, "-P", *apart, *arguments]


def run_captured(script: Path, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a script in such a Python with empty standard input and capture its output. Raises
    subprocess.TimeoutExpired after `timeout` seconds.
    """
    return subprocess.run(
        python_command(str(script), *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=python_environment(),
        timeout=timeout,
        check=False,
    )


def how_it_ended(code: int) -> str:
    """Return how a process with this exit code ended: "its process ended with code 3"."""
    if code >= 0:
        return f"its process ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"it ended its process ({name})"


def python_environment(**more: str) -> dict[str, str]:
    """Return the environment for such a Python: it finds this very `converter`, and PYTHONPATH has
    no entry that depends on the working folder. `more` are further variables.
    """
    path = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(p)]
    if _HOME not in (*site.getsitepackages(), _user_site()):
        path = list(dict.fromkeys([_HOME, *path]))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), **more}
    return environment if path else {k: v for k, v in environment.items() if k != "PYTHONPATH"}


def _user_site() -> str:
    """Return the folder of the user's own packages; "" if there is none."""
    try:
        return site.getusersitepackages()
    except (KeyError, OSError, RuntimeError):  # the user has no home folder
        return ""
