"""TensorIterator as Loop.

The body has no inputs of its own: a port of a body layer that no edge feeds is fed by the port map (a slice along an axis in each
iteration, or the same value every time) and, from the second iteration on, by a back edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.ir import Layer as IrLayer
from converter.formats.openvino.ir import PortMap, SubNet
from converter.formats.openvino.legacy.access import dims, operand, shape
from converter.formats.openvino.legacy.register import lifts
from converter.graph.build import Builder
from converter.graph.infer import set_type
from converter.graph.sizes import arange
from converter.mapping.node import Layer, MappingError

if TYPE_CHECKING:
    from converter.formats.openvino.legacy.lift import BodyLift

Port = tuple[int, int]


@dataclass
class Slicing:
    """One entry of the port map with an axis: `count` parts of `part` elements, part i from `first + i*step` on."""

    axis: int
    first: int
    step: int
    part: int
    count: int

    @property
    def index(self) -> np.ndarray:
        """[count, part]: the elements along the axis that iteration i sees."""
        return self.first + self.step * arange(self.count)[:, None] + arange(self.part)


def slicing(entry: PortMap, size: int) -> Slicing:
    """Defaults: from 0 to the end (-1), stride 1, one element; a negative stride goes from the end to the start."""
    start, end, stride, part = (d if v is None else v for v, d in zip((entry.start, entry.end, entry.stride, entry.part_size), (0, -1, 1, 1), strict=True))
    if stride == 0 or part < 1:
        raise MappingError("a port map with stride 0 or no elements in a part", "R110")
    low, high = ((v if v >= 0 else v + size + 1) for v in (start, end))
    length = abs(high - low)
    count = (length - part) // abs(stride) + 1 if length >= part else 0
    if (high - low) * stride < 0 or count < 1:
        raise MappingError(f"a port map from {start} to {end} by {stride} has no parts in {size} elements", "R110")
    return Slicing(entry.axis or 0, low if stride > 0 else low - part, stride, part, count)


@lifts("TensorIterator")
def lift_tensor_iterator(layer: Layer, b: Builder) -> list[ir.Value]:
    source, outer = layer.extra
    return _Iteration(layer, source, source.bodies["body"], b, outer).lift()


class _Iteration:
    def __init__(self, layer: Layer, source: IrLayer, net: SubNet, b: Builder, outer: BodyLift) -> None:
        self.layer, self.source, self.net, self.b, self.outer = layer, source, net, b, outer
        self.inner = b.body(f"{layer.name}.body")
        self.feeds: dict[Port, ir.Value] = {}
        self.back = {(e.to_layer, _port(e.to_port)): (e.from_layer, _port(e.from_port)) for e in net.back_edges}
        self.step = self.inner.input("i", ir.DataType.INT64, [])
        self.inner.input("go", ir.DataType.BOOL, [])
        self.count = self._count()

    def _external(self, entry: PortMap) -> ir.Value:
        place = next((i for i, p in enumerate(self.source.inputs) if p.id == entry.external_port_id), None)
        if place is None:
            raise MappingError(f"the port map names the port {entry.external_port_id}, which is no input", "R105")
        return operand(self.layer, place)

    def _output(self, entry: PortMap) -> int:
        place = next((i for i, p in enumerate(self.source.outputs) if p.id == entry.external_port_id), None)
        if place is None:
            raise MappingError(f"the port map names the port {entry.external_port_id}, which is no output", "R105")
        return place

    def _count(self) -> int:
        """The number of iterations, on which all sliced inputs and outputs must agree."""
        found = {slicing(e, shape(self._external(e))[e.axis or 0]).count for e in self.net.inputs if _sliced(e)}
        found |= {slicing(e, dims(self.layer, self._output(e))[e.axis or 0]).count for e in self.net.outputs if _sliced(e)}
        if len(found) != 1:
            raise MappingError(
                f"the port map asks for {sorted(found)} iterations" if found else "no port is sliced: the number of iterations is unknown", "R105"
            )
        return found.pop()

    def lift(self) -> list[ir.Value]:
        initial: list[ir.Value] = []
        carried: list[Port] = []
        for e in self.net.inputs:
            port = (e.internal_layer_id, _port(e.internal_port_id))
            if _sliced(e):
                self.feeds[port] = self._slice(e)
            elif port in self.back:
                value = self._external(e)
                state = self.inner.input("state", value.dtype or ir.DataType.FLOAT, shape(value))
                self.feeds[port] = state
                initial.append(value)
                carried.append(port)
            else:
                self.feeds[port] = self._external(e)
        values = self.outer.body(self.inner, self.net, self.feeds)
        self.inner.output(self.inner.const(True, "again"))
        for port in carried:
            self.inner.output(self._value(values, self.back[port]))
        return self._outputs(values, initial, carried)

    def _slice(self, e: PortMap) -> ir.Value:
        """The part of iteration i: Gather by i along the axis, from the last element on when the stride goes backwards."""
        value = self._external(e)
        cut = slicing(e, shape(value)[e.axis or 0])
        if cut.part == 1 and abs(cut.step) == 1 and cut.count == shape(value)[cut.axis]:
            i = self.step if cut.step == 1 else self.inner.op("Sub", cut.count - 1, self.step)
            return self.inner.op("Unsqueeze", self.inner.op("Gather", value, i, axis=cut.axis), [cut.axis])
        parts = self.b.op("Gather", value, cut.index, axis=cut.axis)
        return self.inner.op("Gather", parts, self.step, axis=cut.axis)

    def _value(self, values: dict[Port, ir.Value], port: Port) -> ir.Value:
        if port not in values:
            raise MappingError(f"the port map names layer {port[0]}, port {port[1]}, which the body does not write", "R105")
        return values[port]

    def _outputs(self, values: dict[Port, ir.Value], initial: list[ir.Value], carried: list[Port]) -> list[ir.Value]:
        results: list[ir.Value | None] = [None] * len(self.layer.outputs)
        last: list[tuple[int, int]] = []  # (output, which state) of values that only the last iteration gives
        every: list[tuple[int, PortMap]] = []
        for e in self.net.outputs:
            place, port = self._output(e), (e.internal_layer_id, _port(e.internal_port_id))
            if _sliced(e):
                every.append((place, e))
            else:
                state = next((k for k, c in enumerate(carried) if self.back[c] == port), None)
                if state is None:  # carried along for its last value alone
                    state = len(initial)
                    value = self._value(values, port)
                    initial.append(self.b.const(np.zeros(shape(value), (value.dtype or ir.DataType.FLOAT).numpy())))
                    formal = self.inner.input("unused", value.dtype or ir.DataType.FLOAT, shape(value))
                    del formal
                    self.inner.output(value)
                    carried.append((-1, state))
                    self.back[-1, state] = port
                last.append((place, state))
        for _, e in every:
            self.inner.output(self._value(values, (e.internal_layer_id, _port(e.internal_port_id))))
        found = self.b.ops("Loop", self.count, True, *initial, outputs=len(initial) + len(every), body=self.inner.graph)
        for place, state in last:
            results[place] = found[state]
        for k, (place, e) in enumerate(every):
            results[place] = self._joined(found[len(initial) + k], e, dims(self.layer, place))
        if any(r is None for r in results):
            raise MappingError("an output port has no entry in the port map", "R105")
        return [r for r in results if r is not None]

    def _joined(self, stacked: ir.Value, e: PortMap, out: tuple[int, ...]) -> ir.Value:
        """[count, .., part, ..] joined along the axis, in reverse when the stride goes backwards."""
        cut = slicing(e, out[e.axis or 0])
        if abs(cut.step) != cut.part or cut.count * cut.part != out[cut.axis]:
            raise MappingError("the parts of an output overlap or leave gaps", "R110")
        part = list(out)
        part[cut.axis] = cut.part
        set_type(stacked, None, [cut.count, *part])
        if cut.step < 0:
            stacked = self.b.op("Slice", stacked, [-1], [-(1 << 60)], [0], [-1])
        moved = stacked
        if cut.axis:
            moved = self.b.op("Transpose", stacked, perm=[*range(1, cut.axis + 1), 0, *range(cut.axis + 1, len(out) + 1)])
        return self.b.op("Reshape", moved, list(out))


def _sliced(e: PortMap) -> bool:
    return e.axis is not None and e.axis >= 0


def _port(id: int | None) -> int:
    return -1 if id is None else id
