"""Canonical operators rewritten for the opsets, where no row or pair says them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.legalise_recurrent import lstm
from converter.formats.openvino.opset.special.resize import AT_ONCE
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import known, rank_of, shape_of
from converter.graph.sizes import arange
from converter.passes.decompositions.bitwise import BITS, by_digits
from converter.passes.legalise import Rewrites

T = ir.DataType


def biased(node: ir.Node, b: Builder) -> ir.Value | None:
    """A convolution with a bias: the convolution, and an Add."""
    x, w, bias = node.inputs[0], node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    rank = rank_of(w) if w is not None else None
    if bias is None or rank is None:
        return None
    y = b.op(node.op_type, x, w, **attrs_of(node))
    shape = [1, -1, *[1] * (rank - 2)]
    tensor = bias.const_value
    return b.op("Add", y, b.const(tensor.numpy().reshape(shape), str(bias.name)) if tensor is not None else b.op("Reshape", bias, shape))


def trilu(node: ir.Node, b: Builder) -> ir.Value | None:
    """x where column - row reaches k (upper) or does not pass it (lower)."""
    x, k = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    if x is None:
        return None
    shape = shape_of(x)
    rows, columns = (b.const(arange(shape[-2])), b.const(arange(shape[-1]))) if shape is not None else (_numbers(b, x, -2), _numbers(b, x, -1))
    distance = b.op("Sub", columns, b.op("Unsqueeze", rows, [1]))
    limit = b.const(np.int64(0)) if k is None else b.op("Reshape", k, np.zeros(0, np.int64))
    keep = b.op("GreaterOrEqual" if attrs_of(node).get("upper", 1) else "LessOrEqual", distance, limit)
    if x.dtype == T.BOOL:
        return b.op("And", x, keep)
    return b.op("Where", keep, x, b.like(x, 0))


def _numbers(b: Builder, x: ir.Value, axis: int) -> ir.Value:
    size = b.op("Gather", b.op("Shape", x), b.const(np.int64(axis)), axis=0)
    return b.op("Range", b.const(np.int64(0)), size, b.const(np.int64(1)))


def reduce_parts(node: ir.Node, b: Builder) -> ir.Value | None:
    """ReduceLogSum, ReduceLogSumExp, ReduceSumSquare from ReduceSum."""
    x, axes = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    if x is None:
        return None
    a = attrs_of(node)
    if node.op_type == "ReduceSumSquare":
        return b.op("ReduceSum", b.op("Mul", x, x), axes, **a)
    if node.op_type == "ReduceLogSum":
        return b.op("Log", b.op("ReduceSum", x, axes, **a))
    high = b.op("ReduceMax", x, axes, **{**a, "keepdims": 1})
    finite = b.op("Where", b.op("Equal", b.op("Abs", high), b.like(x, float("inf"))), b.like(x, 0), high)
    total = b.op("Log", b.op("ReduceSum", b.op("Exp", b.op("Sub", x, finite)), axes, **a))
    return b.op("Add", total, finite if a.get("keepdims", 1) else b.op("ReduceMax", finite, axes, **a))


def compress(node: ir.Node, b: Builder) -> ir.Value | None:
    """The places where the condition holds, gathered."""
    x, condition = node.inputs[0], node.inputs[1]
    axis = attrs_of(node).get("axis")
    if axis is None:
        x = b.op("Reshape", x, [-1])
    places = b.op("Reshape", b.op("NonZero", b.op("Cast", condition, to=int(T.INT32))), [-1])
    return b.op("Gather", x, places, axis=axis or 0)


def hardmax(node: ir.Node, b: Builder) -> ir.Value | None:
    x, axis = node.inputs[0], attrs_of(node).get("axis", -1)
    shape = shape_of(x) if x is not None else None
    if x is None or shape is None:
        return None
    axis += len(shape) if axis < 0 else 0
    best = b.op("ArgMax", x, axis=axis, keepdims=1)
    numbers = arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return b.op("Cast", b.op("Equal", best, b.const(numbers)), to=int(x.dtype or T.FLOAT))


def is_nan(node: ir.Node, b: Builder) -> ir.Value:
    return b.op("Not", b.op("Equal", node.inputs[0], node.inputs[0]))


def softsign(node: ir.Node, b: Builder) -> ir.Value | None:
    x = node.inputs[0]
    return None if x is None else b.op("Div", x, b.op("Add", b.op("Abs", x), b.like(x, 1)))


def conv_integer(node: ir.Node, b: Builder) -> ir.Value:
    """Zero points subtracted, a convolution of floats (exact up to 2^24), and back."""
    x, w, xz, wz = ([*node.inputs, None, None])[:4]

    def real(v: ir.Value | None, zero: ir.Value | None) -> ir.Value:
        y = b.op("Cast", v, to=int(T.FLOAT))
        if zero is None:
            return y
        z = b.op("Cast", zero, to=int(T.FLOAT))
        if v is w and rank_of(zero) == 1 and rank_of(w) is not None and node.op_type == "ConvInteger":  # type: ignore[arg-type]
            z = b.op("Reshape", z, [-1, *[1] * ((rank_of(w) or 1) - 1)])  # type: ignore[arg-type]
        if v is x and rank_of(zero) == 1 and node.op_type == "MatMulInteger" and (shape_of(zero) or (1,)) != (1,):
            z = b.op("Unsqueeze", z, [-1])
        return b.op("Sub", y, z)

    kind = "Conv" if node.op_type == "ConvInteger" else "MatMul"
    return b.op("Cast", b.op(kind, real(x, xz), real(w, wz), **attrs_of(node)), to=int(T.INT32))


def lrn(node: ir.Node, b: Builder) -> ir.Value | None:
    """An even size is centred differently by the runtime: the neighbours' squares summed one by one."""
    x, a = node.inputs[0], {"alpha": 1e-4, "beta": 0.75, "bias": 1.0, **attrs_of(node)}
    rank = rank_of(x) if x is not None else None
    if x is None or rank is None:
        return None
    size, pads = a["size"], [0] * (2 * rank)
    pads[1], pads[rank + 1] = (size - 1) // 2, size // 2
    padded = b.op("Pad", b.op("Mul", x, x), pads)
    total = b.op("Sum", *(b.op("Slice", padded, [i], [i - size + 1 or np.iinfo(np.int64).max], [1]) for i in range(size)))
    base = b.op("Add", b.op("Mul", total, b.like(x, a["alpha"] / size)), b.like(x, a["bias"]))
    return b.op("Div", x, b.op("Pow", base, b.like(x, a["beta"])))


