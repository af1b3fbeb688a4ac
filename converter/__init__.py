"""netconv: neural networks between Core ML, OpenVINO IR, Zhouyi Compass IR, ONNX and NNAPI.

import converter
model = converter.load("net.mlmodel")
outputs = model.run({"image": array})
converter.save(model, "net.xml")                     # or format="openvino+ir=7"
converter.convert("net.mlmodel", "net.txt")
assert converter.verify("net.mlmodel", "net.xml").passed

Importing this package costs nothing; everything is loaded on first use.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if os.name != "posix":  # files are opened below folders, locked and limited as POSIX has it
    raise ImportError("netconv runs on Linux and macOS; on Windows it runs in WSL")

if TYPE_CHECKING:
    from converter import errors as errors
    from converter.api import Model, convert, inspect, load, quantize, run, save, verify

__version__ = "0.1.0"
SUMMARY = (
    "Convert and verify neural networks: Core ML (.mlmodel, .mlpackage), Core AI, ONNX, "
    "TensorFlow Lite, OpenVINO IR, NNAPI and Zhouyi Compass IR"
)
__all__ = ["Model", "convert", "errors", "inspect", "load", "quantize", "run", "save", "verify"]


def __getattr__(name: str) -> Any:
    import importlib

    if name == "errors":
        return importlib.import_module("converter.errors")
    if name in __all__:
        return getattr(importlib.import_module("converter.api"), name)
    raise AttributeError(f"module 'converter' has no attribute {name!r}")
