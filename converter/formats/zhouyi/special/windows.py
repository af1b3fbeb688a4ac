"""Convolutions beyond the rows: depthwise layers as they are read, and patches."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.ops.fields import Window, keys
from converter.formats.zhouyi.ops.windows import CONV_2D, DECONV_2D, DECONV_3D
from converter.formats.zhouyi.special.register import blob, lifts, lowers, need_int, operand, static, twin
from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder
from converter.graph.sizes import arange
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node


def window_attrs(layer: Layer, rank: int) -> dict[str, Any]:
    near = Node("")
    Window(rank).lift(layer, near, None)  # type: ignore[arg-type]
    return near.attrs


@lifts("DepthwiseConv")
def lift_depthwise(layer: Layer, b: Builder) -> ir.Value:
    """Weights [channels * multiplier, y, x, 1]; the channels are those of the data, whatever `group` says."""
    x, weights, biases = operand(layer), blob(layer, "weights"), layer.blobs.get("biases")
    if weights.ndim != 4 or weights.shape[3] != 1:
        raise MappingError(f"weights of the shape {list(weights.shape)}, the last dimension should be 1", "R105")
    bias = None if biases is None or not np.asarray(biases).any() else b.const(np.asarray(biases).reshape(-1), f"{layer.name}.biases")
    near = b.const(weights.transpose(np.argsort(CONV_2D)), f"{layer.name}.weights")
    return twin(b, "Conv", x, near, bias, group=static(x)[-1], **window_attrs(layer, 2))[0]


@lifts("ConvTranspose", "ConvTranspose3D")
def lift_transposed(layer: Layer, b: Builder) -> ir.Value:
    rank = 3 if layer.kind.endswith("3D") else 2
    weights, biases = blob(layer, "weights"), layer.blobs.get("biases")
    bias = None if biases is None or not np.asarray(biases).any() else b.const(np.asarray(biases).reshape(-1), f"{layer.name}.biases")
    near = b.const(weights.transpose(np.argsort(DECONV_2D if rank == 2 else DECONV_3D)), f"{layer.name}.weights")
    extra = [int(layer.attrs.get(k, 0)) for k in keys("output_padding", rank)]
    more: dict[str, Any] = {"output_padding": extra} if any(extra) else {}
    return twin(b, "ConvTranspose", operand(layer), near, bias, group=need_int(layer, "group", 1), **window_attrs(layer, rank), **more)[0]


@lifts("Dilation", "Erosion")
def lift_morphology(layer: Layer, b: Builder) -> ir.Value:
    """Weights [channels, y, x, 1]."""
    weights = blob(layer, "weights")
    if weights.ndim == 4 and weights.shape[3] == 1:
        weights = weights[..., 0]
    attrs = window_attrs(layer, 2)
    attrs.pop("kernel_shape")
    name = "Dilation2D" if layer.kind == "Dilation" else "Erosion2D"
    return twin(b, name, operand(layer), b.const(weights, f"{layer.name}.weights"), base=EXTENSION_DOMAIN, **attrs)[0]


@lowers("Dilation2D", "Erosion2D", domain=EXTENSION_DOMAIN)
def lower_morphology(node: Node, low: Lowering) -> None:
    weights = node.input(1)
    array = None if weights is None or weights.const_value is None else weights.const_value.numpy()
    if array is None:
        raise MappingError("the weights must be constant")
    attrs = dict(zip(keys("kernel", 2), array.shape[1:], strict=True))
    attrs |= dict(zip(keys("stride", 2), node.attrs["strides"], strict=True)) | dict(zip(keys("dilation", 2), node.attrs["dilations"], strict=True))
    attrs |= dict(zip(("pad_top", "pad_left", "pad_bottom", "pad_right"), node.attrs["pads"], strict=True))
    low.add("Dilation" if node.op == "Dilation2D" else "Erosion", [node.input(0)], node.outputs, attrs, {"weights": array[..., None]})


@lifts("DataStride")
def lift_data_stride(layer: Layer, b: Builder) -> ir.Value:
    """Patches of y by x at every stride, side by side."""
    x = operand(layer)
    for axis, d in ((1, "y"), (2, "x")):
        kernel, stride, size = need_int(layer, f"kernel_{d}"), need_int(layer, f"stride_{d}"), static(x)[axis]
        if stride < 1 or not 0 < kernel <= size:
            raise MappingError(f"patches of {kernel} every {stride} in {size}", "R110")
        starts = arange((size - kernel) // stride + 1) * stride
        x = b.op("Gather", x, (starts[:, None] + arange(kernel)).reshape(-1), axis=axis)
    return x
