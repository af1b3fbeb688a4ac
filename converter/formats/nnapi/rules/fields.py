"""Field kinds of the rows of operand tables: axes, windows, filters, biases, fused activations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from converter.errors import MappingError
from converter.formats.lite import fields as lite
from converter.formats.lite.weights import Bias
from converter.formats.nnapi.collector import Ref
from converter.formats.nnapi.quantization import dequantize_operand
from converter.formats.nnapi.rules.context import ACTIVATION, LiftContext, LowerContext
from converter.mapping.concepts import window
from converter.mapping.concepts.window import Geometry
from converter.mapping.context import REQUIRED
from converter.mapping.fields import Detail, Field, Guard
from converter.passes.layout.axes import inverse
from converter.record import record

SAME, VALID = 1, 2
PADS = ("pad_top", "pad_left", "pad_bottom", "pad_right")  # in the order of ONNX
STRIDES = ("stride_height", "stride_width")
DILATIONS = ("dilation_height", "dilation_width")


# conditions --------------------------------------------------------------------------------------


def from_level(level: int) -> Guard:
    """The row is written from a feature level on."""
    return Guard(f"feature level {level} is needed", lambda w: w.version >= level)


# axes --------------------------------------------------------------------------------------------


def read_channel_axis(r: LiftContext) -> None:
    """`axis` <-> axis 1 of an operator on four axes.

    It is written channels-last, so that the argument is omitted.
    """
    x, rank = r.data, r.rank(r.data)
    axis = r.attr("axis", int, -1) % max(1, rank)
    if axis == rank - 1 == 3:
        return
    shape = list(r.static(x))
    axis += 4 - rank
    order = [0, axis, *(i for i in range(1, 4) if i != axis)] if axis else [1, 0, 2, 3]
    x = x if rank == 4 else r.b.Reshape(x, [*[1] * (4 - rank), *shape])
    r.data, r.node.last = r.transpose(x, order), False
    r.after_first(lambda y: r.transpose(y, inverse(order)))
    if rank != 4:
        r.after_first(lambda y: r.b.Reshape(y, shape))


CHANNEL_AXIS = Detail(read=read_channel_axis, keys=("axis",))


@record
class ChannelsFirst(Field):
    """Images that the operator takes with channels first: the first inputs, one for each name."""

    names_: tuple[str, ...]

    def lift(self, r: LiftContext) -> None:
        for i, name in enumerate(() if r.nchw else self.names_):
            transposed = r.b.Transpose(r.stored(name), perm=[0, 3, 1, 2])
            r.node.inputs[i] = dequantize_operand(r.b, transposed, r.operand(name))

    def lower(self, w: LowerContext) -> None:
        w.set(nchw=True)


# activations -------------------------------------------------------------------------------------

FusedActivation = partial(lite.FusedActivation, ACTIVATION)

# weights -----------------------------------------------------------------------------------------

BIAS = Bias("bias", "filter", "input")

# windows -----------------------------------------------------------------------------------------


def sizes(r: LiftContext, names: Sequence[str], default: Any = REQUIRED) -> list[int]:
    """Return the scalars of these names, each at least 1; MappingError R110 otherwise."""
    return [r.count(n, default) for n in names]


class Window(window.Window):
    """A window with explicit padding or a padding scheme; averages never count padding."""

    axes, counts = (2,), False
    keys: tuple[str, ...] = (*PADS, *STRIDES, *DILATIONS, "padding")

    def read(self, r: LiftContext) -> Geometry:
        pads = [r.attr(k, int) for k in PADS] if "pad_left" in r.layer.attrs else []
        scheme = VALID if pads else r.attr("padding", int)
        if scheme not in (SAME, VALID):
            message = f"padding scheme {scheme} is not known; use {SAME} (SAME) or {VALID} (VALID)"
            raise MappingError(message, "R110")
        steps = self.size(r), sizes(r, STRIDES), sizes(r, DILATIONS, 1)
        return Geometry(*steps, pads, "SAME_UPPER" if scheme == SAME else "")

    def size(self, r: LiftContext) -> list[int]:
        return self.kernel(r.node)

    def write(self, w: LowerContext, window: Geometry) -> None:
        w.layer.attrs |= dict(zip((*PADS, *STRIDES), (*window.pads, *window.strides), strict=True))
        if any(d != 1 for d in window.dilations):
            w.layer.attrs |= dict(zip(DILATIONS, window.dilations, strict=True))
        if any(window.counted):
            w.operands[0] = padded(w, window.counted)


def padded(w: LowerContext, pads: Sequence[int]) -> Ref:
    """Return the image padded with zeros by a PAD before the operation."""
    x, (top, left, bottom, right) = w.ref(0), pads
    n, height, width, c = w.about(x).dimensions
    amounts = [[0, 0], [top, bottom], [left, right], [0, 0]]
    size = [n, height + top + bottom, width + left + right, c]
    return w.step("PAD", size, x, input=x, paddings=amounts)
