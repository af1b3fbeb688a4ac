"""OpenVINO IR as it is on disk: layers, ports, edges and blobs, without semantics.

Everything that an engine reads is a typed field; content that it ignores (unknown attributes and
elements) is kept unchanged in `attrs` and `extra`. `None` means "absent from the file" wherever
absence and a default differ. Legacy IR (versions 2 to 9) and opset IR (10 and 11) share these
classes; the docstrings note fields that belong to one only.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from converter.errors import Where
from converter.graph.lazy_tensor import LazyTensor
from converter.io.mapped_file import MappedFile
from converter.record import by_fields, structure

# the elements of a layer's bodies, and those that connect them
BODIES = {"body": "port_map", "then_body": "then_port_map", "else_body": "else_port_map"}


@structure
class Element:
    """An XML element without a fixed structure (rt_info, meta_data): tag, attributes, text and
    children. `text` is "" if only blanks surround children.
    """

    tag: str
    attrs: dict[str, str] = field(default_factory=dict)
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def find(self, tag: str) -> Element | None:
        """Return the first child with this tag, or None."""
        return next((c for c in self.children if c.tag == tag), None)

    def attribute(self, name: str) -> Element | None:
        """Return the `<attribute name=...>` child of a layer's or port's rt_info, for example
        `decompression`.
        """
        return next(
            (c for c in self.children if c.tag == "attribute" and c.attrs.get("name") == name), None
        )


@structure
class Port:
    """A port of a layer. `id` is unique among the layer's inputs and among its outputs and says
    nothing about the position.

    `dims`: one entry per axis, () for a scalar; legacy all positive and, on outputs, authoritative;
    opset IR -1 for dynamic, only a hint. `precision`: `FP32` spelling; legacy outputs in v7 and
    always in opset IR. `names`: tensor names of opset outputs, commas unescaped.
    """

    id: int
    dims: tuple[int, ...] = ()
    precision: str = ""
    names: tuple[str, ...] = ()
    rt_info: Element | None = None
    attrs: dict[str, str] = field(default_factory=dict)


@structure
class Edge:
    """An edge from an output port to an input port."""

    from_layer: int
    from_port: int
    to_layer: int
    to_port: int
    line: int = field(default=0, compare=False)


@structure
class BackEdge:
    """A back edge: the value at the source becomes the value at the target in the next iteration.
    Ports exist in legacy IR only.
    """

    from_layer: int
    to_layer: int
    from_port: int | None = None
    to_port: int | None = None


@structure
class PortMap:
    """One `<input>` or `<output>` of a port map: which port of the layer is which layer (legacy:
    and port) of the body.

    `external_port_id` is -1 for entries that have only a `purpose` (`current_iteration`,
    `execution_condition`). With `axis` the value is sliced or concatenated, without it is passed
    whole; None = not in the file (0, -1, 1, 1 are the defaults of start, end, stride and
    part_size).
    """

    external_port_id: int
    internal_layer_id: int
    internal_port_id: int | None = None
    axis: int | None = None
    start: int | None = None
    end: int | None = None
    stride: int | None = None
    part_size: int | None = None
    purpose: str = ""


@structure
class Layer:
    """A layer: attributes as text in `data`, ports in order, blobs by name, bodies by tag.

    `version` is the opset (or `extension`) and absent in legacy IR; `precision` is the legacy
    attribute of v2 to v6. `data` never holds the offset and size of a Const: these belong to
    `blobs["value"]`. Legacy blobs are `weights`, `biases`, `custom` ..., and their `element` is the
    attribute
    `precision` ("" = that of the layer). `data_children`: elements
    inside `<data>` (old Crop). `bodies`: "body" (TensorIterator, Loop), "then_body" and "else_body"
    (If). `line` is the line in the XML, 0 for a layer that was not read.
    """

    id: int
    name: str
    type: str
    version: str = ""
    precision: str = ""
    data: dict[str, str] = field(default_factory=dict)
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    blobs: dict[str, LazyTensor] = field(default_factory=dict)
    bodies: dict[str, SubNet] = field(default_factory=dict)
    rt_info: Element | None = None
    data_children: list[Element] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)
    extra: list[Element] = field(default_factory=list)
    line: int = field(default=0, compare=False)

    def input(self, id: int) -> Port | None:
        """Return the input port of an id, or None."""
        return next((p for p in self.inputs if p.id == id), None)

    def output(self, id: int) -> Port | None:
        """Return the output port of an id, or None."""
        return next((p for p in self.outputs if p.id == id), None)


@by_fields
@dataclass(kw_only=True, eq=False, repr=False)
class Body:
    """The layers of a net or a body, and the edges between them. Ids are local to a body; all
    bodies share one .bin.
    """

    layers: list[Layer] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    rt_info: Element | None = None
    extra: list[Element] = field(default_factory=list)

    def by_id(self) -> dict[int, Layer]:
        """Return the layers by their ids."""
        return {layer.id: layer for layer in self.layers}

    def producers(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Return the map from (layer, input port) to the (layer, output port) that feeds it."""
        return {(e.to_layer, e.to_port): (e.from_layer, e.from_port) for e in self.edges}

    def consumers(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Return the map from (layer, output port) to every (layer, input port) that it feeds, in
        the order of the edges.
        """
        result: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for e in self.edges:
            result.setdefault((e.from_layer, e.from_port), []).append((e.to_layer, e.to_port))
        return result

    def ordered(self) -> list[Layer]:
        """Return the layers in topological order, otherwise in file order; layers on or after a
        cycle are omitted.
        """
        position = {layer.id: i for i, layer in enumerate(self.layers)}
        waiting = dict.fromkeys(position, 0)
        following: dict[int, list[int]] = {id: [] for id in position}
        for e in self.edges:
            waiting[e.to_layer] += 1
            following[e.from_layer].append(e.to_layer)
        ready = [position[id] for id, n in waiting.items() if not n]
        heapq.heapify(ready)
        result: list[Layer] = []
        while ready:
            layer = self.layers[heapq.heappop(ready)]
            result.append(layer)
            for id in following[layer.id]:
                waiting[id] -= 1
                if not waiting[id]:
                    heapq.heappush(ready, position[id])
        return result

    def walk(self) -> Iterator[Layer]:
        """Yield every layer of this body and of the bodies inside its layers, outer ones before
        inner ones.
        """
        for layer in self.layers:
            yield layer
            for body in layer.bodies.values():
                yield from body.walk()


@by_fields
@dataclass(kw_only=True, eq=False, repr=False)
class SubNet(Body):
    """The body of a TensorIterator, Loop or If branch, and how it is connected to the layer around
    it.
    """

    inputs: list[PortMap] = field(default_factory=list)
    outputs: list[PortMap] = field(default_factory=list)
    back_edges: list[BackEdge] = field(default_factory=list)


@structure
class Channel:
    """The preprocessing of one channel: `mean` is a number, an image (of the channel's height x
    width) or absent. Engines ignore `scale`.
    """

    id: int
    mean: float | LazyTensor | None = None
    scale: float | None = None


@structure
class PreProcess:
    """Legacy `<pre-process>`: the means are subtracted from the input layer of that name ("" is the
    only input).
    """

    reference_layer_name: str = ""
    mean_precision: str = ""
    channels: list[Channel] = field(default_factory=list)


@structure
class Statistic:
    """Legacy int8 calibration: the range of each channel of one layer's output."""

    name: str
    min: tuple[float, ...] = ()
    max: tuple[float, ...] = ()


@by_fields
@dataclass(kw_only=True, eq=False, repr=False)
class Net(Body):
    """A whole IR. `version` 2..9 is legacy, 10 and 11 opset IR. `attrs`: other attributes of
    `<net>` (`batch`, `precision`).

    `meta_data`, `quantization_parameters` and `rt_info` are free trees. `xml` and `bin` are the
    files it was read from; `write_ir` copies them as they are as long as the net is unchanged.
    """

    name: str
    version: int
    attrs: dict[str, str] = field(default_factory=dict)
    pre_process: PreProcess | None = None
    statistics: list[Statistic] = field(default_factory=list)
    meta_data: Element | None = None
    quantization_parameters: Element | None = None
    xml: MappedFile | None = field(default=None, compare=False)
    bin: MappedFile | None = field(default=None, compare=False)

    @property
    def legacy(self) -> bool:
        return self.version < 10

    @property
    def path(self) -> Path | None:
        return self.xml.path if self.xml else None

    def where(self, layer: Layer) -> Where:
        """Return the location of a layer."""
        return Where(str(self.path or ""), layer.line, layer=layer.name, kind=layer.type)
