"""Field kinds of the rows of Core ML: operands that are numbers of the layer, ranks, weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.coreml.neuralnetwork import operands as blobs
from converter.formats.coreml.neuralnetwork.collector import is_float, rank_of_value
from converter.formats.coreml.neuralnetwork.rules.context import LiftContext, LowerContext
from converter.graph.infer import rank_of, shape_of
from converter.mapping.codecs import Codec, Kind, is_single
from converter.mapping.fields import Detail, Field, FirstResult, Guard, InputType, any_type
from converter.record import record

T = ir.DataType
Value = ir.Value
ANY = any_type()
FIX = "fix the inputs with --inputs"
NOT = Codec(lambda v: int(not v), lambda v: not v)
FAR = 1 << 30  # "to the end": small enough for engines that compute limits as floats
INTEGERS = (T.INT64, T.INT32, T.INT8, T.UINT8, T.INT16, T.UINT16, T.UINT32)

ONE = Guard("exactly one input is needed", lift_if=lambda r: len(r.layer.inputs) == 1)
SEVERAL = Guard("several inputs are needed", lift_if=lambda r: len(r.layer.inputs) > 1)
NOTHING_MORE = FirstResult("only the first output is supported")
FLOATS = Guard("only floating-point data are supported", lambda w: is_float(w.out))
RANK_4 = Guard("only data of rank 4 are supported", lambda w: rank_of_value(w.data) == 4)


def of_type(*positions: int, dtype: T = T.INT64) -> InputType:
    """Convert indices and lengths to integers; all other operands of a row are floats."""
    return InputType(positions, dtype)


# numbers of the layer ----------------------------------------------------------------------------


@record
class ScalarOperand(Field):
    """A constant number as the second operand <-> `key` of the layer, which then has one input.

    `sign` -1: the layer holds the opposite. `either`: the number may be the first operand as well.
    """

    key: str
    sign: int = 1
    either: bool = False
    inputs = (1,)

    def __post_init__(self) -> None:
        self.keys = (self.key,)

    def lift(self, r: LiftContext) -> None:
        if len(r.layer.inputs) != 1:
            raise no_match("exactly one input is needed")
        r.set_input(1, np.array(self.sign * r.attr(self.key, float), np.float32))

    def lower(self, w: LowerContext) -> None:
        x, y = w.data, w.input(1)
        number = w.scalar(1) if len(w.node.inputs) == 2 else None
        if number is None and self.either and (number := w.scalar(0)) is not None:
            x, y = y, x
        if number is None or not fits(number, x, y):
            raise no_match("the second operand must be a constant number")
        w.layer.inputs, w.layer.attrs[self.key] = [x], self.sign * number


def fits(number: float, x: Value, y: Value) -> bool:
    """Return whether the layer can store the second operand as an attribute."""
    return is_single(number) and rank_of_value(y) <= max(rank_of_value(x), 1)


@record
class ConstOrInput(Field):
    """A constant input of the operator <-> a number or numbers of the layer; a computed one is an
    input of the layer.

    `shape`: of the operand, as required by the operator
    """

    index: int
    key: str
    kind: Kind = int
    dtype: Any = np.int64
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        self.keys = (self.key,)
        self.inputs = (self.index,)
        self.positions = (self.index,)

    def lift(self, r: LiftContext) -> None:
        value, dtype = r.optional(self.index), T.from_numpy(np.dtype(self.dtype))
        if value is None:
            found = np.array(r.attr(self.key, self.kind), self.dtype)
            value = r.b.const(found if self.shape is None else found.reshape(self.shape), self.key)
        elif self.shape is not None:
            value = blobs.with_shape(r.b, r.cast(value, dtype), self.shape)
        r.set_input(self.index, r.cast(value, dtype))

    def lower(self, w: LowerContext) -> None:
        found = w.known(self.index)
        if found is None:
            w.layer.inputs.append(w.input(self.index))
        else:
            whole = issubclass(self.kind, list)
            w.layer.attrs[self.key] = w.spell(found if whole else self.kind(found[0]), self.kind)


def truncate_result(w: LowerContext) -> None:
    """Truncate the layer's result for integers: sign(x) * floor(|x|)."""
    x = w.result("fraction", T.FLOAT)
    w.after_emit(lambda: truncate(w, x))


def truncate(w: LowerContext, x: Value, outputs: Sequence[Value] | None = None) -> None:
    """Return sign(x) * floor(|x|), as the results of the operator unless `outputs` are given."""
    shape = w.dims(x)
    size = w.emit("unary", x, shape=shape, type="ABS", scale=1.0)
    whole = w.emit("floor", size, shape=shape)
    sign = w.emit("sign", x, shape=shape)
    w.put("multiplyBroadcastable", sign, whole, outputs=outputs)


class OneType(InputType):
    """Operands from `first` on, converted to one type: their own if they agree, else float."""

    def __init__(self, first: int = 0) -> None:
        super().__init__(tuple(range(first, 64)), None)
        self.first = first

    def lift(self, r: LiftContext) -> None:
        inputs, first = r.node.inputs, self.first
        if len({v.dtype for v in inputs[first:] if v is not None}) > 1:
            inputs[first:] = [v and r.cast(v, T.FLOAT) for v in inputs[first:]]


