"""How a lift function sees an operation: operands by the names of the schema, dequantised where it computes.

A lift function takes `Args` and returns the real (float) results; the driver quantises them as the output operands say, so that a
quantised table becomes a graph of DequantizeLinear -> operator -> QuantizeLinear. Functions that move stored integers as they are ask
for `stored` values and are entered with `raw=True`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.operations import Binding
from converter.formats.nnapi.table import Array, Operand, OperandType
from converter.graph import CHANNELS_LAST_DOMAIN, EXTENSION_DOMAIN
from converter.graph.build import Builder
from converter.graph.infer import known, shape_of
from converter.mapping.node import MappingError

T = OperandType
QUANTISED = frozenset(t for t in T if "QUANT" in t.name)
DATA_TYPES = {
    T.TENSOR_FLOAT32: ir.DataType.FLOAT, T.FLOAT32: ir.DataType.FLOAT, T.TENSOR_FLOAT16: ir.DataType.FLOAT16, T.FLOAT16: ir.DataType.FLOAT16,
    T.TENSOR_INT32: ir.DataType.INT32, T.INT32: ir.DataType.INT32, T.UINT32: ir.DataType.UINT32, T.TENSOR_BOOL8: ir.DataType.BOOL, T.BOOL: ir.DataType.BOOL,
    T.TENSOR_QUANT8_ASYMM: ir.DataType.UINT8, T.TENSOR_QUANT8_ASYMM_SIGNED: ir.DataType.INT8, T.TENSOR_QUANT8_SYMM: ir.DataType.INT8,
    T.TENSOR_QUANT16_SYMM: ir.DataType.INT16, T.TENSOR_QUANT16_ASYMM: ir.DataType.UINT16, T.TENSOR_QUANT8_SYMM_PER_CHANNEL: ir.DataType.INT8,
}  # fmt: skip

LiftOp = Callable[["Args"], "ir.Value | Sequence[ir.Value]"]
LIFT: dict[str, LiftOp] = {}
RAW: set[str] = set()


def lifts(*names: str, raw: bool = False) -> Callable[[LiftOp], LiftOp]:
    """Enters a function under the operations' names. `raw`: its results are stored integers, not to be quantised."""

    def enter(f: LiftOp) -> LiftOp:
        for name in names:
            assert name not in LIFT, name
            LIFT[name] = f
            if raw:
                RAW.add(name)
        return f

    return enter


