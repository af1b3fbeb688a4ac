"""Decompositions of canonical operators into simpler canonical operators, by theme, for every
target.

No rewrite leads back to its own operator: activations end in Relu, Exp, Log and arithmetic,
reductions in ReduceSum and ReduceMax, movements of data in Reshape, Transpose, Slice and Concat.
"""

from __future__ import annotations

from converter.passes.decompositions import (
    activations,
    arithmetic,
    bitwise,
    classical,
    computed,
    einsum,
    fourier,
    indexing,
    linear,
    movement,
    normalization,
    quantization,
    random,
    recurrent,
    reductions,
    regions,
    resizing,
    sampling,
    scattering,
    sequences,
    windows,
)
from converter.passes.decompositions.table import merged

DECOMPOSITIONS = merged(
    activations.TABLE,
    arithmetic.TABLE,
    bitwise.TABLE,
    classical.TABLE,
    computed.TABLE,
    einsum.TABLE,
    fourier.TABLE,
    indexing.TABLE,
    linear.TABLE,
    movement.TABLE,
    normalization.TABLE,
    quantization.TABLE,
    random.TABLE,
    recurrent.TABLE,
    reductions.TABLE,
    regions.TABLE,
    resizing.TABLE,
    sampling.TABLE,
    scattering.TABLE,
    sequences.TABLE,
    windows.TABLE,
)
