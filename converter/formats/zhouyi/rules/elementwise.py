"""Element-wise layers: one operand, two operands, activations, booleans, casts."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.zhouyi.rules.context import LiftContext
from converter.formats.zhouyi.rules.fields import (
    EQUAL,
    FLOATS,
    FRACTIONS,
    INTEGERS,
    booleans,
    constant_of,
    flat,
    is_number,
    is_signed,
    method,
    word,
    words,
)
from converter.formats.zhouyi.types import NARROW, dtype_name, ir_dtype
from converter.formats.zhouyi.values import DType
from converter.graph.sizes import demand_small
from converter.graph.value import Value
from converter.mapping.codecs import enum
from converter.mapping.context import LowerContext
from converter.mapping.fields import (
    TWO,
    Attr,
    Const,
    Detail,
    Field,
    Guard,
    ImpliedAttrs,
    RequireAttr,
    RequireInput,
    RequireKey,
    Weight,
    attrs,
    ignore,
)
from converter.mapping.rules import custom, op, ops

T = ir.DataType
_UNSIGNED = {T.UINT8, T.UINT16, T.UINT32, T.UINT64}

# one operand -------------------------------------------------------------------------------------


def truncated(r: LiftContext, sign: ir.Value) -> ir.Value:
    """Multiply the sign by the magnitude rounded down."""
    return sign * r.b.Floor(r.b.Abs(r.input(0)))


def root(r: LiftContext) -> Value:
    """Return the square root of the data."""
    return r.b.Sqrt(r.data)


def twice(r: LiftContext) -> None:
    """Use the data as both operands."""
    r.node.inputs = [r.data, r.data]


UNARY = [
    *ops(
        "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cosh Cos=Cosine Erf Exp Floor Log Neg=Negative "
        "Reciprocal Round Sign Sin=Sine Sinh Sqrt Tan IsNaN",
        example_inputs="2,3",
    ),
    op("IsInf", "IsInf", *attrs(detect_negative=True, detect_positive=True)),
    op("Softplus", "BNLL", lift_only=True),
    op("Reciprocal", "Rsqrt", before_lift=root, lift_only=True),
    op("Mul", "Square", before_lift=twice, lift_only=True),
    op("Identity", "Trunc", INTEGERS, lift_only=True, example_inputs="i32:2,3"),
    op("Sign", "Trunc", FRACTIONS, after_lift=truncated, lift_only=True),
]

# activations -------------------------------------------------------------------------------------


def multiply_alpha(r: LiftContext) -> None:
    """Compute x * sigmoid(alpha * x); the operator is the Sigmoid."""
    r.data = r.data * r.attr("alpha", float, 1.0)


def read_slope(r: LiftContext) -> None:
    """A constant slope <-> `negative_slope`, which broadcasts to the data: one number for each
    element of the last axis, else with all axes of the data. The vendor's parser stores it in the
    shape of the data, with 1 for the batch; the document, executor and quantizer take both.
    """
    slope, rank = r.blob("negative_slope"), len(r.shape)
    more = max(0, slope.ndim - rank)  # a leading 1 too many
    slope = slope.reshape(slope.shape[more:])
    r.node.set_input(1, r.weights("negative_slope", slope))


def write_slope(w: LowerContext) -> None:
    """Write the slopes in the rank of the data, or as a vector if there is one for each channel."""
    slope, shape = constant_of(w, 1, "the slope"), w.static()
    slope = slope.reshape((1,) * (len(shape) - slope.ndim) + slope.shape)
    if slope.size == slope.shape[-1] == shape[-1]:
        slope = slope.reshape(-1)
    w.layer.blobs["negative_slope"] = slope


SLOPE = Detail(read=read_slope, write=write_slope, blobs=("negative_slope",), inputs=(1,))


def times_operand(r: LiftContext, y: ir.Value) -> ir.Value:
    """Multiply the result by the operand."""
    return r.b.Mul(r.input(0), y)


def both_signs(r: LiftContext) -> None:
    """Set the operands to the positive part and to the magnitude of the negative part."""
    b, x = r.b, r.input(0)
    r.node.inputs = [b.Relu(x), b.Relu(-x)]


ALPHA = Attr("alpha", kind=float, default=1.0)
ACTIVATIONS = [
    *(
        op(name, "Activation", method(name.upper()), example_inputs="2,3")
        for name in ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "Mish", "HardSwish")
    ),
    *(
        op(name, "Activation", method(name.upper()), ALPHA, example_inputs="2,3")
        for name in ("Elu", "Celu", "ThresholdedRelu")
    ),
    op("Selu", "Activation", method("SELU"), *attrs(alpha=float, gamma=float)),
    op("Shrink", "Activation", method("SHRINK"), *attrs(bias=0.0, lambd=0.5)),
    op(
        "Gelu",
        "Activation",
        method("GELU"),
        word("approximate", "approximate", words("none tanh"), default="none"),
        example_inputs="2,3",
    ),
    op(
        "HardSigmoid",
        "Activation",
        method("HARDSIGMOID"),
        *attrs(alpha=float, beta=float),
        RequireKey("clip_min", 0.0, absent=True),
        RequireKey("clip_max", 1.0, absent=True),
        example_inputs="2,3",
    ),
    op(
        "LeakyRelu",
        "Activation",
        method("LEAKYRELU"),
        Attr("alpha", "negative_slope_value", float),
        RequireKey("negative_slope_type", DType.FLOAT32, absent=True),
        example_inputs="2,3",
    ),
    op(
        "Clip",
        "Activation",
        method("RELU6"),
        FLOATS,
        RequireInput(1, 0.0),
        RequireInput(2, 6.0),
        example_inputs="2,3 =(0) =(6)",
    ),
    op(
        "Clip",
        "Activation",
        method("CLIP"),
        FLOATS,
        Const(1, "clip_min", float, None, node_default=-np.inf, default=-np.inf),
        Const(2, "clip_max", float, None, node_default=np.inf, default=np.inf),
        example_inputs="2,3 = =",
    ),
    op("PRelu", "Activation", method("PRELU"), SLOPE, example_inputs="2,3 =1,3"),
    op("Sigmoid", "Activation", method("SILU"), after_lift=times_operand, lift_only=True),
    op(
        "Sigmoid",
        "Activation",
        method("SWISH"),
        Detail(read=multiply_alpha, keys=("alpha",)),
        after_lift=times_operand,
        lift_only=True,
    ),
    op(
        "Concat",
        "Activation",
        method("CRELU"),
        Attr("axis", kind=int, default=-1),
        before_lift=both_signs,
        lift_only=True,
    ),
]

# two operands ------------------------------------------------------------------------------------


def floor_rest(r: LiftContext, rest: Value) -> ir.Value:
    """Return the remainder with the sign of the divisor, of that with the sign of the dividend.

    So the vendor's tools compute it (section 4.3 names the dividend for both values of `fmod`).
    """
    b, y = r.b, r.input(1)
    other_sign = (rest < 0) ^ (y < 0)
    inexact = ~b.Equal(rest, 0)
    return b.Where(inexact & other_sign, rest + y, rest)


def _fits_mod(r: LiftContext) -> bool:
    return bool(r.attr("fmod", bool, 0)) or not is_number(r)


def shifted(r: LiftContext) -> tuple[Value, Value]:
    """Return the number with at least 32 bits, and the power of two by which it is shifted."""
    wide = T.INT64 if r.input(0).dtype == T.INT64 else T.INT32
    x, by = (r.b.Cast(r.input(i), to=wide) for i in (0, 1))
    return x, r.b.like(x, 2) ** by


def shift_left(r: LiftContext) -> None:
    """Set the operands of a left shift."""
    r.node.inputs = list(shifted(r))


def shift_right(r: LiftContext) -> None:
    """Shift right and round down: negative numbers keep their sign."""
    x, power = shifted(r)
    r.node.inputs = [x - r.b.Mod(x, power, fmod=0), power]


def lowest_bits(r: LiftContext, y: Value) -> ir.Value:
    """Cast the result to the type of the operand, which keeps the lowest bits."""
    return r.b.Cast(y, to=r.input(0).dtype)


def lift_div_mod(r: LiftContext) -> list[ir.Value]:
    """Return the quotient, rounded down (FLOOR) or towards 0 (TRUNC), and the remainder; a divisor
    of 0 gives 0.
    """
    b, floor = r.b, r.attr("mode", enum({True: "FLOOR", False: "TRUNC"}), True)
    x, y = (b.Cast(r.input(i), to=T.INT32) for i in (0, 1))
    nought = b.Equal(y, 0)
    divisor = b.Where(nought, 1, y)
    rest = b.Mod(x, divisor, fmod=0 if floor else 1)
    quotient = (x - rest) / divisor
    to = int(r.input(0).dtype or T.INT32)
    found = (b.Where(nought, 0, v) for v in (quotient, rest))
    return [b.Cast(v, to=to) for v in found]


SIGNED = Guard("only signed integers are supported", lift_if=is_signed)
UNSIGNED = Guard(
    "bit operations on signed integers are not supported",
    lambda w: w.input(0).dtype in _UNSIGNED,
    lambda r: not is_signed(r),
)
BINARY = [
    *(
        op(name, "Eltwise", method(name.upper()), TWO, EQUAL, example_inputs="2,3 2,3")
        for name in ("Add", "Sub", "Mul", "Max", "Min")
    ),
    *(
        op(n, n, RequireKey("method", n.upper(), True), lift_only=True)
        for n in ("Add", "Sub", "Mul")
    ),
    *ops("Add Sub Mul", example_inputs="2,3 3"),
    op(
        "Add",
        "BiasAdd",
        Weight("biases", 1, shape=flat("biases")),
        lift_only=True,
        example_inputs="2,3 =3",
    ),
    op("Div", "Div", FLOATS, ignore("mode"), example_inputs="2,3 2,3"),
    op("Pow", "Pow", example_inputs="2,3 2,3"),
    op(
        "Mod",
        "Mod",
        Guard("only fmod=1 is supported for floating-point data", lift_if=_fits_mod),
        Attr("fmod", kind=bool, default=0),
        example_inputs="2,3 2,3",
    ),
    op(
        "Mod",
        "Mod",
        FRACTIONS,
        RequireKey("fmod", 0, True, bool),
        RequireAttr("fmod", 1),
        after_lift=floor_rest,
        lift_only=True,
    ),
    custom("", "DivMod", lift=lift_div_mod),
    op("BitShift", "BitShift", UNSIGNED, word("direction", "direction", words("LEFT RIGHT"))),
    op(
        "Mul",
        "BitShift",
        SIGNED,
        RequireKey("direction", "LEFT"),
        before_lift=shift_left,
        after_lift=lowest_bits,
        lift_only=True,
    ),
    op(
        "Div",
        "BitShift",
        SIGNED,
        RequireKey("direction", "RIGHT"),
        before_lift=shift_right,
        after_lift=lowest_bits,
        lift_only=True,
    ),
    *(
        op(f"Bitwise{name}", "Bitwise", method(name.upper()))
        for name in ("And", "Or", "Xor", "Not")
    ),
    op("Sub", "SquaredDifference", after_lift=lambda r, d: d * d, lift_only=True),
]


# booleans ----------------------------------------------------------------------------------------

COMPARISONS = {
    "Equal": "EQUAL",
    "Greater": "GREATER",
    "GreaterOrEqual": "GREATER_EQUAL",
    "Less": "LESS",
    "LessOrEqual": "LESS_EQUAL",
}
LOGIC = [
    *(op(name, "Logical", method(word), EQUAL) for name, word in COMPARISONS.items()),
    *(op(n, "Logical", method(n.upper()), EQUAL, booleans(0, 1)) for n in ("And", "Or", "Xor")),
    op("Not", "Logical", method("NOT"), booleans(0)),
    op("Equal", "Logical", method("NOT_EQUAL"), after_lift=lambda r, y: r.b.Not(y), lift_only=True),
    op("Where", "Where", EQUAL, booleans(0)),
]

# casts -------------------------------------------------------------------------------------------


def _kept(w: LowerContext) -> tuple[ir.DataType, ir.DataType]:
    """Return the types of the operand and the result as the format stores them."""
    x, y = w.input(0).dtype, w.out.dtype
    if x is None or y is None:
        raise MappingError("the types of a Cast must be known")
    return NARROW.get(x, x), NARROW.get(y, y)


class Conversion(Field):
    """`to` <-> `to_dtype` and `clip_mode`.

    SATURATION (the default) clamps to the range of the type, TRUNCATION keeps the low bits; both
    drop a fraction. Written layers never clamp, as ONNX does not.
    """

    names = ("to", "saturate")
    keys = ("to_dtype", "clip_mode", "ignore_scale_zp")

    def lift(self, r: LiftContext) -> None:
        target, x = r.layer.attrs.get("to_dtype"), r.input(0)
        if target is None:
            raise MappingError("required attribute 'to_dtype' is absent", "R110")
        if not isinstance(target, DType):
            raise MappingError(f"to_dtype={target!r} is not a data type", "R110")
        to = ir_dtype(target)
        modes = enum({True: "SATURATION", False: "TRUNCATION"})
        saturate = r.attr("clip_mode", modes, True)
        declared, own = r.declared_type, x.dtype
        kept = declared is not None and NARROW.get(declared) == to
        r.node.attrs["to"] = int(declared if declared is not None and kept else to)
        if own is None or not to.is_integer() or own == T.BOOL:
            return
        if saturate:
            r.data = clamped(r, x, to)
            if own.is_floating_point() and _rounds(to):
                r.after_first(lambda y: r.b.Where(x > _top(to), r.b.like(y, int(to.max)), y))
        elif own.is_floating_point() and to.itemsize < 4:
            r.data = r.b.Cast(x, to=T.INT32)

    def lower(self, w: LowerContext) -> None:
        to = w.out.dtype
        small = to is not None and to.itemsize < 2 and to.is_floating_point()
        if small and not w.attr("saturate"):
            raise MappingError("saturate=0 is not supported")
        w.set(to_dtype=dtype_name(_kept(w)[1]), ignore_scale_zp=True, clip_mode="TRUNCATION")


def clamped(r: LiftContext, x: Value, dtype: ir.DataType) -> Value:
    """Clamp `x` to the range of another type."""
    assert x.dtype is not None
    low, high = dtype.min, dtype.max
    if x.dtype.is_integer():
        least, most = x.dtype.min, x.dtype.max
        inside = least >= low and most <= high
        return x if inside else r.b.Clip(x, max(low, least), min(high, most))
    return r.b.Clip(x, low, _top(dtype))


def _rounds(dtype: ir.DataType) -> bool:
    """Return whether float32 does not represent the largest number of an integer type."""
    return int(dtype.max) > 1 << 24


def _top(dtype: ir.DataType) -> float:
    """Return the largest float32 that casts to an integer type without overflow."""
    high = np.float32(dtype.max)
    return float(np.nextafter(high, np.float32(0)) if _rounds(dtype) else high)


def write_nonzero(w: LowerContext) -> None:
    """Write a comparison with 0: true for every other value."""
    x, shape = w.input(0), w.static()
    demand_small(*shape)
    assert x.dtype is not None
    w.layer.inputs = [x, w.const(np.zeros(shape, x.dtype.numpy()), "zeros")]


def lower_cast(w: LowerContext) -> None:
    """Write a cast between two types that the format does not distinguish as the identity."""
    if w.out.dtype == T.BOOL != w.input(0).dtype or len(set(_kept(w))) > 1:
        raise no_match("the Cast must not change the stored type")
    lower_same(w)


def lower_same(w: LowerContext) -> None:
    """Give one tensor a second name."""
    w.put(SAME, w.input(0))


SAME = "="  # no layer: the result is another name of the operand
CASTS = [
    custom("Identity", "", lower=lower_same),
    custom("Cast", "", lower=lower_cast),
    op(
        "Cast",
        "Logical",
        Guard("the Cast must not convert booleans", lambda w: w.input(0).dtype != T.BOOL),
        method("NOT_EQUAL"),
        RequireAttr("to", int(T.BOOL)),
        ImpliedAttrs(("saturate",)),
        before_lower=write_nonzero,
        lower_only=True,
    ),
    op(
        "Cast",
        "Cast",
        Guard("the Cast must convert to booleans", lambda w: w.attr("to") != T.BOOL),
        Conversion(),
    ),
]

RULES = [*UNARY, *ACTIVATIONS, *BINARY, *LOGIC, *CASTS]
