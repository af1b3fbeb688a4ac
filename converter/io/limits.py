"""Limits on the memory and run time of this process, and on the tensors that a file may declare."""

from __future__ import annotations

import mmap
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

MOST_AXES = 64  # axes of a tensor: the maximum of numpy
_LEAST = 1 << 20  # bytes without which no job works
# parts of messages of libraries and of their loader
_OUT_OF_MEMORY = ("alloc", "out of memory", "failed to map segment", "can't start new thread")
GRACE = 10.0  # seconds that native code has to finish after the time limit


def size(text: str | int, what: str = "an amount of memory", help: str = "") -> int:
    """Parse "2G", "512M" or a number of bytes; raise UsageError, which calls the value `what`, for
    anything else.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)i?B?", str(text))
    if not found:
        raise wrong_call(f"{text!r} is not {what}", help=help or "use for example 512M or 2G")
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


@contextmanager
def memory(size: int) -> Iterator[None]:
    """Limit the address space to `size` bytes more than the process has now, 0: no limit.
    Allocations beyond it raise MemoryError.
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
    """Return whether an error is a MemoryError, or its message, of a native library or of the
    loader of libraries, reports that memory ran out.
    """
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(t in text for t in _OUT_OF_MEMORY)


def exhausted() -> bool:
    """Return whether hardly any memory is left, so that an error may be a consequence of it:
    parsers of foreign libraries report a damaged file then.
    """
    try:
        mmap.mmap(-1, _LEAST).close()  # unlike an array, never a part of memory that was freed
    except OSError:
        return True
    return False


def _address_space() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as f:
            return int(f.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux: the peak of resident memory is the closest measure
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _interrupt() -> None:
    """Interrupt the main thread as Ctrl-C does, also during a system call. Uses a separate signal:
    shells let their background jobs ignore SIGINT.
    """
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)


class _Limit:
    """A time limit of the main thread. After it, that thread is interrupted as by Ctrl-C; if native
    code does not return within GRACE, the process ends.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.late, self.again, self.arrived = seconds, False, False, False
        self.over, self.lock = threading.Event(), threading.Lock()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def why(self) -> Diagnostic:
        return Diagnostic("U505", f"the run exceeded its time limit of {self.seconds:g} s")

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGALRM; retry a moment later where an exception would be lost."""
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
            # a signal just before a system call does not interrupt that call
            with self.lock:
                if (self.again or not self.arrived) and not self.over.is_set():
                    self.again = False
                    _interrupt()


_limit: _Limit | None = None


@contextmanager
def time(seconds: float) -> Iterator[None]:
    """Raise TimeLimitError U505 if the body, run in the main thread, takes longer; 0: no limit."""
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
            if not limit.late:  # else the signal may still be on its way
                signal.signal(signal.SIGALRM, before)
    except KeyboardInterrupt:
        limit.over.set()  # it arrived during this
        _limit = None
        if not limit.late:
            raise
        raise TimeLimitError(limit.why) from None


def timed() -> bool:
    """Return whether a time limit is in force, so that no caller may block on native code."""
    return _limit is not None
