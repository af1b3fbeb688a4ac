"""The schema of TensorFlow Lite's files, from the packages `tflite` and `flatbuffers`, and tables
of newer versions of the schema
(https://github.com/google-ai-edge/LiteRT, tflite/converter/schema/schema.fbs).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import flatbuffers as flatbuffers
import tflite as package
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


_OPTIONS = {
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


def _with_newer(found: dict[str, Any]) -> SimpleNamespace:
    """Return the names of the package, and those that only newer versions of the schema have."""
    wider = {k: type(k, (), {**n, **vars(found[k])}) for k, n in _NUMBERS.items()}
    return SimpleNamespace(**{**_OPTIONS, **found, **wider})


schema: Any = _with_newer(vars(package))
