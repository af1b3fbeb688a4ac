"""Arithmetic, comparisons, activations and casts."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.coreml.coreai.rules.context import LiftContext, LowerContext
from converter.formats.coreml.coreai.rules.fields import word
from converter.formats.coreml.fields import Gate
from converter.graph.infer import constant
from converter.graph.value import Value, producer_if
from converter.mapping.codecs import Codec
from converter.mapping.fields import (
    TWO,
    Attr,
    Detail,
    Field,
    Guard,
    RequireAttr,
    RequireInput,
    RequireKey,
)
from converter.mapping.rules import Custom, Rule, custom, op, ops

D = ir.DataType


def of(reason: str, test: Any) -> Guard:
    """Return a condition on the type of the operator's data."""
    return Guard(
        reason,
        lambda w: test(w.data.dtype or D.FLOAT),
        lambda r: test(r.input(0).dtype or D.FLOAT),
    )


REALS = of("only floats are supported", lambda t: t.is_floating_point())
WHOLE = of("only integers are supported", lambda t: t.is_integer() and t != D.BOOL)
ONE_TYPE = Guard(
    "operands of different types are not supported",
    lambda w: w.input(0).dtype == w.input(1).dtype,
)
TRUTH = of("only booleans are supported", lambda t: t == D.BOOL)
NUMBERS = of("booleans are not supported", lambda t: t != D.BOOL)


class SafeDivision(Field):
    """A divisor of integers; the runtime crashes when it divides by 0, or the least
    integer by -1.
    """

    def lower(self, w: LowerContext) -> None:
        x, y = w.layer.inputs
        dtype = w.data.dtype or D.FLOAT
        if y is None or x is None or dtype.is_floating_point():
            return
        array = constant(y)
        if array is not None:
            if not array.all():
                raise MappingError("a division by 0 terminates the runtime's process")
            if not (array.astype(np.int64) == -1).any():
                return
        one, zero = w.like(x, 1), w.like(x, 0)
        bad = w.emit("broadcasting_equal", y, zero, dtype=D.BOOL, shape=y.shape)
        if dtype.numpy().kind == "i":
            minus = w.emit("broadcasting_equal", y, w.like(x, -1), dtype=D.BOOL, shape=y.shape)
            least = w.like(x, int(np.iinfo(dtype.numpy()).min))
            shape = w.out.shape
            end = w.emit("broadcasting_equal", x, least, dtype=D.BOOL, shape=x.shape)
            over = w.emit("broadcasting_and", end, minus, dtype=D.BOOL, shape=shape)
            bad = w.emit("broadcasting_or", bad, over, dtype=D.BOOL, shape=shape)
        safe = w.emit("broadcasting_where", bad, one, y, dtype=dtype, shape=bad.shape)
        w.layer.inputs = [x, safe]


class SaturatedType(Field):
    """The type of a Cast. Integers saturate in Core AI, and wrap around in ONNX."""

    names = ("to", "saturate")

    def lift(self, r: LiftContext) -> None:
        x, to = r.input(0), r.layer.outputs[0].dtype or D.FLOAT
        r.set(to=int(to))
        own = x.dtype or D.FLOAT
        if to == D.BOOL or own == D.BOOL or not to.is_integer() or _within(own, to):
            return
        b, low, high = r.b, int(to.min), int(to.max)
        if own.is_integer():
            bounds = max(low, int(own.min)), min(high, int(own.max))
            least, most = (b.const(np.array(n, own.numpy())) for n in bounds)
            r.data = b.Min(b.Max(x, least), most)
            return
        x = x if own not in (D.BFLOAT16, D.FLOAT16) else r.cast(x, D.FLOAT)
        one = (x.dtype or D.FLOAT).numpy().type
        inside = b.Where(b.Or(b.IsNaN(x), b.Or(x >= one(high), x <= one(low))), b.like(x, 0), x)
        ends = [b.const(np.array(n, to.numpy())) for n in (low, high)]
        r.forwarded = [
            b.Where(
                x >= one(high), ends[1], b.Where(x <= one(low), ends[0], b.Cast(inside, to=int(to)))
            )
        ]

    def lower(self, w: LowerContext) -> None:
        x, to = w.data, w.out.dtype or D.FLOAT
        own = x.dtype or D.FLOAT
        if D.BOOL in (own, to) or not (own.is_integer() and to.is_integer()) or _within(own, to):
            return
        if to == D.INT32 and any(producer_if(x, kind) is not None for kind in ("Shape", "Size")):
            return  # sizes have no more bits
        w.layer.inputs = [_wrapped(w, x, own, to)]


