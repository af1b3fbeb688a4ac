"""Arithmetic, comparisons and activations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.ops.args import DATA_TYPES, Args, lifts

UNARY = {
    "ABS": "Abs", "EXP": "Exp", "FLOOR": "Floor", "LOG": "Log", "LOGICAL_NOT": "Not", "LOGISTIC": "Sigmoid", "NEG": "Neg", "RELU": "Relu",
    "SIN": "Sin", "SQRT": "Sqrt", "TANH": "Tanh", "HARD_SWISH": "HardSwish",
}  # fmt: skip
BINARY = {
    "EQUAL": "Equal", "GREATER": "Greater", "GREATER_EQUAL": "GreaterOrEqual", "LESS": "Less", "LESS_EQUAL": "LessOrEqual",
    "LOGICAL_AND": "And", "LOGICAL_OR": "Or", "MAXIMUM": "Max", "MINIMUM": "Min",
}  # fmt: skip
ARITHMETIC = {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div"}


@lifts(*UNARY)
def unary(a: Args) -> ir.Value:
    return a.b.op(UNARY[a.name], a.real("input"))


@lifts(*BINARY)
def binary(a: Args) -> ir.Value:
    return a.b.op(BINARY[a.name], a.real("a"), a.real("b"))


@lifts(*ARITHMETIC)
def arithmetic(a: Args) -> ir.Value:
    x, y = a.real("a"), a.real("b")
    if a.name == "DIV" and x.dtype == ir.DataType.INT32:
        # integer division rounds towards minus infinity, ONNX's towards zero
        quotient, zero = a.b.op("Div", x, y), a.b.like(x, 0)
        inexact = a.b.op("Not", a.b.op("Equal", a.b.op("Mul", quotient, y), x))
        negative = a.b.op("Xor", a.b.op("Less", x, zero), a.b.op("Less", y, zero))
        return a.activated(a.b.op("Sub", quotient, a.b.op("Cast", a.b.op("And", inexact, negative), to=int(ir.DataType.INT32))))
    return a.activated(a.b.op(ARITHMETIC[a.name], x, y))


@lifts("NOT_EQUAL")
def not_equal(a: Args) -> ir.Value:
    return a.b.op("Not", a.b.op("Equal", a.real("a"), a.real("b")))


@lifts("RELU1", "RELU6")
def clipped(a: Args) -> ir.Value:
    x = a.real("input")
    low, high = (-1, 1) if a.name == "RELU1" else (0, 6)
    return a.b.op("Clip", x, a.b.like(x, low), a.b.like(x, high))


@lifts("RSQRT")
def rsqrt(a: Args) -> ir.Value:
    return a.b.op("Reciprocal", a.b.op("Sqrt", a.real("input")))


@lifts("POW")
def pow_(a: Args) -> ir.Value:
    return a.b.op("Pow", a.real("base"), a.real("exponent"))


@lifts("PRELU")
def prelu(a: Args) -> ir.Value:
    """The slope broadcasts as in NumPy, in both directions; ONNX's only from slope to input."""
    x, slope = a.real("input"), a.real("alpha")
    if a.b.op("Add", x, slope).shape == x.shape:
        return a.b.op("PRelu", x, slope)
    zero = a.b.like(x, 0)
    return a.b.op("Add", a.b.op("Max", x, zero), a.b.op("Mul", a.b.op("Min", x, zero), slope))


@lifts("ELU")
def elu(a: Args) -> ir.Value:
    return a.b.op("Elu", a.real("input"), alpha=a.number("alpha"))


@lifts("SELECT")
def select(a: Args) -> ir.Value:
    return a.b.op("Where", a.stored("mask"), a.real("a"), a.real("b"))


@lifts("QUANTIZE", "DEQUANTIZE")
def real(a: Args) -> ir.Value:
    """The driver quantises, or has dequantised already."""
    return a.b.op("Identity", a.real("input"))


@lifts("CAST", raw=True)
def cast(a: Args) -> ir.Value:
    """Between stored numbers: scale and zero point play no part; into 8 bits it saturates (NeuralNetworksTypes.h, CAST)."""
    x, wanted = a.stored("input"), DATA_TYPES[a.output().type]
    if wanted in (ir.DataType.UINT8, ir.DataType.INT8) and x.dtype not in (ir.DataType.BOOL, wanted):
        limits = np.iinfo(wanted.numpy())
        wide = x if x.dtype != ir.DataType.UINT8 else a.b.op("Cast", x, to=int(ir.DataType.INT32))
        x = a.b.op("Clip", wide, a.b.like(wide, limits.min), a.b.like(wide, limits.max))
    return a.b.op("Cast", x, to=int(wanted))
