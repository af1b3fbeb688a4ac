"""Arithmetic, comparisons and activations."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.ops.args import DATA_TYPES, Args, lifts
from converter.formats.nnapi.ops.emit import LAZY, Emit, Ref, activation_code, lowers, only_user
from converter.formats.nnapi.ops.ranges import CASTABLE, demand_a_byte
from converter.formats.nnapi.writing import BYTES, NARROW, parameters
from converter.graph import EXTENSION_DOMAIN
from converter.graph.infer import constant, evaluate, known
from converter.graph.sizes import demand_small
from converter.mapping.node import MappingError

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


@lowers(*(set(UNARY.values()) - {"Relu"}))
def lower_unary(e: Emit) -> None:
    kind = next(k for k, v in UNARY.items() if v == e.op)
    e.put(kind, e.result(), input=e.real(0))


@lifts(*BINARY)
def binary(a: Args) -> ir.Value:
    x, y = a.real("a"), a.real("b")
    if x.dtype == ir.DataType.BOOL and a.name not in ("EQUAL", "LOGICAL_AND", "LOGICAL_OR"):  # false comes before true
        x, y = (a.b.op("Cast", v, to=int(ir.DataType.INT32)) for v in (x, y))
    return a.b.op(BINARY[a.name], x, y)


@lowers(*BINARY.values())
def lower_binary(e: Emit) -> None:
    if len(e.node.inputs) != 2:
        raise MappingError(f"it has {len(e.node.inputs)} operands, not 2")
    kind = next(k for k, v in BINARY.items() if v == e.op)
    e.put(kind, e.result(), a=e.real(0), b=e.real(1))


@lowers("Xor")
def lower_xor(e: Emit) -> None:
    e.put("NOT_EQUAL", e.result(), a=e.stored(0), b=e.stored(1))


@lifts(*ARITHMETIC)
def arithmetic(a: Args) -> ir.Value:
    x, y = a.real("a"), a.real("b")
    if a.name == "DIV" and x.dtype == ir.DataType.INT32:
        return a.activated(a.b.ext("FloorDiv", x, y))
    return a.activated(a.b.op(ARITHMETIC[a.name], x, y))


@lowers("FloorDiv", domain=EXTENSION_DOMAIN)
def lower_floor_div(e: Emit) -> None:
    y = e.result(fuse=True)
    e.put("DIV", y, a=e.stored(0), b=e.stored(1), activation=e.activation)


@lowers(*ARITHMETIC.values())
def lower_arithmetic(e: Emit) -> None:
    kind = next(k for k, v in ARITHMETIC.items() if v == e.op)
    if e.op == "Div" and e.value(0).dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE):
        raise MappingError("integer division rounds towards minus infinity there, towards zero here")
    if e.op in ("Add", "Sub", "Mul") and e.value(0).dtype in BYTES:
        raise MappingError("numbers of 8 bits wrap around there and end at their bounds here")
    a, b = e.real(0), e.real(1)
    y = e.result(fuse=True)
    e.put(kind, y, a=a, b=b, activation=e.activation)


def scales_a_softmax(node: ir.Node) -> bool:
    """Whether a Mul is the factor of a Softmax, which has one of its own."""
    user = only_user(node.outputs[0])
    return user is not None and user.op_type in ("Softmax", "LogSoftmax") and user.domain == "" and factor_of(node) is not None


def factor_of(node: ir.Node | None) -> tuple[ir.Value, float] | None:
    """x and c of x * c with a positive scalar constant c."""
    if node is None or node.op_type != "Mul" or node.domain:
        return None
    x, c = node.inputs
    array = known(c)
    return None if x is None or array is None or array.size != 1 or not float(array.reshape(-1)[0]) > 0 else (x, float(array.reshape(-1)[0]))


LAZY["", "Mul"] = scales_a_softmax


@lifts("NOT_EQUAL")
def not_equal(a: Args) -> ir.Value:
    return a.b.op("Not", a.b.op("Equal", a.real("a"), a.real("b")))


@lifts("RELU1", "RELU6")
def clipped(a: Args) -> ir.Value:
    x = a.real("input")
    low, high = (-1, 1) if a.name == "RELU1" else (0, 6)
    return a.b.op("Clip", x, a.b.like(x, low), a.b.like(x, high))


@lowers("Relu", "Clip")
def lower_clip(e: Emit) -> None:
    if e.value(0).dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        clip_by_bounds(e)
        return
    code = activation_code(e.node)
    if not code:
        clip_by_bounds(e)
        return
    e.put({1: "RELU", 2: "RELU1", 3: "RELU6"}[code], e.result(), input=e.real(0))


def clip_by_bounds(e: Emit) -> None:
    """MAXIMUM and MINIMUM with constants."""
    bounds = [("MAXIMUM", 1), ("MINIMUM", 2)] if e.op == "Clip" else [("MAXIMUM", 0)]
    have = [(kind, e.stored(e.value(i)) if i else e.writer.operand(zero(e))) for kind, i in bounds if not i or e.has(i)]
    x, y = e.real(0), e.result()
    for kind, bound in have[:-1]:
        x = e.step(kind, e.shape(), x, a=x, b=bound)
    if not have:
        raise MappingError("it has no bounds")
    e.put(have[-1][0], y, a=x, b=have[-1][1])


def zero(e: Emit) -> ir.Value:
    dtype = e.value(0).dtype or ir.DataType.FLOAT
    return ir.Value(name="zero", type=ir.TensorType(dtype), shape=ir.Shape([]), const_value=ir.Tensor(np.array(0, dtype.numpy())))


@lifts("RSQRT")
def rsqrt(a: Args) -> ir.Value:
    return a.b.op("Reciprocal", a.b.op("Sqrt", a.real("input")))


@lifts("POW")
def pow_(a: Args) -> ir.Value:
    return a.b.op("Pow", a.real("base"), a.real("exponent"))


@lowers("Pow")
def lower_pow(e: Emit) -> None:
    e.put("POW", e.result(), base=e.real(0), exponent=e.real(1))


@lifts("PRELU")
def prelu(a: Args) -> ir.Value:
    """The slope broadcasts as in NumPy, in both directions; ONNX's only from slope to input."""
    x, slope = a.real("input"), a.real("alpha")
    if a.b.op("Add", x, slope).shape == x.shape:
        return a.b.op("PRelu", x, slope)
    zero = a.b.like(x, 0)
    return a.b.op("Add", a.b.op("Max", x, zero), a.b.op("Mul", a.b.op("Min", x, zero), slope))