def _within(own: ir.DataType, wanted: ir.DataType) -> bool:
    if not own.is_integer():
        return False
    return bool(wanted.min <= own.min and own.max <= wanted.max)


def _wrapped(w: LowerContext, x: ir.Value, own: ir.DataType, to: ir.DataType) -> ir.Value:
    """Wrap an integer around to n bits, in a wide enough signed type: x & mask, minus 2^n if that
    is at least half of 2^n.
    """
    bits, wide = to.bitwidth, D.INT64

    def of_number(n: int, dtype: ir.DataType = wide) -> ir.Value:
        return w.const(np.array(n, dtype.numpy()))

    def step(kind: str, *operands: Any, dtype: ir.DataType = wide) -> ir.Value:
        return w.emit(f"broadcasting_{kind}", *operands, dtype=dtype, shape=w.out.shape)

    def same_bits(x: ir.Value, own: ir.DataType, to: ir.DataType) -> ir.Value:
        """Reinterpret 64-bit numbers as signed or unsigned ones: the highest bit is handled
        separately.
        """
        most = of_number(int(wide.max), own)
        low = step("bitwise_and", x, most, dtype=own)
        low = w.emit("cast", low, dtype=to, shape=x.shape)
        ends = (x, most) if own == D.UINT64 else (of_number(0), x)
        top = of_number(int(wide.min) if to == wide else 1 << 63, to)
        has_top = step("greater", *ends, dtype=D.BOOL)
        return step("where", has_top, step("add", low, top, dtype=to), low, dtype=to)

    if own == D.UINT64:
        x = same_bits(x, own, wide)
    elif own != wide:
        x = w.emit("cast", x, dtype=wide, shape=x.shape)
    if bits == 64:
        return x if to == wide else same_bits(x, wide, to)
    rest = step("bitwise_and", x, of_number((1 << bits) - 1))
    if to.numpy().kind == "u" or to in (D.UINT4, D.UINT2):
        return rest
    high = step("greater", rest, of_number((1 << bits - 1) - 1), dtype=D.BOOL)
    return step("where", high, step("sub", rest, of_number(1 << bits)), rest)


def read_root(r: LiftContext) -> None:
    """Insert a Sqrt before the operator."""
    r.data = r.b.Sqrt(r.data)


def write_root(w: LowerContext) -> None:
    """Fuse the Sqrt of 1 / Sqrt(x) into the layer."""
    root = producer_if(w.layer.inputs[0], "Sqrt")
    if root is None or root.inputs[0] is None:
        raise no_match("only 1 divided by a square root is supported")
    w.layer.inputs = [root.inputs[0]]


ROOT = Detail(read=read_root, write=write_root)


def gate(r: LiftContext) -> None:
    """Compute the approximation of a Gelu by a Sigmoid."""
    Gate(1.702).lift(r)


def negated(r: LiftContext, y: Value) -> ir.Value:
    """Return the negation of the result."""
    return r.b.Not(y)


def floor(r: LiftContext, y: Value) -> ir.Value:
    """Return the result rounded down."""
    return r.b.Floor(y)


def compare_with_zero(r: LiftContext) -> None:
    """Add 0 as the second operand."""
    r.set_input(1, r.b.like(r.data, 0))


def integer_power(r: LiftContext) -> Value:
    """Compute powers of integers: a negative exponent gives 0. The product is computed in 64 bits,
    whose low bits are those of narrower types.
    """
    b, x, y = r.b, *(r.cast(r.input(i), D.INT64) for i in range(2))
    zero = b.const(np.int64(0))
    found = b.Where(b.Less(y, zero), zero, b.Pow(x, b.Max(y, zero)))
    return r.cast(found, r.input(0).dtype or D.INT64)


NOT_NEGATIVE = Guard(
    "integers to a power that may be negative are not supported",
    lambda w: w.data.dtype == w.input(1).dtype and _never_negative(constant(w.input(1))),
)


