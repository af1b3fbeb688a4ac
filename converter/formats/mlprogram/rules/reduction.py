"""Reductions, places of the largest, and running sums."""

from __future__ import annotations

import numpy as np

from converter.errors import MappingError
from converter.formats.mlprogram.rules.context import reading
from converter.formats.mlprogram.rules.fields import Axes, data, mil, mils, numbers, whole
from converter.mapping.context import Reading
from converter.mapping.fields import Attr, Field, ignore
from converter.mapping.rules import Custom, Rule

KEEP = Attr("keepdims", "keep_dims", int, default=0)


class Axis(Field):
    """The axis of a running sum is an input."""

    keys = ("axis",)

    def lift(self, r: Reading) -> None:
        r.node.set_input(1, r.b.const(np.array(r.attr("axis", int, 0), np.int64), "axis"))


class Count(Field):
    """How many of the largest; -1 is the whole axis."""

    keys = ("k",)

    def lift(self, r: Reading) -> None:
        axis = int(r.node.attrs.get("axis", -1))
        array = r.layer.attrs.get("k", 1)
        if isinstance(array, int):
            size = (data(r).shape or [None])[axis] if array == -1 else array
            if not isinstance(size, int):
                raise MappingError("the size of the axis must be known", "X203")
            r.node.set_input(1, numbers(r, [size], "k"))
        else:
            r.node.set_input(1, r.b.Reshape(whole(r, reading(r).value("k")), [1]))


class Falling(Field):
    keys = ("ascending",)
    names = ("largest",)

    def lift(self, r: Reading) -> None:
        r.node.attrs["largest"] = int(not r.attr("ascending", bool, False))


def whole_axis(r: Reading) -> None:
    """argsort: all of an axis by size."""
    size = (data(r).shape or [None])[int(r.node.attrs["axis"])]
    if isinstance(size, int):
        r.node.set_input(1, numbers(r, [size], "k"))
    else:
        axis = int(r.node.attrs["axis"]) % r.rank(data(r))
        r.node.set_input(1, r.b.Slice(r.b.Shape(data(r)), [axis], [axis + 1], [0]))
    r.outputs = 2
    r.then(lambda results: [results[1]])


AXIS = Attr("axis", kind=int, default=-1)
RULES: list[Rule | Custom] = [
    *mils(
        "ReduceL1=reduce_l1_norm ReduceL2=reduce_l2_norm ReduceLogSum=reduce_log_sum "
        "ReduceLogSumExp=reduce_log_sum_exp ReduceMax=reduce_max ReduceMean=reduce_mean "
        "ReduceMin=reduce_min ReduceProd=reduce_prod ReduceSum=reduce_sum "
        "ReduceSumSquare=reduce_sum_square",
        "x",
        Axes(),
        KEEP,
    ),
    *mils("ArgMax=reduce_argmax ArgMin=reduce_argmin", "x", AXIS, KEEP, ignore("output_dtype")),
    mil(
        "CumSum",
        "cumsum",
        "x",
        Axis(),
        Attr("exclusive", kind=int, default=0),
        Attr("reverse", kind=int, default=0),
    ),
    mil(
        "TopK",
        "topk",
        "x",
        AXIS,
        Falling(),
        Count(),
        Attr("sorted", "sort", int, default=1),
        ignore("return_indices", "output_indices_dtype"),
        before_lift=lambda r: setattr(r, "outputs", 2),
    ),
    mil("TopK", "argsort", "x", AXIS, Falling(), before_lift=whole_axis),
]
