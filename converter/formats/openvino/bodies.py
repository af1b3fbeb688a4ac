"""Reading and writing of bodies, also of the net itself, one layer after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from converter.errors import Diagnostic, MappingError
from converter.formats.openvino.ir import Body, Edge, Layer, Net, Port, SubNet
from converter.formats.openvino.loops import Place
from converter.graph.build import Builder
from converter.mapping.lifting import FormatMapping, Lifting


class BodyReader(ABC):
    """Lifts the layers of a body of `net`.

    `values`  the values at the ports of the body: output ports and, in the opsets, Results
    `feeds`   the values that the port map feeds to input ports or Parameters
    `read`    the output ports that have a consumer in the body
    `notes`   diagnostics about the net
    """

    mapping: FormatMapping

    def __init__(
        self, net: Net, builder: Builder, notes: list[Diagnostic], nested: bool = False
    ) -> None:
        self.net, self.builder, self.notes, self.nested = net, builder, notes, nested
        self.lifting = Lifting(self.mapping, builder, "openvino", net.version)
        self.values: dict[Place, ir.Value] = {}
        self.feeds: Mapping[Place, ir.Value] = {}
        self.producers: dict[tuple[int, int], tuple[int, int]] = {}
        self.read: set[tuple[int, int]] = set()

    def run(self, body: Body) -> None:
        """Lift all layers. Refusals are added to `lifting.problems`; layers that depend on a
        refused layer are skipped.
        """
        self.producers = body.producers()
        self.read = set(self.producers.values())
        for layer in body.ordered():
            places = [(layer.id, p.id) for p in layer.inputs]
            operands = [self._operand(port) for port in places]
            if any(
                p in self.producers and v is None for p, v in zip(places, operands, strict=True)
            ):
                continue
            with self.lifting.noting(self.net.where(layer)):
                values = self.layer(layer, operands)
                if values is not None:
                    self.bind(layer, values)

    def _operand(self, port: tuple[int, int]) -> ir.Value | None:
        source = self.producers.get(port)
        return self.feeds.get(port) if source is None else self.values.get(source)

    @abstractmethod
    def layer(self, layer: Layer, operands: list[ir.Value | None]) -> Sequence[ir.Value] | None:
        """Return the values of a layer's outputs; None if the layer is refused."""

    def bind(self, layer: Layer, values: Sequence[ir.Value]) -> None:
        """Set the values of a layer's output ports; raise MappingError R105 for too few."""
        if len(values) < len(layer.outputs):
            message = (
                f"{len(layer.outputs)} output ports are connected, but the layer "
                f"has {len(values)} results"
            )
            raise MappingError(message, "R105")
        for port, value in zip(layer.outputs, values, strict=False):
            self.values[layer.id, port.id] = value

    def body(
        self, builder: Builder, body: SubNet, feeds: Mapping[Place, ir.Value]
    ) -> dict[Place, ir.Value]:
        """Return the values of a body inside a layer, whose nodes `builder` writes."""
        inner = type(self)(self.net, builder, self.notes, nested=True)
        inner.feeds = feeds
        inner.run(body)
        if inner.lifting.problems:
            self.lifting.problems.extend(inner.lifting.problems)
            raise MappingError("the body of the layer cannot be converted")
        return Results(inner.values)


class Results(dict[Place, ir.Value]):
    """The values of a body; raises MappingError R105 for one that a damaged port map names."""

    def __missing__(self, place: Place) -> ir.Value:
        raise MappingError(f"the body has no value at port {place[1]} of layer {place[0]}", "R105")


class BodyWriter(ABC):
    """Numbers the layers of a body and writes the edges between them.

    `made`    value -> (layer, output port)
    `feeds`   inputs that are produced outside the body: (value, layer, input port)
    `opset`   the operation set of layers whose operation no later set changed
    """

    opset = ""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.made: dict[ir.Value, tuple[int, int]] = {}
        self.feeds: list[tuple[ir.Value, int, int]] = []

    @abstractmethod
    def port(self, id: int, value: ir.Value, is_input: bool) -> Port:
        """A port that carries a value."""

    def put(
        self,
        kind: str,
        name: str,
        inputs: Sequence[ir.Value],
        outputs: Sequence[ir.Value],
        data: dict[str, str] | None = None,
        version: str = "",
        apart: int = 0,
    ) -> Layer:
        """Append a layer. Its ports are numbered, inputs first; `apart` numbers are skipped between
        the inputs and the outputs.
        """
        layer = Layer(len(self.body.layers), name, kind, version or self.opset, data=data or {})
        layer.inputs = [self.port(i, v, True) for i, v in enumerate(inputs)]
        first = len(inputs) + apart
        layer.outputs = [self.port(i, v, False) for i, v in enumerate(outputs, first)]
        return self.append_layer(layer, inputs, outputs)

    def append_layer(
        self, layer: Layer, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]
    ) -> Layer:
        """Append a layer whose ports carry these values."""
        self.body.layers.append(layer)
        for port, value in zip(layer.inputs, inputs, strict=True):
            if value in self.made:
                self.body.edges.append(Edge(*self.made[value], layer.id, port.id))
            else:
                self.feeds.append((value, layer.id, port.id))
        for port, value in zip(layer.outputs, outputs, strict=True):
            self.made[value] = (layer.id, port.id)
        return layer
