"""Operations of ML Programs and their counterparts in the graph, by family."""

from __future__ import annotations

from converter.formats.coreml.mlprogram.rules.index import INDEX
from converter.mapping.rules import FamilyTable

FAMILIES = (
    "convolution",  # a linear layer takes an Add
    "elementwise",
    "normalization",
    "reduction",
    "shape",
    "indexing",
    "resize",
    "recurrent",
    "detection",
    "random",
    "control_flow",
    "quantization",
)
TABLE = FamilyTable(__name__, FAMILIES, INDEX)
