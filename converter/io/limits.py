"""Limits: on the memory of this process, for a while; on what a file may ask for."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

MOST_AXES = 64  # of a tensor: numpy has no arrays with more


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


def _address_space() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as f:
            return int(f.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux: the peak of resident memory is the nearest there is
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
