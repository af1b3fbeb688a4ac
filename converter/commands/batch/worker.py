"""A worker process: reads tasks as JSON lines from standard input, and writes outcomes as JSON
lines to the descriptor given as its argument.

If the parent disappears for any reason, the worker exits, even during a task.
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
    """Run jobs from standard input, one JSON object a line, and write their outcomes to the file
    descriptor of the first argument.
    """
    startup.prepare()
    tasks: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    _preload()
    gc.freeze()  # all of it is permanent
    with open(int(sys.argv[1]), "w", encoding="utf-8") as results:
        results.write("ready\n")
        results.flush()
        while True:
            task = Task(**json.loads(tasks.get()))
            results.write(json.dumps(_limited(task)) + "\n")
            results.flush()
            # networks have reference cycles; memory of one job must not count for the next one
            gc.collect()


def _listen(tasks: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        tasks.put(line)
    os._exit(0)  # the reader of the results is gone


def _preload() -> None:
    """Load the modules that every job needs, so that their memory does not count for the job."""
    import converter.commands.convert
    import converter.commands.verify.check
    import converter.engines.onnxruntime  # noqa: F401 - nothing of it is called here


def _limited(task: Task) -> dict[str, Any]:
    """Run a task within its memory limit."""
    try:
        with limits.memory(task.memory):
            return perform(task)
    except MemoryError:
        return beyond_memory(task)


if __name__ == "__main__":
    main()
