"""The registry of the pairs that no row can say, and what they share: attributes, operands, emission of several layers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.codes import AS_STORED, Coded, reshaped
from converter.graph.build import Builder
from converter.graph.infer import known, rank_of, shape_of
from converter.mapping.codecs import bool_text, csv, csv_floats, float_of, int_of, number_text
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node
from converter.mapping.pairs import Pairs

PAIRS = Pairs()
LIFT, LOWER, lifts, lowers = PAIRS.lift, PAIRS.lower, PAIRS.lifts, PAIRS.lowers
Array = np.ndarray[Any, np.dtype[Any]]
SIGNED = {getattr(ir.DataType, f"INT{n}"): getattr(ir.DataType, f"UINT{n}") for n in (8, 16, 32, 64)}  # the unsigned type of as many bits


class FloatList(list[float]):
    """As a default: the attribute is a list of numbers, whatever they look like."""


# reading -------------------------------------------------------------------------------------------------------------


def attributes(layer: Layer, *ignored: str, **defaults: Any) -> SimpleNamespace:
    """The attributes of a layer as Python values, typed by their defaults; a type instead of a default makes one required.

    A keyword `exclude_pad` also stands for the spelling `exclude-pad`. An attribute that is not named is an error R111.
    """
    spelled = {name.replace("-", "_"): name for name in layer.attrs}
    for key in spelled:
        if key not in defaults and key not in ignored:
            raise MappingError(f"attribute {spelled[key]!r} is not known", "R111")
    values = {}
    for key, default in defaults.items():
        required = isinstance(default, type)
        if key not in spelled:
            if required:
                raise MappingError(f"required attribute {key!r} is absent", "R110")
            values[key] = default
            continue
        text = layer.attrs[spelled[key]]
        try:
            values[key] = _parse(str(text), default if required else type(default))
        except (ValueError, TypeError, OverflowError):
            raise MappingError(f"{spelled[key]}={text!r} is not a valid value", "R110") from None
    return SimpleNamespace(**values)


def _parse(text: str, kind: Any) -> Any:
    if kind is bool:
        return bool(bool_text.lift(text.strip()))
    if kind is list:
        return csv.lift(text)
    if issubclass(kind, list):  # FloatList
        return csv_floats.lift(text)
    if kind is tuple:  # words
        return tuple(w.strip().lower() for w in text.split(",") if w.strip())
    if kind is str:
        return text.strip().lower()
    return int_of(text) if kind is int else float_of(text) if kind is float else kind(text.strip())


def operand(layer: Layer, index: int) -> ir.Value:
    value = layer.inputs[index] if index < len(layer.inputs) else None
    if value is None:
        raise MappingError(f"input {index} is absent", "R105")
    return value


def optional(layer: Layer, index: int) -> ir.Value | None:
    return layer.inputs[index] if index < len(layer.inputs) else None


def opset(layer: Layer) -> int:
    """The number of the layer's opset: which revision of the operation it is."""
    return int(layer.extra[1].lifting.version) if layer.extra is not None else 16


def ints(value: ir.Value | None, what: str) -> list[int]:
    """The values of an operand that must be known when converting."""
    array = known(value)
    if array is None:
        raise MappingError(f"{what} must be known when converting", "X202", "constants only; fix the inputs' shapes when it depends on them")
    return [int(v) for v in np.asarray(array).reshape(-1)]


def scalar(value: ir.Value | None, what: str) -> float:
    array = known(value)
    if array is None or array.size != 1:
        raise MappingError(f"{what} must be one number that is known when converting")
    return float(np.asarray(array).reshape(-1)[0])


def rank(value: ir.Value, what: str = "the input") -> int:
    found = rank_of(value)
    if found is None:
        raise MappingError(f"the rank of {what} is unknown", "X203", "fix the shapes with --inputs")
    return found


def static(value: ir.Value, what: str = "the input") -> tuple[int, ...]:
    found = shape_of(value)
    if found is None:
        raise MappingError(f"the shape of {what} must be static", "X203", "fix the shapes with --inputs")
    return found


def dim(value: ir.Value, axis: int) -> int | None:
    """One static dimension, or None."""
    if value.shape is None or not -len(value.shape) <= axis < len(value.shape):
        return None
    found = value.shape[axis]
    return found if isinstance(found, int) else None


def is_float(value: ir.Value | None) -> bool:
    return value is None or value.dtype is None or value.dtype.is_floating_point()


