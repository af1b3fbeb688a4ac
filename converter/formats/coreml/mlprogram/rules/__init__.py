"""Operations of ML Programs and their counterparts in the graph, by family."""

from __future__ import annotations

from converter.formats.coreml.mlprogram.rules import (
    control_flow,
    convolution,
    detection,
    elementwise,
    indexing,
    normalization,
    quantization,
    random,
    recurrent,
    reduction,
    resize,
    shape,
)
from converter.mapping.rules import Table

TABLE = Table(
    [
        *convolution.RULES,  # a linear layer takes an Add
        *elementwise.RULES,
        *normalization.RULES,
        *reduction.RULES,
        *shape.RULES,
        *indexing.RULES,
        *resize.RULES,
        *recurrent.RULES,
        *detection.RULES,
        *random.RULES,
        *control_flow.RULES,
        *quantization.RULES,
    ]
)
