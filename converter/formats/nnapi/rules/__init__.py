"""Canonical operators <-> operations of the Android Neural Networks API, by family.

`ON_DEMAND` are operators that most users take as a part of themselves; they are written where one
does not.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from converter.formats.lite.normalization import scales_a_softmax
from converter.formats.nnapi.rules.index import INDEX
from converter.formats.nnapi.rules.weights import only_permutes_weights
from converter.mapping.rules import FamilyTable

FAMILIES = (
    "elementwise",
    "convolution",
    "pooling",
    "normalization",
    "reduction",
    "matmul",
    "shape",
    "indexing",
    "resize",
    "recurrent",
    "detection",
    "quantization",
    "random",
)
TABLE = FamilyTable(__name__, FAMILIES, INDEX)
ON_DEMAND: dict[tuple[str, str], Callable[[ir.Node], bool]] = {
    ("", "DequantizeLinear"): lambda node: True,
    ("", "Mul"): scales_a_softmax,
    ("", "Transpose"): only_permutes_weights,
}
