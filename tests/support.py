"""Helpers of several test modules: the folders of the checkout, the corpus of real cases, fresh
processes.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "samples"
CONVERTER = ROOT / "converter"

# seconds after which a process has hung; nothing that works comes near, however slow the machine
HANG = 600

NO_CORPUS = (
    "the corpus of real cases is not here: set NETCONV_CORPUS, or put it in "
    "../shared/corpus beside the checkout"
)


def corpus_folder() -> Path | None:
    """The corpus named by NETCONV_CORPUS, or the one next to the checkout; None when there is
    none.
    """
    named = os.environ.get("NETCONV_CORPUS")
    folder = Path(named) if named else ROOT.parent / "shared" / "corpus"
    if named and not folder.is_dir():
        raise pytest.UsageError(f"NETCONV_CORPUS={named} is not a folder")
    return folder if folder.is_dir() else None


def corpus_cases(suite: str, only: str = "*", every: int = 1) -> list[object]:
    """Parameters for pytest.mark.parametrize: the case folders of a suite such as "openvino/nets",
    marked `corpus`.

    `only` is a glob over the case names; `every` takes each n-th case. Without a corpus it is one
    skipped case that says why; an empty selection in a corpus that is there is an error.
    """
    corpus = corpus_folder()
    if corpus is None:
        return [
            pytest.param(
                None, id=suite, marks=(pytest.mark.corpus, pytest.mark.skip(reason=NO_CORPUS))
            )
        ]
    cases = [p for p in sorted((corpus / suite).glob(only)) if p.is_dir()][::every]
    if not cases:
        raise pytest.UsageError(f"no case {only!r} in {corpus / suite}")
    return [
        pytest.param(case, id=f"{suite}/{case.name}", marks=pytest.mark.corpus) for case in cases
    ]


def until(reached: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Waits until something has been reached by a process that goes on."""
    deadline = time.monotonic() + HANG
    while not reached():
        assert time.monotonic() < deadline and (process.poll() is None or reached())
        time.sleep(0.01)


@contextmanager
def processor_time(limit: float) -> Iterator[None]:
    """TimeoutError when this process itself computes for more than `limit` seconds; the time of
    others to the machine does not count.
    """

    def late(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {limit:g} s")

    previous = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def run_python(code: str, *arguments: str, cwd: Path = ROOT) -> str:
    """Standard output of a fresh interpreter that finds this checkout's converter; fails the test
    with its stderr otherwise.
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Source:
    """A module of the package: its text, the dotted names that it calls, its imports."""

    text: str
    calls: frozenset[str]
    imports: tuple[ast.Import | ast.ImportFrom, ...]


@functools.cache
def sources() -> dict[str, Source]:
    """The modules of the package by their paths in it, read once for all tests of a process."""
    return {
        p.relative_to(CONVERTER).as_posix(): _source(p) for p in sorted(CONVERTER.rglob("*.py"))
    }


def _source(path: Path) -> Source:
    text = path.read_text("utf-8")
    calls, imports = set(), []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            calls.add(_dotted(node.func))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
    return Source(text, frozenset(calls), tuple(imports))


def _dotted(function: ast.expr) -> str:
    """`os.path.join` of such a call; of a call on a computed value, the attribute alone."""
    if isinstance(function, ast.Name):
        return function.id
    if not isinstance(function, ast.Attribute):
        return ""
    owner = _dotted(function.value)
    return f"{owner}.{function.attr}" if owner else function.attr


def module_of(path: Path) -> ModuleType:
    """Import a script as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
