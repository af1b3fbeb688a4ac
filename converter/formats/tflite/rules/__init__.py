"""Operators of TensorFlow Lite and their counterparts in the graph, by family."""

from __future__ import annotations

from converter.formats.tflite.rules import (
    control_flow,
    convolution,
    custom,
    detection,
    elementwise,
    indexing,
    lookups,
    mediapipe,
    normalization,
    pooling,
    quantization,
    random,
    recurrent,
    reduction,
    resize,
    segments,
    shape,
    signal,
)
from converter.mapping.rules import Table

TABLE = Table(
    [
        *elementwise.RULES,
        *convolution.RULES,
        *pooling.RULES,
        *normalization.RULES,
        *reduction.RULES,
        *shape.RULES,
        *indexing.RULES,
        *segments.RULES,
        *lookups.RULES,
        *resize.RULES,
        *recurrent.RULES,
        *detection.RULES,
        *signal.RULES,
        *random.RULES,
        *mediapipe.RULES,
        *custom.RULES,
        *control_flow.RULES,
        *quantization.RULES,
    ]
)
