"""The port map and the back edges of a loop (TensorIterator, Loop) as ONNX's Loop.

A port of the layer goes into the body as a slice along an axis in each iteration, or as the same
value every time; a back edge replaces it from the second iteration on. A port in the body is
identified by (layer id, port id); opset IR has Parameter and Result layers there, whose port id is
None.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import dim
from converter.formats.openvino.ir import Layer, PortMap
from converter.graph.build import Builder
from converter.graph.infer import Array, rank_of, shape_of
from converter.graph.sizes import arange
from converter.mapping.context import LiftContext, rank
from converter.record import record

Place = tuple[int, int | None]
ROWS, LAST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@record
class Slicing:
    """An entry of the port map with an axis: `count` parts of `part` elements, part i from
    `first + i*step` on.
    """

    axis: int
    first: int
    step: int
    part: int
    count: int

    @property
    def index(self) -> Array:
        """Return [count, part]: the elements along the axis that iteration i reads."""
        return self.first + self.step * arange(self.count)[:, None] + arange(self.part)


def span(entry: PortMap) -> tuple[int, int, int, int]:
    """Return start, end, stride and part; by default from 0 to the end (-1: one after the last),
    one element at a time. A negative stride goes from the end to the start.
    """
    given = (entry.start, entry.end, entry.stride, entry.part_size)
    start, end, stride, part = (
        default if v is None else v for v, default in zip(given, (0, -1, 1, 1), strict=True)
    )
    if stride == 0 or part < 1:
        raise MappingError("a port map must not have stride 0 or empty parts", "R110")
    return start, end, stride, part


def slicing(entry: PortMap, size: int, axes: int) -> Slicing:
    """Return the slices of an axis of that size, of a tensor of that rank; raise MappingError R110
    if there are none.
    """
    start, end, stride, part = span(entry)
    low, high = ((v if v >= 0 else v + size + 1) for v in (start, end))
    length = abs(high - low)
    count = (length - part) // abs(stride) + 1 if length >= part else 0
    if (high - low) * stride < 0 or count < 1:
        raise MappingError(
            f"a port map from {start} to {end} by {stride} has no parts in {size} elements", "R110"
        )
    first = low if stride > 0 else low - part
    return Slicing((entry.axis or 0) % axes, first, stride, part, count)


def scalar(b: Builder, v: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return a value of one element as a scalar of a type."""
    v = b.Reshape(v, np.zeros(0, np.int64)) if rank_of(v) != 0 else v
    return b.Cast(v, to=dtype) if v.dtype != dtype else v


