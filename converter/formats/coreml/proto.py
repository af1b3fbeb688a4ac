"""coremltools' generated protobuf classes, without the seconds that `import coremltools` takes.

The generated modules import each other relatively, so the folder that holds them can be imported as
a package under a name of our own: nothing called `coremltools` enters `sys.modules` and none of its
start-up code runs. Protobuf keeps one class per message and process, so a real `import
coremltools`, before or after, shares the classes loaded here. Measured: 20-60 ms against several
seconds.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from converter.errors import wrong_call

_PACKAGE = f"{__package__}.coremltools_proto"


def _package() -> str:
    """Register the folder of generated modules as the package `_PACKAGE` and return that name.
    UsageError U502 without coremltools.
    """
    if _PACKAGE not in sys.modules:
        spec = importlib.util.find_spec("coremltools")  # finds a top-level package, does not run it
        if spec is None or not spec.submodule_search_locations:
            raise wrong_call(
                "the Core ML formats need the package coremltools, which is not installed",
                help="run pip install coremltools; it is not available for Python "
                "3.14 or newer yet",
                code="U502",
            )
        package = ModuleType(_PACKAGE)
        package.__path__ = [str(Path(place) / "proto") for place in spec.submodule_search_locations]
        sys.modules[_PACKAGE] = package
    return _PACKAGE


# The classes are made by protobuf at import: a type checker knows nothing about them.
Model_pb2: Any = importlib.import_module(f"{_package()}.Model_pb2")
NeuralNetwork_pb2: Any = importlib.import_module(f"{_package()}.NeuralNetwork_pb2")
