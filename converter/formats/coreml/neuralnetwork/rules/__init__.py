"""Canonical operators <-> layers of Core ML's neural networks, by family.

`since` is the specificationVersion from which on a layer exists; rows for layers of the lowest
version that is written (4) omit it. If two families write one operator, the first in the table is
tried first.

context        the view of a layer that converters have
fields         fields of this format alone
index          which family has the rows of an operator and of a layer
elementwise    arithmetic, activations, comparisons
convolution    convolutions
pooling        windows without weights
normalization normalization
reduction      sums, extremes and their indices, sorting
matmul         matrix products and attention
shape          reshaping, repeating, concatenating, filling
indexing       slices, gather, scatter
resize         resampling, cropping
recurrent      LSTM, GRU, RNN
detection      boxes
quantization quantized values
control_flow   branches and loops
random         random numbers
"""

from __future__ import annotations

from converter.formats.coreml.neuralnetwork.rules.index import INDEX
from converter.mapping.rules import FamilyTable

FAMILIES = (
    "matmul",  # before elementwise: a product and the bias after it are one layer
    "elementwise",
    "convolution",
    "pooling",
    "normalization",
    "reduction",
    "shape",
    "indexing",
    "resize",
    "recurrent",
    "detection",
    "quantization",
    "control_flow",
    "random",
)
TABLE = FamilyTable(__name__, FAMILIES, INDEX)
