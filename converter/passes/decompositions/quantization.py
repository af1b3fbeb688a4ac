"""Quantization as arithmetic, and quantized operators as operators on floats."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes, attrs_of
from converter.graph.infer import constant, rank_of, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.value import optional, with_operators
from converter.passes.decompositions.activations import x_of
from converter.passes.decompositions.table import Table
from converter.passes.promote_types import FLOAT8
from converter.record import comparable

_T = ir.DataType
_EXACT = 1 << 24  # integers below it are exact in float32
_WHOLE = "netconv.whole"  # marks a Cast whose input is integral and within the bounds of the type
_RANGES = {
    _T.INT4: (-8, 7),
    _T.UINT4: (0, 15),
    _T.INT8: (-128, 127),
    _T.UINT8: (0, 255),
    _T.INT16: (-32768, 32767),
    _T.UINT16: (0, 65535),
}


def broadcastable(b: Builder, node: ir.Node, value: Value, x: Value) -> Value | None:
    """Return a scale or zero point in a shape that broadcasts with x: per tensor, per axis, or
    blocked.
    """
    rank, own, attrs = rank_of(x), shape_of(value), attributes(node)
    if own is None or rank is None:
        return None
    if own in ((), (1,)):
        return value
    axis, block = attrs["axis"] % max(rank, 1), attrs["block_size"]
    if not block:
        return b.Reshape(value, [-1 if i == axis else 1 for i in range(rank)])
    shape = shape_of(x)
    if shape is None:
        return None
    apart = b.Unsqueeze(value, [axis + 1])
    wide = b.Expand(apart, [*own[: axis + 1], block, *own[axis + 1 :]])
    joined = b.Reshape(wide, [*own[:axis], own[axis] * block, *own[axis + 1 :]])
    if own[axis] * block == shape[axis]:
        return joined
    return b.Slice(joined, [0], [shape[axis]], [axis])


def whole_floats(x: ir.Value) -> ir.Value | None:
    """Return the floats that a decomposed QuantizeLinear casts to the integers `x`."""
    cast = x.producer()
    return cast.inputs[0] if cast is not None and cast.meta.get(_WHOLE) else None


def _whole_blocks(node: ir.Node) -> tuple[int, list[int]] | None:
    """Return the axis of blocks, and a shape of x in which an additional axis after it runs through
    each block.

    None without blocks, if the last block is truncated, or for rank 4.
    """
    own, shape, attrs = shape_of(x_of(node, 1)), shape_of(x_of(node)), attributes(node)
    block = attrs["block_size"]
    if not block or own is None or shape is None or len(own) != len(shape) or len(shape) > 3:
        return None
    axis = attrs["axis"] % len(shape)
    whole = own[axis] * block == shape[axis]
    return (axis, [*own[: axis + 1], block, *own[axis + 1 :]]) if whole else None


def dequantize_linear(node: ir.Node, b: Builder) -> Value | None:
    """(x - zero point) * scale"""
    x, scale, blocks = x_of(node), x_of(node, 1), _whole_blocks(node)
    zero = None if optional(node, 2) is None else x_of(node, 2)
    if zero is not None and (points := constant(zero)) is not None and not (points != 0).any():
        zero = None
    if blocks is None:
        along = broadcastable(b, node, scale, x)
        point = None if zero is None else broadcastable(b, node, b.Cast(zero, to=scale.dtype), x)
    else:
        axis, shape = blocks
        own = [*shape[: axis + 1], 1, *shape[axis + 2 :]]
        x, along = b.reshaped(x, shape), b.reshaped(scale, own)
        point = None if zero is None else b.Cast(b.reshaped(zero, own), to=scale.dtype)
    if along is None or along.dtype is None or (zero is not None and point is None):
        return None
    whole = whole_floats(x)
    real = b.Cast(x, to=scale.dtype) if whole is None or whole.dtype != scale.dtype else whole
    y = (real if point is None else real - point) * along
    return y if blocks is None else b.Reshape(y, list(shape_of(x_of(node)) or ()))


def quantize_linear(node: ir.Node, b: Builder) -> Value | None:
    """round(clip(x / scale)) + zero point, with the bounds minus the zero point: infinities are
    clipped first. Floats of 8 bits have no zero points other than 0.
    """
    x, scale, to = (
        x_of(node),
        broadcastable(b, node, x_of(node, 1), x_of(node)),
        node.outputs[0].dtype,
    )
    if scale is None or x.dtype != scale.dtype:
        return None
    if to in FLOAT8:
        return b.Cast(x / scale, to=to)
    if to not in _RANGES:
        return None
    if x.dtype not in (_T.FLOAT, _T.FLOAT16):
        return None
    low, high = _RANGES[to]
    zero = optional(node, 2)
    point = np.array(0) if zero is None else constant(zero)
    quotient = x / scale
    if point is not None and point.size == 1:
        first = float(point.reshape(-1)[0])
        whole = b.Round(b.Clip(quotient, low - first, high - first))
        stored = whole if first == 0 else whole + first
    else:
        each = None if zero is None else broadcastable(b, node, with_operators(zero), x)
        if each is None:
            return None
        shifted = b.Round(quotient) + b.Cast(each, to=x.dtype)
        stored = b.Clip(shifted, low, high)
    cast = b.Cast(stored, to=to)
    cast.producer().meta[_WHOLE] = True  # type: ignore[union-attr]
    return cast


def dynamic_quantize_linear(node: ir.Node, b: Builder) -> list[Value]:
    """Quantize with 255 steps from the minimum to the maximum, including 0; if all elements are
    zero the scale is 1, as in onnxruntime.
    """
    x = x_of(node)
    low, high = (
        b.operator(two)(b.operator(f"Reduce{two}")(x, keepdims=0), b.like(x, 0))
        for two in ("Min", "Max")
    )
    steps = (high - low) / 255
    scale = b.Where(b.Equal(steps, 0), 1, steps)
    position = b.Round(b.Clip(-low / scale, 0, 255))
    zero = b.Cast(position, to=_T.UINT8)
    return [b.QuantizeLinear(x, scale, zero), scale, zero]


def _weight(b: Builder, node: ir.Node, index: int, axis: int) -> Value:
    scale, zero = x_of(node, index + 1), node.inputs[index + 2]
    return b.DequantizeLinear(
        x_of(node, index), scale, zero, axis=axis if shape_of(scale) not in ((), (1,)) else None
    )


def qlinear_matmul(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite QLinearMatMul as MatMul between DequantizeLinear and QuantizeLinear, if the first
    input has one scale and the second one has one, or one for each column.
    """
    rank = rank_of(x_of(node, 3))
    if (
        rank is None
        or any((rank_of(x_of(node, i)) or 0) > 1 for i in (1, 4))
        or shape_of(x_of(node, 1)) not in ((), (1,))
    ):
        return None
    y = _weight(b, node, 0, 0) @ _weight(b, node, 3, rank - 1)
    return b.QuantizeLinear(y, node.inputs[6], node.inputs[7])


