"""Canonical operators <-> layers of IR v2 to v7, by family.

The ports of a layer declare its shapes, and they decide: what attributes and operands say of them
is read over. What the engine cannot do with a layer is refused by its row, or written as other
layers beside it.

context.py        what rows see of a layer that is read and of an operator that is written
control_flow.py   TensorIterator
convolution.py    convolutions and their transposes
detection.py      priors, proposals, detections, suppression, regions
elementwise.py    arithmetic, comparisons, logic, activations, types
fields.py         fields of this dialect alone
indexing.py       picking and placing elements by index
matmul.py         products of matrices
normalization.py  normalizations and quantization
pooling.py        pooling
recurrent.py      LSTM, GRU, RNN
reduction.py      reductions
resize.py         changing the size of images
sequence.py       layers along time
shape.py          reshaping, moving, cutting, joining, padding
windows.py        the sliding windows of convolutions and poolings
"""

from __future__ import annotations

from converter.formats.openvino.legacy.rules import (
    control_flow,
    convolution,
    detection,
    elementwise,
    indexing,
    matmul,
    normalization,
    pooling,
    recurrent,
    reduction,
    resize,
    sequence,
    shape,
)
from converter.mapping.rules import Table

TABLE = Table(
    [
        *elementwise.RULES,
        *convolution.RULES,
        *pooling.RULES,
        *normalization.RULES,
        *reduction.RULES,
        *matmul.RULES,
        *shape.RULES,
        *indexing.RULES,
        *resize.RULES,
        *recurrent.RULES,
        *detection.RULES,
        *control_flow.RULES,
        *sequence.RULES,
    ]
)
