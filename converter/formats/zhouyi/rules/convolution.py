"""Windows of weights: convolution, transposed convolution, morphology, patches."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rules.context import LiftContext
from converter.formats.zhouyi.rules.fields import Window, constant_of, keys, pad_keys
from converter.formats.zhouyi.types import numpy_type
from converter.graph.infer import constant, shape_of
from converter.graph.sizes import arange
from converter.mapping import context
from converter.mapping.concepts import transposed_window
from converter.mapping.concepts.window import Geometry, weights_kernel
from converter.mapping.context import LowerContext
from converter.mapping.fields import Attr, Field, Group, Guard, Weight, WriteKey, ignore, spread
from converter.mapping.node import Node
from converter.mapping.rules import Rule, custom, op
from converter.record import record

# ONNX order of weights -> the order of the .bin; the depth of a 3-D kernel follows its width,
# though the data are N D H W C
CONV_2D, CONV_3D = (0, 2, 3, 1), (0, 3, 4, 2, 1)
DECONV_2D, DECONV_3D = (1, 2, 3, 0), (1, 3, 4, 2, 0)


@record
class Biases(Field):
    """`biases`, which every reader requires: zeros if the canonical operator has none.
    `weights_axis`: the axis of the weights that counts the output channels; with `grouped` those of
    one group.
    """

    weights_axis: int = 0
    grouped: bool = False
    blobs = ("biases",)
    inputs = (2,)

    def lift(self, r: LiftContext) -> None:
        r.node.set_input(2, r.bias())

    def lower(self, w: LowerContext) -> None:
        if w.optional(2) is not None:
            w.layer.blobs["biases"] = constant_of(w, 2, "the biases")
            return
        weights, groups = constant_of(w, 1, "the weights"), w.attr("group") if self.grouped else 1
        zeros = np.zeros(weights.shape[self.weights_axis] * groups, weights.dtype)
        w.layer.blobs["biases"] = zeros


def num_output(weights_axis: int, grouped: bool = False) -> Group:
    """Return the field of the number of outputs, which is written for other tools; only the shape
    of the weights is read.
    """

    def lower(w: LowerContext) -> dict[str, Any]:
        shape = shape_of(w.node.input(1))
        if shape is None:
            raise MappingError("the weights must be constant")
        return {"num_output": shape[weights_axis] * (w.attr("group") if grouped else 1)}

    return Group((), ("num_output",), lower_=lower)


class DepthwiseWeights(Weight):
    """Weights [channels * multiplier, y, x, 1]; each channel is a group, independent of `group`."""

    names = ("group",)
    keys = ("group",)

    def lift(self, r: context.LiftContext) -> None:
        super().lift(r)
        weights = r.node.input(1)
        assert weights is not None
        channels = r.static(weights, least=2)[1]
        if channels != 1:
            what = f"weights of {channels} channels for each group"
            raise MappingError(f"{what} must have a last dimension of 1", "R105")
        r.node.attrs["group"] = r.static(least=1)[-1]

    def lower(self, w: LowerContext) -> None:
        super().lower(w)
        w.set(group=int(w.attr("group")))


class TransposedWindow(Window, transposed_window.TransposedWindow):
    """A window whose `output_padding_*` is read; it is written as smaller pads at the end."""

    names = ("output_padding", *Window.names[:-1], "output_shape")

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.extra = keys("output_padding", rank)
        self.keys += self.extra

    def read(self, r: LiftContext) -> Geometry:
        extra = [r.attr(k, int, 0) for k in self.extra]
        return replace(super().read(r), extra=extra if any(extra) else [])


def _depthwise(w: LowerContext) -> bool:
    shape = shape_of(w.input(1))
    return shape is not None and w.attr("group") == shape[0] > 1 == shape[1]


GROUP = Attr("group", kind=int, default=1)
DEPTHWISE = Guard("only depthwise convolutions are supported by this layer", lower_if=_depthwise)


def convolution(kind: str, rank: int, perm: tuple[int, ...]) -> Rule:
    """Return the row of a convolution; `perm` is the axis order of stored weights."""
    given = "1,4,8,8 =6,4,3,3 =6" if rank == 2 else ""
    weights = Weight("weights", 1, perm)
    return op(
        "Conv", kind, num_output(0), Window(rank), GROUP, weights, Biases(), example_inputs=given
    )


def transposed(kind: str, rank: int, perm: tuple[int, ...]) -> Rule:
    """Return the row of a transposed convolution; `perm` is the axis order of stored weights."""
    return op(
        "ConvTranspose",
        kind,
        num_output(1, True),
        TransposedWindow(rank),
        GROUP,
        Weight("weights", 1, perm),
        Biases(1, True),
        example_inputs="1,4,8,8 =4,6,3,3 =6" if rank == 2 else "",
    )


# morphology --------------------------------------------------------------------------------------


class PlaneWeights(Field):
    """Weights [channels, y, x] <-> [channels, y, x, 1]."""

    blobs = ("weights",)
    inputs = (1,)

    def lift(self, r: LiftContext) -> None:
        weights = r.blob("weights")
        plain = weights[..., 0] if weights.ndim == 4 and weights.shape[3] == 1 else weights
        r.node.set_input(1, r.weights("weights", plain))

    def lower(self, w: LowerContext) -> None:
        w.layer.blobs["weights"] = constant_of(w, 1, "the weights")[..., None]


class PlanesWindow(Window):
    """A window with the size of the weights [channels, y, x]."""

    def kernel(self, node: Node) -> list[int]:
        return weights_kernel(node, first=1)


# sums of patches ---------------------------------------------------------------------------------


class ImageSizes(Field):
    """The sizes of image and window: constant inputs, int64 <-> int32."""

    inputs = (1, 2)

    def lift(self, r: LiftContext) -> None:
        sizes = [constant(r.input(i)) for i in (1, 2)]
        if sizes[0] is None or sizes[1] is None:
            raise MappingError("the sizes of image and window must be constant", "X203")
        if sizes[0].size != 2:
            message = (
                "only two spatial axes are supported: for others, the executor "
                "contradicts its own formula"
            )
            raise MappingError(message)
        for i, v in enumerate(sizes, 1):
            r.set_input(i, np.asarray(v, np.int64).reshape(-1))

    def lower(self, w: LowerContext) -> None:
        sizes = [constant_of(w, i, "the sizes").reshape(-1) for i in (1, 2)]
        if sizes[0].size != 2:
            raise MappingError("only two spatial axes are supported")
        w.layer.inputs += [w.const(v.astype(np.int32), "size") for v in sizes]


VOLUME = ignore(*keys("stride", 3)[:1], *keys("dilation", 3)[:1], *pad_keys(3))


def lift_data_stride(r: LiftContext) -> ir.Value:
    """Extract patches of y by x at every stride, concatenated along the channels."""
    x = r.input(0)
    for axis, d in ((1, "y"), (2, "x")):
        kernel, stride = r.attr(f"kernel_{d}", int), r.attr(f"stride_{d}", int)
        size = r.static(x, axes=4)[axis]
        if stride < 1 or not 0 < kernel <= size:
            raise MappingError(f"patches of {kernel} every {stride} do not fit {size}", "R110")
        starts = arange((size - kernel) // stride + 1) * stride
        x = r.b.Gather(x, (starts[:, None] + arange(kernel)).reshape(-1), axis=axis)
    return x


def lift_overlap_add(r: LiftContext) -> ir.Value:
    """Add overlapping frames [..., frames, length], each `frame_step` after the previous one: [...,
    (frames - 1) * step + length].
    """
    x, step, b = r.input(0), r.attr("frame_step", int, 1), r.b
    *outer, frames, length = r.static(x, least=2)
    if not 1 <= step <= length:
        raise MappingError(f"frame_step={step} with frames of {length} is not supported", "R110")
    size, rows = (frames - 1) * step + length, math.prod(outer)
    places = (arange(frames)[:, None] * step + arange(length)).reshape(-1)
    zeros = b.const(np.zeros([rows, size], numpy_type(x)))
    index = b.const(np.broadcast_to(places, [rows, frames * length]))
    flat = b.Reshape(x, [rows, frames * length])
    added = b.ScatterElements(zeros, index, flat, axis=1, reduction="add")
    return b.Reshape(added, [*outer, size])


RULES = [
    op(
        "Conv",
        "DepthwiseConv",
        DEPTHWISE,
        num_output(0),
        Window(2),
        DepthwiseWeights("weights", 1, CONV_2D),
        Biases(),
        WriteKey("multiplier", 1),
        example_inputs="1,4,8,8 =4,1,3,3 =4",
    ),
    convolution("Convolution", 2, CONV_2D),
    convolution("Convolution3D", 3, CONV_3D),
    transposed("ConvTranspose", 2, DECONV_2D),
    transposed("ConvTranspose3D", 3, DECONV_3D),
    *(
        op(
            f"netconv::{name}2D",
            name,
            PlanesWindow(2, shape=False),
            PlaneWeights(),
            example_inputs="1,4,8,8 =4,3,3",
        )
        for name in ("Dilation", "Erosion")
    ),
    op(
        "Col2Im",
        "Col2Im",
        ImageSizes(),
        spread("strides", *keys("stride"), kind=int, default=1),
        spread("dilations", *keys("dilation"), kind=int, default=1),
        spread("pads", *pad_keys(), kind=int, default=0),
        VOLUME,
        example_inputs="1,16,9 =[4,4] =[2,2]",
    ),
    custom("", "DataStride", lift=lift_data_stride),
    custom("", "OverlapAdd", lift=lift_overlap_add),
]
