"""Canonical operators rewritten for Core ML, where no row or pair says them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.legalise_boxes import non_max_suppression
from converter.formats.coreml.legalise_recurrent import gru, split_directions
from converter.formats.coreml.special.lower_arithmetic import is_short, shifts_out
from converter.formats.coreml.special.lower_indexing import cut_axes
from converter.formats.coreml.special.lower_types import wraps
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import known, rank_of, shape_of
from converter.passes.constants import is_constant
from converter.passes.decompositions.bitwise import BITS, by_digits
from converter.passes.indices import one_hot
from converter.passes.legalise import Rewrites

Value = ir.Value


def _x(node: ir.Node, index: int = 0) -> Value:
    value = node.inputs[index]
    assert value is not None
    return value


def _input(node: ir.Node, index: int) -> Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def prelu(node: ir.Node, b: Builder) -> Value:
    """max(x, 0) + slope * min(x, 0)."""
    x, slope = _x(node), _x(node, 1)
    negative = b.op("Mul", b.op("Neg", b.op("Relu", b.op("Neg", x))), slope)
    return b.op("Add", b.op("Relu", x), negative)


def dequantize(node: ir.Node, b: Builder) -> Value | None:
    """(x - zero) * scale of an activation; per-axis operands are given their axis."""
    x = _x(node)
    attrs, rank = attrs_of(node), rank_of(x)
    if is_constant(node.outputs[0]) or attrs.get("block_size", 0) or rank is None:
        return None
    y = b.op("Cast", x, to=int(ir.DataType.FLOAT))
    zero = _input(node, 2)
    if zero is not None:
        y = b.op("Sub", y, _per_axis(b, b.op("Cast", zero, to=int(ir.DataType.FLOAT)), rank, attrs.get("axis", 1)))
    return b.op("Mul", y, _per_axis(b, _x(node, 1), rank, attrs.get("axis", 1)))


def _per_axis(b: Builder, value: Value, rank: int, axis: int) -> Value:
    return value if rank_of(value) != 1 or rank == 0 else b.op("Reshape", value, [-1 if i == axis % rank else 1 for i in range(rank)])


def quantize(node: ir.Node, b: Builder) -> Value | None:
    """clip(round(x / scale) + zero) as whole numbers."""
    x, out = _x(node), node.outputs[0]
    attrs, rank = attrs_of(node), rank_of(x)
    if out.dtype not in (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16) or rank is None or attrs.get("block_size", 0):
        return None
    y = b.op("Round", b.op("Div", x, _per_axis(b, _x(node, 1), rank, attrs.get("axis", 1))))
    zero = _input(node, 2)
    if zero is not None:
        y = b.op("Add", y, _per_axis(b, b.op("Cast", zero, to=int(ir.DataType.FLOAT)), rank, attrs.get("axis", 1)))
    limits = np.iinfo(out.dtype.numpy())
    return b.op("Cast", b.op("Clip", y, float(limits.min), float(limits.max)), to=int(out.dtype))


def instance_norm(node: ir.Node, b: Builder) -> Value | None:
    x = _x(node)
    rank = rank_of(x)
    if rank is None or rank < 3:
        return None
    axes, epsilon = list(range(2, rank)), attrs_of(node).get("epsilon", 1e-5)
    centred = b.op("Sub", x, b.op("ReduceMean", x, axes, keepdims=1))
    variance = b.op("ReduceMean", b.op("Mul", centred, centred), axes, keepdims=1)
    y = b.op("Div", centred, b.op("Sqrt", b.op("Add", variance, float(epsilon))))
    scale, bias = (b.op("Reshape", _x(node, i), [-1, *[1] * (rank - 2)]) for i in (1, 2))
    return b.op("Add", b.op("Mul", y, scale), bias)


def auto_padded(node: ir.Node, b: Builder) -> Value | None:
    """SAME_UPPER and SAME_LOWER as explicit pads."""
    attrs, size, result = attrs_of(node), shape_of(_x(node)), shape_of(node.outputs[0])
    mode = attrs.pop("auto_pad", "NOTSET")
    if mode not in ("SAME_UPPER", "SAME_LOWER") or size is None or result is None:
        return None
    weights = shape_of(_x(node, 1)) if node.op_type.startswith("Conv") else None
    kernel = [int(k) for k in attrs.get("kernel_shape") or (weights or ())[2:]]
    stride = attrs.get("strides") or [1] * len(kernel)
    dilation = attrs.get("dilations") or [1] * len(kernel)
    begin, end = [], []
    for i, (k, s, d) in enumerate(zip(kernel, stride, dilation, strict=True)):
        reach = (k - 1) * d + 1
        small, big = (size[2 + i], result[2 + i]) if node.op_type != "ConvTranspose" else (result[2 + i], size[2 + i])
        total = max(0, (big - 1) * s + reach - small)
        begin.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
        end.append(total - begin[-1])
    return b.op(node.op_type, *node.inputs, **attrs, pads=[*begin, *end])


def reshape_with_copies(node: ir.Node, b: Builder) -> Value | None:
    """Zeros that copy a dimension, in a shape of another rank: taken from the shape of the operand."""
    target = known(_input(node, 1))
    if target is None or attrs_of(node).get("allowzero", 0) or 0 not in target.tolist():
        return None
    shape = b.op("Shape", _x(node))
    parts = [b.op("Slice", shape, [i], [i + 1]) if d == 0 else b.const([int(d)]) for i, d in enumerate(target.tolist())]
    return b.op("Reshape", _x(node), b.op("Concat", *parts, axis=0))


def flatten(node: ir.Node, b: Builder) -> Value | None:
    """Into one row or one column."""
    axis = attrs_of(node).get("axis", 1)
    return b.op("Reshape", _x(node), [1, -1] if axis == 0 else [-1, 1])


def dynamic_clip(node: ir.Node, b: Builder) -> Value:
    """Limits that are not constant."""
    y = _x(node)
    for index, op in ((1, "Max"), (2, "Min")):
        limit = _input(node, index)
        y = y if limit is None else b.op(op, y, limit)
    return y


def mean_of_shapes(node: ir.Node, b: Builder) -> Value:
    total = _x(node)
    for v in node.inputs[1:]:
        total = b.op("Add", total, v)
    return b.op("Mul", total, 1.0 / len(node.inputs))


def bias_apart(node: ir.Node, b: Builder) -> Value | None:
    """A bias that is computed at run time is added afterwards; else automatic padding is made explicit."""
    bias, rank = _input(node, 2), rank_of(_x(node))
    if bias is None or rank is None or is_constant(bias):
        return auto_padded(node, b)
    y = b.op(node.op_type, *node.inputs[:2], **attrs_of(node))
    return b.op("Add", y, b.op("Reshape", bias, [-1, *[1] * (rank - 2)]))


def batch_norm(node: ir.Node, b: Builder) -> Value | None:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias with operands known only at run time."""
    rank, attrs = rank_of(_x(node)), attrs_of(node)
    if rank is None or attrs.get("training_mode", 0) or all(is_constant(v) for v in node.inputs[1:]):
        return None
    scale, bias, mean, variance = (b.op("Reshape", _x(node, i), [-1, *[1] * (rank - 2)]) for i in range(1, 5))
    y = b.op("Div", b.op("Sub", _x(node), mean), b.op("Sqrt", b.op("Add", variance, float(attrs.get("epsilon", 1e-5)))))
    return b.op("Add", b.op("Mul", y, scale), bias)


