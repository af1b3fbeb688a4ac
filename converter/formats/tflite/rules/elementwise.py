"""Arithmetic, comparisons, activations and casts."""

from __future__ import annotations

from functools import reduce

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.lite.elementwise import (
    FUNCTIONS,
    INVERSE_ROOT,
    SLOPES,
    XOR,
    Bounds,
    alias_of_data,
)
from converter.formats.lite.fields import REALS, WHOLE, Ordered
from converter.formats.lite.quantization import FLOATS
from converter.formats.tflite.codec import LiteTensor
from converter.formats.tflite.kernels import is_unscaled
from converter.formats.tflite.rules.context import NARROW, LiftContext, LowerContext
from converter.formats.tflite.rules.fields import FusedActivation, OneScale, data, largest_below
from converter.formats.tflite.rules.signal import NO_PAIRS, part
from converter.formats.tflite.tensors import (
    COMPLEX,
    NUMBERS,
    is_quantized,
    type_of,
    zero_points,
)
from converter.graph.build import Builder
from converter.graph.infer import rank_of, shape_of
from converter.graph.value import Value, producer_if, producer_operand, type_name
from converter.mapping.codecs import enum
from converter.mapping.fields import ONE_TYPE, TWO, Attr, Field, Guard, ImpliedAttrs, RequireAttr
from converter.mapping.rules import Custom, Rule, custom, op, ops

D = ir.DataType


PART = 256  # of 1, to which kernels round the real numbers of 8 bits that they compare


class Compared(Field):
    """Operands of comparisons. Kernels compare quantized values as real numbers rounded to
    multiples of 1/256, halves away from zero, which distinguishes neighboring values unless their
    scale is smaller. A scale of 1 or more crashes the process. The order of 16-bit values is that
    of the quantized values themselves (`is_unscaled`).


    Source: tensorflow/lite/kernels/internal/reference/comparisons.h.
    """

    def lift(self, r: LiftContext) -> None:
        tensors = list(map(r.tensor, range(len(r.layer.inputs))))
        if not all(map(is_quantized, tensors)) or data(r).dtype not in FLOATS:
            return
        pairs = {(t.scales[0], int(zero_points(t)[0])) for t in tensors}
        if len(pairs) == 1 and min(pairs)[0] * PART >= 1:
            return
        for i, tensor in enumerate(tensors):
            parts = parts_of(r, i, tensor)
            half = r.b.like(parts, 0.5)
            r.set_input(i, r.b.Sign(parts) * r.b.Floor(r.b.Abs(parts) + half))

    def lower(self, w: LowerContext) -> None:
        if not w.quantized:
            return
        values = [w.real(v) for v in w.node.inputs if v is not None]
        scales = [w.scale(v).single for v in values]
        least = 0 if is_unscaled(w.layer.kind, values[0].dtype or D.FLOAT) else 1 / PART
        if len(set(scales)) > 1 or not least <= scales[0][0] < 1:
            raise MappingError("no kernel compares quantized data of these scales")


def parts_of(r: LiftContext, index: int, tensor: LiteTensor) -> Value:
    """Return the real numbers of an input in multiples of 1/256; 16-bit ones do not fit into
    float32.
    """
    if type_of(tensor) != D.INT16:
        return r.input(index) * np.float32(PART)
    stored = r.b.Cast(r.stored(index), to=D.DOUBLE) - float(zero_points(tensor)[0])
    return stored * (float(np.float32(tensor.scales[0])) * PART)


def have_one_shape(w: LowerContext) -> bool:
    """Return whether there are several operands, all of one known shape."""
    shapes = [None if v is None else shape_of(v) for v in w.node.inputs]
    return len(shapes) > 1 and None not in shapes and len(set(shapes)) == 1


ALIKE = Guard("at least two operands of one static shape are needed", lower_if=have_one_shape)


def added(r: LiftContext) -> None:
    """Add integers two at a time: the last one to the sum of the others."""
    total, *others = (r.input(i) for i in range(len(r.layer.inputs)))
    for value in others[:-1]:
        total = total + value
    r.set_inputs(total, others[-1] if others else r.b.like(total, 0))


def floor_modulus(r: LiftContext) -> None:
    """Compute x - floor(x / y) * y, which has the sign of the divisor."""
    x, y = data(r), r.input(1)
    rest = r.b.Mod(x, y, fmod=1)
    other = (rest < r.b.like(rest, 0)) ^ (y < r.b.like(y, 0))
    nonzero = ~r.b.Equal(rest, r.b.like(rest, 0))
    r.set_inputs(other & nonzero, rest + y, rest)


