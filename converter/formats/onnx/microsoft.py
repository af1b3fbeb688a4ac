"""com.microsoft operators, as onnxruntime's optimiser and exporters write them, in standard
operators.

Source: the operator documentation of onnxruntime (ContribOperators). What is not in the table is
refused by name. A row that returns None turned the operator into the standard one of its `kind`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.op import Op, Results, Rows
from converter.graph.build import Builder

DOMAIN = "com.microsoft"
UNDECLARED = frozenset(
    {"SimplifiedLayerNormalization"}
)  # onnxruntime keeps these in ai.onnx, where no opset has them
ROWS = Rows()
_POOL = (
    "auto_pad",
    "kernel_shape",
    "pads",
    "strides",
    "dilations",
    "ceil_mode",
    "count_include_pad",
    "storage_order",
)


@ROWS.always(
    "Gelu",
    "Trilu",
    "GatherND",
    "QuantizeLinear",
    "DequantizeLinear",
    "Pad",
    "LayerNormalization",
    "Unique",
)
def standard(op: Op, b: Builder) -> Results:
    """The same operator is in ai.onnx by now."""
    return None


@ROWS.always("GridSample")
def grid_sample(op: Op, b: Builder) -> Results:
    mode = op.attrs.get("mode", "bilinear")
    op.attrs["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return None


@ROWS.always("ExpandDims")
def expand_dims(op: Op, b: Builder) -> Results:
    return b.op(
        "Unsqueeze",
        op.need(0),
        b.op("Reshape", b.op("Cast", op.need(1), to=ir.DataType.INT64), [1]),
    )


@ROWS.always("TorchEmbedding")
def torch_embedding(op: Op, b: Builder) -> Results:
    return b.op("Gather", op.need(0), op.need(1))


@ROWS.always("FastGelu")
def fast_gelu(op: Op, b: Builder) -> Results:
    return b.op("Gelu", _plus(b, op.need(0), op.input(1)), approximate="tanh")


@ROWS.always("BiasGelu")
def bias_gelu(op: Op, b: Builder) -> Results:
    return b.op("Gelu", _plus(b, op.need(0), op.need(1)))


@ROWS.always("QuickGelu")
def quick_gelu(op: Op, b: Builder) -> Results:
    x = op.need(0)
    return b.op("Mul", x, b.op("Sigmoid", b.op("Mul", x, b.like(x, op.attrs.get("alpha", 1.702)))))


@ROWS.always("BiasSplitGelu")
def bias_split_gelu(op: Op, b: Builder) -> Results:
    left, right = b.ops(
        "Split", _plus(b, op.need(0), op.need(1)), outputs=2, axis=-1, num_outputs=2
    )
    return b.op("Mul", left, b.op("Gelu", right))


@ROWS.always("BiasAdd")
def bias_add(op: Op, b: Builder) -> Results:
    return _plus(b, _plus(b, op.need(0), op.need(1)), op.need(2))


@ROWS.always("BiasSoftmax")
def bias_softmax(op: Op, b: Builder) -> Results:
    """Softmax over all axes from `axis` on."""
    total, axis, rank = _plus(b, op.need(0), op.need(1)), op.attrs.get("axis", 1), op.rank(0)
    if not op.attrs.get("is_inner_broadcast", 1):
        raise MappingError("BiasSoftmax with an outer broadcast is not supported")
    if axis % rank == rank - 1:
        return b.op("Softmax", total, axis=-1)
    return b.op(
        "Reshape", b.op("Softmax", b.op("Flatten", total, axis=axis), axis=-1), b.op("Shape", total)
    )


@ROWS.always("CDist")
def cdist(op: Op, b: Builder) -> Results:
    difference = b.op("Sub", b.op("Unsqueeze", op.need(0), [1]), b.op("Unsqueeze", op.need(1), [0]))
    squares = b.op("ReduceSumSquare", difference, [-1], keepdims=0)
    return (
        b.op("Sqrt", squares) if op.attrs.get("metric", "sqeuclidean") == "euclidean" else squares
    )


@ROWS.always("FusedMatMul", "TransposeMatMul")
def fused_matmul(op: Op, b: Builder) -> Results:
    """trans: the last two axes; transBatch: the batch axes move one place to the left, the first
    behind them.
    """
    sides = []
    for i, side in enumerate("AB"):
        value = op.need(i)
        turn, batch = op.attrs.get(f"trans{side}", 0), op.attrs.get(f"transBatch{side}", 0)
        if turn or batch:
            rank = op.rank(i)
            perm = [*range(1, rank - 1), 0, rank - 1] if batch and rank > 2 else list(range(rank))
            if turn and rank > 1:
                perm[-2:] = perm[-1:-3:-1]
            value = b.op("Transpose", value, perm=perm)
        sides.append(value)
    y = b.op("MatMul", *sides)
    alpha = op.attrs.get("alpha", 1.0)
    return y if alpha == 1.0 else b.op("Mul", y, b.like(y, alpha))


@ROWS.always("FusedGemm")
def fused_gemm(op: Op, b: Builder) -> Results:
    kind, params = (
        op.take("activation", ""),
        {k: op.take(f"activation_{k}") for k in ("alpha", "beta", "gamma")},
    )
    return activated(b, b.op("Gemm", *op.inputs, **op.attrs), kind, params)


@ROWS.always("FusedConv")
def fused_conv(op: Op, b: Builder) -> Results:
    """Conv (X, W, B), plus Z, then the activation."""
    from converter.formats.onnx.canonical import ROWS as canonical

    kind, given = op.take("activation", ""), op.take("activation_params", [])
    conv = Op("Conv", "", 21, op.inputs[:3], op.attrs, op.outputs)
    canonical.apply(conv, b)
    y = _plus(b, b.op("Conv", *conv.inputs, **conv.attrs), op.input(3))
    names = ("min", "max") if kind == "Clip" else ("alpha", "beta", "gamma")
    return activated(b, y, kind, dict(zip(names, given, strict=False)))


def activated(b: Builder, y: ir.Value, kind: str, params: dict[str, Any]) -> ir.Value:
    if not kind:
        return y
    if kind == "Clip":
        return b.op("Clip", y, b.like(y, params["min"]), b.like(y, params["max"]))
    if kind not in (
        "Relu",
        "Tanh",
        "Sigmoid",
        "LeakyRelu",
        "HardSigmoid",
        "Elu",
        "Softplus",
        "Softsign",
        "HardSwish",
        "ThresholdedRelu",
        "Selu",
    ):
        raise MappingError(f"the fused activation {kind!r} is not known")
    return b.op(kind, y, **params)


def _plus(b: Builder, x: ir.Value, y: ir.Value | None) -> ir.Value:
    return x if y is None else b.op("Add", x, y)


# normalisation


@ROWS.always("SimplifiedLayerNormalization")
def simplified_layer_normalization(op: Op, b: Builder) -> Results:
    return rms(b, op.need(0), op.need(1), op.attrs.get("epsilon", 1e-5), op.attrs.get("axis", -1))


def rms(
    b: Builder, x: ir.Value, scale: ir.Value, epsilon: float, axis: int = -1
) -> tuple[ir.Value, ir.Value]:
    """x / sqrt(mean(x^2) + epsilon) * scale over the axes from `axis` on, in float; and the
    factor.
    """
    if axis != -1 and x.shape is None:
        raise MappingError("SimplifiedLayerNormalization needs the rank of its input")
    axes = (
        [-1]
        if axis == -1 or x.shape is None
        else list(range(axis % x.shape.rank(), x.shape.rank()))
    )
    wide = (
        b.op("Cast", x, to=ir.DataType.FLOAT)
        if x.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
        else x
    )
    mean = b.op("ReduceMean", b.op("Mul", wide, wide), axes)
    factor = b.op("Reciprocal", b.op("Sqrt", b.op("Add", mean, b.like(wide, epsilon))))
    y = b.op("Mul", wide, factor)
    return b.op("Mul", y if wide is x else b.op("Cast", y, to=x.dtype), scale), factor


@ROWS.always("SkipLayerNormalization")
def skip_layer_normalization(op: Op, b: Builder) -> Results:
    """(input, skip, gamma, beta, bias) -> normalised, mean, 1/deviation, the sum that was
    normalised.
    """
    total = _plus(b, b.op("Add", op.need(0), op.need(1)), op.input(4))
    y, mean, factor = b.ops(
        "LayerNormalization",
        total,
        op.need(2),
        op.input(3),
        outputs=3,
        axis=-1,
        epsilon=op.attrs.get("epsilon", 1e-12),
    )
    return y, mean, factor, total


@ROWS.always("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(op: Op, b: Builder) -> Results:
    total = _plus(b, b.op("Add", op.need(0), op.need(1)), op.input(3))
    y, factor = rms(b, total, op.need(2), op.attrs.get("epsilon", 1e-12))
    return y, None, factor, total


@ROWS.always("EmbedLayerNormalization")
def embed_layer_normalization(op: Op, b: Builder) -> Results:
    """(ids, segment ids, word, position, segment, gamma, beta, mask, position ids) -> normalised,
    mask length, sum.
    """
    ids, word, position = op.need(0), op.need(2), op.need(3)
    total = b.op("Gather", word, ids)
    if (places := op.input(8)) is None:
        length = b.op("Squeeze", b.op("Shape", ids, start=1, end=2))
        places = b.op("Range", np.array(0, np.int64), length, np.array(1, np.int64))
    total = b.op("Add", total, b.op("Gather", position, places))
    if op.input(1) is not None and op.input(4) is not None:
        total = b.op("Add", total, b.op("Gather", op.need(4), op.need(1)))
    y = b.op(
        "LayerNormalization",
        total,
        op.need(5),
        op.need(6),
        axis=-1,
        epsilon=op.attrs.get("epsilon", 1e-12),
    )
    mask = op.input(7)
    if mask is not None:
        count: ir.Value = b.op(
            "ReduceSum", b.op("Cast", mask, to=ir.DataType.INT32), [1], keepdims=0
        )
    else:
        count = b.op(
            "ConstantOfShape", b.op("Shape", ids, start=0, end=1), value=np.array([0], np.int32)
        )
    return y, count, total


@ROWS.always("GroupNorm")
def group_norm(op: Op, b: Builder) -> Results:
    """Channels last unless told otherwise; `activation` 1 is x * sigmoid(x)."""
    x, rank = op.need(0), op.rank(0)
    last = op.attrs.get("channels_last", 1)
    if last:
        x = b.op("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
    y = b.op(
        "GroupNormalization",
        x,
        *_as(b, x, op.need(1), op.need(2)),
        num_groups=op.attrs["groups"],
        epsilon=op.attrs.get("epsilon", 1e-5),
    )
    if op.attrs.get("activation", 0):
        y = b.op("Mul", y, b.op("Sigmoid", y))
    return b.op("Transpose", y, perm=[0, *range(2, rank), 1]) if last else y


def _as(b: Builder, x: ir.Value, *values: ir.Value) -> list[ir.Value]:
    return [v if v.dtype == x.dtype else b.op("Cast", v, to=x.dtype) for v in values]


# images


@ROWS.always("NhwcMaxPool")
def nhwc_max_pool(op: Op, b: Builder) -> Results:
    from converter.formats.onnx.canonical import ROWS as canonical

    rank = op.rank(0)
    x = b.op("Transpose", op.need(0), perm=[0, rank - 1, *range(1, rank - 1)])
    pool = Op("MaxPool", "", 21, [x], op.attrs, op.outputs[:1])
    canonical.apply(pool, b)
    return b.op(
        "Transpose", b.op("MaxPool", *pool.inputs, **pool.attrs), perm=[0, *range(2, rank), 1]
    )


@ROWS.always("CropAndResize")
def crop_and_resize(op: Op, b: Builder) -> Results:
    """Boxes (y1, x1, y2, x2) in 0..1 of the image's corners, each resampled to crop_size; outside
    lies the extrapolation value.
    """
    x = b.op("Gather", op.need(0), op.need(2))
    size = [int(n) for n in op.constant(3)]
    edges = b.ops("Split", op.need(1), outputs=4, axis=1, num_outputs=4)
    mode = op.attrs.get("mode", "bilinear")
    lines = []
    for axis in (0, 1):
        start, end = edges[axis], edges[axis + 2]
        steps = (
            np.linspace(0, 1, size[axis], dtype=np.float32)
            if size[axis] > 1
            else np.array([0.5], np.float32)
        )
        line = b.op(
            "Add", start, b.op("Mul", b.op("Sub", end, start), steps.reshape(1, -1))
        )  # [boxes, size]
        if mode == "nearest":
            extent = b.op(
                "Cast",
                b.op("Sub", b.op("Shape", x, start=2 + axis, end=3 + axis), [1]),
                to=ir.DataType.FLOAT,
            )
            line = b.op(
                "Div",
                b.op("Floor", b.op("Add", b.op("Mul", line, extent), 0.5)),
                b.op("Max", extent, 1.0),
            )
        lines.append(b.op("Sub", b.op("Mul", line, 2.0), 1.0))
    shape = b.op("Concat", b.op("Shape", x, start=0, end=1), size, [1], axis=0)
    rows = b.op("Expand", b.op("Reshape", lines[0], [-1, size[0], 1, 1]), shape)
    columns = b.op("Expand", b.op("Reshape", lines[1], [-1, 1, size[1], 1]), shape)
    grid = b.op("Concat", columns, rows, axis=-1)
    y = b.op(
        "GridSample",
        x,
        grid,
        mode="nearest" if mode == "nearest" else "linear",
        padding_mode="border",
        align_corners=1,
    )
    reach = b.op("ReduceMax", b.op("Abs", grid), [-1], keepdims=0)
    outside = b.op("Unsqueeze", b.op("Greater", reach, 1.0), [1])
    return b.op("Where", outside, b.like(y, op.attrs.get("extrapolation_value", 0.0)), y)


@ROWS.always("Inverse")
def inverse(op: Op, b: Builder) -> Results:
    """Gauss-Jordan elimination with partial pivoting, unrolled: each step swaps rows k and p and
    clears column k.
    """
    x, n = op.need(0), op.shape(0)[-1]
    if n > 32:
        raise MappingError(f"Inverse of {n} x {n} matrices (32 at most)")
    dtype = x.dtype.numpy() if x.dtype is not None else np.dtype(np.float32)
    eye = np.eye(n, dtype=dtype)
    both = b.op("Concat", x, b.op("Expand", eye, b.op("Shape", x)), axis=-1)
    for k in range(n):
        column = b.op("Abs", b.op("Slice", both, [k, k], [n, k + 1], [-2, -1]))
        place = b.op("Add", b.op("ArgMax", column, axis=-2, keepdims=0), [k])  # [..., 1]
        unit = b.op(
            "Unsqueeze",
            b.op("Squeeze", b.op("OneHot", place, [n], np.array([0, 1], dtype), axis=-1), [-2]),
            [-1],
        )
        own = eye[:, k : k + 1]
        row, pivot = b.op("Slice", both, [k], [k + 1], [-2]), b.op("MatMul", _turned(b, unit), both)
        both = b.op("Add", both, b.op("Mul", b.op("Sub", own, unit), b.op("Sub", pivot, row)))
        scaled = b.op("Div", pivot, b.op("Slice", pivot, [k], [k + 1], [-1]))
        both = b.op(
            "Sub",
            both,
            b.op("Mul", b.op("Sub", b.op("Slice", both, [k], [k + 1], [-1]), own), scaled),
        )
    return b.op("Slice", both, [n], [2 * n], [-1])


def _turned(b: Builder, value: ir.Value) -> ir.Value:
    rank = value.shape.rank() if value.shape is not None else 2
    return b.op("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])
