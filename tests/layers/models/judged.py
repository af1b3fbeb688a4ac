"""An engine of the kit of judges (see judged.py), which is no part of the project."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

import numpy as np

from layers.cases import Case, Tensor


class JudgeEngine:
    """`judge` is its folder in the kit; one process serves all files of a recorder."""

    judge = ""
    name = ""

    def __init__(self) -> None:
        from judged import load_judge

        module = load_judge(self.judge)
        import judging

        argv = module.argv(*self.arguments())
        self.worker = judging.Worker(argv, 90.0)
        atexit.register(self.worker.close)

    def arguments(self) -> tuple[Any, ...]:
        return ()

    def run(self, path: Path, case: Case) -> dict[str, Any] | str:
        """The outputs in the types and shapes that the case declares, or the engine's message."""
        status, found = self.worker.ask(path, case.feeds())
        if status != "ran":
            return f"{status}: {found}"
        values = [found.get(self.named(name, case)) for name in case.expected()]
        if any(v is None for v in values):  # it has names of its own
            values = list(found.values())
        declared = [t for t in case.outputs if not t.unread]
        if len(values) != len(declared):
            return f"outputs: {', '.join(found)}"
        return {
            name: presented(np.asarray(v), t)
            for name, v, t in zip(case.expected(), values, declared, strict=True)
        }

    def named(self, name: str, case: Case) -> str:
        return name


def presented(array: Any, declared: Tensor) -> Any:
    """An engine's numbers in the type that the file declares, and in its shape where it has as many
    numbers.
    """
    array = array.astype(declared.dtype)
    return array.reshape(declared.shape) if np.prod(declared.shape) == array.size else array
