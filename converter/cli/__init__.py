"""The command line. Only click is imported here; each command loads what it needs when it runs."""

from __future__ import annotations

from typing import Any, NoReturn

INTERRUPTED = 130  # ExitCode.INTERRUPTED, which is not loaded yet


def main() -> None:
    """The command `netconv`. From the first line on a request to end is obeyed; until commands run
    there is nothing to clean up.
    """
    try:
        import signal

        from converter.io.signals import REQUESTS

        for number in REQUESTS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, leave)
        from converter.commands import startup

        startup.prepare()
        from converter.cli.app import run
    except KeyboardInterrupt:
        leave()
    run()


def leave(number: int = 0, frame: Any = None) -> NoReturn:
    """Ends the process at once: an exception could get lost in what Python is just importing, or
    come out as a traceback.
    """
    del number, frame
    import os

    try:
        os.write(2, b"interrupted\n")
    finally:  # also when nobody listens
        os._exit(INTERRUPTED)
