"""Operations of Core AI and their counterparts in the graph, by family."""

from __future__ import annotations

from converter.formats.coreml.coreai.rules.index import INDEX
from converter.mapping.rules import FamilyTable

FAMILIES = (
    "composites",
    "complex",
    "quantization",
    "elementwise",
    "linear",
    "reduction",
    "shape",
    "indexing",
    "resize",
    "control_flow",
)
TABLE = FamilyTable(__name__, FAMILIES, INDEX)
