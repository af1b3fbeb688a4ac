"""The grid of numbers that a quantised tensor can hold, and what a file says about it.

Files of the vendor's quantiser store the reciprocal of the step and the negative of the zero point; files of its parser
(`compat_quantized_model=true` in the header) store the step and the zero point themselves. A Grid is always in ONNX's sense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.ir import Graph, Layer, Tensor
from converter.formats.zhouyi.types import ir_dtype
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.mapping.node import MappingError

FLOAT = int(ir.DataType.FLOAT)
# what QuantizeLinear and DequantizeLinear take
_LINEAR = frozenset({ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16})
_INDICES = frozenset({ir.DataType.INT32, ir.DataType.UINT32, ir.DataType.INT64, ir.DataType.UINT64})


@dataclass(frozen=True)
class Grid:
    """value = (q - zero) * scale with low <= q <= high, stored as `dtype`."""

    scale: float
    zero: int
    low: int
    high: int
    dtype: ir.DataType

    @classmethod
    def of(cls, scale: float, zero: int, dtype: ir.DataType) -> Grid:
        info = np.iinfo(dtype.numpy())
        return cls(scale, zero, int(info.min), int(info.max), dtype)

    @property
    def plain(self) -> bool:
        """Whether the stored integers are the numbers themselves."""
        return self.scale == 1.0 and self.zero == 0

    @property
    def indices(self) -> bool:
        """Whether nothing is quantised here: counts and positions are stored like that."""
        return self.plain and self.dtype in _INDICES

    @property
    def linear(self) -> bool:
        """Whether ONNX's own operators can say it: the zero point has the stored type there."""
        info = np.iinfo(self.dtype.numpy())
        return self.dtype in _LINEAR and info.min <= self.zero <= info.max

    @property
    def full(self) -> bool:
        info = np.iinfo(self.dtype.numpy())
        return self.low <= info.min and self.high >= info.max

    def quantise(self, array: Array) -> Array:
        with np.errstate(over="ignore"):
            y = np.rint(array.astype(np.float32) / np.float32(self.scale)) + self.zero
        return np.asarray(np.clip(y, self.low, self.high), self.dtype.numpy())

    def real(self, array: Array) -> Array:
        return ((array.astype(np.float32) - np.float32(self.zero)) * np.float32(self.scale)).astype(np.float32)

    def operands(self, b: Builder) -> tuple[ir.Value, ir.Value]:
        return b.const(np.float32(self.scale), "scale"), b.const(np.asarray(self.zero, self.dtype.numpy()), "zero_point")


def dequantised(b: Builder, x: ir.Value, grid: Grid) -> ir.Value:
    """Stored integers as numbers."""
    if grid.linear and x.dtype == grid.dtype:
        return b.op("DequantizeLinear", x, *grid.operands(b))
    y = b.op("Cast", x, to=FLOAT)
    if grid.zero:
        y = b.op("Sub", y, b.like(y, grid.zero))
    return y if grid.scale == 1.0 else b.op("Mul", y, b.like(y, grid.scale))


def quantised(b: Builder, y: ir.Value, grid: Grid) -> ir.Value:
    """Numbers as stored integers, within the range of the grid."""
    if grid.linear:
        if not grid.full:
            y = b.op("Clip", y, b.like(y, (grid.low - grid.zero) * grid.scale), b.like(y, (grid.high - grid.zero) * grid.scale))
        return b.op("QuantizeLinear", y, *grid.operands(b))
    y = b.op("Round", y if grid.scale == 1.0 else b.op("Div", y, b.like(y, grid.scale)))
    if grid.zero:
        y = b.op("Add", y, b.like(y, grid.zero))
    # a float32 does not hold 2 ** 31 - 1, the number below it is a multiple of 128
    high = min(grid.high, 2**31 - 128) if grid.dtype == ir.DataType.INT32 else grid.high
    return b.op("Cast", b.op("Clip", y, b.like(y, grid.low), b.like(y, high)), to=int(grid.dtype))


def stores_steps(document: Graph) -> bool:
    """Whether the file is the parser's: steps and zero points as ONNX has them."""
    return document.header.get("compat_quantized_model") is True


def grids(document: Graph, steps: bool) -> dict[str, Grid | MappingError]:
    """The grid of each quantised tensor by its name; for one that no Grid can say, the reason. `steps` as `stores_steps` says."""
    found: dict[str, Grid | MappingError] = {}
    for layer in document.layers:
        scales, zeros, ranges = (_per_output(layer, f"layer_top_{k}") for k in ("scale", "zp", "range"))
        for i, tensor in enumerate(layer.outputs):
            if tensor.dtype is None or tensor.dtype.is_float or i >= min(len(scales), len(zeros)):
                continue
            try:
                found[tensor.name] = _grid(tensor, scales[i], zeros[i], ranges[i] if i < len(ranges) else None, steps)
            except MappingError as e:
                found[tensor.name] = e
            except (ValueError, TypeError, OverflowError) as e:
                found[tensor.name] = MappingError(f"the scale, zero point or range of {tensor.name} does not make sense: {str(e)[:100]}", "R110")
    return found


def _per_output(layer: Layer, key: str) -> list[Any]:
    if key in layer.constant_lists:
        return [c.array.reshape(-1) for c in layer.constant_lists[key]]
    if key in layer.constants:
        return [layer.constants[key].array.reshape(-1)]
    given = layer.attrs.get(key, [])
    return given if isinstance(given, list) else [given]


def _grid(tensor: Tensor, scale: Any, zero: Any, limits: Any, steps: bool) -> Grid:
    assert tensor.dtype is not None
    dtype = ir_dtype(tensor.dtype)
    scales, zeros = (np.unique(np.asarray(v, np.float64)) for v in (scale, zero))
    if scales.size != 1 or zeros.size != 1:
        raise MappingError(f"{tensor.name} has a scale for each slice, which has no counterpart for an activation")
    if not scales[0] > 0 or not np.isfinite(scales[0]):
        raise MappingError(f"the scale of {tensor.name} is {scales[0]}, a positive number is needed", "R110")
    step = float(np.float32(scales[0] if steps else 1 / scales[0]))
    full = Grid.of(step, int(zeros[0] if steps else -zeros[0]), dtype)
    # real networks give a range of their stored integers only in files of the quantiser; the parser's are ranges of numbers
    if steps or limits is None or len(np.shape(limits)) != 1 or np.size(limits) != 2 or isinstance(limits[0], str):
        return full
    return Grid(full.scale, full.zero, max(full.low, int(limits[0])), min(full.high, int(limits[1])), dtype)
