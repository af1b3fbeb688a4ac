"""Views of a layer of Compass IR for rows and custom converters, and the spelling of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.types import is_index
from converter.formats.zhouyi.values import DType
from converter.graph.demands import axis_of
from converter.graph.infer import Array, constant, shape_of
from converter.graph.value import Value, with_operators
from converter.mapping import context
from converter.mapping.codecs import (
    Codec,
    Floats,
    Kind,
    codec_of,
    flag,
    integer_of,
    number_of,
    same,
)
from converter.mapping.node import Layer


def single(value: Any) -> float:
    """Return the shortest decimal that reads back as the same float32; infinity on overflow."""
    with np.errstate(over="ignore"):
        return float(str(np.float32(np.asarray(value).reshape(()))))


def _elements(value: Any) -> list[Any]:
    """A list; a single value may lack its brackets."""
    if isinstance(value, int | float):
        return [value]
    if not isinstance(value, list | tuple | range):
        raise ValueError("not a list")
    return list(value)


# the text codec has determined the type of every value by its text; words are in upper case
SPELLING: Mapping[Kind, Codec] = {
    bool: Codec(flag.lift, flag.lower),
    int: Codec(integer_of, int),
    float: Codec(number_of, single),
    str: Codec(str, str),
    DType: same,
    Floats: Codec(lambda v: [float(x) for x in _elements(v)], lambda v: [single(x) for x in v]),
    list: Codec(lambda v: [integer_of(x) for x in _elements(v)], lambda v: [int(x) for x in v]),
}
WANTED = {
    int: "an integer of 64 bits",
    float: "a number",
    list: "a list of integers of 64 bits",
    Floats: "a list of numbers",
}


def blob_of(layer: Layer, name: str) -> Array:
    """Return a constant of a layer. Raises MappingError R110 if it is absent."""
    found = layer.blobs.get(name)
    if found is None:
        raise MappingError(f"the constant {name!r} is absent", "R110")
    return np.asarray(found)


class LiftContext(context.LiftContext):
    """A layer of a document; its outputs hold the types and shapes that the file declares."""

    def parse(self, key: str, value: Any, kind: Kind | Codec) -> Any:
        """Parse an attribute as the base class does; the error names the value of the key and the
        allowed values.
        """
        codec = codec_of(kind, self.spelling)
        shown = str(value)[:200]
        try:
            return codec.lift(value)
        except MappingError:
            known = ", ".join(map(str, (codec.table or {}).values()))
            message = f"{key}={shown} has no counterpart (known: {known})"
        except (ValueError, TypeError, OverflowError):
            wanted = WANTED.get(kind) if isinstance(kind, type) else None
            message = f"{key} must be {wanted or 'a valid value'}, got {shown}"
        raise MappingError(message, "R110")

    def cast(self, value: ir.Value, dtype: ir.DataType) -> Value:
        """Cast as the base class does; a value that a Cast produced from that type is taken from
        before its Cast.
        """
        node = value.producer()
        if node is not None and node.op_type == "Cast" and node.domain == "":
            source = node.inputs[0]
            if constant(value) is None and source is not None and source.dtype == dtype:
                return with_operators(source)
        return super().cast(value, dtype)

    def indices(self, index: int) -> ir.Value:
        """Return operand `index` in a type that lookups support: small integers become int32."""
        value = self.input(index)
        return value if is_index(value.dtype) else self.b.Cast(value, to=ir.DataType.INT32)

    def blob(self, name: str) -> Array:
        """Return the constant `name` of the layer; raise MappingError R110 if it is omitted."""
        return blob_of(self.layer, name)

    def weights(self, name: str, array: Array | None = None) -> ir.Value:
        """Return a constant of the layer, or `array` instead, as a value of the graph."""
        return self.b.const(
            self.blob(name) if array is None else array, f"{self.layer.name}.{name}"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the sizes of the data, which are the first operand."""
        return self.static(self.input(0))

    def axis(self, default: Any = context.REQUIRED) -> int:
        """Return the attribute `axis`, counted from the front of the data."""
        return axis_of(self.attr("axis", int, default), len(self.shape))

    def bias(self) -> ir.Value | None:
        """Return `biases` as one axis; None for zeros, which mean no biases in this format."""
        array = self.layer.blobs.get("biases")
        if isinstance(array, ir.Value):
            return array
        if array is None or not np.asarray(array).any():
            return None
        return self.weights("biases", np.asarray(array).reshape(-1))

    @property
    def operands(self) -> list[Value]:
        return [self.input(i) for i in range(len(self.layer.inputs))]

    @property
    def declared_type(self) -> ir.DataType | None:
        """Return the type that the file declares for the first output."""
        return self.layer.outputs[0].dtype if self.layer.outputs else None

    def declared(self, output: int = 0) -> tuple[int, ...] | None:
        """Return the shape that the file declares for an output."""
        outputs = self.layer.outputs
        return shape_of(outputs[output]) if output < len(outputs) else None

    def declared_size(self, output: int, axis: int = 1) -> int:
        """Return a size that only the declared shape of an output determines."""
        shape = self.declared(output)
        if shape is None or len(shape) <= axis:
            raise MappingError("layer_top_shape must declare the size of the results", "R110")
        return shape[axis]

    def typed(self, results: Sequence[ir.Value]) -> list[ir.Value]:
        """Cast results to the types that the file declares: counts may be floats or
        integers there.
        """
        declared = [v.dtype for v in self.layer.outputs] + [None] * len(results)
        pairs = zip(results, declared, strict=False)
        return [v if t is None else super(LiftContext, self).cast(v, t) for v, t in pairs]
