"""Pools."""

from __future__ import annotations

from converter.formats.nnapi.rules.context import LiftContext, LowerContext
from converter.formats.nnapi.rules.fields import (
    DILATIONS,
    FusedActivation,
    Window,
    sizes,
)
from converter.mapping.concepts.window import Geometry, global_window
from converter.mapping.fields import FirstResult, RequireAttr
from converter.mapping.node import Node
from converter.mapping.rules import op, ops

SIZE = ("filter_height", "filter_width")


class PoolWindow(Window):
    """The window of a pool, with its own size; it has no dilation."""

    names = (*Window.names, "count_include_pad")
    keys = (*(k for k in Window.keys if k not in DILATIONS), *SIZE)
    dilated = False

    def size(self, r: LiftContext) -> list[int]:
        return sizes(r, SIZE)

    def kernel(self, node: Node) -> list[int]:
        return list(node.attrs["kernel_shape"])

    def write(self, w: LowerContext, window: Geometry) -> None:
        super().write(w, window)
        w.layer.attrs |= dict(zip(SIZE, window.kernel, strict=True))


class GlobalWindow(PoolWindow):
    """The window of a pool over the whole image."""

    names = ()

    def kernel(self, node: Node) -> list[int]:
        return global_window(node)


NO_INDICES = FirstResult("the indices output is not supported")

RULES = [
    op("AveragePool", "AVERAGE_POOL_2D", PoolWindow(), FusedActivation()),
    op(
        "MaxPool",
        "MAX_POOL_2D",
        NO_INDICES,
        PoolWindow(),
        RequireAttr("storage_order", 0),
        FusedActivation(),
    ),
    *ops(
        "GlobalAveragePool=AVERAGE_POOL_2D GlobalMaxPool=MAX_POOL_2D",
        GlobalWindow(),
        FusedActivation(),
        lower_only=True,
    ),
    op("netconv::L2Pool", "L2_POOL_2D", PoolWindow(), FusedActivation(), example_inputs="1,3,6,6"),
]
