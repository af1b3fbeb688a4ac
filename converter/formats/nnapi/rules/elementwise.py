"""Arithmetic, comparisons and activations."""

from __future__ import annotations

import onnx_ir as ir

from converter.errors import MappingError, not_meant
from converter.formats.nnapi.collector import BYTES
from converter.formats.nnapi.rules.context import Reading, Writing, activation_code
from converter.formats.nnapi.rules.fields import (
    FLOATS,
    TWO,
    FusedActivation,
    of_types,
)
from converter.graph.record import record
from converter.mapping.fields import Attr, Field, Guard
from converter.mapping.rules import Custom, Rule, custom, op, ops

REALS = of_types("real numbers", lambda dtype: dtype in FLOATS)
WHOLE = of_types("whole numbers", lambda dtype: dtype is not None and dtype.is_integer())
BOUNDED = Guard(
    "numbers of 8 bits wrap around there and end at their bounds here",
    lambda w: w.data.dtype not in BYTES,
)


class Ordered(Field):
    """Of booleans false comes before true, which ONNX does not compare."""

    def lift(self, r: Reading) -> None:
        for i, v in enumerate(r.node.inputs):
            if v is not None and v.dtype == ir.DataType.BOOL:
                r.node.inputs[i] = r.cast(v, ir.DataType.INT32)


@record
class Bounds(Field):
    """Bounds of a Clip <-> those of an activation with this code."""

    code: int
    inputs = (1, 2)

    def lift(self, r: Reading) -> None:
        bounds = {2: (-1, 1), 3: (0, 6)}[self.code]
        r.set_inputs(r.data, *(r.b.like(r.data, bound) for bound in bounds))

    def lower(self, w: Writing) -> None:
        if activation_code(w.source) != self.code:
            raise MappingError("bounds other than 0, -1..1 and 0..6 are no activation")


def broadcast_slope(r: Reading) -> None:
    """The slope broadcasts as in NumPy, in both directions; ONNX's only from slope to input."""
    larger = r.b.Add(*r.inputs(2))
    if larger.shape != r.data.shape:
        r.data = r.b.Expand(r.data, r.b.Shape(larger))


def one_shape(w: Writing) -> bool:
    """All three have one shape there (NeuralNetworksTypes.h, SELECT)."""
    return all(w.static(i) == tuple(w.out.shape or ()) for i in range(3))


def same_operand(t: Writing) -> None:
    if t.quantised:
        raise not_meant("nothing to compute")
    t.alias(t.node.outputs[0], t.data)


RULES: list[Rule | Custom] = [
    *ops(
        "Abs=ABS Exp=EXP Floor=FLOOR Log=LOG Not=LOGICAL_NOT Sigmoid=LOGISTIC Neg=NEG Sin=SIN "
        "Sqrt=SQRT Tanh=TANH HardSwish=HARD_SWISH"
    ),
    *ops("Equal=EQUAL And=LOGICAL_AND Or=LOGICAL_OR", TWO),
    *ops(
        "Greater=GREATER GreaterOrEqual=GREATER_EQUAL Less=LESS LessOrEqual=LESS_EQUAL "
        "Max=MAXIMUM Min=MINIMUM",
        TWO,
        Ordered(),
    ),
    op("Xor", "NOT_EQUAL", lower_only=True),
    op("Equal", "NOT_EQUAL", after_lift=lambda r, y: ~y, lift_only=True),
    *ops("Add=ADD Sub=SUB Mul=MUL", BOUNDED, FusedActivation()),
    op("Div", "DIV", REALS, FusedActivation()),
    op("netconv::FloorDiv", "DIV", WHOLE, FusedActivation(), given="i32:2,3 i32:2,3"),
    op("Relu", "RELU", REALS),
    op("Clip", "RELU", REALS, Bounds(1), lower_only=True, given="2,3 =[0]"),
    op("Clip", "RELU1", REALS, Bounds(2), given="2,3 =[-1] =[1]"),
    op("Clip", "RELU6", REALS, Bounds(3), given="2,3 =[0] =[6]"),
    op("Reciprocal", "RSQRT", before_lift=lambda r: r.b.Sqrt(r.data), lift_only=True),
    op("Pow", "POW"),
    op("PRelu", "PRELU", before_lift=broadcast_slope),
    op("Elu", "ELU", Attr("alpha", kind=float)),
    op("Where", "SELECT", Guard("its operands are broadcast", one_shape)),
    custom("Identity", "", lower=same_operand),
]
