"""Ties for disconnected parts. The engine treats unused data as outputs, does not load outputs that
depend on no input, and loads only one of several disconnected networks in a file.

before: y = f(x); u is not read
after:  y = StridedSlice(Concat(f(x), u[:1]), 0, size of y)

Concatenating and slicing preserve all numbers, including infinities and signs of zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from converter.formats.openvino.legacy.rules.context import LowerContext
from converter.formats.openvino.legacy.rules.control_flow import LoopPlan
from converter.formats.openvino.legacy.rules.shape import cut
from converter.formats.openvino.legacy.types import written
from converter.graph.infer import shape_of
from converter.mapping.node import Layer


class Ties:
    """The values to which each output of a net must be tied: `ends` lists them for the outputs that
    cannot stay as they are.
    """

    def __init__(
        self, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], layers: Sequence[Layer]
    ) -> None:
        self.inputs = sorted(inputs, key=_size)
        self.moving, self.parts = set(inputs), _Parts()
        for layer in layers:
            self._layer(layer)
        self.ends: dict[ir.Value, list[ir.Value]] = {v: [] for v in outputs}
        ports = {o: len(layer.outputs) for layer in layers for o in layer.outputs}
        carrier = min(outputs, key=lambda v: (ports.get(v, 1), _size(v)), default=None)
        if carrier is None or not inputs:
            return
        read = {v for layer in layers for v in reads(layer)}.union(outputs)
        for value in (*inputs, *ports):
            if value not in read:
                self._tie(carrier, value)
        for value in outputs:
            if value not in self.moving and not self.ends[value]:
                self._tie(value, self.inputs[0])
        anchor = next(v for v in self.inputs if self.parts.same(v, carrier))
        for value in outputs:
            if not self.parts.same(value, carrier):
                self._tie(value, anchor)

    def constant(self, value: ir.Value) -> bool:
        """Return whether an output changes with no input, and there is none to tie it to."""
        return value not in self.moving and not self.ends[value]

    def _layer(self, layer: Layer) -> None:
        """Join the inputs and outputs of a layer into one part of the network, except for
        constants.
        """
        read = [v for v in reads(layer) if v in self.moving]
        if read:
            self.moving.update(layer.outputs)
            for value in (*read[1:], *layer.outputs):
                self.parts.join(read[0], value)

    def _tie(self, value: ir.Value, end: ir.Value) -> None:
        self.ends[value].append(end)
        self.parts.join(value, end)


class _Parts:
    """Disjoint sets of values (union-find)."""

    def __init__(self) -> None:
        self.above: dict[ir.Value, ir.Value] = {}

    def _top(self, value: ir.Value) -> ir.Value:
        while value in self.above:
            value = self.above[value]
        return value

    def join(self, a: ir.Value, b: ir.Value) -> None:
        top, other = self._top(a), self._top(b)
        if top is not other:
            self.above[other] = top

    def same(self, a: ir.Value, b: ir.Value) -> bool:
        return self._top(a) is self._top(b)


def _size(value: ir.Value) -> int:
    return math.prod(shape_of(value) or ())


def tie(w: LowerContext, value: ir.Value, ends: Iterable[ir.Value], out: ir.Value) -> None:
    """Compute `out` as `value` plus zero times `ends`, so that all of them are needed."""
    size = math.prod(w.shape(value))
    parts = [w.reshaped(value, [size]), *(_first(w, end, value) for end in ends)]
    joined = w.emit("Concat", *parts, shape=[size + len(parts) - 1], axis="0")
    part = out if w.shape(out) == [size] else w.temporary("part", value.dtype, [size])
    cut(w, joined, part, {0: 0})
    if part is not out:
        w.finish(part, out)


def _first(w: LowerContext, value: ir.Value, like: ir.Value) -> ir.Value:
    """Return one element of `value` in the type of `like`."""
    size = math.prod(w.shape(value))
    flat = w.temporary("flat", written(value.dtype), [size])
    w.put("Reshape", value, [size], outputs=[flat])
    if size > 1:
        one = w.temporary("one", flat.dtype, [1])
        cut(w, flat, one, {0: 0})
        flat = one
    to = written(like.dtype)
    return flat if to == flat.dtype else w.converted(flat, to)


# layers ------------------------------------------------------------------------------------------


def alive(layers: list[Layer], wanted: Iterable[ir.Value]) -> list[Layer]:
    """Return the layers on which the wanted values depend: an unused value would be an output of
    the net.
    """
    needed, kept = set(wanted), list[Layer]()
    for layer in reversed(layers):
        if needed & set(layer.outputs):
            kept.append(layer)
            needed.update(reads(layer))
    return kept[::-1]


def reads(layer: Layer) -> Iterable[ir.Value]:
    """Yield the values that a layer reads, also from its body."""
    yield from (v for v in layer.inputs if v is not None)
    if isinstance(layer.extra, LoopPlan):
        yield from layer.extra.node.inputs  # type: ignore[misc]
        inside = {o for n in layer.extra.body for o in n.outputs} | set(layer.extra.body.inputs)
        yield from (
            v
            for n in layer.extra.body.all_nodes()
            for v in n.inputs
            if v is not None and v not in inside
        )