@lowers("PRelu")
def lower_prelu(e: Emit) -> None:
    e.put("PRELU", e.result(), input=e.real(0), alpha=e.real(1))


@lifts("ELU")
def elu(a: Args) -> ir.Value:
    return a.b.op("Elu", a.real("input"), alpha=a.number("alpha"))


@lowers("Elu")
def lower_elu(e: Emit) -> None:
    e.put("ELU", e.result(), input=e.real(0), alpha=e.attrs["alpha"])


@lifts("SELECT")
def select(a: Args) -> ir.Value:
    return a.b.op("Where", a.stored("mask"), a.real("a"), a.real("b"))


@lowers("Where")
def lower_where(e: Emit) -> None:
    """All three have one shape there (NeuralNetworksTypes.h, SELECT)."""
    if any(e.shape(i) != e.out for i in range(3)):
        raise MappingError("its operands are broadcast")
    e.put("SELECT", e.result(), mask=e.stored(0), a=e.real(1), b=e.real(2))


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


@lowers("Cast")
def lower_cast(e: Emit) -> None:
    x, wanted = e.value(0), e.node.outputs[0]
    have, want = (NARROW.get(v.dtype or ir.DataType.FLOAT, v.dtype) for v in (x, wanted))
    if e.quantised:
        raise MappingError("a cast looks at stored numbers")
    if have == want:
        e.alias(wanted, x)
    elif want == ir.DataType.BOOL and have != ir.DataType.BOOL:
        e.put("NOT_EQUAL", e.result(), a=e.stored(x), b=e.writer.operand(zero(e)))
    elif have == ir.DataType.BOOL:
        cast_truth(e)
    elif have in CASTABLE and want in CASTABLE:
        demand_a_byte(x, have, want)
        source, y = e.stored(x), e.result()
        plain = e.operand(source).scale == 1 and e.operand(source).zero_point == 0
        e.put("DEQUANTIZE" if have == ir.DataType.UINT8 and plain and want == ir.DataType.FLOAT else "CAST", y, input=source)
    else:
        raise MappingError(f"there is no cast from {have and have.name} to {want and want.name}")


def cast_truth(e: Emit) -> None:
    """1 where true, 0 where false."""
    mask, y = e.stored(0), e.result()
    kind = e.operand(y).type
    if kind.dtype is None:
        raise MappingError("there is no such cast")
    demand_small(*e.operand(y).dimensions)
    like: dict[str, Any] = {"scale": e.operand(y).scale, "zero_point": e.operand(y).zero_point}
    one, none = (e.writer.tensor(np.full(e.operand(y).dimensions, v, kind.dtype), kind, **like) for v in (1, 0))
    e.put("SELECT", y, mask=mask, a=one, b=none)


@lowers("Identity")
def lower_identity(e: Emit) -> None:
    if e.quantised:
        raise MappingError("nothing to compute")
    e.alias(e.node.outputs[0], e.value(0))


LAZY["", "DequantizeLinear"] = lambda node: True


@lowers("DequantizeLinear")
def lower_dequantise(e: Emit) -> None:
    """Where integers are needed as real numbers."""
    x, y = e.value(0), e.node.outputs[0]
    if (array := constant_result(e.node)) is not None:
        e.constant_alias(y, array)
        return
    found = parameters(e.node)
    if found is None or found[0].size != 1:
        raise MappingError("scale and zero point must be constant, and one for all")
    source = e.stored(x)
    if x.dtype == ir.DataType.INT32:
        result = e.result()
        real = e.step("CAST", e.operand(source).dimensions, result, input=source)
        e.put("MUL", result, a=real, b=e.number(found[0].reshape(1), real), activation=0)
        return
    if quantisation_of(e, source) != (np.float32(found[0].reshape(-1)[0]), int(found[1].reshape(-1)[0])):
        raise MappingError("the integers are read with several scales")
    e.put("DEQUANTIZE", e.result(), input=source)


@lowers("QuantizeLinear")
def lower_quantise(e: Emit) -> None:
    found = parameters(e.node)
    if found is None or found[0].size != 1:
        raise MappingError("scale and zero point must be constant, and one for all")
    if e.quantised:
        raise MappingError("nothing to compute")
    if (array := constant_result(e.node)) is not None:
        e.constant_alias(e.node.outputs[0], array)
        return
    e.put("QUANTIZE", e.result(), input=e.stored(0))


def constant_result(node: ir.Node) -> np.ndarray | None:
    arrays = [constant(v) for v in node.inputs]
    if any(v is not None and a is None for v, a in zip(node.inputs, arrays, strict=True)):
        return None
    found = evaluate(node, arrays)
    return found[0] if found else None


def quantisation_of(e: Emit, ref: Ref) -> tuple[np.float32, int]:
    return np.float32(e.operand(ref).scale), e.operand(ref).zero_point