def qlinear_conv(node: ir.Node, b: Builder) -> Value:
    """Convolve; the bias is in units of the input's scale times the weight's."""
    bias = optional(node, 8)
    if bias is not None:
        bias = b.Cast(bias, to=_T.FLOAT) * (x_of(node, 1) * x_of(node, 4))
    y = b.Conv(_weight(b, node, 0, 1), _weight(b, node, 3, 0), bias, **attrs_of(node))
    return b.QuantizeLinear(y, node.inputs[6], node.inputs[7])


@comparable
class Without:
    """A function that subtracts zero points from integers and returns floats.

    Instances compare by value, so that unrolled iterations share the result for one weight.
    """

    points: tuple[float, ...]
    shape: tuple[int, ...]

    def __call__(self, array: np.ndarray) -> np.ndarray:
        return array.astype(np.float32) - np.array(self.points, np.float32).reshape(self.shape)


def _shifted(b: Builder, node: ir.Node, index: int, shape: Sequence[int] | None) -> Value:
    """Return an integer operand minus its zero point, as floats."""
    zero = optional(node, index + 2)
    several = zero is not None and shape_of(zero) not in ((), (1,))
    each = list(shape) if several and shape is not None else None
    array, point = constant(x_of(node, index)), constant(zero)
    if array is not None and (zero is None or point is not None):
        less = np.zeros((), np.float32) if point is None else point.astype(np.float32)
        less = less.reshape(each) if each else less
        change = Without(tuple(less.reshape(-1).tolist()), less.shape)
        weight = LazyTensor.of(x_of(node, index).const_value or ir.Tensor(array))
        shape = np.broadcast_shapes(array.shape, change.shape)
        return b.const(weight.derived(change, _T.FLOAT, shape))
    real = b.Cast(x_of(node, index), to=_T.FLOAT)
    if zero is None:
        return real
    taken = b.Cast(zero, to=_T.FLOAT)
    return real - (b.Reshape(taken, each) if each else taken)