class Iteration:
    """A loop that is read: its body is lifted into `inner`, between `given` and `finish`.

    `number`  the number of the iteration, a value of the body
    `back`    input port of the body -> output port that feeds it
    """

    def __init__(self, r: LiftContext, source: Layer) -> None:
        self.r, self.source, self.body = r, source, source.bodies["body"]
        self._ports = {p.id: i for i, p in enumerate(source.inputs)}
        self.back: dict[Place, Place] = {
            (e.to_layer, e.to_port): (e.from_layer, e.from_port) for e in self.body.back_edges
        }
        entries = [m for m in self.body.inputs if not m.purpose]
        self.sliced = [m for m in entries if along_axis(m)]
        self.whole = {inside(m): self.value(m) for m in entries if not along_axis(m)}
        self.states = [place for place in self.whole if place in self.back]
        self.inner = r.b.body("body")
        self.number = self.inner.input("iteration", ir.DataType.INT64, [])
        self.inner.input("go_on", ir.DataType.BOOL, [])

    def value(self, m: PortMap) -> ir.Value:
        """Return the value that an entry of the port map takes from outside."""
        if m.external_port_id not in self._ports:
            raise MappingError(
                f"the port map refers to port {m.external_port_id}, which is not an input", "R105"
            )
        return self.r.input(self._ports[m.external_port_id])

    def parts(self, m: PortMap) -> Slicing | None:
        """Return how a sliced input is cut; None where the size of its axis is not known."""
        size = dim(self.value(m), m.axis or 0)
        return None if size is None else slicing(m, size, rank(self.value(m)))

    def given(self, state: Callable[[Place, ir.Value], ir.Value]) -> dict[Place, ir.Value]:
        """Return the inputs of the body; `state` declares an input of `inner` for a port and its
        initial value.
        """
        return {
            **{p: state(p, v) if p in self.back else v for p, v in self.whole.items()},
            **{inside(m): self._piece(m) for m in self.sliced},
        }

    def _piece(self, m: PortMap) -> ir.Value:
        """Return the part of this iteration; the axis stays, with the size of a part."""
        x, b, cut = self.value(m), self.inner, self.parts(m)
        if cut is None:
            return self._slice(x, m)
        if cut.part == 1 and abs(cut.step) == 1 and cut.count == dim(x, cut.axis):
            i = self.number if cut.step == 1 else b.Sub(cut.count - 1, self.number)
            return b.Unsqueeze(b.Gather(x, i, axis=cut.axis), [cut.axis])
        parts = self.r.b.Gather(x, cut.index, axis=cut.axis)
        return b.Gather(parts, self.number, axis=cut.axis)

    def _slice(self, x: ir.Value, m: PortMap) -> ir.Value:
        """Return the part along an axis of unknown size."""
        b, axis, (start, _, stride, part) = self.inner, m.axis or 0, span(m)
        begin = b.Mul(b.Reshape(self.number, [1]), [stride])
        if start < 0:  # -1 is one after the last
            size = b.Shape(x, start=axis, end=axis + 1)
            begin = b.Add(begin, b.Add(size, [start + 1]))
        elif start:
            begin = b.Add(begin, [start])
        if stride < 0:  # from the end: the part is before it
            return b.Slice(x, b.Sub(begin, [part]), begin, [axis])
        return b.Slice(x, begin, b.Add(begin, [part]), [axis])

    def finish(
        self, made: dict[Place, ir.Value], trips: ir.Value | None, condition: ir.Value
    ) -> list[ir.Value]:
        """Finish the body with its outputs: condition, states, collected values; then return the
        layer's outputs from those of the Loop. `made` are the values at the ports of the body.
        """
        b, inner = self.r.b, self.inner
        entries = {m.external_port_id: m for m in self.body.outputs if not m.purpose}
        if any(p.id not in entries for p in self.source.outputs):
            raise MappingError("an output port has no entry in the port map", "R105")
        maps = [entries[p.id] for p in self.source.outputs]
        goes_on = [m for m in self.body.outputs if m.purpose == "execution_condition"]
        carried = {self.back[p]: i for i, p in enumerate(self.states)}
        collected = [m for m in maps if along_axis(m) or inside(m) not in carried]
        going = made[inside(goes_on[0])] if goes_on else inner.const(True)
        inner.output(scalar(inner, going, ir.DataType.BOOL))
        states = [self.back[p] for p in self.states]  # one output may feed several
        inner.output(*(made[place] for place in (*states, *map(inside, collected))))
        initial = [self.whole[p] for p in self.states]
        count = len(initial) + len(collected)
        results = b.Loop(trips, condition, *initial, body=inner.graph, outputs=count)
        sizes = [dim(made[inside(m)], m.axis or 0) for m in collected]
        parts = zip(results[len(initial) :], collected, sizes, strict=True)
        joined = {m.external_port_id: _collected(b, v, m, size) for v, m, size in parts}
        return [
            joined[m.external_port_id]
            if m.external_port_id in joined
            else results[carried[inside(m)]]
            for m in maps
        ]


def inside(m: PortMap) -> Place:
    """Return the layer and the port of the body that a port map names."""
    return m.internal_layer_id, m.internal_port_id


def along_axis(m: PortMap) -> bool:
    """Return whether a value is sliced or collected. In legacy IR an axis of -1 means neither; in
    the opsets it is the last axis.
    """
    return m.axis is not None and (m.axis >= 0 or m.internal_port_id is None)


def _collected(b: Builder, stacked: ir.Value, m: PortMap, part: int | None) -> ir.Value:
    """Concatenate the parts [T, ...] along the axis; without an axis, return the last one."""
    if m.axis is None or not along_axis(m):
        return b.Gather(stacked, -1, axis=0)
    if span(m)[2] < 0:
        stacked = b.Slice(stacked, [-1], [LAST], [0], [-1])
    axis = m.axis + (rank(stacked) - 1 if m.axis < 0 else 0)
    moved = stacked
    if axis:
        perm = [*range(1, axis + 1), 0, *range(axis + 1, rank(stacked))]
        moved = b.Transpose(stacked, perm=perm)
    shape = shape_of(stacked)
    if shape is not None:
        rest = list(shape[1:])
        rest[axis] *= shape[0]
        return b.Reshape(moved, rest)
    if part == 1:
        return b.Squeeze(moved, [axis + 1])
    sizes = b.Shape(moved)
    lead, tail = b.Slice(sizes, [0], [axis]), b.Slice(sizes, [axis + 2], [ROWS])
    return b.Reshape(moved, b.Concat(lead, [-1], tail, axis=0))
