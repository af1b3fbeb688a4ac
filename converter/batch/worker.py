"""A worker process: tasks as JSON lines from standard input, outcomes as JSON lines to the descriptor given as its argument.

When the other end goes away, for whatever reason, so does the worker, in the middle of a task if need be.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import sys
import threading
from typing import Any

from converter.batch.work import Task, beyond_memory, perform


def main() -> None:
    tasks: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    _preload()
    with open(int(sys.argv[1]), "w", encoding="utf-8") as results:
        results.write("ready\n")
        results.flush()
        while True:
            task = Task(**json.loads(tasks.get()))
            results.write(json.dumps(_limited(task), ensure_ascii=False) + "\n")
            results.flush()


def _listen(tasks: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        tasks.put(line)
    os._exit(0)  # nobody is left to read the results


def _preload() -> None:
    """What every job loads, so that it counts as the program and not as the job."""
    import converter.api
    import converter.conversion
    import converter.crosscheck.check
    import converter.engines.onnxruntime  # noqa: F401


def _limited(task: Task) -> dict[str, Any]:
    """Performs a task within its memory: address space beside that of the idle worker."""
    if not task.memory:
        return perform(task)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = _address_space() + task.memory
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
        return perform(task)
    except MemoryError:
        return beyond_memory(task.memory, task.shown)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as f:
            return int(f.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux: the peak of resident memory is the nearest there is
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