def _part(b: Builder, x: Value, start: int, end: int, axis: int) -> Value:
    array = constant(x)
    if array is None:
        return b.Slice(x, [start], [end], [axis])
    return b.const(np.take(array, range(start, end), axis))


def _stretches(node: ir.Node, weight: tuple[int, ...], axis: int) -> list[tuple[int, int]] | None:
    """Split the reduced axis of the weight into ranges over which the sum of products is exact in
    float32 for all values of the other operand.
    """
    w = constant(node.inputs[1])
    zero = np.array(0) if optional(node, 3) is None else constant(node.inputs[3])
    size = np.full(weight, 255)
    if w is not None and zero is not None:
        size = np.abs(w.astype(np.int64)) + int(np.abs(zero.astype(np.int64)).max())
    size = np.moveaxis(size, axis, 0)
    if node.op_type == "ConvInteger":
        size = size.sum(axis=tuple(range(2, size.ndim)))
    size = size.reshape(len(size), -1)
    found: list[tuple[int, int]] = []
    while not found or found[-1][1] < len(size):
        start = found[-1][1] if found else 0
        length = int(np.searchsorted(255 * np.cumsum(size[start:], axis=0).max(axis=1), _EXACT))
        if not length:
            return None
        found.append((start, start + length))
    return found


def _sum(b: Builder, parts: Sequence[Value]) -> Value:
    return reduce(b.Add, [b.Cast(part, to=_T.INT32) for part in parts])


def matmul_integer(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite MatMulInteger as MatMul of floats, in parts whose sums of products are exact."""
    weight = shape_of(x_of(node, 1))
    if weight is None or len(weight) < 2 or not all(weight):
        return None
    cuts = _stretches(node, weight, -2)
    if cuts is None:
        return None
    x, w = _shifted(b, node, 0, [-1, 1]), _shifted(b, node, 1, None)
    if len(cuts) == 1:
        return _sum(b, [x @ w])
    return _sum(b, [_part(b, x, i, j, -1) @ _part(b, w, i, j, -2) for i, j in cuts])


def conv_integer(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite ConvInteger as Conv of floats, in parts whose sums of products are exact."""
    weight, attrs = shape_of(x_of(node, 1)), attrs_of(node)
    cuts = _stretches(node, weight, 1) if weight is not None and all(weight) else None
    if weight is None or cuts is None or (len(cuts) > 1 and attributes(node)["group"] > 1):
        return None
    x, w = _shifted(b, node, 0, None), _shifted(b, node, 1, [-1, *[1] * (len(weight) - 1)])
    if len(cuts) == 1:
        return _sum(b, [b.Conv(x, w, **attrs)])
    return _sum(b, [b.Conv(_part(b, x, i, j, 1), _part(b, w, i, j, 1), **attrs) for i, j in cuts])


TABLE: Table = {
    ("", "DequantizeLinear"): dequantize_linear,
    ("", "QuantizeLinear"): quantize_linear,
    ("", "DynamicQuantizeLinear"): dynamic_quantize_linear,
    ("", "QLinearMatMul"): qlinear_matmul,
    ("", "QLinearConv"): qlinear_conv,
    ("", "MatMulInteger"): matmul_integer,
    ("", "ConvInteger"): conv_integer,
}
