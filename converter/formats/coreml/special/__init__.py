"""Pairs that no row can say, by theme; lift and lower side by side. `LIFT` and `LOWER` are filled by importing the themes."""

from __future__ import annotations

from converter.formats.coreml.special import (
    arithmetic,
    convolution,
    detection,
    distribution,
    indexing,
    matrix,
    normalisation,
    padding,
    pooling,
    recurrent,
    reduction,
    resampling,
    shaping,
    slicing,
)
from converter.formats.coreml.special.registry import LIFT, LOWER

__all__ = [
    "LIFT",
    "LOWER",
    "arithmetic",
    "convolution",
    "detection",
    "distribution",
    "indexing",
    "matrix",
    "normalisation",
    "padding",
    "pooling",
    "recurrent",
    "reduction",
    "resampling",
    "shaping",
    "slicing",
]
