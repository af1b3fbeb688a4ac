"""Reductions. Axes are the second input."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.legacy.rules.context import Reading, Writing, is_float
from converter.formats.openvino.legacy.rules.fields import CAPITAL_TRUTH, Mark
from converter.graph.demands import axis_of
from converter.mapping.fields import Field, Guard, ignore
from converter.mapping.rules import op, ops
from converter.passes import indices

D = ir.DataType


class Axes(Field):
    """Axes of a reduction, counted from the first;
    without any all are meant, unless the operator says that none are.
    """

    names = ("noop_with_empty_axes", "keepdims")
    keys = ("keep_dims",)
    inputs = (1,)

    def lift(self, r: Reading) -> None:
        rank = r.rank()
        axes = [axis_of(a, rank) for a in r.ints(1, "the axes")]
        r.set_inputs(r.data, axes)
        r.set(keepdims=r.attr("keep_dims", CAPITAL_TRUTH, 1))

    def lower(self, w: Writing) -> None:
        axes, keep = axes_of(w), bool(w.attr("keepdims"))
        whole = not keep and len(axes) == len(w.shape())
        w.set_inputs(w.data, axes)
        w.layer.attrs["keep_dims"] = str(keep or whole)
        if whole:
            w.gives([1] * len(axes))


def axes_of(w: Writing) -> list[int]:
    rank = len(w.shape())
    given = w.ints(1, "the axes", [])
    if not given and w.attr("noop_with_empty_axes", 0):
        raise MappingError("a reduction over no axes is not known to the target")
    if rank == 0:
        raise MappingError("a reduction of a scalar is not known to the target")
    return [a % rank for a in given] or list(range(rank))


class Lowest(Axes):
    """A maximum of floats:
    the engine begins with the smallest number above 0, so the minimum of the negative.
    """

    def lower(self, w: Writing) -> None:
        negative: dict[str, Any] = {"power": "1", "scale": "-1", "shift": "0"}
        axes = axes_of(w)
        shape = [1 if a in axes else n for a, n in enumerate(w.shape())]
        x = w.emit("Power", w.data, shape=w.shape(), **negative)
        w.set_inputs(x, axes)
        w.layer.attrs["keep_dims"] = "True"
        w.gives_through("Power", shape, **negative)


def alone(r: Reading) -> None:
    del r.node.inputs[1:]


def as_truth(r: Reading) -> None:
    """ReduceAnd and ReduceOr look at whether numbers are 0."""
    r.data = r.cast(r.cast(r.data, D.BOOL), D.FLOAT)


KINDS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare And Or"
NO_AXES = Guard("there are axes", lift_if=lambda r: not r.ints(1, "the axes"))
SIGNED = Guard(
    "of floats that may be negative only",
    lower_if=lambda w: is_float(w.data) and not indices.never_negative(w.data),
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
    op("ReduceMax", "ReduceMin", SIGNED, Lowest(), lower_only=True),
    op("ReduceMax", "ReduceMax", Axes(), Mark(), given="i32:2,3 =[1]"),
    *ops(
        " ".join(f"Reduce{kind}" for kind in KINDS.split() if kind not in ("Max", "And", "Or")),
        Axes(),
        Mark(),
    ),
    *ops(
        "ReduceMin=ReduceAnd ReduceMax=ReduceOr",
        Axes(),
        Mark(),
        before_lift=as_truth,
        lift_only=True,
    ),
]
