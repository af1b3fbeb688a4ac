"""Worker processes, one for each thread that runs jobs. A worker that dies loses one task, which is
retried once.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from converter.commands.batch.job import Outcome, outcome
from converter.commands.batch.work import Task
from converter.errors import Diagnostic, ExitCode, Where
from converter.io.child import python_command, python_environment

ATTEMPTS = 2
START = 120  # seconds in which a worker must become ready
WORKER_MEMORY = 1 << 30  # assumed memory of a worker if jobs have no limit


def default_size(memory: int = 0) -> int:
    """Return the default number of workers: one per core that this process may use, as far as
    memory allows.
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return cores
    return max(1, min(cores, free // max(memory, WORKER_MEMORY)))


class Gone(Exception):
    """The process has ended; the message describes how."""


class Late(Exception):
    """The answer did not arrive in time."""


class Worker:
    """One worker process. `ask` sends a line and waits for the answer."""

    def __init__(self) -> None:
        read, write = os.pipe()
        environment = python_environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        self.words = tempfile.TemporaryFile()  # noqa: SIM115 - its output; the last line is evidence if it dies
        command = python_command("-m", "converter.commands.batch.worker", str(write))
        # in a separate session: Ctrl-C is for the parent, which ends its workers itself
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self.words,
            stderr=self.words,
            pass_fds=[write],
            env=environment,
            start_new_session=True,
        )
        os.close(write)
        self.results = read
        self._pending = b""

    def ask(self, line: str, timeout: float) -> str:
        """Send a line and return the answer. Raises Gone if the process ends instead of answering,
        Late after `timeout` seconds (0: never).
        """
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the end of its results reports this too
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        deadline = time.monotonic() + timeout if timeout else None
        while not self._pending.endswith(b"\n"):
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self.results], [], [], left)[0]:
                raise Late
            chunk = os.read(self.results, 1 << 20)
            if not chunk:
                raise Gone
            self._pending += chunk
        answer, self._pending = self._pending, b""
        return answer.decode()

    def end(self) -> tuple[str, ...]:
        """Kill the process; return how it ended, and its last line of output."""
        self.process.kill()
        code = self.process.wait()
        os.close(self.results)
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        self.words.seek(0)
        lines = [
            line
            for line in self.words.read()[-4096:].decode("utf-8", "replace").splitlines()
            if line.strip()
        ]
        self.words.close()
        return (signal.Signals(-code).name if code < 0 else f"exit {code}", *lines[-1:])


@dataclass(frozen=True)
class TaskResult:
    """The outcome of a task, with its costs."""

    outcome: Outcome
    seconds: float
    attempts: int


class Runner:
    """Run tasks in a worker process, which is replaced after a crash."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self.closed = False

    def run(self, task: Task, timeout: float = 0) -> TaskResult:
        """Return the outcome of a task, even if its process dies; `timeout` in seconds, 0: none."""
        evidence: tuple[str, ...] = ()
        started = time.monotonic()
        for attempt in range(1, ATTEMPTS + 1):
            if self.closed:
                return TaskResult(outcome(ExitCode.INTERRUPTED), 0, attempt)
            try:
                worker = self._ready()
                started = time.monotonic()
                found: Outcome = json.loads(worker.ask(json.dumps(asdict(task)) + "\n", timeout))
            except Late:
                self.stop()
                return TaskResult(_late(task, timeout), time.monotonic() - started, attempt)
            except Gone:
                evidence = self.stop()
                if task.output:  # unfinished files
                    shutil.rmtree(Path(task.output).parent, ignore_errors=True)
                continue
            if found["exit_code"] in (
                ExitCode.UNWRITABLE,
                ExitCode.MEMORY_LIMIT,
                ExitCode.BUG,
            ):  # its remaining memory is not trusted
                self.stop()
            return TaskResult(found, time.monotonic() - started, attempt)
        return TaskResult(_died(task, evidence), time.monotonic() - started, ATTEMPTS)

    def _ready(self) -> Worker:
        if self._worker is None:
            self._worker = Worker()
            if self.closed:  # closed during the start: `kill` did not see the worker yet
                self._worker.process.kill()
            self._worker.ask(
                "", START
            )  # it answers when everything is loaded: that time is not the job's
        return self._worker

    def stop(self) -> tuple[str, ...]:
        """Kill the worker process, if there is one; return how it ended and its last line of
        output.
        """
        worker, self._worker = self._worker, None
        return worker.end() if worker is not None else ()

    def kill(self) -> None:
        """Abort the running task, from another thread."""
        self.closed = True
        worker = self._worker  # the thread of the task may let go of it at any time
        if worker is not None:
            worker.process.kill()


_local = threading.local()
_all: list[Runner] = []
_ended = threading.Event()


def begin() -> None:
    """Allow workers again, after `kill_all`."""
    _ended.clear()


def runner() -> Runner:
    """Return the runner of the calling thread."""
    found: Runner | None = getattr(_local, "runner", None)
    if found is None or found.closed:
        found = _local.runner = Runner()
        _all.append(found)
        if _ended.is_set():  # `kill_all` may not have seen it
            found.closed = True
    return found


def kill_all() -> None:
    """End the workers of all threads, and let none begin until `begin`."""
    _ended.set()
    while _all:
        _all.pop().kill()


def _died(task: Task, evidence: tuple[str, ...]) -> Outcome:
    help = "the memory limit may be the reason" if task.memory else ""
    message, where = f"the job crashed {ATTEMPTS} times", Where(task.shown)
    why = Diagnostic("B602", message, where=where, evidence=evidence, help=help)
    return outcome(ExitCode.BUG, why)


def _late(task: Task, timeout: float) -> Outcome:
    message = f"the job exceeded its time limit of {timeout:g} s"
    return outcome(ExitCode.TIME_LIMIT, Diagnostic("B603", message, where=Where(task.shown)))
