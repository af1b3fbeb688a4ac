"""Barriers between operations that the runtime's compiler must not fuse. It replaces a division by
a number followed by a multiplication by it with the operand, also for integers, and drops casts
from float to integer and back. A Max of a value with itself, which it does not remove, keeps them
apart.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.coreai.collector import CoreAILowering
from converter.graph.infer import constant
from converter.mapping.node import Layer

D = ir.DataType
INVERSE = {
    "broadcasting_mul": ("broadcasting_divide",),
    "broadcasting_divide": ("broadcasting_mul",),
    "broadcasting_sub": ("broadcasting_add",),
    "broadcasting_add": ("broadcasting_sub",),
    "cast": ("cast",),
}
_MOVES = ("reshape", "expand_dims", "shrink_dims", "transpose")


def keep_apart(low: CoreAILowering) -> None:
    """Insert a barrier before each operation that the runtime would fuse with the one before it,
    also in blocks.
    """
    producers = {v: layer for layer in low.layers for v in layer.outputs}
    made: list[Layer] = []
    for layer in low.layers:
        for block, *_ in layer.extra or ():
            inner = low.inner()
            inner.layers = block
            keep_apart(inner)
            block[:] = inner.layers
        for i, value in enumerate(layer.inputs):
            if value is not None and _is_joined(layer, value, producers, low):
                barrier = low.value("kept", value.dtype, value.shape)
                made.append(Layer("maximum", layer.name, {}, {}, [value, value], [barrier]))
                layer.inputs[i] = barrier
        made.append(layer)
    low.layers = made


def _is_joined(
    layer: Layer, value: ir.Value, producers: Mapping[ir.Value, Layer], low: CoreAILowering
) -> bool:
    before = producers.get(value)
    while before is not None and before.kind in _MOVES and before.inputs[0] is not None:
        before = producers.get(before.inputs[0])
    if before is None or before.kind not in INVERSE.get(layer.kind, ()):
        return False
    if layer.kind == "cast":
        source, between, result = before.inputs[0], before.outputs[0], layer.outputs[0]
        real = [
            v is not None and low.carried(v).is_floating_point() for v in (source, between, result)
        ]
        return real[0] == real[2] != real[1] and low.carried(between) != D.BOOL
    numbers = [next(filter(_is_number, x.inputs), None) for x in (before, layer)]
    arrays = [None if v is None else constant(v) for v in numbers]
    if arrays[0] is None or arrays[1] is None:
        return False
    whole = value.dtype is not None and value.dtype.is_integer()
    return whole or bool(np.array_equal(np.squeeze(arrays[0]), np.squeeze(arrays[1])))


def _is_number(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None
