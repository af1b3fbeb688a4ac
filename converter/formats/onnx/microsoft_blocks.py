"""com.microsoft operators that combine a few standard ones."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.canonical import ROWS as CANONICAL
from converter.formats.onnx.canonical import explicit
from converter.formats.onnx.microsoft import (
    ROWS,
    activated,
    channels_first,
    channels_last,
    fast_gelu,
    fused_conv,
    fused_matmul,
    group_norm,
    plus,
    rms,
)
from converter.formats.onnx.op import Op, Results
from converter.graph.build import Builder
from converter.graph.infer import rank_of
from converter.graph.sizes import arange
from converter.graph.value import Value

_FLOAT = ir.DataType.FLOAT


@ROWS.always("NhwcConv", "NhwcFusedConv")
def nhwc_conv(op: Op, b: Builder) -> Results:
    """Convert NhwcConv: data and the operand to add are channels-last, the filters are not."""
    rank = op.rank(0)
    for i in (0, 3):
        if (value := op.input(i)) is not None:
            op.set_input(i, channels_first(b, value, rank))
    return channels_last(b, fused_conv(op, b), rank)


@ROWS.always("QLinearConv")
def qlinear_conv(op: Op, b: Builder) -> Results:
    """Return the standard operator, with the data channels-last if `channels_last` is set."""
    if not op.take("channels_last", 0):
        return CANONICAL.apply(op, b)
    rank = op.rank(0)
    inputs = [channels_first(b, op.x, rank), *op.inputs[1:]]
    return channels_last(b, explicit(b, "QLinearConv", inputs, op.attrs), rank)


@ROWS.always("SkipGroupNorm")
def skip_group_norm(op: Op, b: Builder) -> Results:
    """(X, gamma, beta, skip, bias) -> GroupNorm of the sum, the sum."""
    skip, bias, last = op.need(3), op.input(4), op.attr("channels_last", 1)
    if rank_of(skip) == 2:
        skip = b.Unsqueeze(skip, [1, 2] if last else [2, 3])
    if bias is not None and not last:
        bias = b.Reshape(bias, [-1, *[1] * (op.rank(0) - 2)])
    total = plus(op.x + skip, bias)
    return group_norm(replace(op, inputs=[total, op.need(1), op.need(2)]), b), total


ROWS.enter(
    GemmFastGelu=lambda op, b: fast_gelu(replace(op, inputs=[op.x @ op.need(1), op.input(2)]), b),
    SampleOp=lambda op, b: b.Identity(op.x),
    GatedAdd=lambda op, b: op.x + op.need(1) * op.need(2),
)


@ROWS.always("FusedMatMulActivation")
def fused_matmul_activation(op: Op, b: Builder) -> Results:
    """Rewrite FusedMatMulActivation as a FusedMatMul and its activation."""
    kind = op.take("activation", "")
    params = {k: op.take(f"activation_{k}") for k in ("alpha", "beta", "gamma", "axis")}
    return activated(b, fused_matmul(op, b), kind, params)


@ROWS.always("Rfft", "Irfft")
def fourier(op: Op, b: Builder) -> Results:
    """Transform real numbers along the last axis; complex ones are pairs on an additional last
    axis. The inverse assumes an even number of samples.
    """
    plain = not op.attr("normalized", 0) and op.attr("onesided", 1)
    if op.attr("signal_ndim", 1) != 1 or not plain:
        raise MappingError(
            f"{op.kind} with more axes, normalization or both sides is not supported"
        )
    if op.kind == "Irfft":
        return _from_half(op, b)
    return b.DFT(b.Unsqueeze(op.x, [-1]), None, op.rank(0) - 1, onesided=1)


def _from_half(op: Op, b: Builder) -> Value:
    """Append the missing half of a spectrum: the conjugate of the first half, reversed; the
    imaginary parts of its ends do not count.
    """
    x, rank = op.x, op.rank(0)
    half = op.shape(0)[-2]
    keep = np.ones((half, 2), np.float32)
    keep[[0, -1], 1] = 0
    first = x * b.Cast(keep, to=x.dtype or _FLOAT)
    middle = b.Slice(first, [half - 2], [0], [rank - 2], [-1])
    flipped = middle * b.Cast([1.0, -1.0], to=x.dtype or _FLOAT)
    y = b.DFT(b.Concat(first, flipped, axis=rank - 2), None, rank - 2, inverse=1)
    return b.Squeeze(y[..., :1], [rank - 1])


@ROWS.always("ComplexMul", "ComplexMulConj")
def complex_mul(op: Op, b: Builder) -> Results:
    """Multiply complex numbers, pairs on the last axis; the variant with Conj uses the conjugate of
    the second operand.
    """
    (a, c), (d, e) = (b.Split(op.need(i), outputs=2, axis=-1, num_outputs=2) for i in (0, 1))
    if op.kind == "ComplexMul":
        return b.Concat(a * d - c * e, a * e + c * d, axis=-1)
    return b.Concat(a * d + c * e, c * d - a * e, axis=-1)


@ROWS.always("IsAllFinite")
def is_all_finite(op: Op, b: Builder) -> Results:
    """Rewrite IsAllFinite as IsNaN and IsInf of each input, or one of them by its flags."""
    every: Value | None = None
    for value in op.inputs:
        if value is None:
            continue
        odd = [
            b.op(kind, value)
            for kind, other in (("IsNaN", "isinf_only"), ("IsInf", "isnan_only"))
            if not op.attr(other, 0)
        ]
        flags = b.Or(*odd) if len(odd) == 2 else odd[0]
        one = b.ReduceMax(b.Cast(flags, to=ir.DataType.INT32), keepdims=0)
        every = one if every is None else b.Max(every, one)
    return None if every is None else b.Equal(every, np.array(0, np.int32))


@ROWS.always("MulInteger")
def mul_integer(op: Op, b: Builder) -> Results:
    """Rewrite MulInteger as a product of int32 after the zero points are subtracted."""
    sides = []
    for i in (0, 2):
        x = b.Cast(op.need(i), to=ir.DataType.INT32)
        zero = op.input(i + 1)
        sides.append(x if zero is None else x - b.Cast(zero, to=ir.DataType.INT32))
    return b.Mul(*sides)


@ROWS.always("MatMulInteger16")
def matmul_integer_16(op: Op, b: Builder) -> Results:
    """Rewrite MatMulInteger16 as MatMul of 32 bits."""
    signed = op.x.dtype == ir.DataType.INT16
    to = int(ir.DataType.INT32 if signed else ir.DataType.UINT32)
    return b.Cast(op.x, to=to) @ b.Cast(op.need(1), to=to)


@ROWS.always("ReduceSumInteger")
def reduce_sum_integer(op: Op, b: Builder) -> Results:
    """Rewrite ReduceSumInteger as ReduceSum of 32 bits."""
    signed = op.x.dtype == ir.DataType.INT8
    x = b.Cast(op.x, to=ir.DataType.INT32 if signed else ir.DataType.UINT32)
    return b.ReduceSum(x, op.attr("axes"), keepdims=op.attr("keepdims", 1))


@ROWS.always("BiasDropout")
def bias_dropout(op: Op, b: Builder) -> Results:
    """(data, bias, residual, ratio, training mode)"""
    if op.input(4) is not None and op.constant(4).any():
        raise MappingError(
            "BiasDropout in training mode drops random elements, which is not supported"
        )
    if op.has_output(1):
        raise MappingError("the mask output of BiasDropout is not supported")
    return plus(op.x + op.need(1), op.input(2))


@ROWS.always("UnfoldTensor")
def unfold_tensor(op: Op, b: Builder) -> Results:
    """Extract windows of `size` elements, one every `step` along `dim`; the elements of a window
    are the last axis of the result.
    """
    rank, size, step = op.rank(0), int(op.attrs["size"]), int(op.attr("step", 1))
    axis = int(op.attr("dim", -1)) % rank
    extent = op.shape(0)[axis]
    positions = arange(0, extent - size + 1, step)[:, None] + arange(size)
    y = b.Gather(op.x, positions, axis=axis)
    return b.Transpose(y, perm=[*range(axis + 1), *range(axis + 2, rank + 1), axis + 1])


@ROWS.always("Range")
def range_(op: Op, b: Builder) -> Results:
    """Convert Range, whose step is 1 by default."""
    start, step = op.x, op.input(2)
    return b.Range(start, op.need(1), b.like(start, 1) if step is None else step)


@ROWS.always("ScaledSiLU")
def scaled_silu(op: Op, b: Builder) -> Results:
    """Rewrite ScaledSiLU as z * Sigmoid(z), where z is x times alpha or the slope."""
    slope = op.input(1)
    z = op.x * (op.number("alpha", 1.0) if slope is None else slope)
    return z * b.Sigmoid(z)


@ROWS.always("GatedRMSNorm")
def gated_rms_norm(op: Op, b: Builder) -> Results:
    """Normalize groups of as many elements as `scale` has, in float; multiply by the activated
    gate.
    """
    x, (width,) = op.x, op.shape(1)
    wide, scale, gate = (
        v if v.dtype == _FLOAT else b.Cast(v, to=_FLOAT) for v in (x, op.need(1), op.need(2))
    )
    shape = b.Shape(x)
    groups = b.Reshape(wide, b.Concat(shape[:-1], [-1, width], axis=0))
    y = b.Reshape(rms(b, groups, scale, op.attr("epsilon", 1e-5))[0], shape)
    silu = op.attr("activation", "silu") != "sigmoid"
    y = y * (gate * b.Sigmoid(gate) if silu else b.Sigmoid(gate))
    return b.Cast(y, to=x.dtype) if x.dtype not in (None, _FLOAT) else y


@ROWS.always("CausalConvWithState")
def causal_conv(op: Op, b: Builder) -> Results:
    """(x [B,C,L], weight [C,1,k], bias, the last inputs before x [B,C,k-1]) -> y, the last inputs
    of all.
    """
    special = op.attr("channels_last", 0) or op.attr("state_window", 0)
    if op.attr("ndim", 1) != 1 or special:
        raise MappingError(
            "CausalConvWithState with several axes, channels-last data or a "
            "window of states is not supported"
        )
    channels, _, k = op.shape(1)
    dilation = int(op.attr("dilation", 1))
    reach = (k - 1) * dilation
    x = op.x
    x = b.Pad(x, [reach, 0], None, [2]) if op.input(3) is None else b.Concat(op.need(3), x, axis=2)
    y = b.Conv(
        x,
        op.need(1),
        op.input(2),
        group=channels,
        kernel_shape=[k],
        pads=[0, 0],
        strides=[1],
        dilations=[dilation],
    )
    if op.attr("activation", "none") in ("silu", "swish"):
        y = y * b.Sigmoid(y)
    end = np.iinfo(np.int64).max
    return y, b.Slice(x, [-reach if reach else end], [end], [2])


@ROWS.always("RelativePositionBias")
def relative_position_bias(op: Op, b: Builder) -> Results:
    """Compute T5's position bias [1, heads, Q, K] from a table [buckets, heads]; half of the
    buckets are single distances, the ranges of the others grow up to max_distance.
    """
    queries, keys = (int(op.constant(i).reshape(())) for i in (1, 2))
    buckets, both = op.shape(0)[0], bool(op.attr("is_bidirectional", 0))
    distance = arange(keys)[None, :] - arange(queries)[:, None]
    base = np.zeros_like(distance)
    if both:
        buckets //= 2
        base = (distance > 0) * buckets
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = buckets // 2
    ratio = np.log(np.maximum(distance, 1) / exact) / math.log(
        int(op.attrs["max_distance"]) / exact
    )
    far = np.minimum(exact + (ratio * (buckets - exact)).astype(np.int64), buckets - 1)
    index = base + np.where(distance < exact, distance, far)
    return b.Unsqueeze(b.Transpose(b.Gather(op.x, index), perm=[2, 0, 1]), [0])
