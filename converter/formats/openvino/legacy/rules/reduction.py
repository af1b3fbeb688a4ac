"""Reductions. Axes are the second input."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.formats.openvino.legacy.rules.context import LiftContext, LowerContext, is_float
from converter.formats.openvino.legacy.rules.fields import CAPITAL_TRUTH, MARK_LAYER
from converter.mapping.concepts.axes import Axes
from converter.mapping.fields import Attr, Detail, Guard, ImpliedAttrs, WriteKey, ignore
from converter.mapping.rules import op, ops

D = ir.DataType


def keep_one_axis(w: LowerContext) -> None:
    """A scalar result is written as a single element and squeezed."""
    shape = w.shape()
    if not w.attr("keepdims") and len(AXES.reduced(w)) == len(shape):
        w.layer.attrs["keep_dims"] = CAPITAL_TRUTH.lower(True)
        w.gives([1] * len(shape))


def through_minimum(w: LowerContext) -> None:
    """A maximum of floats is the minimum of the negated data: the engine initializes a maximum with
    the smallest positive number.
    """
    negative: dict[str, Any] = {"power": "1", "scale": "-1", "shift": "0"}
    axes = AXES.reduced(w)
    shape = [1 if a in axes else n for a, n in enumerate(w.shape())]
    x = w.emit("Power", w.data, shape=w.shape(), **negative)
    w.set_operand(0, x)
    w.gives_through("Power", shape, **negative)


def alone(r: LiftContext) -> None:
    """Remove all operands but the first one."""
    del r.node.inputs[1:]


def test_for_nonzero(r: LiftContext) -> None:
    """Convert the numbers of ReduceAnd and ReduceOr to booleans: whether they are not 0."""
    r.data = r.cast(r.cast(r.data, D.BOOL), D.FLOAT)


AXES = Axes(1)
REDUCED = (
    AXES,
    Attr("keepdims", "keep_dims", CAPITAL_TRUTH, 1),
    Detail(write=keep_one_axis),
)
KINDS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare And Or"
NO_AXES = Guard("the axes must be given", lift_if=lambda r: not r.ints(1, "the axes"))
FLOATING = Guard(
    "only floating-point data are supported by this layer", lower_if=lambda w: is_float(w.data)
)

RULES = [
    *(
        op(
            "Identity",
            f"Reduce{kind}",
            NO_AXES,
            ignore("keep_dims"),
            before_lift=alone,
            lift_only=True,
        )
        for kind in KINDS.split()
    ),
    op(
        "ReduceMax",
        "ReduceMin",
        FLOATING,
        Detail(write=through_minimum),
        AXES,
        ImpliedAttrs(("keepdims",)),
        WriteKey("keep_dims", "True"),
        lower_only=True,
    ),
    op("ReduceMax", "ReduceMax", *REDUCED, MARK_LAYER, example_inputs="i32:2,3 =[1]"),
    *ops(
        " ".join(f"Reduce{kind}" for kind in KINDS.split() if kind not in ("Max", "And", "Or")),
        *REDUCED,
        MARK_LAYER,
    ),
    *ops(
        "ReduceMin=ReduceAnd ReduceMax=ReduceOr",
        *REDUCED,
        MARK_LAYER,
        before_lift=test_for_nonzero,
        lift_only=True,
    ),
]
