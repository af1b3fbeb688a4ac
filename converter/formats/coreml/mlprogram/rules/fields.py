"""Field kinds of the rows: padding of windows, axes, precisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.mlprogram.rules.context import Reading, Writing
from converter.graph.record import record
from converter.graph.value import Value, known_sizes
from converter.graph.windows import same_pads
from converter.mapping.codecs import Codec
from converter.mapping.concepts.axes import from_front
from converter.mapping.fields import Field
from converter.mapping.rules import Rule, op

INT32 = ir.DataType.INT32


OPPOSITE = Codec(lambda v: int(not v), lambda v: not v)  # a truth value that says the contrary


def mil(name: str, kind: str, operands: str, *fields: Field, **options: Any) -> Rule:
    """A row whose operation has these parameters as the operator's inputs."""
    return op(name, kind, *fields, operands=tuple(operands.split()), **options)


def mils(pairs: str, operands: str, *fields: Field, **options: Any) -> list[Rule]:
    split = (p.partition("=") for p in pairs.split())
    return [mil(a, b, operands, *fields, **options) for a, _, b in split]


def numbers(r: Reading, values: Sequence[int], name: str = "const") -> Value:
    return r.b.const(np.asarray(values, np.int64), name)


def listed(r: Reading, key: str, default: Any = None) -> list[int] | None:
    """A parameter of several whole numbers, a single one included."""
    if key not in r.layer.attrs:
        return default  # type: ignore[no-any-return]
    array = r.array(key)
    return [int(n) for n in array.reshape(-1)]


def axes_of(r: Reading, value: ir.Value, key: str = "axes") -> list[int]:
    """The axes of a parameter, counted from the front; all where it is left out."""
    rank = r.rank(value)
    found = listed(r, key)
    return from_front(range(rank) if found is None else found, rank)


def first_axis(w: Writing, axis: Any) -> int:
    """An axis of the first operand, counted from the front."""
    return int(axis) % max(1, w.rank())


def size_of(value: ir.Value, axis: int) -> Any:
    """A size of an axis; a name or None where it is not known."""
    if value.shape is None:
        raise MappingError(f"the number of axes of {value.name} is not known", "X203")
    return value.shape[axis]


@record
class Parameter(Field):
    """What one parameter says, whose name the row gives."""

    key: str

    def __post_init__(self) -> None:
        self.keys = (self.key,)


@record
class Results(Field):
    """How many results the operator has, of which a program need not name all."""

    count: int

    def lift(self, r: Reading) -> None:
        r.outputs = self.count


class Places(Field):
    """The result, [places, axes], with its axes exchanged."""

    def lift(self, r: Reading) -> None:
        r.behind(lambda y: r.b.Transpose(y, perm=[1, 0]))

    def lower(self, w: Writing) -> None:
        found = w.temporary("places", INT32, [None, w.rank()])
        w.layer.outputs = [found]
        w.then(lambda: w.operation("transpose", x=found, perm=[1, 0]))


class Window(Field):
    """Strides, dilations and padding, whose amounts stand in pairs for each axis.

    `sized`: the kernel's size is a parameter; else it is that of the weights.
    """

    def __init__(self, sized: bool = False, rounded: bool = False) -> None:
        self.sized = sized
        keys = ["strides", "pad_type", "pad", *(("kernel_sizes",) if sized else ("dilations",))]
        self.keys = (*keys, *(("ceil_mode",) if rounded else ()))
        self.names = ("strides", "pads", "dilations", "kernel_shape", "auto_pad", "ceil_mode")

    def lift(self, r: Reading) -> None:
        a, rank = r.node.attrs, r.rank(r.data) - 2
        kernel = self.kernel(r)
        if len(kernel) != rank or rank < 1:
            raise MappingError(f"a window of {len(kernel)} axes over {rank}", "R105")
        strides = listed(r, "strides") or [1] * rank
        dilations = listed(r, "dilations") or [1] * rank
        a |= {"kernel_shape": kernel, "strides": strides}
        if not self.sized:
            a["dilations"] = dilations
        scheme, amounts = r.attr("pad_type", str, "valid"), listed(r, "pad") or [0] * (2 * rank)
        if len(strides) != rank or len(dilations) != rank or len(amounts) != 2 * rank:
            raise MappingError("strides, dilations and padding do not fit the window", "R110")
        self.pad(r, scheme, amounts, kernel, strides, dilations)

    def kernel(self, r: Reading) -> list[int]:
        if self.sized:
            return listed(r, "kernel_sizes") or []
        weights = r.node.inputs[1]
        return list(r.static(weights, "the weights")[2:]) if weights is not None else []

    def pad(
        self,
        r: Reading,
        scheme: str,
        amounts: list[int],
        kernel: list[int],
        strides: list[int],
        dilations: list[int],
    ) -> None:
        a = r.node.attrs
        if scheme == "custom":
            a["pads"] = [*amounts[::2], *amounts[1::2]]
        elif scheme == "valid":
            a["pads"] = [0] * len(amounts)
        elif scheme in ("same", "same_lower"):
            sizes = (known_sizes(r.data) or [None] * 3)[2:]
            if None not in sizes:
                upper = scheme == "same"
                a["pads"] = same_pads(sizes, kernel, strides, dilations, upper=upper)
            else:
                a["auto_pad"] = "SAME_UPPER" if scheme == "same" else "SAME_LOWER"
        else:
            raise MappingError(f"pad_type {scheme!r} is not known", "R110")
        if "ceil_mode" in self.keys and r.attr("ceil_mode", bool, False):
            a["ceil_mode"] = 1

    def lower(self, w: Writing) -> None:
        a, rank = w.node.attrs, w.rank() - 2
        if not 1 <= rank <= 3:
            raise MappingError(f"a window over {rank} axes, operations have 1 to 3")
        kernel = list(a.get("kernel_shape") or []) if self.sized else self.of_weights(w)
        strides, dilations = (list(a.get(k) or [1] * rank) for k in ("strides", "dilations"))
        if self.sized and dilations != [1] * rank:
            raise MappingError("a pool whose window has gaps")
        amounts = self.amounts(w, kernel, strides, dilations)
        w.set(strides=strides, pad_type="custom" if any(amounts) else "valid")
        if any(amounts):
            w.set(
                pad=[n for pair in zip(amounts[:rank], amounts[rank:], strict=True) for n in pair]
            )
        w.set(**{"kernel_sizes": kernel} if self.sized else {"dilations": dilations})
        if a.get("ceil_mode"):
            w.set(ceil_mode=True)

    def of_weights(self, w: Writing) -> list[int]:
        return list(w.static(1, "the weights")[2:])

    def amounts(
        self, w: Writing, kernel: list[int], strides: list[int], dilations: list[int]
    ) -> list[int]:
        """Padding before all axes, then behind them."""
        scheme = w.node.attrs.get("auto_pad", "NOTSET")
        if scheme in ("SAME_UPPER", "SAME_LOWER"):
            upper = scheme == "SAME_UPPER"
            return same_pads(w.static()[2:], kernel, strides, dilations, upper=upper)
        pads = [] if scheme == "VALID" else list(w.node.attrs.get("pads") or [])
        if any(n < 0 for n in pads):
            raise MappingError("a window with negative padding")
        return pads or [0] * (2 * len(kernel))
