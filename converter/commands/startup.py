"""Set up a process of netconv (the command line, a worker of `batch`) before it loads a model, and
before it ends.

A process that merely imports `converter` keeps its own settings.
"""

from __future__ import annotations

import gc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

# onnx_ir uses sympy for symbolic dimensions, netconv never does; it takes half of the import time
# of a conversion
LATER = frozenset({"sympy", "onnx_ir._symbolic_shapes"})
# new objects between two garbage collections; with Python's 700 they repeatedly scan a growing
# graph of layers
GC_THRESHOLD = 200_000


class _Later:
    """A finder that loads the modules of LATER when they are first used."""

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
    """Make start-up and large networks fast; called once per process, before onnx_ir is
    imported.
    """
    if _Later not in sys.meta_path:
        sys.meta_path.insert(0, _Later)
    gc.set_threshold(GC_THRESHOLD)


def finish() -> None:
    """Skip the final garbage collection, which would take as long as a small conversion."""
    gc.freeze()
