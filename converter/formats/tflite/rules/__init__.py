"""Operators of TensorFlow Lite and their counterparts in the graph, by family."""

from __future__ import annotations

from converter.formats.tflite.rules.index import INDEX
from converter.mapping.rules import FamilyTable

FAMILIES = (
    "elementwise",
    "convolution",
    "pooling",
    "normalization",
    "reduction",
    "shape",
    "indexing",
    "segments",
    "lookups",
    "resize",
    "recurrent",
    "detection",
    "signal",
    "random",
    "mediapipe",
    "custom",
    "control_flow",
    "stablehlo",
    "quantization",
)
TABLE = FamilyTable(__name__, FAMILIES, INDEX)
