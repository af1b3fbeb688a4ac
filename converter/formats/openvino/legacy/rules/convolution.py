"""Convolutions and their transposes.

Weights are flat blobs in the order of ONNX, or a second input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import Deformation
from converter.formats.openvino.legacy.rules.context import LiftContext, LowerContext
from converter.formats.openvino.legacy.rules.windows import Window, along, window_of
from converter.graph.build import attrs_of
from converter.graph.infer import constant, shape_of
from converter.graph.value import optional
from converter.graph.windows import same_pads
from converter.mapping.concepts import transposed_window
from converter.mapping.concepts.window import Geometry
from converter.mapping.fields import Attr, Field, Guard, RequireAttr, RequireKey
from converter.mapping.rules import op
from converter.record import record

WIDEST_STEP = 8  # of kernels of one element in a deconvolution


@record
class KernelBlob(Field):
    """Input `index` of the operator, in the order of ONNX <-> the blob `weights`; `group` and
    `output` repeat its shape.

    `free`: weights that are not constant are a second input. `shape`: the operator has the
    attribute kernel_shape.
    """

    index: int = 1
    transposed: bool = False
    free: bool = False
    shape: bool = True
    names = ("group",)
    keys = tuple(["group", "output"])
    blobs = ("weights",)

    def __post_init__(self) -> None:
        self.inputs = () if self.free else (self.index,)

    def wanted(self, r: LiftContext) -> list[int]:
        """Return the shape of the weights that data, result and attributes determine."""
        group, kernel = r.node.attrs["group"], r.node.attrs["kernel_shape"]
        channels, out = r.static()[1], r.dims()[1]
        first = [channels, out // group] if self.transposed else [out, channels // group]
        return [*first, *kernel]

    def lift(self, r: LiftContext) -> None:
        r.set(group=r.count("group", 1))
        given = r.optional(1) if self.index == 1 else None
        if given is None:
            r.set_input(self.index, r.blob("weights", self.wanted(r)))
        elif not self.transposed:
            r.node.inputs[1] = r.b.Reshape(given, self.wanted(r))
        if not self.shape:
            del r.node.attrs["kernel_shape"]

    def lower(self, w: LowerContext) -> None:
        weights, shape = w.constant_tensor(self.index), w.shape(self.index)
        group = w.attr("group", 1)
        w.set(output=shape[1] * group if self.transposed else shape[0], group=group)
        if weights is not None:
            w.layer.blobs["weights"] = weights
            if self.free:
                del w.layer.inputs[1:]
        elif not self.free:
            what = "deconvolution" if self.transposed else "convolution"
            message = f"the weights of a {what} must be constant"
            raise MappingError(f"{message}: the target stores them with the layer")


@record
class BiasBlob(Field):
    """Constant input 2 <-> the blob `biases`. The engine crashes on biases combined with weights
    that are an input.
    """

    names = ()
    inputs = (2,)
    blobs = ("biases",)

    def lift(self, r: LiftContext) -> None:
        if "biases" in r.layer.blobs:
            r.set_input(2, r.blob("biases", r.dims()[1:2]))

    def lower(self, w: LowerContext) -> None:
        if w.has(2):
            if w.constant_tensor(1) is None:
                raise MappingError("the weights must be constant when there is a bias")
            w.layer.blobs["biases"] = w.constant(2, "the bias")
        elif "weights" in w.layer.blobs and _meets_depthwise(w.out):
            w.layer.blobs["biases"] = np.zeros(w.shape(1)[0], np.float32)


def _meets_depthwise(value: ir.Value) -> bool:
    """Return whether a depthwise convolution with a bias follows, at most steps of one operand
    between.

    The engine of 2020.2 makes one layer of all these, whose second bias is garbage where the first
    convolution has none.
    """
    while len(value.uses()) == 1 and not value.is_graph_output():
        node, _ = next(iter(value.uses()))
        if node.op_type == "Conv":
            kernel = shape_of(node.inputs[1]) if node.inputs[1] is not None else None
            depthwise = kernel is not None and 1 < kernel[0] == attrs_of(node).get("group", 1)
            return depthwise and optional(node, 2) is not None
        others = [v for v in node.inputs if v is not None and v is not value]
        if len(node.outputs) != 1 or any(constant(v) is None for v in others):
            return False
        value = node.outputs[0]
    return False


class SeparateBias(Field):
    """The blob `biases` as an Add, of an operator without bias."""

    blobs = ("biases",)

    def lift(self, r: LiftContext) -> None:
        if "biases" in r.layer.blobs:
            bias = r.blob("biases", [r.dims()[1], 1, 1])
            r.after_first(lambda y: y + bias)


class DeconvolutionWindow(Window, transposed_window.TransposedWindow):
    """The window of a deconvolution. The begin pads are used as they are; the end pads follow from
    the shape of the port: a crop, or more than the full result (output padding).
    """

    names = (*Window.names, "output_padding", "output_shape")
    extends = True

    def read(self, r: LiftContext) -> Geometry:
        size, out = along(r)
        window, auto = window_of(r, len(out)), r.attr("auto_pad", str, "")
        if auto in ("same_upper", "same_lower", "valid"):
            upper = auto != "same_lower"
            window = replace(window, pads=same_pads(out, *window.steps, size, upper=upper))
        return replace(window, target=out, sizes=size)

    def set_attributes(self, r: LiftContext, window: Geometry) -> None:
        # lists of other lengths are refused with the rest of the window
        steps = zip(*window.steps[1:], strict=False)
        if any(p >= max(step) for p, step in zip(window.extra, steps, strict=False)):
            message = "the output port is larger than a deconvolution can produce"
            raise MappingError(message, "R105")
        super().set_attributes(r, window)


class Bits(KernelBlob):
    """Constant zeros and ones <-> single bits, the lowest of a byte first."""

    keys = ("group", "output", "input")

    def lift(self, r: LiftContext) -> None:
        r.set(group=r.count("group", 1))
        wanted, raw = self.wanted(r), r.layer.blobs.get("weights")
        count = math.prod(wanted)
        if raw is None or raw.nbytes < -(-count // 8):
            raise MappingError("the blob 'weights' is absent or too small", "R103")
        packed = np.ascontiguousarray(raw).reshape(-1).view(np.uint8)
        found = np.unpackbits(packed, bitorder="little")[:count].reshape(wanted)
        r.set_input(1, r.b.const(found.astype(np.float32), f"{r.layer.name}.weights"))
        del r.node.attrs["kernel_shape"]

    def lower(self, w: LowerContext) -> None:
        super().lower(w)
        w.set(input=w.shape()[1])
        flat = w.layer.blobs["weights"].numpy().reshape(-1)
        w.layer.blobs["weights"] = np.packbits(flat > 0, bitorder="little")


def fit_steps(strides: Sequence[int], kernel: Sequence[int]) -> bool:
    """Refuse single elements with large dilations, which the engine does not support ("label is too
    far").
    """
    return max(strides) <= WIDEST_STEP or max(kernel) > 1


RULES = [
    op("Conv", "Convolution", Window(), KernelBlob(free=True), BiasBlob()),
    op(
        "ConvTranspose",
        "Deconvolution",
        Guard(
            f"a kernel of one element with strides above {WIDEST_STEP} is not supported",
            lambda w: fit_steps(w.attr("strides", [1]), w.shape(1)[2:]),
        ),
        DeconvolutionWindow(),
        KernelBlob(transposed=True),
        BiasBlob(),
    ),
    *(
        op(
            "netconv::DeformableConvolution",
            "DeformableConvolution",
            Guard("a mask is not supported", lambda w: not w.has(3)),
            RequireAttr(
                "bilinear_pad", 0
            ),  # a tap's neighbors outside of the image are clamped to it
            Window(weights=2),
            KernelBlob(2, shape=False),
            groups,
            Deformation(),
            SeparateBias(),
            lift_only=groups.key != "deformable_group",
            example_inputs="1,4,8,8 1,18,4,7 =6,4,3,3",
        )
        for groups in (
            Attr("deformable_group", kind=int, default=1),
            Attr("deformable_group", "num_deformable_group", int),
        )
    ),
    op(
        "netconv::BinaryConvolution",
        "BinaryConvolution",
        Window(),
        Bits(shape=False),
        RequireKey("mode", "xnor-popcount", True, str),
        Attr("pad_value", kind=float, default=0.0),
        example_inputs="1,4,8,8 =[[[[1,0],[0,1]],[[1,1],[0,1]],[[1,0],[0,0]],[[1,0],[0,1]]]]",
    ),
]
