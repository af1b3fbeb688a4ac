"""Set up a process of netconv (the command line, a worker of `batch`) before it loads a model, and
before it ends.

A process that merely imports `converter` keeps its own settings.
"""

from __future__ import annotations

import atexit
import gc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

# Modules that packages import when they are imported, and that a conversion does not use.
LATER = frozenset(
    {
        # symbolic dimensions and signatures of onnx_ir
        *("sympy", "onnx_ir._symbolic_shapes", "onnx_ir.schemas"),
        "packaging.version",  # versions of packages
        # text, composition and versions of onnx's models
        *("onnx.compose", "onnx.gen_proto", "onnx.parser", "onnx.printer", "onnx.utils"),
        *("onnx.version_converter", "google.protobuf.json_format", "google.protobuf.text_format"),
        # the behavior of protobuf without its C library
        "google.protobuf.internal.python_message",
        # the docstrings of numpy's functions
        *("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars"),
        *("socket", "ipaddress"),  # email, urllib
        # sources of Python, pickles, archives, tables: inspect, numpy, shutil, importlib.metadata
        *("tokenize", "pickle", "bz2", "lzma", "csv", "calendar"),
        "zipfile",  # bundles and packages in archives
        "fractions",  # of sizes with names
        "importlib.metadata",  # of installed packages, beyond their versions
    }
)
# Packages that merely import all of their modules: these are imported when they are used.
BARE = frozenset({"tflite"})
# new objects between two garbage collections; with Python's 700 they repeatedly scan a growing
# graph of layers
GC_THRESHOLD = 200_000
# The threads of numpy's OpenBLAS wait for work in a loop before they sleep: 2 to the power of this
# many cycles. With its default they use the processor for as long as a small conversion takes.
IDLE_THREADS = "OPENBLAS_THREAD_TIMEOUT", "4"
_codes: list[int] = []  # the exit code of this process, once its command has ended


class _Unused(ModuleType):
    """A module of LATER that is loaded when it is first used. Unlike `importlib.util.LazyLoader`,
    another import of it, which reads its specification, does not load it.
    """

    def __getattribute__(self, name: str) -> Any:
        if name == "__module__":  # of classes and functions, which onnx_ir looks for
            raise AttributeError(name)
        if name != "__spec__":
            self.__class__ = ModuleType  # type: ignore[assignment]
            spec = self.__spec__
            if spec is not None and spec.loader is not None:
                spec.loader = spec.loader_state
                spec.loader_state.exec_module(self)
        return ModuleType.__getattribute__(self, name)


class _Metadata(_Unused):
    """`importlib.metadata`, of which onnx asks its own version when it is imported. The name of a
    folder has the version: the readers of archives and mails, which importlib.metadata needs for
    everything else, are not loaded for it.
    """

    def __getattribute__(self, name: str) -> Any:
        return _version if name == "version" else super().__getattribute__(name)


def _version(distribution: str) -> str:
    """Return the version of an installed distribution."""
    for folder in filter(os.path.isdir, sys.path):
        for entry in os.listdir(folder):
            name, _, rest = entry.partition("-")
            if name == distribution and rest.endswith(".dist-info"):
                return rest.removesuffix(".dist-info")
    import importlib.metadata

    importlib.metadata.Distribution  # noqa: B018 (loads the module)
    return importlib.metadata.version(distribution)


class _LaterLoader:
    """A loader that wraps another one, and creates the module when it is first used."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Return the module that the wrapped loader creates; None means an ordinary one."""
        spec.loader_state = self.loader
        made: ModuleType | None = self.loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Leave the execution of the module to its first use."""
        module.__class__ = _Metadata if module.__name__ == "importlib.metadata" else _Unused


class _Later:
    """A finder that loads the modules of LATER when they are first used, and packages of BARE
    without their modules.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in LATER and name not in BARE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            # a package without a loader has a path and no code
            spec.loader = None if name in BARE else _LaterLoader(spec.loader)  # type: ignore[assignment]
        return spec


def prepare() -> None:
    """Make start-up and large networks fast; called once per process, before numpy is imported."""
    if _Later not in sys.meta_path:
        sys.meta_path.insert(0, _Later)
    gc.set_threshold(GC_THRESHOLD)
    os.environ.setdefault(*IDLE_THREADS)
    atexit.register(_end)


def finish(code: int) -> None:
    """End the process with this code without the final garbage collection and the release of every
    object, which would take as long as a small conversion.
    """
    gc.freeze()
    _codes.append(code)


def _end() -> None:
    """End the process after all other exit handlers, which were registered later; as Python does it
    if the command was called by a script that failed afterwards.
    """
    if _codes and not hasattr(sys, "last_type"):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_codes[-1])
