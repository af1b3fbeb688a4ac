"""What a process of netconv's own (the command line, a worker of `batch`) arranges before it loads
a model, and before it ends.

A process that merely imports `converter` keeps its own arrangements.
"""

from __future__ import annotations

import gc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

# onnx_ir computes with names of dimensions through sympy, netconv never does; it is half of what a
# conversion imports
LATER = frozenset({"sympy", "onnx_ir._symbolic_shapes"})
# new objects between two looks for garbage; Python's 700 look through a growing graph of layers
# again and again
GC_THRESHOLD = 200_000


class _Later:
    """Finds the modules of LATER as modules that are loaded when something in them is first
    used.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = (
            importlib.machinery.PathFinder.find_spec(name, path, target) if name in LATER else None
        )
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


def prepare() -> None:
    """Makes start-up and large networks fast; once per process, before onnx_ir is imported."""
    if _Later not in sys.meta_path:
        sys.meta_path.insert(0, _Later)
    gc.set_threshold(GC_THRESHOLD)


def finish() -> None:
    """Lets everything end with the process: Python would look through all of it for garbage first,
    which takes as long as a small conversion.
    """
    gc.freeze()
