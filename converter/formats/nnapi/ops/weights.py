"""Filters, dense weights and biases on their way into a table: permuted views, and the integer forms that NNAPI wants beside quantised data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.ops.emit import LAZY, Emit, Ref
from converter.formats.nnapi.table import Array, ChannelQuant, OperandType
from converter.formats.nnapi.writing import dequantised, parameters
from converter.graph.build import attrs_of
from converter.graph.infer import constant, shape_of
from converter.mapping.node import MappingError

T = OperandType
_DENSE = ("Conv", "ConvTranspose", "MatMul", "Gemm")


def turns_weights(node: ir.Node) -> bool:
    """Whether a Transpose only gives weights or matrices their order: NNAPI's own order may be the one before it."""
    uses = node.outputs[0].uses()
    return bool(uses) and all((u.node.op_type in _DENSE and u.idx == 1) or (u.node.op_type == "MatMul" and swaps_last(node)) for u in uses)


def swaps_last(node: ir.Node) -> bool:
    """Whether a Transpose turns each matrix of a stack."""
    perm = [int(i) for i in attrs_of(node).get("perm", ())]
    n = len(perm)
    return n > 1 and perm == [*range(n - 2), n - 1, n - 2]


def matrices(e: Emit, index: int) -> tuple[Ref, bool]:
    """A stack of matrices, as it is before a Transpose of each of them (True) or as it is."""
    value = e.value(index)
    node = value.producer()
    if node is not None and node.op_type == "Transpose" and not node.domain and node.inputs[0] is not None and swaps_last(node):
        return e.real(node.inputs[0]), True
    return e.real(index), False


LAZY["", "Transpose"] = turns_weights


def weights(e: Emit, index: int, perm: Sequence[int], shape: Sequence[int] | None = None, x: Ref | None = None) -> Ref:
    """Input `index` with its axes permuted (a view), then reshaped. Quantised: its integers, in the type that `x` asks for."""
    value = e.value(index)
    source = dequantised(value)
    array = constant(value) if source is None else None
    if array is not None:
        array = turn(array, perm, shape)
        return e.number(array, x, str(value.name)) if x is not None and not e.quantised else constant_weights(e, value, array)
    if e.quantised and source is None:
        raise MappingError("the weights are not quantised")
    if source is not None and (stored := source.inputs[0]) is not None and (array := constant(stored)) is not None:
        return quantised_weights(e, value, source, array, perm, shape, x)
    return moving_weights(e, value, perm, shape)


def turn(array: Array, perm: Sequence[int], shape: Sequence[int] | None) -> Array:
    array = array.transpose(perm)
    return array if shape is None else array.reshape(shape)


def constant_weights(e: Emit, value: ir.Value, array: Array) -> Ref:
    kind = e.writer.like(value, array.shape).type
    if e.quantised or kind.dtype is None:
        raise MappingError("the weights are not quantised")
    return e.writer.tensor(array.astype(kind.dtype, copy=False), kind, str(value.name))


