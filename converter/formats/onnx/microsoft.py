"""com.microsoft operators, as onnxruntime's optimizer and exporters write them, in standard
operators.

Source: the operator documentation of onnxruntime (ContribOperators). Operators that are not in the
table are refused by name. A row that returns None has changed the operator into the standard one of
its `kind`.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.canonical import explicit
from converter.formats.onnx.op import Op, Results, Rows
from converter.graph.build import Builder
from converter.graph.value import Value, known_sizes

DOMAIN = "com.microsoft"
UNDECLARED = frozenset(
    {"SimplifiedLayerNormalization"}
)  # onnxruntime keeps these in ai.onnx, where no opset has them
# operators that are refused on purpose: the reason, its code, and the way out
REFUSED = {
    "PagedAttention": (
        "PagedAttention reads a cache that the server of a language model cuts into pages",
        "X201",
        "export the model with GroupQueryAttention, whose cache is a tensor",
    ),
}
ROWS = Rows()
_MODULES = (
    *("attention", "blocks", "cache", "experts", "linear", "quantized", "recurrent", "weights"),
)


@cache
def rows() -> Rows:
    """Return ROWS with the rows of the other modules of the domain, which are imported here, since
    few files need them.
    """
    for name in _MODULES:
        importlib.import_module(f"converter.formats.onnx.microsoft_{name}")
    return ROWS


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
def standard(op: Op, b: Builder) -> None:
    """Convert an operator that is in ai.onnx by now."""


ROWS.enter(
    ExpandDims=lambda op, b: b.Unsqueeze(
        op.x, b.Reshape(b.Cast(op.need(1), to=ir.DataType.INT64), [1])
    ),
    TorchEmbedding=lambda op, b: b.Gather(op.x, op.need(1)),
    BiasGelu=lambda op, b: b.Gelu(op.x + op.need(1)),
    QuickGelu=lambda op, b: op.x * b.Sigmoid(op.x * op.attr("alpha", 1.702)),
    BiasAdd=lambda op, b: op.x + op.need(1) + op.need(2),
    SimplifiedLayerNormalization=lambda op, b: rms(
        b, op.x, op.need(1), op.attr("epsilon", 1e-5), op.attr("axis", -1)
    ),
)


@ROWS.always("GridSample")
def grid_sample(op: Op, b: Builder) -> None:
    """Rename the mode of GridSample as ONNX has it."""
    mode = op.attr("mode", "bilinear")
    op.attrs["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)


@ROWS.always("FastGelu")
def fast_gelu(op: Op, b: Builder) -> Value:
    """Rewrite FastGelu as Gelu with tanh, after the optional bias."""
    return b.Gelu(plus(op.x, op.input(1)), approximate="tanh")


@ROWS.always("BiasSplitGelu")
def bias_split_gelu(op: Op, b: Builder) -> Results:
    """Rewrite BiasSplitGelu: one half of the last axis times Gelu of the other."""
    left, right = b.Split(op.x + op.need(1), outputs=2, axis=-1, num_outputs=2)
    return left * b.Gelu(right)


@ROWS.always("BiasSoftmax")
def bias_softmax(op: Op, b: Builder) -> Results:
    """Compute Softmax over all axes from `axis` on."""
    total, axis, rank = op.x + op.need(1), op.attr("axis", 1), op.rank(0)
    if not op.attr("is_inner_broadcast", 1):
        raise MappingError("BiasSoftmax with an outer broadcast is not supported")
    return b.Softmax(total, axis=-1) if axis % rank == rank - 1 else softmax_from(b, total, axis)


def softmax_from(b: Builder, x: Value, axis: int) -> Value:
    """Return the softmax over all axes from `axis` on together."""
    return b.Reshape(b.Softmax(b.Flatten(x, axis=axis), axis=-1), b.Shape(x))


@ROWS.always("CDist")
def cdist(op: Op, b: Builder) -> Results:
    """Rewrite CDist as the distance of each row from each other one."""
    difference = b.Unsqueeze(op.x, [1]) - b.Unsqueeze(op.need(1), [0])
    squares = b.ReduceSumSquare(difference, [-1], keepdims=0)
    return b.Sqrt(squares) if op.attr("metric", "sqeuclidean") == "euclidean" else squares


@ROWS.always("FusedMatMul", "TransposeMatMul")
def fused_matmul(op: Op, b: Builder) -> Value:
    """Convert FusedMatMul: trans exchanges the last two axes; transBatch moves the batch axes one
    position to the left, the first one after them.
    """
    sides = []
    for i, side in enumerate("AB"):
        value = op.need(i)
        turn, batch = op.attr(f"trans{side}", 0), op.attr(f"transBatch{side}", 0)
        if turn or batch:
            rank = op.rank(i)
            perm = [*range(1, rank - 1), 0, rank - 1] if batch and rank > 2 else list(range(rank))
            if turn and rank > 1:
                perm[-2:] = perm[-1:-3:-1]
            value = b.Transpose(value, perm=perm)
        sides.append(value)
    y = b.MatMul(*sides)
    alpha = op.attr("alpha", 1.0)
    return y if alpha == 1.0 else y * alpha


@ROWS.always("FusedGemm")
def fused_gemm(op: Op, b: Builder) -> Results:
    """Rewrite FusedGemm as Gemm and its activation."""
    kind = op.take("activation", "")
    params = {k: op.take(f"activation_{k}") for k in ("alpha", "beta", "gamma")}
    return activated(b, b.op("Gemm", *op.inputs, **op.attrs), kind, params)


@ROWS.always("FusedConv")
def fused_conv(op: Op, b: Builder) -> Value:
    """Conv (X, W, B), plus Z, then the activation."""
    kind, given = op.take("activation", ""), op.take("activation_params", [])
    y = plus(explicit(b, "Conv", op.inputs[:3], op.attrs), op.input(3))
    names = ("min", "max") if kind == "Clip" else ("alpha", "beta", "gamma")
    return activated(b, y, kind, dict(zip(names, given, strict=False)))


def activated(b: Builder, y: Value, kind: str, params: dict[str, Any]) -> Value:
    """Apply a fused activation, or none for "". Raises MappingError if it is not known."""
    if not kind:
        return y
    if kind == "Clip":
        return b.Clip(y, b.like(y, params["min"]), b.like(y, params["max"]))
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
        raise MappingError(f"fused activation {kind!r} is not known")
    return b.op(kind, y, **params)


def plus(x: Value, y: Value | None) -> Value:
    """Add an optional operand."""
    return x if y is None else x + y


# normalization


def rms(b: Builder, x: Value, scale: Value, epsilon: float, axis: int = -1) -> tuple[Value, Value]:
    """Compute x / sqrt(mean(x^2) + epsilon) * scale over the axes from `axis` on, in float; return
    it and the factor.
    """
    if axis != -1 and x.shape is None:
        raise MappingError("SimplifiedLayerNormalization needs the rank of its input")
    rank = len(x.shape or ())
    axes = [-1] if axis == -1 else list(range(axis % rank, rank))
    half = x.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    wide = b.Cast(x, to=ir.DataType.FLOAT) if half else x
    factor = b.Reciprocal(b.Sqrt(b.ReduceMean(wide * wide, axes) + epsilon))
    y = wide * factor
    return (b.Cast(y, to=x.dtype) if half else y) * scale, factor


@ROWS.always("SkipLayerNormalization")
def skip_layer_normalization(op: Op, b: Builder) -> Results:
    """(input, skip, gamma, beta, bias) -> normalized, mean, 1/deviation, the sum that was
    normalized.
    """
    total = plus(op.x + op.need(1), op.input(4))
    y, mean, factor = b.LayerNormalization(
        total, op.need(2), op.input(3), outputs=3, axis=-1, epsilon=op.attr("epsilon", 1e-12)
    )
    return y, mean, factor, total


@ROWS.always("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(op: Op, b: Builder) -> Results:
    """Rewrite SkipSimplifiedLayerNormalization as Add and an RMS normalization."""
    total = plus(op.x + op.need(1), op.input(3))
    y, factor = rms(b, total, op.need(2), op.attr("epsilon", 1e-12))
    return y, None, factor, total


@ROWS.always("EmbedLayerNormalization")
def embed_layer_normalization(op: Op, b: Builder) -> Results:
    """(ids, segment ids, word, position, segment, gamma, beta, mask, position ids) -> normalized,
    mask length, sum.
    """
    ids, word, position = op.x, op.need(2), op.need(3)
    total = b.Gather(word, ids)
    if (positions := op.input(8)) is None:
        length = b.Squeeze(b.Shape(ids, start=1, end=2))
        positions = b.Range(0, length, 1)
    total = total + b.Gather(position, positions)
    if op.input(1) is not None and op.input(4) is not None:
        total = total + b.Gather(op.need(4), op.need(1))
    y = b.LayerNormalization(
        total, op.need(5), op.need(6), axis=-1, epsilon=op.attr("epsilon", 1e-12)
    )
    mask = op.input(7)
    if mask is not None:
        count: Value = b.ReduceSum(b.Cast(mask, to=ir.DataType.INT32), [1], keepdims=0)
    else:
        count = b.ConstantOfShape(b.Shape(ids, start=0, end=1), value=np.array([0], np.int32))
    return y, count, total


@ROWS.always("GroupNorm")
def group_norm(op: Op, b: Builder) -> Value:
    """Convert GroupNorm, channels-last by default; `activation` 1 is x * sigmoid(x)."""
    x, rank = op.x, op.rank(0)
    last = op.attr("channels_last", 1)
    y = b.GroupNormalization(
        channels_first(b, x, rank) if last else x,
        *(v if v.dtype == x.dtype else b.Cast(v, to=x.dtype) for v in (op.need(1), op.need(2))),
        num_groups=op.attrs["groups"],
        epsilon=op.attr("epsilon", 1e-5),
    )
    if op.attr("activation", 0):
        y = y * b.Sigmoid(y)
    return channels_last(b, y, rank) if last else y


@ROWS.always("BranchwiseRMSNorm")
def branchwise_rms_norm(op: Op, b: Builder) -> Value:
    """Divide each branch by its root mean square, over the last axis of [..., C, H], or of [...,
    C*H] where `num_branches` is C.
    """
    x, branches, scale = op.x, int(op.attr("num_branches", 0)), op.input(1)
    if branches:
        sizes = b.Shape(x)
        x = b.Reshape(x, b.Concat(sizes[:-1], [branches, -1], axis=0))
    wide = b.Cast(x, to=ir.DataType.FLOAT)
    y = wide / b.Sqrt(b.ReduceMean(wide * wide, [-1]) + op.number("epsilon", 1e-5))
    if scale is not None:
        shape = known_sizes(x) or []
        per_branch = len(shape) > 1 and (known_sizes(scale) or [])[:1] != shape[-1:]
        whole = b.Cast(scale, to=ir.DataType.FLOAT)
        y = y * (b.Reshape(whole, b.Shape(x, start=-2)) if per_branch else whole)
    return b.Reshape(b.Cast(y, to=op.x.dtype), b.Shape(op.x))


# images


def channels_first(b: Builder, x: Value, rank: int) -> Value:
    """Move the last axis to position 1."""
    return b.Transpose(x, perm=[0, rank - 1, *range(1, rank - 1)])


def channels_last(b: Builder, x: Value, rank: int) -> Value:
    """Move axis 1 to the last position."""
    return b.Transpose(x, perm=[0, *range(2, rank), 1])


@ROWS.always("NhwcMaxPool")
def nhwc_max_pool(op: Op, b: Builder) -> Results:
    """Rewrite NhwcMaxPool as MaxPool between transpositions."""
    rank = op.rank(0)
    x = channels_first(b, op.x, rank)
    return channels_last(b, explicit(b, "MaxPool", [x], op.attrs), rank)


@ROWS.always("CropAndResize")
def crop_and_resize(op: Op, b: Builder) -> Results:
    """Resample boxes (y1, x1, y2, x2), 0..1 from corner to corner of the image, to crop_size;
    elements outside of the image have the extrapolation value.
    """
    x = b.Gather(op.x, op.need(2))
    size = [int(n) for n in op.constant(3)]
    edges = b.Split(op.need(1), outputs=4, axis=1, num_outputs=4)
    nearest = op.attr("mode", "bilinear") == "nearest"
    lines = []
    for axis in (0, 1):
        start, end = edges[axis], edges[axis + 2]
        steps = np.linspace(0, 1, size[axis]) if size[axis] > 1 else np.array([0.5])
        line = start + (end - start) * steps.astype(np.float32)[None]  # [boxes, size]
        if nearest:
            last = b.Shape(x, start=2 + axis, end=3 + axis) - 1
            extent = b.Cast(last, to=ir.DataType.FLOAT)
            line = b.Floor(line * extent + 0.5) / b.Max(extent, 1.0)
        lines.append(line * 2.0 - 1.0)
    shape = b.Concat(b.Shape(x, start=0, end=1), size, [1], axis=0)
    rows = b.Expand(b.Reshape(lines[0], [-1, size[0], 1, 1]), shape)
    columns = b.Expand(b.Reshape(lines[1], [-1, 1, size[1], 1]), shape)
    grid = b.Concat(columns, rows, axis=-1)
    y = b.GridSample(
        x, grid, mode="nearest" if nearest else "linear", padding_mode="border", align_corners=1
    )
    reach = b.ReduceMax(b.Abs(grid), [-1], keepdims=0)
    outside = b.Unsqueeze(reach > 1.0, [1])
    return b.Where(outside, b.like(y, op.attr("extrapolation_value", 0.0)), y)


@ROWS.always("Inverse")
def inverse(op: Op, b: Builder) -> Results:
    """Invert a matrix by Gauss-Jordan elimination with partial pivoting, unrolled: each step swaps
    rows k and p and clears column k.
    """
    x, n = op.x, op.shape(0)[-1]
    if n > 32:
        raise MappingError(f"Inverse of {n} x {n} matrices is not supported (at most 32)")
    dtype = x.dtype.numpy() if x.dtype is not None else np.dtype(np.float32)
    eye = np.eye(n, dtype=dtype)
    both = b.Concat(x, b.Expand(eye, b.Shape(x)), axis=-1)
    for k in range(n):
        column = b.Abs(both[..., k:n, k : k + 1])
        place = b.ArgMax(column, axis=-2, keepdims=0) + k  # [..., 1]
        ones = b.OneHot(place, [n], np.array([0, 1], dtype), axis=-1)
        unit = b.Unsqueeze(b.Squeeze(ones, [-2]), [-1])
        own = eye[:, k : k + 1]
        row, pivot = both[..., k : k + 1, :], _transposed(b, unit) @ both
        both = both + (own - unit) * (pivot - row)
        scaled = pivot / pivot[..., k : k + 1]
        both = both - (both[..., k : k + 1] - own) * scaled
    return both[..., n : 2 * n]


def _transposed(b: Builder, value: Value) -> Value:
    rank = value.shape.rank() if value.shape is not None else 2
    return b.Transpose(value, perm=[*range(rank - 2), rank - 1, rank - 2])
