"""Promises of the suite about processes: it does not depend on how it was started, and leaves
nothing running when it is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

import orphans
from support import HANG, ROOT, until

INNER = """
import signal, subprocess, sys
from pathlib import Path

CHILD = "import signal, sys; print(*(repr(signal.getsignal(int(n))) for n in sys.argv[1:]))"
SLEEP = "import time; time.sleep(3600)"

def test_handlers():
    numbers = [str(int(getattr(signal, n))) for n in ("SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM")]
    out = subprocess.run([sys.executable, "-c", CHILD, *numbers], capture_output=True, text=True)
    Path("handlers").write_text(out.stdout)

def test_endless():
    child = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
    Path("child.new").write_text(str(child.pid))
    Path("child.new").rename("child")
    child.wait()
"""
IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)


def ignore_signals() -> None:
    """Act as `nohup` and the shell's `&` on a process before it starts."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)


def start_suite(folder: Path, preexec: Callable[[], None] | None = None) -> subprocess.Popen[bytes]:
    (folder / "test_inner.py").write_text(INNER)
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV"))}
    arguments = ["-p", "conftest", "-p", "no:cacheprovider", "-n", "2", "test_inner.py"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=folder,
        env=environment | {"PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        preexec_fn=preexec,
    )


def test_children_have_default_signals_and_end_with_the_run(tmp_path: Path) -> None:
    run = start_suite(tmp_path, ignore_signals)
    try:
        until(lambda: (tmp_path / "child").exists() and (tmp_path / "handlers").exists(), run)
        child = psutil.Process(int((tmp_path / "child").read_text()))
        workers = psutil.Process(run.pid).children(recursive=True)
    finally:
        run.kill()
        run.wait()
    assert psutil.wait_procs([child, *workers], timeout=HANG)[1] == []
    handlers = (tmp_path / "handlers").read_text()
    assert "default_int_handler" in handlers and "SIG_IGN" not in handlers
    assert handlers.count("SIG_DFL") == len(IGNORED) - 1


def test_the_watcher_spares_other_processes() -> None:
    def sleeper(token: str) -> subprocess.Popen[bytes]:
        code = "print(flush=True); input()"
        started = subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {orphans.TOKEN: token},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert started.stdout is not None and started.stdout.readline() == b"\n"
        return started

    mine, other = sleeper("1-mine"), sleeper("1-other")
    orphans.kill_marked("1-mine")
    assert mine.wait(HANG) == -signal.SIGKILL
    assert other.poll() is None
    other.communicate(b"\n", timeout=HANG)
