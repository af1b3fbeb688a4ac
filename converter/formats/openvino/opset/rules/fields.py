"""Field kinds of the opsets' rows: how IR v10/v11 spells padding, axes, types and broadcasting."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import whole_window
from converter.formats.openvino.opset.rules.context import Reading, Writing
from converter.formats.openvino.xml import shown
from converter.graph.demands import axis_of
from converter.graph.infer import known, rank_of, shape_of
from converter.graph.record import record
from converter.graph.windows import same_pads, window_fault
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
from converter.mapping.fields import Always, AttrInput, Field, InputType
from converter.mapping.node import Node

AUTO_PAD = ("same_upper", "same_lower", "valid")
EXPLICIT = ("explicit", "notset")
IMPLICIT = ("SAME_UPPER", "SAME_LOWER")  # ONNX's words, of operators whose size is open


def _text(value: Any) -> str:
    """A value as the format spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
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


def explicit_pads(
    auto_pad: str, size: list[int], kernel: list[int], strides: list[int], dilations: list[int]
) -> list[int]:
    """The explicit form of same_upper / same_lower / valid for a convolution or pooling window."""
    if auto_pad == "valid":
        return [0] * (2 * len(kernel))
    return same_pads(size, kernel, strides, dilations, upper=auto_pad == "same_upper")


@record
class Pads(Field):
    """pads_begin and pads_end <-> pads, of `rank` spatial axes."""

    rank: int
    names = ("pads",)
    keys = ("pads_begin", "pads_end")

    def lift(self, r: Reading) -> None:
        r.set(pads=explicit(r, self.rank))

    def lower(self, w: Writing) -> None:
        pads = w.attr("pads", None) or [0] * (2 * self.rank)
        w.set(pads_begin=pads[: self.rank], pads_end=pads[self.rank :])


def explicit(r: Reading, rank: int) -> list[int]:
    """All begins, then all ends; zeros where the layer says nothing."""
    sides = (r.attr(key, list, []) for key in ("pads_begin", "pads_end"))
    return [amount for side in sides for amount in side or [0] * rank]


def image_size(r: Reading, auto_pad: str) -> list[int]:
    """The spatial dimensions of input 0, on which automatic padding depends."""
    dims = list(r.data.shape or ())[2:]
    if not dims or any(not isinstance(d, int) for d in dims):
        message = f"auto_pad={auto_pad!r} needs static spatial dimensions"
        raise MappingError(message, "X203", "fix them with --inputs")
    return [int(d) for d in dims]  # type: ignore[arg-type]


@record
class Window(Field):
    """strides, dilations, pads_begin, pads_end and auto_pad <-> strides, dilations, pads; what
    auto_pad says becomes explicit. It is written where an operator of open size has it.

    `weights`    the input whose dimensions behind the first two are the size of the kernel
    `shape`      the operator has the attribute kernel_shape
    """

    weights: int = 1
    shape: bool = True
    names = tuple(["strides", "dilations", "pads", "auto_pad", "kernel_shape"])
    keys = tuple(["strides", "dilations", "pads_begin", "pads_end", "auto_pad"])

    def kernel(self, node: Node) -> list[int]:
        weights = node.input(self.weights)
        shape = shape_of(weights)
        if shape is None:
            message = "the kernel size is unknown: the weights have no static shape"
            raise MappingError(message)
        return list(shape[2:])

    def lift(self, r: Reading) -> None:
        kernel, a = self.kernel(r.node), r.node.attrs
        ones = [1] * len(kernel)
        a["strides"] = r.attr("strides", list, []) or ones
        a["dilations"] = r.attr("dilations", list, []) or ones
        a["pads"] = self.pads(r, kernel)
        if reason := window_fault(kernel, a["strides"], a["dilations"], a["pads"]):
            raise MappingError(reason, "R105")
        if self.shape:
            a["kernel_shape"] = kernel

    def pads(self, r: Reading, kernel: list[int]) -> list[int]:
        auto, a = r.attr("auto_pad", str, "explicit"), r.node.attrs
        if auto in EXPLICIT:
            return explicit(r, len(kernel))
        if auto not in AUTO_PAD:
            raise MappingError(f"auto_pad={auto!r} is not known", "R110")
        size = kernel if auto == "valid" else image_size(r, auto)
        return explicit_pads(auto, size, kernel, a["strides"], a["dilations"])

    def lower(self, w: Writing) -> None:
        rank = len(self.kernel(w.node))
        a = whole_window(w.node, rank)
        pads, auto = a["pads"], a.get("auto_pad", "NOTSET")
        w.set(strides=a["strides"], dilations=a["dilations"])
        w.set(pads_begin=pads[:rank], pads_end=pads[rank:])
        w.set(auto_pad=auto.lower() if auto in IMPLICIT else "explicit")