def condition_of_rows(r: LiftContext) -> None:
    """Read a condition of one axis, which selects rows."""
    rank = rank_of(r.input(1))
    if rank_of(r.data) == 1 and rank is not None and rank > 1:
        r.data = r.b.Unsqueeze(r.data, list(range(1, rank)))


def exclusive_or(r: LiftContext) -> None:
    """Write Xor; booleans have a different operator than integers."""
    r.node.op = "Xor" if r.data.dtype == D.BOOL else "BitwiseXor"


def divisors_of_shift(r: LiftContext) -> None:
    """The quotient by a power of two, rounded down; amounts end at the width of the type.

    It is divided twice, by powers that the type holds.
    """
    b, x = r.b, r.data
    kind = np.dtype((x.dtype or D.INT32).numpy())
    most = 8 * kind.itemsize - (kind.kind == "i")
    amount = r.cast(r.input(1), D.FLOAT)
    amount = b.Clip(amount, b.like(amount, 0), b.like(amount, most))
    half = b.Floor(amount * b.like(amount, 0.5))
    first, second = (
        b.Cast(b.like(amount, 2) ** n, to=x.dtype or D.INT32) for n in (half, amount - half)
    )
    r.set_inputs(b.FloorDiv(x, first), second)


def truncated(x: Value, r: LiftContext, wanted: D) -> Value:
    """Clamp floats to the bounds of an integer type. NaN becomes 0 in a type whose numbers are all
    representable as floats, and the largest number in a wider one.
    """
    b, limits = r.b, np.iinfo(wanted.numpy())
    highest = largest_below(float(limits.max), (x.dtype or D.FLOAT).numpy())
    inside = b.Clip(x, b.like(x, float(limits.min)), b.like(x, highest))
    y = b.Cast(inside, to=wanted)
    if limits.bits <= 16:
        return b.Where(b.IsNaN(x), b.like(y, 0), y)
    return b.Where(~(x <= b.like(x, highest)), b.like(y, limits.max), y)


class ResultType(Field):
    """The type of the result; a float is clamped to the range of an integer type."""

    names = ("to",)

    def lift(self, r: LiftContext) -> None:
        source, target = r.tensor(0), r.result()
        x, wanted = data(r), type_of(target)
        if (source.type in COMPLEX) != (target.type in COMPLEX):
            if target.type in COMPLEX:
                real = r.cast(x, wanted)
                r.forwarded = [r.b.Unsqueeze(r.b.Concat(real, axis=-1), [-1])]
                zero = r.b.Mul(r.forwarded[0], r.b.like(r.forwarded[0], 0))
                r.forwarded = [r.b.Concat(r.forwarded[0], zero, axis=-1)]
                return
            x = part(r, 0)
            r.data = x
        r.set(to=int(wanted))
        floats = (D.FLOAT, D.FLOAT16, D.BFLOAT16, D.DOUBLE)
        if wanted.is_integer() and x.dtype in floats:
            if wanted.bitwidth < 8:
                raise MappingError(
                    f"storing floats as {type_name(wanted)} is not supported", "X202"
                )
            r.forwarded = [truncated(x, r, wanted)]

    def lower(self, w: LowerContext) -> None:
        """Cast numbers rounded to half precision back to float32: no kernel supports float16."""
        have, want = w.data.dtype or D.FLOAT, D(w.attr("to"))
        types = [NARROW.get(have, have), NARROW.get(want, want)]
        keys = ("in_data_type", "out_data_type")
        if have == D.INT4:
            self.four_bits(w, want)
            types[1] = D.FLOAT
        elif want in (D.FLOAT16, D.BFLOAT16):
            half = w.exact(w.result("half", want))
            w.after_emit(lambda: w.put("CAST", half, in_data_type=NUMBERS[want], out_data_type=0))
            types[1] = want
        if not set(types) <= NUMBERS.keys():
            raise MappingError(f"CAST does not support {types[0].name} to {types[1].name}")
        w.layer.attrs |= {k: NUMBERS[d] for k, d in zip(keys, types, strict=True)}

    def four_bits(self, w: LowerContext, want: D) -> None:
        """Convert 4-bit integers to float32 only, which represents them and every half exactly."""
        if NARROW.get(want, want) != D.FLOAT:
            whole = w.result("whole", D.FLOAT)
            types = {"in_data_type": NUMBERS[D.FLOAT], "out_data_type": NUMBERS[want]}
            w.after_emit(lambda: w.put("CAST", whole, **types))


