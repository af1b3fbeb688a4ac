"""Operations of Core AI and their counterparts in the graph, by family."""

from __future__ import annotations

from converter.formats.coreml.coreai.rules import (
    complex,
    composites,
    control_flow,
    elementwise,
    indexing,
    linear,
    quantization,
    reduction,
    resize,
    shape,
)
from converter.mapping.rules import Table

TABLE = Table(
    [
        *composites.RULES,
        *complex.RULES,
        *quantization.RULES,
        *elementwise.RULES,
        *linear.RULES,
        *reduction.RULES,
        *shape.RULES,
        *indexing.RULES,
        *resize.RULES,
        *control_flow.RULES,
    ]
)
