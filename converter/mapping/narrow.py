"""Types that a target lacks, and the narrower types that replace them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError, Where
from converter.graph.infer import Array
from converter.graph.names import public_name
from converter.graph.value import type_name
from converter.record import record


@record
class Narrowing:
    """Types that a target lacks and their replacements, such as INT64 -> INT32.

    Constants are checked value by value. An activation produces one warning X205, because its
    values are known only at run time.
    """

    table: Mapping[ir.DataType, ir.DataType]
    notes: list[Diagnostic] = field(default_factory=list)
    _warned: set[ir.Value] = field(default_factory=set)

    def dtype(self, value: ir.Value) -> ir.DataType:
        """Return the type in which `value` is written."""
        own = value.dtype or ir.DataType.FLOAT
        narrow = self.table.get(own)
        if narrow is None:
            return own
        boundary = value.is_graph_input() or value.is_graph_output()
        if boundary and value not in self._warned:
            self._warned.add(value)
            name = public_name(value)
            text = f"{name} is {type_name(own)}; it is stored as {type_name(narrow)}"
            note = Diagnostic("X205", text, level="warning", where=Where(layer=name))
            self.notes.append(note)
        return narrow

    def array(self, tensor: ir.TensorProtocol, name: str = "") -> Array:
        """Return the constant in the type in which it is written.

        Raise MappingError X204 if a value cannot be represented.
        """
        narrow = self.table.get(tensor.dtype)
        return (
            tensor.numpy()
            if narrow is None
            else narrow_array(tensor.numpy(), narrow.numpy(), name or tensor.name or "constant")
        )


def narrow_array(array: Array, dtype: np.dtype, name: str) -> Array:
    """Cast `array` to `dtype`; floats may be rounded, but neither overflow nor lose an integer."""
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(dtype)
    if np.dtype(dtype).kind == "f" and array.dtype.kind == "f":
        lost = np.isinf(result.astype(np.float64)) & ~np.isinf(array.astype(np.float64))
    else:
        # a round trip alone does not detect that 2^32 - 1 becomes a negative number
        changed = (result < 0) != (array < 0)
        lost = ((result.astype(array.dtype) != array) | changed) & ~(_is_nan(array))
    if lost.any():
        half = np.dtype(dtype) == np.float16
        raise MappingError(
            f"{name} contains {array[lost].reshape(-1)[0]}, which "
            f"{np.dtype(dtype).name} cannot represent",
            "X204",
            "single precision holds it: name the target without +fp16" if half else "",
        )
    return result


def _is_nan(array: Array) -> Array:
    return np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)
