"""Field kinds of the rows of operand tables: axes, windows, filters, biases, fused activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.nnapi.collector import Ref
from converter.formats.nnapi.operations import operations
from converter.formats.nnapi.quantization import dequantise
from converter.formats.nnapi.rules.context import ACTIVATION, Reading, Writing
from converter.formats.nnapi.rules.weights import bias, weights
from converter.graph.catalogue.cells import ACTIVATIONS
from converter.graph.record import record
from converter.mapping.codecs import enum
from converter.mapping.concepts import window
from converter.mapping.concepts.window import Geometry
from converter.mapping.context import REQUIRED
from converter.mapping.fields import Field, Guard
from converter.passes.layout.axes import inverse

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)
SAME, VALID = 1, 2
PADS = ("pad_top", "pad_left", "pad_bottom", "pad_right")  # in the order of ONNX
STRIDES = ("stride_height", "stride_width")
DILATIONS = ("dilation_height", "dilation_width")


# conditions --------------------------------------------------------------------------------------

TWO = Guard("it takes two operands", lambda w: len(w.node.inputs) == 2)


def of_types(what: str, holds: Callable[[ir.DataType | None], bool]) -> Guard:
    """The row is for a first operand of these types."""

    def first(r: Reading) -> ir.DataType | None:
        kind: ir.DataType | None = r.real(r.binding.signature.inputs[0].name).dtype
        return kind

    return Guard(
        f"of {what} only",
        lambda w: holds(w.data.dtype),
        lift_if=lambda r: holds(first(r)),
    )


def from_level(level: int) -> Guard:
    """The row is written from a feature level on."""
    return Guard(f"it needs feature level {level}", lambda w: w.version >= level)


# axes --------------------------------------------------------------------------------------------


class ChannelAxis(Field):
    """`axis` <-> axis 1 of an operator on four axes.

    It is written channels-last, so that the argument is left out.
    """

    keys = ("axis",)

    def lift(self, r: Reading) -> None:
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


@record
class ChannelsFirst(Field):
    """Images of which the operator takes the channels first.

    The first inputs, as many as there are names.
    """

    names_: tuple[str, ...]

    def lift(self, r: Reading) -> None:
        for i, name in enumerate(() if r.nchw else self.names_):
            turned = r.b.Transpose(r.stored(name), perm=[0, 3, 1, 2])
            r.node.inputs[i] = dequantise(r.b, turned, r.operand(name))

    def lower(self, w: Writing) -> None:
        w.set(nchw=True)


# activations -------------------------------------------------------------------------------------

# names of activations <-> codes; the last two are those of recurrent layers only
CODES = enum({"": 0, "Relu": 1, "Relu1": 2, "Relu6": 3, "Tanh": 4, "Sigmoid": 6})


class FusedActivation(Field):
    """`activation` <-> a Relu or Clip behind the operator.

    The codes are 0 none, 1 RELU, 2 RELU1 (-1..1), 3 RELU6.
    """

    keys = (ACTIVATION,)

    def lift(self, r: Reading) -> None:
        name = r.attr(self.keys[0], CODES, "")
        if name in ("Tanh", "Sigmoid"):
            raise MappingError(f"activation {name} is not possible here", "R110")
        r.behind(lambda y: ACTIVATIONS[name](r.b, y))

    def lower(self, w: Writing) -> None:
        w.fuse = True


# weights -----------------------------------------------------------------------------------------


@record
class Filter(Field):
    """Weights at input 1 <-> the argument `name`.

    Axis i of the argument is axis `perm[i]` of the operator's weights.

    Quantised filters keep their integers; see weights.py.
    """

    perm: tuple[int, ...]
    name: str = "filter"
    inputs = (1,)

    def __post_init__(self) -> None:
        self.keys = (self.name,)

    def lift(self, r: Reading) -> None:
        order = [int(i) for i in np.argsort(self.perm)]
        r.set_input(1, r.permuted(self.name, order))

    def lower(self, w: Writing) -> None:
        w.layer.attrs[self.name] = weights(w, 1, self.perm, w.ref(0))


def real_bias(t: Reading, name: str) -> ir.Value:
    """The bias as real numbers.

    Beside weights with a scale for each channel its own scale is 0; the true ones are the scale of
    the input times those of the weights.
    """
    operand, channel = t.operand("bias"), t.operand(name).channel_quant
    if channel is None or operand.scale:
        return t.real("bias")
    scales = np.float32(t.operand("input").scale) * np.array(channel.scales, np.float32)
    return t.b.DequantizeLinear(t.stored("bias"), scales, axis=0)


class Bias(Field):
    """The optional bias at input 2 <-> the argument `bias`, which is always there.

    Beside quantised data it is int32.

    There are as many numbers as the filter has outputs.
    """

    inputs = (2,)
    keys = ("bias",)

    def lift(self, r: Reading) -> None:
        r.set_input(2, real_bias(r, "filter"))

    def lower(self, w: Writing) -> None:
        filter_: Ref = w.layer.attrs["filter"]
        operand = w.about(filter_)
        count = operand.dimensions[operations()[w.layer.kind].channel_dim or 0]
        w.set(bias=bias(w, w.optional(2), count, w.ref(0), filter_))


# windows -----------------------------------------------------------------------------------------


def sizes(r: Reading, names: Sequence[str], default: Any = REQUIRED) -> list[int]:
    """The scalars of these names, each at least 1; MappingError R110 otherwise."""
    return [r.count(n, default) for n in names]


class Window(window.Window):
    """Padding is explicit, or by a scheme, and never counts in an average."""

    axes, counts = (2,), False
    keys: tuple[str, ...] = (*PADS, *STRIDES, *DILATIONS, "padding")

    def read(self, r: Reading) -> Geometry:
        pads = [r.attr(k, int) for k in PADS] if "pad_left" in r.layer.attrs else []
        scheme = VALID if pads else r.attr("padding", int)
        if scheme not in (SAME, VALID):
            message = f"padding scheme {scheme} is not known ({SAME} is SAME, {VALID} is VALID)"
            raise MappingError(message, "R110")
        steps = self.size(r), sizes(r, STRIDES), sizes(r, DILATIONS, 1)
        return Geometry(*steps, pads, "SAME_UPPER" if scheme == SAME else "")

    def size(self, r: Reading) -> list[int]:
        return self.kernel(r.node)

    def write(self, w: Writing, window: Geometry) -> None:
        w.layer.attrs |= dict(zip((*PADS, *STRIDES), (*window.pads, *window.strides), strict=True))
        if any(d != 1 for d in window.dilations):
            w.layer.attrs |= dict(zip(DILATIONS, window.dilations, strict=True))
        if any(window.counted):
            w.operands[0] = padded(w, window.counted)


def padded(w: Writing, pads: Sequence[int]) -> Ref:
    """The image with zeros around it, which a PAD before the operation makes."""
    x, (top, left, bottom, right) = w.ref(0), pads
    n, height, width, c = w.about(x).dimensions
    amounts = [[0, 0], [top, bottom], [left, right], [0, 0]]
    size = [n, height + top + bottom, width + left + right, c]
    return w.step("PAD", size, x, input=x, paddings=amounts)
