"""Arithmetic, comparisons and activations."""

from __future__ import annotations

import numpy as np

from converter.formats.lite.elementwise import (
    FUNCTIONS,
    INVERSE_ROOT,
    SLOPES,
    XOR,
    Bounds,
    alias_of_data,
)
from converter.formats.lite.fields import REALS, WHOLE, Ordered
from converter.formats.nnapi.collector import BYTES
from converter.formats.nnapi.rules.context import LowerContext
from converter.formats.nnapi.rules.fields import FusedActivation
from converter.mapping.fields import TWO, Attr, Guard
from converter.mapping.rules import Custom, Rule, custom, op, ops

BOUNDED = Guard(
    "8-bit integers are not supported: NNAPI saturates on overflow, ONNX wraps around",
    lambda w: w.data.dtype not in BYTES,
)


def one_shape(w: LowerContext) -> bool:
    """Expand the operands to one shape, which SELECT requires (NeuralNetworksTypes.h, SELECT)."""
    return all(w.static(i) == tuple(w.out.shape or ()) for i in range(3))


RULES: list[Rule | Custom] = [
    *FUNCTIONS,
    *ops("Equal=EQUAL And=LOGICAL_AND Or=LOGICAL_OR", TWO),
    *ops(
        "Greater=GREATER GreaterOrEqual=GREATER_EQUAL Less=LESS LessOrEqual=LESS_EQUAL "
        "Max=MAXIMUM Min=MINIMUM",
        TWO,
        Ordered(),
    ),
    XOR,
    op("Equal", "NOT_EQUAL", after_lift=lambda r, y: ~y, lift_only=True),
    *ops("Add=ADD Sub=SUB Mul=MUL", BOUNDED, FusedActivation()),
    op("Div", "DIV", REALS, FusedActivation()),
    op("netconv::FloorDiv", "DIV", WHOLE, FusedActivation(), example_inputs="i32:2,3 i32:2,3"),
    op("Relu", "RELU", REALS),
    op("Clip", "RELU", REALS, Bounds(0, np.inf), lower_only=True, example_inputs="2,3 =[0]"),
    op("Clip", "RELU1", REALS, Bounds(-1, 1), example_inputs="2,3 =[-1] =[1]"),
    op("Clip", "RELU6", REALS, Bounds(0, 6), example_inputs="2,3 =[0] =[6]"),
    INVERSE_ROOT,
    op("Pow", "POW"),
    SLOPES,
    op("Elu", "ELU", Attr("alpha", kind=float)),
    op("Where", "SELECT", Guard("the operands must not need broadcasting", one_shape)),
    custom("Identity", "", lower=alias_of_data),
]
