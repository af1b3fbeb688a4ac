"""Run a model file itself, not netconv's reading of it, in the engine that it is written for, in a
separate process.

Each engine first loads the file with its default options; numbers are computed with exact options
(see file_child.py).
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converter.io.child import how_it_ended, run_captured

if TYPE_CHECKING:
    from converter.graph.infer import Array
    from converter.graph.network import Network

# name of an engine -> its Python module
MODULES = {
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "litert": "ai_edge_litert",
    "coreai": "coreai",
}
TIMEOUT = 600  # seconds that loading and running one file may take


def engine_of(model: Network) -> str:
    """Return the name of the engine that the file of a model is written for; "" if there is none
    here, or the model has no file.
    """
    from converter import formats

    if model.source is None or model.format not in formats.FORMATS or not model.source.exists():
        return ""
    return formats.get(model.format).engine(model.source)


def available(engine: str) -> bool:
    """Return whether an engine is installed, without importing it."""
    try:
        return importlib.util.find_spec(MODULES[engine]) is not None
    except (ImportError, ValueError):  # its import is blocked on purpose
        return False


@dataclass(frozen=True)
class Run:
    """The outcome of running a file in its engine.

    stage: "done"; "load" or "run" (refused, `error` is the engine's message), "boundary" (its
    inputs are not those of the feeds), "feed" (Python cannot pass such inputs to it), "crash",
    "timeout", "memory", or "absent". `feed` is the index of the failed feed. `outputs` lists all
    names of each of the file's outputs; `results` has for each feed the arrays by output index,
    without those that Python cannot hold.
    """

    stage: str
    error: str = ""
    feed: int = 0
    outputs: tuple[tuple[str, ...], ...] = ()
    results: tuple[Mapping[int, Array], ...] = ()


def run(
    engine: str,
    path: Path,
    names: Sequence[str],
    feeds: Sequence[Sequence[Array]],
    expected: Sequence[Sequence[Array]] | None = None,
    function: str = "",
    full_floats: bool = False,
) -> Run:
    """Load the file with default options and compute its outputs for each feed: arrays in the order
    of `names` or, if `names` is empty, of the file's inputs. `function` is one of the functions of
    a Core AI model, or a signature of a TensorFlow Lite file. `full_floats`: floats have 32 bits
    where by default some processors take 16, and integers are computed as by default.

    With `expected`, results by feed and output, the outputs are computed with exact options: an
    engine that reproduces them with default options need not load the file again.
    """
    with tempfile.TemporaryDirectory(prefix="netconv-") as folder:
        request, made, report = (Path(folder) / n for n in ("in.npz", "out.npz", "report.json"))
        arrays: dict[str, Any] = {
            f"feed/{k}/{i}": _plain(a) for k, feed in enumerate(feeds) for i, a in enumerate(feed)
        }
        arrays.update(
            (f"expected/{k}/{i}", _plain(a))
            for k, results in enumerate(expected or ())
            for i, a in enumerate(results)
        )
        np.savez(
            request,
            names=np.array(list(names), str),
            feeds=np.array(len(feeds)),
            exact=np.array(expected is not None),
            full_floats=np.array(full_floats),
            function=np.array(function),
            **arrays,
        )
        child = Path(__file__).with_name("file_child.py")
        files = map(str, (path.absolute(), request, made, report))
        try:
            done = run_captured(child, engine, *files, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return Run("timeout", f"it did not finish within {TIMEOUT} seconds")
        if not report.exists():
            return _ended(done)
        said = json.loads(report.read_text(encoding="utf-8"))
        with np.load(made, allow_pickle=False) as found:
            by_feed: list[dict[int, Array]] = [{} for _ in feeds]
            for key in found.files:
                number, place = map(int, key.split("/"))
                by_feed[number][place] = found[key]
    stage = "memory" if said.get("memory") else said["stage"]
    names_of = tuple(tuple(o["names"]) for o in said.get("outputs", ()))
    return Run(stage, one_line(said["error"]), said.get("feed", 0), names_of, tuple(by_feed))


def _ended(done: subprocess.CompletedProcess[str]) -> Run:
    """Describe a process that ended without a report: its last line of output, and how it ended."""
    last = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "")
    if done.returncode == 1 and last.startswith("MemoryError"):
        return Run("memory", last)
    how = how_it_ended(done.returncode)
    return Run("crash", how + (f": {one_line(last)}" if last else ""))


def _plain(array: Array) -> Array:
    """Return the array in a type that numpy stores without pickling; types that numpy lacks become
    floats (the engine's port has the real type).
    """
    if array.dtype == object:
        return array.astype(str)
    return (
        array
        if array.dtype.kind in "fiubcSU" and array.dtype.isbuiltin
        else array.astype(np.float32)
    )


def one_line(text: str) -> str:
    """Return the informative part of an engine's error message, without locations in the engine's
    own sources.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [
        line
        for line in lines
        if not line.startswith(("Exception from ", "Check '", "at ", "File "))
    ]
    return " ".join((said or lines)[:3])
