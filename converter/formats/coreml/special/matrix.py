"""Inner products, matrix products and embeddings."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.coreml.blobs import dims, floats, ints, operand, operands, rank, reshape, shape_as, squeeze
from converter.formats.coreml.special.registry import lifts
from converter.graph.build import Builder
from converter.mapping.node import Layer

Value = ir.Value


def transposed(b: Builder, weights: Value) -> Value:
    """The transpose of a weight matrix: a view of a plain constant, a Transpose of a compact one."""
    if weights.const_value is not None:
        return b.const(weights.const_value.numpy().T, str(weights.name))
    return b.op("Transpose", weights, perm=[1, 0])


@lifts("innerProduct")
def lift_inner_product(layer: Layer, b: Builder) -> Value:
    """y = x W' + b on the last axis; from rank 4 on the last three axes are one vector and come out as [C,1,1]."""
    p, x = layer.attrs, floats(b, operand(layer))
    into, out = int(p["inputChannels"]), int(p["outputChannels"])
    weights = layer.blobs["weights"].lift(b, [out, into])
    bias = b.const(layer.blobs["bias"].array([out]), f"{layer.name}.bias") if p["hasBias"] else None
    r = rank(x)
    if r < 4:
        return _product(b, x, weights, bias)
    lead = dims(x)[: r - 3]
    product = _product(b, reshape(b, x, shape_as(b, [-1, into], x)), weights, bias)
    if lead == [1] * (r - 3):
        return reshape(b, product, [*([1] * (r - 3)), out, 1, 1])
    tail = [-1, out, 1, 1] if r == 4 else None
    return reshape(b, product, tail if tail else b.op("Concat", b.op("Slice", b.op("Shape", x), [0], [r - 3]), [out, 1, 1], axis=0))


def _product(b: Builder, x: Value, weights: Value, bias: Value | None) -> Value:
    if rank(x) == 2:
        return b.op("Gemm", x, weights, bias, transB=1)
    y = b.op("MatMul", x, transposed(b, weights))
    return y if bias is None else b.op("Add", y, bias)


@lifts("batchedMatmul")
def lift_batched_matmul(layer: Layer, b: Builder) -> Value:
    p = layer.attrs
    values = [floats(b, v) for v in operands(layer)]
    if len(values) == 1:
        into, out = int(p["weightMatrixFirstDimension"]), int(p["weightMatrixSecondDimension"])
        y = b.op("MatMul", values[0], transposed(b, layer.blobs["weights"].lift(b, [out, into])))
        return b.op("Add", y, b.const(layer.blobs["bias"].array([out]), f"{layer.name}.bias")) if p["hasBias"] else y
    x, y = (_swapped(b, v) if flag else v for v, flag in zip(values, (p["transposeA"], p["transposeB"]), strict=True))
    product = b.op("MatMul", x, y)
    return b.op("Reshape", product, [1]) if product.shape is not None and not len(product.shape) else product


def _swapped(b: Builder, x: Value) -> Value:
    r = rank(x)
    return x if r < 2 else b.op("Transpose", x, perm=[*range(r - 2), r - 1, r - 2])


def lookup(layer: Layer, b: Builder, indices: Value, rows: int, width: int) -> Value:
    """Rows of the table, which is stored as [width, rows]; one more axis than `indices`."""
    table = transposed(b, layer.blobs["weights"].lift(b, [width, rows]))
    y = b.op("Gather", table, ints(b, indices), axis=0)
    return b.op("Add", y, b.const(layer.blobs["bias"].array([width]), f"{layer.name}.bias")) if layer.attrs["hasBias"] else y


@lifts("embedding")
def lift_embedding(layer: Layer, b: Builder) -> Value:
    """Indices [..,1,1,1] -> vectors [..,C,1,1]."""
    x, width = operand(layer), int(layer.attrs["outputChannels"])
    r = rank(x, 3)
    y = lookup(layer, b, squeeze(b, x, [r - 3, r - 2, r - 1]) if r > 3 else b.op("Reshape", x, [-1]), int(layer.attrs["inputDim"]), width)
    return b.op("Unsqueeze", y, [r - 2, r - 1]) if r > 3 else b.op("Reshape", y, [-1, 1, 1])


@lifts("embeddingND")
def lift_embedding_nd(layer: Layer, b: Builder) -> Value:
    """Indices [..,1] -> vectors [..,C]."""
    x = operand(layer)
    r = rank(x)
    indices = squeeze(b, x, [r - 1]) if r > 1 else x
    return lookup(layer, b, indices, int(layer.attrs["vocabSize"]), int(layer.attrs["embeddingSize"]))
