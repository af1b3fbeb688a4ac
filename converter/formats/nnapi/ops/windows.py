"""Convolutions and pools. Filters are O H W I; scalars give width before height, shapes height before width."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.formats.nnapi.ops.args import Args, lifts
from converter.graph.infer import shape_of
from converter.mapping.node import MappingError

SAME, VALID = 1, 2


def same_pads(size: int, kernel: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """Padding scheme SAME: the smaller half in front."""
    total = max(0, (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size)
    return total // 2, total - total // 2


def pads(a: Args, kernel: tuple[int, int], strides: tuple[int, int], dilations: tuple[int, int] = (1, 1)) -> list[int]:
    """[top, left, bottom, right] of either signature."""
    if "pad_left" in a.binding.inputs:
        return [a.integer("pad_top"), a.integer("pad_left"), a.integer("pad_bottom"), a.integer("pad_right")]
    scheme = a.integer("padding")
    if scheme == VALID:
        return [0, 0, 0, 0]
    if scheme != SAME:
        raise MappingError(f"padding scheme {scheme} is not known (1 is SAME, 2 is VALID)", "R110")
    top, bottom = same_pads(a.spatial()[0], kernel[0], strides[0], dilations[0])
    left, right = same_pads(a.spatial()[1], kernel[1], strides[1], dilations[1])
    return [top, left, bottom, right]


def strides_of(a: Args) -> tuple[int, int]:
    return a.integer("stride_height"), a.integer("stride_width")


def bias_of(a: Args) -> ir.Value | None:
    """The bias as real numbers; beside a per-channel filter its own scale is 0 and the true ones are input scale * filter scales."""
    operand, channel = a.operand("bias"), a.operand("filter").channel_quant
    if channel is None or operand.scale:
        return a.real("bias")
    import numpy as np

    scales = np.float32(a.operand("input").scale) * np.array(channel.scales, np.float32)
    return a.b.op("DequantizeLinear", a.stored("bias"), scales, axis=0)


def convolution(a: Args, weights: ir.Value, group: int) -> ir.Value:
    shape = shape_of(weights)
    if shape is None:
        raise MappingError("the shape of the filter must be known")
    kernel, strides = (shape[2], shape[3]), strides_of(a)
    dilations = a.integer("dilation_height", 1), a.integer("dilation_width", 1)
    window: dict[str, Any] = {"pads": pads(a, kernel, strides, dilations), "strides": strides, "dilations": dilations, "kernel_shape": kernel}
    return a.activated(a.twin("Conv", a.real("input"), weights, bias_of(a), group=group, **window))


@lifts("CONV_2D")
def conv_2d(a: Args) -> ir.Value:
    return convolution(a, a.permuted("filter", (0, 3, 1, 2)), 1)


@lifts("GROUPED_CONV_2D")
def grouped_conv_2d(a: Args) -> ir.Value:
    return convolution(a, a.permuted("filter", (0, 3, 1, 2)), a.integer("groups"))


@lifts("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(a: Args) -> ir.Value:
    """Filter [1, H, W, in * multiplier]."""
    return convolution(a, a.permuted("filter", (3, 0, 1, 2)), a.channels())


@lifts("TRANSPOSE_CONV_2D")
def transpose_conv_2d(a: Args) -> ir.Value:
    """Filter [out, H, W, in]. With an implicit padding the output has the size asked for and the padding follows."""
    _, kh, kw, _ = a.shape("filter")
    strides, size = strides_of(a), a.spatial()
    extra = [0, 0]
    if "pad_left" in a.binding.inputs:
        amounts = pads(a, (kh, kw), strides)
    else:
        wanted = a.ints("output_shape") if a.has("output_shape") else list(a.output().dimensions)
        target = wanted[2:4] if a.domain == "" else wanted[1:3]
        totals = [(n - 1) * s + k - t for n, s, k, t in zip(size, strides, (kh, kw), target, strict=True)]
        extra = [max(0, -t) for t in totals]
        first = [max(0, t) // 2 for t in totals]
        amounts = [*first, *(max(0, t) - f for t, f in zip(totals, first, strict=True))]
    weights = a.permuted("filter", (3, 0, 1, 2))
    y = a.twin("ConvTranspose", a.real("input"), weights, bias_of(a), pads=amounts, strides=strides, kernel_shape=(kh, kw), output_padding=extra)
    return a.activated(y)


def pool(a: Args, op_type: str, x: ir.Value) -> ir.Value:
    kernel, strides = (a.integer("filter_height"), a.integer("filter_width")), strides_of(a)
    return a.twin(op_type, x, kernel_shape=kernel, strides=strides, pads=pads(a, kernel, strides))


@lifts("AVERAGE_POOL_2D", "MAX_POOL_2D")
def average_or_max(a: Args) -> ir.Value:
    return a.activated(pool(a, "AveragePool" if a.name == "AVERAGE_POOL_2D" else "MaxPool", a.real("input")))


@lifts("L2_POOL_2D")
def l2_pool(a: Args) -> ir.Value:
    """sqrt(mean(x^2)) over the window, padding not counted."""
    x = a.real("input")
    return a.activated(a.b.op("Sqrt", pool(a, "AveragePool", a.b.op("Mul", x, x))))


@lifts("FULLY_CONNECTED")
def fully_connected(a: Args) -> ir.Value:
    """Weights [units, input size]; an input of higher rank is flattened to rows of that size."""
    x, size = a.real("input"), a.shape("weights")[1]
    if x.shape is None or len(x.shape) != 2 or x.shape[1] != size:
        x = a.b.op("Reshape", x, [-1, size])
    return a.activated(a.b.op("Add", a.b.op("MatMul", x, a.permuted("weights", (1, 0))), a.real("bias")))


@lifts("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(a: Args) -> ir.Value:
    """Without flags a coordinate is i * in / out; sizes by factors are rounded down."""
    height, width = a.spatial()
    if "width" in a.binding.inputs:
        target = [a.integer("height"), a.integer("width")]
    else:
        target = [int(height * a.number("height_scale")), int(width * a.number("width_scale"))]
    corners, half = a.flag("align_corners"), a.flag("half_pixel_centers")
    coordinates = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    sizes = [a.shape()[0], a.channels(), *target]
    if a.name == "RESIZE_BILINEAR":
        return a.twin("Resize", a.real("input"), None, None, sizes, mode="linear", coordinate_transformation_mode=coordinates)
    # nearest: floor(i * in / out), or the nearest source pixel with ties upwards where a flag is set
    rounding = "round_prefer_ceil" if corners or half else "floor"
    return a.twin("Resize", a.real("input"), None, None, sizes, mode="nearest", coordinate_transformation_mode=coordinates, nearest_mode=rounding)
