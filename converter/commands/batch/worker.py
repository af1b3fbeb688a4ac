"""A worker process: tasks as JSON lines from standard input, outcomes as JSON lines to the
descriptor given as its argument.

When the other end goes away, for whatever reason, so does the worker, in the middle of a task if
need be.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import sys
import threading
from typing import Any

from converter.commands import startup
from converter.commands.batch.work import Task, beyond_memory, perform
from converter.io import limits


def main() -> None:
    startup.prepare()
    tasks: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    _preload()
    gc.freeze()  # all of it stays
    with open(int(sys.argv[1]), "w", encoding="utf-8") as results:
        results.write("ready\n")
        results.flush()
        while True:
            task = Task(**json.loads(tasks.get()))
            results.write(json.dumps(_limited(task)) + "\n")
            results.flush()
            # networks are cycles; what one job leaves must not count as the next one's
            gc.collect()


def _listen(tasks: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        tasks.put(line)
    os._exit(0)  # nobody is left to read the results


def _preload() -> None:
    """What every job loads, so that it counts as the program and not as the job."""
    import converter.commands.convert
    import converter.commands.verify.check
    import converter.engines.onnxruntime  # noqa: F401 - nothing of it is called here


def _limited(task: Task) -> dict[str, Any]:
    """Performs a task within its memory."""
    try:
        with limits.memory(task.memory):
            return perform(task)
    except MemoryError:
        return beyond_memory(task)


if __name__ == "__main__":
    main()
