"""Whole processes and their costs, measured so that drift of a shared machine cancels out.

This stays small (standard library only, no large buffers): the peak of a child counts from the size
of its parent.
"""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

NETCONV = [sys.executable, "-m", "converter.cli"]


@dataclass(frozen=True)
class Run:
    """One child process: wall seconds, CPU seconds, peak resident and peak anonymous bytes (0 where
    the system does not say).
    """

    seconds: float
    cpu: float
    resident: int
    anonymous: int
    status: int
    message: str


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of this process, with byte code kept in `folder`: an installed package
    has its own.
    """
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def run(command: Sequence[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> Run:
    with tempfile.TemporaryFile() as log:
        start = time.perf_counter()
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=cwd
        )
        anonymous = 0
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            anonymous = max(anonymous, _anonymous(child.pid))
            time.sleep(0.002)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        lines = log.read().decode(errors="replace").strip().splitlines()
    unit = 1 if sys.platform == "darwin" else 1024
    refused = next((line for line in lines if line.startswith("error")), lines[-1] if lines else "")
    return Run(
        seconds,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * unit,
        anonymous,
        child.returncode,
        refused,
    )


def _anonymous(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status") as f:
            return next(
                (int(line.split()[1]) * 1024 for line in f if line.startswith("RssAnon")), 0
            )
    except OSError:
        return 0


Action = Callable[[], Run]


def rounds(actions: dict[str, Action], repeat: int) -> dict[str, list[Run]]:
    """Every action in turn, `repeat` times after one warm-up: compared actions ran at nearly the
    same time.
    """
    found: dict[str, list[Run]] = {name: [] for name in actions}
    for i in range(repeat + 1):
        for name, action in actions.items():
            result = action()
            if result.status:
                return {name: [result]}
            if i or repeat == 1:
                found[name].append(result)
        if repeat == 1:
            break
    return found


def failure(found: dict[str, list[Run]]) -> Run | None:
    return next((r for runs in found.values() for r in runs if r.status), None)


def ratio(
    found: dict[str, list[Run]], over: str, under: str, less: str = "", measure: str = "seconds"
) -> float:
    """Median over the rounds of (over - less) / under."""

    def of(name: str, i: int) -> float:
        return float(getattr(found[name][i], measure)) if name else 0.0

    return statistics.median(
        max(0.0, of(over, i) - of(less, i)) / max(of(under, i), 1e-3)
        for i in range(len(found[over]))
    )


def best(runs: list[Run], measure: str = "seconds") -> float:
    return float(min(getattr(r, measure) for r in runs))


def shell(text: str, **paths: Path) -> list[str]:
    return ["sh", "-c", text.format(**{k: shlex.quote(str(v)) for k, v in paths.items()})]
