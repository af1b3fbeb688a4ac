"""Softmax and normalizations, all over the last axis."""

from __future__ import annotations

from converter.formats.lite.normalization import Beta, Neighbors, Norm, SoftmaxAxis
from converter.formats.tflite.rules.fields import FusedActivation
from converter.mapping.fields import Guard, attrs
from converter.mapping.rules import op

RULES = [
    op("Softmax", "SOFTMAX", Beta(), SoftmaxAxis()),
    op("LogSoftmax", "LOG_SOFTMAX", SoftmaxAxis()),
    op("netconv::NormalizeL2", "L2_NORMALIZATION", Norm(), FusedActivation()),
    op(
        "LRN",
        "LOCAL_RESPONSE_NORMALIZATION",
        Guard("only data of rank 4 are supported", lambda w: w.rank() == 4),
        Neighbors(),
        *attrs(beta=float, bias=float),
    ),
]
