"""Canonical operators <-> layer types of Zhouyi Compass IR, by family.

All data are channels-last. Layers are read as the vendor's executor computes them, and written as
its tools write them.

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
"""

from __future__ import annotations

from converter.formats.zhouyi.rules.index import INDEX
from converter.mapping.rules import FamilyTable

FAMILIES = (
    "elementwise",
    "convolution",
    "pooling",
    "normalization",
    "reduction",
    "matmul",
    "shape",
    "indexing",
    "resize",
    "recurrent",
    "detection",
    "quantization",
    "control_flow",
)
TABLE = FamilyTable(__name__, FAMILIES, INDEX)
