"""Constants of a quantized network that is written: DequantizeLinear of integers, perhaps through a
Transpose or Reshape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.quant_params import QuantParams
from converter.graph.build import attrs_of
from converter.graph.infer import Array, constant, evaluate
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.value import optional, producer_of

_MOVES = frozenset(
    (
        "Expand",
        "Flatten",
        "Identity",
        "Reshape",
        "Slice",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    )
)


@dataclass(eq=False)
class QuantizedConstant:
    """Quantized values with a scale and a zero point for each element (broadcast views), and a
    value for the real numbers.
    """

    stored: Array
    scales: Array
    zeros: Array
    value: ir.Value = field(init=False)

    def __post_init__(self) -> None:
        self.value = lazy_value("held", ir.DataType.FLOAT, self.stored.shape, self.real)

    def real(self) -> Array:
        """Return the constant as floats."""
        whole = self.stored.astype(np.float32) - self.zeros.astype(np.float32)
        return (whole * self.scales).astype(np.float32)

    def params(self) -> QuantParams | None:
        """Return the params of all elements; None if they have several."""
        if not self.stored.size or np.ptp(self.scales) or np.ptp(self.zeros):
            return None
        return QuantParams.of(
            float(self.scales.flat[0]),
            int(self.zeros.flat[0]),
            ir.DataType.from_numpy(self.stored.dtype),
        )

    def as_float(self, array: Array) -> ir.Value:
        """Return a constant with the shape of the weights that contains other information about
        them.
        """
        return lazy_value(
            "held",
            ir.DataType.FLOAT,
            self.stored.shape,
            lambda: np.ascontiguousarray(array, np.float32),
        )


def lazy_value(
    name: str, dtype: ir.DataType, shape: tuple[int, ...], make: Callable[[], Array]
) -> ir.Value:
    """Return a constant that no graph has, computed when it is read."""
    weight = LazyTensor(make, dtype, shape, name)
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=weight.shape, const_value=weight)


def quantized_constant(value: ir.Value | None) -> QuantizedConstant | None:
    """Return the quantized constant of `value`, None if it is not one."""
    node = producer_of(value)
    if node is None or node.domain:
        return None
    if node.op_type == "DequantizeLinear":
        stored, scale = constant(node.inputs[0]), constant(node.inputs[1])
        return None if stored is None or scale is None else _of(node, stored, scale)
    if node.op_type not in _MOVES:
        return None
    inner = quantized_constant(node.inputs[0])
    rest = [constant(v) for v in node.inputs[1:]]
    computed = any(a is None for v, a in zip(node.inputs[1:], rest, strict=True) if v is not None)
    if inner is None or computed:
        return None
    moved = [evaluate(node, [a, *rest]) for a in (inner.stored, inner.scales, inner.zeros)]
    return QuantizedConstant(*(m[0] for m in moved)) if all(moved) else None


def _of(node: ir.Node, stored: Array, scale: Array) -> QuantizedConstant:
    attrs, given = attrs_of(node), optional(node, 2)
    zero = np.zeros(scale.shape, np.int64) if given is None else constant(given)
    if zero is None:
        raise MappingError("the zero point of constants must be constant")
    if stored.dtype.kind not in "iu":
        raise MappingError(f"constants of {stored.dtype} have no integer form")
    if attrs.get("block_size", 0):
        raise MappingError("block-wise scales are not supported")
    axis = int(attrs.get("axis", 1))
    along = axis % stored.ndim if scale.size > 1 else None
    shape = [-1 if i == along else 1 for i in range(stored.ndim)]
    scales, zeros = (
        np.broadcast_to(a.reshape(shape), stored.shape)
        for a in (scale.astype(np.float32), zero.astype(np.int64))
    )
    return QuantizedConstant(np.asarray(stored), scales, zeros)
