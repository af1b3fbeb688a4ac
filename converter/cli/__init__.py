"""The command line. Only click is imported here; each command loads its modules when it runs."""

from __future__ import annotations

import sys

# `python -m` puts the working folder first on the search path: a file `json.py` there would be
# imported, and executed. So remove it before any other import.
if (
    sys.argv[:1] == ["-m"]
    and any(a.endswith("converter.cli") for a in sys.orig_argv)
    and not sys.flags.safe_path
):
    del sys.path[:1]

import os

from converter.cli.interrupt import leave


def main() -> None:
    """Run the command `netconv`. Termination requests are obeyed from the first line on; until
    commands run there is nothing to clean up.
    """
    try:
        import signal

        _leave_working_folder()
        from converter.io.signals import REQUESTS

        for number in REQUESTS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, leave)
        from converter.cli import stdio
        from converter.commands import startup

        stdio.prepare()
        startup.prepare()
        from converter.cli.app import run
    except KeyboardInterrupt:
        leave()
    run()


def _leave_working_folder() -> None:
    """Remove the working folder from the search path if only an empty or relative entry of
    PYTHONPATH, or a script without a file, put it there.
    """
    given = "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")
    entries = given.split(os.pathsep) if given else []
    loose = {os.path.abspath(p) for p in entries if not os.path.isabs(p)} - {*entries}
    sys.path[:] = [p for p in sys.path if p and p not in loose]
