"""Things that can execute a model. Each is one small adapter, loaded when asked for.

An engine's `prepare(model)` returns something whose `run(feeds)` takes arrays by input name and returns arrays by output name,
in the model's order.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol

from converter.diagnostics import Diagnostic
from converter.errors import UsageError

if TYPE_CHECKING:
    from converter.model import Model

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
    def prepare(self, model: Model) -> Prepared: ...


def get(name: str) -> Engine:
    """The engine called `name`; UsageError when it is unknown or not installed."""
    if name not in ENGINES:
        raise UsageError(Diagnostic("U501", f"unknown engine {name!r}", help=f"known: {', '.join(ENGINES)}"))
    try:
        engine: Engine = importlib.import_module(ENGINES[name])
        return engine
    except ImportError as e:
        raise UsageError(Diagnostic("U502", f"the engine {name!r} is not installed ({e.name})", help=f"pip install 'netconv[{name}]'")) from None
