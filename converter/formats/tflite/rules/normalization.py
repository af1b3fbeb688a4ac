"""Softmax and normalisations, all over the last axis."""

from __future__ import annotations

from converter.formats.tflite.rules.fields import FusedActivation, data
from converter.mapping.context import Reading
from converter.mapping.fields import Attr, Field
from converter.mapping.rules import op

SMALLEST_NORM = 1e-6


class Beta(Field):
    """A factor in front of the operator."""

    keys = ("beta",)

    def lift(self, r: Reading) -> None:
        if (beta := r.attr("beta", float)) != 1:
            r.node.inputs[0] = data(r) * beta


class LastAxis(Field):
    names = ("axis",)

    def lift(self, r: Reading) -> None:
        r.node.attrs["axis"] = -1


class Neighbours(Field):
    """x / (bias + alpha * sum over `radius` neighbours on either side of x^2) ^ beta.

    ONNX divides alpha by the window.
    """

    names = ("size", "alpha")
    keys = ("radius", "alpha")

    def lift(self, r: Reading) -> None:
        size = 2 * r.attr("radius", int) + 1
        r.node.attrs |= {"size": size, "alpha": r.attr("alpha", float) * size}


class Norm(Field):
    """The last axis, whose norm is at least 1e-6."""

    names = ("axes", "eps", "eps_mode")

    def lift(self, r: Reading) -> None:
        r.node.attrs |= {"axes": [-1], "eps": SMALLEST_NORM**2, "eps_mode": "max"}


RULES = [
    op("Softmax", "SOFTMAX", Beta(), LastAxis()),
    op("LogSoftmax", "LOG_SOFTMAX", LastAxis()),
    op("netconv::NormalizeL2", "L2_NORMALIZATION", Norm(), FusedActivation()),
    op(
        "LRN",
        "LOCAL_RESPONSE_NORMALIZATION",
        Neighbours(),
        Attr("beta", kind=float),
        Attr("bias", kind=float),
    ),
]
