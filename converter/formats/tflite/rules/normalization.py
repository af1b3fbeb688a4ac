"""Softmax and normalisations, all over the last axis."""

from __future__ import annotations

import numpy as np

from converter.errors import MappingError
from converter.formats.tflite.rules.context import Reading, Writing
from converter.formats.tflite.rules.fields import FusedActivation, data
from converter.mapping.concepts.axes import FixedAxis
from converter.mapping.fields import Attr, Field, Guard
from converter.mapping.rules import op
from converter.passes.lite.fields import Neighbours

SMALLEST_NORM = 1e-6


class Beta(Field):
    """A factor in front of the operator."""

    keys = ("beta",)

    def lift(self, r: Reading) -> None:
        if (beta := r.attr("beta", float)) != 1:
            r.data = data(r) * beta

    def lower(self, w: Writing) -> None:
        w.layer.attrs["beta"] = 1.0


class Norm(Field):
    """The last axis, whose norm is at least 1e-6."""

    names = ("axes", "eps", "eps_mode")

    def lift(self, r: Reading) -> None:
        r.node.attrs |= {"axes": [-1], "eps": SMALLEST_NORM**2, "eps_mode": "max"}

    def lower(self, w: Writing) -> None:
        rank, eps, limit = w.rank(), w.attr("eps"), SMALLEST_NORM**2
        smaller = eps <= limit and w.attr("eps_mode") == "add"
        if [int(i) % rank for i in w.attr("axes")] != [rank - 1]:
            raise MappingError("it looks along the last axis")
        if not (smaller or np.isclose(eps, limit, rtol=1e-3, atol=0)):
            raise MappingError("the smallest norm is 1e-6 there")


RULES = [
    op("Softmax", "SOFTMAX", Beta(), FixedAxis(-1, signed=True)),
    op("LogSoftmax", "LOG_SOFTMAX", FixedAxis(-1, signed=True)),
    op("netconv::NormalizeL2", "L2_NORMALIZATION", Norm(), FusedActivation()),
    op(
        "LRN",
        "LOCAL_RESPONSE_NORMALIZATION",
        Guard("neighbours in images only", lambda w: w.rank() == 4),
        Neighbours(),
        Attr("beta", kind=float),
        Attr("bias", kind=float),
    ),
]
