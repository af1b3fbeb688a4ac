"""Is it a graph? Unique ids, edges between ports that exist, one edge for each input, no cycle; the
same for bodies and their maps.
"""

from __future__ import annotations

from collections import Counter

from converter.errors import Where, unreadable
from converter.formats.openvino.ir import Body, Edge, Layer, Net, SubNet


def check_net(net: Net) -> None:
    """ReadError R105 at the first rule that the net breaks."""
    if not net.layers:
        raise unreadable("R105", "the net has no layers", Where(str(net.path or "")))
    _check_body(net, net, inner=False)


def _check_body(net: Net, body: Body, inner: bool) -> None:
    layers = _unique(net, body)
    fed = _edges(net, body, layers)
    # the body of a legacy TensorIterator has no Input layers: ports that no edge feeds are its
    # inputs
    if not net.legacy:
        for layer in body.layers:
            _ports(net, layer)
    if not (net.legacy and inner):
        for layer in body.layers:
            for port in layer.inputs:
                if (layer.id, port.id) not in fed:
                    raise unreadable(
                        "R105", f"nothing is connected to input port {port.id}", net.where(layer)
                    )
    ordered = body.ordered()
    if len(ordered) < len(body.layers):
        done = {layer.id for layer in ordered}
        stuck = next(layer for layer in body.layers if layer.id not in done)
        raise unreadable("R105", "the layer is on or behind a cycle", net.where(stuck))
    for layer in body.layers:
        for tag, sub in layer.bodies.items():
            _check_body(net, sub, inner=True)
            _check_connections(net, layer, tag, sub)


def _ports(net: Net, layer: Layer) -> None:
    """What begins and ends a graph has one port."""
    if (
        layer.type in _ENDS
        and (len(layer.inputs), len(layer.outputs))[: 1 if layer.type == "Result" else 2]
        != _ENDS[layer.type]
    ):
        raise unreadable(
            "R105",
            f"a {layer.type} with {len(layer.inputs)} input and {len(layer.outputs)} output ports",
            net.where(layer),
        )


_ENDS: dict[str, tuple[int, ...]] = {"Parameter": (0, 1), "Const": (0, 1), "Result": (1,)}


def _unique(net: Net, body: Body) -> dict[int, Layer]:
    layers: dict[int, Layer] = {}
    names: dict[str, Layer] = {}
    for layer in body.layers:
        if layer.id in layers:
            raise unreadable(
                "R105",
                f"layer id {layer.id} is already that of {layers[layer.id].name!r}",
                net.where(layer),
            )
        # legacy engines find layers by name
        if net.legacy and layer.name in names:
            raise unreadable(
                "R105",
                f"the name is already that of layer {names[layer.name].id}",
                net.where(layer),
            )
        layers[layer.id] = names[layer.name] = layer
        for kind, ports in (("input", layer.inputs), ("output", layer.outputs)):
            if len({p.id for p in ports}) < len(ports):
                id, count = Counter(p.id for p in ports).most_common(1)[0]
                raise unreadable("R105", f"{count} {kind} ports have the id {id}", net.where(layer))
    return layers


def _edges(net: Net, body: Body, layers: dict[int, Layer]) -> set[tuple[int, int]]:
    """The input ports that edges feed, as (layer, port)."""
    outputs = {(layer.id, p.id) for layer in body.layers for p in layer.outputs}
    inputs = {(layer.id, p.id) for layer in body.layers for p in layer.inputs}
    fed: set[tuple[int, int]] = set()
    for e in body.edges:
        source, target = (e.from_layer, e.from_port), (e.to_layer, e.to_port)
        if source not in outputs or target not in inputs or target in fed:
            raise unreadable(
                "R105",
                f"the edge {_trouble(e, layers, outputs, inputs)}",
                Where(str(net.path or ""), e.line),
            )
        fed.add(target)
    return fed


def _trouble(
    e: Edge, layers: dict[int, Layer], outputs: set[tuple[int, int]], inputs: set[tuple[int, int]]
) -> str:
    """Why there cannot be this edge."""
    for id in (e.from_layer, e.to_layer):
        if id not in layers:
            return f"refers to layer {id}, which does not exist"
    if (e.from_layer, e.from_port) not in outputs:
        return (
            f"leaves from output port {e.from_port} of {layers[e.from_layer].name!r}, which "
            "does not exist"
        )
    end = f"leads to input port {e.to_port} of {layers[e.to_layer].name!r}"
    return (
        f"{end}, which does not exist"
        if (e.to_layer, e.to_port) not in inputs
        else f"{end}, as another does"
    )


def _check_connections(net: Net, layer: Layer, tag: str, sub: SubNet) -> None:
    """Port maps and back edges name ports of the layer and layers (legacy: and ports) of the
    body.
    """
    inside = sub.by_id()

    def known(id: int, port: int | None, output: bool) -> None:
        if id not in inside:
            raise unreadable(
                "R105",
                f"<{tag}> has no layer {id}, which its connections refer to",
                net.where(layer),
            )
        if (
            net.legacy
            and (inside[id].output if output else inside[id].input)(
                port if port is not None else -1
            )
            is None
        ):
            raise unreadable(
                "R105",
                f"layer {id} of <{tag}> has no {'output' if output else 'input'} port {port}",
                net.where(layer),
            )

    for maps, find, output in ((sub.inputs, layer.input, False), (sub.outputs, layer.output, True)):
        for m in maps:
            if m.external_port_id != -1 and find(m.external_port_id) is None:
                raise unreadable(
                    "R105",
                    f"a port map refers to port {m.external_port_id}, which the layer does "
                    "not have",
                    net.where(layer),
                )
            known(m.internal_layer_id, m.internal_port_id, output)
    for back in sub.back_edges:
        known(back.from_layer, back.from_port, output=True)
        known(back.to_layer, back.to_port, output=False)
