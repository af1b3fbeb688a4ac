"""Element-wise operations: arithmetic, comparisons, logic, bits, activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import words
from converter.formats.openvino.opset.codes import CODES
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext, element_type
from converter.formats.openvino.opset.rules.fields import (
    BROADCAST,
    HALF,
    computed,
    is_float,
)
from converter.graph.infer import constant, known, rank_of
from converter.graph.value import Value, producer_if
from converter.mapping.fields import (
    TWO,
    Attr,
    AttrInput,
    Detail,
    Field,
    Guard,
    ImpliedAttrs,
    RequireAttr,
    RequireKey,
    ignore,
)
from converter.mapping.node import Node
from converter.mapping.rules import op, ops
from converter.passes.promote_types import FLOAT8
from converter.passes.round_halves import may_round

T = ir.DataType


def of(what: str, holds: Callable[[ir.Value | None], bool]) -> Guard:
    """Return a condition for data of which `holds` is true."""
    return Guard(
        f"only {what} are supported", lambda w: holds(w.optional(0)), lambda r: holds(r.optional(0))
    )


def of_type(what: str, *dtypes: ir.DataType) -> Guard:
    """Return the condition that the data have one of these types."""
    return of(what, lambda v: v is not None and v.dtype in dtypes)


FLOATS = of("floating-point data", is_float)
INTEGERS = of("integers", lambda v: not is_float(v))
BOOLEANS = of_type("booleans", T.BOOL)
NUMBERS = of("numbers", lambda v: v is not None and v.dtype != T.BOOL)
SIGNED = of_type("signed integers", T.INT8, T.INT16, T.INT32, T.INT64)


# rounding division -------------------------------------------------------------------------------


def floor_rest(r: LiftContext, rest: Value) -> Value:
    """Compute the remainder with the sign of the divisor from the one with the sign of the
    dividend.
    """
    b, y, zero = r.b, r.input(1), r.b.like(rest, 0)
    other_sign = b.Xor(rest < zero, y < zero)
    inexact = ~b.Equal(rest, zero)
    return b.Where(inexact & other_sign, rest + y, rest)


# operands ----------------------------------------------------------------------------------------


def booleans_as_bytes(r: LiftContext) -> None:
    """Compare booleans, with false less than true, as bytes; ONNX does not compare them."""
    inputs = r.node.inputs
    for i, v in enumerate(inputs):
        if v is not None and v.dtype == T.BOOL:
            inputs[i] = r.cast(v, T.UINT8)


def convert_to_one_type(w: LowerContext) -> None:
    """Convert the operands of Power to one type; in ONNX the result has the type of the base."""
    x, y = w.data, w.input(1)
    if x.dtype == y.dtype or x.dtype is None or y.dtype is None:
        return
    if is_float(x) or not is_float(y):
        w.layer.inputs[1] = w.cast(y, x.dtype)
        return
    w.layer.inputs[0] = w.cast(x, y.dtype)
    power, own = w.result("power", y.dtype), element_type.lower(int(x.dtype))
    w.after_emit(lambda: w.put("Convert", power, destination_type=own))


def read_bounds(r: LiftContext) -> None:
    """Read the numbers min and max of Clamp. For integers they are rounded inwards and clamped to
    the range of the type.
    """
    x, low, high = r.input(0), r.attr("min", float), r.attr("max", float)
    if not is_float(x):
        if x.dtype is None or not x.dtype.is_integer():
            raise MappingError("bounds must be numeric", "R105")
        least, most = np.iinfo(x.dtype.numpy()).min, np.iinfo(x.dtype.numpy()).max
        low = least if low <= least else most if low >= most else math.ceil(low)
        high = most if high >= most else least if high <= least else math.floor(high)
    r.set_inputs(x, r.b.like(x, low), r.b.like(x, high))


def write_bounds(w: LowerContext) -> None:
    """Write constant bounds; the lower one is finite, as the runtime needs it."""
    bounds = []
    for index, unbounded in ((1, -math.inf), (2, math.inf)):
        array = known(w.optional(index))
        if w.has(index) and array is None:
            raise MappingError("bounds must be constant")
        bounds.append(unbounded if array is None else float(array.reshape(-1)[0]))
    low, high = bounds
    if not low <= high:
        raise MappingError("the lower bound must not exceed the upper bound")
    least = -float(np.finfo(np.float32).max)
    w.set(min=least if low == -math.inf else low, max=high)


BOUNDS = Detail(read=read_bounds, write=write_bounds, keys=("min", "max"), inputs=(1, 2))


def lower_bound_first(w: LowerContext) -> None:
    """Write the lower bound as a Maximum before the operator."""
    x, low, high = w.data, w.optional(1), w.input(2)
    if low is not None:
        x = w.emit("Maximum", x, low, auto_broadcast="numpy")
    w.set_inputs(x, high)


class Slope(Field):
    """A slope of rank 1 whose size is that of axis 1 belongs to the channels.

    Every other slope broadcasts as usual.
    """

    def lift(self, r: LiftContext) -> None:
        x, slope = r.input(0), r.input(1)
        count = slope.shape[0] if slope.shape is not None and len(slope.shape) == 1 else 1
        if count != 1 and r.rank(x) > 2:
            slope = self._of_channels(r, x, slope, count if isinstance(count, int) else None)
        elif rank_of(x) == 0 and rank_of(slope) != 0:
            slope = r.b.Reshape(slope, np.zeros(0, np.int64))
        r.node.inputs[1] = slope

    def _of_channels(self, r: LiftContext, x: Value, slope: Value, count: int | None) -> Value:
        assert x.shape is not None
        channels = x.shape[1] if isinstance(x.shape[1], int) else None
        if channels is None and count != x.shape[-1]:
            channels = count
        if count is None or channels is None:
            message = "whether the slope belongs to the channels depends on a dynamic dimension"
            raise MappingError(message, "X203")
        same = count == channels
        return r.b.Reshape(slope, [-1, *[1] * (r.rank(x) - 2)]) if same else slope

    def lower(self, w: LowerContext) -> None:
        slope, rank = w.input(1), w.rank()
        one = slope.shape is not None and len(slope.shape) == 1 and slope.shape[0] != 1
        if one and rank != 1:
            w.layer.inputs[1] = w.reshape(slope, [1] * (rank - 1) + [-1])


# activations that are several operators ----------------------------------------------------------


def with_beta(r: LiftContext) -> None:
    """Read Swish, x * sigmoid(beta * x); the operator is the Sigmoid."""
    x, beta = r.input(0), r.optional(1)
    r.set_inputs(x if beta is None else x * beta)
    r.after_first(lambda y: x * y)


def selu_of_values(r: LiftContext) -> None:
    """Read a Selu with computed alpha and scale; the operator is the Exp."""
    x, alpha, scale = r.input(0), r.input(1), r.input(2)
    r.set_inputs(x)
    r.after_first(lambda y: scale * r.b.Where(x > 0, x, alpha * (y - 1)))


def hard_sigmoid_of_values(r: LiftContext) -> None:
    """Read a HardSigmoid with computed alpha and beta; the operator is the Clip."""
    b, x = r.b, r.input(0)
    line = r.input(1) * x + r.input(2)
    r.set_inputs(line, b.like(x, 0), b.like(x, 1))


def half_away(r: LiftContext, sign: Value) -> Value:
    """Round of half_away_from_zero; the operator is the Sign."""
    b, x = r.b, r.input(0)
    size = b.Abs(x)
    floor = b.Floor(size)
    up = size - floor >= 0.5
    assert x.dtype is not None
    return sign * (floor + b.Cast(up, to=x.dtype))


def _all_known(r: LiftContext, *positions: int) -> bool:
    return all(constant(r.optional(i)) is not None for i in positions)


LOWER_BOUND = Guard(
    "only a lower bound without an upper bound is supported by this rule",
    lower_if=lambda w: w.has(1) and not w.has(2),
)
CONSTANTS = Guard("the parameters must be constant", lift_if=lambda r: _all_known(r, 1, 2))


def compared_extreme(
    op_type: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any]
) -> tuple[ir.Node, float] | None:
    """Return the ReduceMax or ReduceMin that an Equal or IsInf compares with an infinity, and this
    one.

    The CPU plugin reduces a row of minus infinities to the lowest finite number (as of 2026.4), so
    it does not find the rows that a mask hides.
    """
    if op_type not in ("Equal", "IsInf"):
        return None
    for value in inputs:
        reduced = producer_if(value, "ReduceMax") or producer_if(value, "ReduceMin")
        if reduced is None or not is_float(value):
            continue
        infinity = -math.inf if reduced.op_type == "ReduceMax" else math.inf
        if op_type == "Equal":
            others = [known(v) for v in inputs if v is not value]
            found = [float(n.reshape(-1)[0]) for n in others if n is not None and n.size == 1]
        else:
            ends = (("detect_negative", -math.inf), ("detect_positive", math.inf))
            found = [end for name, end in ends if attributes.get(name, 1)]
        if infinity in found:
            return reduced, infinity
    return None


NO_EXTREME = Guard(
    "a ReduceMax or ReduceMin that is compared with infinity is not supported: "
    "the runtime reduces infinities to a finite number",
    lambda w: compared_extreme(w.node.op, w.node.inputs, w.node.attrs) is None,
)


UNARY = [
    *ops(
        "Abs Acos Asin Atan Ceil=Ceiling Cos Cosh Erf Exp Floor Log Neg=Negative Relu=ReLU "
        "Sigmoid Sign Sin Sinh Sqrt Tan Tanh Not=LogicalNot"
    ),
    *ops("Acosh Asinh Atanh Softplus=SoftPlus Mish HardSwish=HSwish", since=4),
    *ops("Softsign=SoftSign", since=9),
    *ops("IsNaN", since=10),
    op("Identity", "Identity", since=16),
    op("netconv::ErfInv", "ErfInv", since=17),
    op("Elu", "Elu", Attr("alpha", kind=float)),
    op(
        "IsInf",
        "IsInf",
        NO_EXTREME,
        Attr("detect_negative", kind=bool, default=1),
        Attr("detect_positive", kind=bool, default=1),
        since=10,
    ),
    op("IsInf", "IsFinite", after_lift=lambda r, y: finite(r, y), lift_only=True),
    op("Round", "Round", FLOATS, RequireKey("mode", "half_to_even", True, str), since=5),
    op(
        "Sign",
        "Round",
        FLOATS,
        RequireKey("mode", "half_away_from_zero", kind=str),
        after_lift=half_away,
        lift_only=True,
    ),
    op("Identity", "Round", INTEGERS, ignore("mode"), lift_only=True, example_inputs="i32:2,3"),
]


def finite(r: LiftContext, infinite: Value) -> Value:
    """Return whether elements are neither infinite nor NaN."""
    return ~(infinite | r.b.IsNaN(r.input(0)))


ACTIVATIONS = [
    op("Sigmoid", "Swish", before_lift=with_beta, lift_only=True),
    op(
        "Selu",
        "Selu",
        CONSTANTS,
        AttrInput("alpha", 1, float, None, (1,)),
        AttrInput("gamma", 2, float, None, (1,)),
    ),
    op("Exp", "Selu", before_lift=selu_of_values, lift_only=True),
    op(
        "HardSigmoid",
        "HardSigmoid",
        CONSTANTS,
        AttrInput("alpha", 1, float, None),
        AttrInput("beta", 2, float, None),
    ),
    op("Clip", "HardSigmoid", before_lift=hard_sigmoid_of_values, lift_only=True),
    op(
        "HardSigmoid",
        "HSigmoid",
        RequireAttr("alpha", 1 / 6),
        RequireAttr("beta", 0.5),
        lift_only=True,
    ),
    op("Clip", "Clamp", FLOATS, BOUNDS, example_inputs="2,3 = ="),
    op("Clip", "Clamp", INTEGERS, BOUNDS, example_inputs="i32:2,3 =i32: =i32:", lift_only=True),
    op(
        "Clip",
        "Minimum",
        BROADCAST,
        before_lower=lower_bound_first,
        lower_only=True,
        example_inputs="2,3 f32: f32:",
    ),
    op("Clip", "Maximum", LOWER_BOUND, BROADCAST, lower_only=True, example_inputs="2,3 f32:"),
    op("PRelu", "PReLU", Slope()),
    op("LeakyRelu", "PReLU", AttrInput("alpha", 1, float, None, (1,)), lower_only=True),
    op(
        "Gelu",
        "Gelu",
        Attr(
            "approximate", "approximation_mode", words("tanh", {"none": "erf"}, upper=True), "none"
        ),
        since=2,
    ),
]

NO_TEXTS = Guard(
    "comparing strings is not supported by the runtime", lambda w: w.data.dtype != T.STRING
)


# m_pythondiv asks for quotients of signed integers that are rounded down. The runtime does so when
# it folds constants; its CPU plugin rounds to zero independent of the attribute (as of 2026.4).
ROUNDING = ignore("m_pythondiv")
FOLDED = Guard("only constants are supported by this rule", lift_if=lambda r: _all_known(r, 0, 1))
COMPUTED = Guard(
    "only computed data are supported by this rule", lift_if=lambda r: not _all_known(r, 0, 1)
)
UNSIGNED = of_type("unsigned integers", T.UINT8, T.UINT16, T.UINT32, T.UINT64)

BINARY = [
    *ops("Add Sub=Subtract Mul=Multiply And=LogicalAnd Or=LogicalOr Xor=LogicalXor", BROADCAST),
    op("Xor", "Xor", BROADCAST, lift_only=True),
    op("Equal", "Equal", NO_TEXTS, NO_EXTREME, BROADCAST),
    op("Equal", "NotEqual", BROADCAST, after_lift=lambda r, y: ~y, lift_only=True),
    *ops(
        "Less LessOrEqual=LessEqual Greater GreaterOrEqual=GreaterEqual",
        BROADCAST,
        Detail(read=booleans_as_bytes),
    ),
    *ops("And=BitwiseAnd Or=BitwiseOr Xor=BitwiseXor", BOOLEANS, BROADCAST, lift_only=True),
    op("Not", "BitwiseNot", BOOLEANS, lift_only=True),
    *ops("BitwiseAnd BitwiseOr BitwiseXor", NUMBERS, BROADCAST, since=13),
    op("BitwiseNot", "BitwiseNot", NUMBERS, since=13),
    *ops("Max=Maximum Min=Minimum", NUMBERS, TWO, BROADCAST),
    *ops(
        "Or=Maximum And=Minimum", BOOLEANS, BROADCAST, lift_only=True, example_inputs="b:2,3 b:2,3"
    ),
    op("Div", "Divide", FLOATS, BROADCAST, ROUNDING),
    op(
        "netconv::FloorDiv",
        "Divide",
        SIGNED,
        FOLDED,
        BROADCAST,
        RequireKey("m_pythondiv", 1, True, bool),
        lift_only=True,
        example_inputs="=i32:2,3 =i32:2,3",
    ),
    op(
        "Div",
        "Divide",
        INTEGERS,
        BROADCAST,
        RequireKey("m_pythondiv", 0, kind=bool),
        example_inputs="i32:2,3 i32:2,3",
    ),
    op(
        "Div",
        "Divide",
        SIGNED,
        COMPUTED,
        BROADCAST,
        RequireKey("m_pythondiv", 1, True, bool),
        lift_only=True,
        example_inputs="i32:2,3 i32:2,3",
    ),
    op(
        "Div",
        "Divide",
        UNSIGNED,
        BROADCAST,
        ROUNDING,
        lift_only=True,
        example_inputs="u8:2,3 u8:2,3",
    ),
    op("Mod", "Mod", RequireAttr("fmod", 1), BROADCAST),
    op("Mod", "FloorMod", INTEGERS, RequireAttr("fmod", 0), BROADCAST),
    op(
        "Mod",
        "FloorMod",
        FLOATS,
        RequireAttr("fmod", 1),
        BROADCAST,
        after_lift=floor_rest,
        lift_only=True,
    ),
    op("Pow", "Power", BROADCAST, Detail(write=convert_to_one_type)),
    op(
        "Sub",
        "SquaredDifference",
        BROADCAST,
        after_lift=lambda r, d: d * d,
        lift_only=True,
    ),
]

# types -------------------------------------------------------------------------------------------


def converted(r: LiftContext, to: ir.DataType) -> None:
    """Return a Cast between types of computation; the value itself if it has the type already.

    Half precision is computed in float32: a cast to it rounds numbers that are not half already, a
    cast from it does nothing.
    """
    x, wide = r.input(0), computed(to)
    if may_round(x.dtype, to) and x.meta.get(HALF) != to:
        x = r.b.Cast(x, to=to)
    r.node.inputs, r.node.attrs["to"] = [x], int(wide)
    if wide in FLOAT8:
        r.node.attrs["saturate"] = 0
    if x.dtype == wide:
        r.forwarded = [x]


class Destination(Field):
    """The type to convert to."""

    names: tuple[str, ...] = ("to",)
    keys = ("destination_type",)

    def lift(self, r: LiftContext) -> None:
        if (name := r.attr("destination_type", str)) in CODES:
            raise MappingError(f"a conversion to {name} is not supported")
        converted(r, T(r.attr("destination_type", element_type)))

    def lower(self, w: LowerContext) -> None:
        w.layer.attrs["destination_type"] = element_type.lower(self.type_of(w))

    def type_of(self, w: LowerContext) -> int:
        """Return the type to which the node casts."""
        return int(w.attr("to"))


def saturates(node: Node) -> bool:
    """Return whether a Cast gives the greatest number of a type for greater ones; OpenVINO's
    conversion gives infinity or NaN.
    """
    x, to = node.inputs[0], node.outputs[0].dtype
    small = to in FLOAT8 and x is not None and x.dtype != to
    return small and node.attrs.get("saturate", 1) == 1


class SameType(Destination):
    """A conversion to the operand's own type, which has no effect."""

    names = ()

    def type_of(self, w: LowerContext) -> int:
        return int(w.data.dtype or T.FLOAT)


