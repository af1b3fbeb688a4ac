"""Scale, zero point and type of a quantized tensor, and their form in a file.

Files of the vendor's quantizer store the reciprocal of the scale and the negative of the zero
point; files of its parser (`compat_quantized_model=true` in the header) store scale and zero point
themselves. QuantParams are always in ONNX's sense.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.ir import Graph, Layer, Tensor
from converter.formats.zhouyi.types import ir_dtype
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import Array, constant
from converter.graph.value import Value, optional, type_name

T = ir.DataType
# types that QuantizeLinear and DequantizeLinear support
_LINEAR = frozenset({T.INT8, T.UINT8, T.INT16, T.UINT16})
_INDICES = frozenset({T.INT32, T.UINT32, T.INT64, T.UINT64})


@dataclass(frozen=True)
class QuantParams:
    """Scale, zero point and range of a tensor: value = (q - zero) * scale with low <= q <= high,
    stored as `dtype`. `stated`: the scale as a file of the quantizer states it, a reciprocal with
    more digits.
    """

    scale: float
    zero: int
    low: int
    high: int
    dtype: ir.DataType
    stated: float = field(default=0.0, compare=False)

    @classmethod
    def of(cls, scale: float, zero: int, dtype: ir.DataType) -> QuantParams:
        """Return the parameters of a type with its whole range."""
        return cls(scale, zero, int(dtype.min), int(dtype.max), dtype)

    @property
    def plain(self) -> bool:
        """Return whether the integers are the real numbers themselves."""
        return self.scale == 1.0 and self.zero == 0

    @property
    def indices(self) -> bool:
        """Return whether the tensor is not quantized: counts and positions are stored like that."""
        return self.plain and self.dtype in _INDICES

    @property
    def linear(self) -> bool:
        """Return whether ONNX's own operators support the parameters: their zero point has the
        storage type.
        """
        return self.dtype in _LINEAR and bool(self.dtype.min <= self.zero <= self.dtype.max)

    @property
    def full(self) -> bool:
        return bool(self.low <= self.dtype.min and self.high >= self.dtype.max)

    @property
    def every(self) -> Array:
        """Return the real numbers of all integers of the type, lowest first."""
        return self.real(np.arange(self.dtype.min, self.dtype.max + 1))

    def quantize(self, array: Array) -> Array:
        """Quantize floats: rounded to even, clamped to the range."""
        with np.errstate(over="ignore"):
            y = np.rint(array.astype(np.float32) / np.float32(self.scale)) + self.zero
        return np.asarray(np.clip(y, self.low, self.high), self.dtype.numpy())

    def real(self, array: Array) -> Array:
        """Return quantized values as floats."""
        y = (array.astype(np.float32) - np.float32(self.zero)) * np.float32(self.scale)
        return y.astype(np.float32)

    def operands(self, b: Builder) -> tuple[Value, Value]:
        """Return scale and zero point as constants."""
        zero = np.asarray(self.zero, self.dtype.numpy())
        return b.const(np.float32(self.scale), "scale"), b.const(zero, "zero_point")


# nodes -------------------------------------------------------------------------------------------


def dequantized(b: Builder, x: ir.Value, params: QuantParams) -> Value:
    """Return quantized values as real numbers."""
    if params.linear and x.dtype == params.dtype:
        return b.DequantizeLinear(x, *params.operands(b))
    y = b.Cast(x, to=T.FLOAT)
    if params.zero:
        y = y - params.zero
    return y if params.scale == 1.0 else y * params.scale


def quantized(b: Builder, y: Value, params: QuantParams) -> Value:
    """Return the quantized values of numbers, clamped to the allowed range."""
    low, high = params.low, params.high
    if params.linear:
        if not params.full:
            y = b.Clip(y, *((q - params.zero) * params.scale for q in (low, high)))
        return b.QuantizeLinear(y, *params.operands(b))
    y = b.Round(y if params.scale == 1.0 else y / params.scale)
    if params.zero:
        y = y + params.zero
    # a float32 does not hold 2 ** 31 - 1, the number below it is a multiple of 128
    high = min(high, 2**31 - 128) if params.dtype == T.INT32 else high
    return b.Cast(b.Clip(y, low, high), to=params.dtype)


def params_of_node(node: ir.Node) -> QuantParams:
    """Return the params of a QuantizeLinear or DequantizeLinear of an activation; raise
    MappingError if it has several scales, or computed ones.
    """
    scale = constant(node.inputs[1])
    given: Any = optional(node, 2)
    zero = np.zeros(1, np.int64) if given is None else constant(given)
    stored = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    if scale is None or zero is None or stored is None or stored.dtype is None:
        raise MappingError("scale and zero point must be constant")
    if scale.size != 1 or attrs_of(node).get("block_size", 0):
        raise MappingError("an activation with several scales is not supported")
    if not stored.dtype.is_integer() or stored.dtype.bitwidth not in (8, 16, 32):
        raise MappingError(f"{type_name(stored.dtype)} is not supported", "X201")
    if not float(scale.reshape(-1)[0]) > 0:
        raise MappingError(f"the scale must be positive, got {scale.reshape(-1)[0]}")
    return QuantParams.of(float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]), stored.dtype)


# files -------------------------------------------------------------------------------------------


def of_parser(document: Graph) -> bool:
    """Return whether the file is the parser's: scales and zero points as ONNX has them."""
    return document.header.get("compat_quantized_model") is True


