"""Nothing hangs loose: the engine takes data that nobody reads for outputs, and does not load outputs that no input reaches.

before:  y = f(x); u is not read        after:  y = StridedSlice(Concat(f(x), u[:1]), 0, size of y)

Joining and cutting change no number, infinities and signs of zero included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from converter.formats.openvino.legacy.ordering import reads
from converter.formats.openvino.legacy.types import written
from converter.formats.openvino.legacy.write_arrangement import cut
from converter.formats.openvino.legacy.writing import finish, ints, reshaped, static, step
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError


@dataclass
class Ties:
    """What each output of a net has to be tied to."""

    inputs: list[ir.Value]
    loose: list[ir.Value]  # inputs and ports that nobody reads: any output will do
    moving: set[ir.Value]  # what changes with the inputs
    carrier: ir.Value | None = field(default=None)  # the output that takes the loose ends

    def of(self, value: ir.Value) -> list[ir.Value]:
        """The values that output `value` must not be without; MappingError where there is none to be had."""
        ends = list(self.loose) if value is self.carrier else []
        if value not in self.moving and not ends:
            if not self.inputs:
                raise MappingError("it is constant, and the target has no outputs that do not depend on an input")
            ends = [min(self.inputs, key=lambda v: math.prod(static(v)))]
        return ends


def find_ties(inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], layers: Iterable[Layer]) -> Ties:
    layers = list(layers)
    read = {v for layer in layers for v in reads(layer)}.union(outputs)
    moving = set(inputs)
    for layer in layers:
        if not moving.isdisjoint(reads(layer)):
            moving.update(layer.outputs)
    loose = [v for v in (*inputs, *(o for layer in layers for o in layer.outputs)) if v not in read]
    return Ties(list(inputs), loose, moving, min(outputs, key=lambda v: math.prod(static(v)), default=None))


def tie(low: Lowering, value: ir.Value, ends: Sequence[ir.Value], out: ir.Value) -> None:
    """`out` is `value`, and cannot be computed without `ends`."""
    size = math.prod(static(value))
    flat = reshaped(low, value, [size])
    joined = step(low, "Concat", [flat, *(_first(low, end, value) for end in ends)], value, [size + len(ends)], {"axis": "0"})
    part = out if static(out) == [size] else low.value("part", value.dtype, [size])
    cut(low, joined, part, {0: 0})
    if part is not out:
        finish(low, part, out)


def _first(low: Lowering, value: ir.Value, like: ir.Value) -> ir.Value:
    """One element of `value` in the type of `like`."""
    size = math.prod(static(value))
    flat = low.value("flat", written(value.dtype), [size])
    low.add("Reshape", [value, ints(low, [size])], [flat])
    if size > 1:
        one = low.value("one", flat.dtype, [1])
        cut(low, flat, one, {0: 0})
        flat = one
    if written(like.dtype) == flat.dtype:
        return flat
    return step(low, "Convert", [flat], like, [1], {"precision": "FP32" if written(like.dtype) == ir.DataType.FLOAT else "I32"})
