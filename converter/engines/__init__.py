"""Engines that execute a model. Each is one small adapter, loaded when asked for.

An engine's `prepare(model)` returns something whose `run(feeds)` takes arrays by input name and
returns arrays by output name, in the model's order.

onnxruntime.py  the default
session_weights.py  its large weights, read from the files where they lie
reference.py    onnx's own evaluator: slow, written independently of onnxruntime
openvino.py     OpenVINO's runtime, by way of the IR v11 writer
litert.py       LiteRT, by way of the TensorFlow Lite writer
coreml.py       Core ML on macOS, by way of the Core ML writer
coreai.py       Core AI, by way of the Core AI writer
file.py         a model file itself in the engine it is written for
file_child.py   the process in which that engine runs
"""

from __future__ import annotations

import importlib
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
    """A model in the engine called `name`: `compute` takes what is fed to its inputs and gives what
    comes out of its outputs, in their order. `inner` is what the engine made of it.
    """

    name: str
    inputs: list[str]
    outputs: list[str]
    compute: Callable[[list[Any]], Iterable[Any]]
    inner: Any

    def run(self, feeds: dict[str, Any]) -> dict[str, Any]:
        """By names. UsageError N403 with what the engine says when the feeds do not fit."""
        given = [feeds[n] for n in self.inputs]
        with refusing(UsageError, self.name):
            return dict(zip(self.outputs, self.compute(given), strict=True))


class Engine(Protocol):
    def prepare(self, model: Network) -> Prepared: ...


def prepared(
    model: Network, name: str, compute: Callable[[list[Any]], Iterable[Any]], inner: Any
) -> Prepared:
    """A model whose inputs and outputs are those of `compute`."""
    from converter.graph.names import unique

    inputs, outputs = ([t.name for t in side] for side in (model.inputs, model.outputs))
    return Prepared(name, inputs, unique(outputs), compute, inner)


@contextmanager
def only_running() -> Iterator[None]:
    """Where nothing is written, an operator that is unsupported is one that an engine cannot run:
    NothingComparedError (exit 6) instead of UnsupportedError.
    """
    try:
        yield
    except UnsupportedError as e:
        raise NothingComparedError(e.diagnostics) from None


@contextmanager
def refusing(kind: type[ConverterError], what: str) -> Iterator[None]:
    """Whatever an engine raises in this becomes a refusal, which is N403."""
    try:
        yield
    except ConverterError:
        raise
    except Exception as e:  # every engine raises a family of its own
        raise kind(Diagnostic("N403", f"{what}: {first_line(e)}")) from None


def first_line(error: Exception) -> str:
    """What an engine says, without what it adds for its authors."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def demand_known(name: str) -> None:
    """UsageError, with a suggestion, for an engine that there is not."""
    if name not in ENGINES:
        help = did_you_mean(name, ENGINES, f"known: {', '.join(ENGINES)}")
        raise wrong_call(f"unknown engine {name!r}", help=help)


def get(name: str) -> Engine:
    """The engine called `name`; UsageError when it is unknown or not installed."""
    demand_known(name)
    try:
        engine: Engine = importlib.import_module(ENGINES[name])
        return engine
    except ImportError as e:
        raise wrong_call(
            f"the engine {name!r} is not installed ({e.name})",
            help=f"pip install 'netconv[{name}]'",
            code="U502",
        ) from None


def run(network: Network, feeds: dict[str, Any], engine: str = "onnxruntime") -> dict[str, Any]:
    """The outputs of one run by name, in the network's order; `feeds` are cast to the declared
    types.
    """
    results: dict[str, Any] = get(engine).prepare(network).run(network.check_feeds(feeds))
    return results
