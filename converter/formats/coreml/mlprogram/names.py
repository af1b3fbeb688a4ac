"""Names of values in a program, and how those of the source are remembered."""

from __future__ import annotations

import re

from converter.formats.coreml.mlprogram.operations import words
from converter.graph.names import Names

NAMES = "netconv.names"  # key of the metadata: names of the program -> names of the source
SCALARS = "netconv.scalars"  # key of the metadata: inputs of one element that have no axes
STATES = "netconv.states"  # key of the metadata: states -> the outputs that are their next values
RESERVED = words(
    "any bool program func tensor list dict tuple true false string bf16 fp16 fp32 fp64 int8 "
    "int16 int32 int64 uint8 uint16 uint32 uint64 state"
)


class Identifiers:
    """Unique names that are valid identifiers in programs."""

    def __init__(self) -> None:
        self._names = Names()

    def fresh(self, name: str) -> str:
        """Return a valid identifier for a name that no other value has."""
        word = re.sub(r"[^A-Za-z0-9_]", "_", name) or "value"
        if not re.match(r"[A-Za-z_]", word):
            word = f"_{word}"
        return self._names.fresh(f"{word}_" if word in RESERVED else word)
