"""Files with nothing but the layers of a case, for each format, and the engine that computes
their numbers.
"""

from __future__ import annotations

import importlib
from typing import Any

from layers.cases import FOLDER, Case

FORMATS = ("opset", "zhouyi", "coreml", "legacy", "nnapi", "mlprogram", "tflite")


def model_of(format: str) -> Any:
    """The module of a format: `build`, `lift`, `read`, `write`, `taken`, `Engine`, `MAPPING`."""
    return importlib.import_module(f"layers.models.{format}")


def network_of(format: str, case: Case) -> Any:
    """The layers of a case: its own file, or one that is built from the case."""
    module = model_of(format)
    if case.model:
        return module.read(FOLDER / format / case.model)
    return module.build(case)
