"""Arithmetic, comparisons, activations and casts."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.coreml.fields import Gate
from converter.formats.coreml.mlprogram.operations import FLOATS, SHORT
from converter.formats.coreml.mlprogram.rules.context import LiftContext, LowerContext
from converter.formats.coreml.mlprogram.rules.fields import Parameter, TransposedIndices, mil, mils
from converter.graph.demands import floating_type
from converter.graph.infer import constant
from converter.graph.value import producer_if
from converter.mapping.codecs import enum
from converter.mapping.fields import (
    ONE_TYPE,
    Attr,
    Const,
    Detail,
    Field,
    Guard,
    InputType,
    RequireAttr,
    RequireInput,
    RequireKey,
)
from converter.record import record

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
    "only floating-point data are supported",
    lambda w: w.data.dtype in FLOATS,
    lambda r: r.x.dtype in FLOATS,
)
WHOLE = Guard(
    "only integers are supported",
    lambda w: w.data.dtype not in FLOATS,
    lambda r: r.x.dtype not in FLOATS,
)
REAL_RESULT = Guard("only floating-point data are supported", lambda w: w.data.dtype in FLOATS)
WORDS = {D.BOOL: "bool", D.FLOAT16: "fp16", D.FLOAT: "fp32", D.INT32: "int32"}


@record
class Added(Field):
    """The parameter `epsilon`, read as an Add before the operator unless it is 0."""

    default: float
    keys = ("epsilon",)

    def lift(self, r: LiftContext) -> None:
        x = r.data
        kind = floating_type(x)
        epsilon = kind.type(r.attr("epsilon", float, self.default))
        if epsilon > np.finfo(kind).tiny:
            r.data = x + float(epsilon)

    def lower(self, w: LowerContext) -> None:
        w.set(epsilon=0.0)


def read_channels(r: LiftContext) -> None:
    """Reshape the slopes of channels so that they broadcast over an image."""
    slopes, rank = r.value("alpha"), r.rank(r.data)
    shape = [-1, *[1] * (rank - 2)] if rank > 2 else [-1]
    r.node.inputs[1:] = [r.reshape(r.cast(slopes, r.data.dtype or D.FLOAT), shape)]


def write_channels(w: LowerContext) -> None:
    """Write the slopes of PRelu, one for each channel, as the vector `alpha`. Raises MappingError
    for other shapes of slopes.
    """
    slopes, shape = w.constant(1, "the slopes"), tuple(w.data.shape or ())
    channels = (*shape[1:2], *[1] * (len(shape) - 2))
    if len(shape) < 3 or slopes.shape not in (channels, (1, *channels)):
        raise MappingError("only one slope per channel is supported")
    w.layer.attrs["alpha"] = w.const(slopes.reshape(-1).astype(w.real), "alpha")


CHANNELS = Detail(read=read_channels, write=write_channels, keys=("alpha",), inputs=(1,))


class To(Parameter):
    """The name of a type <-> ONNX's number of it."""

    names = ("to", "saturate")

    def lift(self, r: LiftContext) -> None:
        word = r.attr(self.key, str)
        if word not in DTYPES:
            raise MappingError(f"dtype {word!r} is not known", "R110")
        r.node.attrs["to"] = int(DTYPES[word])

    def lower(self, w: LowerContext) -> None:
        x, out = w.data, w.node.outputs[0]
        before, after = (w.low.carried(v) for v in (x, out))
        if after not in WORDS or before not in WORDS:
            raise MappingError(f"a Cast from {before.name} to {after.name} is not supported")
        w.set(**{self.key: WORDS[after]})
        if out.dtype in SHORT and before == D.INT32 and not _within(x.dtype, out.dtype):
            w.layer.attrs["x"] = _wrapped(w, x, out.dtype)


def _within(own: ir.DataType | None, wanted: ir.DataType) -> bool:
    return own is not None and bool(wanted.min <= own.min and own.max <= wanted.max)