def gather_elements(node: ir.Node, b: Builder) -> ir.Value | None:
    """The opsets want data and indices of the same sizes but along the axis: the rest of the data is cut off."""
    x, indices = node.inputs[0], node.inputs[1]
    sizes, shape = (None if v is None or v.shape is None else list(v.shape) for v in (indices, x))
    if sizes is None or shape is None:
        return None
    axis = attrs_of(node).get("axis", 0) % len(shape)
    for i, (size, whole) in enumerate(zip(sizes, shape, strict=True)):
        if i != axis and isinstance(size, int) and size != whole:
            # by Gather: the runtime removes a Slice in front of GatherElements, and then refuses the sizes
            x = b.op("Gather", x, arange(size), axis=i)
    return b.op("GatherElements", x, indices, axis=axis)


def bitwise(node: ir.Node, b: Builder) -> ir.Value | None:
    """Before opset 13 by digits of 32 bits: the runtime has no unsigned numbers to take negative ones apart in, and computes in 32 bits."""
    return by_digits(node, b) if node.inputs[0] is not None and node.inputs[0].dtype in (T.INT32, T.INT64) else None


def resize_in_turn(node: ir.Node, b: Builder) -> ir.Value | None:
    """More axes than the runtime takes at once: the last ones first, then the others."""
    x, attrs = node.inputs[0], attrs_of(node)
    shape, rank = (None, 0) if x is None else (shape_of(x), rank_of(x) or 0)
    index = next((i for i in (3, 2) if i < len(node.inputs) and node.inputs[i] is not None), 0)
    wanted, axes = known(node.inputs[index]) if index else None, [a % rank for a in attrs.get("axes") or range(rank)]
    if wanted is None or shape is None or wanted.size != len(axes) or rank not in AT_ONCE or attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    changed = [i for i, (a, v) in enumerate(zip(axes, wanted, strict=True)) if v != (shape[a] if index == 3 else 1)]
    if len(changed) <= AT_ONCE[rank]:
        return None
    for part in (changed[-AT_ONCE[rank] :], changed[: -AT_ONCE[rank]]):
        target = [None, None, wanted[part]] if index == 3 else [None, wanted[part]]
        x = b.op("Resize", x, *target, **{**attrs, "axes": [axes[i] for i in part]})
    return x


def blocks_last(node: ir.Node, b: Builder) -> ir.Value | None:
    """Constant weights whose blocks are along another axis than the last: moved there, and back behind."""
    a, n, tensors = attrs_of(node), rank_of(node.outputs[0]), [v.const_value for v in node.inputs if v is not None]
    if not a.get("block_size", 0) or n is None or any(t is None or len(t.shape) != n for t in tensors):
        return None
    axis = a.get("axis", 1) % n
    if axis == n - 1:
        return None
    order = [*(i for i in range(n) if i != axis), axis]
    y = b.op("DequantizeLinear", *(b.const(_moved(t, order), str(t.name)) for t in tensors if t is not None), axis=n - 1, block_size=a["block_size"])
    return b.op("Transpose", y, perm=[order.index(i) for i in range(n)])


def _moved(tensor: ir.TensorProtocol, order: Sequence[int]) -> ir.TensorProtocol:
    shape = ir.Shape([int(tensor.shape.numpy()[i]) for i in order])
    return ir.LazyTensor(lambda: ir.Tensor(np.ascontiguousarray(tensor.numpy().transpose(order)), tensor.dtype), dtype=tensor.dtype, shape=shape)


REWRITES: Rewrites = {
    ("", "DequantizeLinear"): blocks_last,
    ("", "Resize"): resize_in_turn,
    **{("", name): bitwise for name in BITS},
    ("", "GatherElements"): gather_elements,
    ("", "LRN"): lrn,
    ("", "LSTM"): lstm,
    **{("", name): biased for name in ("Conv", "ConvTranspose")},
    **{("", name): reduce_parts for name in ("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")},
    **{("", name): conv_integer for name in ("ConvInteger", "MatMulInteger")},
    ("", "Trilu"): trilu,
    ("", "Compress"): compress,
    ("", "Hardmax"): hardmax,
    ("", "IsNaN"): is_nan,
    ("", "Softsign"): softsign,
}
