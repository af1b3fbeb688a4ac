"""com.microsoft operators that join a few standard ones, in these."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.canonical import ROWS as CANONICAL
from converter.formats.onnx.microsoft import ROWS, activated, fast_gelu, fused_conv, group_norm, rms
from converter.formats.onnx.op import Op, Results
from converter.graph.build import Builder
from converter.graph.infer import rank_of
from converter.graph.sizes import arange

_FLOAT = ir.DataType.FLOAT


def _first(b: Builder, x: ir.Value, rank: int) -> ir.Value:
    return b.op("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])


def _last(b: Builder, x: ir.Value, rank: int) -> ir.Value:
    return b.op("Transpose", x, perm=[0, *range(2, rank), 1])


@ROWS.always("NhwcConv", "NhwcFusedConv")
def nhwc_conv(op: Op, b: Builder) -> Results:
    """Data and the operand to add are channels-last, the filters are not."""
    rank = op.rank(0)
    inputs = [
        _first(b, op.need(0), rank),
        *op.inputs[1:3],
        *(_first(b, v, rank) if v is not None else None for v in op.inputs[3:4]),
    ]
    y = fused_conv(Op("FusedConv", op.domain, op.version, inputs, op.attrs, op.outputs), b)
    assert isinstance(y, ir.Value)
    return _last(b, y, rank)


@ROWS.always("QLinearConv")
def qlinear_conv(op: Op, b: Builder) -> Results:
    """The standard operator, with the data channels-last where `channels_last` says so."""
    if not op.take("channels_last", 0):
        return CANONICAL.apply(op, b)
    rank = op.rank(0)
    plain = Op(
        "QLinearConv", "", 21, [_first(b, op.need(0), rank), *op.inputs[1:]], op.attrs, op.outputs
    )
    CANONICAL.apply(plain, b)
    return _last(b, b.op("QLinearConv", *plain.inputs, **plain.attrs), rank)


@ROWS.always("SkipGroupNorm")
def skip_group_norm(op: Op, b: Builder) -> Results:
    """(X, gamma, beta, skip, bias) -> GroupNorm of the sum, the sum."""
    x, skip, rank = op.need(0), op.need(3), op.rank(0)
    if rank_of(skip) == 2:
        skip = b.op("Unsqueeze", skip, [1, 2] if op.attrs.get("channels_last", 1) else [2, 3])
    total = b.op("Add", x, skip)
    if op.input(4) is not None:
        total = b.op(
            "Add",
            total,
            op.need(4)
            if op.attrs.get("channels_last", 1)
            else b.op("Reshape", op.need(4), [-1, *[1] * (rank - 2)]),
        )
    y = group_norm(
        Op(
            "GroupNorm",
            op.domain,
            op.version,
            [total, op.need(1), op.need(2)],
            op.attrs,
            op.outputs,
        ),
        b,
    )
    assert isinstance(y, ir.Value)
    return y, total


@ROWS.always("GemmFastGelu")
def gemm_fast_gelu(op: Op, b: Builder) -> Results:
    product = b.op("MatMul", op.need(0), op.need(1))
    return fast_gelu(
        Op("FastGelu", op.domain, op.version, [product, op.input(2)], {}, op.outputs), b
    )


@ROWS.always("FusedMatMulActivation")
def fused_matmul_activation(op: Op, b: Builder) -> Results:
    from converter.formats.onnx.microsoft import fused_matmul

    kind = op.take("activation", "")
    params = {k: op.take(f"activation_{k}") for k in ("alpha", "beta", "gamma", "axis")}
    y = fused_matmul(op, b)
    assert isinstance(y, ir.Value)
    return activated(b, y, kind, params)


@ROWS.always("Rfft", "Irfft")
def fourier(op: Op, b: Builder) -> Results:
    """Along the last axis of real numbers; complex ones are pairs behind it. The inverse knows an
    even number of samples.
    """
    if (
        op.attrs.get("signal_ndim", 1) != 1
        or op.attrs.get("normalized", 0)
        or not op.attrs.get("onesided", 1)
    ):
        raise MappingError(f"{op.kind} of more axes, normalised or of both sides is not supported")
    if op.kind == "Rfft":
        rank = op.rank(0)
        return b.op(
            "DFT",
            b.op("Unsqueeze", op.need(0), [-1]),
            None,
            b.const(np.array(rank - 1, np.int64)),
            onesided=1,
        )
    return _from_half(op, b)


def _from_half(op: Op, b: Builder) -> ir.Value:
    """The missing half of the spectrum is the conjugate of the first, backwards; the imaginary
    parts of its ends do not count.
    """
    x, rank = op.need(0), op.rank(0)
    half = op.shape(0)[-2]
    keep = np.ones((half, 2), np.float32)
    keep[[0, -1], 1] = 0
    first = b.op("Mul", x, b.op("Cast", b.const(keep), to=int(x.dtype or _FLOAT)))
    middle = b.op("Slice", first, [half - 2], [0], [rank - 2], [-1])
    flipped = b.op(
        "Mul",
        middle,
        b.op("Cast", b.const(np.array([1, -1], np.float32)), to=int(x.dtype or _FLOAT)),
    )
    whole = b.op("Concat", first, flipped, axis=rank - 2)
    y = b.op("DFT", whole, None, b.const(np.array(rank - 2, np.int64)), inverse=1)
    return b.op("Squeeze", b.op("Slice", y, [0], [1], [rank - 1]), [rank - 1])


@ROWS.always("ComplexMul", "ComplexMulConj")
def complex_mul(op: Op, b: Builder) -> Results:
    """Complex numbers are pairs on the last axis; Conj: of the second operand."""
    (a, c), (d, e) = (b.ops("Split", op.need(i), outputs=2, axis=-1, num_outputs=2) for i in (0, 1))
    real = [b.op("Mul", a, d), b.op("Mul", c, e)]
    other = [b.op("Mul", a, e), b.op("Mul", c, d)]
    if op.kind == "ComplexMul":
        return b.op("Concat", b.op("Sub", *real), b.op("Add", *other), axis=-1)
    return b.op("Concat", b.op("Add", *real), b.op("Sub", other[1], other[0]), axis=-1)


@ROWS.always("IsAllFinite")
def is_all_finite(op: Op, b: Builder) -> Results:
    every: ir.Value | None = None
    for value in op.inputs:
        if value is None:
            continue
        odd = [
            b.op(kind, value)
            for kind, other in (("IsNaN", "isinf_only"), ("IsInf", "isnan_only"))
            if not op.attrs.get(other, 0)
        ]
        flags = b.op("Or", *odd) if len(odd) == 2 else odd[0]
        one = b.op("ReduceMax", b.op("Cast", flags, to=int(ir.DataType.INT32)), keepdims=0)
        every = one if every is None else b.op("Max", every, one)
    return None if every is None else b.op("Equal", every, np.array(0, np.int32))


@ROWS.always("MulInteger")
def mul_integer(op: Op, b: Builder) -> Results:
    sides = []
    for i in (0, 2):
        x = b.op("Cast", op.need(i), to=int(ir.DataType.INT32))
        zero = op.input(i + 1)
        sides.append(
            x if zero is None else b.op("Sub", x, b.op("Cast", zero, to=int(ir.DataType.INT32)))
        )
    return b.op("Mul", *sides)


@ROWS.always("MatMulInteger16")
def matmul_integer_16(op: Op, b: Builder) -> Results:
    signed = op.need(0).dtype == ir.DataType.INT16
    to = int(ir.DataType.INT32 if signed else ir.DataType.UINT32)
    return b.op("MatMul", b.op("Cast", op.need(0), to=to), b.op("Cast", op.need(1), to=to))


@ROWS.always("ReduceSumInteger")
def reduce_sum_integer(op: Op, b: Builder) -> Results:
    signed = op.need(0).dtype == ir.DataType.INT8
    x = b.op("Cast", op.need(0), to=int(ir.DataType.INT32 if signed else ir.DataType.UINT32))
    return b.op("ReduceSum", x, op.attrs.get("axes"), keepdims=op.attrs.get("keepdims", 1))


@ROWS.always("BiasDropout")
def bias_dropout(op: Op, b: Builder) -> Results:
    """(data, bias, residual, ratio, training mode)"""
    if op.input(4) is not None and op.constant(4).any():
        raise MappingError("BiasDropout in training mode drops elements by chance")
    if op.has_output(1):
        raise MappingError("the mask of a BiasDropout is not supported")
    y = b.op("Add", op.need(0), op.need(1))
    return y if op.input(2) is None else b.op("Add", y, op.need(2))


@ROWS.always("UnfoldTensor")
def unfold_tensor(op: Op, b: Builder) -> Results:
    """Windows of `size` elements every `step` along `dim`; the window's elements are the last axis
    of the result.
    """
    rank, size, step = op.rank(0), int(op.attrs["size"]), int(op.attrs.get("step", 1))
    axis = int(op.attrs.get("dim", -1)) % rank
    extent = op.shape(0)[axis]
    places = arange(0, extent - size + 1, step)[:, None] + arange(size)
    y = b.op("Gather", op.need(0), places, axis=axis)
    return b.op("Transpose", y, perm=[*range(axis + 1), *range(axis + 2, rank + 1), axis + 1])


@ROWS.always("SampleOp")
def sample_op(op: Op, b: Builder) -> Results:
    return b.op("Identity", op.need(0))


@ROWS.always("Range")
def range_(op: Op, b: Builder) -> Results:
    """The step is 1 unless given."""
    start = op.need(0)
    return b.op(
        "Range", start, op.need(1), op.input(2) if op.input(2) is not None else b.like(start, 1)
    )


@ROWS.always("ScaledSiLU")
def scaled_silu(op: Op, b: Builder) -> Results:
    x = op.need(0)
    z = b.op(
        "Mul", x, op.need(1) if op.input(1) is not None else b.like(x, op.attrs.get("alpha", 1.0))
    )
    return b.op("Mul", z, b.op("Sigmoid", z))


@ROWS.always("GatedAdd")
def gated_add(op: Op, b: Builder) -> Results:
    return b.op("Add", op.need(0), b.op("Mul", op.need(1), op.need(2)))


@ROWS.always("GatedRMSNorm")
def gated_rms_norm(op: Op, b: Builder) -> Results:
    """Over groups of as many elements as `scale` has, in float; times the activated gate."""
    x, (width,) = op.need(0), op.shape(1)
    wide, scale, gate = (
        b.op("Cast", v, to=int(_FLOAT)) if v.dtype != _FLOAT else v
        for v in (x, op.need(1), op.need(2))
    )
    shape = b.op("Shape", x)
    groups = b.op(
        "Reshape", wide, b.op("Concat", b.op("Slice", shape, [0], [-1]), [-1, width], axis=0)
    )
    y = b.op("Reshape", rms(b, groups, scale, op.attrs.get("epsilon", 1e-5))[0], shape)
    factor = b.op("Sigmoid", gate)
    if op.attrs.get("activation", "silu") != "sigmoid":
        factor = b.op("Mul", gate, factor)
    y = b.op("Mul", y, factor)
    return b.op("Cast", y, to=int(x.dtype)) if x.dtype not in (None, _FLOAT) else y


@ROWS.always("CausalConvWithState")
def causal_conv(op: Op, b: Builder) -> Results:
    """(x [B,C,L], weight [C,1,k], bias, the last inputs before x [B,C,k-1]) -> y, the last inputs
    of all.
    """
    if (
        op.attrs.get("ndim", 1) != 1
        or op.attrs.get("channels_last", 0)
        or op.attrs.get("state_window", 0)
    ):
        raise MappingError(
            "CausalConvWithState of several axes, channels-last or with a window of states "
            "is not supported"
        )
    channels, _, k = op.shape(1)
    dilation = int(op.attrs.get("dilation", 1))
    reach = (k - 1) * dilation
    x = op.need(0)
    x = (
        b.op("Pad", x, [reach, 0], None, [2])
        if op.input(3) is None
        else b.op("Concat", op.need(3), x, axis=2)
    )
    y = b.op(
        "Conv",
        x,
        op.need(1),
        op.input(2),
        group=channels,
        kernel_shape=[k],
        pads=[0, 0],
        strides=[1],
        dilations=[dilation],
    )
    if op.attrs.get("activation", "none") in ("silu", "swish"):
        y = b.op("Mul", y, b.op("Sigmoid", y))
    state = b.op(
        "Slice", x, [-reach] if reach else [np.iinfo(np.int64).max], [np.iinfo(np.int64).max], [2]
    )
    return y, state


@ROWS.always("RelativePositionBias")
def relative_position_bias(op: Op, b: Builder) -> Results:
    """T5: [1, heads, Q, K] from a table [buckets, heads]; half of the buckets are single distances,
    the others grow up to max_distance.
    """
    queries, keys = (int(op.constant(i).reshape(())) for i in (1, 2))
    buckets, both = op.shape(0)[0], bool(op.attrs.get("is_bidirectional", 0))
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
    return b.op(
        "Unsqueeze", b.op("Transpose", b.op("Gather", op.need(0), index), perm=[2, 0, 1]), [0]
    )
