"""Convolutions and matrix products.

Filters are stored O H W I, those of a depthwise convolution 1 H W O, of three axes D H W I O,
weights of a dense layer [units, input size].
"""

from __future__ import annotations

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.tflite.rules.fields import (
    SAME,
    Bias,
    Depth,
    Filter,
    FusedActivation,
    Window,
    channels,
    data,
    reading,
    sizes,
)
from converter.graph.infer import known
from converter.graph.windows import halves
from converter.mapping.context import Reading
from converter.mapping.fields import Field, Fixed
from converter.mapping.rules import op


class Multiplier(Field):
    """`depth_multiplier` output channels for each of the input, whose number is `group`.

    The shapes say both; the option may be wrong, and is not looked at.
    """

    names = ("group",)
    keys = ("depth_multiplier",)

    def lift(self, r: Reading) -> None:
        own, weights = channels(r), r.node.inputs[1]
        units = r.static(weights, "the filter")[0] if weights is not None else 0
        if own is None:
            own = units // max(1, r.attr("depth_multiplier", int))
        if own < 1 or units % own:
            raise MappingError(f"{units} filters for {own} channels", "R105")
        r.node.attrs["group"] = own


class WantedSize(Field):
    """The padding of a transposed convolution, which the size of the result at input 0 leaves.

    Inputs are [size, filter, image, bias]. Where sizes are known only at run time, they are those
    that the scheme of padding gives.
    """

    names = ("strides", "pads", "kernel_shape", "output_padding", "dilations")
    inputs = (0,)

    def __init__(self, axes: str = "hw") -> None:
        self.axes = axes
        dilations = [f"dilation_{x}_factor" for x in axes] if len(axes) == 3 else []
        self.keys = ("padding", *(f"stride_{x}" for x in axes), *dilations)

    def lift(self, r: Reading) -> None:
        a, kernel = r.node.attrs, r.static(r.node.inputs[1], "the filter")[2:]  # type: ignore[arg-type]
        strides = [r.attr(f"stride_{x}", int) for x in self.axes]
        if any(r.attr(k, int) != 1 for k in self.keys if k.startswith("dilation")):
            raise MappingError("a dilated transposed convolution")
        scheme, wanted, size = r.attr("padding", int), self._wanted(r), sizes(r.input(2))[1:-1]
        totals = []
        for n, target, k, s in zip(size, wanted, kernel, strides, strict=True):
            if n is None or target is None:
                totals.append(k - s if scheme == SAME else min(0, k - s))
            else:
                totals.append((n - 1) * s + k - target)
        a |= {"strides": strides, "kernel_shape": list(kernel)}
        a["pads"] = halves([max(0, n) for n in totals])
        a["output_padding"] = [max(0, -n) for n in totals]
        r.node.inputs[0] = r.input(2)
        del r.node.inputs[3:]

    def _wanted(self, r: Reading) -> list[int | None]:
        """The spatial sizes that are asked for, as far as they are known."""
        asked, stated = known(r.input(0)), reading(r).result().shape
        if asked is not None and asked.size == len(self.axes) + 2:
            return [int(n) for n in asked[1:-1]]
        if len(stated) != len(self.axes) + 2:
            return [None] * len(self.axes)
        return [n if n > 0 else None for n in stated[1:-1]]


class Dense(Field):
    """Weights [units, input size] and a bias; an input of other axes is rows of that size, which
    `keep_num_dims` puts back.
    """

    inputs = (1, 2)
    keys = ("keep_num_dims",)

    def lift(self, r: Reading) -> None:
        t, x = reading(r), data(r)
        _, size = r.static(t.stored(1), "the weights")
        rank = None if x.shape is None else len(x.shape)
        keep = r.attr("keep_num_dims", bool) and rank != 1
        if not keep and (rank != 2 or x.shape is None or x.shape[1] != size):
            x = r.b.Reshape(x, [-1, size])
        r.node.inputs = [x, t.permuted(1, (1, 0))]
        bias = t.real_bias(2)
        if bias is not None:
            r.then(lambda results: [r.b.Add(results[0], bias)])


class Matrices(Field):
    """Stacks of matrices, each of which may be transposed."""

    keys = ("adj_x", "adj_y")

    def lift(self, r: Reading) -> None:
        for i, key in enumerate(self.keys):
            if r.attr(key, bool):
                value = r.input(i)
                n = r.rank(value)
                r.node.inputs[i] = r.transpose(value, [*range(n - 2), n - 1, n - 2])


def widened(r: Reading) -> None:
    """Integers of 8 bits are multiplied as they are into 32."""
    for i, v in enumerate(r.node.inputs):
        if v is not None and v.dtype in (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16):
            r.node.inputs[i] = r.cast(v, ir.DataType.INT32)


RULES = [
    op("Conv", "CONV_2D", Depth(), Filter((0, 2, 3, 1)), Bias(), Window(), FusedActivation()),
    op(
        "Conv",
        "DEPTHWISE_CONV_2D",
        Filter((1, 2, 3, 0)),
        Multiplier(),
        Bias(),
        Window(),
        FusedActivation(),
    ),
    op(
        "Conv",
        "CONV_3D",
        Filter((2, 3, 4, 1, 0)),
        Bias(),
        Window("dhw"),
        FusedActivation(),
    ),
    op(
        "ConvTranspose",
        "TRANSPOSE_CONV",
        Filter((1, 2, 3, 0)),
        Bias(3),
        WantedSize(),
        FusedActivation(),
    ),
    op(
        "ConvTranspose",
        "CONV_3D_TRANSPOSE",
        Filter((2, 3, 4, 1, 0)),
        Bias(3),
        WantedSize("dhw"),
        FusedActivation(),
    ),
    op("MatMul", "FULLY_CONNECTED", Fixed("weights_format", 0), Dense(), FusedActivation()),
    op("MatMul", "BATCH_MATMUL", Matrices(), before_lift=widened),
]