def last_extreme(node: ir.Node, b: Builder) -> Value | None:
    """The last of several extremes is the first one backwards."""
    attrs, x = attrs_of(node), _x(node)
    shape, axis = shape_of(x), int(attrs.get("axis", 0))
    if not attrs.get("select_last_index", 0) or shape is None:
        return None
    backwards = b.op("Slice", x, [-1], [-(1 << 62)], [axis], [-1])
    found = b.op(node.op_type, backwards, axis=axis, keepdims=attrs.get("keepdims", 1))
    return b.op("Sub", b.const(np.array(shape[axis] - 1, np.int64)), found)


def reverse_sequence(node: ir.Node, b: Builder) -> Value | None:
    """A time axis in front of the batch axis: turned, reversed, turned back."""
    attrs, x = attrs_of(node), _x(node)
    rank = rank_of(x)
    if rank is None or (attrs.get("batch_axis", 1), attrs.get("time_axis", 0)) != (1, 0):
        return None
    perm = [1, 0, *range(2, rank)]
    y = b.op("ReverseSequence", b.op("Transpose", x, perm=perm), _x(node, 1), batch_axis=0, time_axis=1)
    return b.op("Transpose", y, perm=perm)


def wrapped_cast(node: ir.Node, b: Builder) -> Value | None:
    """x - 2^n * floor((x - least) / 2^n): the integer of n bits that has the same last bits."""
    x, out = _x(node), node.outputs[0]
    if x.dtype is None or out.dtype is None or not wraps(x, out):
        return None
    y = b.op("Cast", x, to=int(ir.DataType.FLOAT))
    count, least = float(2**out.dtype.bitwidth), float(out.dtype.min)
    turns = b.op("Floor", b.op("Mul", b.op("Sub", y, least), 1 / count))
    return b.op("Cast", b.op("Sub", y, b.op("Mul", turns, count)), to=int(out.dtype))


