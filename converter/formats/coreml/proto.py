"""The protobuf messages of Core ML, as coremltools has them, without the seconds that `import
coremltools` takes.

coremltools has no schema but the modules that protobuf generated from it. Such a module holds its
part of the schema as one constant, and makes a class for each message, of which a conversion uses
few. So only the constants are read here, and protobuf makes a class when it is used. Nothing called
`coremltools` enters `sys.modules`. Protobuf keeps one class per message and process, so a real
`import coremltools`, before or after, shares the classes made here.
"""

from __future__ import annotations

import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.protobuf.reflection import GeneratedProtocolMessageType

from converter.errors import wrong_call
from converter.record import record


@record
class _Messages:
    """The message classes of one file of the schema, as attributes."""

    schema: Any

    def __getattr__(self, name: str) -> Any:
        if name not in self.schema.message_types_by_name:
            raise AttributeError(f"{self.schema.name} has no message {name}", name=name, obj=self)
        # as generated modules do it; GetMessageClass makes the classes of all messages within, too
        content = {"DESCRIPTOR": self.schema.message_types_by_name[name], "__module__": __name__}
        return GeneratedProtocolMessageType(name, (Message,), content)


def _schemas() -> dict[str, Any]:
    """Return the schema of models and all files that it imports, by the names of the modules.
    UsageError U502 without coremltools.
    """
    spec = importlib.util.find_spec("coremltools")  # finds a top-level package, does not run it
    if spec is None or not spec.submodule_search_locations:
        raise wrong_call(
            "the Core ML formats need the package coremltools, which is not installed",
            help="run pip install coremltools; it is not available for Python 3.14 or newer yet",
            code="U502",
        )
    folder = Path(spec.submodule_search_locations[0]) / "proto"
    schemas: dict[str, Any] = {}

    def add(module: str) -> None:
        code: Any = SourceFileLoader(module, str(folder / f"{module}.py")).get_code(module)
        for imported in code.co_names:
            if imported.endswith("_pb2") and "__" not in imported and imported not in schemas:
                add(imported)
        schema = max((c for c in code.co_consts if isinstance(c, bytes)), key=len)
        schemas[module] = Default().AddSerializedFile(schema)

    add("Model_pb2")
    return schemas


_SCHEMAS = _schemas()
Model_pb2: Any = _Messages(_SCHEMAS["Model_pb2"])
NeuralNetwork_pb2: Any = _Messages(_SCHEMAS["NeuralNetwork_pb2"])
