"""The shared graph -> Net (v10, v11)."""

from __future__ import annotations

import onnx_ir as ir

from converter.diagnostics import Diagnostic
from converter.format import Flavour
from converter.formats.openvino.ir import Edge, Net, Port
from converter.formats.openvino.ir import Layer as IrLayer
from converter.formats.openvino.opset.constants import NAMES, precision, write_const
from converter.formats.openvino.opset.legalise import REWRITES
from converter.formats.openvino.opset.lift import mapping
from converter.formats.openvino.opset.revisions import version_to_write
from converter.graph.names import public_name
from converter.mapping.drive import Lowering, reason_against, refuse
from converter.mapping.node import Layer
from converter.model import Model
from converter.passes.legalise import legalise

NEWEST = {10: 8, 11: 16}  # IR version -> newest opset that its readers know


def lower(model: Model, flavour: Flavour, notes: list[Diagnostic]) -> Net:
    """A Net of the graph; UnsupportedError with everything that has no counterpart."""
    version = int(flavour.options.get("ir", "11"))
    graph = model.ir.clone()
    limit = NEWEST[version]
    legalise(graph, lambda n: reason_against(mapping(), n, limit) is not None, REWRITES)
    writer = NetWriter(Net(name=graph.graph.name or "model", version=version), limit)
    writer.graph(graph.graph)
    return writer.net


class NetWriter:
    """Numbers layers, writes constants in front of their first user and edges behind it."""

    def __init__(self, net: Net, limit: int) -> None:
        self.net, self.limit = net, limit
        self.made: dict[ir.Value, tuple[int, int]] = {}
        self._names: dict[str, int] = {}

    def graph(self, graph: ir.Graph) -> None:
        low = Lowering(mapping(), self.limit)
        for value in graph.inputs:
            self._parameter(value)
        for node in graph:
            low.node(node)
        refuse(low.problems)
        for layer in low.layers:
            self._layer(layer)
        for value in graph.outputs:
            self._result(value)

    def _parameter(self, value: ir.Value) -> None:
        dims = ["?" if not isinstance(d, int) else str(d) for d in value.shape] if value.shape is not None else ["..."]
        data = {"shape": ",".join(dims), "element_type": NAMES[value.dtype or ir.DataType.FLOAT]}
        layer = IrLayer(len(self.net.layers), self._name(public_name(value)), "Parameter", "opset1", data=data, outputs=[self._port(0, value)])
        self._add(layer, [], [value])

    def _result(self, value: ir.Value) -> None:
        layer = IrLayer(len(self.net.layers), self._name(f"{public_name(value)}/result"), "Result", "opset1", inputs=[self._port(0, value, named=False)])
        self._add(layer, [value], [])

    def _layer(self, layer: Layer) -> None:
        inputs = [v for v in layer.inputs if v is not None]
        for v in inputs:
            if v not in self.made and v.const_value is not None:
                const = write_const(len(self.net.layers), self._name(v.name or "const"), v.const_value)
                self._add(const, [], [v])
        id = len(self.net.layers)
        ports = [self._port(i, v, named=False) for i, v in enumerate(inputs)]
        outputs = [self._port(len(inputs) + i, v) for i, v in enumerate(layer.outputs)]
        version = version_to_write(layer.kind, self.limit)
        self._add(
            IrLayer(id, self._name(layer.name or layer.kind), layer.kind, version, data=dict(layer.attrs), inputs=ports, outputs=outputs), inputs, layer.outputs
        )

    def _add(self, layer: IrLayer, inputs: list[ir.Value], outputs: list[ir.Value]) -> None:
        self.net.layers.append(layer)
        for port, value in zip(layer.inputs, inputs, strict=True):
            source, source_port = self.made[value]
            self.net.edges.append(Edge(source, source_port, layer.id, port.id))
        for port, value in zip(layer.outputs, outputs, strict=True):
            self.made[value] = (layer.id, port.id)

    def _port(self, id: int, value: ir.Value, named: bool = True) -> Port:
        dims = tuple(d if isinstance(d, int) else -1 for d in value.shape) if value.shape is not None else ()
        names = (public_name(value),) if named and (value.is_graph_input() or value.is_graph_output()) else ()
        return Port(id, dims, precision(value.dtype), names if self.net.version >= 11 else ())

    def _name(self, hint: str) -> str:
        count = self._names.get(hint, 0)
        self._names[hint] = count + 1
        return hint if count == 0 else self._name(f"{hint}_{count}")
