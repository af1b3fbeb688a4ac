"""The port map of a TensorIterator for the body of a Loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx_ir as ir

from converter.formats.openvino.ir import BackEdge, PortMap, SubNet
from converter.formats.openvino.ir import Layer as IrLayer
from converter.formats.openvino.legacy.write_recurrent import LoopPlan, Slice
from converter.formats.openvino.legacy.writing import ints, static
from converter.mapping.drive import FormatMapping, Lowering
from converter.mapping.node import Layer
from converter.mapping.table import Table

if TYPE_CHECKING:
    from converter.formats.openvino.legacy.lower import BodyWriter


@dataclass
class Externals:
    """The values that the loop takes from outside, in the order of its ports, and the port map in terms of them."""

    plan: LoopPlan
    inputs: list[ir.Value] = field(default_factory=list)
    entries: list[tuple[int, PortMap]] = field(default_factory=list)
    outputs: list[PortMap] = field(default_factory=list)
    back: list[BackEdge] = field(default_factory=list)

    def port(self, value: ir.Value) -> int:
        if value not in self.inputs:
            self.inputs.append(value)
        return self.inputs.index(value)

    def complete(self, sub: SubNet, made: IrLayer) -> None:
        """Fills in the ports of the layer, which are known once it is written."""
        for place, entry in self.entries:
            entry.external_port_id = made.inputs[place].id
            sub.inputs.append(entry)
        for port, entry in zip(made.outputs, self.outputs, strict=True):
            entry.external_port_id = port.id
            sub.outputs.append(entry)
        sub.back_edges.extend(self.back)


def write_loop(inner: BodyWriter, plan: LoopPlan, layers: list[Layer]) -> Externals:
    """Writes the body's layers and returns what they need from outside.

    A slice along an axis keeps that axis with length 1; a reshape in the body removes it. Likewise a value of which every iteration's is
    asked for gets a first axis of length 1.
    """
    low = Lowering(FormatMapping(Table([])))
    sliced: dict[ir.Value, Slice] = {}
    front: list[Layer] = []
    for value, cut in plan.slices.items():
        shape = static(value)
        part = low.value("part", value.dtype, [*shape[: cut.axis], 1, *shape[cut.axis :]])
        sliced[part] = cut
        front.append(_reshape(low, part, value))
    count = low.value("count", ir.DataType.INT64, [1])
    steps = ints(low, range(plan.count))
    sliced[count] = Slice(steps, 0, False)
    used = {v for layer in layers if not set(layer.outputs) & set(plan.slices) for v in layer.inputs}
    if plan.body.inputs[0] in used:
        squeeze = low.add("Squeeze", [count, ints(low, [0])], [plan.body.inputs[0]])
        squeeze.name = "step"
        front.append(squeeze)
    back: list[Layer] = []
    every: dict[ir.Value, ir.Value] = {}
    for _, value in plan.every:
        every[value] = low.value("every", value.dtype, [1, *static(value)])
        back.append(_reshape(low, value, every[value]))
    for layer in (*front, *(la for la in layers if not set(la.outputs) & set(plan.slices)), *back):
        inner.add(layer)
    return _port_map(inner, plan, sliced, every)


def _reshape(low: Lowering, value: ir.Value, out: ir.Value) -> Layer:
    shape = static(out)
    kind, second = ("Reshape", ints(low, shape)) if shape else ("Squeeze", ints(low, range(len(static(value)))))
    layer = low.add(kind, [value, second], [out])
    layer.name = f"{value.name}/{kind.lower()}"
    return layer


def _port_map(inner: BodyWriter, plan: LoopPlan, sliced: dict[ir.Value, Slice], every: dict[ir.Value, ir.Value]) -> Externals:
    found = Externals(plan)
    for value, layer, port in inner.feeds:
        if value in plan.states:
            initial, following = plan.states[value]
            found.entries.append((found.port(initial), PortMap(0, layer, port)))
            source, source_port = inner.made[following]
            found.back.append(BackEdge(source, layer, source_port, port))
        elif value in sliced:
            cut = sliced[value]
            start, end, stride = (-1, 0, -1) if cut.backwards else (0, -1, 1)
            found.entries.append((found.port(cut.source), PortMap(0, layer, port, cut.axis, start, end, stride, 1)))
        else:
            found.entries.append((found.port(value), PortMap(0, layer, port)))
    for _, value in plan.last:
        layer, port = inner.made[value]
        found.outputs.append(PortMap(0, layer, port))
    for _, value in plan.every:
        layer, port = inner.made[every[value]]
        found.outputs.append(PortMap(0, layer, port, 0, 0, -1, 1, 1))
    return found
