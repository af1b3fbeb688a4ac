"""Canonical operators <-> operations of the Android Neural Networks API, by family.

`ON_DEMAND` are operators that most users take as a part of themselves; they are written where one
does not.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from converter.formats.lite.normalization import scales_a_softmax
from converter.formats.nnapi.rules import (
    convolution,
    detection,
    elementwise,
    indexing,
    matmul,
    normalization,
    pooling,
    quantization,
    random,
    recurrent,
    reduction,
    resize,
    shape,
)
from converter.formats.nnapi.rules.weights import turns_weights
from converter.mapping.rules import Table

TABLE = Table(
    [
        *elementwise.RULES,
        *convolution.RULES,
        *pooling.RULES,
        *normalization.RULES,
        *reduction.RULES,
        *matmul.RULES,
        *shape.RULES,
        *indexing.RULES,
        *resize.RULES,
        *recurrent.RULES,
        *detection.RULES,
        *quantization.RULES,
        *random.RULES,
    ]
)
ON_DEMAND: dict[tuple[str, str], Callable[[ir.Node], bool]] = {
    ("", "DequantizeLinear"): lambda node: True,
    ("", "Mul"): scales_a_softmax,
    ("", "Transpose"): turns_weights,
}
