"""More writers of operators for random_graphs: the rarer standard operators, control flow,
quantization, and the extension catalogue.

Importing this enters them into `random_graphs.STEPS`.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from random_graphs import STEPS, Draw, T, _unary, dims, step

INDEX = np.int64


def indices(d: Draw, high: int, *shape: int, negative: bool = True) -> np.ndarray:
    return d.rng.integers(-high if negative else 0, high, shape).astype(INDEX)


# --- element by element
# -------------------------------------------------------------------------------------------------

for _op in ("IsNaN", "Identity"):
    _unary(_op)
_unary("IsInf", detect_negative=lambda d: d.number(0, 1), detect_positive=lambda d: d.number(0, 1))


@step("f", 0, 6, "Acosh")
def _acosh(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op("Acosh", d.b.op("Add", d.b.op("Abs", x), np.float32(1.5)))


@step("i", 0, 6, "Integers")
def _integers(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op(d.one("Abs", "Neg", "Sign", "Identity"), x)


@step("i", 0, 6, "Bits")
def _bits(d: Draw, x: ir.Value) -> ir.Value:
    if d.flag(0.3):
        return d.b.op("BitwiseNot", x)
    return d.b.op(d.one("BitwiseAnd", "BitwiseOr", "BitwiseXor"), x, d.other(x))


@step("i", 0, 4, "BitShift")
def _shift(d: Draw, x: ir.Value) -> ir.Value:
    y = d.b.op("Cast", d.b.op("Abs", x), to=int(T.UINT32))
    y = d.b.op("BitShift", y, np.array(d.number(0, 4), np.uint32), direction=d.one("LEFT", "RIGHT"))
    return d.b.op("Cast", y, to=int(T.INT64))


@step("fi", 0, 6, "CastLike")
def _cast_like(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op("CastLike", x, d.one(np.int32(1), np.float32(1), INDEX(1)))


@step("i", 0, 4, "WherePick")
def _where_pick(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op("Where", d.b.op("Greater", x, d.b.like(x, 0)), x, d.other(x))


@step("fi", 0, 5, "Extremes")
def _extremes(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op(
        d.one("Max", "Min"), *[x if i == 1 else d.other(x) for i in range(d.number(1, 3))]
    )


@step("f", 0, 6, "Power")
def _power(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op(
        "Pow",
        x,
        d.one(np.int64(2), np.int32(3), np.float32(2), np.float32(-2), np.array([2.0], np.float32)),
    )


@step("f", 0, 5, "RoundTrip")
def _narrowed(d: Draw, x: ir.Value) -> ir.Value:
    """Half and double precision in between."""
    y = d.b.op("Cast", x, to=int(d.one(T.FLOAT16, T.DOUBLE)))
    return d.b.op("Cast", d.b.op(d.one("Add", "Mul"), y, d.b.like(y, 1.5)), to=int(T.FLOAT))


# --- shapes, movement
# -------------------------------------------------------------------------------------------------


@step("fib", 0, 5, "ShapeOf")
def _shape(d: Draw, x: ir.Value) -> ir.Value:
    if d.flag(0.3):
        return d.b.op("Size", x)
    rank = len(dims(x))
    return (
        d.b.op("Shape", x, start=d.number(-rank, max(0, rank - 1)), end=d.one(None, rank, -1))
        if rank
        else d.b.op("Shape", x)
    )


@step("f", 1, 4, "SameShape")
def _same_shape(d: Draw, x: ir.Value) -> ir.Value:
    """Shape arithmetic: a Reshape or Expand to a result of Shape."""
    shape = d.b.op("Shape", x)
    if d.flag():
        return d.b.op(
            "Reshape", x, d.b.op("Concat", d.b.op("Slice", shape, [0], [1]), [-1], axis=0)
        )
    return d.b.op("Expand", d.weights(*[1] * len(dims(x))), shape)


@step("f", 1, 4, "FilledLike")
def _filled(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op(
        "Add",
        x,
        d.b.op(
            "ConstantOfShape",
            d.b.op("Shape", x),
            value=ir.Tensor(np.array([d.one(0.0, 1.5)], np.float32)),
        ),
    )


@step("fib", 1, 5, "GatherOdd")
def _gather_odd(d: Draw, x: ir.Value) -> ir.Value:
    """Indices of int32, of rank 0 to 3, negative, repeated."""
    axis = d.axis(len(dims(x)))
    index = indices(d, dims(x)[axis], *d.one((), (1,), (1, 1), (2, 1, 2), (4,)))
    return d.b.op("Gather", x, index.astype(d.one(np.int32, INDEX)), axis=axis)


@step("f", 2, 5, "GatherBatched")
def _gather_batched(d: Draw, x: ir.Value) -> ir.Value:
    shape = dims(x)
    b = d.number(0, min(2, len(shape) - 1))
    k = d.number(1, len(shape) - b)
    index = np.stack([indices(d, n, *shape[:b], 2) for n in shape[b : b + k]], axis=-1)
    return d.b.op("GatherND", x, index, batch_dims=b)


@step("fi", 1, 4, "GatherElementsOdd")
def _gather_elements_odd(d: Draw, x: ir.Value) -> ir.Value:
    axis = d.axis(len(dims(x)))
    shape = [d.number(1, n) for n in dims(x)]
    return d.b.op("GatherElements", x, indices(d, dims(x)[axis], *shape), axis=axis)


@step("f", 1, 4, "ScatterElements")
def _scatter_elements(d: Draw, x: ir.Value) -> ir.Value:
    axis = d.axis(len(dims(x)))
    n = dims(x)[axis]
    shape = [d.number(1, m) for m in dims(x)]
    row = np.array(d.r.sample(range(n), shape[axis]), INDEX)
    row = np.where(d.rng.integers(0, 2, row.shape) > 0, row, row - n)
    index = np.broadcast_to(
        row.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))]), shape
    )
    reduction = d.one("none", "none", "add", "mul", "max", "min")
    return d.b.op(
        "ScatterElements",
        x,
        np.ascontiguousarray(index),
        d.weights(*shape),
        axis=axis,
        reduction=reduction,
    )


@step("f", 1, 4, "ScatterReduce")
def _scatter_reduce(d: Draw, x: ir.Value) -> ir.Value:
    shape = dims(x)
    k = d.number(1, len(shape))
    places = np.unique(
        np.stack([indices(d, n, 3, negative=False) for n in shape[:k]], axis=-1), axis=0
    )
    return d.b.op(
        "ScatterND",
        x,
        places,
        d.weights(len(places), *shape[k:]),
        reduction=d.one("none", "add", "mul", "max", "min"),
    )


@step("i", 0, 3, "OneHot")
def _one_hot(d: Draw, x: ir.Value) -> ir.Value:
    values = d.one(
        np.array([0, 1], np.float32), np.array([-1, 2.5], np.float32), np.array([3, 7], INDEX)
    )
    return d.b.op(
        "OneHot",
        x,
        np.array(d.number(1, 12), INDEX),
        values,
        axis=d.r.randrange(-len(dims(x)) - 1, len(dims(x)) + 1),
    )


@step("f", 2, 2, "EyeLike")
def _eye(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op("Add", x, d.b.op("EyeLike", x, k=d.number(-2, 2), dtype=int(T.FLOAT)))


@step("f", 1, 4, "CenterCropPad")
def _center(d: Draw, x: ir.Value) -> ir.Value:
    axes = d.axes(len(dims(x)))
    return d.b.op("CenterCropPad", x, [d.number(1, 6) for _ in axes], axes=axes)


@step("f", 2, 4, "ReverseSequence")
def _reverse_sequence(d: Draw, x: ir.Value) -> ir.Value:
    time, batch = d.one((0, 1), (1, 0))
    lengths = d.rng.integers(0 if d.flag(0.2) else 1, dims(x)[time] + 1, dims(x)[batch]).astype(
        INDEX
    )
    return d.b.op("ReverseSequence", x, lengths, time_axis=time, batch_axis=batch)


@step("f", 1, 3, "Compress")
def _compress(d: Draw, x: ir.Value) -> ir.Value:
    axis = d.axis(len(dims(x)))
    keep = d.rng.integers(0, 2, dims(x)[axis]).astype(bool)
    keep[0] = True
    return d.b.op("Compress", x, keep, axis=axis)


@step("f", 1, 3, "NonZero")
def _non_zero(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op("NonZero", d.b.op("Greater", x, np.float32(-3)))


@step("i", 1, 1, "Unique")
def _unique(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op("Unique", x, sorted=d.number(0, 1))


@step("f", 4, 4, "PadAxes")
def _pad_axes(d: Draw, x: ir.Value) -> ir.Value:
    axes = d.axes(4)
    return d.b.op(
        "Pad",
        x,
        [d.number(0, 2) for _ in axes + axes],
        np.float32(d.one(0, -1, 0.25)),
        axes,
        mode="constant",
    )


@step("fi", 1, 6, "SplitMany")
def _split_many(d: Draw, x: ir.Value) -> ir.Value | None:
    """Three parts, joined again in another order, which a layout pass has to follow."""
    axis = d.axis(len(dims(x)))
    n = dims(x)[axis]
    if n < 3:
        return None
    sizes = [1, n - 2, 1]
    parts = list(d.b.ops("Split", x, sizes, axis=axis, outputs=3))
    d.r.shuffle(parts)
    return d.b.op("Concat", *parts[: d.number(2, 3)], axis=axis)


@step("f", 4, 4, "ChannelMix")
def _channel_mix(d: Draw, x: ir.Value) -> ir.Value:
    """Flatten, matrix and back, which the layout pass reassociates."""
    n, c, h, w = dims(x)
    y = d.b.op("Transpose", x, perm=d.one([0, 2, 3, 1], [0, 3, 1, 2], [0, 2, 1, 3]))
    if d.flag():
        return d.b.op("Softmax", y, axis=d.one(1, -1))
    flat = d.b.op("Reshape", x, d.one([n, c * h * w], [n, c, h * w], [0, 0, -1]))
    return d.b.op("MatMul", flat, d.weights(dims(flat)[-1], 3))


# --- reductions
# -------------------------------------------------------------------------------------------------


@step("f", 0, 5, "ReduceOdd")
def _reduce_odd(d: Draw, x: ir.Value) -> ir.Value:
    """Empty axes, with and without meaning all."""
    op = d.one(
        "ReduceSum",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceL2",
        "ReduceProd",
        "ReduceSumSquare",
    )
    return d.b.op(
        op,
        x,
        d.one(np.zeros(0, INDEX), None),
        keepdims=d.number(0, 1),
        noop_with_empty_axes=d.number(0, 1),
    )


@step("b", 1, 4, "ReduceBool")
def _reduce_bool(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op(d.one("ReduceMax", "ReduceMin"), x, d.axes(len(dims(x))), keepdims=d.number(0, 1))


@step("f", 3, 5, "MeanVarianceNormalization")
def _mvn(d: Draw, x: ir.Value) -> ir.Value | None:
    """Not of one number: its deviation is rounding alone."""
    axes = sorted({a % len(dims(x)) for a in d.axes(len(dims(x)))})
    return (
        d.b.op("MeanVarianceNormalization", x, axes=axes)
        if max(dims(x)[a] for a in axes) > 1
        else None
    )


@step("f", 3, 4, "GlobalLpPool")
def _global_lp(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op("GlobalLpPool", x, p=d.number(1, 3))


@step("i", 2, 4, "TopKIntegers")
def _topk_integers(d: Draw, x: ir.Value) -> ir.Value:
    """The values alone: which of two equal numbers comes first is open."""
    axis = d.axis(len(dims(x)))
    return d.b.ops(
        "TopK",
        x,
        [d.number(1, dims(x)[axis])],
        axis=axis,
        largest=d.number(0, 1),
        sorted=1,
        outputs=2,
    )[0]


# --- images
# -------------------------------------------------------------------------------------------------


@step("f", 4, 4, "ResizeOdd")
def _resize_odd(d: Draw, x: ir.Value) -> ir.Value:
    """Axes, antialias, policies, half pixels in a symmetric frame, cubic without elements
    outside.
    """
    extra: dict[str, object] = {"mode": d.one("nearest", "linear", "cubic")}
    extra["coordinate_transformation_mode"] = d.one(
        "half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners", "pytorch_half_pixel"
    )
    if extra["mode"] == "cubic":
        extra["exclude_outside"] = d.number(0, 1)
    if extra["mode"] != "nearest" and d.flag(0.2):
        extra["antialias"] = 1
    h, w = dims(x)[2:]
    if d.flag():
        return d.b.op(
            "Resize", x, None, None, [d.number(1, 2 * h), d.number(1, 2 * w)], axes=[2, 3], **extra
        )
    return d.b.op(
        "Resize",
        x,
        None,
        np.array([d.one(1, 2, 1.5), d.one(1, 2, 0.6)], np.float32),
        axes=d.one([2, 3], [-2, -1]),
        **extra,
    )


@step("f", 4, 4, "GridSample")
def _grid_sample(d: Draw, x: ir.Value) -> ir.Value:
    grid = d.rng.uniform(-1.2, 1.2, (dims(x)[0], 3, 4, 2)).astype(np.float32)
    return d.b.op(
        "GridSample",
        x,
        grid,
        mode=d.one("linear", "nearest", "cubic"),
        padding_mode=d.one("zeros", "border", "reflection"),
        align_corners=d.number(0, 1),
    )


@step("f", 4, 4, "RoiAlign")
def _roi_align(d: Draw, x: ir.Value) -> ir.Value:
    n, _, h, w = dims(x)
    corners = np.sort(d.rng.uniform(0, 1, (2, 2, 2)), axis=1) * np.array([w, h])
    rois = corners.reshape(2, 4).astype(np.float32)
    mode = d.one("avg", "max")  # onnxruntime takes the maximum of several samples wrongly
    attributes = {
        "mode": mode,
        "sampling_ratio": 1 if mode == "max" else d.number(0, 2),
        "spatial_scale": d.one(1.0, 0.5),
    }
    rule = d.one("half_pixel", "output_half_pixel")
    entry = indices(d, n, 2, negative=False)
    return d.b.op(
        "RoiAlign",
        x,
        rois,
        entry,
        output_height=2,
        output_width=3,
        coordinate_transformation_mode=rule,
        **attributes,
    )


@step("f", 4, 4, "DeformConv")
def _deform(d: Draw, x: ir.Value) -> ir.Value | None:
    n, c, h, w = dims(x)
    if h < 3 or w < 3:
        return None
    offset = d.weights(n, 8, h - 1, w - 1) / 4 + np.float32(0.03)
    return d.b.op(
        "DeformConv",
        x,
        d.weights(2, c, 2, 2),
        offset,
        d.weights(2) if d.flag() else None,
        kernel_shape=[2, 2],
        pads=[0, 0, 0, 0],
    )


@step("f", 4, 4, "ConvShared")
def _conv_shared(d: Draw, x: ir.Value) -> ir.Value:
    """Two convolutions that share filter and bias, and a residual."""
    c = dims(x)[1]
    w, bias = d.b.const(d.weights(c, c, 3, 3)), d.b.const(d.weights(c))
    y = d.b.op("Conv", x, w, bias, pads=[1, 1, 1, 1])
    return d.b.op("Add", d.b.op("Conv", d.b.op("Relu", y), w, bias, pads=[1, 1, 1, 1]), x)


@step("f", 3, 5, "ConvWeightInput")
def _conv_weight(d: Draw, x: ir.Value) -> ir.Value:
    """A filter that is computed."""
    c = dims(x)[1]
    return d.b.op("Conv", x, d.input([2, c, *[1] * (len(dims(x)) - 2)]))


@step("f", 4, 4, "DeconvShape")
def _deconv_shape(d: Draw, x: ir.Value) -> ir.Value:
    c, h, w = dims(x)[1:]
    return d.b.op(
        "ConvTranspose",
        x,
        d.weights(c, 2, 3, 3),
        strides=[2, 2],
        output_shape=[2 * h + d.number(0, 1), 2 * w],
        auto_pad=d.one("SAME_UPPER", "SAME_LOWER", "NOTSET"),
    )


@step("f", 4, 4, "Unpooled")
def _unpool(d: Draw, x: ir.Value) -> ir.Value | None:
    if min(dims(x)[2:]) < 2:
        return None
    y, index = d.b.ops("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], outputs=2)
    return d.b.op("MaxUnpool", y, index, kernel_shape=[2, 2], strides=[2, 2])


@step("f", 3, 3, "Col2Im")
def _col2im(d: Draw, x: ir.Value) -> ir.Value | None:
    _n, _c, length = dims(x)
    return (
        d.b.op("Col2Im", d.b.op("Tile", x, [1, 4, 1]), [2, length + 1], [2, 2])
        if length > 1
        else None
    )


@step("f", 2, 3, "Det")
def _det(d: Draw, x: ir.Value) -> ir.Value | None:
    return d.b.op("Det", x) if dims(x)[-1] == dims(x)[-2] else None


@step("f", 3, 3, "DFT")
def _dft(d: Draw, x: ir.Value) -> ir.Value | None:
    return d.b.op(
        "DFT", d.b.op("Slice", x, [0], [1], [2]), None, np.array(1, INDEX), onesided=d.number(0, 1)
    )


# --- matrices, control flow, quantization
# -------------------------------------------------------------------------------------------------


@step("f", 2, 5, "MatMulOdd")
def _matmul_odd(d: Draw, x: ir.Value) -> ir.Value:
    """The value on the right, or against itself transposed."""
    shape = dims(x)
    if d.flag():
        return d.b.op(
            "MatMul", d.weights(*d.one([2, shape[-2]], [shape[-2]], [*shape[:-2], 3, shape[-2]])), x
        )
    return d.b.op(
        "MatMul",
        x,
        d.b.op("Transpose", x, perm=[*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]),
    )


@step("f", 2, 4, "EinsumOdd")
def _einsum_odd(d: Draw, x: ir.Value) -> ir.Value:
    letters = "abcd"[: len(dims(x))]
    n = dims(x)
    return d.b.op(
        "Einsum",
        *d.one(
            (x, d.b.const(d.weights(*n))),
            (x, x),
        ),
        equation=d.one(
            f"{letters},{letters}->{letters[0]}",
            f"{letters},{letters}->{letters[::-1]}",
            f"{letters},{letters}->",
        ),
    )


class Inside(Draw):
    """Draws in a body: a second operand is a constant there, for a body has no inputs of its
    own.
    """

    def __init__(self, outer: Draw, name: str) -> None:
        self.b, self.r, self.rng = outer.b.body(name), outer.r, outer.rng

    def input(self, shape: list[int], dtype: ir.DataType = T.FLOAT) -> ir.Value:
        array = (
            self.weights(*shape)
            if dtype == T.FLOAT
            else self.rng.integers(0, 2, shape).astype(dtype.numpy())
        )
        return self.b.const(array)


_INNER = ("Relu", "Tanh", "Add", "Mul", "Abs", "Clip", "Max", "Sigmoid")


def _inner(d: Draw, x: ir.Value) -> ir.Value:
    y = STEPS[d.r.choice(_INNER)](d, x)
    assert y is not None
    return y if dims(y) == dims(x) else d.b.op("Identity", x)


@step("f", 1, 4, "If")
def _if(d: Draw, x: ir.Value) -> ir.Value:
    condition = d.one(d.b.const(np.array(d.flag())), None)
    if condition is None:
        condition = d.b.op("Greater", d.b.op("ReduceSum", x, keepdims=0), np.float32(0.01))
    bodies = []
    for name in ("then", "else"):
        inner = Inside(d, name)
        inner.b.output(_inner(inner, x))
        bodies.append(inner.b.graph)
    return d.b.op("If", condition, then_branch=bodies[0], else_branch=bodies[1])


@step("f", 1, 4, "Loop")
def _loop(d: Draw, x: ir.Value) -> ir.Value:
    """A state, a value of the graph around, and perhaps a stacked value."""
    inner = Inside(d, "turn")
    count = inner.b.input("i", T.INT64, [])
    again = inner.b.input("go", T.BOOL, [])
    state = inner.b.input("state", T.FLOAT, dims(x))
    y = _inner(inner, state)
    y = inner.b.op("Add", inner.b.op("Mul", y, np.float32(0.5)), x) if d.flag() else y
    if d.flag(0.3):
        y = inner.b.op("Add", y, inner.b.op("Cast", count, to=int(T.FLOAT)))
    stacked = d.flag()
    inner.b.output(inner.b.op("Identity", again), y, *([inner.b.op("Neg", y)] if stacked else []))
    start = d.one(x, d.b.const(d.weights(*dims(x))))
    results = d.b.ops(
        "Loop",
        d.b.const(np.array(d.number(1, 4), INDEX)),
        d.b.const(np.array(True)),
        start,
        body=inner.b.graph,
        outputs=1 + stacked,
    )
    if stacked and d.flag():
        d.b.output(results[1])
    return results[0] if not stacked or d.flag() else results[-1]


@step("f", 2, 4, "Scan")
def _scan(d: Draw, x: ir.Value) -> ir.Value:
    inner = Inside(d, "scan")
    state = inner.b.input("state", T.FLOAT, dims(x)[1:])
    row = inner.b.input("row", T.FLOAT, dims(x)[1:])
    y = inner.b.op("Tanh", inner.b.op("Add", state, row))
    inner.b.output(y, inner.b.op("Mul", y, row))
    start = d.b.const(d.weights(*dims(x)[1:]))
    results = d.b.ops(
        "Scan",
        start,
        x,
        body=inner.b.graph,
        num_scan_inputs=1,
        scan_input_directions=[d.number(0, 1)],
        scan_output_directions=[d.number(0, 1)],
        outputs=2,
    )
    return results[d.number(0, 1)]


@step("f", 1, 5, "Quantised")
def _quantized(d: Draw, x: ir.Value) -> ir.Value:
    """Through 8 bits and back, of the whole tensor or each index along an axis."""
    kind = d.one(np.uint8, np.int8)
    zero = d.number(*((100, 140) if kind is np.uint8 else (-10, 10)))
    if d.flag(0.6):
        scale, offset, axis = np.float32(0.03125), np.array(zero, kind), 1
    else:
        axis = d.axis(len(dims(x)))
        scale = ((d.rng.integers(1, 5, dims(x)[axis])) / 64).astype(np.float32)
        offset = np.full(dims(x)[axis], zero if d.flag() else 0, kind)
    return d.b.op(
        "DequantizeLinear",
        d.b.op("QuantizeLinear", x, scale, offset, axis=axis),
        scale,
        offset,
        axis=axis,
    )


@step("f", 4, 4, "QuantisedConv")
def _quantized_conv(d: Draw, x: ir.Value) -> ir.Value:
    """Filters of 8 bits, one scale or one for each filter."""
    c = dims(x)[1]
    filters = d.rng.integers(-8, 9, (3, c, 1, 1)).astype(np.int8)
    many = d.flag()
    scale = (d.rng.integers(1, 5, 3) / 16).astype(np.float32) if many else np.float32(0.125)
    w = d.b.op("DequantizeLinear", filters, scale, np.zeros(3 if many else (), np.int8), axis=0)
    return d.b.op("Conv", x, w)


# --- the extension catalogue
# -------------------------------------------------------------------------------------------------


@step("f", 3, 5, "ShuffleChannels")
def _shuffle(d: Draw, x: ir.Value) -> ir.Value:
    c = dims(x)[1]
    return d.b.ext("ShuffleChannels", x, group=d.one(*[g for g in range(1, c + 1) if c % g == 0]))


@step("f", 2, 5, "NormalizeL2")
def _normalize(d: Draw, x: ir.Value) -> ir.Value:
    axes = sorted({a % len(dims(x)) for a in d.axes(len(dims(x)))})
    return d.b.ext(
        "NormalizeL2", x, axes=axes, eps=d.one(1e-10, 1e-3), eps_mode=d.one("add", "max")
    )


@step("f", 3, 5, "MVN")
def _mvn_extension(d: Draw, x: ir.Value) -> ir.Value:
    axes = sorted({a % len(dims(x)) for a in d.axes(len(dims(x)))})
    return d.b.ext(
        "MVN",
        x,
        axes=axes,
        normalize_variance=d.number(0, 1),
        eps=d.one(1e-2, 1e-4),
        eps_mode=d.one("inside_sqrt", "outside_sqrt"),
    )


@step("f", 4, 4, "GRN")
def _grn(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.ext("GRN", x, bias=d.one(1e-6, 0.5))


@step("f", 3, 5, "AdaptivePool")
def _adaptive(d: Draw, x: ir.Value) -> ir.Value:
    size = [d.number(1, n) for n in dims(x)[2:]]
    if d.flag():
        return d.b.ext("AdaptiveAveragePool", x, output_size=size)
    return d.b.exts("AdaptiveMaxPool", x, output_size=size, outputs=2)[0]


@step("f", 4, 4, "Blocks")
def _blocks(d: Draw, x: ir.Value) -> ir.Value | None:
    _n, _c, h, w = dims(x)
    if h % 2 == 0 and w % 2 == 0:
        return d.b.ext("SpaceToBatch", x, block_size=[2, 2], pads=d.one([0, 0, 0, 0], [0, 2, 2, 0]))
    return d.b.ext("BatchToSpace", d.b.op("Tile", x, [4, 1, 1, 1]), block_size=[2, 2])


@step("f", 4, 4, "ReorgYolo")
def _reorg(d: Draw, x: ir.Value) -> ir.Value | None:
    _n, _c, h, w = dims(x)
    return (
        d.b.ext("ReorgYolo", d.b.op("Tile", x, [1, 4, 1, 1]), stride=2)
        if h % 2 == 0 and w % 2 == 0
        else None
    )


@step("f", 1, 5, "CumProd")
def _cumprod(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.ext(
        "CumProd",
        x,
        axis=d.axis(len(dims(x))) % len(dims(x)),
        exclusive=d.number(0, 1),
        reverse=d.number(0, 1),
    )


@step("f", 1, 5, "FakeQuantize")
def _fake_quantize(d: Draw, x: ir.Value) -> ir.Value:
    shape = d.one([], [dims(x)[1] if len(dims(x)) > 1 else 1, *[1] * max(0, len(dims(x)) - 2)])
    low, high = np.full(shape, -1.01, np.float32), np.full(shape, 0.99, np.float32)
    return d.b.ext(
        "FakeQuantize",
        x,
        low,
        high,
        *d.one((low, high), (low * 2, high * 3)),
        levels=d.one(256, 255, 16, 2),
    )


@step("f", 4, 4, "Morphology")
def _morphology(d: Draw, x: ir.Value) -> ir.Value | None:
    if min(dims(x)[2:]) < 3:
        return None
    name = d.one("Dilation2D", "Erosion2D")
    return d.b.ext(
        name,
        x,
        d.weights(dims(x)[1], 2, 2),
        strides=d.one([1, 1], [2, 1]),
        pads=d.one([0, 0, 0, 0], [0, 0, 1, 1]),
        dilations=d.one([1, 1], [2, 2]),
    )


@step("f", 4, 4, "RegionYolo")
def _region(d: Draw, x: ir.Value) -> ir.Value:
    y = d.b.op("Conv", x, d.weights(14, dims(x)[1], 1, 1))
    if d.flag():
        return d.b.ext(
            "RegionYolo", y, coords=4, classes=2, num=2, do_softmax=1, axis=1, end_axis=3
        )
    return d.b.ext("RegionYolo", y, coords=4, classes=2, num=3, do_softmax=0, mask=[0, 2])


@step("f", 4, 4, "RegionPools")
def _region_pools(d: Draw, x: ir.Value) -> ir.Value:
    n, _c, h, w = dims(x)
    if d.flag():
        rois = np.array([[0, 0.4, 0.6, w - 0.7, h - 0.6], [n - 1, 0.2, 0.1, 1.2, 0.9]], np.float32)
        return d.b.ext(
            "ROIPooling",
            x,
            rois,
            pooled_h=2,
            pooled_w=d.number(1, 3),
            spatial_scale=1.0,
            method="max",
        )
    rois = np.array([[0, 0.1, 0.2, 0.7, 0.95]], np.float32)
    return d.b.ext("ROIPooling", x, rois, pooled_h=2, pooled_w=2, method="bilinear")


@step("f", 4, 4, "CropAndResize")
def _crop(d: Draw, x: ir.Value) -> ir.Value:
    boxes = np.array([[0.1, 0.15, 0.8, 0.95], [0.3, -0.2, 1.1, 0.55]], np.float32)
    entry = d.rng.integers(0, dims(x)[0], 2).astype(np.int32)
    return d.b.ext(
        "CropAndResize",
        x,
        boxes,
        entry,
        crop_size=[2, d.number(1, 3)],
        method="BILINEAR",
        extrapolation_value=d.one(0.0, 0.5),
    )


@step("f", 2, 3, "MatrixInverse")
def _inverse(d: Draw, x: ir.Value) -> ir.Value | None:
    n = dims(x)[-1]
    if dims(x)[-2] != n:
        return None
    return d.b.ext(
        "MatrixInverse",
        d.b.op("Add", x, (8 * np.eye(n)).astype(np.float32)),
        adjoint=d.number(0, 1),
    )


@step("f", 2, 2, "SegmentSum")
def _segment(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.ext(
        "SegmentSum", x, np.sort(d.rng.integers(0, 3, dims(x)[0])).astype(np.int32), rows=3
    )


@step("f", 2, 2, "InTopK")
def _in_topk(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.ext(
        "InTopK",
        x,
        d.rng.integers(0, dims(x)[1], dims(x)[0]).astype(np.int32),
        k=d.number(1, dims(x)[1]),
    )


@step("f", 3, 3, "CTCGreedyDecoder")
def _ctc(d: Draw, x: ir.Value) -> ir.Value:
    t, n, _ = dims(x)
    return d.b.ext(
        "CTCGreedyDecoder", x, np.ones((t, n), np.float32), ctc_merge_repeated=d.number(0, 1)
    )
