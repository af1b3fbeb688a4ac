"""Canonical operators <-> operations of opset1 to opset17, by family.

`since`/`until` are opset numbers: a row holds for layers whose `version` lies between them; writing
uses the row that the newest opset allows. Inputs that are constants in ONNX (axes, shapes, ...) are
inputs in the opsets too.

context.py        views of a layer that is read and of an operator that is written, for rows
control_flow.py   If, Loop, TensorIterator, states
convolution.py    convolutions and their transposes
detection.py      priors, proposals, detections, suppression, regions
elementwise.py    arithmetic, comparisons, logic, bits, activations, types
fields.py         fields of this dialect alone
fused.py          operations that OpenVINO's own passes fuse
index.py          which family has the rows of an operator and of a layer
indexing.py       gather and scatter
matmul.py         products of matrices, attention
normalization.py  normalizations
pooling.py        pooling
quantization.py   FakeQuantize and quantized constants
random.py         random numbers
recurrent.py      LSTM, GRU, RNN
reduction.py      reductions, sorting, counting
custom.py         layers of extensions
resize.py         resizing and color conversion of images
sequence.py       decoding of sequences and their losses, embeddings
shape.py          reshaping, transposing, slicing, concatenating, padding
signal.py         Fourier transforms
"""

from __future__ import annotations

from converter.formats.openvino.opset.rules.index import INDEX
from converter.mapping.rules import FamilyTable

# the first that applies wins
FAMILIES = (
    "quantization",
    "elementwise",
    "convolution",
    "pooling",
    "reduction",
    "shape",
    "indexing",
    "normalization",
    "detection",
    "matmul",
    "sequence",
    "resize",
    "signal",
    "random",
    "recurrent",
    "control_flow",
    "fused",
    "custom",
)
TABLE = FamilyTable(__name__, FAMILIES, INDEX)
