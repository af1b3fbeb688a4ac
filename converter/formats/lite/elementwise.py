"""Arithmetic, comparisons and activations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.lite.context import LiteLiftContext, LiteLowerContext
from converter.graph.infer import known
from converter.graph.value import array_type
from converter.mapping.fields import Field
from converter.mapping.rules import op, ops
from converter.record import record


@record
class Bounds(Field):
    """The bounds of a Clip, which the layer implies; the largest float means no bound."""

    low: float
    high: float
    inputs = (1, 2)

    def lift(self, r: LiteLiftContext) -> None:
        low = max(self.low, 0) if array_type(r.data).kind == "u" else self.low
        r.set_inputs(r.data, *(r.b.like(r.data, bound) for bound in (low, self.high)))

    def lower(self, w: LiteLowerContext) -> None:
        low, high = (number(w.optional(i)) for i in (1, 2))
        if not w.has(2) or (high is not None and high >= np.finfo(np.float32).max):
            high = np.inf
        if (low, high) != (self.low, self.high):
            raise no_match(f"the bounds must be {self.low:g} and {self.high:g}")


def number(value: ir.Value | None) -> float | None:
    """Return the one number of a constant."""
    array = known(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def broadcast_slope(r: LiteLiftContext) -> None:
    """Broadcast the data to the slope, where the slope is larger: ONNX broadcasts the slope only,
    both formats broadcast as NumPy does.
    """
    x, slope = r.inputs(2)
    if x is None or slope is None:
        raise MappingError(f"{r.layer.kind} needs data and a slope", "R105")
    larger = r.b.Add(x, slope)
    if larger.shape != x.shape:
        r.data = r.b.Expand(x, r.b.Shape(larger))


def alias_of_data(w: LiteLowerContext) -> None:
    """Return the data operand as the result, unless the result has another scale."""
    if w.quantized:
        raise no_match("only operators of constants are supported by this rule")
    w.alias(w.out, w.data)


FUNCTIONS = ops(
    "Abs=ABS Exp=EXP Floor=FLOOR Log=LOG Not=LOGICAL_NOT Sigmoid=LOGISTIC Neg=NEG Sin=SIN "
    "Sqrt=SQRT Tanh=TANH HardSwish=HARD_SWISH"
)
XOR = op("Xor", "NOT_EQUAL", lower_only=True, example_inputs="b:2,3 b:2,3")
INVERSE_ROOT = op("Reciprocal", "RSQRT", before_lift=lambda r: r.b.Sqrt(r.data), lift_only=True)
SLOPES = op("PRelu", "PRELU", before_lift=broadcast_slope)
