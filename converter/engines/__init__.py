"""Engines that execute a model. Each is one small adapter, loaded on demand.

An engine's `prepare(model)` returns an object whose `run(feeds)` takes arrays by input name and
returns arrays by output name, in the model's order.

onnxruntime.py  the default
session_weights.py  its large weights, mapped from their files
reference.py    onnx's own evaluator: slow, written independently of onnxruntime
openvino.py     OpenVINO's runtime, through the IR v11 writer
litert.py       LiteRT, through the TensorFlow Lite writer
coreml.py       Core ML on macOS, through the Core ML writer
coreai.py       Core AI, through the Core AI writer
file.py         a model file itself in the engine it is written for
file_child.py   the process in which that engine runs
processor.py    whether 8-bit products saturate on this processor
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from converter.errors import (
    ConverterError,
    Diagnostic,
    NothingComparedError,
    UnsupportedError,
    UsageError,
    did_you_mean,
    wrong_call,
)
from converter.io.extras import install

if TYPE_CHECKING:
    from converter.graph.network import Network

ENGINES = {
    "onnxruntime": "converter.engines.onnxruntime",
    "reference": "converter.engines.reference",
    "openvino": "converter.engines.openvino",
    "litert": "converter.engines.litert",
    "coreml": "converter.engines.coreml",
    "coreai": "converter.engines.coreai",
}


@dataclass
class Prepared:
    """A model prepared by the engine called `name`: `compute` maps arrays for its inputs to the
    arrays of its outputs, in order. `inner` is the engine's own object.
    """

    name: str
    inputs: list[str]
    outputs: list[str]
    compute: Callable[[list[Any]], Iterable[Any]]
    inner: Any

    def run(self, feeds: dict[str, Any]) -> dict[str, Any]:
        """Run with arrays by name. Raises UsageError N403 with the engine's message if the feeds do
        not fit.
        """
        given = [feeds[n] for n in self.inputs]
        with refusing(UsageError, self.name):
            return dict(zip(self.outputs, self.compute(given), strict=True))


class Engine(Protocol):
    """An engine that executes networks."""

    def prepare(self, model: Network) -> Prepared: ...


def prepared(
    model: Network, name: str, compute: Callable[[list[Any]], Iterable[Any]], inner: Any
) -> Prepared:
    """Return a prepared model with the inputs and outputs of `model`."""
    from converter.graph.names import unique

    inputs, outputs = ([t.name for t in side] for side in (model.inputs, model.outputs))
    return Prepared(name, inputs, unique(outputs), compute, inner)


@contextmanager
def only_running() -> Iterator[None]:
    """Convert UnsupportedError to NothingComparedError (exit 6) for commands that only run models:
    there, an unsupported operator is one that the engine cannot execute.
    """
    try:
        yield
    except UnsupportedError as e:
        raise NothingComparedError(e.diagnostics) from None


@contextmanager
def refusing(kind: type[ConverterError], what: str) -> Iterator[None]:
    """Convert every exception of an engine to a `kind` error with the code N403."""
    try:
        yield
    except ConverterError:
        raise
    except Exception as e:  # every engine raises its own exception types
        raise kind(Diagnostic("N403", f"{what}: {first_line(e)}")) from None


def first_line(error: Exception) -> str:
    """Return the first line of an engine's message, without its own error codes and locations in
    its source: these, and further lines, are for its developers.
    """
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return _DEVELOPERS.sub("", text).strip() or text


# "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : ...", "Status Message: /onnxruntime_src/core/a.h:45
# onnxruntime::A::A(const T&, bool) size == n was false."
_DEVELOPERS = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : (?:Non-zero status code returned while )?"
    r"|Status Message: (?=/)"
    r"|/\S+\.(?:cc|cpp|h|hpp|cuh?):\d+ (?:[\w:~<> ,&*]+\([^()]*\)(?: const)?(?: \[[^\]]*\])? )?"
)


def demand_known(name: str) -> None:
    """Raise UsageError, with a suggestion, for an unknown engine."""
    if name not in ENGINES:
        help = did_you_mean(name, ENGINES, f"use one of {', '.join(ENGINES)}")
        raise wrong_call(f"engine {name!r} is not known", help=help)


def get(name: str) -> Engine:
    """Return the engine called `name`; raise UsageError if it is unknown or not installed."""
    demand_known(name)
    try:
        engine: Engine = importlib.import_module(ENGINES[name])
        return engine
    except ImportError as e:
        raise wrong_call(
            f"engine {name!r} is not installed ({e.name})",
            help=f"run {install(name)}",
            code="U502",
        ) from None


def run(network: Network, feeds: dict[str, Any], engine: str = "onnxruntime") -> dict[str, Any]:
    """Return the outputs of one run by name, in the network's order; `feeds` are cast to the
    declared types.
    """
    results: dict[str, Any] = get(engine).prepare(network).run(network.check_feeds(feeds))
    return results
