"""Field kinds of the rows: padding of windows, axes, precisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.mlprogram.rules.context import LiftContext, LowerContext
from converter.graph.value import Value
from converter.graph.windows import SAME
from converter.mapping.codecs import Codec
from converter.mapping.concepts import window
from converter.mapping.concepts.axes import nonnegative_axes
from converter.mapping.concepts.window import Geometry, weights_kernel
from converter.mapping.fields import Field
from converter.mapping.node import Node
from converter.mapping.rules import Rule, op
from converter.record import record

INT32 = ir.DataType.INT32
IOS16 = 7  # the specification version


OPPOSITE = Codec(lambda v: int(not v), lambda v: not v)  # a boolean with the opposite meaning


def mil(name: str, kind: str, operands: str, *fields: Field, **options: Any) -> Rule:
    """Return a row whose operation has these parameters as the operator's inputs."""
    return op(name, kind, *fields, operands=tuple(operands.split()), **options)


def mils(pairs: str, operands: str, *fields: Field, **options: Any) -> list[Rule]:
    """Return one row for each pair "Operator=operation" of a text; all have the same operands and
    fields.
    """
    split = (p.partition("=") for p in pairs.split())
    return [mil(a, b, operands, *fields, **options) for a, _, b in split]


def numbers(r: LiftContext, values: Sequence[int], name: str = "const") -> Value:
    """Return a constant of type int64."""
    return r.b.const(np.asarray(values, np.int64), name)


def listed(r: LiftContext, key: str, default: Any = None) -> list[int] | None:
    """Return a parameter as a list of integers, also if it is a single one."""
    if key not in r.layer.attrs:
        return default  # type: ignore[no-any-return]
    array = r.array(key)
    return [int(n) for n in array.reshape(-1)]


def axes_of(r: LiftContext, value: ir.Value, key: str = "axes") -> list[int]:
    """Return the axes of a parameter, counted from the front; all where it is omitted."""
    rank = r.rank(value)
    found = listed(r, key)
    return nonnegative_axes(range(rank) if found is None else found, rank)


def first_axis(w: LowerContext, axis: Any) -> int:
    """Return an axis of the first operand, counted from the front."""
    return int(axis) % max(1, w.rank())


def size_of(value: ir.Value, axis: int) -> Any:
    """Return the size of an axis; a name or None if it is not known."""
    if value.shape is None:
        raise MappingError(f"the rank of {value.name} is unknown", "X203")
    return value.shape[axis]


@record
class Parameter(Field):
    """One parameter, whose name the row gives."""

    key: str

    def __post_init__(self) -> None:
        self.keys = (self.key,)


@record
class Results(Field):
    """The number of results of the operator; a program does not need to name all of them."""

    count: int

    def lift(self, r: LiftContext) -> None:
        r.outputs = self.count


class TransposedIndices(Field):
    """The result, [indices, axes], which is transposed."""

    def lift(self, r: LiftContext) -> None:
        r.after_first(lambda y: r.b.Transpose(y, perm=[1, 0]))

    def lower(self, w: LowerContext) -> None:
        found = w.temporary("places", INT32, [None, w.rank()])
        w.layer.outputs = [found]
        w.after_emit(lambda: w.operation("transpose", x=found, perm=[1, 0]))


SCHEMES = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER"}


class Window(window.Window):
    """Strides, dilations and padding, a pair of amounts for each axis. `sized`: the kernel size is
    a parameter; otherwise it is the size of the weights. `axes`: the largest number of spatial
    axes.
    """

    schemes = SAME

    def __init__(self, sized: bool = False, axes: int = 3) -> None:
        self.sized, self.dilated, self.axes = sized, not sized, tuple(range(1, axes + 1))
        more = ("kernel_sizes", "ceil_mode") if sized else ("dilations",)
        self.keys = ("strides", "pad_type", "pad", *more)

    def kernel(self, node: Node) -> list[int]:
        return list(node.attrs["kernel_shape"]) if self.sized else weights_kernel(node)

    def read(self, r: LiftContext) -> Geometry:
        ones = [1] * (r.rank(r.data) - 2)
        scheme, amounts = r.attr("pad_type", str, "valid"), listed(r, "pad") or []
        if scheme not in (*SCHEMES, "valid", "custom"):
            raise MappingError(f"pad_type {scheme!r} is not known", "R110")
        return Geometry(
            (listed(r, "kernel_sizes") or []) if self.sized else self.kernel(r.node),
            listed(r, "strides") or ones,
            [] if self.sized else listed(r, "dilations") or ones,
            [*amounts[::2], *amounts[1::2]] if scheme == "custom" else [],
            SCHEMES.get(scheme, ""),
            (self.sized and r.attr("ceil_mode", bool, False)) or None,
        )

    def write(self, w: LowerContext, window: Geometry) -> None:
        rank, padded = len(window.kernel), any(window.pads)
        names = {v: k for k, v in SCHEMES.items()} | {"": "custom" if padded else "valid"}
        if window.scheme == "SAME_LOWER":
            w.needs(IOS16)
        w.set(strides=window.strides, pad_type=names[window.scheme])
        if padded:
            pairs = zip(window.pads[:rank], window.pads[rank:], strict=True)
            w.set(pad=[n for pair in pairs for n in pair])
        if self.sized:
            w.set(kernel_sizes=window.kernel)
        else:
            w.set(dilations=window.dilations)
