"""Rows of layers along axes: reductions, indices of extremes, softmax, normalisation over axes, running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from converter.formats.zhouyi.ops.fields import Axes, axes_of, axis, axis_of, method, number, rank_of_input, truth
from converter.mapping.fields import Attr, Const, Group, Guard, Only, Weight
from converter.mapping.node import Layer, MappingError, Node
from converter.mapping.table import op

KEPT = Group(("keepdims",), ("keepdims",), lambda far, near: {"keepdims": int(bool(far.attrs.get("keepdims", True)))}, lambda near, far: _kept(near))
LAST = Group(
    ("select_last_index",),
    ("select_last_index",),
    lambda far, near: {"select_last_index": int(bool(far.attrs.get("select_last_index", False)))},
    lambda near, far: {"select_last_index": bool(near.attrs.get("select_last_index", 0))},
)


def _kept(near: Node) -> dict[str, Any]:
    if not near.attrs.get("keepdims", 1):
        raise MappingError("the layer keeps the reduced axes")
    return {}


def _trailing(far: Layer, near: Node) -> dict[str, Any]:
    axes, rank = axes_of(far), rank_of_input(near)
    found = sorted(axis_of(a, rank) for a in axes)
    if found != list(range(found[0], rank)):
        raise MappingError(f"axis={axes} are not the last axes", "R110")
    return {"axis": found[0]}


def _trailing_axes(near: Node, far: Layer) -> dict[str, Any]:
    rank = rank_of_input(near)
    return {"axis": list(range(axis_of(int(near.attrs["axis"]), rank), rank))}


REDUCTIONS = [
    op(f"Reduce{name}", "Reduce", method(word), Axes(), KEPT, Only("noop_with_empty_axes", 0), given="2,3,4 =1")
    for name, word in (("L1", "L1"), ("L2", "L2"), ("Max", "MAX"), ("Mean", "MEAN"), ("Min", "MIN"), ("Prod", "PROD"), ("Sum", "SUM"))
]
ROWS = [
    *REDUCTIONS,
    op("ArgMax", "ArgMinMax", method("MAX"), axis(default=-1), KEPT, LAST, given="2,3"),
    op("ArgMin", "ArgMinMax", method("MIN"), axis(default=-1), KEPT, LAST, given="2,3"),
    op("Softmax", "Softmax", axis(default=-1), given="2,3"),
    op("LogSoftmax", "LogSoftmax", axis(default=-1), given="2,3"),
    op(
        "LayerNormalization", "LayerNorm", Group(("axis",), ("axis",), _trailing, _trailing_axes), Attr("epsilon", "epsilon", number, far_default=1e-5),
        Weight("weights", 1), Weight("biases", 2), Only("stash_type", 1),
        Guard("mean and deviation are not outputs", lower_if=lambda near: len(near.outputs) == 1), given="2,3,4 =4 =4",
    ),
    op(
        "CumSum", "Cumulate", method("SUM"), Const(1, "axis", dtype=np.int64), Attr("exclusive", "exclusive", truth, far_default=0),
        Attr("reverse", "reverse", truth, far_default=0), given="2,3 =",
    ),
]  # fmt: skip