def _wrapped(w: LowerContext, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Wrap a number around to fewer bits: (x - least) mod 2^n + least."""
    shape = list(x.shape or ())
    least, count = (w.const(np.int32(n)) for n in (dtype.min, 1 << dtype.bitwidth))
    whole = w.made("identity", D.INT32, shape, x=x)
    above = w.made("sub", D.INT32, shape, x=whole, y=least)
    rest = w.made("mod", D.INT32, shape, x=above, y=count)
    return w.made("add", D.INT32, shape, x=rest, y=least)


def read_root(r: LiftContext) -> None:
    """Insert a Sqrt before the operator, of the sum with `epsilon`."""
    Added(1e-12).lift(r)
    r.data = r.b.Sqrt(r.data)


def write_root(w: LowerContext) -> None:
    """Fuse the Sqrt of 1 / Sqrt(x + epsilon), and the Add if its other operand is a scalar, into
    the layer.
    """
    x: ir.Value = w.layer.attrs["x"]
    root = producer_if(x, "Sqrt")
    if root is None or x.shape != w.out.shape or x.dtype not in FLOATS:
        raise no_match("only 1 divided by a square root is supported")
    inner, epsilon = root.inputs[0], 0.0
    total = producer_if(inner, "Add")
    for own, more in () if total is None else (total.inputs, total.inputs[::-1]):
        number = constant(more)
        if number is not None and number.size == 1 and own is not None and own.shape == x.shape:
            inner, epsilon = own, float(number.reshape(-1)[0])
    w.layer.attrs["x"] = inner
    w.set(epsilon=epsilon)


ROOT = Detail(read=read_root, write=write_root, keys=("epsilon",))


@record
class Factor(Parameter):
    """A factor of the operand, or of the result (`of_result`): one number or one per channel."""

    of_result: bool = False

    def lift(self, r: LiftContext) -> None:
        x = r.data
        factor = r.cast(r.value(self.key), x.dtype or D.FLOAT)
        if factor.shape is None or len(factor.shape):
            factor = r.reshape(factor, [-1, *[1] * (r.rank(x) - 2)])
        if self.of_result:
            r.after_first(lambda y: y * factor)
        else:
            r.data = x * factor


class Most(Parameter):
    """The upper bound of the result."""

    def lift(self, r: LiftContext) -> None:
        most = r.b.like(r.data, r.attr(self.key, float))
        r.after_first(lambda y: r.b.Min(y, most))


def twice(r: LiftContext) -> None:
    """Use the first operand as the second one, too."""
    r.set_input(1, r.data)


def floor(r: LiftContext, y: ir.Value) -> ir.Value:
    """Return the result rounded down."""
    return r.b.Floor(y)


def multiple_to_subtract(r: LiftContext) -> None:
    """Return the number to subtract for the remainder: y times the quotient, rounded down."""
    x, y = r.operands()
    r.set_input(1, y * r.b.Floor(x / y))


def from_threshold(r: LiftContext) -> None:
    """Return the operand where it is at least the threshold, else 0."""
    x, threshold = r.operands()
    r.set_inputs(x >= threshold, x, r.b.like(x, 0))


def _alike(w: LowerContext) -> bool:
    """Return whether condition and operands need not be spread."""
    out, operands = w.out.shape, [w.input(i) for i in range(3)]
    known = out is not None and all(isinstance(n, int) for n in out)
    axes = {None if v.shape is None else len(v.shape) for v in operands}
    return len(axes) == 1 and not (known and any(v.shape != out for v in operands))


ALPHA = Attr("alpha", kind=float)
GELU = enum({"none": "EXACT", "tanh": "TANH_APPROXIMATION"})
RULES = [
    mil("Mul", "silu", "x", Gate(), example_inputs="2,3 Sigmoid($0)"),
    mil("Reciprocal", "rsqrt", "x", ROOT, example_inputs="Sqrt(2,3)"),
    mil(
        "Div",
        "rsqrt",
        "x",
        RequireInput(0, 1),
        ROOT,
        lower_only=True,
        example_inputs="=(1) Sqrt(2,3)",
    ),
    *mils(
        "Abs=abs Acos=acos Asin=asin Atan=atan Atanh=atanh Ceil=ceil Cos=cos Cosh=cosh Erf=erf "
        "Exp=exp Floor=floor Identity=identity Not=logical_not Relu=relu Round=round "
        "Sigmoid=sigmoid Sign=sign Sin=sin Sinh=sinh Softplus=softplus Softsign=softsign "
        "Sqrt=sqrt Tan=tan Tanh=tanh",
        "x",
    ),
    *mils(
        "Add=add Sub=sub Mul=mul Max=maximum Min=minimum Equal=equal "
        "Greater=greater GreaterOrEqual=greater_equal Less=less LessOrEqual=less_equal "
        "And=logical_and Or=logical_or Xor=logical_xor",
        "x y",
    ),
    mil("Pow", "pow", "x y", ONE_TYPE),
    mil("Div", "real_div", "x y", REAL_RESULT),
    mil("Equal", "not_equal", "x y", after_lift=lambda r, y: r.b.Not(y), lift_only=True),
    mil("Div", "floor_div", "x y", REALS, after_lift=floor, lift_only=True),
    mil("netconv::FloorDiv", "floor_div", "x y", WHOLE, example_inputs="i32:2,3 i32:2,3"),
    mil("Mod", "mod", "x y", WHOLE, RequireAttr("fmod", 0), example_inputs="i32:2,3 i32:2,3"),
    mil("Sub", "mod", "x y", REALS, before_lift=multiple_to_subtract, lift_only=True),
    mil("Pow", "exp2", "x", RequireInput(0, 2), lift_only=True),
    mil("Mul", "square", "x", before_lift=twice, lift_only=True),
    mil("Log", "log", "x", Added(1e-45)),
    mil("Reciprocal", "inverse", "x", Added(1e-4)),
    mil(
        "Clip",
        "clip",
        "x",
        Const(1, "alpha", float, None),
        Const(2, "beta", float, None),
        example_inputs="2,3 =(-1) =(2)",
    ),
    mil("Clip", "relu6", "x", RequireInput(1, 0), RequireInput(2, 6), lift_only=True),
    mil("Max", "threshold", "x", Const(1, "alpha", float, None), lift_only=True),
    *mils("Elu=elu LeakyRelu=leaky_relu", "x", ALPHA),
    mil("HardSigmoid", "sigmoid_hard", "x", ALPHA, Attr("beta", kind=float)),
    mil(
        "Mul", "gelu", "x", RequireKey("mode", "SIGMOID_APPROXIMATION"), Gate(1.702), lift_only=True
    ),
    mil("Gelu", "gelu", "x", Attr("approximate", "mode", GELU, "none")),
    mil("PRelu", "prelu", "x", CHANNELS, example_inputs="2,3,4,4 =3,1,1"),
    mil("Cast", "cast", "x", To("dtype")),
    mil("LeakyRelu", "clamped_relu", "x", ALPHA, Most("beta"), lift_only=True),
    mil(
        "Where",
        "thresholded_relu",
        "x",
        Const(1, "alpha", float, None),
        before_lift=from_threshold,
        lift_only=True,
    ),
    mil(
        "Add",
        "linear_activation",
        "x",
        Factor("alpha"),
        Const(1, "beta", float, None),
        lift_only=True,
    ),
    *mils(
        "Tanh=scaled_tanh Softplus=softplus_parametric",
        "x",
        Factor("beta"),
        Factor("alpha", of_result=True),
        lift_only=True,
    ),
    mil(
        "Where",
        "select",
        "cond a b",
        Guard("the operands must not need broadcasting", _alike),
        InputType((0,), D.BOOL),
        example_inputs="b:2,3 2,3 2,3",
    ),
    mil(
        "NonZero",
        "select",
        "cond",
        Guard(
            "select with values takes all three operands",
            None,
            lambda r: not (r.has("a") or r.has("b")),
        ),
        InputType((0,), D.BOOL),
        TransposedIndices(),
        lift_only=True,
    ),
]