def to_type_of_second(r: LiftContext) -> None:
    """Cast to the type of the second operand, or to float16 if the file declares that for it."""
    like = r.input(1)
    if like.dtype is None:
        raise MappingError("the type of input 1 is unknown")
    converted(r, like.meta.get(HALF, like.dtype))


def to_common_type(r: LiftContext) -> None:
    """Cast both operands to their common type; the operator is the Cast of the first.

    With `pytorch_scalar_promotion` a scalar of the same kind does not widen a tensor.
    """
    x, y = r.input(0), r.input(1)
    if x.dtype is None or y.dtype is None:
        raise MappingError("the types of the inputs are unknown")
    target = r.attr("u64_integer_promotion_target", element_type, int(T.FLOAT))
    scalars = r.attr("pytorch_scalar_promotion", bool, False)
    to = int(_common(r, x.dtype, y.dtype, scalars, computed(T(target))))
    r.node.inputs, r.node.attrs["to"], r.outputs = [x], to, 1
    r.after_emit(lambda results: [*results, r.b.Cast(y, to=to)])


def _common(
    r: LiftContext, x: ir.DataType, y: ir.DataType, scalars: bool, u64: ir.DataType
) -> ir.DataType:
    if x == y:
        return x
    kinds = ["f" if t.is_floating_point() else t.numpy().kind for t in (x, y)]
    order = [{"b": 0, "u": 1, "i": 1, "f": 2}[k] for k in kinds]
    if scalars and (is_scalar := r.rank() == 0) != (r.rank(1) == 0):
        tensor, at = (y, 1) if is_scalar else (x, 0)
        if order[at] == max(order):
            return tensor
    if order[0] != order[1]:
        return x if order[0] > order[1] else y
    if kinds[0] == kinds[1]:
        if kinds[0] == "f" and x.bitwidth == y.bitwidth:
            return T.FLOAT  # two half types
        return x if x.bitwidth > y.bitwidth else y
    common = np.promote_types(x.numpy(), y.numpy())  # with a sign, and without
    return T.from_numpy(common) if common.kind == "i" else u64


