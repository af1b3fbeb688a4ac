"""Conditions and fields of rows of several families."""

from __future__ import annotations

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.context import LiteLiftContext, LiteLowerContext
from converter.graph.activations import ACTIVATIONS
from converter.mapping.codecs import enum
from converter.mapping.fields import Field, Guard
from converter.record import record

# names of activations <-> codes; those from Tanh on are of recurrent layers
CODES = enum({"": 0, "Relu": 1, "Relu1": 2, "Relu6": 3, "Tanh": 4, "Sigmoid": 6})


def is_real(dtype: ir.DataType | None) -> bool:
    """Return whether a type is known and a floating-point type."""
    return dtype is not None and dtype.is_floating_point()


def is_integer_type(dtype: ir.DataType | None) -> bool:
    """Return whether a type is known and an integer type."""
    return dtype is not None and dtype.is_integer()


REALS = Guard(
    "only floating-point data are supported",
    lambda w: is_real(w.data.dtype),
    lambda r: is_real(r.data.dtype),
)
WHOLE = Guard(
    "only integers are supported",
    lambda w: is_integer_type(w.data.dtype),
    lambda r: is_integer_type(r.data.dtype),
)


class Ordered(Field):
    """Compare booleans, with false less than true; ONNX does not compare them."""

    def lift(self, r: LiteLiftContext) -> None:
        for i, v in enumerate(r.node.inputs):
            if v is not None and v.dtype == ir.DataType.BOOL:
                r.node.inputs[i] = r.cast(v, ir.DataType.INT32)


@record
class FusedActivation(Field):
    """The code of an activation <-> a Relu, Clip or Tanh after the operator."""

    key: str

    def __post_init__(self) -> None:
        self.keys = (self.key,)

    def lift(self, r: LiteLiftContext) -> None:
        name = r.attr(self.key, CODES, "")
        if name in ("Tanh", "Sigmoid"):
            raise MappingError(
                f"{self.key}={name} is not supported: no engine applies it here", "R110"
            )
        if name:
            r.after_first(lambda y: ACTIVATIONS[name](r.b, y))

    def lower(self, w: LiteLowerContext) -> None:
        w.layer.attrs[self.key] = CODES.lower(w.activation())
