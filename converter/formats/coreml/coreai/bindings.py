"""Apple's bindings for Core AI, which are only imported in a separate process; see worker.py."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from converter.errors import unreadable, wrong_call
from converter.formats.coreml.coreai.worker import MARK
from converter.io.child import how_it_ended, run_captured

EXTRA = "netconv[coreai]"
TIMEOUT = 600  # seconds that reading or writing one program may take
_REPORTED, _ABSENT = 3, 4  # exit codes of the worker


class Refused(Exception):
    """The bindings reject a program; the message is theirs."""


class Ended(Refused):
    """The process of the bindings ended."""


def is_installed() -> bool:
    """Return whether the package is installed; nothing is imported."""
    try:
        return importlib.util.find_spec("coreai") is not None
    except (ImportError, ValueError):
        return False


def demand_installed() -> None:
    """Raise UsageError U502 where the package is not installed."""
    if not is_installed():
        raise _absent("the package coreai-core (1.0.0 beta) is not installed")


def _absent(message: str) -> Exception:
    systems = "for Linux on x86-64 with glibc 2.34 and macOS 26 on arm64, Python 3.11 to 3.14"
    help = f"run pip install '{EXTRA}' (Apple publishes it {systems})"
    return wrong_call(f"Core AI models need Apple's bindings: {message}", help=help, code="U502")


def program(main: Path) -> list[dict[str, Any]]:
    """Return the operations of a module of bytecode. Raise ReadError R103 if the bindings do not
    take it.
    """
    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        described = Path(folder) / "program.json"
        try:
            call("read", main.absolute(), described)
        except Refused as e:
            raise unreadable("R103", f"Core AI cannot read the program: {e}", main) from None
        with open(described, encoding="utf-8") as f:
            found: list[dict[str, Any]] = json.load(f)
            return found


def call(command: str, *arguments: Path) -> None:
    """Run one command of the worker; raise Refused with the message of the bindings, or Ended if
    their process ended.
    """
    demand_installed()
    worker = Path(__file__).with_name("worker.py")
    try:
        done = run_captured(worker, command, *map(str, arguments), timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        raise Ended(f"it did not finish within {TIMEOUT} seconds") from None
    if not done.returncode:
        return
    said = next((s for s in done.stderr.splitlines() if s.startswith(MARK)), "")
    if done.returncode == _ABSENT:
        raise _absent(said.removeprefix(MARK))
    if done.returncode == _REPORTED:
        raise Refused(said.removeprefix(MARK))
    raise Ended(how_it_ended(done.returncode))
