"""Convolutions and pools. Filters are O H W I; scalars give width before height, shapes height before width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.ops.args import Args, lifts
from converter.formats.nnapi.ops.emit import Emit, Ref, lowers, only_user
from converter.formats.nnapi.ops.weights import bias, matrices, weights
from converter.formats.nnapi.table import Array
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


def explicit(e: Emit, amounts: list[int]) -> dict[str, int]:
    """pad and stride arguments of [top, left, bottom, right]."""
    if min(amounts) < 0:
        raise MappingError(f"the padding {amounts} is negative")
    height, width = e.attrs.get("strides") or (1, 1)
    names = ("pad_top", "pad_left", "pad_bottom", "pad_right")
    return {**dict(zip(names, map(int, amounts), strict=True)), "stride_height": int(height), "stride_width": int(width)}


def window_pads(e: Emit, kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """The pads of a window, as an explicit list: automatic ones are computed, and rounding up becomes padding behind."""
    auto, strides = e.attrs.get("auto_pad", "NOTSET"), e.attrs.get("strides") or (1, 1)
    amounts = list(e.attrs.get("pads") or (0, 0, 0, 0))
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pairs = [same_pads(n, k, s, d) for n, k, s, d in zip(e.spatial(), kernel, strides, dilations, strict=True)]
        pairs = pairs if auto == "SAME_UPPER" else [p[::-1] for p in pairs]
        amounts = [pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1]]
    if e.attrs.get("ceil_mode"):
        for i, (n, k, s, d, out) in enumerate(zip(e.spatial(), kernel, strides, dilations, e.spatial(e.node.outputs[0]), strict=True)):
            if (out - 1) * s >= n + amounts[i]:
                raise MappingError("a window begins in the padding behind")
            needed = (out - 1) * s + (k - 1) * d + 1 - n - amounts[i]
            amounts[i + 2] = max(needed, min(amounts[i + 2], needed + s - 1))  # windows that begin in the padding are none
    return [int(n) for n in amounts]


@lowers("Conv")
def lower_conv(e: Emit) -> None:
    x, shape, group = e.image(), e.shape(1), int(e.attrs.get("group", 1))
    out, depth, kernel = shape[0], shape[1], shape[2:]
    dilations = [int(n) for n in e.attrs.get("dilations") or (1, 1)]
    more: dict[str, Any] = explicit(e, window_pads(e, kernel, dilations))
    if dilations != [1, 1]:
        more.update(dilation_height=dilations[0], dilation_width=dilations[1])
    if group > 1 and depth == 1:
        kind = "DEPTHWISE_CONV_2D"
        w = weights(e, 1, (1, 2, 3, 0), None, x)
        more["multiplier"] = out // group
    elif group > 1:
        kind = "GROUPED_CONV_2D"
        if dilations != [1, 1]:
            raise MappingError("a grouped convolution has no dilation there")
        w = weights(e, 1, (0, 2, 3, 1), None, x)
        more.update(groups=group, nchw=False)
    else:
        kind, w = "CONV_2D", weights(e, 1, (0, 2, 3, 1), None, x)
    b = bias(e, e.value(2) if e.has(2) else None, out, x, w)
    y = e.result(fuse=True, image=True)
    e.put(kind, y, input=x, filter=w, bias=b, activation=e.activation, **more)


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


@lowers("ConvTranspose")
def lower_conv_transpose(e: Emit) -> None:
    """Extra rows behind the output are rows less of padding, or rows of zeros more in the filter."""
    x, (_, _, *kernel) = e.image(), e.shape(1)
    if int(e.attrs.get("group", 1)) != 1:
        raise MappingError("groups are not possible")
    if any(d != 1 for d in e.attrs.get("dilations") or ()):
        raise MappingError("dilations are not possible")
    strides, size, target = e.attrs.get("strides") or (1, 1), e.spatial(), e.spatial(e.node.outputs[0])
    amounts = list(e.attrs.get("pads") or (0, 0, 0, 0))
    totals = [(n - 1) * s + k - t for n, s, k, t in zip(size, strides, kernel, target, strict=True)]
    auto = e.attrs.get("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER") or e.attrs.get("output_shape"):
        before = [t - t // 2 if auto == "SAME_LOWER" else t // 2 for t in totals]
        amounts = [*before, 0, 0]
    ends = [t - b for t, b in zip(totals, amounts, strict=False)]
    w = weights(e, 1, (1, 2, 3, 0), None, x)
    if min(ends) < 0:
        w = longer(e, w, [max(0, -n) for n in ends])
    out = e.operand(w).dimensions[0]
    b = bias(e, e.value(2) if e.has(2) else None, out, x, w)
    y = e.result(fuse=True, image=True)
    pads_ = explicit(e, [*amounts[:2], *(max(0, n) for n in ends)])
    e.put("TRANSPOSE_CONV_2D", y, input=x, filter=w, bias=b, activation=e.activation, nchw=False, **pads_)


def longer(e: Emit, w: Ref, rows: list[int]) -> Ref:
    """A constant filter with rows and columns of zeros behind."""
    operand = e.operand(w)
    if operand.value is None:
        raise MappingError("the filter of an output with extra rows must be constant")
    array: Array = np.pad(operand.array(), [(0, 0), (0, rows[0]), (0, rows[1]), (0, 0)], constant_values=operand.zero_point)
    return e.writer.tensor(array, operand.type, operand.name, scale=operand.scale, zero_point=operand.zero_point, channel_quant=operand.channel_quant)


@lowers("AveragePool", "MaxPool")
def lower_pool(e: Emit) -> None:
    """Padding never counts in an average; where it shall, it is a PAD in front."""
    kernel = [int(n) for n in e.attrs["kernel_shape"]]
    if any(d != 1 for d in e.attrs.get("dilations") or ()):
        raise MappingError("a pool has no dilation there")
    if any(v.uses() or v.is_graph_output() for v in e.node.outputs[1:]):
        raise MappingError("the indices of the maxima are not available")
    x, amounts = e.image(), window_pads(e, kernel, (1, 1))
    if e.op == "AveragePool" and e.attrs.get("count_include_pad") and any(e.attrs.get("pads") or ()):
        top, left, bottom, right = e.attrs["pads"]
        n, h, w, c = e.operand(x).dimensions
        x = e.step("PAD", [n, h + top + bottom, w + left + right, c], x, input=x, paddings=[[0, 0], [top, bottom], [left, right], [0, 0]])
        amounts = [a - b for a, b in zip(amounts, (top, left, bottom, right), strict=True)]
    put_pool(e, "AVERAGE_POOL_2D" if e.op == "AveragePool" else "MAX_POOL_2D", x, kernel, explicit(e, amounts))


def put_pool(e: Emit, kind: str, x: Ref, kernel: Sequence[int], more: dict[str, int]) -> None:
    y = e.result(fuse=True, image=True)
    e.put(kind, y, input=x, filter_height=kernel[0], filter_width=kernel[1], activation=e.activation, **more)


@lowers("GlobalAveragePool", "GlobalMaxPool")
def lower_global_pool(e: Emit) -> None:
    x, kind = e.image(), "AVERAGE_POOL_2D" if e.op == "GlobalAveragePool" else "MAX_POOL_2D"
    put_pool(e, kind, x, e.spatial(), explicit(e, [0, 0, 0, 0]))


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


@lowers("MatMul", "Gemm")
def lower_matmul(e: Emit) -> None:
    """FULLY_CONNECTED for weights of rank 2 (a bias that follows is taken in), BATCH_MATMUL otherwise, and for whole numbers."""
    whole = e.op == "MatMul" and e.value(0).dtype in (ir.DataType.INT32, ir.DataType.INT64)
    if whole or len(e.shape(1)) != 2 or len(e.shape(0)) < 2:
        if e.op == "Gemm" or min(len(e.shape(0)), len(e.shape(1))) < 2:
            raise MappingError("a vector is no operand there")
        (a, a_turned), (b, b_turned) = matrices(e, 0), matrices(e, 1)
        e.put("BATCH_MATMUL", e.result(), a=a, b=b, adjoint_a=a_turned, adjoint_b=b_turned)
        return
    if e.op == "Gemm" and (e.attrs["transA"] or e.attrs["alpha"] != 1.0 or e.attrs["beta"] != 1.0):
        raise MappingError("only weights are transposed there")
    flipped = e.op == "Gemm" and e.attrs["transB"]
    x, out = e.real(0), e.node.outputs[0]
    units, size = e.shape(1) if flipped else e.shape(1)[::-1]
    w = weights(e, 1, (0, 1) if flipped else (1, 0), None, x)
    addend: ir.Value | None = e.value(2) if e.has(2) else None
    if e.op == "MatMul" and (found := added(out, units)) is not None:
        out, addend = e.absorb(found[0]), found[1]
    if addend is not None and int(np.prod(e.shape(addend))) not in (1, units):
        raise MappingError("what is added is no bias")
    rows, dims = int(np.prod(e.shape(0)[:-1])), e.shape(0)
    flat = x if len(dims) == 2 else e.reshaped(x, [rows, size])
    b = bias(e, addend, units, x, w)
    y = e.result_of(out, fuse=True)
    if len(dims) == 2:
        e.put("FULLY_CONNECTED", y, input=flat, weights=w, bias=b, activation=e.activation)
        return
    z = e.step("FULLY_CONNECTED", [rows, units], y, input=flat, weights=w, bias=b, activation=e.activation)
    e.put("RESHAPE", y, input=z, shape=e.operand(y).dimensions)


def added(value: ir.Value, units: int) -> tuple[ir.Node, ir.Value] | None:
    """The Add of a bias that alone follows a matrix product."""
    node = only_user(value)
    if node is None or node.op_type != "Add" or node.domain:
        return None
    other = node.inputs[1] if node.inputs[0] is value else node.inputs[0]
    shape = None if other is None else shape_of(other)
    bias_like = other is not None and shape is not None and len(shape) == 1 and shape[0] == units
    producer = None if other is None else other.producer()
    ready = producer is None or producer.op_type == "DequantizeLinear"
    return (node, other) if other is not None and bias_like and ready else None