# ranks -------------------------------------------------------------------------------------------


@record
class AsRank(Field):
    """An operand of exactly `rank` axes in the operator; the layer supports any number of leading
    axes.
    """

    rank: int = 4

    def lift(self, r: LiftContext) -> None:
        value, back = blobs.ranked(r.b, r.input(0), self.rank)
        r.data = value
        r.after_emit(lambda results: [back(results[0]), *results[1:]])


# weights -----------------------------------------------------------------------------------------


@record
class Weights(Field):
    """A constant input of the operator <-> weights of the layer.

    `shape(r)`   in the operator's order
    `flag`       the key that states whether there are any; then the input is optional
    """

    blob: str
    index: int
    shape: Callable[[LiftContext], Sequence[int]]
    flag: str = ""

    def __post_init__(self) -> None:
        self.blobs = (self.blob,)
        self.inputs = (self.index,)
        self.keys = (self.flag,) if self.flag else ()

    def lift(self, r: LiftContext) -> None:
        if not self.flag or r.attr(self.flag, bool):
            r.set_input(self.index, r.plain(self.blob, self.shape(r)))

    def lower(self, w: LowerContext) -> None:
        value = w.optional(self.index)
        if self.flag:
            w.layer.attrs[self.flag] = value is not None
        if value is not None or not self.flag:
            numbers = w.numbers(self.index, f"the {self.blob}").reshape(-1)
            w.layer.blobs[self.blob] = w.plain(numbers)


def static(sizes: list[Any] | None, what: str) -> list[int]:
    """Return sizes, which must be known."""
    if sizes is None or None in sizes:
        raise MappingError(f"{what} needs a static shape", "X203", FIX)
    return [int(n) for n in sizes]


EDGES = ("startEdgeSize", "endEdgeSize")


def borders(amounts: dict[str, Any] | None, name: str = "borderAmounts") -> list[int]:
    """Return [H start, W start, H end, W end] of BorderAmounts; no fields set means no border."""
    edges = (amounts or {}).get(name) or []
    if len(edges) not in (0, 2):
        raise MappingError(
            f"the border must have 2 amounts (height, width), got {len(edges)}", "R110"
        )
    return [int(e.get(key, 0)) for key in EDGES for e in edges] or [0] * 4


def border_amounts(pads: list[int]) -> dict[str, Any]:
    """Return the BorderAmounts message for [H start, W start, H end, W end]."""
    pairs = ((pads[i], pads[2 + i]) for i in (0, 1))
    return {"borderAmounts": [dict(zip(EDGES, pair, strict=True)) for pair in pairs]}


def keep_one_axis(r: LiftContext) -> None:
    """Give a scalar result the shape [1]."""
    r.after_first(lambda y: r.b.Reshape(y, [1]) if rank_of(y) == 0 else y)


KEEP_ONE_AXIS = Detail(read=keep_one_axis)


# operands that are shapes ------------------------------------------------------------------------


def flat(index: int) -> InputType:
    """Return integers on one axis; the layer accepts a blob of any rank."""
    return InputType((index,), flat=True)


def shape_of_last(r: LiftContext) -> None:
    """Replace the last operand, of which the layer only uses the shape, by its Shape."""
    r.node.inputs[-1] = r.b.Shape(r.node.inputs[-1])


class StaticResult(Field):
    """The constant operand `index` <-> the shape of the result, which must be known."""

    def __init__(self, index: int, key: str = "targetShape") -> None:
        self.index, self.key, self.inputs, self.keys = index, key, (index,), (key,)

    def lift(self, r: LiftContext) -> None:
        r.set_input(self.index, r.attr(self.key, list))

    def lower(self, w: LowerContext) -> None:
        shape = shape_of(w.out)
        if shape is None:
            raise no_match("the shape must be known at conversion time")
        w.set(**{self.key: list(shape) or [1]})


def static_slice(
    sizes: list[Any], pieces: Mapping[int, tuple[int, int, int]]
) -> dict[str, list[Any]]:
    """Return the parameters of a sliceStatic: (start, end, step) by axis."""
    rank = len(sizes)
    begin, end, step = [0] * rank, [FAR] * rank, [1] * rank
    first, last = [True] * rank, [True] * rank
    for axis, (s, e, d) in pieces.items():
        begin[axis], end[axis], step[axis] = max(-FAR, min(s, FAR)), max(-FAR, min(e, FAR)), d
        first[axis] = s <= -FAR or s == 0 if d > 0 else s >= FAR
        last[axis] = e >= FAR if d > 0 else e <= -FAR
        if sizes[axis] is not None and d > 0 and s < -sizes[axis]:
            begin[axis], first[axis] = 0, True
    masks = {"beginMasks": first, "endMasks": last, "squeezeMasks": [False] * rank}
    return {"beginIds": begin, "endIds": end, "strides": step, **masks}