def _never_negative(array: Any) -> bool:
    return array is not None and bool((array >= 0).all())


def not_second(r: LiftContext) -> None:
    """Negate the second operand: for booleans, x > y is computed as x and not y."""
    r.set_input(1, r.b.Not(r.input(1)))


APPROXIMATE = Attr("approximate", "approximate", word("approximate"), "none")
SIGMOID = Codec(word("approximate").lift, lambda v: v)
# operators of two operands, with the condition on their types; each has a form for equal shapes
BINARY: list[tuple[str, tuple[Field, ...]]] = [
    ("Add=add Sub=sub Mul=mul", (NUMBERS,)),
    ("Max=maximum Min=minimum", (TWO, NUMBERS)),
    ("Or=add And=mul", (TRUTH,)),
    ("Pow=pow", (REALS, ONE_TYPE)),
    ("Greater=greater", (NUMBERS,)),
    ("Equal=equal", ()),
    ("And=and Or=or Xor=xor", ()),
    ("BitwiseAnd=bitwise_and BitwiseOr=bitwise_or BitwiseXor=bitwise_xor", (WHOLE,)),
    ("And=bitwise_and Or=bitwise_or Xor=bitwise_xor", (TRUTH,)),
    ("Div=divide", (NUMBERS, SafeDivision())),
]
_OTHERS = ["add", "mul", "bitwise_and", "bitwise_or", "bitwise_xor"]


def _both(pairs: str, *fields: Field, **options: Any) -> list[Rule]:
    """Return two rows: the form that broadcasts is read and written, the form for equal shapes only
    read.
    """
    found = []
    for pair in pairs.split():
        name, _, kind = pair.partition("=")
        given = dict(options)
        if TRUTH in fields and kind in _OTHERS:
            given["lift_only"] = True
        found.append(op(name, f"broadcasting_{kind}", *fields, **given))
        found.append(op(name, kind, *fields, **{**given, "lift_only": True}))
    return found


RULES: list[Rule | Custom] = [
    op("Mul", "silu", Gate(), example_inputs="2,3 Sigmoid($0)"),
    op(
        "Mul",
        "gelu",
        RequireKey("approximate", "sigmoid", kind=SIGMOID),
        before_lift=gate,
        lift_only=True,
    ),
    op("Gelu", "gelu", APPROXIMATE),
    op("Reciprocal", "rsqrt", ROOT, example_inputs="Sqrt(2,3)"),
    op("Div", "rsqrt", RequireInput(0, 1), ROOT, lower_only=True, example_inputs="=(1) Sqrt(2,3)"),
    *ops(
        "Acos=acos Acosh=acosh Asin=asin Asinh=asinh Atan=atan Atanh=atanh Cos=cos Cosh=cosh "
        "Erf=erf Exp=exp Log=log Round=round Sigmoid=sigmoid Sin=sin Sinh=sinh Sqrt=sqrt Tan=tan "
        "Tanh=tanh",
        REALS,
    ),
    op("Identity", "round", WHOLE, lift_only=True, example_inputs="i32:2,3"),
    op("Max", "relu", WHOLE, before_lift=compare_with_zero, lift_only=True),
    *ops("Abs=abs Relu=relu", NUMBERS),
    op("Not", "not"),
    *[rule for pairs, fields in BINARY for rule in _both(pairs, *fields)],
    op("Pow", "broadcasting_pow", NOT_NEGATIVE, lower_only=True, example_inputs="i32:2,3 =i32:(2)"),
    custom("", "broadcasting_pow pow", integer_power),
    *_both("And=greater", TRUTH, before_lift=not_second, lift_only=True),
    *_both("Equal=not_equal", after_lift=negated, lift_only=True),
    *_both("Div=floor_divide", REALS, after_lift=floor, lift_only=True),
    *_both(
        "netconv::FloorDiv=floor_divide", WHOLE, SafeDivision(), example_inputs="i32:2,3 i32:2,3"
    ),
    *_both("Mod=modulo", NUMBERS, RequireAttr("fmod", 1), SafeDivision(), example_inputs="2,3 2,3"),
    *_both("Where=where", example_inputs="b:2,3 2,3 2,3"),
    op("Cast", "cast", SaturatedType()),
    op("Identity", "cast", lower_only=True),
]