def same_type(w: LowerContext) -> None:
    """Return whether a cast is between types that are one type in the format."""
    source, result = w.data, w.out
    have, want = (v.dtype or D.FLOAT for v in (source, result))
    rounds = want in (D.FLOAT16, D.BFLOAT16) and have != want
    if w.quantized or rounds or NARROW.get(have, have) != NARROW.get(want, want):
        raise no_match("only a Cast between equal types is supported by this rule")
    w.alias(result, source)


def of_root(w: LowerContext) -> bool:
    """Return whether the data are a square root."""
    return producer_if(w.data, "Sqrt") is not None


def operand_of_root(w: LowerContext) -> None:
    """Return the operand of the root in 1 / sqrt(x), where the root is a separate operator of the
    graph.
    """
    w.place(0, producer_operand(w.data, "Sqrt"))


def of_difference(w: LowerContext) -> bool:
    """Return whether both operands are the same difference of floats."""
    a, b = w.data, w.input(1)
    return a is b and producer_if(a, "Sub") is not None and a.dtype in FLOATS


def operands_of_difference(w: LowerContext) -> None:
    """Read a difference that is multiplied by itself."""
    node = w.data.producer()
    assert node is not None
    w.layer.inputs = list(node.inputs)


def angle(b: Builder, y: Value, x: Value) -> tuple[Value, Value, Value]:
    """Compute the angle of the point (x, y): Atan of the ratio that is at most 1, and the quadrant.
    Both ratios are computed, and one is selected.
    """
    zero, half_turn = b.like(x, 0), b.like(x, float(np.pi))
    steep = b.Abs(y) > b.Abs(x)
    over, under = b.Where(steep, x, y), b.Where(steep, y, x)
    nowhere = b.Equal(under, zero)
    turn = b.Atan(over / b.Where(nowhere, b.like(x, 1), under))
    quarter = b.like(x, float(np.pi / 2))
    down = b.Where(y < zero, -quarter, quarter)
    back = b.Where(y < zero, -half_turn, half_turn)
    flat = b.Where(x < zero, turn + back, turn)
    return steep, down - turn, flat


UNSIGNED = {1: D.UINT8, 2: D.UINT16, 4: D.UINT32, 8: D.UINT64}  # by their bytes


def other_bits(r: LiftContext) -> None:
    """Reinterpret elements as another width: split them along a last axis, the lowest bits first,
    or join them.
    """
    x, wanted = data(r), type_of(r.result())
    have, want = (np.dtype(t.numpy()).itemsize for t in (x.dtype or D.FLOAT, wanted))
    r.set(to=int(wanted))
    if have != want:
        bits = r.b.BitCast(x, to=int(UNSIGNED[have]))
        r.data = split_bits(r, bits, have, want) if have > want else join_bits(r, bits, have, want)


