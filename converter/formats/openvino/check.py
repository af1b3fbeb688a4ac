"""Check that a net is a graph: unique ids, edges between existing ports, one edge for each input,
no cycle; the same for bodies and their port maps.
"""

from __future__ import annotations

from collections import Counter

from converter.errors import ReadError, Where, unreadable
from converter.formats.openvino.ir import Body, Edge, Layer, Net, SubNet
from converter.record import record

# the number of input and output ports of the layers at the ends of a graph
_ENDS: dict[str, tuple[int, ...]] = {"Parameter": (0, 1), "Const": (0, 1), "Result": (1,)}


def check_net(net: Net) -> None:
    """Raise ReadError R105 at the first rule that the net breaks."""
    if not net.layers:
        raise unreadable("R105", "the net has no layers", net.path or "")
    _Check(net).body(net, inner=False)


@record
class _Check:
    """The rules for the bodies of one net."""

    net: Net

    def broken(self, message: str, layer: Layer) -> ReadError:
        return unreadable("R105", message, self.net.where(layer))

    def body(self, body: Body, inner: bool) -> None:
        fed = self.edges(body, self.unique(body))
        for layer in body.layers:
            # the body of a legacy TensorIterator has no Input layers: ports that no edge feeds are
            # its inputs
            if not (self.net.legacy and inner):
                self.ports(layer, fed)
        ordered = body.ordered()
        if len(ordered) < len(body.layers):
            done = {layer.id for layer in ordered}
            stuck = next(layer for layer in body.layers if layer.id not in done)
            raise self.broken("the layer is part of a cycle, or its inputs are", stuck)
        for layer in body.layers:
            for tag, sub in layer.bodies.items():
                self.body(sub, inner=True)
                self.connections(layer, tag, sub)

    def ports(self, layer: Layer, fed: set[tuple[int, int]]) -> None:
        """Check that every input port is connected, and that the ends of a graph have one port."""
        counts = len(layer.inputs), len(layer.outputs)
        ends = None if self.net.legacy else _ENDS.get(layer.type)
        if ends is not None and counts[: len(ends)] != ends:
            raise self.broken(
                f"a {layer.type} must not have {counts[0]} input and {counts[1]} output ports",
                layer,
            )
        for port in layer.inputs:
            if (layer.id, port.id) not in fed:
                raise self.broken(f"input port {port.id} is not connected", layer)

    def unique(self, body: Body) -> dict[int, Layer]:
        layers: dict[int, Layer] = {}
        names: dict[str, Layer] = {}
        for layer in body.layers:
            if layer.id in layers:
                raise self.broken(
                    f"layer id {layer.id} is already used by {layers[layer.id].name!r}", layer
                )
            # legacy engines find layers by name
            if self.net.legacy and layer.name in names:
                raise self.broken(
                    f"the name is already used by layer {names[layer.name].id}", layer
                )
            layers[layer.id] = names[layer.name] = layer
            for kind, ports in (("input", layer.inputs), ("output", layer.outputs)):
                for id, count in Counter(p.id for p in ports).most_common(1):
                    if count > 1:
                        raise self.broken(f"{count} {kind} ports have the id {id}", layer)
        return layers

    def edges(self, body: Body, layers: dict[int, Layer]) -> set[tuple[int, int]]:
        """Return the input ports that edges feed, as (layer, port)."""
        outputs = {(layer.id, p.id) for layer in body.layers for p in layer.outputs}
        inputs = {(layer.id, p.id) for layer in body.layers for p in layer.inputs}
        fed: set[tuple[int, int]] = set()
        for e in body.edges:
            source, target = (e.from_layer, e.from_port), (e.to_layer, e.to_port)
            if source not in outputs or target not in inputs or target in fed:
                message = _trouble(e, layers, outputs, inputs)
                raise unreadable("R105", message, Where(str(self.net.path or ""), e.line))
            fed.add(target)
        return fed

    def connections(self, layer: Layer, tag: str, sub: SubNet) -> None:
        """Check that port maps and back edges name existing ports of the layer, and layers (legacy:
        and ports) of the body.
        """
        inside = sub.by_id()

        def known(id: int, port: int | None, output: bool) -> None:
            if id not in inside:
                message = f"<{tag}> has no layer {id}, but its connections refer to it"
                raise self.broken(message, layer)
            find = inside[id].output if output else inside[id].input
            if self.net.legacy and (port is None or find(port) is None):
                kind = "output" if output else "input"
                raise self.broken(f"layer {id} of <{tag}> has no {kind} port {port}", layer)

        for maps, find, output in (
            (sub.inputs, layer.input, False),
            (sub.outputs, layer.output, True),
        ):
            for m in maps:
                if m.external_port_id != -1 and find(m.external_port_id) is None:
                    port = m.external_port_id
                    message = f"a port map refers to port {port}, which does not exist"
                    raise self.broken(message, layer)
                known(m.internal_layer_id, m.internal_port_id, output)
        for back in sub.back_edges:
            known(back.from_layer, back.from_port, output=True)
            known(back.to_layer, back.to_port, output=False)


def _trouble(
    e: Edge, layers: dict[int, Layer], outputs: set[tuple[int, int]], inputs: set[tuple[int, int]]
) -> str:
    """Return the reason why an edge is invalid."""
    for id in (e.from_layer, e.to_layer):
        if id not in layers:
            return f"the edge refers to layer {id}, which does not exist"
    if (e.from_layer, e.from_port) not in outputs:
        name = layers[e.from_layer].name
        return f"the edge begins at output port {e.from_port} of {name!r}, which does not exist"
    end = f"the edge ends at input port {e.to_port} of {layers[e.to_layer].name!r}"
    exists = (e.to_layer, e.to_port) in inputs
    return f"{end}, where another edge ends as well" if exists else f"{end}, which does not exist"
