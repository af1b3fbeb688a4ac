"""Pools and other windows."""

from __future__ import annotations

from functools import reduce

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.tflite.rules.context import LiftContext, LowerContext
from converter.formats.tflite.rules.fields import (
    FusedActivation,
    Window,
    data,
    explicit_pad,
)
from converter.formats.tflite.schema import schema
from converter.graph.value import Value, with_operators
from converter.mapping.concepts.window import Geometry
from converter.mapping.fields import Field, FirstResult, RequireAttr
from converter.mapping.node import Node
from converter.mapping.rules import op

MOST = 1 << 12  # elements of a window that become separate slices
LARGE = np.iinfo(np.int64).max
W = schema.ReduceWindowFunction
FUNCTIONS = {
    W.ADD: "Add",
    W.MUL: "Mul",
    W.MINIMUM: "Min",
    W.MAXIMUM: "Max",
    W.ALL: "And",
    W.ANY: "Or",
}


class ReduceFunction(Field):
    """The function that combines two numbers, which is the operator."""

    keys = ("reduce_function",)

    def lift(self, r: LiftContext) -> None:
        number = r.attr("reduce_function", int)
        if number not in FUNCTIONS:
            raise MappingError(f"reduce_function must be 1 to 6, got {number}", "R110")
        r.node.op = FUNCTIONS[number]


class JoinedWindows(Field):
    """Windows of any rank, without padding: for each axis, strided slices are concatenated. Inputs
    are [data, start, sizes, strides, dilations].
    """

    def lift(self, r: LiftContext) -> None:
        x, lists = data(r), [r.ints(i, "the window") for i in (2, 3, 4)]
        smallest = min((n for v in lists for n in v), default=1)
        if {len(v) for v in lists} != {r.rank(x)} or smallest < 1:
            raise MappingError(
                f"a window of {lists[0]} does not fit data of rank {r.rank(x)}", "R105"
            )
        if max(lists[0], default=1) > MOST:
            raise MappingError(f"a window of {lists[0]} elements is not supported")
        join = r.b.operator(r.node.op)
        for axis, (size, stride, dilation) in enumerate(zip(*lists, strict=True)):
            if size > 1 or stride > 1:
                x = reduce(join, windows(r, x, axis, size, stride, dilation))
        r.set_inputs(r.b.Reshape(r.input(1), []), x)


def windows(
    r: LiftContext, x: ir.Value, axis: int, size: int, stride: int, dilation: int
) -> list[Value]:
    """Return the first elements of all windows along an axis, then the second ones, and so on."""
    found = []
    for i in range(size):
        left = (size - 1 - i) * dilation
        end = -left if left else LARGE
        found.append(r.b.Slice(x, [i * dilation], [end], [axis], [stride]))
    return [with_operators(v) for v in found]


class PoolWindow(Window):
    """The window of a pool, with its own size; it has no dilations."""

    dilated = False

    def __init__(self) -> None:
        super().__init__()
        self.keys = ("padding", *self.strides, *self.sizes)

    def size(self, r: LiftContext) -> list[int]:
        return [r.attr(k, int) for k in self.sizes]

    def kernel(self, node: Node) -> list[int]:
        return [int(n) for n in node.attrs["kernel_shape"]]

    def write(self, w: LowerContext, window: Geometry) -> None:
        w.one_scale()
        super().write(w, window)

    def padded(self, t: LowerContext, pads: list[int]) -> None:
        """Insert zeros by PAD, which count in an average."""
        raise MappingError(
            f"padding {pads} that is excluded from the average must be SAME or VALID"
        )


class MaxWindow(PoolWindow):
    """A window whose padding is the lowest number."""

    def padded(self, t: LowerContext, pads: list[int]) -> None:
        t.layer.inputs[0] = explicit_pad(t, pads, -np.inf)


class MeanWindow(PoolWindow):
    """A window whose padding never counts in the mean; if it must, an explicit PAD is inserted
    before.
    """

    names = (*Window.names, "count_include_pad")


NO_INDICES = FirstResult("the indices output is not supported")
RULES = [
    op(
        "AveragePool",
        "AVERAGE_POOL_2D",
        MeanWindow(),
        FusedActivation(),
    ),
    op(
        "MaxPool",
        "MAX_POOL_2D",
        NO_INDICES,
        MaxWindow(),
        RequireAttr("storage_order", 0),
        FusedActivation(),
    ),
    op(
        "netconv::L2Pool",
        "L2_POOL_2D",
        PoolWindow(),
        FusedActivation(),
        example_inputs="1,3,6,6",
    ),
    op("Add", "REDUCE_WINDOW", ReduceFunction(), JoinedWindows(), lift_only=True),
]
