"""Field kinds of legacy layers: how IR v2 to v7 spells numbers, windows and blobs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from converter.errors import MappingError
from converter.formats.openvino.legacy.rules.context import (
    LiftContext,
    LowerContext,
    is_float,
    per_channel,
)
from converter.formats.openvino.legacy.types import LEGACY
from converter.mapping.codecs import Codec, Floats, Kind, float_of, number_text
from converter.mapping.context import Results
from converter.mapping.fields import Detail, Field, Guard
from converter.record import record


def parse_integer(value: Any) -> int:
    """Return an integer as the engine reads it: also spelled as a float."""
    number = float_of(value)
    if not (math.isfinite(number) and number == int(number) and abs(number) <= 1 << 53):
        raise ValueError(f"{value!r} is not an integer")
    return int(number)


def parse_boolean(value: Any) -> bool:
    """Return the boolean that a text spells; "-1" is false. Raises ValueError for other texts."""
    word = str(value).strip().lower()
    if word not in ("true", "1", "false", "0", "-1"):
        raise ValueError(f"{value!r} is neither true nor false")
    return word in ("true", "1")


def items(value: Any) -> list[str]:
    """Return the items of a list separated by commas."""
    return [v for v in str(value).replace(" ", "").split(",") if v]


def listed(values: Sequence[Any]) -> str:
    """Return a list as text, separated by commas."""
    return ",".join(number_text(v) if isinstance(v, float) else str(v) for v in values)


SPELLING: Mapping[Kind, Codec] = {
    bool: Codec(lambda v: int(parse_boolean(v)), lambda v: str(int(v))),
    int: Codec(parse_integer, lambda v: str(int(v))),
    float: Codec(float_of, number_text),
    str: Codec(lambda v: str(v).strip().lower(), str),  # words are compared in lower case
    Floats: Codec(lambda v: [float_of(i) for i in items(v)], listed),
    list: Codec(lambda v: [parse_integer(i) for i in items(v)], listed),
    tuple: Codec(lambda v: tuple(i.lower() for i in items(v)), listed),
}


CAPITAL_TRUTH = Codec(SPELLING[bool].lift, lambda v: str(bool(v)))  # True and False


def mark_layer(r: LiftContext) -> None:
    """Mark the operator as the whole of the layer: limits of the layer type do not apply to its
    other uses.
    """

    def marked(results: Results) -> Results:
        producer = results[0].producer()
        if producer is not None:
            producer.metadata_props[LEGACY] = r.layer.kind
        return results

    r.after_emit(marked)


MARK_LAYER = Detail(read=mark_layer)


class ToPort(Field):
    """The shape of the port, the only change of the layer: input 1 of a Reshape."""

    names = ("allowzero", "axis")
    inputs = (1,)

    def lift(self, r: LiftContext) -> None:
        r.set_inputs(r.data, r.b.const(list(r.dims()), "shape"))

    def lower(self, w: LowerContext) -> None:
        shape = w.shape(w.out)
        if not shape:
            raise MappingError("a scalar result is only supported by Squeeze")
        w.set_inputs(w.data, shape)


def squeeze_all(w: LowerContext) -> None:
    """A scalar result is squeezed along all axes."""
    x = w.data
    x = x if w.shape(x) else w.reshaped(x, [1])
    w.set_inputs(x, range(len(w.shape(x))))


SQUEEZE_ALL = Detail(write=squeeze_all, names=("allowzero", "axis"), inputs=(1,))


NO_AXES = Guard("scalar results are not supported", lower_if=lambda w: not w.shape(w.out))


@record
class PerChannel(Field):
    """A blob with one number for each channel, or one for all, or an input of the layer <-> input
    `index`.
    """

    blob: str
    index: int

    def __post_init__(self) -> None:
        self.blobs = (self.blob,)
        self.inputs = (self.index,)

    def lift(self, r: LiftContext) -> None:
        if r.optional(self.index) is None:
            r.set_input(self.index, channels(r, self.blob))

    def lower(self, w: LowerContext) -> None:
        shape = w.shape()
        found = per_channel(w.optional(self.index), shape)
        if found is None:
            raise MappingError("one element per channel is needed")
        w.layer.blobs[self.blob] = found


def channels(r: LiftContext, name: str) -> Any:
    """Return a blob that is spread over the channels of input 0."""
    size = r.static(least=1)
    count = size[1] if len(size) > 1 else size[0]
    array = r.layer.blobs.get(name)
    if array is not None and array.size == 1:
        count = 1
    return r.blob(name, [count, *[1] * max(0, len(size) - 2)])


def data_type(what: str, wanted: bool) -> Guard:
    """Return the condition that the data are floating-point numbers, or that they are not."""
    return Guard(f"only {what} are supported", lower_if=lambda w: is_float(w.data) == wanted)


FLOATS = data_type("floating-point data", True)
INTEGERS = data_type("integers", False)


TRUTH = Codec(SPELLING[bool].lift, lambda v: str(bool(v)).lower())  # true and false
