"""Weights as Core ML stores them <-> values of the graph, compact both ways.

float32: a constant. float16: a float16 constant and a Cast. 8-bit: DequantizeLinear of a uint8
constant (and an Add when there is a bias). Fewer bits: UnpackBits of the packed bytes first.
Look-up tables: Gather. int8 (dynamic quantization): DequantizeLinear of an int8 constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, UnsupportedError
from converter.formats.coreml.neuralnetwork.weights import Array, WeightData
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import constant, demand_few_axes, rank_of, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.value import Value, operand, optional, producer_if, producer_operand
from converter.passes.constants import evaluate_constant, is_constant, unpack
from converter.passes.round_halves import half_is_enough
from converter.record import record


@record
class LayerWeights:
    """One WeightParams of a file, and its conversion to the graph."""

    data: Callable[[], WeightData]
    name: str

    @classmethod
    def of(cls, found: LayerWeights | WeightData, name: str) -> LayerWeights:
        """Return a value as it is; for a layer that is about to be written, the numbers as they
        will be stored.
        """
        return found if isinstance(found, LayerWeights) else cls(lambda: found, name)

    def lift(self, b: Builder, shape: Sequence[int], axis: int = 0) -> Value:
        """Return the weights as a float32 value of `shape`. Per-channel scales run along `axis`."""
        data = self.data()
        demand_few_axes(shape)
        shape = [int(d) for d in shape]
        count = math.prod(shape)
        if data.count < count or (data.kind != "quantised" and data.count != count):
            raise MappingError(
                f"the weights {self.name!r} have {data.count} elements, "
                f"{'x'.join(map(str, shape))} = {count} are needed",
                "R103",
            )
        if data.kind == "float32":
            return b.const(data.array().reshape(shape), self.name)
        if data.kind == "float16":
            return b.Cast(b.const(data.array().reshape(shape), self.name), to=ir.DataType.FLOAT)
        codes = self._codes(b, data, shape, count)
        if data.lut.size:
            table = b.const(data.lut, f"{self.name}.table")
            return b.Gather(table, b.Cast(codes, to=ir.DataType.INT32))
        return _linear(b, codes, data, axis, len(shape))

    def _codes(self, b: Builder, data: WeightData, shape: list[int], count: int) -> Value:
        if data.kind == "int8" or data.bits == 8:
            return b.const(data.array()[:count].reshape(shape), self.name)
        packed = b.const(data.array(), self.name)
        return b.UnpackBits(packed, bits=data.bits, shape=shape, order="msb")

    def array(self, shape: Sequence[int]) -> Array:
        """Plain float32 numbers, for small weights (biases, slopes) that need no compact form."""
        array = plain(self.data())
        demand_few_axes(shape)
        shape = [int(d) for d in shape]
        count = math.prod(shape)
        if array.size < count:
            raise MappingError(
                f"the weights {self.name!r} have {array.size} elements, {count} are needed", "R103"
            )
        return array[:count].reshape(shape)


def _linear(b: Builder, codes: ir.Value, data: WeightData, axis: int, rank: int) -> Value:
    scale = data.scale if data.scale.size else np.ones(1, np.float32)
    shape = codes.shape
    per_channel = scale.size > 1
    if per_channel and (shape is None or scale.size != shape[axis]):
        raise MappingError(
            f"{scale.size} quantization scales are stored for an axis of "
            f"{shape[axis] if shape is not None else '?'}",
            "R103",
        )
    value = b.DequantizeLinear(
        codes,
        scale if per_channel else scale.reshape(()),
        axis=axis if per_channel else None,
    )
    if not data.bias.size or not data.bias.any():
        return value
    bias = (
        data.bias.reshape(())
        if data.bias.size == 1
        else data.bias.reshape([-1 if i == axis else 1 for i in range(rank)])
    )
    return b.Add(value, bias)


def plain(data: WeightData) -> Array:
    """Return the numbers of the weights, flat, float32 (one scale only: per-channel scales need a
    shape).
    """
    if data.kind in ("float32", "float16"):
        return data.array().astype(np.float32)
    codes = data.array()
    if data.kind == "quantised" and data.bits < 8:
        codes = unpack(codes, data.bits)
    if data.lut.size:
        return data.lut[codes]
    scale = data.scale if data.scale.size else np.ones(1, np.float32)
    bias = data.bias if data.bias.size else np.zeros(1, np.float32)
    if 1 < (channels := max(scale.size, bias.size)) < codes.size:
        codes = codes[:channels]
    return np.asarray(codes * scale + bias, np.float32)


# writing -----------------------------------------------------------------------------------------


def stored_form(value: ir.Value | None, half: bool = False, axis: int = 0) -> WeightData | None:
    """Return how a weight of the graph is stored, row-major in the value's own axis order; None
    when it is not constant.

    `axis` is where the layer expects per-channel scales; scales along another one are multiplied
    out. See `transposed_form` for matrices that the layer stores the other way.
    """
    if value is None:
        return None
    if value.const_value is None:
        compact = _half(value) or _quantized(value, axis)
        if compact is not None:
            return compact
    array = constant(value)
    return computed(value, half) if array is None else of_array(array, half)


def computed(
    value: ir.Value | None, half: bool = False, transposed: bool = False
) -> WeightData | None:
    """Return numbers that follow from constants, or the transpose of such a matrix: computed while
    the file is written, not kept; None if they are not constant.
    """
    shape = shape_of(value)
    if value is None or shape is None or not is_constant(value):
        array = evaluate_constant(value)
        return None if array is None else of_array(array.T if transposed else array, half)

    def numbers(dtype: Any) -> Array:
        array = evaluate_constant(value)
        if array is None:
            message = f"the value of {value.name} cannot be computed"
            raise UnsupportedError(Diagnostic("X202", message))
        return np.ascontiguousarray(array.T if transposed else array, dtype)

    few = half and math.prod(shape) >= 2 and half_is_enough(numbers(np.float32))
    if few or value.dtype == ir.DataType.FLOAT16:
        return WeightData.lazy("float16", math.prod(shape), lambda: numbers(np.float16))
    return WeightData.lazy("float32", math.prod(shape), lambda: numbers(np.float32))


def transposed_form(value: ir.Value) -> WeightData | None:
    """Return the storage of the transpose of a quantized matrix, with one scale or one for each row
    of the transpose; None if it is not a matrix, or packed.
    """
    if producer_if(value, "DequantizeLinear") is None or rank_of(value) != 2:
        return None
    return _quantized(value, 1, transposed=True)


def of_array(array: Array, half: bool = False, least: int = 2) -> WeightData:
    """Plain weights; with `half`, numbers of which there are at least so many in half precision (a
    single one is seldom worth the rounding).
    """
    if array.dtype == np.float16:
        return WeightData.lazy("float16", array.size, lambda: np.ascontiguousarray(array))
    if half and array.size >= least and half_is_enough(array):
        return WeightData.lazy("float16", array.size, lambda: array.astype(np.float16))
    return WeightData.lazy("float32", array.size, lambda: np.ascontiguousarray(array, np.float32))


def alike(blobs: Mapping[str, WeightData], half: bool) -> dict[str, WeightData]:
    """Return the weights of one layer in one precision: the specification allows half or full, but
    not both in a layer (quantized ones go with either).

    `half`: half precision was requested. Otherwise the few full ones, mostly biases, become halves
    if that changes no number; else the halves are widened, which is always exact.
    """
    full, narrow = (
        {k: d for k, d in blobs.items() if d.kind == kind} for kind in ("float32", "float16")
    )
    if not full or not narrow:
        return dict(blobs)
    few = sum(d.count for d in full.values()) <= sum(d.count for d in narrow.values())
    if half or (few and all(_survives(d.array()) for d in full.values())):
        joined = {k: of_array(d.array(), half=True, least=1) for k, d in full.items()}
        if all(d.kind == "float16" for d in joined.values()):
            return {**blobs, **joined}
    return {**blobs, **{k: _widened(d) for k, d in narrow.items()}}


def _survives(array: Array) -> bool:
    """Return whether every number is representable in half precision."""
    with np.errstate(over="ignore"):
        halves = array.astype(np.float16).astype(np.float32)
    return bool(np.array_equal(halves, array, equal_nan=True))


def _widened(data: WeightData) -> WeightData:
    return WeightData.lazy("float32", data.count, lambda: data.array().astype(np.float32))


def _half(value: ir.Value) -> WeightData | None:
    source = producer_operand(value, "Cast")
    if source is None or source.const_value is None or source.dtype != ir.DataType.FLOAT16:
        return None
    return of_array(source.const_value.numpy())


def _quantized(value: ir.Value | None, axis: int, transposed: bool = False) -> WeightData | None:
    """Recognize the result of `Stored.lift`, and DequantizeLinear of 8-bit weights in general."""
    bias = np.zeros(0, np.float32)
    if (gather := producer_if(value, "Gather")) is not None:
        return _table(gather)
    if (add := producer_if(value, "Add")) is not None:
        if (added := constant(add.inputs[1])) is None:
            return None
        bias, value = np.asarray(added, np.float32).reshape(-1), add.inputs[0]
    node = producer_if(value, "DequantizeLinear")
    if node is None or attrs_of(node).get("block_size", 0):
        return None
    scale, payload = constant(node.inputs[1]), _payload(operand(node), transposed)
    if scale is None or payload is None or scale.dtype != np.float32 or scale.size == 0:
        return None
    if scale.size > 1 and int(attrs_of(node).get("axis", 1)) != axis:
        return None
    return _of_codes(*payload, scale.reshape(-1), optional(node, 2), bias)


@record
class ChannelCodes:
    """Weights (codes - zero) * scale; `zero` and `scale` have the weights' rank, with their
    channels on one axis.
    """

    codes: WeightData
    zero: Array
    scale: Array


def channel_codes(value: ir.Value) -> ChannelCodes | None:
    """Return the parts of a DequantizeLinear of 8-bit weights (or packed ones) that has a scale for
    each channel of any axis.
    """
    node = producer_if(value, "DequantizeLinear")
    if node is None or attrs_of(node).get("block_size", 0) or value.shape is None:
        return None
    scale, payload, given = constant(node.inputs[1]), _payload(operand(node)), optional(node, 2)
    zero = np.zeros(1) if given is None else constant(given)
    if scale is None or scale.size < 2 or scale.dtype != np.float32:
        return None
    if payload is None or zero is None:
        return None
    rank, axis = value.shape.rank(), int(attrs_of(node).get("axis", 1))
    codes = _of_codes(*payload, np.ones(1, np.float32), None, np.zeros(0, np.float32))
    if codes is None:
        return None
    shape = [-1 if i == axis % rank else 1 for i in range(rank)]
    zeros = np.broadcast_to(zero.astype(np.float32), scale.shape)
    return ChannelCodes(codes, zeros.reshape(shape), scale.reshape(shape))


def _table(gather: ir.Node) -> WeightData | None:
    table, index = constant(gather.inputs[0]), operand(gather, 1)
    if table is None or table.ndim != 1 or attrs_of(gather).get("axis", 0):
        return None
    payload = _payload(producer_operand(index, "Cast") or index)
    if payload is None or payload[0].dtype != np.uint8 or table.size != 1 << payload[1]:
        return None
    codes, bits = payload
    return WeightData("quantised", LazyTensor(codes), bits, lut=np.asarray(table, np.float32))


def _payload(codes: ir.Value, transposed: bool = False) -> tuple[Array, int] | None:
    """Return the bytes and the bit width of quantized values, of a transposed matrix if
    `transposed`; None when they are not constant or of another type.
    """
    node = codes.producer()
    packs = node is not None and node.op_type == "UnpackBits" and not transposed
    if node is not None and packs and attrs_of(node).get("order", "msb") == "msb":
        packed = constant(node.inputs[0])
        return None if packed is None else (packed, int(attrs_of(node)["bits"]))
    array = constant(codes)
    array = array.T if array is not None and transposed else array
    if array is not None and codes.dtype == ir.DataType.UINT4:
        flat = array.reshape(-1).astype(np.uint8)
        pairs = np.pad(flat, (0, -flat.size % 2)).reshape(-1, 2)
        return pairs[:, 0] << 4 | pairs[:, 1], 4
    if array is not None and codes.dtype == ir.DataType.INT4:
        array = array.astype(np.int8)
    return (array, 8) if array is not None and array.dtype in (np.uint8, np.int8) else None


def _of_codes(
    codes: Array, bits: int, scale: Array, zero: ir.Value | None, bias: Array
) -> WeightData | None:
    """w = (q - zero) * scale + bias as q' * scale + bias' with unsigned q'."""
    zeros = np.zeros(1, np.float64) if zero is None else constant(zero)
    if zeros is None:
        return None
    shift = -zeros.reshape(-1).astype(np.float64)
    if codes.dtype == np.int8:
        shift = shift - 128
    total = shift * scale.astype(np.float64) + (bias if bias.size else 0.0)
    offset = np.asarray(total, np.float32) if np.any(total) else np.zeros(0, np.float32)
    if offset.size and offset.size != scale.size:
        offset = np.broadcast_to(offset, scale.shape)
    weight = LazyTensor(codes)
    if codes.dtype == np.int8:
        weight = weight.derived(
            lambda array: np.ascontiguousarray(array).view(np.uint8) ^ 0x80, ir.DataType.UINT8
        )
    return WeightData("quantised", weight, bits, scale=scale, bias=offset)


def dynamic_int8(value: ir.Value | None) -> WeightData | None:
    """Signed 8-bit weights with one scale, as int8 dynamic quantization stores them; None when
    `value` is not of that form.
    """
    node = producer_if(value, "DequantizeLinear")
    if node is None or len(node.inputs) > 2:
        return None
    codes, scale = constant(node.inputs[0]), constant(node.inputs[1])
    if codes is None or scale is None or codes.dtype != np.int8 or scale.size != 1:
        return None
    return WeightData("int8", LazyTensor(codes), 8, scale=np.asarray(scale, np.float32).reshape(-1))
