"""Fields of the rows: leading operands, preserved axes, paddings, enumerations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.coreai.rules.context import INDEX, SIZE, LiftContext, LowerContext
from converter.graph.infer import constant, known, shape_of
from converter.graph.value import known_sizes, type_name
from converter.mapping.codecs import Codec
from converter.mapping.concepts.axes import Axes
from converter.mapping.concepts.pads import Pads
from converter.mapping.fields import AttrInput, Detail, Field, InputType

D = ir.DataType
LARGE = int(np.iinfo(np.int32).max)


def position(*indices: int) -> InputType:
    """Convert operands that are positions."""
    return InputType(indices, written=INDEX)


def sizes(*indices: int) -> InputType:
    """Convert operands that are sizes."""
    return InputType(indices, written=SIZE)


def word(prefix: str) -> Codec:
    """Return the word in an attribute such as `#coreai.padding_mode<constant>`."""

    def lift(text: Any) -> str:
        found = re.fullmatch(rf"#coreai\.{prefix}<(\w+)>", str(text))
        if found is None:
            raise MappingError(f"{text!r} is not a {prefix}", "R110")
        return found[1]

    return Codec(lift, lambda v: f"#coreai.{prefix}<{v}>")


class Leading(AttrInput):
    """An attribute of the operator that is the first operand of the operation, before the
    operator's inputs.
    """

    def lift(self, r: Any) -> None:
        super().lift(r)
        del r.node.inputs[0]

    def lower(self, w: Any) -> None:
        own, w.layer.inputs = w.layer.inputs, []
        super().lower(w)
        w.layer.inputs += own


REDUCED = Axes(1, computed=True)


def read_kept_axes(r: LiftContext) -> None:
    """The operation keeps the reduced axes with size 1; they are removed after it if the operator
    does not keep them.
    """
    r.set(keepdims=1)
    if r.data.dtype in (D.INT8, D.UINT8, D.INT16, D.UINT16):
        r.data = r.cast(r.data, D.INT32)


def write_kept_axes(w: LowerContext) -> None:
    """Write a reduction, which keeps its axes, and remove them afterwards where keepdims is 0.
    Raises MappingError for axes that are, or may be, empty.
    """
    computed = w.has(1) and constant(w.input(1)) is None
    if 0 in (known_sizes(w.data) or [0] * computed):
        raise MappingError(
            "reductions over no elements are not supported: the runtime computes them incorrectly"
        )
    if not w.attr("keepdims", 1) and computed:
        drop_computed_axes(w)
    elif not w.attr("keepdims", 1):
        drop_axes(w, REDUCED.reduced(w))


def drop_computed_axes(w: LowerContext) -> None:
    """Let the operation keep the axes, and reshape its result after it."""
    own, shape = w.layer.outputs[0], shape_of(w.out)
    if shape is None:
        raise MappingError("the axes must be constant")
    kept = w.temporary("kept", own.dtype, [None] * w.rank())
    w.layer.outputs = [kept]
    w.after_emit(lambda: w.put("reshape", kept, w.numbers(shape), outputs=[own]))


KEPT = (REDUCED, Detail(read_kept_axes, write_kept_axes, names=("keepdims",)))


def drop_axes(w: LowerContext, axes: list[int]) -> None:
    """Let the operation keep these axes, and remove them after it."""
    own = w.layer.outputs[0]
    shape = [1 if i in axes else d for i, d in enumerate(w.data.shape or ())]
    kept = w.temporary("kept", own.dtype, shape)
    w.layer.outputs = [kept]
    w.after_emit(lambda: w.put("shrink_dims", kept, w.numbers(axes), outputs=[own]))


def demand_wide(w: LowerContext) -> None:
    """Refuse totals of integers of less than 64 bits, which end the runtime when they overflow."""
    dtype = w.data.dtype or D.FLOAT
    if dtype.is_integer() and dtype not in (D.INT64, D.UINT64):
        raise MappingError(
            f"the sum of {type_name(dtype)} is not supported: overflow ends the runtime's process"
        )


class KeptAxis(Field):
    """The axis of an ArgMax; its result is ui32."""

    names = ("axis", "keepdims", "select_last_index")

    def lift(self, r: LiftContext) -> None:
        x, b = r.input(0), r.b
        if x.dtype is not None and x.dtype.is_floating_point():  # NaN is never the largest
            x = b.Where(b.IsNaN(x), b.like(x, -np.inf), x)
        r.set(axis=r.axis(1, r.rank(x)), keepdims=1, select_last_index=0)
        r.set_inputs(x)

    def lower(self, w: LowerContext) -> None:
        axis = int(w.attr("axis")) % max(1, w.rank())
        if w.attr("select_last_index"):
            raise MappingError("select_last_index=1 is not supported")
        if (w.data.shape or (0,))[axis] == 0:
            raise MappingError(f"{w.node.op} over an empty axis is not supported")
        w.layer.inputs = [w.data, w.numbers(axis)]
        own = w.layer.outputs[0]
        made = w.temporary("position", SIZE, own.shape)
        w.layer.outputs = [made]
        if not w.attr("keepdims", 1):
            drop_axes(w, [axis])
        w.after_emit(lambda: w.put("cast", made, outputs=[own]))


def pad_ends_runtime(sizes: Sequence[int | None], computed: bool) -> bool:
    """Return whether a Pad of a tensor of these sizes may end the process of the runtime, as it
    does where there are no elements: in a part whose size is computed together with the amounts.
    """
    return 0 in sizes or (computed and None in sizes)


class Amounts(Pads):
    """Padding amounts, before and after each axis in turn, and the padding value."""

    inputs, computed = (1, 2, 3), True

    def read(self, r: LiftContext) -> ir.Value:
        b, given = r.b, known(r.input(1))
        r.node.set_input(2, r.optional(2))
        if given is not None:
            return b.const(given.astype(np.int64).reshape(-1, 2).T.reshape(-1))
        pairs = b.Reshape(r.whole(1), np.array([-1, 2]))
        return b.Reshape(b.Transpose(pairs, perm=[1, 0]), np.array([-1]))

    def write(self, w: LowerContext, before: list[int], after: list[int]) -> None:
        pairs = zip(before, after, strict=True)
        self._put(w, w.numbers([n for pair in pairs for n in pair], SIZE))

    def write_computed(self, w: LowerContext, amounts: ir.Value) -> None:
        rank = w.rank()
        pairs = w.emit("reshape", w.whole(1), w.numbers([2, rank]), shape=[2, rank])
        perm = w.numbers([1, 0], SIZE)
        pairs = w.emit("transpose", pairs, perm, shape=[rank, 2])
        line = w.emit("reshape", pairs, w.numbers([2 * rank]), shape=[2 * rank])
        self._put(w, w.cast(line, SIZE), True)

    def _put(self, w: LowerContext, amounts: ir.Value, computed: bool = False) -> None:
        value, filled = w.optional(2), w.attr("mode", "constant") == "constant"
        sizes = known_sizes(w.data) or [None] * w.rank()
        if filled and pad_ends_runtime(sizes, computed):
            raise MappingError(
                "padding an empty tensor is not supported: it terminates the runtime's process"
            )
        if value is None or not filled:
            value = w.const(np.zeros((), (w.data.dtype or D.FLOAT).numpy()))
        elif value.shape is None or len(value.shape):
            value = w.emit("reshape", value, w.numbers([]), shape=[])
        w.layer.inputs = [w.data, amounts, value]
