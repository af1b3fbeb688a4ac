"""Convert and verify neural networks: Core ML (.mlmodel, .mlpackage), Core AI, ONNX,
TensorFlow Lite, OpenVINO IR, NNAPI and Zhouyi Compass IR.

    import netconv

    model = netconv.load("net.mlmodel")             # a path, bytes, onnx.ModelProto, onnx_ir.Model
    outputs = model(array)                          # or model.run(image=array)
    netconv.convert("net.mlmodel", "net.tflite")    # returns notes, warns with NetconvWarning
    netconv.save(model, "net.xml")                  # or format="openvino+ir=7"
    result = netconv.verify("net.mlmodel", "net.xml")
    print(result)                                   # as `netconv verify` prints it
    assert result.passed

Each command is a function: batch, check, convert, diff, extract, inspect, quantize, reduce, report,
roundtrip, run, verify, view. `netconv.testing.assert_same(a, b)` is for tests; warnings and notes
also go to the logger "netconv". Errors are those of `netconv.errors`, and Python's own where they
fit: a missing file is a FileNotFoundError, a wrong argument a ValueError.

`netconv` is the name for programs; `converter`, the name of the package, means the same. Importing
it costs nothing; everything is loaded on first use.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from converter.version import SUMMARY as SUMMARY
from converter.version import __version__ as __version__

if os.name != "posix":  # files are opened below folders, locked and limited as POSIX has it
    _REFUSAL = "netconv runs on Linux and macOS, not on Windows; use it in WSL there"
    # the command ends with the message alone, a program gets an error that it can handle
    command = os.path.splitext(os.path.basename(sys.argv[0]))[0] == "netconv"
    raise SystemExit(_REFUSAL) if command else ImportError(_REFUSAL)

if TYPE_CHECKING:
    from converter import errors as errors
    from converter import testing as testing
    from converter.errors import NetconvWarning as NetconvWarning
    from converter.functions import (
        Model,
        batch,
        check,
        convert,
        diff,
        extract,
        inspect,
        load,
        quantize,
        reduce,
        report,
        roundtrip,
        run,
        save,
        verify,
        view,
    )

__all__ = [
    "Model",
    "NetconvWarning",
    "batch",
    "check",
    "convert",
    "diff",
    "errors",
    "extract",
    "inspect",
    "load",
    "quantize",
    "reduce",
    "report",
    "roundtrip",
    "run",
    "save",
    "testing",
    "verify",
    "view",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in ("errors", "testing"):
        return importlib.import_module(f"converter.{name}")
    if name == "NetconvWarning":
        return importlib.import_module("converter.errors").NetconvWarning
    if name in __all__:
        return getattr(importlib.import_module("converter.functions"), name)
    if _replaced is not None and not name.startswith("__"):
        return getattr(_replaced, name)
    raise AttributeError(f"module 'converter' has no attribute {name!r}")


# a module of another origin with this name that was loaded before `import netconv`: those who
# import it later find its members, too
_replaced: Any = None


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "__doc__", "__file__", "__name__", "__path__"])