@dataclass
class Args:
    """One operation. `values[i]` is the graph value of operand i; constants are values too."""

    name: str
    b: Builder
    binding: Binding
    operands: Sequence[Operand]
    values: dict[int, ir.Value]
    reals: dict[int, ir.Value] = field(default_factory=dict)  # operand -> its dequantised value, shared by all users

    def index(self, name: str) -> int | None:
        found = self.binding.inputs.get(name)
        if isinstance(found, list):
            found = found[0] if found else None
        return None if found is None or found not in self.values else found

    def has(self, name: str) -> bool:
        return self.index(name) is not None

    def operand(self, name: str) -> Operand:
        index = self.index(name)
        if index is None:
            raise MappingError(f"the input {name!r} is absent", "R105")
        return self.operands[index]

    def stored(self, name: str) -> ir.Value:
        """The value as it is stored (integers of a quantised operand)."""
        index = self.index(name)
        if index is None:
            raise MappingError(f"the input {name!r} is absent", "R105")
        return self.values[index]

    def real(self, name: str) -> ir.Value:
        """The value as real numbers (or as it is, for integers and booleans)."""
        self.operand(name)
        return self._real(self.index(name) or 0)

    def reals_of(self, name: str) -> list[ir.Value]:
        """All values of a repeated input."""
        found = self.binding.inputs.get(name)
        return [self._real(i) for i in (found if isinstance(found, list) else [found]) if i is not None]

    def _real(self, index: int) -> ir.Value:
        if index not in self.values:
            raise MappingError(f"operand {index} has no value where it is read", "R105")
        if index not in self.reals:
            self.reals[index] = dequantise(self.b, self.values[index], self.operands[index])
        return self.reals[index]

    def number(self, name: str, default: float = 0.0) -> float:
        """A scalar that the signature wants constant."""
        index = self.binding.inputs.get(name)
        if index is None or isinstance(index, list) or index not in self.values:
            return default
        array = known(self.values[index])
        if array is None:
            raise MappingError(f"{name!r} must be constant")
        return array.reshape(-1)[0].item()  # type: ignore[no-any-return]

    def integer(self, name: str, default: int = 0) -> int:
        return int(self.number(name, default))

    def flag(self, name: str) -> bool:
        return bool(self.number(name, 0))

    def array(self, name: str) -> Array:
        """A constant tensor as it is stored."""
        array = known(self.stored(name))
        if array is None:
            value = self.stored(name)
            if value.const_value is None:
                raise MappingError(f"{name!r} must be constant")
            return value.const_value.numpy()
        return array

    def ints(self, name: str) -> list[int]:
        return [int(v) for v in self.array(name).reshape(-1)]

    def permuted(self, name: str, perm: Sequence[int]) -> ir.Value:
        """Weights in another order of axes, dequantised: a view of the constant, else a Transpose."""
        value, operand = self.stored(name), self.operand(name)
        if value.const_value is None:
            return self.b.op("Transpose", self.real(name), perm=list(perm))
        turned = self.b.const(value.const_value.numpy().transpose(perm), str(value.name))
        axis = list(perm).index(operand.channel_quant.dim) if operand.channel_quant else None
        return dequantise(self.b, turned, operand, axis)

    @property
    def domain(self) -> str:
        """The domain of a layout-sensitive operator: the channels-last twin unless the operation says NCHW."""
        return "" if "nchw" in self.binding.inputs and self.flag("nchw") else CHANNELS_LAST_DOMAIN

    def twin(self, op_type: str, *inputs: Any, extension: bool = False, **attributes: Any) -> ir.Value:
        """A layout-sensitive operator in the operation's own layout."""
        domain = self.domain
        if extension and domain == CHANNELS_LAST_DOMAIN:
            attributes["base_domain"] = EXTENSION_DOMAIN
        elif extension:
            domain = EXTENSION_DOMAIN
        return self.b.ops(op_type, *inputs, domain=domain, **attributes)[0]

    def spatial(self, name: str = "input") -> tuple[int, int]:
        """Height and width of an image operand."""
        shape = self.shape(name)
        return (shape[2], shape[3]) if self.domain == "" else (shape[1], shape[2])

    def channels(self, name: str = "input") -> int:
        shape = self.shape(name)
        return shape[1] if self.domain == "" else shape[-1]

    def shape(self, name: str = "input") -> tuple[int, ...]:
        shape = shape_of(self.stored(name))
        if shape is None:
            raise MappingError(f"the shape of {name!r} must be static", "X203", "fix the inputs with --inputs NAME:1,224,224,3")
        return shape

    def activated(self, y: ir.Value, name: str = "activation") -> ir.Value:
        """The fused activation: 0 none, 1 RELU, 2 RELU1 (-1..1), 3 RELU6."""
        code = self.integer(name)
        if code == 0:
            return y
        if code == 1:
            return self.b.op("Relu", y)
        if code not in (2, 3):
            raise MappingError(f"activation {code} is not known", "R110")
        return self.b.op("Clip", y, self.b.like(y, -1 if code == 2 else 0), self.b.like(y, 1 if code == 2 else 6))

    def output(self, index: int = 0) -> Operand:
        """The operand that output `index` is written to."""
        flat = [i for found in self.binding.outputs.values() if found is not None for i in (found if isinstance(found, list) else [found])]
        return self.operands[flat[index]]


def dequantise(b: Builder, value: ir.Value, operand: Operand, axis: int | None = None) -> ir.Value:
    """real = (stored - zero point) * scale; integers without a scale and floats stay as they are."""
    if operand.channel_quant is not None:
        dim = operand.channel_quant.dim if axis is None else axis
        return b.op("DequantizeLinear", value, np.array(operand.channel_quant.scales, np.float32), axis=dim)
    if operand.type == T.TENSOR_INT32 and operand.scale:
        return b.op("DequantizeLinear", value, np.array(operand.scale, np.float32))
    if operand.type not in QUANTISED or not operand.scale:
        return value
    return b.op("DequantizeLinear", value, np.array(operand.scale, np.float32), zero_point(operand))


def zero_point(operand: Operand) -> Array:
    return np.array(operand.zero_point, DATA_TYPES[operand.type].numpy())


def quantise(b: Builder, value: ir.Value, operand: Operand) -> ir.Value:
    """The stored form of a real result; other results are cast to the operand's own type."""
    wanted = DATA_TYPES[operand.type]
    if operand.type in QUANTISED and operand.scale and value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        if value.dtype != ir.DataType.FLOAT:
            value = b.op("Cast", value, to=int(ir.DataType.FLOAT))
        return b.op("QuantizeLinear", value, np.array(operand.scale, np.float32), zero_point(operand))
    return value if value.dtype == wanted or value.dtype is None else b.op("Cast", value, to=int(wanted))
