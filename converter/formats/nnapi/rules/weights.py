"""Filters, dense weights and biases on their way into a table.

Permuted views, and the integer forms beside quantised data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.nnapi.collector import Ref, dequantised, parameters
from converter.formats.nnapi.rules.context import Writing
from converter.formats.nnapi.table import Array, ChannelQuant, OperandType
from converter.graph.build import attrs_of
from converter.graph.infer import constant
from converter.graph.lazy_tensor import LazyTensor, whole_bytes
from converter.graph.value import maker, operand
from converter.mapping.context import static
from converter.passes.constants import lazily

T, D = OperandType, ir.DataType
_DENSE = ("Conv", "ConvTranspose", "MatMul", "Gemm")


def turns_weights(node: ir.Node) -> bool:
    """Whether a Transpose only gives weights or matrices their order.

    NNAPI's own order may be the one before it.
    """
    uses = node.outputs[0].uses()
    return bool(uses) and all(
        (u.node.op_type in _DENSE and u.idx == 1)
        or (u.node.op_type == "MatMul" and swaps_last(node))
        for u in uses
    )


def swaps_last(node: ir.Node) -> bool:
    """Whether a Transpose turns each matrix of a stack."""
    perm = [int(i) for i in attrs_of(node).get("perm", ())]
    n = len(perm)
    return n > 1 and perm == [*range(n - 2), n - 1, n - 2]


def before_transpose(value: ir.Value) -> tuple[ir.Value, list[int]] | None:
    """The value that a Transpose turns, and its permutation."""
    node = maker(value, "Transpose")
    return None if node is None else (operand(node), [int(i) for i in attrs_of(node)["perm"]])


def matrices(w: Writing, index: int) -> tuple[Ref, bool]:
    """A stack of matrices, as it is before a Transpose of each of them (True) or as it is."""
    value = w.input(index)
    found, node = before_transpose(value), value.producer()
    if found is not None and node is not None and swaps_last(node):
        return w.real(found[0]), True
    return w.real(value), False


def weights(w: Writing, index: int, perm: Sequence[int], x: Ref) -> Ref:
    """The operand of input `index` with its axes permuted (a view).

    Where the node is written quantised, these are its integers, in the type beside the input `x`.
    """
    value = w.input(index)
    source = dequantised(value)
    if source is None:
        if w.quantised:
            raise MappingError("the weights are not quantised")
        if value.dtype == D.FLOAT and value.const_value is not None:
            turned = LazyTensor.of(value.const_value).transposed(perm)
            if w.about(x).type is T.TENSOR_FLOAT32:
                return w.writer.tensor(turned, T.TENSOR_FLOAT32, str(value.name))
        if (array := constant(value)) is not None:
            return w.number(array.transpose(perm), x, str(value.name))
    elif not w.quantised and (made := lazily(value)) is not None:
        return w.writer.tensor(made.transposed(perm), T.TENSOR_FLOAT32, str(value.name))
    elif (array := constant(source.inputs[0])) is not None:
        before = before_transpose(value)
        order = [before[1][i] for i in perm] if before else list(perm)
        if w.quantised:
            return quantised_weights(w, value, source, array, order, x)
        return real_weights(w, value, source, array, order)
    return moving_weights(w, value, perm)


def parameters_of(source: ir.Node) -> tuple[Array, Array]:
    found = parameters(source)
    if found is None:
        raise MappingError("scale and zero point of the weights must be constant")
    return found


def real_weights(
    w: Writing, value: ir.Value, source: ir.Node, array: Array, order: list[int]
) -> Ref:
    """Constant integers as the numbers that they stand for."""
    axis = attrs_of(source).get("axis", 1) % array.ndim
    block = int(attrs_of(source).get("block_size", 0))
    scale, zero = (spread(p, array, axis, block) for p in parameters_of(source))
    real = (array.astype(np.float32) - zero.astype(np.float32)) * scale
    turned = real.transpose(order).astype(np.float32)
    return w.writer.tensor(turned, T.TENSOR_FLOAT32, str(value.name))


def spread(numbers: Array, array: Array, axis: int, block: int) -> Array:
    """Scales or zero points in a shape that broadcasts.

    One number, one for each place of the axis, or one for each block of places.
    """
    if numbers.size == 1:
        return numbers
    if not block:
        return numbers.reshape([-1 if i == axis else 1 for i in range(array.ndim)])
    blocks = [-(-n // block) if i == axis else n for i, n in enumerate(array.shape)]
    repeated = np.repeat(numbers.reshape(blocks), block, axis=axis)
    return repeated.take(range(array.shape[axis]), axis=axis)


def quantised_weights(
    w: Writing, value: ir.Value, source: ir.Node, array: Array, order: list[int], x: Ref
) -> Ref:
    """Constant integers with one scale, or one for each place of an axis."""
    (scale, zero), name = parameters_of(source), str(value.name)
    array = whole_bytes(array)
    turned = array.transpose(order)
    if attrs_of(source).get("block_size", 0):
        raise MappingError("scales of blocks have no counterpart")
    if scale.size > 1:
        if array.dtype != np.int8 or zero.any():
            raise MappingError("per-channel scales need signed integers without zero points")
        dim = order.index(attrs_of(source).get("axis", 1) % array.ndim)
        quant = ChannelQuant(dim, tuple(float(s) for s in scale.reshape(-1)))
        return w.writer.tensor(turned, T.TENSOR_QUANT8_SYMM_PER_CHANNEL, name, channel_quant=quant)
    if array.dtype.itemsize != 1:
        raise MappingError("the weights have more than 8 bits")
    zero_point = int(zero.reshape(-1)[0])
    signed = w.about(x).type is T.TENSOR_QUANT8_ASYMM_SIGNED
    kind = T.TENSOR_QUANT8_ASYMM_SIGNED if signed else T.TENSOR_QUANT8_ASYMM
    assert kind.dtype is not None
    if array.dtype.kind != kind.dtype.kind:
        step = -128 if signed else 128
        turned, zero_point = (turned.astype(np.int16) + step).astype(kind.dtype), zero_point + step
    return w.writer.tensor(
        turned, kind, name, scale=float(scale.reshape(-1)[0]), zero_point=zero_point
    )


def moving_weights(w: Writing, value: ir.Value, perm: Sequence[int]) -> Ref:
    """Weights that are computed: as they are before a Transpose, or with one of their own."""
    dims, before = static(value, "the weights"), before_transpose(value)
    inner = w.real(value if before is None else before[0])
    order = list(perm) if before is None else [before[1][i] for i in perm]
    if order == list(range(len(order))):
        return inner
    turned = [dims[i] for i in perm]
    return w.step("TRANSPOSE", turned, inner, input=inner, permutation=order)


def bias(w: Writing, value: ir.Value | None, count: int, x: Ref, filter_: Ref) -> Ref:
    """The bias beside the input `x` and its weights; zeros when there is none.

    Where the node is written quantised it is int32, with the product of their scales.
    """
    array: Array | None = np.zeros(count) if value is None else constant(value)
    name = "" if value is None else str(value.name)
    if not w.quantised:
        if array is None and value is not None:
            return w.reshaped(w.real(value), [count])
        return w.number(spread_bias(array, count), x, name)
    weights_, source = w.about(filter_), w.about(x)
    channel = weights_.channel_quant
    own = np.array(channel.scales if channel else [weights_.scale], np.float32)
    scales = np.float32(source.scale) * own
    more: dict[str, Any] = {"scale": 0.0 if channel else float(source.scale * weights_.scale)}
    if value is None:
        return w.writer.tensor(np.zeros(count, np.int32), T.TENSOR_INT32, **more)
    node = dequantised(value)
    if node is None:
        if array is None:
            raise MappingError("the bias is not a 32-bit integer")
        steps = rounded(array.reshape(-1) / scales, count)
        return w.writer.tensor(steps, T.TENSOR_INT32, name, **more)
    found, integers = parameters(node), node.inputs[0]
    if integers is None or found is None or integers.dtype != ir.DataType.INT32 or found[1].any():
        raise MappingError("the bias is not a 32-bit integer")
    stored = constant(integers)
    if stored is None:
        return w.stored(integers)
    own = stored.reshape(-1) * (found[0].reshape(-1).astype(np.float64) / scales)
    return w.writer.tensor(rounded(own, count), T.TENSOR_INT32, name, **more)


def spread_bias(array: Any, count: int) -> Array:
    return np.broadcast_to(array.reshape(-1), (count,))


def rounded(array: Array, count: int) -> Array:
    whole = np.rint(spread_bias(array, count).astype(np.float64))
    if np.abs(whole).max(initial=0) > np.iinfo(np.int32).max:
        raise MappingError("the bias does not fit into 32 bits", "X204")
    return whole.astype(np.int32)


def longer(w: Writing, filter_: Ref, rows: list[int]) -> Ref:
    """A constant filter O H W I with rows and columns of zeros behind."""
    found = w.about(filter_)
    if found.value is None:
        raise MappingError("the filter of an output with extra rows must be constant")
    amounts = [(0, 0), (0, rows[0]), (0, rows[1]), (0, 0)]
    array = np.pad(found.array(), amounts, constant_values=found.zero_point)
    return w.writer.add(replace(found, dimensions=list(array.shape), value=array))