def spread(numbers: Array, array: Array, axis: int, block: int) -> Array:
    """Scales or zero points in a shape that broadcasts: one number, one for each place of the axis, or one for each block of places."""
    if numbers.size == 1:
        return numbers
    if not block:
        return numbers.reshape([-1 if i == axis else 1 for i in range(array.ndim)])
    blocks = [-(-n // block) if i == axis else n for i, n in enumerate(array.shape)]
    return np.repeat(numbers.reshape(blocks), block, axis=axis).take(range(array.shape[axis]), axis=axis)


def quantised_weights(e: Emit, value: ir.Value, source: ir.Node, array: Array, perm: Sequence[int], shape: Sequence[int] | None, x: Ref | None) -> Ref:
    """Constant integers behind a DequantizeLinear, perhaps behind a Transpose too."""
    found = parameters(source)
    if found is None:
        raise MappingError("scale and zero point of the weights must be constant")
    before = transposed_by(value)
    order = [before[i] for i in perm] if before else list(perm)
    axis, block = attrs_of(source).get("axis", 1), int(attrs_of(source).get("block_size", 0))
    if block and e.quantised:
        raise MappingError("scales of blocks have no counterpart")
    if not e.quantised:
        scale, zero = (spread(p, array, axis % array.ndim, block) for p in found)
        real = (array.astype(np.float32) - zero.astype(np.float32)) * scale
        return e.writer.tensor(turn(real, order, shape).astype(np.float32), T.TENSOR_FLOAT32, str(value.name))
    turned = turn(array, order, shape)
    if found[0].size > 1:
        dim = order.index(axis % array.ndim)
        if array.dtype != np.int8 or found[1].any():
            raise MappingError("per-channel scales need signed integers without zero points")
        quant = ChannelQuant(dim, tuple(float(s) for s in found[0].reshape(-1)))
        return e.writer.tensor(turned, T.TENSOR_QUANT8_SYMM_PER_CHANNEL, str(value.name), channel_quant=quant)
    zero_point = int(found[1].reshape(-1)[0])
    signed = x is not None and e.operand(x).type is T.TENSOR_QUANT8_ASYMM_SIGNED
    kind = T.TENSOR_QUANT8_ASYMM_SIGNED if signed else T.TENSOR_QUANT8_ASYMM
    if array.dtype.itemsize != 1:
        raise MappingError("the weights have more than 8 bits")
    if kind.dtype is not None and array.dtype.kind != kind.dtype.kind:
        step = 128 if kind.dtype.kind == "u" else -128
        turned, zero_point = (turned.astype(np.int16) + step).astype(kind.dtype), zero_point + step
    return e.writer.tensor(turned, kind, str(value.name), scale=float(found[0].reshape(-1)[0]), zero_point=zero_point)


def transposed_by(value: ir.Value) -> list[int] | None:
    node = value.producer()
    if node is None or node.op_type != "Transpose" or node.domain:
        return None
    return [int(i) for i in attrs_of(node)["perm"]]


def moving_weights(e: Emit, value: ir.Value, perm: Sequence[int], shape: Sequence[int] | None) -> Ref:
    """Weights that are computed: the value before a Transpose where that has the wanted order, else a TRANSPOSE."""
    dims, before, node = shape_of(value), transposed_by(value), value.producer()
    if dims is None:
        raise MappingError("the shape of the weights must be static", "X203")
    if before is not None and node is not None and node.inputs[0] is not None:
        order = [before[i] for i in perm]
        inner = e.real(node.inputs[0])
        if order != list(range(len(order))):
            inner = e.step("TRANSPOSE", [dims[i] for i in perm], inner, input=inner, permutation=order)
    else:
        inner = e.real(value)
        if list(perm) != list(range(len(perm))):
            inner = e.step("TRANSPOSE", [dims[i] for i in perm], inner, input=inner, permutation=list(perm))
    return inner if shape is None else e.reshaped(inner, shape)


def bias(e: Emit, value: ir.Value | None, count: int, x: Ref, w: Ref) -> Ref:
    """The bias beside input `x` and weights `w`; zeros when there is none. Quantised: int32 with the product of their scales."""
    if not e.quantised:
        if value is None:
            return e.number(np.zeros(count), x)
        array = constant(value)
        return e.number(np.broadcast_to(array.reshape(-1), (count,)), x, str(value.name)) if array is not None else e.reshaped(e.real(value), [count])
    weights_, source = e.operand(w), e.operand(x)
    channel = weights_.channel_quant
    scales = np.float32(source.scale) * np.array(channel.scales if channel else [weights_.scale], np.float32)
    more: dict[str, Any] = {"scale": 0.0 if channel else float(source.scale * weights_.scale)}
    if value is None:
        return e.writer.tensor(np.zeros(count, np.int32), T.TENSOR_INT32, **more)
    node = dequantised(value)
    array = constant(value)
    if array is not None and node is None:
        return e.writer.tensor(rounded(array.reshape(-1) / scales, count), T.TENSOR_INT32, str(value.name), **more)
    found = None if node is None else parameters(node)
    if node is None or node.inputs[0] is None or found is None or node.inputs[0].dtype != ir.DataType.INT32 or found[1].any():
        raise MappingError("the bias is not a 32-bit integer")
    stored = constant(node.inputs[0])
    if stored is not None:
        return e.writer.tensor(rounded(stored.reshape(-1) * (found[0].reshape(-1).astype(np.float64) / scales), count), T.TENSOR_INT32, str(value.name), **more)
    return e.stored(node.inputs[0])


def rounded(array: Array, count: int) -> Array:
    whole = np.rint(np.broadcast_to(array, (count,)).astype(np.float64))
    if np.abs(whole).max(initial=0) > np.iinfo(np.int32).max:
        raise MappingError("the bias does not fit into 32 bits", "X204")
    return whole.astype(np.int32)
