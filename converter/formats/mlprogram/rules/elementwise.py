"""Arithmetic, comparisons, activations and casts."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, not_meant
from converter.formats.mlprogram.operations import FLOATS, SHORT
from converter.formats.mlprogram.rules.context import Reading, Writing
from converter.formats.mlprogram.rules.fields import mil, mils
from converter.graph.demands import floating_type
from converter.graph.infer import constant
from converter.graph.record import record
from converter.graph.value import Value, maker
from converter.mapping.codecs import enum
from converter.mapping.fields import Attr, Field, Guard, Only
from converter.mapping.rules import Custom, Rule, custom

D = ir.DataType
DTYPES = {
    "bool": D.BOOL,
    "fp16": D.FLOAT16,
    "fp32": D.FLOAT,
    "fp64": D.FLOAT,
    "int8": D.INT8,
    "int16": D.INT16,
    "int32": D.INT32,
    "int64": D.INT32,
    "uint8": D.UINT8,
    "uint16": D.UINT16,
    "uint32": D.UINT32,
}
REALS = Guard(
    "of real numbers only",
    lambda w: w.data.dtype in FLOATS,
    lambda r: r.x.dtype in FLOATS,
)
WHOLE = Guard(
    "of whole numbers only",
    lambda w: w.data.dtype not in FLOATS,
    lambda r: r.x.dtype not in FLOATS,
)
REAL_RESULT = Guard("whole numbers are cut off", lambda w: w.data.dtype in FLOATS)
WORDS = {D.BOOL: "bool", D.FLOAT16: "fp16", D.FLOAT: "fp32", D.INT32: "int32"}


@record
class Added(Field):
    """`epsilon`, which is added in front of the operator, unless nothing changes by it."""

    default: float
    keys = ("epsilon",)

    def lift(self, r: Reading) -> None:
        x = r.data
        kind = floating_type(x)
        epsilon = kind.type(r.attr("epsilon", float, self.default))
        if epsilon > np.finfo(kind).tiny:
            r.data = x + float(epsilon)

    def lower(self, w: Writing) -> None:
        w.set(epsilon=0.0)


@record
class Number(Field):
    """A parameter that is a constant input of the operator, in the type of its first."""

    key: str
    index: int

    def __post_init__(self) -> None:
        self.keys = (self.key,)
        self.inputs = (self.index,)

    def lift(self, r: Reading) -> None:
        r.node.set_input(self.index, r.b.like(r.data, r.attr(self.key, float)))

    def lower(self, w: Writing) -> None:
        array = w.constant(self.index, self.key)
        if array.size != 1:
            raise MappingError(f"{self.key} must be one number")
        w.set(**{self.key: float(array.reshape(-1)[0])})


class Channels(Field):
    """Slopes of the channels, as they broadcast over an image."""

    keys, inputs = ("alpha",), (1,)

    def lower(self, w: Writing) -> None:
        slopes, shape = w.constant(1, "the slopes"), tuple(w.data.shape or ())
        axis = shape[1:2] if len(shape) > 2 else ()
        rest = slopes.shape[1:] if len(slopes.shape) == len(shape) - 1 else slopes.shape[2:]
        if slopes.ndim not in (len(shape) - 1, len(shape)) or any(n != 1 for n in rest):
            raise MappingError("slopes other than one for each channel")
        if axis != (slopes.size,):
            raise MappingError("slopes of another number than the channels")
        w.layer.attrs["alpha"] = w.const(slopes.reshape(-1).astype(w.real), "alpha")

    def lift(self, r: Reading) -> None:
        slopes, rank = r.value("alpha"), r.rank(r.data)
        shape = [-1, *[1] * (rank - 2)] if rank > 2 else [-1]
        r.node.inputs[1:] = [r.reshape(r.cast(slopes, r.data.dtype or D.FLOAT), shape)]


class To(Field):
    keys = ("dtype",)
    names = ("to", "saturate")

    def lift(self, r: Reading) -> None:
        word = r.attr("dtype", str)
        if word not in DTYPES:
            raise MappingError(f"dtype {word!r} is not known", "R110")
        r.node.attrs["to"] = int(DTYPES[word])

    def lower(self, w: Writing) -> None:
        x, out = w.data, w.node.outputs[0]
        before, after = (w.low.carried(v) for v in (x, out))
        if after not in WORDS or before not in WORDS:
            raise MappingError(f"no operation makes {after.name} of {before.name}")
        w.set(dtype=WORDS[after])
        if out.dtype in SHORT and before == D.INT32 and not _within(x.dtype, out.dtype):
            w.layer.attrs["x"] = _wrapped(w, x, out.dtype)


def _within(own: ir.DataType | None, wanted: ir.DataType) -> bool:
    return own is not None and bool(wanted.min <= own.min and own.max <= wanted.max)


def _wrapped(w: Writing, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """The number of fewer bits that has the same last bits: (x - least) mod 2^n + least."""
    shape = list(x.shape or ())
    least, count = (w.const(np.int32(n)) for n in (dtype.min, 1 << dtype.bitwidth))
    whole = w.made("identity", D.INT32, shape, x=x)
    above = w.made("sub", D.INT32, shape, x=whole, y=least)
    rest = w.made("mod", D.INT32, shape, x=above, y=count)
    return w.made("add", D.INT32, shape, x=rest, y=least)


def root(r: Reading) -> Value:
    return r.b.Sqrt(r.data)


def write_silu(w: Writing) -> None:
    """x times its Sigmoid, which is left out in the end where nothing else needs it."""
    x, y = w.data, w.input(1)
    for one, other in ((x, y), (y, x)):
        gate = maker(other, "Sigmoid")
        if gate is not None and gate.inputs[0] is one:
            w.operation("silu", x=one)
            return
    raise not_meant("a number times its Sigmoid")


def write_root(w: Writing) -> None:
    """1 divided by a root, of a sum with one number or of anything else."""
    x = w.data
    if w.node.op == "Div":
        one, x = constant(x), w.input(1)
        if one is None or one.size != 1 or one.reshape(-1)[0] != 1:
            raise not_meant("one divided by a root")
    root = maker(x, "Sqrt")
    if root is None or x.shape != w.node.outputs[0].shape or x.dtype not in FLOATS:
        raise not_meant("one divided by a root")
    inner, epsilon = root.inputs[0], 0.0
    total = maker(inner, "Add")
    for own, more in () if total is None else (total.inputs, total.inputs[::-1]):
        number = constant(more)
        if number is not None and number.size == 1 and own is not None and own.shape == x.shape:
            inner, epsilon = own, float(number.reshape(-1)[0])
    w.operation("rsqrt", x=inner, epsilon=epsilon)


def twice(r: Reading) -> None:
    r.set_input(1, r.data)


def of_sigmoid(r: Reading) -> None:
    r.node.inputs.append(r.b.Sigmoid(r.data))


def floor(r: Reading, y: ir.Value) -> ir.Value:
    return r.b.Floor(y)


def modulus(r: Reading) -> Value:
    x, y = r.x, r.value("y")
    return x - y * r.b.Floor(x / y)


def clamped(r: Reading) -> Value:
    """min(x >= 0 ? x : alpha * x, beta)"""
    x = r.x
    y = r.b.Where(x >= r.b.like(x, 0), x, x * r.attr("alpha", float))
    return r.b.Min(y, r.b.like(x, r.attr("beta", float)))


def thresholded(r: Reading) -> Value:
    x = r.x
    return r.b.Where(x >= r.b.like(x, r.attr("alpha", float)), x, r.b.like(x, 0))


def line(r: Reading) -> Value:
    x = r.x
    alpha, beta = (float(r.attr(k, float)) for k in ("alpha", "beta"))
    return x * alpha + beta


def scaled_tanh(r: Reading) -> Value:
    x = r.x
    alpha, beta = (float(r.attr(k, float)) for k in ("alpha", "beta"))
    return r.b.Tanh(x * beta) * alpha


def parametric(r: Reading) -> Value:
    """alpha * log(1 + exp(beta * x)), with an alpha and a beta for each channel."""
    x = r.x
    shape = [-1, *[1] * (r.rank(x) - 2)]
    alpha, beta = (r.reshape(r.value(k), shape) for k in ("alpha", "beta"))
    return r.b.Softplus(x * beta) * alpha


def gelu(r: Reading) -> Value:
    x = r.x
    return x * r.b.Sigmoid(x * 1.702)


def selected(r: Reading) -> ir.Value:
    """Where; numbers are conditions that are not 0. Without a and b: the places that are."""
    condition = r.value("cond")
    if condition.dtype != D.BOOL:
        condition = r.b.Cast(condition, to=D.BOOL)
    if not r.has("a"):
        return r.b.Transpose(r.b.NonZero(condition), perm=[1, 0])
    return r.b.Where(condition, r.value("a"), r.value("b"))


def select(w: Writing) -> None:
    condition, a, b = (w.input(i) for i in range(3))
    out = w.node.outputs[0].shape
    known = out is not None and all(isinstance(n, int) for n in out)
    axes = {None if v.shape is None else len(v.shape) for v in (condition, a, b)}
    if len(axes) > 1 or (known and any(v.shape != out for v in (condition, a, b))):
        raise MappingError("operands that have to be spread")
    w.operation("select", cond=condition, a=a, b=b)


class Powers(Field):
    """The base 2 of an exponent."""

    def lift(self, r: Reading) -> None:
        r.node.inputs.insert(0, r.b.like(r.data, 2))


RULES: list[Rule | Custom] = [
    custom("Mul", "silu", None, write_silu),
    custom("Reciprocal Div", "rsqrt", None, write_root),
    *mils(
        "Abs=abs Acos=acos Asin=asin Atan=atan Atanh=atanh Ceil=ceil Cos=cos Cosh=cosh Erf=erf "
        "Exp=exp Floor=floor Identity=identity Not=logical_not Relu=relu Round=round "
        "Sigmoid=sigmoid Sign=sign Sin=sin Sinh=sinh Softplus=softplus Softsign=softsign "
        "Sqrt=sqrt Tan=tan Tanh=tanh",
        "x",
    ),
    *mils(
        "Add=add Sub=sub Mul=mul Max=maximum Min=minimum Pow=pow Equal=equal "
        "Greater=greater GreaterOrEqual=greater_equal Less=less LessOrEqual=less_equal "
        "And=logical_and Or=logical_or Xor=logical_xor",
        "x y",
    ),
    mil("Div", "real_div", "x y", REAL_RESULT),
    mil("Equal", "not_equal", "x y", after_lift=lambda r, y: r.b.Not(y), lift_only=True),
    mil("Div", "floor_div", "x y", REALS, after_lift=floor, lift_only=True),
    mil("netconv::FloorDiv", "floor_div", "x y", WHOLE, given="i32:2,3 i32:2,3"),
    mil("Mod", "mod", "x y", WHOLE, Only("fmod", 0), given="i32:2,3 i32:2,3"),
    custom("", "mod", modulus),
    mil("Pow", "exp2", "x", Powers(), lift_only=True),
    mil("Mul", "square", "x", before_lift=twice, lift_only=True),
    mil("Mul", "silu", "x", before_lift=of_sigmoid, lift_only=True),
    mil("Log", "log", "x", Added(1e-45)),
    mil("Reciprocal", "inverse", "x", Added(1e-4)),
    mil("Reciprocal", "rsqrt", "x", Added(1e-12), before_lift=root, lift_only=True),
    mil("Clip", "clip", "x", Number("alpha", 1), Number("beta", 2), given="2,3 =(-1) =(2)"),
    mil(
        "Clip",
        "relu6",
        "x",
        before_lift=lambda r: r.node.inputs.extend(r.b.like(r.data, n) for n in (0, 6)),
        lift_only=True,
    ),
    mil("Max", "threshold", "x", Number("alpha", 1), lift_only=True),
    *mils("Elu=elu LeakyRelu=leaky_relu", "x", Attr("alpha", kind=float)),
    mil("HardSigmoid", "sigmoid_hard", "x", Attr("alpha", kind=float), Attr("beta", kind=float)),
    mil(
        "Gelu",
        "gelu",
        "x",
        Attr(
            "approximate",
            "mode",
            enum({"none": "EXACT", "tanh": "TANH_APPROXIMATION"}),
            default="none",
        ),
    ),
    custom("", "gelu", gelu),
    mil("PRelu", "prelu", "x", Channels(), given="2,3,4,4 =3,1,1"),
    mil("Cast", "cast", "x", To()),
    custom("", "clamped_relu", clamped),
    custom("", "thresholded_relu", thresholded),
    custom("", "linear_activation", line),
    custom("", "scaled_tanh", scaled_tanh),
    custom("", "softplus_parametric", parametric),
    custom("Where", "select", selected, select),
]
