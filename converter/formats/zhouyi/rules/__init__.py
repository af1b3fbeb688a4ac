"""Canonical operators <-> layer types of Zhouyi Compass IR, by family.

All data are channels-last. Layers are read as the vendor's executor computes them; what is
written is what its tools write.

context        what converters see of a layer
fields         fields of this format alone
elementwise    arithmetic, activations, comparisons
convolution    convolutions
pooling        windows without weights
normalization  normalisation
reduction      sums, extremes and their places, sorting
matmul         matrix products and attention
shape          data moved, repeated, joined, filled
indexing       slices, look-ups, scattering
resize         resampling, cropping
recurrent      LSTM, GRU, RNN
detection      boxes
quantization   stored integers
control_flow   branches and loops
"""

from __future__ import annotations

from converter.formats.zhouyi.rules import (
    control_flow,
    convolution,
    detection,
    elementwise,
    indexing,
    matmul,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resize,
    shape,
)
from converter.mapping.rules import Table

FAMILIES = (
    elementwise,
    convolution,
    pooling,
    normalization,
    reduction,
    matmul,
    shape,
    indexing,
    resize,
    recurrent,
    detection,
    quantization,
    control_flow,
)
TABLE = Table([rule for family in FAMILIES for rule in family.RULES])
