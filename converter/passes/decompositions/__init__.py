"""Canonical operators written with simpler canonical operators, by theme. Importing this package enters all of them.

No rewrite leads back to its own operator: activations end in Relu, Exp, Log and arithmetic, reductions in ReduceSum and
ReduceMax, movements of data in Reshape, Transpose, Slice and Concat.
"""

from __future__ import annotations

from converter.passes.decompositions import (
    activations,
    bitwise,
    classical,
    computed,
    einsum,
    fourier,
    indexing,
    linear,
    movement,
    normalisation,
    quantisation,
    recurrent,
    reductions,
    resizing,
    sampling,
    scattering,
    sequences,
    windows,
)

__all__ = [
    "activations",
    "bitwise",
    "classical",
    "computed",
    "einsum",
    "fourier",
    "indexing",
    "linear",
    "movement",
    "normalisation",
    "quantisation",
    "recurrent",
    "reductions",
    "resizing",
    "sampling",
    "scattering",
    "sequences",
    "windows",
]
