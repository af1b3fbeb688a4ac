"""The contexts in which legacy layers are read and written:
ports declare their shapes, and every value has one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.legacy.types import PRECISION, kind_before
from converter.graph.demands import axis_of
from converter.graph.infer import Array, constant, known, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.value import Value
from converter.mapping import context
from converter.mapping.context import REQUIRED, static
from converter.mapping.lowering import Lowering
from converter.mapping.node import Node

D = ir.DataType
FLOATS = (D.FLOAT, D.FLOAT16, D.DOUBLE, D.BFLOAT16)
MOST_AXES = 5  # of layers that go through the elements one by one


class LiftContext(context.LiftContext):
    """The context of a layer that is read. `layer.outputs` are the ports as the file declares them;
    `version` is that of the IR, 2 to 9.
    """

    def port(self, index: int) -> ir.Value:
        """Return an output as the file declares it."""
        if index >= len(self.layer.outputs):
            raise MappingError(f"output port {index} is absent", "R105")
        return self.layer.outputs[index]

    def dims(self, index: int = 0, least: int = 0) -> tuple[int, ...]:
        """Return the declared shape of an output, which has at least `least` axes: it takes
        precedence, nothing is inferred again.
        """
        return static(self.port(index), f"output port {index}", least=least)

    def declared(self, index: int = 0) -> ir.DataType:
        """Return the declared type of an output."""
        return self.port(index).dtype or D.FLOAT

    def floats(self, value: ir.Value) -> Value:
        return self.cast(value, D.FLOAT)

    def axis(self, default: Any = REQUIRED) -> int:
        """Return an axis of input 0 as a non-negative number."""
        return axis_of(self.attr("axis", int, default), len(self.static(least=1)))

    def array(self, name: str, shape: Sequence[int]) -> Array:
        """Return the numbers of a blob, which is stored flat, in their shape."""
        array, count = self.layer.blobs.get(name), math.prod(shape)
        if array is None:
            raise MappingError(f"the blob {name!r} is absent", "R110")
        if array.size != count:
            message = f"the blob {name!r} has {array.size} elements, {count} are needed"
            raise MappingError(message, "R103")
        return np.asarray(array).reshape(shape)

    def blob(self, name: str, shape: Sequence[int]) -> Value:
        """Return a blob as a constant."""
        return self.b.const(self.array(name, shape), f"{self.layer.name}.{name}")


class LowerContext(context.LowerContext):
    """The context of a layer that is written. `version` is that of the IR. Shapes are static, types
    are FP32 and I32.
    """

    @classmethod
    def for_no_operator(cls, low: Lowering) -> LowerContext:
        """Return a context for layers that belong to no operator."""
        return cls(Node(""), low)

    def shape(self, value: ir.Value | int = 0) -> list[int]:
        """Return the shape of a value, or of input number `value`; ports have no unknown
        dimensions.
        """
        found = self.input(value) if isinstance(value, int) else value
        shape = shape_of(found)
        if shape is None:
            help = "fix the inputs with --inputs NAME:1,3,224,224"
            raise MappingError("the target needs static shapes", "X203", help)
        return list(shape)

    def before(self) -> str:
        """Return the type of the legacy layer from which the operator was read; empty if none."""
        return kind_before(self.out)

    def number(self, index: int) -> float | None:
        return scalar_of(self.optional(index))

    def index_constant(self, value: int | list[int], what: str) -> ir.Value:
        return self.const(value)

    # layers before the row's
    # -----------------------------------------------------------------------------

    def reshaped(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        """Return `value` in another shape: a constant is stored in it, any other value gets a
        layer.
        """
        if shape_of(value) == tuple(shape):
            return value
        producer = value.producer()
        if producer is not None and _moves_axes(producer):
            before = producer.inputs[0]
            if before is not None and shape_of(before) == tuple(shape):
                return before
        if value.const_value is not None:
            reshaped = LazyTensor.of(value.const_value).reshaped(shape)
            return self.const(reshaped, value.name or "const")
        if not shape:
            return self.emit("Squeeze", value, range(len(self.shape(value))), shape=[])
        return self.emit("Reshape", value, list(shape), shape=shape)

    def widened(self, value: ir.Value, rank: int) -> ir.Value:
        """Add leading axes of length 1: the engine broadcasts only between equal ranks."""
        shape = self.shape(value)
        return self.reshaped(value, [1] * (rank - len(shape)) + shape)

    def spread(self, value: ir.Value, shape: list[int]) -> ir.Value:
        """Return `value` broadcast to `shape`."""
        array = constant(value) if value.const_value is not None else None
        if array is not None:
            return self.const(np.broadcast_to(array, shape), value.name or "const")
        wide = self.widened(value, len(shape))
        if self.shape(wide) == shape:
            return wide
        return self.emit("Broadcast", wide, shape, shape=shape)

    def converted(
        self, value: ir.Value, to: ir.DataType, dtype: ir.DataType | None = None
    ) -> ir.Value:
        """Return numbers as FP32 or I32, whichever represents `dtype`."""
        if to not in PRECISION:
            raise MappingError(f"legacy IR does not support {to.name}")
        shape, precision = self.shape(value), PRECISION[to]
        return self.emit("Convert", value, dtype=dtype or to, shape=shape, precision=precision)

    # layers after the row's
    # -------------------------------------------------------------------------------

    def finish(self, value: ir.Value, out: ir.Value | None = None) -> None:
        """Let `value`, in the shape of `out`, be the operator's result."""
        out = self.out if out is None else out
        shape = self.shape(out)
        if shape:
            self.put("Reshape", value, shape, outputs=[out])
        else:
            value = value if self.shape(value) else self.reshaped(value, [1])
            self.put("Squeeze", value, range(len(self.shape(value))), outputs=[out])

    def gives(
        self,
        shape: Sequence[int],
        dtype: ir.DataType | None = None,
        out: ir.Value | None = None,
    ) -> None:
        """Give the layer of the row this shape, or type; layers after it compute `out` from its
        result.
        """
        out = self.out if out is None else out
        other = dtype is not None and (dtype in FLOATS) != is_float(out)
        if not other and self.shape(out) == list(shape):
            return
        inner = self.temporary(self.layer.kind.lower(), dtype if other else out.dtype, shape)
        self.layer.outputs[0] = inner
        to = D.FLOAT if is_float(out) else D.INT32
        if not other:
            self.after_emit(lambda: self.finish(inner, out))
        elif self.shape(out) == list(shape):
            precision = PRECISION[to]
            self.after_emit(lambda: self.put("Convert", inner, outputs=[out], precision=precision))
        else:
            self.after_emit(lambda: self.finish(self.converted(inner, to, out.dtype), out))

    def gives_through(self, kind: str, shape: list[int], **attrs: Any) -> None:
        """Give the layer of the row this shape; a layer of another kind, and a reshape if needed,
        compute the operator's result from it.
        """
        inner = self.temporary(self.layer.kind.lower(), self.out.dtype, shape)
        self.layer.outputs = [inner]
        if self.shape(self.out) == shape:
            self.after_emit(lambda: self.put(kind, inner, **attrs))
        else:
            self.after_emit(lambda: self.finish(self.emit(kind, inner, shape=shape, **attrs)))

    def copy(self, x: ir.Value, out: ir.Value) -> None:
        """Write an identity layer."""
        if is_float(out) or out.dtype == D.BOOL:
            self.put("Power", x, outputs=[out], power="1", scale="1", shift="0")
        else:
            self.finish(x, out)


