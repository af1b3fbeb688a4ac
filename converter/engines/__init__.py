"""Engines that execute a model. Each is one small adapter, loaded when asked for.

An engine's `prepare(model)` returns something whose `run(feeds)` takes arrays by input name and
returns arrays by output name, in the model's order.

onnxruntime.py  the default
session_weights.py  its large weights, read from the files where they lie
reference.py    onnx's own evaluator: slow, written independently of onnxruntime
openvino.py     OpenVINO's runtime, by way of the IR v11 writer
litert.py       LiteRT, by way of the TensorFlow Lite writer
coreml.py       Core ML on macOS, by way of the Core ML writer
file.py         a model file itself in the engine it is written for
file_child.py   the process in which that engine runs
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol

from converter.errors import Diagnostic, UsageError, did_you_mean

if TYPE_CHECKING:
    from converter.graph.network import Network

ENGINES = {
    "onnxruntime": "converter.engines.onnxruntime",
    "reference": "converter.engines.reference",
    "openvino": "converter.engines.openvino",
    "litert": "converter.engines.litert",
    "coreml": "converter.engines.coreml",
}


class Prepared(Protocol):
    def run(self, feeds: dict[str, Any]) -> dict[str, Any]: ...


class Engine(Protocol):
    def prepare(self, model: Network) -> Prepared: ...


def demand_known(name: str) -> None:
    """UsageError, with a suggestion, for an engine that there is not."""
    if name not in ENGINES:
        help = did_you_mean(name, ENGINES, f"known: {', '.join(ENGINES)}")
        raise UsageError(Diagnostic("U501", f"unknown engine {name!r}", help=help))


def get(name: str) -> Engine:
    """The engine called `name`; UsageError when it is unknown or not installed."""
    demand_known(name)
    try:
        engine: Engine = importlib.import_module(ENGINES[name])
        return engine
    except ImportError as e:
        raise UsageError(
            Diagnostic(
                "U502",
                f"the engine {name!r} is not installed ({e.name})",
                help=f"pip install 'netconv[{name}]'",
            )
        ) from None


def run(network: Network, feeds: dict[str, Any], engine: str = "onnxruntime") -> dict[str, Any]:
    """The outputs of one run by name, in the network's order; `feeds` are cast to the declared
    types.
    """
    results: dict[str, Any] = get(engine).prepare(network).run(network.check_feeds(feeds))
    return results
