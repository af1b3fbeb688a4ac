"""The typed nodes of `ir` -> offsets in the .bin, and .xml, streamed: one layer at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import BinaryIO

import numpy as np
from lxml import etree

from converter.errors import Diagnostic, UnsupportedError, Where
from converter.formats.openvino.ir import (
    BODIES,
    BackEdge,
    Body,
    Channel,
    Edge,
    Element,
    Layer,
    Net,
    Port,
    PortMap,
    PreProcess,
    Statistic,
    SubNet,
)
from converter.formats.openvino.types import ELEMENT_TYPES
from converter.formats.openvino.xml import XmlElement, join_names
from converter.graph.equal_weights import EqualWeights
from converter.graph.lazy_tensor import LazyTensor

# Every constant begins at a multiple of this, so that no element of a mapped .bin is unaligned.
_ALIGNMENT = 8
_NOTHING = LazyTensor(np.zeros(1, np.uint8))

Places = dict[LazyTensor, tuple[int, int]]


def lay_out(net: Net) -> tuple[Places, list[LazyTensor]]:
    """Assign a location to every blob, in the order of the layers: return (offset, size) of each
    for `write_xml`, and the content of the .bin.
    """
    pool = _Pool()
    locations: Places = {}
    for layer in net.walk():
        for name, blob in layer.blobs.items():
            locations[blob] = pool.range_of(blob)
            if not net.legacy:
                _check_size(layer, name, locations[blob][1])
                # OpenVINO takes a constant of no bytes for an unknown one; its own writer spends a
                # byte on it
                locations[blob] = locations[blob] if locations[blob][1] else pool.range_of(_NOTHING)
    for channel in net.pre_process.channels if net.pre_process else ():
        if isinstance(channel.mean, LazyTensor):
            locations[channel.mean] = pool.range_of(channel.mean)
    return locations, pool.weights


def _check_size(layer: Layer, name: str, size: int) -> None:
    """Check that a constant has the size of its shape, since the opset engine rejects others."""
    if name != "value" or layer.type != "Const":
        raise ValueError(
            f"layer {layer.name!r} ({layer.type}): opset IR does not support blob {name!r}; "
            "only a Const has one, called 'value'"
        )
    kind, shape = layer.data["element_type"], layer.data["shape"]
    count = int(np.prod([int(d) for d in shape.split(",")], dtype=object)) if shape.strip() else 1
    if kind != "string" and size != ELEMENT_TYPES[kind].nbytes(count):
        raise ValueError(f"layer {layer.name!r}: {size} bytes do not fit {kind} of shape [{shape}]")


class _Pool:
    """A store of consecutive constants that shares equal bytes, also between precisions."""

    def __init__(self) -> None:
        self.weights: list[LazyTensor] = []
        self._end = 0
        self._places: EqualWeights[tuple[int, int]] = EqualWeights()

    def range_of(self, weight: LazyTensor) -> tuple[int, int]:
        return self._places.once(weight, lambda: self._append(weight))

    def _append(self, weight: LazyTensor) -> tuple[int, int]:
        gap = -self._end % _ALIGNMENT
        if gap:
            self.weights.append(LazyTensor(np.zeros(gap, np.uint8)))
        self.weights.append(weight)
        found = (self._end + gap, weight.length)
        self._end = sum(found)
        return found


def write_xml(net: Net, locations: Places, f: BinaryIO) -> None:
    """Write the XML with tabs, as OpenVINO does; sections in the order of OpenVINO's own files."""
    xml = _Xml(net, locations)
    f.write(b'<?xml version="1.0"?>\n')
    with (
        etree.xmlfile(f, encoding="utf-8") as out,
        out.element("net", xml.safe({"name": net.name, "version": str(net.version)} | net.attrs)),
    ):
        out.write("\n\t")
        with out.element("layers"):
            for layer in net.layers:
                out.write("\n\t\t")
                out.write(_indented(xml.layer(layer), 2))
            out.write("\n\t")
        for section in xml.sections(net):
            out.write("\n\t")
            out.write(_indented(section, 1))
        out.write("\n")
    f.write(b"\n")


def _indented(e: XmlElement, level: int) -> XmlElement:
    etree.indent(e, "\t", level=level)
    e.tail = None
    return e


