"""Gathering, scattering, one-hot."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.coreml.blobs import axis_of, floats, ints, operand, operands, rank
from converter.formats.coreml.special.registry import lifts
from converter.graph.build import Builder
from converter.graph.infer import rank_of
from converter.mapping.node import Layer, MappingError

Value = ir.Value
REDUCTION = {
    "SCATTER_UPDATE": "none", "SCATTER_ADD": "add", "SCATTER_SUB": "add", "SCATTER_MUL": "mul", "SCATTER_DIV": "mul",
    "SCATTER_MAX": "max", "SCATTER_MIN": "min",
}  # fmt: skip


@lifts("gather")
def lift_gather(layer: Layer, b: Builder) -> Value:
    x, indices = operands(layer)
    return b.op("Gather", x, ints(b, indices), axis=int(layer.attrs["axis"]))


@lifts("gatherND")
def lift_gather_nd(layer: Layer, b: Builder) -> Value:
    x, indices = operands(layer)
    y = b.op("GatherND", x, ints(b, indices))
    return b.op("Reshape", y, [1]) if rank_of(y) == 0 else y


@lifts("gatherAlongAxis")
def lift_gather_along_axis(layer: Layer, b: Builder) -> Value:
    x, indices = operands(layer)
    return b.op("GatherElements", x, ints(b, indices), axis=int(layer.attrs["axis"]))


def _updates(layer: Layer, b: Builder) -> tuple[Value, Value, Value, str]:
    """Container, indices, updates and ONNX's reduction; subtraction adds the opposite, division multiplies by the inverse."""
    data, indices, updates = operands(layer)
    mode = layer.attrs["mode"]
    if mode not in REDUCTION:
        raise MappingError(f"mode={mode!r} is not known", "R110")
    data, updates = floats(b, data), floats(b, updates)
    if mode == "SCATTER_SUB":
        updates = b.op("Neg", updates)
    elif mode == "SCATTER_DIV":
        updates = b.op("Reciprocal", updates)
    return data, ints(b, indices), updates, REDUCTION[mode]


@lifts("scatterND")
def lift_scatter_nd(layer: Layer, b: Builder) -> Value:
    data, indices, updates, reduction = _updates(layer, b)
    return b.op("ScatterND", data, indices, updates, reduction=reduction)


@lifts("scatterAlongAxis")
def lift_scatter_along_axis(layer: Layer, b: Builder) -> Value:
    data, indices, updates, reduction = _updates(layer, b)
    return b.op("ScatterElements", data, indices, updates, axis=int(layer.attrs["axis"]), reduction=reduction)


@lifts("scatter")
def lift_scatter(layer: Layer, b: Builder) -> Value:
    """container[.., indices, ..] op= updates on one axis: ScatterND with that axis in front."""
    data, indices, updates, reduction = _updates(layer, b)
    r, n = rank(data), rank(indices)
    axis = axis_of(int(layer.attrs["axis"]), r)
    index = b.op("Unsqueeze", indices, [n])
    if axis == 0:
        return b.op("ScatterND", data, index, updates, reduction=reduction)
    order = [axis, *(i for i in range(r) if i != axis)]
    front = [*range(axis, axis + n), *range(axis), *range(axis + n, r + n - 1)]
    y = b.op("ScatterND", b.op("Transpose", data, perm=order), index, b.op("Transpose", updates, perm=front), reduction=reduction)
    return b.op("Transpose", y, perm=[order.index(i) for i in range(r)])


@lifts("oneHot")
def lift_one_hot(layer: Layer, b: Builder) -> Value:
    """A new axis of `oneHotVectorSize` (or the second input) elements."""
    p = layer.attrs
    depth = b.op("Reshape", ints(b, operand(layer, 1)), [1]) if len(layer.inputs) > 1 else b.const([int(p["oneHotVectorSize"])])
    return b.op("OneHot", ints(b, operand(layer)), depth, [float(p["offValue"]), float(p["onValue"])], axis=int(p["axis"]))
