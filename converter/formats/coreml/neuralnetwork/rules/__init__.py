"""Canonical operators <-> layers of Core ML's neural networks, by family.

`since` is the specificationVersion from which on a layer exists; rows for layers that the least
version that is written (4) has do not say it. Where two families write one operator the first in
the table is asked first.

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
random         random numbers
"""

from __future__ import annotations

from converter.formats.coreml.neuralnetwork.rules import (
    control_flow,
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
from converter.mapping.rules import Table

FAMILIES = (
    matmul,  # before elementwise: a product and the bias behind it are one layer
    elementwise,
    convolution,
    pooling,
    normalization,
    reduction,
    shape,
    indexing,
    resize,
    recurrent,
    detection,
    quantization,
    control_flow,
    random,
)
TABLE = Table([rule for family in FAMILIES for rule in family.RULES])
