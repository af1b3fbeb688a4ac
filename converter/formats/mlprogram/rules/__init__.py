"""Operations of ML Programs and what they mean in the graph, by family."""

from __future__ import annotations

from converter.formats.mlprogram.rules import (
    control,
    convolution,
    elementwise,
    indexing,
    normalization,
    reduction,
    shape,
)
from converter.mapping.rules import Table

TABLE = Table(
    [
        *elementwise.RULES,
        *convolution.RULES,
        *normalization.RULES,
        *reduction.RULES,
        *shape.RULES,
        *indexing.RULES,
        *control.RULES,
    ]
)
