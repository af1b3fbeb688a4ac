"""Softmax and normalizations, all over the last axis."""

from __future__ import annotations

from converter.errors import MappingError
from converter.formats.lite.normalization import Beta, Neighbors, Norm
from converter.formats.tflite.rules.context import Reading, Writing
from converter.formats.tflite.rules.fields import FusedActivation, axis_of
from converter.mapping.fields import Field, Guard, attrs
from converter.mapping.rules import op


class LastAxis(Field):
    names = ("axis",)

    def lift(self, r: Reading) -> None:
        r.set(axis=-1)

    def lower(self, w: Writing) -> None:
        if axis_of(w, default=-1) != w.rank() - 1:
            raise MappingError("it looks along the last axis")


RULES = [
    op("Softmax", "SOFTMAX", Beta(), LastAxis()),
    op("LogSoftmax", "LOG_SOFTMAX", LastAxis()),
    op("netconv::NormalizeL2", "L2_NORMALIZATION", Norm(), FusedActivation()),
    op(
        "LRN",
        "LOCAL_RESPONSE_NORMALIZATION",
        Guard("neighbors are those of four axes", lambda w: w.rank() == 4),
        Neighbors(),
        *attrs(beta=float, bias=float),
    ),
]