def split_bits(r: LiftContext, x: Value, have: int, want: int) -> Value:
    """Return the parts of `want` bytes of each element, along a new last axis."""
    b, kind = r.b, UNSIGNED[have].numpy()
    mask = np.asarray((1 << 8 * want) - 1, kind)
    shifted = (
        b.BitShift(x, np.asarray(8 * want * i, kind), direction="RIGHT")
        for i in range(have // want)
    )
    parts = (b.Unsqueeze(b.BitwiseAnd(s, mask), [-1]) for s in shifted)
    return b.Cast(b.Concat(*parts, axis=-1), to=UNSIGNED[want])


def join_bits(r: LiftContext, x: Value, have: int, want: int) -> Value:
    """Return elements of `want` bytes, whose parts are along the last axis."""
    b, count, wide = r.b, want // have, UNSIGNED[want]
    if r.rank(x) < 1 or r.static(x)[-1] != count:
        raise MappingError(f"the last axis must have {count} elements", "R105")
    parts = (b.Cast(b.Gather(x, i, axis=-1), to=wide) for i in range(count))
    shifted = (
        b.BitShift(p, np.asarray(8 * have * i, wide.numpy()), direction="LEFT")
        for i, p in enumerate(parts)
    )
    return reduce(b.BitwiseOr, shifted)


def is_of_32_bits(w: LowerContext) -> bool:
    """Return whether both types have 32 bits in LiteRT, which stores wider numbers in 32."""
    return {w.data.dtype, w.node.outputs[0].dtype} <= {D.FLOAT, D.INT32, D.UINT32}


RULES: list[Rule | Custom] = [
    *FUNCTIONS,
    *ops("Ceil=CEIL Cos=COS Relu=RELU Round=ROUND Sign=SIGN"),
    op("Elu", "ELU", RequireAttr("alpha", 1.0)),
    *ops("And=LOGICAL_AND Or=LOGICAL_OR"),
    op("Pow", "POW", ONE_TYPE),
    op("Equal", "EQUAL", Compared()),
    *ops(
        "Greater=GREATER GreaterOrEqual=GREATER_EQUAL Less=LESS LessOrEqual=LESS_EQUAL",
        Ordered(),
        Compared(),
    ),
    *ops("Max=MAXIMUM Min=MINIMUM", TWO, Ordered(), OneScale()),
    op("Equal", "NOT_EQUAL", Compared(), after_lift=lambda r, y: ~y, lift_only=True),
    XOR,
    custom("Identity", "", lower=alias_of_data),
    custom("Cast", "", lower=same_type),
    op(
        "Mul",
        "SQUARED_DIFFERENCE",
        Guard(
            "only the square of a difference is supported by this operator", lower_if=of_difference
        ),
        before_lower=operands_of_difference,
        lower_only=True,
        example_inputs="Sub(2,3;2,3) $0",
    ),
    op(
        "Reciprocal",
        "RSQRT",
        Guard(
            "only the reciprocal of a square root is supported by this operator", lower_if=of_root
        ),
        before_lower=operand_of_root,
        lower_only=True,
        example_inputs="Sqrt(2,3)",
    ),
    *ops("Add=ADD Sub=SUB Div=DIV", FusedActivation()),
    op("Mul", "MUL", NO_PAIRS, FusedActivation()),
    op("Div", "FLOOR_DIV", REALS, after_lift=lambda r, y: r.b.Floor(y), lift_only=True),
    op("netconv::FloorDiv", "FLOOR_DIV", WHOLE, example_inputs="i32:2,3 i32:2,3"),
    op("Mod", "FLOOR_MOD", WHOLE, RequireAttr("fmod", 0), example_inputs="i32:2,3 i32:2,3"),
    op("Where", "FLOOR_MOD", REALS, before_lift=floor_modulus, lift_only=True),
    op("Sum", "ADD_N", REALS, ALIKE),
    op("Add", "ADD_N", WHOLE, before_lift=added, lift_only=True),
    op("Mul", "SQUARE", before_lift=lambda r: r.set_input(1, data(r)), lift_only=True),
    op("Sub", "SQUARED_DIFFERENCE", after_lift=lambda r, y: y * y, lift_only=True),
    INVERSE_ROOT,
    op("Clip", "RELU6", Bounds(0, 6), example_inputs="2,3 =[0] =[6]"),
    op("Clip", "RELU_N1_TO_1", Bounds(-1, 1), example_inputs="2,3 =[-1] =[1]"),
    op("Clip", "RELU_0_TO_1", Bounds(0, 1), example_inputs="2,3 =[0] =[1]"),
    op("LeakyRelu", "LEAKY_RELU", Attr("alpha", kind=float)),
    op("Gelu", "GELU", Attr("approximate", kind=enum({"none": False, "tanh": True}))),
    SLOPES,
    op("Where", "SELECT", before_lift=condition_of_rows, lift_only=True),
    op("Where", "SELECT_V2", OneScale()),
    op("BitwiseXor", "BITWISE_XOR", before_lift=exclusive_or, example_inputs="i32:2,3 i32:2,3"),
    op("netconv::FloorDiv", "RIGHT_SHIFT", before_lift=divisors_of_shift, lift_only=True),
    op(
        "BitShift",
        "RIGHT_SHIFT",
        RequireAttr("direction", "RIGHT"),
        lower_only=True,
        example_inputs="u8:2,3 u8:2,3",
    ),
    op(
        "Cast",
        "CAST",
        ResultType(),
        ImpliedAttrs(("saturate", "round_mode")),
        example_inputs="i32:2,3",
    ),
    op(
        "netconv::BitCast",
        "BITCAST",
        Guard(
            "only 32-bit numbers are supported by this operator",
            lower_if=is_of_32_bits,
        ),
        ImpliedAttrs(("to",)),
        lower_only=True,
        example_inputs="2,3",
    ),
    op("netconv::BitCast", "BITCAST", before_lift=other_bits, lift_only=True),
    op(
        "Where",
        "ATAN2",
        before_lift=lambda r: r.set_inputs(*angle(r.b, data(r), r.input(1))),
        lift_only=True,
    ),
    op(
        "Expand",
        "ZEROS_LIKE",
        before_lift=lambda r: r.set_inputs(r.b.like(data(r), 0), r.b.Shape(data(r))),
        lift_only=True,
    ),
]
