"""Rows of elementwise layers: one operand, two operands, activations."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.zhouyi.ops.fields import method, number, truth, word
from converter.formats.zhouyi.values import DType
from converter.graph.infer import shape_of
from converter.mapping.fields import Attr, Const, Fixed, Guard, Ignore
from converter.mapping.node import Node
from converter.mapping.table import op, ops

_UNSIGNED = {ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64}


def same_shapes(near: Node) -> bool:
    return len({shape_of(v) for v in near.inputs if v is not None}) == 1 and None not in {shape_of(v) for v in near.inputs if v is not None}


def _is_float(near: Node) -> bool:
    x = near.input(0)
    return x is None or x.dtype is None or not x.dtype.is_integer()


SLOPE_TYPE = Fixed("negative_slope_type", DType.FLOAT32, absent=True)
EQUAL = Guard("operands of unequal shapes have no counterpart", lower_if=same_shapes)
FLOATS = Guard("integers have no counterpart", lower_if=_is_float)
UNSIGNED = Guard("bits of signed integers have no counterpart", lower_if=lambda near: (x := near.input(0)) is not None and x.dtype in _UNSIGNED)
TWO = Guard("the layer takes two operands", lower_if=lambda near: len(near.inputs) == 2)

UNARY = ops(
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cosh Cos=Cosine Erf Exp Floor Log Neg=Negative Reciprocal Round Sign Sin=Sine Sinh Sqrt Tan",
    given="2,3",
)
PREDICATES = [
    *ops("IsNaN", given="2,3"),
    op("IsInf", "IsInf", Attr("detect_negative", "detect_negative", truth, far_default=1), Attr("detect_positive", "detect_positive", truth, far_default=1)),
    op("Softplus", "BNLL", lift_only=True),
]
ACTIVATIONS = [
    *[op(near, "Activation", method(name), given="2,3") for near, name in (
        ("Relu", "RELU"), ("Sigmoid", "SIGMOID"), ("Tanh", "TANH"), ("Softplus", "SOFTPLUS"), ("Softsign", "SOFTSIGN"), ("Mish", "MISH"),
        ("HardSwish", "HARDSWISH"),
    )],
    op("Elu", "Activation", method("ELU"), Attr("alpha", "alpha", number, far_default=1.0), given="2,3"),
    op("Celu", "Activation", method("CELU"), Attr("alpha", "alpha", number, far_default=1.0), given="2,3"),
    op("ThresholdedRelu", "Activation", method("THRESHOLDEDRELU"), Attr("alpha", "alpha", number, far_default=1.0), given="2,3"),
    op("Selu", "Activation", method("SELU"), Attr("alpha", "alpha", number), Attr("gamma", "gamma", number), given="2,3"),
    op("Shrink", "Activation", method("SHRINK"), Attr("bias", "bias", number, far_default=0.0), Attr("lambd", "lambd", number, far_default=0.5), given="2,3"),
    op("Gelu", "Activation", method("GELU"), word("approximate", "approximate", {"none": "NONE", "tanh": "TANH"}, far_default="none"), given="2,3"),
    op(
        "HardSigmoid", "Activation", method("HARDSIGMOID"), Attr("alpha", "alpha", number), Attr("beta", "beta", number),
        Fixed("clip_min", 0.0, absent=True), Fixed("clip_max", 1.0, absent=True), given="2,3",
    ),
    op(
        "Clip", "Activation", method("CLIP"), Const(1, "clip_min", number, dtype=None, default=float("-inf")),
        Const(2, "clip_max", number, dtype=None, default=float("inf")), FLOATS, given="2,3 = =",
    ),
    op("LeakyRelu", "Activation", method("LEAKYRELU"), Attr("alpha", "negative_slope_value", number), SLOPE_TYPE, given="2,3"),
]  # fmt: skip
BINARY = [
    op("Add", "Eltwise", method("ADD"), TWO, EQUAL, given="2,3 2,3"),
    op("Sub", "Eltwise", method("SUB"), TWO, EQUAL, given="2,3 2,3"),
    op("Mul", "Eltwise", method("MUL"), TWO, EQUAL, given="2,3 2,3"),
    op("Max", "Eltwise", method("MAX"), TWO, EQUAL, given="2,3 2,3"),
    op("Min", "Eltwise", method("MIN"), TWO, EQUAL, given="2,3 2,3"),
    *[op(name, name, Fixed("method", name.upper(), absent=True), lift_only=True) for name in ("Add", "Sub", "Mul")],
    *ops("Add Sub Mul", given="2,3 3"),
    op("Div", "Div", Ignore(("mode",)), FLOATS, given="2,3 2,3"),
    *ops("Pow", given="2,3 2,3"),
    op("Mod", "Mod", Attr("fmod", "fmod", truth), given="2,3 2,3"),
    op("BitShift", "BitShift", Attr("direction", "direction"), UNSIGNED),
    op("BitwiseAnd", "Bitwise", method("AND")),
    op("BitwiseOr", "Bitwise", method("OR")),
    op("BitwiseXor", "Bitwise", method("XOR")),
    op("BitwiseNot", "Bitwise", method("NOT")),
    op("PRelu", "Activation", method("PRELU"), lift_only=True),
]  # fmt: skip


ROWS = [*UNARY, *PREDICATES, *ACTIVATIONS, *BINARY]
