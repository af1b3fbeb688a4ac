"""Gather and scatter operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.coreai.rules.context import INDEX, LiftContext, LowerContext
from converter.formats.coreml.coreai.rules.fields import position, word
from converter.mapping.codecs import Codec
from converter.mapping.fields import AttrInput, Detail, Guard, RequireAttr
from converter.mapping.rules import Custom, Rule, op
from converter.passes.indices import cut_axes

D = ir.DataType
# reduction of ONNX -> mode
_MODES = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}
_BACK = {v: k for k, v in _MODES.items()} | {"sub": "sub", "div": "div"}
_WORD = word("scatter_mode")
MODE = Codec(lambda v: _BACK[_WORD.lift(v)], lambda v: _WORD.lower(_MODES[v]))


def read_opposite(r: LiftContext) -> None:
    """Read a difference or quotient of updates as the sum or product of their opposites or
    reciprocals.
    """
    mode = r.attr("scatter_mode", MODE, "none")
    if mode in ("sub", "div"):
        update = r.node.inputs[2]
        opposite = r.b.Neg(update) if mode == "sub" else r.b.Reciprocal(update)
        r.set_input(2, opposite)
    r.set(reduction={"sub": "add", "div": "mul"}.get(mode, mode))


def write_opposite(w: LowerContext) -> None:
    """Write the mode in which a scatter combines updates with the data."""
    w.layer.attrs["scatter_mode"] = MODE.lower(w.attr("reduction", "none"))


OPPOSITE = Detail(
    read=read_opposite,
    write=write_opposite,
    keys=("scatter_mode",),
    names=("reduction",),
)


def read_positions(r: LiftContext) -> None:
    """Transpose positions of elements, [count, axes]."""
    r.after_first(lambda y: r.b.Transpose(y, perm=[1, 0]))


def write_positions(w: LowerContext) -> None:
    """Write positions [count, rank] and transpose them to the [rank, count] of ONNX."""
    own = w.layer.outputs[0]
    if w.rank() == 0:
        raise MappingError("indices into a scalar are not supported")
    shape = [None, w.rank()]
    made = w.temporary("positions", INDEX, shape)
    w.layer.outputs = [made]
    perm = w.numbers([1, 0], D.UINT32)

    def exchanged() -> None:
        transposed = w.emit("transpose", made, perm, shape=own.shape)
        w.put("cast", transposed, outputs=[own])

    w.after_emit(exchanged)


POSITIONS = Detail(read=read_positions, write=write_positions)


def same_sizes(scatter: bool) -> Guard:
    """Check that indices have the sizes of the operand along all axes but one."""
    return Guard(
        "the indices must have the sizes of the operand along the other axes",
        lambda w: not cut_axes(int(w.attr("axis", 0)), w.data, w.input(1), scatter),
    )


FEW = Guard(
    "indices with more than two axes are not supported: they terminate the runtime's process",
    lambda w: w.rank(1) <= 2 or w.rank(2) <= w.rank(),
)
AXIS: Any = {"kind": int, "dtype": np.int32}
RULES: list[Rule | Custom] = [
    op(
        "GatherElements",
        "gather_along_axis",
        same_sizes(False),
        position(1),
        AttrInput("axis", 2, **AXIS),
        example_inputs="2,3 =i64:2,1",
    ),
    op(
        "GatherND",
        "gather_nd",
        position(1),
        RequireAttr("batch_dims", 0),
        example_inputs="2,3 =i64:2,1",
    ),
    op(
        "ScatterElements",
        "scatter_along_axis",
        same_sizes(True),
        position(1),
        AttrInput("axis", 3, **AXIS),
        OPPOSITE,
        example_inputs="2,3 =i64:2,1 2,1",
    ),
    op(
        "ScatterND",
        "scatter_nd",
        FEW,
        position(1),
        RequireAttr("reduction", "none"),
        example_inputs="4,3 i64:2,1 2,3",
    ),
    op("NonZero", "non_zero", POSITIONS),
]
