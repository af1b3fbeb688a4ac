"""Collection of layers when a graph is lowered: aliases, variables, and the version that a layer
needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.infer import Array, constant, known
from converter.graph.lazy_tensor import LazyTensor
from converter.mapping.lowering import LayerTable, Lowering
from converter.mapping.node import Layer
from converter.passes.constants import evaluate_constant

Value = ir.Value
REFUSED = "refused"  # the kind of a layer in place of a node without a counterpart
FLOAT = ir.DataType.FLOAT
EXACT_INTEGERS = 1 << 24  # larger float32 numbers do not represent all integers
_FAR = 1 << 30
_SPEC5 = {
    "oneHot",
    "cumSum",
    "clampedReLU",
    "argSort",
    "pooling3d",
    "globalPooling3d",
    "sliceBySize",
    "convolution3d",
}


def spec_of(kind: str, attrs: dict[str, Any], inputs: int) -> int:
    """Return the lowest specificationVersion that has this layer with these parameters (4 is the
    least that is written).
    """
    newer = (
        kind in _SPEC5
        or (kind == "reorganizeData" and attrs.get("mode") == "PIXEL_SHUFFLE")
        or (
            kind == "upsample"
            and (
                attrs.get("fractionalScalingFactor")
                or attrs.get("linearUpsampleMode", "DEFAULT") != "DEFAULT"
            )
        )
        or attrs.get("int8DynamicQuantize")
        or attrs.get("interleave")
        or (kind == "sliceDynamic" and (inputs > 6 or attrs.get("squeezeMasks")))
    )
    return 5 if newer else 4


class CoreLowering(Lowering):
    """Collect the layers of a network. `half`: weights become float16. Values may be aliases of
    others, or variables (written more than once).
    """

    def __init__(self, mapping: LayerTable, version: int = 5, half: bool = False) -> None:
        super().__init__(mapping, version)
        self.half = half
        self.aliases: dict[Value, Value] = {}

    def check(self, layer: Layer) -> None:
        """Reject layers that the version does not have yet, and tensors that Core ML does not
        support.
        """
        spec = spec_of(layer.kind, layer.attrs, len(layer.inputs))
        if 0 < self.version < spec:
            message = f"the layer {layer.kind} needs specificationVersion {spec}"
            raise MappingError(message, "X206", "use coreml+spec=5")
        for value in layer.outputs:
            if (r := value.shape.rank() if value.shape is not None else 0) > 5:
                message = f"{value.name} has rank {r}; Core ML supports at most 5 axes"
                raise MappingError(message)
        for value in filter(None, (*layer.inputs, *layer.outputs)):
            if value.shape is not None and 0 in value.shape:
                message = f"{value.name} is empty; Core ML does not support empty tensors"
                raise MappingError(message)

    def node(self, node: ir.Node) -> None:
        """Lower a node as the base class does; but a refusal only counts if the node's results are
        used (a later layer may have replaced it).
        """
        count, named = len(self.problems), len(self.aliases)
        super().node(node)
        if len(self.problems) > count:
            # an unfinished layer must not look as if it had been written
            for value in list(self.aliases)[named:]:
                del self.aliases[value]
            operands, extra = list(node.inputs), {"problems": self.problems[count:]}
            outputs = list(node.outputs)
            self.layers.append(Layer(REFUSED, node.op_type, {}, {}, operands, outputs, extra=extra))
            del self.problems[count:]

    def one(
        self,
        kind: str,
        inputs: Sequence[Value | None],
        shape: Sequence[Any] | None = None,
        attrs: dict[str, Any] | None = None,
        blobs: dict[str, Any] | None = None,
    ) -> Value:
        """Return a layer with one new output of `shape` (None: not known)."""
        out = self.value(kind, FLOAT, shape)
        self.add(kind, inputs, [out], attrs, blobs)
        return out

    def alias(self, out: Value, value: Value) -> None:
        """Give `out` the blob of `value`."""
        self.aliases[out] = value

    def resolve(self, value: Value) -> Value:
        """Return the blob of which a value is an alias."""
        while value in self.aliases:
            value = self.aliases[value]
        return value

    def const(self, array: Any) -> Value:
        """Return a constant blob (at least rank 1)."""
        data = np.asarray(array, np.float32)
        value = self.value("const", FLOAT, data.shape)
        value.const_value = LazyTensor(data)
        return value


def small(value: Value | None) -> list[Any] | None:
    """Return a known operand (axes, sizes ...) as a flat list; None when it is known only
    at run time.
    """
    array = known(value)
    if array is None:
        array = evaluate_constant(value)
    return None if array is None else array.reshape(-1).tolist()


def scalar(value: Value | None) -> float | None:
    """Return the number in a constant of one element."""
    array = constant(value)
    single = array is not None and array.size == 1 and array.dtype.kind in "iufb"
    return float(array.reshape(-1)[0]) if single and array is not None else None


def rank_of_value(value: Value) -> int:
    """Return the rank of a value. Raises MappingError if it is unknown."""
    if value.shape is None:
        raise MappingError(f"the rank of {value.name} is unknown")
    return value.shape.rank()


def is_float(value: Value | None) -> bool:
    """Return whether a value is absent, or has no known type or a floating-point type."""
    return (
        value is None
        or value.dtype is None
        or value.dtype in (FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    )


def checked(array: Array, name: str, *, limits: bool = True) -> Array:
    """Return a constant as float32; raise MappingError X204 for integers that float32 cannot
    represent. `limits`: it may be the limits of a slice.
    """
    if array.dtype.kind == "i" and array.size and limits:
        # the largest integers mean "to the end" in slices
        bounds = np.iinfo(array.dtype)
        array = np.where(array >= bounds.max, _FAR, array) if bounds.max > _FAR else array
        array = np.where(array <= bounds.min, -_FAR, array) if bounds.min < -_FAR else array
    if array.dtype.kind in "iu":
        far = (np.abs(array.astype(np.float64)) > EXACT_INTEGERS) & (array != _FAR)
        beyond = array[far & (array != -_FAR)]
        if beyond.size:
            message = (
                f"{name} contains {beyond[0]}, but float32 represents integers up to 2^24 only"
            )
            raise MappingError(f"{message} (Core ML stores float32)", "X204")
    if array.dtype.kind == "f" and array.dtype.itemsize > 4:
        with np.errstate(over="ignore"):
            narrow = array.astype(np.float32)
        if np.isinf(narrow).sum() > np.isinf(array).sum():
            raise MappingError(f"{name} contains values outside the range of float32", "X204")
    if array.dtype.kind not in "iufb":
        message = f"{name} is {array.dtype}, which Core ML does not support"
        raise MappingError(message, "X204")
    return array