def params_of_tensors(document: Graph, parser: bool) -> dict[str, QuantParams | MappingError]:
    """Return the params of each quantized tensor by its name; the reason if QuantParams does not
    support them. `parser` as in `of_parser`.
    """
    found: dict[str, QuantParams | MappingError] = {}
    for layer in document.layers:
        scales, zeros, ranges = (
            per_output(layer, f"layer_top_{k}") for k in ("scale", "zp", "range")
        )
        for i, tensor in enumerate(layer.outputs):
            if tensor.dtype is None or tensor.dtype.is_float or i >= min(len(scales), len(zeros)):
                continue
            limits = ranges[i] if i < len(ranges) else None
            try:
                found[tensor.name] = _params(tensor, scales[i], zeros[i], limits, parser)
            except MappingError as e:
                found[tensor.name] = e
            except (ValueError, TypeError, OverflowError) as e:
                what = f"the scale, zero point or range of {tensor.name}"
                message = f"{what} is invalid: {str(e)[:100]}"
                found[tensor.name] = MappingError(message, "R110")
    return found


def per_output(layer: Layer, key: str) -> list[Any]:
    """Return the numbers or arrays under `key` for each output of a layer."""
    if key in layer.constant_lists:
        return [c.array.reshape(-1) for c in layer.constant_lists[key]]
    if key in layer.constants:
        return [layer.constants[key].array.reshape(-1)]
    given = layer.attrs.get(key, [])
    return given if isinstance(given, list) else [given]


def _params(tensor: Tensor, scale: Any, zero: Any, limits: Any, parser: bool) -> QuantParams:
    assert tensor.dtype is not None
    dtype = ir_dtype(tensor.dtype)
    scales, zeros = (np.unique(np.asarray(v, np.float64)) for v in (scale, zero))
    if scales.size != 1 or zeros.size != 1:
        what = f"{tensor.name} has a scale for each slice"
        raise MappingError(f"{what}, which is not supported for an activation")
    if not scales[0] > 0 or not np.isfinite(scales[0]):
        message = f"the scale of {tensor.name} must be positive, got {scales[0]}"
        raise MappingError(message, "R110")
    step = float(np.float32(scales[0] if parser else 1 / scales[0]))
    full = QuantParams.of(step, int(zeros[0] if parser else -zeros[0]), dtype)
    full = replace(full, stated=float(scales[0]))
    # real networks give a range of their quantized values only in files of the quantizer; the
    # parser's are ranges of numbers
    if parser or limits is None or np.shape(limits) != (2,) or isinstance(limits[0], str):
        return full
    low, high = max(full.low, int(limits[0])), min(full.high, int(limits[1]))
    return replace(full, low=low, high=high)
