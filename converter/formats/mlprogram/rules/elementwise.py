"""Arithmetic, comparisons, activations and casts."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.mlprogram.rules.context import reading
from converter.formats.mlprogram.rules.fields import FLOATS, data, mil, mils
from converter.graph.value import Value, with_operators
from converter.mapping.codecs import enum
from converter.mapping.context import Reading
from converter.mapping.fields import Attr, Field, Guard
from converter.mapping.record import record
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
REALS = Guard("of real numbers only", lift_if=lambda r: reading(r).value("x").dtype in FLOATS)
WHOLE = Guard("of whole numbers only", lift_if=lambda r: reading(r).value("x").dtype not in FLOATS)


@record
class Added(Field):
    """`epsilon`, which is added in front of the operator, unless nothing changes by it."""

    default: float
    keys = ("epsilon",)

    def lift(self, r: Reading) -> None:
        x = data(r)
        kind = (x.dtype or D.FLOAT).numpy()
        epsilon = kind.type(r.attr("epsilon", float, self.default))
        if epsilon > np.finfo(kind).tiny:
            r.node.inputs[0] = x + float(epsilon)


@record
class Number(Field):
    """A parameter that is a constant input of the operator, in the type of its first."""

    key: str
    index: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", (self.key,))

    def lift(self, r: Reading) -> None:
        r.node.set_input(self.index, r.b.like(data(r), r.attr(self.key, float)))


class Channels(Field):
    """Slopes of the channels, as they broadcast over an image."""

    keys = ("alpha",)

    def lift(self, r: Reading) -> None:
        slopes, rank = reading(r).value("alpha"), r.rank(data(r))
        shape = [-1, *[1] * (rank - 2)] if rank > 2 else [-1]
        r.node.inputs[1:] = [r.reshape(r.cast(slopes, data(r).dtype or D.FLOAT), shape)]


class To(Field):
    keys = ("dtype",)
    names = ("to",)

    def lift(self, r: Reading) -> None:
        word = r.attr("dtype", str)
        if word not in DTYPES:
            raise MappingError(f"dtype {word!r} is not known", "R110")
        r.node.attrs["to"] = int(DTYPES[word])


def root(r: Reading) -> None:
    r.node.inputs = [r.b.Sqrt(data(r))]


def twice(r: Reading) -> None:
    r.node.inputs = [data(r), data(r)]


def of_sigmoid(r: Reading) -> None:
    r.node.inputs.append(r.b.Sigmoid(data(r)))


def floor(r: Reading, y: ir.Value) -> ir.Value:
    return r.b.Floor(y)


def modulus(r: Reading) -> Value:
    x, y = reading(r).value("x"), reading(r).value("y")
    return x - y * r.b.Floor(x / y)


def clamped(r: Reading) -> Value:
    """min(x >= 0 ? x : alpha * x, beta)"""
    x = reading(r).value("x")
    y = r.b.Where(x >= r.b.like(x, 0), x, x * r.attr("alpha", float))
    return r.b.Min(y, r.b.like(x, r.attr("beta", float)))


def thresholded(r: Reading) -> Value:
    x = reading(r).value("x")
    return r.b.Where(x >= r.b.like(x, r.attr("alpha", float)), x, r.b.like(x, 0))


def line(r: Reading) -> Value:
    x = reading(r).value("x")
    alpha, beta = (float(r.attr(k, float)) for k in ("alpha", "beta"))
    return x * alpha + beta


def scaled_tanh(r: Reading) -> Value:
    x = reading(r).value("x")
    alpha, beta = (float(r.attr(k, float)) for k in ("alpha", "beta"))
    return r.b.Tanh(x * beta) * alpha


def parametric(r: Reading) -> Value:
    """alpha * log(1 + exp(beta * x)), with an alpha and a beta for each channel."""
    t = reading(r)
    x = t.value("x")
    shape = [-1, *[1] * (r.rank(x) - 2)]
    alpha, beta = (with_operators(r.reshape(t.value(k), shape)) for k in ("alpha", "beta"))
    return r.b.Softplus(x * beta) * alpha


def gelu(r: Reading) -> Value:
    x = reading(r).value("x")
    return x * r.b.Sigmoid(x * 1.702)


def selected(r: Reading) -> ir.Value:
    """Where; numbers are conditions that are not 0. Without a and b: the places that are."""
    t = reading(r)
    condition = t.value("cond")
    if condition.dtype != D.BOOL:
        condition = r.b.Cast(condition, to=int(D.BOOL))
    if not t.has("a"):
        return r.b.Transpose(r.b.NonZero(condition), perm=[1, 0])
    return r.b.Where(condition, t.value("a"), t.value("b"))


class Powers(Field):
    """The base 2 of an exponent."""

    def lift(self, r: Reading) -> None:
        r.node.inputs.insert(0, r.b.like(data(r), 2))


RULES: list[Rule | Custom] = [
    *mils(
        "Abs=abs Acos=acos Asin=asin Atan=atan Atanh=atanh Ceil=ceil Cos=cos Cosh=cosh Erf=erf "
        "Exp=exp Floor=floor Identity=identity Not=logical_not Relu=relu Round=round "
        "Sigmoid=sigmoid Sign=sign Sin=sin Sinh=sinh Softplus=softplus Softsign=softsign "
        "Sqrt=sqrt Tan=tan Tanh=tanh",
        "x",
    ),
    *mils(
        "Add=add Sub=sub Mul=mul Div=real_div Max=maximum Min=minimum Pow=pow Equal=equal "
        "Greater=greater GreaterOrEqual=greater_equal Less=less LessOrEqual=less_equal "
        "And=logical_and Or=logical_or Xor=logical_xor",
        "x y",
    ),
    mil("Equal", "not_equal", "x y", after_lift=lambda r, y: r.b.Not(y)),
    mil("Div", "floor_div", "x y", REALS, after_lift=floor),
    mil("netconv::FloorDiv", "floor_div", "x y", WHOLE),
    mil("Mod", "mod", "x y", WHOLE),
    custom("", "mod", modulus),
    mil("Pow", "exp2", "x", Powers()),
    mil("Mul", "square", "x", before_lift=twice),
    mil("Mul", "silu", "x", before_lift=of_sigmoid),
    mil("Log", "log", "x", Added(1e-45)),
    mil("Reciprocal", "inverse", "x", Added(1e-4)),
    mil("Reciprocal", "rsqrt", "x", Added(1e-12), before_lift=root),
    mil("Clip", "clip", "x", Number("alpha", 1), Number("beta", 2)),
    mil(
        "Clip",
        "relu6",
        "x",
        before_lift=lambda r: r.node.inputs.extend(r.b.like(data(r), n) for n in (0, 6)),
    ),
    mil("Max", "threshold", "x", Number("alpha", 1)),
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
    mil("PRelu", "prelu", "x", Channels()),
    mil("Cast", "cast", "x", To()),
    custom("", "clamped_relu", clamped),
    custom("", "thresholded_relu", thresholded),
    custom("", "linear_activation", line),
    custom("", "scaled_tanh", scaled_tanh),
    custom("", "softplus_parametric", parametric),
    custom("", "select", selected),
]