def wrapped(node: ir.Node, b: Builder) -> Value | None:
    """Short integers in 32 bits, of which the last ones are the result; numbers that are shifted out of 32 bits by a power of two are lost."""
    out = node.outputs[0]
    if is_short(out):
        y = b.op(node.op_type, *(b.op("Cast", v, to=int(ir.DataType.INT32)) for v in node.inputs))
        return b.op("Cast", y, to=int(out.dtype or ir.DataType.INT32))
    return _shifted(node, b) if shifts_out(node) else None


def _shifted(node: ir.Node, b: Builder) -> Value:
    """x * 2^n as the last 32 bits of it. In units of 2^32, taking away what is whole is exact; half a unit and more is the sign."""
    out = node.outputs[0]
    x, y = (b.op("Cast", v, to=int(ir.DataType.FLOAT)) for v in node.inputs)
    turns = b.op("Mul", b.op("Mul", x, y), 2.0**-32)
    rest = b.op("Sub", turns, b.op("Mul", b.op("Sign", turns), b.op("Floor", b.op("Abs", turns))))
    if out.dtype == ir.DataType.INT32:
        above, below = (b.op("Cast", truth, to=int(ir.DataType.FLOAT)) for truth in (b.op("GreaterOrEqual", rest, 0.5), b.op("Less", rest, -0.5)))
        rest = b.op("Add", b.op("Sub", rest, above), below)
    else:
        rest = b.op("Abs", rest)  # says what it is: no unsigned number is negative
    return b.op("Cast", b.op("Mul", rest, 2.0**32), to=int(out.dtype or ir.DataType.INT32))


def gather_elements(node: ir.Node, b: Builder) -> Value | None:
    """Data cut to the places that the indices have along the other axes."""
    x, indices, axis = _x(node), _x(node, 1), int(attrs_of(node).get("axis", 0))
    axes, shape = cut_axes(axis, x, indices), shape_of(indices)
    if not axes or shape is None:
        return None
    cut = b.op("Slice", x, [0] * len(axes), [shape[i] for i in axes], axes)
    if cut.shape is not None:  # open axes of the data have as many places at least
        cut.shape = ir.Shape([shape[i] if i in axes else d for i, d in enumerate(cut.shape)])
    return b.op("GatherElements", cut, indices, axis=axis)


def bitwise(node: ir.Node, b: Builder) -> Value | None:
    """Of numbers that a float holds exactly."""
    return by_digits(node, b, count=7, largest=1 << 24)


REWRITES: Rewrites = {
    **{("", op): bitwise for op in BITS},
    ("", "Cast"): wrapped_cast,
    **{("", op): wrapped for op in ("Add", "Sub", "Mul", "Neg")},
    ("", "GatherElements"): gather_elements,
    ("", "OneHot"): one_hot,
    ("", "ReverseSequence"): reverse_sequence,
    ("", "BatchNormalization"): batch_norm,
    ("", "ArgMax"): last_extreme,
    ("", "ArgMin"): last_extreme,
    ("", "PRelu"): prelu,
    ("", "DequantizeLinear"): dequantize,
    ("", "QuantizeLinear"): quantize,
    ("", "InstanceNormalization"): instance_norm,
    ("", "Reshape"): reshape_with_copies,
    ("", "Flatten"): flatten,
    ("", "Clip"): dynamic_clip,
    ("", "RNN"): split_directions,
    ("", "NonMaxSuppression"): non_max_suppression,
    ("", "GRU"): gru,
    ("", "Mean"): mean_of_shapes,
    **{("", op): bias_apart for op in ("Conv", "ConvTranspose")},
    **{("", op): auto_padded for op in ("MaxPool", "AveragePool", "LpPool")},
}
