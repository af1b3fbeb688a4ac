"""Cases in a process of their own, with limits on time and memory: so that a case can do anything
to its process, the next one is run.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from converter.io import limits

LIMIT = 10  # seconds for one case, of its own time
# seconds until a process that does not even notice is killed, of its own time or of doing nothing
GRACE = 5
MEMORY = 1 << 30  # bytes for one case, in addition to the program
M_ARENA_MAX = -8  # of malloc.h

Case = Callable[[], str]


class Fault(Exception):
    """A violation by a case; the text is for people."""


class Late(BaseException):
    """A case used up its time; no Exception, so that nothing takes it for a failure of its own."""


def supervised(cases: list[Case]) -> Iterator[tuple[int, str, str]]:
    """(number, answer, detail) of each case; the answer of one that raised, hung or killed its
    process is "fault".
    """
    first = 0
    while first < len(cases):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            _child(cases, first, write)
        os.close(write)
        for number, answer, detail in _answers(read, child):
            yield number, answer, detail
            first = number + 1
        os.close(read)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if first < len(cases):
            code = os.waitstatus_to_exitcode(status)
            yield (
                first,
                "fault",
                f"hang: {LIMIT + GRACE} s"
                if code == -signal.SIGKILL
                else f"died: {signal.Signals(-code).name if code < 0 else code}",
            )
            first += 1


def _answers(pipe: int, child: int) -> Iterator[tuple[int, str, str]]:
    pending, before = b"", _used(child)
    while _ready(pipe, child, before):
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            number, answer, detail = json.loads(line)
            yield number, answer, detail
        before = _used(child)


def _ready(pipe: int, child: int, before: float) -> bool:
    """Whether there is an answer. A process that others keep from running is waited for, one that
    does nothing or too much is not.
    """
    last, poll = before, select.poll()  # select() takes no descriptor above 1023
    poll.register(pipe)
    while not poll.poll((LIMIT + GRACE) * 1000):
        used = _used(child)
        if (used <= last and not _kept_waiting(child)) or used > before + LIMIT + GRACE:
            return False
        last = used
    return True


def _kept_waiting(child: int) -> bool:
    """Whether a process would run, or waits for a disk; False if the system does not report it."""
    try:
        return any(
            (task / "stat").read_text().rpartition(")")[2].split()[0] in "RD"
            for task in Path(f"/proc/{child}/task").iterdir()
        )
    except OSError:
        return False


def _used(child: int) -> float:
    """Seconds of processor time of a process, all its threads; 0 if the system does not report
    it, so that every wait has no limit.
    """
    try:
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _child(cases: list[Case], first: int, pipe: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    signal.signal(signal.SIGVTALRM, _late)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc: 64 MB of addresses for each thread, up to 8 a core
        libc.mallopt(M_ARENA_MAX, 1)
    gc.freeze()  # older objects are not scanned for each case
    try:
        with limits.memory(MEMORY):
            for number in range(first, len(cases)):
                answer, detail = _answer(cases[number])
                os.write(pipe, json.dumps([number, answer, detail]).encode() + b"\n")
    finally:
        os._exit(0)


def _late(signum: int, frame: FrameType | None) -> None:
    raise Late(f"more than {LIMIT} s")


def _answer(case: Case) -> tuple[str, str]:
    """The processor's time is counted: other processes must not make a case fail."""
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    try:
        return case(), ""
    except BaseException as e:
        frames = [
            f"{Path(f.filename).name}:{f.lineno}"
            for f in traceback.extract_tb(e.__traceback__)
            if Path(f.filename).name != Path(__file__).name
        ]
        return (
            "fault",
            f"{type(e).__name__} {' '.join(frames[-3:])}: {' '.join(str(e).split())[:300]}",
        )
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        gc.collect()  # no case has less memory because of cycles that another one leaves
        gc.freeze()  # the rest are modules and caches
        sys.stdout.flush()