def is_float(value: ir.Value) -> bool:
    """Return whether a value has a floating-point type, or no known type."""
    return value.dtype is None or value.dtype in FLOATS


def scalar_of(value: ir.Value | None) -> float | None:
    """Return the number of a constant with one element."""
    array = known(value)
    one = array is not None and array.size == 1 and array.dtype.kind in "fiu"
    return float(array.reshape(-1)[0]) if one and array is not None else None


def per_channel(value: ir.Value | None, shape: Sequence[int]) -> Array | None:
    """Return the float numbers of a constant that has one for each channel (axis 1) of `shape`."""
    array = constant(value) if value is not None and value.const_value is not None else None
    if array is None or array.dtype.kind != "f" or not 2 <= len(shape) >= array.ndim:
        return None
    full = (1,) * (len(shape) - array.ndim) + array.shape
    return array.reshape(-1) if full == (1, shape[1], *[1] * (len(shape) - 2)) else None


def into_convolution(value: ir.Value) -> bool:
    """Return whether a convolution reads the value, directly or after layers that compute element
    by element or pool, and the engine may round its channels up to 8 or 16.

    Such layers compute the added channels, too, which are zeros at first. Where that gives infinity
    or NaN, the convolution returns NaN: its weights of 0 do not remove them.
    """
    shape = shape_of(value) or ()
    if len(shape) not in (4, 5) or not shape[1] % 16:
        return False
    seen, pending = {value}, [value]
    while pending:
        for node, index in pending.pop().uses():
            if node.op_type in ("Conv", "ConvTranspose") and index == 0:
                return True
            if node.op_type in _KEEP_CHANNELS:
                following = {v for v in node.outputs if v not in seen}
                seen |= following
                pending += following
    return False


# operators whose layers compute blocks of channels; Floor, Log and the like, in the engine's simple
# layers, do not
_KEEP_CHANNELS = frozenset(
    [
        *("Abs", "Add", "AveragePool", "BatchNormalization", "Clip", "Concat", "Div", "Elu", "Exp"),
        *("HardSwish", "Identity", "LeakyRelu", "Max", "MaxPool", "Min", "Mul", "PRelu", "Pow"),
        *("Relu", "Sigmoid", "Sqrt", "Sub", "Tanh"),
    ]
)


def _moves_axes(node: ir.Node) -> bool:
    return node.op_type in ("Reshape", "Squeeze", "Unsqueeze") and not node.domain
