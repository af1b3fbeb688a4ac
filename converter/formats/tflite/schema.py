"""The schema of TensorFlow Lite's files, from the packages `tflite` and `flatbuffers`, and tables
of newer versions of the schema
(https://github.com/google-ai-edge/LiteRT, tflite/converter/schema/schema.fbs).
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from functools import cache
from types import ModuleType
from typing import Any

import flatbuffers as flatbuffers
from flatbuffers import number_types
from flatbuffers.table import Table

__all__ = ["flatbuffers", "schema"]


class StablehloCaseOptions:
    """The options of STABLEHLO_CASE: the subgraphs of its branches."""

    def Init(self, content: Any, position: int) -> None:
        """Set the position of the table in the content."""
        self._table: Any = Table(content, position)

    @classmethod
    def GetRootAs(cls, content: Any, offset: int = 0) -> StablehloCaseOptions:
        """Return the table at the root of the content."""
        found = cls()
        found.Init(content, flatbuffers.encode.Get(flatbuffers.packer.uoffset, content, offset))
        return found

    def BranchSubgraphIndicesLength(self) -> int:
        """Return the number of branches."""
        field = self._table.Offset(4)
        return int(self._table.VectorLen(field)) if field else 0

    def BranchSubgraphIndices(self, i: int) -> int:
        """Return the subgraph index of a branch."""
        start = self._table.Vector(self._table.Offset(4))
        return int(self._table.Get(number_types.Int32Flags, start + 4 * i))


# names of newer versions, and the values that they add to enumerations
_NEWER: dict[str, Any] = {
    "StablehloCaseOptions": StablehloCaseOptions,
    "StablehloCaseOptionsStart": lambda builder: builder.StartObject(1),
    "StablehloCaseOptionsAddBranchSubgraphIndices": lambda builder, indices: (
        builder.PrependUOffsetTRelativeSlot(0, indices, 0)
    ),
    "StablehloCaseOptionsEnd": lambda builder: builder.EndObject(),
}
_NUMBERS = {
    "BuiltinOperator": {"STABLEHLO_CASE": 209},
    "BuiltinOptions2": {"StablehloCaseOptions": 23},
}


@cache
def _tables() -> list[str]:
    """Return the modules of the package, which are named like its tables and enumerations."""
    spec = importlib.util.find_spec("tflite")
    folders = spec.submodule_search_locations if spec else None
    return sorted((m.name for m in pkgutil.iter_modules(folders)), key=len, reverse=True)


@cache
def _module(table: str) -> ModuleType | None:
    """Return the module of a table, or None if the package does not have it."""
    return importlib.import_module(f"tflite.{table}") if table in _tables() else None


class Schema:
    """The names of the schema. The package has a module for each table, with the functions that
    write it: Conv2DOptions has Conv2DOptionsStart. A module is imported when it is used: there are
    nearly 200, of which a network needs ten.
    """

    def __getattr__(self, name: str) -> Any:
        if name in _NEWER:
            found = _NEWER[name]
        else:
            table = next((t for t in _tables() if name.startswith(t)), "")
            found = getattr(_module(table), name, None)
            if found is None:
                raise AttributeError(f"the schema of TensorFlow Lite has no {name}")
            if name in _NUMBERS:
                found = type(name, (), {**_NUMBERS[name], **vars(found)})
        setattr(self, name, found)
        return found

    @staticmethod
    def functions(table: str) -> list[str]:
        """Return the names that belong to a table."""
        module = _module(table)
        names = _NEWER if module is None else vars(module)
        return [n for n in names if n.startswith(table)]


schema: Any = Schema()
