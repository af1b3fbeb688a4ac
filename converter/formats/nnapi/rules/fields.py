"""Field kinds of the rows of operand tables: axes, windows, filters, biases, fused activations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite import fields as lite
from converter.formats.lite.weights import Bias
from converter.formats.nnapi.quantization import dequantize_operand
from converter.formats.nnapi.rules.context import ACTIVATION, Reading, Writing
from converter.graph.infer import shape_of
from converter.graph.record import record
from converter.graph.windows import rounded_up, same_pads
from converter.mapping.context import REQUIRED
from converter.mapping.fields import Detail, Field, Guard
from converter.passes.layout.axes import inverse

SAME, VALID = 1, 2
PADS = ("pad_top", "pad_left", "pad_bottom", "pad_right")  # in the order of ONNX
STRIDES = ("stride_height", "stride_width")
DILATIONS = ("dilation_height", "dilation_width")


# conditions --------------------------------------------------------------------------------------


def from_level(level: int) -> Guard:
    """The row is written from a feature level on."""
    return Guard(f"it needs feature level {level}", lambda w: w.version >= level)


# axes --------------------------------------------------------------------------------------------


def read_channel_axis(r: Reading) -> None:
    """`axis` <-> axis 1 of an operator on four axes.

    It is written channels-last, so that the argument is left out.
    """
    x = r.data
    rank = r.rank(x)
    axis = r.attr("axis", int, -1) % max(1, rank)
    if axis == rank - 1 == 3:
        return
    shape = list(r.static(x))
    axis += 4 - rank
    order = [0, axis, *(i for i in range(1, 4) if i != axis)] if axis else [1, 0, 2, 3]
    x = x if rank == 4 else r.b.Reshape(x, [*[1] * (4 - rank), *shape])
    r.data, r.node.last = r.transpose(x, order), False
    r.behind(lambda y: r.transpose(y, inverse(order)))
    if rank != 4:
        r.behind(lambda y: r.b.Reshape(y, shape))


CHANNEL_AXIS = Detail(read=read_channel_axis, keys=("axis",))


@record
class ChannelsFirst(Field):
    """Images of which the operator takes the channels first.

    The first inputs, as many as there are names.
    """

    names_: tuple[str, ...]

    def lift(self, r: Reading) -> None:
        for i, name in enumerate(() if r.nchw else self.names_):
            turned = r.b.Transpose(r.stored(name), perm=[0, 3, 1, 2])
            r.node.inputs[i] = dequantize_operand(r.b, turned, r.operand(name))

    def lower(self, w: Writing) -> None:
        w.set(nchw=True)


# activations -------------------------------------------------------------------------------------

FusedActivation = partial(lite.FusedActivation, ACTIVATION)

# weights -----------------------------------------------------------------------------------------

BIAS = Bias("bias", "filter", "input")

# windows -----------------------------------------------------------------------------------------


def numbers(r: Reading, names: Sequence[str]) -> list[int]:
    """The scalars of these names."""
    return [r.attr(n, int) for n in names]


def sizes(r: Reading, names: Sequence[str], default: Any = REQUIRED) -> list[int]:
    """The scalars of these names, each at least 1; MappingError R110 otherwise."""
    return [r.count(n, default) for n in names]


def set_window(w: Writing, pads: Sequence[int]) -> None:
    """Explicit padding, and strides."""
    if min(pads) < 0:
        raise MappingError(f"the padding {list(pads)} is negative")
    numbers = [int(n) for n in (*pads, *(w.attr("strides", None) or (1, 1)))]
    w.layer.attrs |= dict(zip((*PADS, *STRIDES), numbers, strict=True))


class Window(Field):
    """Strides, dilations and padding, explicit or by scheme <-> those of ONNX.

    When writing, automatic padding is computed, and rounding up becomes padding behind.
    """

    names: tuple[str, ...] = (
        "strides",
        "dilations",
        "pads",
        "auto_pad",
        "kernel_shape",
        "ceil_mode",
    )
    keys: tuple[str, ...] = (*PADS, *STRIDES, *DILATIONS, "padding")
    strides, dilations, schemes = STRIDES, DILATIONS, (SAME, VALID)

    def spatial_of(self, r: Reading) -> Sequence[int]:
        """Height and width of the image."""
        return r.spatial()

    def spatial(self, w: Writing, value: ir.Value) -> Sequence[int]:
        return w.image(value)[1:3]

    def kernel_of(self, r: Reading) -> list[int]:
        shape = shape_of(r.node.input(1))
        if shape is None:
            raise MappingError("the shape of the filter must be known")
        return list(shape[2:])

    def kernel(self, w: Writing) -> list[int]:
        return list(w.static(1)[2:])

    def lift(self, r: Reading) -> None:
        a, kernel = r.node.attrs, self.kernel_of(r)
        a["kernel_shape"], a["strides"] = kernel, sizes(r, self.strides)
        a["dilations"] = sizes(r, self.dilations, 1)
        if "pad_left" in r.layer.attrs:
            a["pads"] = numbers(r, PADS)
            return
        scheme, (same, valid) = r.attr("padding", int), self.schemes
        if scheme not in self.schemes:
            message = f"padding scheme {scheme} is not known ({same} is SAME, {valid} is VALID)"
            raise MappingError(message, "R110")
        a["pads"] = [0, 0, 0, 0]
        if scheme == same:
            a["pads"] = same_pads(self.spatial_of(r), kernel, a["strides"], a["dilations"])

    def lower(self, w: Writing) -> None:
        dilations = [int(n) for n in w.attr("dilations", None) or (1, 1)]
        set_window(w, self.pads(w, self.kernel(w), dilations))
        if dilations != [1, 1]:
            w.layer.attrs |= dict(zip(DILATIONS, dilations, strict=True))

    def pads(self, w: Writing, kernel: list[int], dilations: list[int]) -> list[int]:
        """Top, left, bottom, right; automatic padding is computed, rounding up is put behind."""
        auto, strides = w.attr("auto_pad", "NOTSET"), w.attr("strides", None) or (1, 1)
        pads = list(w.attr("pads", None) or (0, 0, 0, 0))
        if len(w.static()) != 4:
            raise MappingError("only two spatial dimensions are possible")
        window = self.spatial(w, w.data), kernel, strides, dilations
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            pads = same_pads(*window, upper=auto == "SAME_UPPER")
        if w.attr("ceil_mode", 0):
            pads = rounded_up(pads, *window, self.spatial(w, w.out))
        return [int(n) for n in pads]
