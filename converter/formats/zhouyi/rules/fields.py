"""Field kinds of the rows: windows in named keys (kernel_x, ...), axes, words, lacking types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rules.context import LiftContext
from converter.graph.demands import at_least
from converter.graph.infer import constant, shape_of
from converter.mapping.codecs import enum
from converter.mapping.concepts import window
from converter.mapping.concepts.axes import ALL, Axes
from converter.mapping.concepts.window import Geometry, weights_kernel
from converter.mapping.context import REQUIRED, LowerContext
from converter.mapping.fields import (
    Attr,
    Detail,
    Field,
    Group,
    Guard,
    InputType,
    RequireKey,
)
from converter.mapping.node import Layer, Node
from converter.record import record

T = ir.DataType

# values ------------------------------------------------------------------------------------------


def word(name: str, key: str, table: Mapping[Any, str], **options: Any) -> Attr:
    """Convert between a canonical value and a word of the format; words are read in upper case."""
    return Attr(name, key, enum(table), **options)


def words(names: str) -> dict[str, str]:
    """Return the map from canonical words to the same in upper case."""
    return {name: name.upper() for name in names.split()}


def method(value: str, absent: bool = False) -> RequireKey:
    """Require a method, which distinguishes a layer from others of its type; with `absent` it is
    also the default.
    """
    return RequireKey("method", value, absent)


def reads(*keys: str, blobs: tuple[str, ...] = ()) -> Group:
    """Return the keys and constants of the layer that a hook of the row reads."""
    return Group((), keys, blobs=blobs)


def flat(name: str) -> Callable[[LiftContext], Sequence[int]]:
    """Return the shape of the constant `name` as one axis."""
    return lambda r: [np.asarray(r.layer.blobs[name]).size]


# conditions --------------------------------------------------------------------------------------


def of(what: str, holds: Callable[[LiftContext | LowerContext], bool]) -> Guard:
    """Return a condition for layers and operators for which `holds` is true."""
    return Guard(what, holds, holds)


def _first_type(context: LiftContext | LowerContext) -> ir.DataType | None:
    value = context.optional(0)
    return None if value is None else value.dtype


def is_number(context: LiftContext | LowerContext) -> bool:
    """Return whether the first operand has a floating-point type, as far as it is known."""
    dtype = _first_type(context)
    return dtype is None or not dtype.is_integer()


def is_signed(context: LiftContext | LowerContext) -> bool:
    """Return whether the first operand has a signed integer type."""
    dtype = _first_type(context)
    return dtype is not None and dtype.is_integer() and dtype.is_signed()


def same_shapes(w: LowerContext) -> bool:
    """Return whether all operands have the same static shape."""
    shapes = {shape_of(v) for v in w.node.inputs if v is not None}
    return len(shapes) == 1 and None not in shapes


FLOATS = Guard("integers are not supported", is_number)
FRACTIONS = of("only floating-point data are supported", is_number)
INTEGERS = of("only integers are supported", lambda c: not is_number(c))
EQUAL = Guard("the operands must have the same shape", same_shapes)
FOUR_AXES = Guard("only data of rank 4 are supported", lambda w: w.rank() == 4)

# operands ----------------------------------------------------------------------------------------


def booleans(*positions: int) -> InputType:
    """Cast booleans, which the format stores as uint8."""
    return InputType(positions, T.BOOL)


def int64(*positions: int) -> InputType:
    """Cast indices to int64, which the operator requires; the format stores int32."""
    return InputType(positions, T.INT64)


def indices(*positions: int) -> InputType:
    """Cast indices to a type that lookups support."""
    return InputType(positions, T.INT32, also=(T.INT64,))


def cast_to_declared(r: LiftContext) -> None:
    """Cast results to the types that the file declares: integers in some files, floats in
    others.
    """
    r.after_emit(r.typed)


CAST_TO_DECLARED = Detail(read=cast_to_declared)


@record
class DeclaredSize(Field):
    """An attribute of the operator that is axis `axis` of the declared shape of output `output`.

    `key` repeats it; if it is `given`, the key takes precedence.
    """

    name: str
    output: int = 0
    axis: int = 0
    key: str = ""
    given: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", (self.name,))
        object.__setattr__(self, "keys", (self.key,) if self.key else ())

    def lift(self, r: LiftContext) -> None:
        size = r.attr(self.key, int, 0) if self.given else 0
        size = size or r.declared_size(self.output, self.axis)
        if self.key:
            at_least(1, **{self.key: size})
        r.node.attrs[self.name] = size

    def lower(self, w: LowerContext) -> None:
        if self.key:
            w.set(**{self.key: int(w.attr(self.name))})


def constant_of(w: LowerContext, index: int, what: str) -> Any:
    """Return the array of a constant input; refuse one that is computed or omitted."""
    array = constant(w.optional(index))
    if array is None:
        raise MappingError(
            f"{what} must be constant, because the target stores {what} with the layer"
        )
    return np.asarray(array)


# windows -----------------------------------------------------------------------------------------


def keys(stem: str, rank: int = 2) -> tuple[str, ...]:
    """Return the keys of the spatial axes, in order: `kernel` gives kernel_y, kernel_x for rank 2
    (section 4.3).
    """
    return tuple(f"{stem}_{axis}" for axis in "zyx"[3 - rank :])


def pad_keys(rank: int = 2) -> tuple[str, ...]:
    """Return the keys in the order of ONNX `pads`: all begins, then all ends."""
    if rank == 2:
        return ("pad_top", "pad_left", "pad_bottom", "pad_right")
    return tuple(f"pad_{axis}_{end}" for end in ("begin", "end") for axis in "zyx"[3 - rank :])


class Window(window.Window):
    """kernel_*, stride_*, pad_*, dilation_*, over `rank` axes.

    `shape`: the operator has the attribute kernel_shape. All keys are written. A window without
    pads is refused: section 4.3 does not define its meaning, and the vendor's reader fails.
    """

    names: tuple[str, ...] = (
        *("kernel_shape", "strides", "pads", "dilations"),
        *("auto_pad", "ceil_mode"),
    )

    def __init__(self, rank: int = 2, shape: bool = True) -> None:
        self.axes, self.has_kernel_shape = (rank,), shape
        kernel, strides, dilations = (keys(s, rank) for s in ("kernel", "stride", "dilation"))
        self.parts = (kernel, strides, pad_keys(rank), dilations)
        self.keys = tuple(k for part in self.parts for k in part)

    def read(self, r: LiftContext) -> Geometry:
        parts = zip(self.parts, (REQUIRED, 1, REQUIRED, 1), strict=True)
        numbers = ([r.attr(k, int, default) for k in part] for part, default in parts)
        kernel, strides, pads, dilations = numbers
        return Geometry(kernel, strides, dilations, pads)

    def kernel(self, node: Node) -> list[int]:
        given = node.attrs.get("kernel_shape")
        return [int(k) for k in given] if given else weights_kernel(node)

    def write(self, w: LowerContext, window: Geometry) -> None:
        numbers = window.kernel, window.strides, window.pads, window.dilations
        for part, values in zip(self.parts, numbers, strict=True):
            w.set(**dict(zip(part, values, strict=True)))


# axes --------------------------------------------------------------------------------------------


def axes_of(layer: Layer) -> list[int]:
    """Return `axis` as a list; a scalar is a list of one."""
    found = layer.attrs.get("axis")
    found = [found] if isinstance(found, int) else found
    if found is None:
        raise MappingError("required attribute 'axis' is absent", "R110")
    if not isinstance(found, list) or not all(isinstance(a, int) for a in found):
        raise MappingError(f"axis={found!r} must be a list of axes", "R110")
    return [int(a) for a in found]


AXES = Axes("axis", empty=ALL)
