"""Field kinds of the opsets' rows: how IR v10/v11 spells padding, axes, types and broadcasting."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext
from converter.formats.openvino.xml import shown
from converter.graph.demands import axis_of
from converter.graph.infer import known, rank_of
from converter.graph.windows import SAME
from converter.io.limits import MOST_AXES
from converter.mapping.codecs import (
    Codec,
    Floats,
    Kind,
    bool_text,
    csv,
    csv_floats,
    int_of,
    number,
    number_text,
)
from converter.mapping.concepts import window
from converter.mapping.concepts.window import Geometry, weights_kernel
from converter.mapping.fields import AttrInput, Field, InputType, WriteKey
from converter.mapping.node import Node
from converter.record import record

AUTO_PAD = ("same_upper", "same_lower", "valid")
EXPLICIT = ("explicit", "notset")


def _text(value: Any) -> str:
    """Return a value as the format spells it."""
    if isinstance(value, list | tuple):
        return ", ".join(_text(v) for v in value)
    return number_text(value) if isinstance(value, float) else str(value)


SPELLING: Mapping[Kind, Codec] = {
    bool: Codec(lambda v: bool_text.lift(str(v).strip()), bool_text.lower),
    int: Codec(lambda v: int_of(str(v)), lambda v: str(int(v))),
    float: number,
    str: Codec(lambda v: str(v).strip().lower(), str),  # words are compared in lower case
    Floats: Codec(csv_floats.lift, _text),
    list: Codec(csv.lift, _text),
    tuple: Codec(lambda v: tuple(w.strip().lower() for w in v.split(",") if w.strip()), _text),
}


@record
class Pads(Field):
    """pads_begin and pads_end <-> pads, for `rank` spatial axes."""

    rank: int
    names = ("pads",)
    keys = ("pads_begin", "pads_end")

    def lift(self, r: LiftContext) -> None:
        r.set(pads=explicit(r, self.rank))

    def lower(self, w: LowerContext) -> None:
        pads = w.attr("pads", None) or [0] * (2 * self.rank)
        w.set(pads_begin=pads[: self.rank], pads_end=pads[self.rank :])


def explicit(r: LiftContext, rank: int) -> list[int]:
    """Return all begins, then all ends; zeros for omitted ones."""
    sides = (r.attr(key, list, []) for key in ("pads_begin", "pads_end"))
    return [amount for side in sides for amount in side or [0] * rank]


class Window(window.Window):
    """strides, dilations, pads_begin, pads_end and auto_pad.

    `weights`    the input whose dimensions after the first two are the size of the kernel
    `shape`      the operator has the attribute kernel_shape
    """

    names: tuple[str, ...] = ("strides", "dilations", "pads", "auto_pad", "kernel_shape")
    keys: tuple[str, ...] = ("strides", "dilations", "pads_begin", "pads_end", "auto_pad")
    schemes = SAME

    def __init__(self, weights: int = 1, shape: bool = True) -> None:
        self.weights, self.has_kernel_shape = weights, shape

    def kernel(self, node: Node) -> list[int]:
        return weights_kernel(node, self.weights)

    def size(self, r: LiftContext) -> list[int]:
        return self.kernel(r.node)

    def read(self, r: LiftContext) -> Geometry:
        kernel, auto = self.size(r), r.attr("auto_pad", str, "explicit")
        if auto not in (*AUTO_PAD, *EXPLICIT):
            raise MappingError(f"auto_pad={auto!r} is not known", "R110")
        ones = [1] * len(kernel)
        return Geometry(
            kernel,
            r.attr("strides", list, []) or ones,
            r.attr("dilations", list, []) or ones,
            explicit(r, len(kernel)) if auto in EXPLICIT else [],
            auto.upper() if auto.upper() in SAME else "",
        )

    def write(self, w: LowerContext, window: Geometry) -> None:
        rank = len(window.kernel)
        w.set(strides=window.strides, dilations=window.dilations)
        w.set(pads_begin=window.pads[:rank], pads_end=window.pads[rank:])
        w.set(auto_pad=window.scheme.lower() or "explicit")


BROADCAST = WriteKey("auto_broadcast", "numpy")  # operands are aligned before rows see them


HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
# the types in which readers of v10 present outputs
V10_OUTPUTS = {
    **dict.fromkeys((ir.DataType.INT64, ir.DataType.UINT64, ir.DataType.UINT32), ir.DataType.INT32),
    **dict.fromkeys(
        (
            ir.DataType.FLOAT16,
            ir.DataType.BFLOAT16,
            ir.DataType.DOUBLE,
            ir.DataType.UINT8,
            ir.DataType.INT8,
            ir.DataType.UINT16,
            ir.DataType.INT16,
            ir.DataType.BOOL,
        ),
        ir.DataType.FLOAT,
    ),
}
RESIZED_AT_ONCE = {4: 2, 5: 3}  # rank -> the most axes that the runtime resizes at once
# of a value's notes: the half-precision type that the file gives it, while it is computed as
# float32
HALF = "openvino.half"


def computed(dtype: ir.DataType) -> ir.DataType:
    """Return the type in which values are computed.

    Half precision is for storage and for the network's inputs and outputs, as in the runtime.
    """
    return ir.DataType.FLOAT if dtype in HALVES else dtype


INDEX = (ir.DataType.INT32, ir.DataType.INT64)


@record
class IndexInput(InputType):
    """Operands that are int64 in ONNX and of any integer type in the opsets; known ones are written
    as constants.
    """

    flat: bool = True

    def lower(self, w: LowerContext) -> None:
        for i in self.positions:
            if w.has(i):
                w.layer.inputs[i] = w.operand(w.known(w.input(i)))


def index_type(*positions: int) -> InputType:
    """Return the type of indices into data: 32 or 64 bits."""
    return InputType(positions, written=ir.DataType.INT64, also=INDEX)


@record
class NumberInput(Field):
    """An operand that is one integer: a scalar in the opsets, in ONNX of rank `rank`, which is 0 or
    1.

    `default`: the value if the layer has none.
    """

    position: int
    rank: int = 0
    default: int | None = None

    def lift(self, r: LiftContext) -> None:
        absent = self.default is not None and r.optional(self.position) is None
        value = r.b.const(self.default) if absent else r.input(self.position)
        value = r.cast(value, ir.DataType.INT64)
        flat = value if rank_of(value) == self.rank else r.reshape(value, [1] * self.rank)
        r.set_input(self.position, flat)

    def lower(self, w: LowerContext) -> None:
        value = w.input(self.position)
        if (array := known(value)) is not None:
            value = w.const(array.reshape(()).astype(np.int64))
        else:
            value = value if value.dtype in INDEX else w.cast(value, ir.DataType.INT64)
            value = scalar(w, value)
        w.layer.inputs[self.position] = value


def scalar(w: LowerContext, value: ir.Value) -> ir.Value:
    """Return one number as a scalar."""
    return value if rank_of(value) == 0 else w.reshape(value, [])


@record
class Axes(AttrInput):
    """The attribute `axes` <-> a constant input; none is below zero when it was read, and there is
    at least one.
    """

    name: str = "axes"
    index: int = 1
    kind: Kind = list

    def lift(self, r: LiftContext) -> None:
        super().lift(r)
        rank = r.rank() - self.spare(r)
        r.set(axes=[axis_of(v, rank) for v in r.node.attrs["axes"]])
        if not r.node.attrs["axes"]:
            raise MappingError("the axes are empty", "R110")

    def spare(self, r: LiftContext) -> int:
        """Return the number of last axes that are not counted."""
        return 0


_DIGITS = "0123456789"
_DIMENSION = re.compile(r"\?|-1|[0-9]{1,19}|[0-9]{0,19}\.\.[0-9]{0,19}")


def parse_shape(text: str) -> list[Any] | None:
    """Parse a shape: `1,3,?,1..4` gives [1, 3, None, None]; `...` (dynamic rank) gives None."""
    if "..." in text:
        return None
    parts = [p.strip() for p in text.split(",") if p.strip()]
    if wrong := [p for p in parts if not _DIMENSION.fullmatch(p)]:
        raise MappingError(f"{shown(wrong[0])} is not a valid dimension", "R110")
    if len(parts) > MOST_AXES:
        raise MappingError(f"{len(parts)} dimensions are too many (limit {MOST_AXES})", "R110")
    return [int(p) if p[0] in _DIGITS and ".." not in p else None for p in parts]


def is_float(value: ir.Value | None) -> bool:
    """Return whether a value is absent, or has no known type or a floating-point type."""
    return value is None or value.dtype is None or value.dtype.is_floating_point()