class _Xml:
    """Create lxml elements; every text passes through `safe`, since XML does not support control
    characters.
    """

    def __init__(self, net: Net, locations: Places) -> None:
        self.net = net
        self.locations = locations

    def safe(self, attrs: dict[str, str], layer: Layer | None = None) -> dict[str, str]:
        for key, value in attrs.items():
            self.text(key, value, layer)
        return attrs

    def text(self, what: str, value: str, layer: Layer | None = None) -> str:
        """Return `value`; raise W303 if XML cannot represent it."""
        try:
            etree.Element("x").text = value
        except ValueError:
            where = Where(layer=layer.name, kind=layer.type) if layer else Where()
            raise UnsupportedError(
                Diagnostic("W303", f"XML cannot represent {what} {value!r}", where=where)
            ) from None
        return value

    def element(
        self,
        tag: str,
        attrs: dict[str, str] | None = None,
        *below: XmlElement,
        layer: Layer | None = None,
    ) -> XmlElement:
        try:
            e = etree.Element(tag, attrs or {})
        except ValueError:
            self.safe(attrs or {}, layer)
            raise
        e.extend(below)
        return e

    def tree(self, t: Element) -> XmlElement:
        e = self.element(t.tag, t.attrs, *map(self.tree, t.children))
        e.text = self.text(f"the text of <{t.tag}>", t.text) or None
        return e

    def trees(self, *trees: Element | None) -> list[XmlElement]:
        return [self.tree(t) for t in trees if t is not None]

    def sections(self, net: Net) -> Iterable[XmlElement]:
        """Yield the sections that follow the layers of a net."""
        yield self.edges(net)
        if net.pre_process:
            yield self.pre_process(net.pre_process)
        if net.statistics:
            yield self.element("statistics", {}, *map(self.statistic, net.statistics))
        yield from self.trees(net.rt_info, net.meta_data, net.quantization_parameters, *net.extra)

    def edges(self, body: Body) -> XmlElement:
        return self.element("edges", {}, *map(self.edge, body.edges))

    def edge(self, e: Edge | BackEdge) -> XmlElement:
        ends = {
            "from-layer": e.from_layer,
            "from-port": e.from_port,
            "to-layer": e.to_layer,
            "to-port": e.to_port,
        }
        return self.element("edge", _numbers(ends))

    def layer(self, layer: Layer) -> XmlElement:
        head = {
            "id": str(layer.id),
            "name": layer.name,
            "type": layer.type,
            "precision": layer.precision,
            "version": layer.version,
        }
        own = {k: v for k, v in head.items() if v or k in ("name", "type")}
        e = self.element("layer", own | layer.attrs, layer=layer)
        data = layer.data
        if not self.net.legacy and "value" in layer.blobs:
            data = data | self.offset_attributes(layer.blobs["value"])
        if data or layer.data_children:
            e.append(self.element("data", data, *self.trees(*layer.data_children), layer=layer))
        e.extend(self.trees(layer.rt_info))
        for tag, body in layer.bodies.items():
            e.extend(self.connections(tag, body))
        for tag, ports in (("input", layer.inputs), ("output", layer.outputs)):
            if ports:
                e.append(self.element(tag, {}, *(self.port(p, layer) for p in ports)))
        if self.net.legacy and layer.blobs:
            e.append(self.element("blobs", {}, *map(self.blob, layer.blobs, layer.blobs.values())))
        e.extend(self.trees(*layer.extra))
        e.extend(self.element(tag, {}, *self.body(body)) for tag, body in layer.bodies.items())
        return e

    def body(self, body: SubNet) -> list[XmlElement]:
        layers = self.element("layers", {}, *map(self.layer, body.layers))
        return [layers, self.edges(body), *self.trees(body.rt_info, *body.extra)]

    def port(self, port: Port, layer: Layer) -> XmlElement:
        own = {"id": str(port.id), "precision": port.precision, "names": join_names(port.names)}
        e = self.element("port", {k: v for k, v in own.items() if v} | port.attrs, layer=layer)
        for d in port.dims:
            etree.SubElement(e, "dim").text = str(d)
        e.extend(self.trees(port.rt_info))
        return e

    def offset_attributes(self, blob: LazyTensor) -> dict[str, str]:
        offset, size = self.locations[blob]
        return {"offset": str(offset), "size": str(size)}

    def blob(self, tag: str, blob: LazyTensor) -> XmlElement:
        precision = {"precision": blob.element} if self.net.legacy and blob.element else {}
        return self.element(tag, self.offset_attributes(blob) | precision)

    def connections(self, tag: str, body: SubNet) -> Iterable[XmlElement]:
        maps = [("input", m) for m in body.inputs] + [("output", m) for m in body.outputs]
        yield self.element(BODIES[tag], {}, *(self.element(kind, _port_map(m)) for kind, m in maps))
        if body.back_edges:
            yield self.element("back_edges", {}, *map(self.edge, body.back_edges))

    def pre_process(self, p: PreProcess) -> XmlElement:
        attrs = {"reference-layer-name": p.reference_layer_name, "mean-precision": p.mean_precision}
        return self.element(
            "pre-process", {k: v for k, v in attrs.items() if v}, *map(self.channel, p.channels)
        )

    def channel(self, c: Channel) -> XmlElement:
        e = self.element("channel", {"id": str(c.id)})
        if isinstance(c.mean, LazyTensor):
            e.append(self.blob("mean", c.mean))
        elif c.mean is not None:
            e.append(self.element("mean", {"value": repr(c.mean)}))
        if c.scale is not None:
            e.append(self.element("scale", {"value": repr(c.scale)}))
        return e

    def statistic(self, s: Statistic) -> XmlElement:
        texts = {
            "name": s.name,
            "min": ",".join(map(repr, s.min)),
            "max": ",".join(map(repr, s.max)),
        }
        return self.tree(
            Element("layer", {}, [Element(tag, text=text) for tag, text in texts.items()])
        )


def _numbers(attrs: dict[str, int | None]) -> dict[str, str]:
    return {name: str(n) for name, n in attrs.items() if n is not None}


def _port_map(m: PortMap) -> dict[str, str]:
    attrs = {name: n for name, n in asdict(m).items() if name != "purpose"}
    numbers = _numbers({"axis": m.axis, **attrs})
    return numbers | {"purpose": m.purpose} if m.purpose else numbers
