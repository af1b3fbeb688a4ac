"""Quantized values: (quantized value - zero point) * scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import Array, constant, has_constant, rank_of
from converter.graph.lazy_tensor import whole_bytes
from converter.graph.value import optional, producer_if
from converter.record import comparable

D = ir.DataType
FLOATS = (D.FLOAT, D.FLOAT16, D.BFLOAT16, D.DOUBLE)
LARGEST_SCALE = 1e30  # larger ones overflow the floats in which both compute
# Attributes of QuantizeLinear and DequantizeLinear whose information is in the scale and the types
# here.
ATTRIBUTES = ("axis", "block_size", "output_dtype", "precision", "saturate")
BLOCKS = "block-wise scales are not supported; use one scale, or one per channel"


@comparable
class Quantization:
    """The scales and zero points of a tensor: one, or one for each index along `axis`. Omitted zero
    points are 0.
    """

    scales: tuple[float, ...]
    zeros: tuple[int, ...] = ()
    axis: int | None = None

    @property
    def single(self) -> tuple[float, int]:
        """Return the scale and zero point of a tensor that has one of each, in a
        comparable form.
        """
        return self.scales[0], self.zeros[0] if self.zeros else 0

    def operands(self, dtype: ir.DataType) -> tuple[Array, Array | None]:
        """Return scale and zero point as operands of ONNX's operators."""
        scales: Array = np.asarray(self.scales, np.float32)
        zeros: Array | None = np.asarray(self.zeros, dtype.numpy()) if self.zeros else None
        if self.axis is not None:
            return scales, zeros
        return scales.reshape(()), None if zeros is None else zeros.reshape(())


# files to graph ----------------------------------------------------------------------------------


def dequantize(
    b: Builder, value: ir.Value, found: Quantization | None, axis: int | None = None
) -> ir.Value:
    """Return the real numbers of a value; a value without a scale stays as it is.

    `axis` is the axis of the scales, for a value whose axes are in another order.
    """
    if found is None:
        return value
    along = found.axis if axis is None or found.axis is None else axis
    return b.DequantizeLinear(value, *found.operands(value.dtype or D.INT32), axis=along)


def quantize(
    b: Builder, value: ir.Value, dtype: ir.DataType, found: Quantization | None
) -> ir.Value:
    """Return a result in its storage type: quantized if there is a scale, else cast to `dtype`."""
    if found is not None and value.dtype in FLOATS:
        if value.dtype != D.FLOAT:
            value = b.Cast(value, to=D.FLOAT)
        return b.QuantizeLinear(value, *found.operands(dtype), axis=found.axis)
    return value if value.dtype in (dtype, None) else b.Cast(value, to=dtype)


# graph to files ----------------------------------------------------------------------------------


def parameters(node: ir.Node) -> tuple[Array, Array] | None:
    """Return scale and zero point of a QuantizeLinear or DequantizeLinear, flattened; None where
    they are computed or belong to blocks.
    """
    scale, given = constant(node.inputs[1]), optional(node, 2)
    if scale is None or attrs_of(node).get("block_size", 0):
        return None
    zero = np.zeros(scale.shape, np.int32) if given is None else constant(given)
    if zero is None or (zero.dtype.kind not in "iu" and zero.dtype.name not in ("int4", "uint4")):
        return None
    return scale.reshape(-1).astype(np.float32), zero.reshape(-1).astype(np.int32)


def node_quantization(node: ir.Node) -> Quantization:
    """Return the quantization that a QuantizeLinear or DequantizeLinear states; raise MappingError
    if it is computed.
    """
    if attrs_of(node).get("block_size", 0):
        raise MappingError(BLOCKS)
    found = parameters(node)
    if found is None:
        raise MappingError("scale and zero point must be constant")
    scales, zeros = found[0], np.broadcast_to(found[1], found[0].shape)
    rank = rank_of(node.inputs[0])
    axis = int(attrs_of(node).get("axis", 1)) % max(1, rank or 1) if scales.size > 1 else None
    return Quantization(tuple(map(float, scales)), tuple(map(int, zeros)), axis)


def single_quantization(node: ir.Node) -> Quantization:
    """Return the one scale and zero point of a QuantizeLinear or DequantizeLinear; raise
    MappingError if they are computed, several, or of no use.
    """
    found = node_quantization(node)
    if len(found.scales) != 1:
        raise MappingError("scale and zero point must be constant scalars")
    demand_ordinary(found)
    return found


def demand_ordinary(found: Quantization) -> None:
    """Raise MappingError for scales that are not positive, or so small or large that the products
    of both engines are not exact.
    """
    least, most = min(found.scales, default=1.0), max(found.scales, default=1.0)
    if not np.finfo(np.float32).tiny <= least <= most < LARGEST_SCALE:
        raise MappingError(f"a scale must be within 2^-126 to 1e30, got {least:g} to {most:g}")


def constant_dequantized(value: ir.Value | None) -> ir.Node | None:
    """Return the DequantizeLinear of a constant that produces a value."""
    node = producer_if(value, "DequantizeLinear")
    return node if node is not None and has_constant(node.inputs[0]) else None


def quantized_weights(
    node: ir.Node, perm: Sequence[int], signed: bool
) -> tuple[Array, Quantization]:
    """Return the constant that a DequantizeLinear reads, with its axes permuted, as signed or
    unsigned values of 8 bits, and their quantization.
    """
    stored, found = constant(node.inputs[0]), node_quantization(node)
    assert stored is not None
    array = whole_bytes(stored)
    if array.dtype not in (np.int8, np.uint8):
        raise MappingError(f"quantized weights must have 8 bits, got {array.dtype}")
    zeros, kept = found.zeros, array.transpose(perm)
    if (array.dtype == np.int8) != signed:
        kept = (kept.view(np.uint8) ^ 0x80).view(np.int8 if signed else np.uint8)
        zeros = tuple(n + (-128 if signed else 128) for n in zeros)
    axis = None if found.axis is None else list(perm).index(found.axis)
    return kept, Quantization(found.scales, zeros, axis)


def real_numbers(value: ir.Value | None) -> Array | None:
    """Return a constant, or the real numbers of one that a DequantizeLinear reads, flattened; None
    for a value that is computed.
    """
    if (array := constant(value)) is not None:
        return array.reshape(-1)
    node = constant_dequantized(value)
    if node is None or (found := parameters(node)) is None:
        return None
    stored = constant(node.inputs[0])
    assert stored is not None
    return np.asarray((stored.reshape(-1).astype(np.float64) - found[1]) * found[0])


def bias_integers(numbers: Array, count: int, scales: Any, dtype: Any) -> Array:
    """Return `count` numbers of a bias as integers; raise MappingError X204 if the type is too
    narrow.
    """
    kind = np.dtype(dtype)
    steps = np.rint(np.broadcast_to(numbers, (count,)) / np.asarray(scales, np.float64))
    if np.abs(steps).max(initial=0) >= 2.0 ** (8 * kind.itemsize - 1):
        raise MappingError(f"the bias is outside the range of int{8 * kind.itemsize}", "X204")
    return np.asarray(steps.astype(kind))
