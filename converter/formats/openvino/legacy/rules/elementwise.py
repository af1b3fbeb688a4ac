"""Element-wise layers: Eltwise, Power, ScaleShift and activations.

The choices are the Model Optimizer's: Power and ScaleShift for constants, Eltwise for the rest.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.openvino.legacy.rules.context import (
    MOST_AXES,
    LiftContext,
    LowerContext,
    into_convolution,
    is_float,
    per_channel,
    scalar_of,
)
from converter.formats.openvino.legacy.rules.fields import (
    FLOATS,
    INTEGERS,
    MARK_LAYER,
    NO_AXES,
    SQUEEZE_ALL,
    PerChannel,
    ToPort,
    channels,
)
from converter.formats.openvino.legacy.types import keeps_type
from converter.mapping.codecs import Floats, is_single, number_text
from converter.mapping.fields import (
    Attr,
    Const,
    Detail,
    Field,
    Guard,
    RequireAttr,
    RequireKey,
    ignore,
)
from converter.mapping.rules import Custom, Rule, custom, op, ops
from converter.passes.constants import is_constant
from converter.record import record

D = ir.DataType
LARGEST = float(np.finfo(np.float32).max)


# Eltwise -----------------------------------------------------------------------------------------

COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
LOGIC = ("And", "Or", "Xor")


class Operands(Field):
    """Two or more operands of one type, with the rank of the result. `coeff` are the factors of a
    sum or a difference.
    """

    keys = ("coeff",)

    def lift(self, r: LiftContext) -> None:
        name, count = r.node.op, len(r.layer.inputs)
        common = self._type(r)
        operands = [r.cast(r.input(i), common) for i in range(max(1, count))]
        factors = r.attr("coeff", Floats, []) if name in ("Add", "Sub") else []
        if factors and len(factors) != count:
            raise MappingError(
                f"{len(factors)} coefficients are given for {count} operands", "R110"
            )
        for i, f in enumerate(factors):
            if f != 1:
                operands[i] = r.b.Mul(operands[i], r.b.like(operands[i], f))
        first = operands[0]
        for v in operands[1:-1]:
            first = r.b.op(name, first, v, **r.node.attrs)
        r.set_inputs(first, operands[-1])

    def _type(self, r: LiftContext) -> ir.DataType:
        """Return the type of all operands if they agree, else that of the result; booleans are
        numbers, except in logical operators.
        """
        if r.node.op in LOGIC:
            return D.BOOL
        kinds = {v.dtype or D.FLOAT for v in r.layer.inputs if v is not None}
        if len(kinds) == 1 and D.BOOL not in kinds:
            return kinds.pop()
        declared = D.FLOAT if r.node.op in COMPARISONS else r.declared()
        return D.FLOAT if declared == D.BOOL else declared

    def lower(self, w: LowerContext) -> None:
        if len(w.node.inputs) != 2:
            raise MappingError("two operands are needed")
        spread(w, [w.data, w.input(1)])


def spread(w: LowerContext, operands: list[ir.Value]) -> None:
    """The operands of an Eltwise in the rank of the result:
    five axes at most where it is spread over them.
    """
    shape = w.shape(w.out)
    shapes = [w.shape(v) for v in operands]
    together = merged(shapes, shape) if len(shape) > MOST_AXES else None
    if shape and together is None:
        w.set_inputs(*(w.widened(v, len(shape)) for v in operands))
        return
    shapes, whole = together or ([[1]] * len(operands), [1])
    if len(whole) > MOST_AXES:
        operands, whole = [w.spread(v, shape) for v in operands], [math.prod(shape)]
        shapes = [whole] * len(operands)
    w.set_inputs(*(w.reshaped(v, s) for v, s in zip(operands, shapes, strict=True)))
    w.gives(whole)


def merged(shapes: list[list[int]], out: list[int]) -> tuple[list[list[int]], list[int]]:
    """Return the shapes of the operands, and that of the result, with neighboring axes as one.

    They are one where every operand is spread over both or neither.
    """
    wide = [[1] * (len(out) - len(s)) + s for s in shapes]
    columns: list[list[int]] = []
    for column in zip(*wide, out, strict=True):
        if columns and all(
            (a == columns[-1][-1]) == (b == column[-1]) or 1 in (columns[-1][-1], column[-1])
            for a, b in zip(columns[-1], column, strict=True)
        ):
            columns[-1] = [a * b for a, b in zip(columns[-1], column, strict=True)]
        else:
            columns.append(list(column))
    return [list(c) for c in zip(*columns, strict=True)][:-1], [c[-1] for c in columns]


# a quotient of added channels, 0 / 0, is NaN
OUTSIDE_CONVOLUTIONS = Guard(
    "the quotient is not the input of a convolution",
    lower_if=lambda w: not into_convolution(w.out) or any(map(is_constant, w.node.inputs)),
)


def eltwise(name: str, operation: str, *fields: Field, **options: object) -> Rule:
    """Return the row of an operator that is an operation of Eltwise; "sum" is the default."""
    word = RequireKey("operation", operation, operation == "sum", str)
    return op(name, "Eltwise", word, *fields, Operands(), **options)  # type: ignore[arg-type]


ELTWISE = [
    eltwise("Add", "sum"),
    eltwise("Sub", "sub"),
    eltwise("Mul", "mul"),
    eltwise("Mul", "prod", lift_only=True),
    eltwise("Div", "div", OUTSIDE_CONVOLUTIONS),
    eltwise("Max", "max"),
    eltwise("Min", "min"),
    eltwise(
        "Pow",
        "pow",
        Guard(
            "an exponent with fractions needs a base with fractions",
            lambda w: is_float(w.data) or not is_float(w.input(1)),
        ),
    ),
    eltwise("Less", "less"),
    eltwise("LessOrEqual", "less_equal"),
    eltwise("Greater", "greater"),
    eltwise("GreaterOrEqual", "greater_equal"),
    eltwise("Equal", "equal"),
    eltwise("Equal", "not_equal", after_lift=lambda r, y: ~y, lift_only=True),
    eltwise("And", "logical_and"),
    eltwise("Or", "logical_or"),
    eltwise("Xor", "logical_xor"),
    # of integers, with the sign of the first operand
    eltwise("Mod", "floor_mod", INTEGERS, RequireAttr("fmod", 1), example_inputs="i32:2,3 i32:2,3"),
    *(
        eltwise("Sub", word, after_lift=lambda r, d: r.b.Mul(d, d), lift_only=True)
        for word in ("squared_diff", "sqdiff")
    ),
    eltwise("Add", "mean", after_lift=lambda r, y: mean(r, y), lift_only=True),
]


def mean(r: LiftContext, total: ir.Value) -> ir.Value:
    """Divide the sum of all operands by their number."""
    return r.b.Div(total, r.b.like(total, len(r.layer.inputs)))


# Power: (shift + scale * x) ^ power --------------------------------------------------------------


def fixed(key: str, value: float, absent: bool = True) -> RequireKey:
    """Return the condition that an attribute of the layer has this value, or is absent."""
    return RequireKey(key, value, absent, float)


@record
class Line(Field):
    """The stages of a Power before the operator, without those that change nothing."""

    keys: tuple[str, ...] = ("scale", "shift")
    floats: bool = False

    def lift(self, r: LiftContext) -> None:
        x = r.input(0)
        given = [r.attr(k, float, d) for k, d in (("power", 1.0), ("scale", 1.0), ("shift", 0.0))]
        if x.dtype != D.FLOAT and not all(v.is_integer() for v in given):
            x = r.floats(x)
        for key, step, nothing in (("scale", "Mul", 1.0), ("shift", "Add", 0.0)):
            value = r.attr(key, float, nothing) if key in self.keys else nothing
            x = x if value == nothing else r.b.op(step, x, r.b.like(x, value))
        r.set_inputs(r.floats(x) if self.floats else x)

    def lower(self, w: LowerContext) -> None:
        w.set(**{k: float(k == "scale") for k in self.keys})


@record
class Number(Field):
    """An operand that is one constant number <-> `key`; `place` is the index of that operand, or
    either.
    """

    key: str
    place: int | None = None
    sign: int = 1
    inputs = (0, 1)

    def __post_init__(self) -> None:
        self.keys = (self.key,)

    def lift(self, r: LiftContext) -> None:
        value = r.attr(self.key, float, float(self.key != "shift"))
        r.set_input(1, r.b.like(r.data, value))

    def lower(self, w: LowerContext) -> None:
        for place in (1, 0) if self.place is None else (self.place,):
            x, c = w.input(1 - place), scalar_of(w.optional(place))
            if c is None or x.const_value is not None or not is_float(w.out):
                continue
            if w.shape(x) == w.shape(w.out) and is_single(c):
                w.set_inputs(x)
                w.layer.attrs[self.key] = number_text(self.number(c))
                return
        raise no_match("one of the operands must be a constant scalar")

    def number(self, c: float) -> float:
        return self.sign * c


class Inverse(Number):
    """A divisor whose reciprocal is exact."""

    def number(self, c: float) -> float:
        if c == 0 or float(np.float32(1.0 / c)) * c != 1.0:
            raise no_match("the divisor must have an exact reciprocal")
        return 1.0 / c


POWER_1, SCALE_1, SHIFT_0 = fixed("power", 1.0), fixed("scale", 1.0), fixed("shift", 0.0)
WAS_POWER = Guard(
    "only an operand that no Power produces is supported by this layer",
    lower_if=lambda w: w.before() == "Power",
)
NO_POLE = Guard(
    "a power below 0 is not the input of a convolution",  # it would be infinite in added channels
    lower_if=lambda w: not (is_negative(w) and into_convolution(w.out)),
)


def is_negative(w: LowerContext) -> bool:
    """Return whether the exponent is below 0."""
    return w.node.op == "Reciprocal" or (scalar_of(w.optional(1)) or 0.0) < 0


NUMBERS = Guard(
    "only floating-point or boolean data are supported",
    lambda w: is_float(w.data) or w.data.dtype == D.BOOL,
)

POWER = [
    op("Identity", "Power", NUMBERS, POWER_1, SCALE_1, SHIFT_0),
    op("Mul", "Power", POWER_1, SHIFT_0, Line(()), Number("scale"), example_inputs="2,3 ="),
    op("Add", "Power", POWER_1, Line(("scale",)), Number("shift"), example_inputs="2,3 ="),
    op(
        "Sub",
        "Power",
        POWER_1,
        SCALE_1,
        Number("shift", 1, -1),
        lower_only=True,
        example_inputs="2,3 =",
    ),
    op(
        "Sub",
        "Power",
        POWER_1,
        fixed("scale", -1.0),
        Number("shift", 0),
        lower_only=True,
        example_inputs="= 2,3",
    ),
    op(
        "Div",
        "Power",
        POWER_1,
        SHIFT_0,
        Inverse("scale", 1),
        lower_only=True,
        example_inputs="2,3 =[2]",
    ),
    op("Sqrt", "Power", fixed("power", 0.5, False), Line(floats=True)),
    op(
        "Reciprocal",
        "Power",
        WAS_POWER,
        NO_POLE,
        fixed("power", -1.0, False),
        Line(floats=True),
        MARK_LAYER,
    ),
    op("Pow", "Power", NO_POLE, Line(), Number("power", 1), example_inputs="2,3 =[3]"),
]


# ScaleShift: weights_c * x + biases_c ------------------------------------------------------------


@record
class Channels(Field):
    """An operand with one number for each channel of an image <-> a blob, or the input with index
    `place` of the layer.
    """

    blob: str
    place: int
    inputs = (0, 1)
    blobs = ("weights", "biases")

    def lift(self, r: LiftContext) -> None:
        x = r.input(0)
        if (scales := factor(r, "weights", 1)) is not None and self.blob == "biases":
            x = x * scales
        r.set_inputs(x, factor(r, self.blob, self.place))

    def lower(self, w: LowerContext) -> None:
        shape = w.shape(w.out)
        for i in (0, 1):
            x, found = w.input(i), per_channel(w.input(1 - i), shape)
            plain = x.const_value is None and w.shape(x) == shape and len(shape) >= 4
            if found is not None and plain:
                w.set_inputs(x)
                nothing = {"weights": np.ones_like(found), "biases": np.zeros_like(found)}
                w.layer.blobs |= {**nothing, self.blob: found}
                return
        raise no_match("one of the operands must have one element per channel")


def factor(r: LiftContext, blob: str, place: int) -> ir.Value | None:
    """Return an operand, or the blob with one number for each channel where it is absent."""
    given = r.optional(place)
    return channels(r, blob) if given is None and blob in r.layer.blobs else given


def shifted(r: LiftContext) -> bool:
    """Return whether the layer has a bias, as an operand or a blob."""
    return r.optional(2) is not None or "biases" in r.layer.blobs


SHIFTED = Guard("a bias is not supported", lift_if=shifted)
SCALED = Guard("a bias is needed", lift_if=lambda r: not shifted(r))
BROADCAST = ignore("broadcast")
IMAGE = "1,4,8,8 =1,4,1,1"

SCALE_SHIFT = [
    op("Add", "ScaleShift", SHIFTED, Channels("biases", 2), BROADCAST, example_inputs=IMAGE),
    op(
        "Mul",
        "ScaleShift",
        SCALED,
        PerChannel("weights", 1),
        BROADCAST,
        lift_only=True,
        example_inputs=IMAGE,
    ),
    op("Mul", "ScaleShift", Channels("weights", 1), lower_only=True, example_inputs=IMAGE),
]


# activations -------------------------------------------------------------------------------------


def read_bounds(r: LiftContext) -> None:
    """Read the numbers min and max; an omitted bound is the largest number."""
    x = r.input(0)
    r.set_inputs(x, *(r.b.like(x, r.attr(key, float)) for key in ("min", "max")))


def write_bounds(w: LowerContext) -> None:
    """Write constant bounds, or the largest floats where there are none."""
    for index, key, unbounded in ((1, "min", -LARGEST), (2, "max", LARGEST)):
        value = w.number(index) if w.has(index) else unbounded
        if value is None:
            raise MappingError("the bounds must be constant")
        w.layer.attrs[key] = number_text(min(max(value, -LARGEST), LARGEST))


BOUNDS = Detail(read=read_bounds, write=write_bounds, keys=("min", "max"), inputs=(1, 2))


def from_zero(r: LiftContext) -> None:
    """Set the second operand to 0."""
    r.set_input(1, r.b.like(r.input(0), 0))


@record
class Slopes(Field):
    """One slope for each channel, or one for all, in a blob or as an input."""

    inputs = (1,)
    keys = ("channel_shared",)
    blobs = ("weights",)

    def lift(self, r: LiftContext) -> None:
        slope = r.optional(1)
        rest = [1] * max(0, r.rank() - 2)
        r.set_input(1, channels(r, "weights") if slope is None else r.b.Reshape(slope, [-1, *rest]))

    def lower(self, w: LowerContext) -> None:
        shape, slope = w.shape(), w.constant(1, "the slopes")
        found = slope.reshape(-1) if slope.size == 1 else per_channel(w.input(1), shape)
        if found is None or not 2 <= len(shape) <= MOST_AXES:
            message = "the slope must have one element, or one per channel of at most five axes"
            raise MappingError(message)
        w.set(channel_shared=slope.size == 1)
        w.layer.blobs["weights"] = found


def cast_to_boolean(r: LiftContext) -> None:
    """Cast the operand to booleans."""
    r.set_inputs(r.cast(r.input(0), D.BOOL))


FLAT = Guard("a slope is needed", lift_if=lambda r: r.attr("negative_slope", float, 0.0) == 0)
TRAINING = ["filler_type", "filler_value", "min", "max", "mean", "std", "sparse", "variance_norm"]
OTHERS = ignore("alpha", "negative_slope", "n", "min", "max")  # of other types of Activation


def activation(name: str, type: str, *fields: Field, **options: object) -> Rule:
    """Return the row of an operator that is a type of Activation."""
    return op(name, "Activation", RequireKey("type", type, kind=str), *fields, OTHERS, **options)  # type: ignore[arg-type]


SIMPLE = "Abs Acos Asin Atan Ceil Cos Cosh Erf Floor Log Sign Sin Sinh Softplus Softsign Tan"
OWN_LAYERS = [
    op("Relu", "ReLU", FLAT, ignore("negative_slope")),
    op("LeakyRelu", "ReLU", Attr("alpha", "negative_slope", float)),
    op("Clip", "Clamp", FLOATS, BOUNDS, ignore("min_value", "max_value"), example_inputs="2,3 = ="),
    op("PRelu", "PReLU", Slopes(), ignore(*TRAINING), example_inputs="1,4,8,8 =4,1,1"),
    op("Elu", "ELU", Attr("alpha", kind=float, default=1.0), lift_only=True),
    op(
        "Clip",
        "ReLU6",
        Const(2, "n", float, None, default=6.0),
        before_lift=from_zero,
        lift_only=True,
    ),
    *ops("Not Not=LogicalNot", before_lift=cast_to_boolean, lift_only=True),
]
ACTIVATIONS = [
    activation("Sigmoid", "sigmoid"),
    activation("Tanh", "tanh"),
    activation("Exp", "exp"),
    activation("Elu", "elu", Attr("alpha", kind=float, default=1.0)),
    activation("Not", "not", before_lift=cast_to_boolean),
    activation("Sigmoid", "logistic", lift_only=True),
    *(activation(k, k.lower(), lift_only=True) for k in (*SIMPLE.split(), "Sqrt")),
    *(
        replace(
            rule,
            kind="Activation",
            fields=(RequireKey("type", rule.kind.lower(), kind=str), *rule.fields, OTHERS),
            lift_only=True,
        )
        for rule in OWN_LAYERS[:4] + OWN_LAYERS[5:6]
    ),
    *OWN_LAYERS,
    *ops(f"{SIMPLE} Acosh Asinh Atanh Neg Reciprocal"),
    *ops(
        "Sigmoid Sigmoid=Logistic Tanh=TanH Exp Sqrt Softplus=SoftPlus Softsign=SoftSign Identity",
        lift_only=True,
    ),
    op(
        "Selu",
        "Selu",
        Attr("alpha", kind=float, default=1.6732631921768188),
        Attr("gamma", kind=float, default=1.0507010221481323),
    ),
    op(
        "HardSigmoid",
        "HardSigmoid",
        Attr("alpha", kind=float, default=0.2),
        Attr("beta", kind=float, default=0.5),
    ),
]


# types and choices -------------------------------------------------------------------------------


def read_chosen(r: LiftContext) -> None:
    """A condition, which is an integer in the engine, and two operands of the shape of the result,
    of four axes at most.

    A condition of fewer axes is one boolean for each row of the leading axes.
    """
    condition, x, y = (r.input(i) for i in range(3))
    to = x.dtype if x.dtype == y.dtype and x.dtype != D.BOOL else r.declared()
    to = D.FLOAT if to in (None, D.BOOL) else to
    condition = r.cast(condition, D.BOOL)
    missing = len(r.static(x)) - len(r.static(condition))
    if missing > 0:
        condition = r.b.Reshape(condition, [*r.static(condition), *[1] * missing])
    r.set_inputs(condition, r.cast(x, to or D.FLOAT), r.cast(y, to or D.FLOAT))


def write_chosen(w: LowerContext) -> None:
    """Write a Where: operands in the shape of the result, the condition as int32, and all of them
    flat above four axes.
    """
    shape = w.shape(w.out) or [1]
    operands = [w.spread(w.input(i), shape) for i in range(3)]
    if operands[0].dtype != D.INT32:
        operands[0] = w.converted(operands[0], D.INT32)
    if len(shape) > 4:
        shape = [math.prod(shape)]
        operands = [w.reshaped(v, shape) for v in operands]
    w.set_inputs(*operands)
    w.gives(shape)


CHOSEN = Detail(read=read_chosen, write=write_chosen)


def read_precision(r: LiftContext) -> None:
    """Read the type of the output port, which `precision` repeats. Booleans are the numbers 0 and
    1.
    """
    r.set(to=int(r.declared()))


def write_precision(w: LowerContext) -> None:
    """Write the precision of a Cast, I32 or FP32; strings are not supported."""
    to = D(w.attr("to"))
    if D.STRING in (to, w.data.dtype):
        raise MappingError("strings are not supported")
    w.set(precision="FP32" if is_float(w.out) or to == D.BOOL else "I32")


PRECISION = Detail(
    read=read_precision,
    write=write_precision,
    names=("to", "saturate", "round_mode"),
    keys=("precision",),
)


def compare_with_zero(w: LowerContext) -> None:
    """Compare a value with 0 to convert it to bool."""
    x = w.data
    dtype = x.dtype.numpy() if x.dtype else np.float32
    spread(w, [x, w.const(np.zeros([1] * len(w.shape(w.out)), dtype))])


def at_input(w: LowerContext) -> None:
    """Insert a Reshape between an input of 8 or 16 bits and a layer for numbers of any type, since
    no other layer may read such an input.
    """
    if not keeps_type(w.data):
        raise no_match("only data of 8 or 16 bits are supported by this layer")
    w.finish(w.data)


OF_ONE_TYPE = Guard("the type must not change", lift_if=lambda r: r.input(0).dtype == r.declared())

CONVERSIONS: list[Rule | Custom] = [
    custom("Cast", "", lower=at_input),
    op(
        "Cast",
        "Eltwise",
        Guard(
            "only booleans are supported by this layer", lower_if=lambda w: w.data.dtype != D.BOOL
        ),
        RequireAttr("to", int(D.BOOL)),
        RequireKey("operation", "not_equal"),
        Detail(write=compare_with_zero, names=("saturate", "round_mode")),
        lower_only=True,
    ),
    op("Identity", "Convert", OF_ONE_TYPE, ignore("precision"), lift_only=True),
    op("Cast", "Convert", PRECISION),
    op("Identity", "Squeeze", NO_AXES, SQUEEZE_ALL, lower_only=True, example_inputs="i32:"),
    op("Identity", "Reshape", ToPort(), lower_only=True, example_inputs="i32:2,3"),
    op("Identity", "Copy", ignore("precision"), lift_only=True),
    op("Where", "Select", CHOSEN),
]

RULES = [*POWER, *SCALE_SHIFT, *ELTWISE, *ACTIVATIONS, *CONVERSIONS]