def cast(b: Builder, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """`value` in another type; constants stay constants."""
    if value.dtype == dtype:
        return value
    array = known(value)
    if array is not None and value.const_value is not None and dtype.numpy().kind in "iufb" and array.dtype.kind in "iufb":
        return b.const(array.astype(dtype.numpy()), value.name or "const")
    return b.op("Cast", value, to=int(dtype))


def int64(b: Builder, value: ir.Value, flat: bool = False) -> ir.Value:
    """An index operand as int64; `flat`: of rank 1."""
    value = cast(b, value, ir.DataType.INT64)
    return b.op("Reshape", value, [-1]) if flat and rank_of(value) != 1 else value


def reshape(b: Builder, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """A Reshape; of a constant, the reshaped constant (a view)."""
    if value.const_value is not None and value.const_value.dtype.bitwidth >= 8:
        return b.const(value.const_value.numpy().reshape(shape), value.name or "const")
    return b.op("Reshape", value, list(shape))


def transpose(b: Builder, value: ir.Value, perm: Sequence[int]) -> ir.Value:
    if list(perm) == list(range(len(perm))):
        return value
    if value.const_value is not None and value.const_value.dtype.bitwidth >= 8:
        return b.const(value.const_value.numpy().transpose(perm), value.name or "const")
    return b.op("Transpose", value, perm=list(perm))


def near_axis(axis: int, rank_: int) -> int:
    if not -rank_ <= axis < max(rank_, 1):
        raise MappingError(f"axis {axis} does not exist in rank {rank_}", "R110")
    return axis + rank_ if axis < 0 else axis


# writing -------------------------------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """An attribute as the format spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(text_of(v) for v in value)
    return number_text(value) if isinstance(value, float) else str(value)


def constant_input(low: Lowering, array: Any, name: str = "const") -> ir.Value:
    """A constant that becomes a Const layer in front of the layer that uses it."""
    tensor = ir.Tensor(np.asarray(array)) if isinstance(array, np.ndarray | np.generic) else array
    value = low.value(name, None, tensor.shape.numpy())
    value.const_value = tensor
    value.type = ir.TensorType(tensor.dtype)
    return value


class Emit:
    """Writes the layers of one node: `op` gives an intermediate value, `out` the node's own outputs.

    Operands are values, arrays, or lists and integers (int64 constants); attributes that are None are left out.
    """

    def __init__(self, node: Node, low: Lowering) -> None:
        self.node, self.low = node, low

    def _operands(self, inputs: Sequence[Any]) -> list[ir.Value | None]:
        def value(v: Any) -> ir.Value | None:
            if v is None or isinstance(v, ir.Value):
                return v
            return constant_input(self.low, np.asarray(v, np.int64) if isinstance(v, int | list | tuple | range) else v)

        return [value(v) for v in inputs]

    def op(self, kind: str, *inputs: Any, dtype: ir.DataType | None = None, **attrs: Any) -> ir.Value:
        operands = self._operands(inputs)
        first = operands[0]
        result = self.low.value(kind.lower(), dtype or (first.dtype if first is not None else None), None)
        self.low.add(kind, operands, [result], {k: text_of(v) for k, v in attrs.items() if v is not None})
        return result

    def out(self, kind: str, *inputs: Any, outputs: Sequence[ir.Value] | None = None, revision: int | None = None, **attrs: Any) -> None:
        """`revision`: the opset of an operation whose newest form means something else."""
        results = list(self.node.outputs if outputs is None else outputs)
        self.low.add(kind, self._operands(inputs), results, {k: text_of(v) for k, v in attrs.items() if v is not None}, extra=revision)

    def ints(self, value: ir.Value | None) -> Any:
        """A known operand as a list (it becomes a constant), else the operand itself."""
        array = known(value)
        return value if array is None else np.asarray(array)

    def reshape(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        if value.const_value is not None:
            return constant_input(self.low, reshaped(value.const_value, shape), value.name or "const")
        return self.op("Reshape", value, list(shape), special_zero=False)

    def stored(self, value: ir.Value) -> ir.Value:
        """For readers that take the type in which a constant is stored: no Convert of a packed constant in between."""
        if not isinstance(value.const_value, Coded):
            return value
        result = constant_input(self.low, value.const_value, value.name or "const")
        result.meta[AS_STORED] = True
        return result


def given(node: Node, index: int) -> ir.Value:
    value = node.input(index)
    if value is None:
        raise MappingError(f"input {index} is absent")
    return value


def needs(low: Lowering, kind: str, version: int) -> None:
    """Refuses an operation that the opset to write does not have yet."""
    if low.version < version:
        raise MappingError(f"{kind} needs opset{version}", "X206")


def filled(node: Node) -> dict[str, Any]:
    """The attributes of a canonical node with its schema's defaults."""
    from converter.mapping.table import defaults

    return {**defaults(node.op, node.domain), **node.attrs}
