"""How the layers of each format are put into a file with nothing else, and which engine computes
their numbers.
"""

from __future__ import annotations

import importlib
from typing import Any

FORMATS = ("opset", "zhouyi", "coreml", "legacy", "nnapi")


def model_of(format: str) -> Any:
    """The module of a format: `build`, `lift`, `write`, `taken`, `Engine`, `MAPPING`."""
    return importlib.import_module(f"layers.models.{format}")
