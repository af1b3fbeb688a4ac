"""Canonical operators <-> layers of IR v2 to v7, by family.

The ports of a layer declare its shapes, and take precedence over attributes and operands. Cases of
a layer that the engine does not support are refused by its row, or written with additional layers.

context.py        views of a layer that is read and of an operator that is written, for rows
control_flow.py   TensorIterator
convolution.py    convolutions and their transposes
detection.py      priors, proposals, detections, suppression, regions
elementwise.py    arithmetic, comparisons, logic, activations, types
fields.py         fields of this dialect alone
custom.py         layers of extensions
index.py          which family has the rows of an operator and of a layer
indexing.py       gather and scatter
matmul.py         products of matrices
normalization.py  normalizations and quantization
pooling.py        pooling
recurrent.py      layers along time: LSTM, GRU, RNN, decoding
reduction.py      reductions
resize.py         changing the size of images
shape.py          reshaping, transposing, slicing, concatenating, padding
windows.py        the sliding windows of convolutions and poolings
"""

from __future__ import annotations

from converter.formats.openvino.legacy.rules.index import INDEX
from converter.mapping.rules import FamilyTable

# the first that applies wins
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
    "control_flow",
    "custom",
)
TABLE = FamilyTable(__name__, FAMILIES, INDEX)
