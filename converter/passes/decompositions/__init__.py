"""Decompositions of canonical operators into simpler canonical operators, by theme, for every
target.

No rewrite leads back to its own operator: activations end in Relu, Exp, Log and arithmetic,
reductions in ReduceSum and ReduceMax, movements of data in Reshape, Transpose, Slice and Concat.
"""

from __future__ import annotations

from converter.passes.decompositions.index import INDEX
from converter.passes.decompositions.table import Decompositions

FAMILIES = (
    "activations",
    "arithmetic",
    "bitwise",
    "classical",
    "computed",
    "einsum",
    "fourier",
    "indexing",
    "linear",
    "movement",
    "normalization",
    "quantization",
    "random",
    "recurrent",
    "reductions",
    "regions",
    "resizing",
    "sampling",
    "scattering",
    "sequences",
    "windows",
)
DECOMPOSITIONS = Decompositions(__name__, FAMILIES, INDEX)