# shifts ------------------------------------------------------------------------------------------

BITS = {T.INT8: T.UINT8, T.INT16: T.UINT16, T.INT32: T.UINT32, T.INT64: T.UINT64}


def shift_bits(r: LiftContext) -> None:
    """Shift signed numbers by their bits, to the right with copies of the sign; ONNX only shifts
    unsigned numbers.
    """
    x, n, own = r.input(0), r.input(1), r.input(0).dtype
    if own is None or own not in BITS:
        return
    negative = None
    if r.node.attrs["direction"] == "RIGHT":
        negative = x < 0

    def transposed(v: Value) -> Value:
        return v if negative is None else r.b.Where(negative, r.b.BitwiseNot(v), v)

    r.node.inputs = [r.cast(v, BITS[own]) for v in (transposed(x), n)]
    r.after_first(lambda y: transposed(r.cast(y, own)))


STRINGS = Guard(
    "conversions between strings and numbers are not supported",
    lower_if=lambda w: (w.data.dtype == T.STRING) == (w.attr("to") == int(T.STRING)),
)
UNSATURATED = Guard(
    "numbers that become the greatest one of a type are not supported",
    lower_if=lambda w: not saturates(w.node),
)

TYPES = [
    op(
        "Cast",
        "Convert",
        STRINGS,
        UNSATURATED,
        Destination(),
        ImpliedAttrs(("saturate",)),
        ignore("no_clamp", "use_rounding"),
    ),
    op("Cast", "ConvertLike", before_lift=to_type_of_second, lift_only=True),
    op(
        "Cast",
        "ConvertPromoteTypes",
        ignore("promote_unsafe", "pytorch_scalar_promotion", "u64_integer_promotion_target"),
        before_lift=to_common_type,
        lift_only=True,
    ),
    op("Identity", "Convert", SameType(), until=15, lower_only=True),
]
SHIFTS = [
    op(
        "BitShift",
        f"Bitwise{word}Shift",
        RequireAttr("direction", word.upper()),
        BROADCAST,
        Detail(read=shift_bits),
        since=15,
    )
    for word in ("Left", "Right")
]

RULES = [*UNARY, *ACTIVATIONS, *BINARY, *TYPES, *SHIFTS]