BROADCAST = Always("auto_broadcast", "numpy")  # operands are aligned before rows see them


HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
# of a value's notes: the half-precision type that the file gives it, while it is computed as
# float32
HALF = "openvino.half"


def computed(dtype: ir.DataType) -> ir.DataType:
    """The type in which values are computed.

    Half precision is for storage and for the network's inputs and outputs, as in the runtime.
    """
    return ir.DataType.FLOAT if dtype in HALVES else dtype


INDEX = (ir.DataType.INT32, ir.DataType.INT64)


@record
class IndexInput(InputType):
    """Operands that ONNX takes as int64 and the opsets as any integers; written as constants where
    they are known.
    """

    flat: bool = True

    def lower(self, w: Writing) -> None:
        for i in self.positions:
            if w.has(i):
                w.layer.inputs[i] = w.operand(w.known(w.input(i)))


def index_type(*positions: int) -> InputType:
    """Indices into data, which are of 32 or 64 bits."""
    return InputType(positions, written=ir.DataType.INT64, also=INDEX)


@record
class NumberInput(Field):
    """An operand that is one integer: to the opsets it has no axes, to ONNX `rank`, which is 0 or
    1.

    `default`: what the layer means without it.
    """

    position: int
    rank: int = 0
    default: int | None = None

    def lift(self, r: Reading) -> None:
        value = r.optional(self.position)
        if value is None and self.default is not None:
            value = r.b.const(self.default)
        value = r.cast(r.input(self.position) if value is None else value, ir.DataType.INT64)
        flat = value if rank_of(value) == self.rank else r.reshape(value, [1] * self.rank)
        r.set_input(self.position, flat)

    def lower(self, w: Writing) -> None:
        value = w.input(self.position)
        if (array := known(value)) is not None:
            value = w.const(array.reshape(()).astype(np.int64))
        else:
            value = value if value.dtype in INDEX else convert(w, value, ir.DataType.INT64)
            value = scalar(w, value)
        w.layer.inputs[self.position] = value


def convert(w: Writing, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    return w.cast(value, dtype)


def scalar(w: Writing, value: ir.Value) -> ir.Value:
    """One number without axes."""
    return value if rank_of(value) == 0 else w.reshape(value, [])


@record
class Axes(AttrInput):
    """The attribute `axes` <-> a constant input; none is below zero when it was read, and there is
    at least one.
    """

    name: str = "axes"
    index: int = 1
    kind: Kind = list

    def lift(self, r: Reading) -> None:
        super().lift(r)
        rank = r.rank() - self.spare(r)
        r.set(axes=[axis_of(v, rank) for v in r.node.attrs["axes"]])
        if not r.node.attrs["axes"]:
            raise MappingError("the axes are empty", "R110")

    def spare(self, r: Reading) -> int:
        """Axes at the end that are not counted."""
        return 0


_DIGITS = "0123456789"
_DIMENSION = re.compile(r"\?|-1|[0-9]{1,19}|[0-9]{0,19}\.\.[0-9]{0,19}")


def parse_shape(text: str) -> list[Any] | None:
    """`1,3,?,1..4` -> [1, 3, None, None]; `...` (dynamic rank) -> None."""
    if "..." in text:
        return None
    parts = [p.strip() for p in text.split(",") if p.strip()]
    if wrong := [p for p in parts if not _DIMENSION.fullmatch(p)]:
        raise MappingError(f"{shown(wrong[0])} is not a dimension", "R110")
    if len(parts) > MOST_AXES:
        raise MappingError(
            f"{len(parts)} dimensions are beyond the {MOST_AXES} that are read", "R110"
        )
    return [int(p) if p[0] in _DIGITS and ".." not in p else None for p in parts]


def is_float(value: ir.Value | None) -> bool:
    return value is None or value.dtype is None or value.dtype.is_floating_point()
