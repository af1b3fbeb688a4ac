"""Element-wise layers: functions of one number, activations, arithmetic, comparisons, logic.

Blobs are float32: integers are written as floats, and refused where they would wrap around (see
legalize.py).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.coreml.neuralnetwork.collector import is_float, scalar
from converter.formats.coreml.neuralnetwork.rules.context import LiftContext, LowerContext
from converter.formats.coreml.neuralnetwork.rules.fields import (
    INTEGERS,
    SEVERAL,
    OneType,
    ScalarOperand,
    fits,
    of_type,
    truncate,
    truncate_result,
)
from converter.graph.infer import rank_of
from converter.graph.value import known_sizes, producer_if, producer_operand, type_name
from converter.mapping.codecs import Codec, enum, unset
from converter.mapping.context import Results
from converter.mapping.fields import (
    TWO,
    Attr,
    Const,
    Detail,
    Field,
    Guard,
    Nested,
    RequireAttr,
    RequireInput,
    RequireKey,
    attrs,
    ignore,
)
from converter.mapping.rules import Custom, Rule, custom, op, ops

T = ir.DataType
Value = ir.Value
# added to the argument of a logarithm where the layer insists on an epsilon: changes no number but
# zero
TINY = float(np.float32(1.4e-45))
LEAST, MOST = -3.4028234e38, 3.4028234e38

# integers that wrap around -----------------------------------------------------------------------


def is_short(value: Value) -> bool:
    """Return whether its type is an integer type that the sum of two numbers soon exceeds: overflow
    has to wrap around.
    """
    return value.dtype in INTEGERS and value.dtype.bitwidth <= 16


def shifts_out(node: ir.Node | None) -> bool:
    """Return whether 32-bit integers are multiplied by a power of two that is known only at run
    time, as exporters write shifts to the left.
    """
    if node is None or node.op_type != "Mul":
        return False
    short = node.outputs[0].dtype in (T.INT32, T.UINT32)
    return short and any(_power_of_two(v) for v in node.inputs)


def _power_of_two(value: Value | None) -> bool:
    while (
        node := producer_if(value, "Cast")
        or producer_if(value, "Round")
        or producer_if(value, "Floor")
    ):
        value = node.inputs[0]
    base = scalar(producer_operand(value, "Pow"))
    return base is not None and base > 1 and math.frexp(base)[0] == 0.5


def refuse_wraparound(w: LowerContext) -> None:
    """Refuse integers that wrap around."""
    out = w.out
    if is_short(out) or shifts_out(out.producer()):
        raise MappingError(
            f"{w.node.op} of {type_name(out.dtype)} wraps around on overflow, "
            "which float32 cannot reproduce"
        )


NO_INTEGER_WRAPAROUND = Detail(write=refuse_wraparound)

# functions of one number -------------------------------------------------------------------------


class Scaled(Field):
    """A function of scale * x + shift; a scale of zero means that scale and shift are not set."""

    keys = ("scale", "shift")

    def lift(self, r: LiftContext) -> None:
        scale, shift = r.attr("scale", unset(1.0)), r.attr("shift", float)
        r.data = affine(r.data, scale, shift)

    def lower(self, w: LowerContext) -> None:
        w.layer.attrs["scale"] = 1.0


def affine(x: Value, scale: float, shift: float = 0.0) -> Value:
    """Compute x * scale + shift; omit a scale of 1 and a shift of 0."""
    y = x if scale == 1.0 else x * scale
    return y if shift == 0.0 else y + shift


class Epsilon(Field):
    """The number that the layer adds to the argument <-> an Add of a positive constant before it.

    `root`       the sum is the operand of a square root
    `otherwise`  the number that is written without an Add; None: then the row does not match
    """

    keys = ("epsilon",)

    def __init__(self, root: bool = False, otherwise: float | None = None) -> None:
        self.root, self.otherwise = root, otherwise

    def lift(self, r: LiftContext) -> None:
        x = r.data + r.attr("epsilon", unset(1e-6))
        r.data = r.b.Sqrt(x) if self.root else x

    def lower(self, w: LowerContext) -> None:
        inner: Value | None = w.data
        if self.root:
            inner = producer_operand(inner, "Sqrt")
        total = producer_if(inner, "Add")
        epsilon = None if total is None else scalar(total.inputs[1])
        if total is not None and epsilon is not None and epsilon > 0:
            w.layer.inputs, w.layer.attrs["epsilon"] = [total.inputs[0]], epsilon
        elif self.otherwise is not None:
            w.layer.attrs["epsilon"] = self.otherwise
        else:
            raise no_match("the operand must be a sum with a positive constant")


def function(name: str, kind: str, *fields: Field, **options: Any) -> Rule:
    """Return a row of the layer `unary`."""
    rest = {"alpha", "epsilon"} - {k for f in fields for k in f.keys}
    return op(name, "unary", RequireKey("type", kind), *fields, ignore(*rest), **options)


class Exponent(ScalarOperand):
    """The attribute `alpha` of a power <-> a constant second operand. A negative power of integers
    would be a fraction.
    """

    def lower(self, w: LowerContext) -> None:
        super().lower(w)
        if w.data.dtype in INTEGERS and w.layer.attrs[self.key] < 0:
            raise no_match("negative powers of integers are not supported")


def square(r: LiftContext) -> None:
    """Compute the exponent 2 as a product of an operand with itself."""
    r.node.inputs *= 2


def floor(r: LiftContext, y: ir.Value) -> ir.Value:
    """Return the result rounded down."""
    return r.b.Floor(y)


def bound(value: Any) -> float:
    """Return a limit of Clip, which the layer stores as a finite number."""
    return float(np.clip(np.asarray(value).reshape(-1)[0], LEAST, MOST))


LIMIT = Codec(float, bound)
SCALED = Scaled()
UNARY = [
    # not written: it may round the exact quotient down, which Div has rounded to the nearest number
    op("Div", "floorDivBroadcastable", after_lift=floor, lift_only=True),
    *ops(
        "Ceil=ceil Floor=floor Sign=sign Round=round Sin=sin Cos=cos Tan=tan Asin=asin Acos=acos "
        "Atan=atan Sinh=sinh Cosh=cosh Tanh=tanh Asinh=asinh Acosh=acosh Atanh=atanh Erf=erf"
    ),
    function("Sqrt", "SQRT", SCALED),
    function("Exp", "EXP", SCALED),
    function("Abs", "ABS", SCALED),
    function("Log", "LOG", SCALED, Epsilon(otherwise=TINY)),
    function("Reciprocal", "RSQRT", SCALED, Epsilon(root=True), example_inputs="Sqrt(Add(2,3;=))"),
    function(
        "Reciprocal", "INVERSE", SCALED, Epsilon(), example_inputs="Add(2,3;=)", lift_only=True
    ),
    function("Reciprocal", "POWER", SCALED, RequireKey("alpha", -1.0), lower_only=True),
    function("Mul", "POWER", RequireKey("alpha", 2.0), SCALED, before_lift=square, lift_only=True),
    function("Pow", "POWER", Exponent("alpha"), SCALED, example_inputs="2,3 ="),
    function("Max", "THRESHOLD", ScalarOperand("alpha"), SCALED, example_inputs="2,3 ="),
    op("Pow", "exp2", RequireInput(0, 2.0), example_inputs="=(2.0) 2,3"),
    op(
        "Clip",
        "clip",
        Const(1, "minVal", LIMIT, None, LEAST),
        Const(2, "maxVal", LIMIT, None, MOST),
        example_inputs="2,3 =(-1.0) =",
    ),
    op(
        "Clip",
        "clampedReLU",
        Guard(
            "alpha must be 0 and beta above 0",
            lift_if=lambda r: r.attr("alpha", float) == 0 < r.attr("beta", float),
        ),
        ignore("alpha"),
        RequireInput(1, 0.0),
        Const(2, "beta", LIMIT, None),
        example_inputs="2,3 =(0.0) =",
        lift_only=True,
    ),
    op(
        "Min",
        "clampedReLU",
        ScalarOperand("beta"),
        ignore("alpha"),
        before_lift=lambda r: r.b.LeakyRelu(r.data, alpha=r.attr("alpha", float)),
        lift_only=True,
    ),
]


# activations -------------------------------------------------------------------------------------

ALPHA, BETA = attrs(alpha=float, beta=float)
# x >= alpha passes there, x > alpha in ONNX: the next smaller bound
PASSES = Codec(
    lambda v: float(np.nextafter(np.float32(v), np.float32(-np.inf))),
    lambda v: float(np.nextafter(np.float32(v), np.float32(np.inf))),
)


def activation(name: str, kind: str, *fields: Field, **options: Any) -> Rule:
    """Return the row of an operator that is a kind of activation layer."""
    return op(name, "activation", Nested(kind, *fields), **options)


def read_channel_slope(r: LiftContext) -> None:
    """Read one slope, or one for each channel (axis -3)."""
    r.set_input(1, channels(r, "PReLU.alpha"))


def write_channel_slope(w: LowerContext) -> None:
    """Write the slopes of PRelu, one for each channel, as weights."""
    slope, rank = slope_of(w), w.rank()
    if rank < 3:
        raise no_match("only one slope per channel is supported by this layer")
    w.layer.blobs["PReLU.alpha"] = w.plain(slope.reshape(-1))


CHANNEL_SLOPE = Detail(
    read=read_channel_slope,
    write=write_channel_slope,
    blobs=("PReLU.alpha",),
    inputs=(1,),
)


def store_one_slope(w: LowerContext) -> None:
    """Write the only slope of a tensor without channels."""
    w.layer.attrs["alpha"] = float(slope_of(w).reshape(-1)[0])


def slope_of(w: LowerContext) -> Any:
    """Return the slopes of PRelu. Raises MappingError unless there is one, or one for each channel
    (axis -3).
    """
    slope = w.numbers(1, "the slope")
    by_channel = slope.ndim >= 3 and slope.size == slope.shape[-3] and w.rank() >= 3
    if slope.size != 1 and not by_channel:
        raise MappingError("the slope must be one number, or one per channel (axis -3)")
    return slope


def channels(r: LiftContext, path: str) -> Value:
    """Return a weight of length C or 1 for axis -3 of the input, as [C,1,1]."""
    count = r.layer.blobs[path].data().count
    shape = (-1, 1, 1) if count > 1 or r.rank(r.data) >= 3 else ()
    return r.b.const(r.numbers(path, [count]).reshape(shape), path.rpartition(".")[2])


def line(r: LiftContext) -> Value:
    """Compute alpha * x + beta; the operator is an Identity after it."""
    p = r.layer.attrs["linear"]
    return affine(r.data, p["alpha"], p["beta"])


class Weighted(Field):
    """Weights from which a hook of the row computes the operands."""

    def __init__(self, *paths: str) -> None:
        self.blobs = paths


GELU = {"none": "EXACT", "tanh": "TANH_APPROXIMATION"}
ACTIVATIONS = [
    activation("Relu", "ReLU"),
    activation("Sigmoid", "sigmoid"),
    activation("Softplus", "softplus"),
    activation("Softsign", "softsign"),
    activation("Tanh", "tanh", lift_only=True),
    activation("LeakyRelu", "leakyReLU", ALPHA),
    activation("Elu", "ELU", ALPHA),
    activation("HardSigmoid", "sigmoidHard", ALPHA, BETA),
    activation("ThresholdedRelu", "thresholdedReLU", Attr("alpha", kind=PASSES)),
    op("PRelu", "activation", Nested("PReLU"), CHANNEL_SLOPE, example_inputs="1,4,8,8 =4,1,1"),
    activation(
        "PRelu",
        "leakyReLU",
        Detail(write=store_one_slope, keys=("alpha",), inputs=(1,)),
        example_inputs="2,3 =",
        lower_only=True,
    ),
    activation("Identity", "linear", ignore("alpha", "beta"), before_lift=line, lift_only=True),
    activation(
        "Tanh",
        "scaledTanh",
        ignore("alpha", "beta"),
        before_lift=lambda r: affine(r.data, r.layer.attrs["scaledTanh"]["beta"]),
        after_lift=lambda r, y: affine(y, r.layer.attrs["scaledTanh"]["alpha"]),
        lift_only=True,
    ),
    op(
        "Softplus",
        "activation",
        Nested("parametricSoftplus"),
        Weighted("parametricSoftplus.alpha", "parametricSoftplus.beta"),
        before_lift=lambda r: r.data * channels(r, "parametricSoftplus.beta"),
        after_lift=lambda r, y: y * channels(r, "parametricSoftplus.alpha"),
        lift_only=True,
    ),
    op("Gelu", "gelu", Attr("approximate", "mode", enum(GELU))),
    op(
        "Sigmoid",
        "gelu",
        RequireKey("mode", "SIGMOID_APPROXIMATION"),
        before_lift=lambda r: r.data * 1.702,
        after_lift=lambda r, y: r.input(0) * y,
        lift_only=True,
    ),
]


# arithmetic --------------------------------------------------------------------------------------


def chain_operands(r: LiftContext) -> None:
    """Read a layer of any number of operands as a chain of operators of two; `alpha` is only used
    with a single operand.
    """
    first, rest = r.input(0), r.node.inputs[1:]
    r.set_inputs(first, *rest[:1])

    def finish(results: Results) -> Results:
        for v in rest[1:]:
            results = [r.b.op(r.node.op, results[0], v)]
        return results

    r.after_emit(finish)


def truncate_power(w: LowerContext) -> None:
    """Truncate a number towards zero."""
    x, c = w.data, w.scalar(1)
    if x.dtype in INTEGERS and not (c is not None and c >= 0):
        truncate_result(w)


def repeat_operand(w: LowerContext) -> None:
    """Compare a number with itself."""
    w.layer.inputs *= 2


def truncate_quotient(w: LowerContext) -> None:
    """Round the quotient of integers towards zero."""
    if not is_float(w.out):
        truncate_result(w)


def subtract_multiple(w: LowerContext) -> None:
    """Compute the remainder with the sign of the dividend, x - y * trunc(x / y), from the layer's
    quotient.
    """
    x, y, out = w.data, w.input(1), w.out
    shape, quotient = w.dims(out), w.result("quotient", T.FLOAT)

    def finish() -> None:
        whole = w.temporary("trunc", out.dtype, shape)
        truncate(w, quotient, [whole])
        taken = w.emit("multiplyBroadcastable", whole, y, shape=shape)
        w.put("subtractBroadcastable", x, taken)

    w.after_emit(finish)


def floor_mod(r: LiftContext) -> None:
    """Compute x - y * floor(x / y), which has the sign of the divisor."""
    b, (x, y) = r.b, r.inputs(2)
    r.set_inputs(x, b.Mul(y, b.Floor(b.Div(x, y))))


def like_channels(r: LiftContext, path: str, key: str) -> Value:
    """Return a weight of shape [1], [C], [1,H,W] or [C,H,W] for the axes -3, -2, -1."""
    shape, x = r.attr(key, list), r.input(0)
    if len(shape) not in (1, 3):
        message = f"{path} has the shape {shape}; it must be [1], [C], [1,H,W] or [C,H,W]"
        raise MappingError(message, "R110")
    full = [shape[0], 1, 1] if len(shape) == 1 else shape
    return r.weights(path, [1] if full == [1, 1, 1] and (rank_of(x) or 0) < 3 else full)


def shifted(r: LiftContext, y: Value) -> Value:
    """Add the bias of a scale layer, if it has one."""
    has_bias = r.attr("hasBias", bool)
    return (y + like_channels(r, "bias", "shapeBias")) if has_bias else y


def products(r: LiftContext) -> None:
    """Compute dot products along axis -3; the cosine is that of vectors divided by their norms."""
    x, y = r.inputs(2)
    if r.attr("cosineSimilarity", bool):
        x, y = (r.b.Div(v, r.b.ReduceL2(v, [-3], keepdims=1)) for v in (x, y))
    r.set_inputs(r.b.Mul(x, y), [-3])


ONE_SHAPE = Guard(
    "the operands must have the same shape",
    lambda w: (
        len({str(v.shape) for v in w.node.inputs if v is not None}) == 1
        and known_sizes(w.data) is not None
    ),
)
WHOLE = Guard("fmod must be 1", lambda w: bool(w.attr("fmod")))
BY_ALPHA = "2,3 ="

ARITHMETIC = [
    op(
        "Add",
        "add",
        ScalarOperand("alpha", either=True),
        NO_INTEGER_WRAPAROUND,
        example_inputs=BY_ALPHA,
    ),
    op(
        "Mul",
        "multiply",
        ScalarOperand("alpha", either=True),
        NO_INTEGER_WRAPAROUND,
        example_inputs=BY_ALPHA,
    ),
    op(
        "Sub",
        "add",
        ScalarOperand("alpha", -1),
        NO_INTEGER_WRAPAROUND,
        example_inputs=BY_ALPHA,
        lower_only=True,
    ),
    op("Neg", "multiply", NO_INTEGER_WRAPAROUND, RequireKey("alpha", -1.0), lower_only=True),
    *ops(
        "Add=add Mul=multiply",
        SEVERAL,
        Detail(read=chain_operands, keys=("alpha",)),
        lift_only=True,
    ),
    op("Mean", "average", ONE_SHAPE),
    *ops("Max=max Min=min", lift_only=True),
    *ops("Max=maxBroadcastable Min=minBroadcastable", TWO),
    *ops(
        "Add=addBroadcastable Sub=subtractBroadcastable Mul=multiplyBroadcastable",
        NO_INTEGER_WRAPAROUND,
    ),
    op("Pow", "powBroadcastable", Detail(write=truncate_power)),
    op("Div", "divideBroadcastable", Detail(write=truncate_quotient)),
    op(
        "Mod",
        "modBroadcastable",
        RequireAttr("fmod", 0),
        lower_only=True,
        example_inputs="i64:2,3 i64:2,3",
    ),
    op(
        "Mod",
        "divideBroadcastable",
        RequireAttr("fmod", 1),
        Detail(write=subtract_multiple),
        lower_only=True,
    ),
    op("Sub", "modBroadcastable", before_lift=floor_mod, lift_only=True),
    op(
        "Mul",
        "scale",
        ignore("shapeScale", "hasBias", "shapeBias"),
        Weighted("scale", "bias"),
        before_lift=lambda r: r.set_input(1, like_channels(r, "scale", "shapeScale")),
        after_lift=shifted,
        lift_only=True,
    ),
    op(
        "Add",
        "bias",
        ignore("shape"),
        Weighted("bias"),
        before_lift=lambda r: r.set_input(1, like_channels(r, "bias", "shape")),
        lift_only=True,
    ),
    op(
        "ReduceSum",
        "dot",
        ignore("cosineSimilarity"),
        before_lift=products,
        lift_only=True,
    ),
]


# comparisons and logic ---------------------------------------------------------------------------

NOT_TEXT = Guard("comparing strings is not supported", lambda w: w.data.dtype != T.STRING)


class Unequal(Field):
    """A layer that compares two operands, or one with `alpha`: a Not after an Equal in
    the graph.
    """

    keys = ("alpha",)

    def lift(self, r: LiftContext) -> None:
        other = [] if r.node.inputs[1:] else [r.attr("alpha", float)]
        r.set_inputs(r.b.Equal(*r.node.inputs, *other))

    def lower(self, w: LowerContext) -> None:
        inner = producer_if(w.data, "Equal")
        x, y = inner.inputs if inner is not None else (None, None)
        if x is None or y is None:
            raise no_match("only a Not of a comparison is supported by this layer")
        number = scalar(y)
        w.layer.inputs = [x, y]
        if number is not None and fits(number, x, y):
            w.layer.inputs, w.layer.attrs["alpha"] = [x], number


COMPARISONS = (
    "Equal=equal Less=lessThan LessOrEqual=lessEqual Greater=greaterThan "
    "GreaterOrEqual=greaterEqual"
)
LOGIC = [
    *ops(COMPARISONS, NOT_TEXT, ScalarOperand("alpha"), example_inputs="2,3 ="),
    *ops(COMPARISONS, NOT_TEXT, SEVERAL, ignore("alpha")),
    op("Not", "notEqual", Unequal(), example_inputs="Equal(2,3;=)"),
    op("IsNaN", "notEqual", Detail(write=repeat_operand), lower_only=True),
    *ops("And=logicalAnd Or=logicalOr Xor=logicalXor Not=logicalNot", of_type(0, 1, dtype=T.BOOL)),
    op("Where", "whereBroadcastable", of_type(0, dtype=T.BOOL), OneType(1)),
]

# values that are passed on -----------------------------------------------------------------------


MOVING = [custom("Identity", "copy", lambda r: r.input(0), lambda w: w.low.alias(w.out, w.data))]
RULES: list[Rule | Custom] = [*UNARY, *ACTIVATIONS, *ARITHMETIC, *LOGIC, *MOVING]
