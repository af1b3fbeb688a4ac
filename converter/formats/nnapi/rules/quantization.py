"""Casts, and conversions between quantized values and real numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.lite.quantization import ATTRIBUTES, Quantization
from converter.formats.nnapi.collector import BYTES, NARROW, one_scale
from converter.formats.nnapi.quantization import DATA_TYPES
from converter.formats.nnapi.rules.context import (
    LiftContext,
    LowerContext,
    Stored,
    scale_and_zero,
)
from converter.formats.nnapi.table import Array, Operand
from converter.graph.infer import constant, evaluate, known
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.sizes import demand_small
from converter.mapping.fields import Detail, Field, Guard
from converter.mapping.rules import Custom, Rule, custom, op

DT = ir.DataType
CASTABLE = (DT.FLOAT, DT.FLOAT16, DT.INT32, DT.UINT8)


def types_of(w: LowerContext) -> tuple[DT | None, DT | None]:
    """Return the input and output type of a Cast, as they are written."""
    x, y = (v.dtype for v in (w.data, w.out))
    return NARROW.get(x or DT.FLOAT, x), NARROW.get(y or DT.FLOAT, y)


def fits_a_byte(x: ir.Value) -> bool:
    """Return whether a value was clamped just before, below and above."""
    low, high = False, False
    for _ in range(2):
        node = x.producer()
        if node is None or node.op_type not in ("Clip", "Max", "Min"):
            break
        if len(node.inputs) < 2 or node.inputs[0] is None:
            break
        limits = [known(v) for v in node.inputs[1:]]
        first, last = limits[0], limits[-1]
        low |= node.op_type != "Min" and first is not None and bool(np.all(first >= 0))
        bounded = node.op_type == "Min" or len(limits) == 2
        high |= bounded and last is not None and bool(np.all(last <= 255))
        x = node.inputs[0]
    return low and high


def read_result_type(r: LiftContext) -> None:
    """`to` <-> the type of the result.

    A cast into 8 bits saturates there (NeuralNetworksTypes.h, CAST), in ONNX it wraps around.
    """
    x, wanted = r.data, DATA_TYPES[r.output().type]
    r.set(to=int(wanted))
    if wanted in BYTES and x.dtype not in (DT.BOOL, wanted):
        limits = np.iinfo(wanted.numpy())
        wide = x if x.dtype != DT.UINT8 else r.cast(x, DT.INT32)
        bounds = [r.b.like(wide, n) for n in (limits.min, limits.max)]
        r.data = r.b.Clip(wide, *bounds)


def write_result_type(w: LowerContext) -> None:
    """Check that CAST supports both types, and that values fit a byte, which NNAPI saturates and
    ONNX wraps around.
    """
    have, want = types_of(w)
    if have not in CASTABLE or want not in CASTABLE:
        raise MappingError(
            f"a Cast from {have and have.name} to {want and want.name} is not supported"
        )
    if (have, want) == (DT.INT32, DT.UINT8) and not fits_a_byte(w.data):
        raise MappingError(
            "a Cast from more than 8 bits to 8 bits is not supported: NNAPI "
            "saturates, ONNX wraps around"
        )


RESULT_TYPE = Detail(
    read=read_result_type, write=write_result_type, names=("to", "saturate", "round_mode")
)


def write_boolean(w: LowerContext) -> None:
    """Write a number as a boolean (whether it is not 0), or a boolean as a number (1 or 0)."""
    have, want = types_of(w)
    if want != DT.BOOL:
        write_choice(w, have)
    elif have is None or have == DT.BOOL:
        raise no_match("only operators of constants are supported by this rule")
    else:
        w.set(a=w.stored(w.data), b=w.stored(zero(have)))


def write_choice(w: LowerContext, have: DT | None) -> None:
    """Select 1 where a boolean is true, 0 elsewhere."""
    y = w.writer.like(w.out)
    if y.type.dtype is None or have != DT.BOOL:
        raise MappingError("the Cast is not supported")
    demand_small(*y.dimensions)
    for name, number in (("a", 1), ("b", 0)):
        array = np.full(y.dimensions, number, y.type.dtype)
        w.layer.attrs[name] = w.writer.tensor(array, y.type, scale=y.scale, zero_point=y.zero_point)
    w.set(mask=w.stored(w.data))


BOOLEAN_VALUE = Detail(
    write=write_boolean,
    names=("to", "saturate", "round_mode"),
    inputs=(0,),
    keys=("mask", "a", "b"),
)


def zero(dtype: DT) -> ir.Value:
    """Return a constant 0 of a type."""
    tensor = LazyTensor(np.array(0, dtype.numpy()))
    made = ir.Value(name="zero", type=ir.TensorType(dtype), shape=ir.Shape([]))
    made.const_value = tensor
    return made


def demanded_scale(w: LowerContext) -> tuple[float, int]:
    """Return scale and zero point. Raises MappingError unless both are constant scalars."""
    found = one_scale(w.source)
    if found is None:
        raise MappingError("scale and zero point must be constant scalars")
    return found


class Scale(Field):
    """Scale and zero point <-> those of the operand that has the integers, a result or an input."""

    names = ATTRIBUTES
    inputs = (1, 2)

    def __init__(self, of_result: bool) -> None:
        self.of_result = of_result

    def lift(self, r: LiftContext) -> None:
        operand = r.output() if self.of_result else r.operand("input")
        if (channel := operand.channel_quant) is not None:
            r.set_inputs(r.data, np.array(channel.scales, np.float32))
            r.set(axis=channel.dim)
            return
        if not operand.scale:
            raise MappingError("the quantized data have no scale", "R110")
        x = r.cast(r.data, DT.FLOAT) if self.of_result else r.data
        found = Quantization((operand.scale,), (operand.zero_point,))
        r.set_inputs(x, *found.operands(DATA_TYPES[operand.type]))

    def lower(self, w: LowerContext) -> None:
        found = demanded_scale(w)
        if not self.of_result:
            operand: Operand = w.about(w.stored(w.data))
            if scale_and_zero(operand) != found:
                raise MappingError("the quantized data are read with several scales")


def write_integer_scale(w: LowerContext) -> None:
    """Dequantize 32-bit integers by a cast and a multiplication."""
    scale, _ = demanded_scale(w)
    source = w.stored(w.data)
    y = w.writer.like(w.out)
    real = w.writer.add(Operand(y.type, list(w.about(source).dimensions), f"{y.name}.real"))
    w.operation("CAST", real, input=source)
    factor = w.number([scale], real)
    w.set(a=real, b=factor, activation=0)


INTEGER_SCALE = Detail(
    write=write_integer_scale, names=ATTRIBUTES, inputs=(0, 1, 2), keys=("a", "b", "activation")
)


def constant_result(t: LowerContext) -> None:
    """Write an operation on constants as its result."""
    node = t.source
    arrays: list[Array | None] = [constant(v) for v in node.inputs]
    pairs = zip(node.inputs, arrays, strict=True)
    if t.quantized or any(v is not None and array is None for v, array in pairs):
        raise no_match("only operators of constants are supported by this rule")
    found = evaluate(node, arrays)
    if not found:
        raise no_match("the result has no constant value")
    t.constant_alias(t.node.outputs[0], found[0])


def same_type(t: LowerContext) -> None:
    """Return whether a cast is between types that NNAPI does not distinguish."""
    have, want = types_of(t)
    if t.quantized or have != want:
        raise no_match("a Cast of quantized data is not supported")
    t.alias(t.node.outputs[0], t.data)


def has_int32_data(w: LowerContext) -> bool:
    """Return whether the data are int32."""
    return w.data.dtype == DT.INT32


def is_plain(w: LowerContext) -> bool:
    """Return whether a cast reads bytes whose scale is 1 as real numbers, which is a
    dequantization.
    """
    if types_of(w) != (DT.UINT8, DT.FLOAT):
        return False
    operand = w.about(w.stored(w.data))
    return operand.scale == 1 and operand.zero_point == 0


BOOLEANS_ONLY = Guard(
    "only booleans are supported by this operation", lambda w: DT.BOOL in types_of(w)[:1]
)
TO_BOOLEAN = Guard(
    "only booleans are supported by this operation", lambda w: types_of(w)[1] == DT.BOOL
)

RULES: list[Rule | Custom] = [
    custom("Cast", "", lower=same_type),
    op(
        "Cast",
        "NOT_EQUAL",
        TO_BOOLEAN,
        Stored(),
        BOOLEAN_VALUE,
        lower_only=True,
        example_inputs="i32:2,3",
    ),
    op(
        "Cast",
        "SELECT",
        BOOLEANS_ONLY,
        Stored(),
        BOOLEAN_VALUE,
        lower_only=True,
        example_inputs="b:2,3",
    ),
    op(
        "Cast",
        "DEQUANTIZE",
        Guard("only integers without a scale are supported by this operation", is_plain),
        Stored(),
        RESULT_TYPE,
        lower_only=True,
        example_inputs="u8:2,3",
    ),
    op("Cast", "CAST", Stored(), RESULT_TYPE, example_inputs="i32:2,3"),
    custom("DequantizeLinear QuantizeLinear", "", lower=constant_result),
    op(
        "DequantizeLinear",
        "MUL",
        Guard("only int32 data are supported by this operation", has_int32_data),
        Stored(),
        INTEGER_SCALE,
        lower_only=True,
        example_inputs="i32:2,3 =[0.5]",
    ),
    op(
        "DequantizeLinear",
        "DEQUANTIZE",
        Stored(),
        Scale(False),
        example_inputs="u8:2,3 =[0.5] =u8:[3]",
    ),
    op("QuantizeLinear", "QUANTIZE", Stored(), Scale(True), example_inputs="2,3 =[0.5] =u8:[3]"),
]
