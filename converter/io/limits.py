"""Limits: on the memory and time of this process, for a while; on what a file may ask for."""

from __future__ import annotations

import os
import re
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from converter.errors import Diagnostic, ExitCode, TimeLimitError, wrong_call
from converter.io.signals import loading

MOST_AXES = 64  # of a tensor: numpy has no arrays with more
GRACE = 10.0  # seconds in which native code must come to its end after the time limit


def size(text: str | int, what: str = "an amount of memory", help: str = "") -> int:
    """ "2G", "512M" or bytes; UsageError for what is not `what`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)i?B?", str(text))
    if not found:
        raise wrong_call(f"{text!r} is not {what}", help=help or "for example 512M or 2G")
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


@contextmanager
def memory(size: int) -> Iterator[None]:
    """Address space in bytes beside what the process has now, 0: no limit; beyond it allocations
    fail (MemoryError).
    """
    if not size:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = _address_space() + size
    resource.setrlimit(
        resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def ran_out(error: Exception) -> bool:
    """Whether an error tells of a native library that could not have memory, in its own words."""
    return isinstance(error, MemoryError) or "alloc" in str(error).lower()


def _address_space() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as f:
            return int(f.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux: the peak of resident memory is the nearest there is
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _interrupt() -> None:
    """As Ctrl-C does, the main thread alone; also out of a call to the system. By a signal of its
    own: a shell lets the jobs of its background ignore SIGINT.
    """
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)


class _Limit:
    """A limit of time of the main thread. Late, that thread is interrupted as by Ctrl-C; native
    code that does not come back within GRACE ends with the process.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.late, self.again, self.arrived = seconds, False, False, False
        self.over, self.lock = threading.Event(), threading.Lock()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def why(self) -> Diagnostic:
        return Diagnostic("U505", f"this took more than its limit of {self.seconds:g} s")

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """What SIGALRM does; a moment later, where an exception would get lost."""
        del number
        self.arrived = True
        if self.over.is_set():
            return
        if loading(frame):
            self.again = True
            return
        raise KeyboardInterrupt

    def _watch(self) -> None:
        if self.over.wait(self.seconds):
            return
        with self.lock:
            if self.over.is_set():
                return
            self.late = True
            _interrupt()
        left = GRACE
        while not self.over.wait(0.1):
            if not self.again and (left := left - 0.1) <= 0:
                os.write(2, f"{self.why}\n".encode())
                os._exit(ExitCode.TIME_LIMIT)
            # a signal just in front of a call to the system does not end that call
            with self.lock:
                if (self.again or not self.arrived) and not self.over.is_set():
                    self.again = False
                    _interrupt()


_limit: _Limit | None = None


@contextmanager
def time(seconds: float) -> Iterator[None]:
    """TimeLimitError U505 when what runs in this, in the main thread, takes longer; 0: no limit."""
    global _limit
    if not seconds:
        yield
        return
    limit = _limit = _Limit(seconds)
    before = signal.signal(signal.SIGALRM, limit.interrupt)
    try:
        try:
            limit.thread.start()
            yield
        finally:
            with limit.lock:
                limit.over.set()
            _limit = None
            if not limit.late:  # else the signal may be on its way yet
                signal.signal(signal.SIGALRM, before)
    except KeyboardInterrupt:
        limit.over.set()  # it came while this was done
        _limit = None
        if not limit.late:
            raise
        raise TimeLimitError(limit.why) from None


def timed() -> bool:
    """Whether a limit of time is in force, so that nobody may wait for native code."""
    return _limit is not None
