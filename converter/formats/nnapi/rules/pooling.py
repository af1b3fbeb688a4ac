"""Pools."""

from __future__ import annotations

from converter.errors import MappingError
from converter.formats.nnapi.rules.context import Reading, Writing
from converter.formats.nnapi.rules.fields import (
    DILATIONS,
    PADS,
    FusedActivation,
    Window,
    set_window,
    sizes,
)
from converter.mapping.fields import Field, FirstResult, Only
from converter.mapping.rules import op, ops

SIZE = ("filter_height", "filter_width")


class PoolWindow(Window):
    """The window of a pool, with its own size; it has no dilation."""

    keys: tuple[str, ...] = (*(k for k in Window.keys if k not in DILATIONS), *SIZE)

    def kernel_of(self, r: Reading) -> list[int]:
        return sizes(r, SIZE)

    def kernel(self, w: Writing) -> list[int]:
        return [int(n) for n in w.attr("kernel_shape")]

    def lower(self, w: Writing) -> None:
        if any(d != 1 for d in w.attr("dilations", None) or ()):
            raise MappingError("a pool has no dilation there")
        super().lower(w)
        w.layer.attrs |= dict(zip(SIZE, self.kernel(w), strict=True))


class CountedPadding(Field):
    """Padding never counts in an average; where it shall, it is a PAD in front."""

    names = ("count_include_pad",)

    def lower(self, w: Writing) -> None:
        pads = [int(n) for n in w.attr("pads", None) or ()]
        if not w.attr("count_include_pad", 0) or not any(pads):
            return
        x, (top, left, bottom, right) = w.ref(0), pads
        n, height, width, c = w.about(x).dimensions
        amounts = [[0, 0], [top, bottom], [left, right], [0, 0]]
        size = [n, height + top + bottom, width + left + right, c]
        w.operands[0] = w.step("PAD", size, x, input=x, paddings=amounts)
        for key, amount in zip(PADS, pads, strict=True):
            w.layer.attrs[key] -= amount


class WholeImage(Field):
    """The window of a pool over the whole image."""

    keys = PoolWindow.keys

    def lower(self, w: Writing) -> None:
        if len(w.static()) != 4:
            raise MappingError("only two spatial dimensions are possible")
        set_window(w, [0, 0, 0, 0])
        size = w.image(w.data)[1:3]
        w.layer.attrs |= dict(zip(SIZE, size, strict=True))


NO_INDICES = FirstResult("the indices of the maxima are not available")

RULES = [
    op("AveragePool", "AVERAGE_POOL_2D", PoolWindow(), CountedPadding(), FusedActivation()),
    op(
        "MaxPool",
        "MAX_POOL_2D",
        NO_INDICES,
        PoolWindow(),
        Only("storage_order", 0),
        FusedActivation(),
    ),
    *ops(
        "GlobalAveragePool=AVERAGE_POOL_2D GlobalMaxPool=MAX_POOL_2D",
        WholeImage(),
        FusedActivation(),
        lower_only=True,
    ),
    op("netconv::L2Pool", "L2_POOL_2D", PoolWindow(), FusedActivation(), given="1,3,6,6"),
]
