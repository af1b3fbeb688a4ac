"""Convolutions and their transposes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from converter.errors import MappingError
from converter.formats.openvino.fields import Deformation, dim
from converter.formats.openvino.opset.codes import AS_STORED, bits, code_of, with_lowest_first
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext
from converter.formats.openvino.opset.rules.fields import Pads, Window
from converter.graph import RESHAPES
from converter.graph.demands import of_length
from converter.graph.infer import constant, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.windows import SAME, halves, of_all_axes, overhang
from converter.mapping.concepts import transposed_window
from converter.mapping.concepts.window import Geometry
from converter.mapping.fields import Attr, Field, Guard, InputType, RequireAttr, RequireKey, ignore
from converter.mapping.rules import op

NO_BIAS = Guard("a bias must be an Add in the opsets", lower_if=lambda w: not w.has(2))


class Groups(Field):
    """Weights [G, a, b, k...] <-> [G*a, b, k...], and the attribute `group`."""

    names = ("group",)

    def lift(self, r: LiftContext) -> None:
        weights = r.input(1)
        groups, size, *rest = r.static(weights, "the weights", least=3)
        r.set(group=groups)
        r.node.inputs[1] = r.reshape(weights, [groups * size, *rest])

    def lower(self, w: LowerContext) -> None:
        groups, (size, *rest) = w.attr("group"), w.static(1, "the weights")
        w.layer.inputs[1] = w.reshape(w.input(1), [groups, size // groups, *rest])


class TransposedWindow(Window, transposed_window.TransposedWindow):
    """`output_padding`, and a third input that requests an output shape, which determines the end
    of the result. Automatic padding has no effect without it.

    ConvTranspose takes an `output_padding` of less than a stride: a larger one reduces the cropping
    at the end, or appends zeros.
    """

    names = (*Window.names, "output_padding", "output_shape")
    keys = (*Window.keys, "output_padding")
    extends = True

    def read(self, r: LiftContext) -> Geometry:
        found, scheme = super().read(r), r.attr("auto_pad", str, "explicit")
        n = len(found.kernel)
        extra = r.attr("output_padding", list, []) or [0] * n
        of_length(n, output_padding=extra)
        found.demand_steps()
        found = replace(found, scheme="", extra=extra)
        if r.optional(2) is None:
            return found
        target = r.ints(2, "the output shape")[-n:]
        del r.node.inputs[2:]
        if scheme.upper() in SAME:
            of_length(n, output_shape=target)
            # for same_upper the larger half is cropped at the beginning, unlike that of a
            # convolution
            axes = zip(target, *found.steps, r.static()[2:], strict=True)
            totals = [overhang(*axis) + e for axis, e in zip(axes, extra, strict=True)]
            found = replace(found, pads=halves(totals, scheme == "same_lower"))
        return replace(found, target=target)

    def set_attributes(self, r: LiftContext, window: Geometry) -> None:
        n, end = len(window.kernel), np.array(window.pads[len(window.kernel) :])
        spare = np.maximum(0, np.array(window.extra) - np.array(window.strides) + 1)
        less = np.minimum(end, spare)
        pads = [*window.pads[:n], *(end - less).tolist()]
        super().set_attributes(r, replace(window, pads=pads, extra=(window.extra - spare).tolist()))
        if any(zeros := (spare - less).tolist()):
            amounts = of_all_axes([0] * n + zeros)
            r.after_first(lambda y: r.b.Pad(y, amounts))

    def write(self, w: LowerContext, window: Geometry) -> None:
        super().write(w, window)
        w.set(output_padding=window.extra)


class BitWeights(Field):
    """Constant zeros and ones <-> single bits.

    The plugin's kernel takes the lowest bit of a byte first, other operators the highest.
    """

    def lift(self, r: LiftContext) -> None:
        x, weights = r.input(0), r.input(1)
        tensor = weights.const_value
        if isinstance(tensor, LazyTensor) and code_of(tensor) == "u1":
            weights = r.b.const(with_lowest_first(tensor), weights.name or "weights")
        r.node.inputs[1] = r.b.Cast(weights, to=x.dtype or 1)

    def lower(self, w: LowerContext) -> None:
        array = constant(w.optional(1))
        if array is None or not np.isin(array, (0, 1)).all():
            raise MappingError("the weights must be constant zeros and ones")
        stored = w.const(bits(array, "weights", "little"))
        stored.meta[AS_STORED] = True
        w.layer.inputs[1] = stored


def reshape_compressed_weights(w: LowerContext) -> None:
    """Reshape compressed weights for a list that a Reshape converts to an image of one element: the
    CPU plugin computes a matrix product with them, and then restores the image's axes incorrectly.
    """
    x, weights, shape = w.data, w.input(1).producer(), shape_of(w.input(1))
    before = x.producer()
    if before is None or weights is None or shape is None or x.shape is None:
        return
    if weights.op_type != "DequantizeLinear" or before.op_type not in (*RESHAPES, "Transpose"):
        return
    if {*shape[2:], *list(x.shape)[2:]} == {1}:
        flat = w.reshape(w.input(1), shape[:2])
        w.layer.inputs[1] = w.reshape(flat, shape)


def unbatched_before(r: LiftContext) -> None:
    """Read columns [C*k, L] of a single image as a batch of one."""
    if r.rank() == 2:
        r.data = r.b.Unsqueeze(r.data, [0])
        r.after_first(lambda y: r.b.Squeeze(y, [0]))


# for other numbers of channels the CPU plugin reads the wrong bits (as of 2026.4)
NO_4_BIT_WEIGHTS = Guard(
    "the number of channels must be a multiple of 8",
    lower_if=lambda w: (dim(w.data, 1) or 1) % 8 == 0,
)
NOT_PADDED = ignore("output_padding")  # which some files give to convolutions, too

RULES = [
    op(
        "Conv",
        "Convolution",
        NO_BIAS,
        Window(),
        RequireAttr("group", 1),
        NOT_PADDED,
        before_lower=reshape_compressed_weights,
    ),
    op(
        "Conv",
        "GroupConvolution",
        NO_BIAS,
        Groups(),
        Window(),
        NOT_PADDED,
        example_inputs="1,4,8,8 =4,2,3,3",
    ),
    op(
        "ConvTranspose",
        "ConvolutionBackpropData",
        NO_BIAS,
        TransposedWindow(),
        RequireAttr("group", 1),
    ),
    op(
        "ConvTranspose",
        "GroupConvolutionBackpropData",
        NO_BIAS,
        Groups(),
        TransposedWindow(),
        example_inputs="1,4,8,8 =4,3,3,3",
    ),
    op(
        "netconv::DeformableConvolution",
        "DeformableConvolution",
        Window(weights=2, shape=False),
        Attr("group", kind=int, default=1),
        Attr("deformable_group", kind=int, default=1),
        Attr("bilinear_pad", "bilinear_interpolation_pad", bool, default=0),
        Deformation(),
        example_inputs="1,4,8,8 1,18,4,7 =6,4,3,3",
    ),
    op(
        "netconv::BinaryConvolution",
        "BinaryConvolution",
        Window(shape=False),
        RequireKey("mode", "xnor-popcount", kind=str),
        Attr("pad_value", kind=float),
        RequireAttr("group", 1),
        NO_4_BIT_WEIGHTS,
        BitWeights(),
        example_inputs="1,8,4,4 =[[[[1]],[[0]],[[1]],[[1]],[[0]],[[1]],[[0]],[[0]]]]",
    ),
    op(
        "Col2Im",
        "Col2Im",
        Guard("Col2Im needs two spatial axes", lambda w: w.static(1) == (2,)),
        # the runtime ends the process where the layer has no strides or dilations
        Attr("strides", kind=list, default=[1, 1], node_default=[1, 1]),
        Attr("dilations", kind=list, default=[1, 1], node_default=[1, 1]),
        Pads(2),
        InputType((1, 2)),
        before_lift=unbatched_before,
        since=15,
        example_inputs="1,8,16 =[5,5] =[2,2]",
    ),
]
