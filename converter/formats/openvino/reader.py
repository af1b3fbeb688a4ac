"""XML elements -> the typed nodes of `ir`. The few differences between legacy and opset IR are each
an `if legacy` here.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from converter.errors import unreadable
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
from converter.formats.openvino.xml import (
    Reader,
    XmlElement,
    attributes,
    children,
    elements,
    free_tree,
    line,
    shown,
    split_names,
)
from converter.graph.lazy_tensor import LazyTensor
from converter.io.limits import MOST_AXES
from converter.io.mapped_file import MappedFile
from converter.record import record

_BODY_PARTS = ("layers", "edges", "rt_info", "port_map", "back_edges")
_NET_PARTS = (
    "layers",
    "edges",
    "rt_info",
    "pre-process",
    "statistics",
    "meta_data",
    "quantization_parameters",
)
_PRECISIONS = (
    {t.precision for t in ELEMENT_TYPES.values()}
    | {t.name.upper() for t in ELEMENT_TYPES.values()}
    | {"STRING", "DYNAMIC", "UNSPECIFIED", "UNDEFINED"}
)
Bytes = npt.NDArray[np.uint8]
_B = TypeVar("_B", bound=Body)


def read_net(root: XmlElement, file: str, bin: MappedFile | None, bin_name: str) -> Net:
    """Read the net below the root element. `bin_name` is the name of the weights file for the error
    if it is needed and absent.
    """
    r = Reader(file)
    if root.tag != "net":
        raise r.bad("R103", f"the root element is <{root.tag}>, but an IR begins with <net>", root)
    version = _version(r, root)
    net = Net(
        name=str(root.get("name", "")),
        version=version,
        attrs=attributes(root, "name", "version"),
        bin=bin,
    )
    parts = _Parts(file, net.legacy, bin, bin_name)
    parts.fill(net, root, r, _NET_PARTS)
    if (pre := root.find("pre-process")) is not None:
        net.pre_process = _pre_process(parts, r, pre)
    net.statistics = [_statistic(r, e) for e in children(root.find("statistics"), "layer")]
    net.meta_data = _free(root, "meta_data")
    net.quantization_parameters = _free(root, "quantization_parameters")
    return net


def _version(r: Reader, root: XmlElement) -> int:
    text = r.text(root, "version").strip()
    if text not in map(str, range(2, 12)):
        raise unreadable(
            "R104",
            f"version {shown(text)} of OpenVINO IR is not supported",
            r.where(root),
            help="netconv reads versions 2 to 11",
        )
    return int(text)


def _free(parent: XmlElement, tag: str) -> Element | None:
    found = parent.find(tag)
    return None if found is None else free_tree(found)


@record
class _Parts:
    """A reader of the parts of one file, with their common state."""

    file: str
    legacy: bool
    bin: MappedFile | None
    bin_name: str

    def fill(self, body: _B, e: XmlElement, r: Reader, parts: tuple[str, ...]) -> _B:
        """Read layers, edges, rt_info and all other elements except `parts` of a `<net>` or
        body.
        """
        body.layers = [self.layer(x) for x in children(r.child(e, "layers"), "layer")]
        body.edges = [self.edge(r, x) for x in children(e.find("edges"), "edge")]
        body.rt_info = _free(e, "rt_info")
        body.extra = [free_tree(x) for x in elements(e) if x.tag not in parts]
        return body

    def edge(self, r: Reader, e: XmlElement) -> Edge:
        source = r.integer(e, "from-layer"), r.integer(e, "from-port")
        return Edge(*source, r.integer(e, "to-layer"), r.integer(e, "to-port"), line(e))

    def layer(self, e: XmlElement) -> Layer:
        r = Reader(self.file, str(e.get("name", "")), str(e.get("type", "")))
        own = ("id", "name", "type", "precision" if self.legacy else "version")
        layer = Layer(
            r.integer(e, "id"),
            r.text(e, "name"),
            r.text(e, "type"),
            attrs=attributes(e, *own),
            line=line(e),
        )
        if self.legacy:
            layer.precision = str(e.get("precision", ""))
        else:
            layer.version = r.text(e, "version")
        # of a section that is there twice engines take the first; the second stays an unknown
        # element
        seen: set[str] = set()
        for part in elements(e):
            tag = "data" if self.legacy and str(part.tag).endswith("_data") else str(part.tag)
            if tag in seen or not self._section(r, layer, tag, part):
                layer.extra.append(free_tree(part))
            seen.add(tag)
        for tag, map_tag in BODIES.items():
            if tag in layer.bodies:
                self._connections(
                    r,
                    layer.bodies[tag],
                    e.find(map_tag),
                    e.find("back_edges") if tag == "body" else None,
                )
        self._constant(r, layer, e)
        return layer

    def _section(self, r: Reader, layer: Layer, tag: str, e: XmlElement) -> bool:
        """Read one child of a layer; False when it is not a section of the format."""
        if tag == "data":
            layer.data, layer.data_children = attributes(e), [free_tree(c) for c in elements(e)]
        elif tag == "input":
            layer.inputs = [self.port(r, p) for p in children(e, "port")]
        elif tag == "output":
            layer.outputs = [self.port(r, p, output=True) for p in children(e, "port")]
        elif tag == "rt_info":
            layer.rt_info = free_tree(e)
        elif tag in BODIES:
            layer.bodies[tag] = self.fill(SubNet(), e, r, _BODY_PARTS)
        elif tag == "blobs" and self.legacy:
            layer.blobs |= {str(b.tag): self.blob(r, b) for b in elements(e)}
        elif tag in ("weights", "biases") and self.legacy:
            layer.blobs.setdefault(tag, self.blob(r, e))
        else:
            return tag in ("port_map", "then_port_map", "else_port_map", "back_edges")
        return True

    def port(self, r: Reader, e: XmlElement, output: bool = False) -> Port:
        id = r.integer(e, "id")
        # engines refuse an opset output port without precision
        required = output and not self.legacy
        precision = r.text(e, "precision") if required else str(e.get("precision", ""))
        if precision and not self.legacy and precision.upper() not in _PRECISIONS:
            raise r.bad("R110", f"precision {shown(precision)} of port {id} is not known", e)
        least, what = 1 if self.legacy else -1, f"a dimension of port {id}"
        dims = tuple(r.as_integer(d, d.text or "", what, least) for d in children(e, "dim"))
        if len(dims) > MOST_AXES:
            raise r.bad("R110", f"port {id} has {len(dims)} dimensions, which are too many", e)
        rt_info = _free(e, "rt_info") if len(dims) < len(e) else None
        return Port(
            id,
            dims,
            precision,
            split_names(str(e.get("names", ""))),
            rt_info,
            attributes(e, "id", "precision", "names"),
        )

    def blob(self, r: Reader, e: XmlElement) -> LazyTensor:
        return LazyTensor(
            self.slice(r, e, r.integer(e, "offset"), r.integer(e, "size")),
            element=str(e.get("precision", "")),
        )

    def slice(self, r: Reader, e: XmlElement, offset: int, size: int) -> Bytes:
        """Return a view of the .bin, which has to exist only for slices that are not empty."""
        if self.bin is None and size:
            help = "name the file with --weights when it lies elsewhere"
            raise unreadable(
                "R102", f"weights file {self.bin_name} was not found", r.where(e), help
            )
        if self.bin is None:
            return np.empty(0, np.uint8)
        return self.bin.slice(offset, size, lambda: r.where(e))

    def _constant(self, r: Reader, layer: Layer, e: XmlElement) -> None:
        """Read an opset Const: its range in the .bin becomes the blob `value`; the size must be
        that of its shape.
        """
        if self.legacy or layer.type != "Const":
            return
        data = r.child(e, "data")
        kind, shape = r.text(data, "element_type"), r.text(data, "shape")
        offset, size = r.integer(data, "offset"), r.integer(data, "size")
        count = self._elements(r, data, shape)
        if kind != "string" and kind not in ELEMENT_TYPES:
            raise r.bad("R110", f"element_type {shown(kind)} is not known", data)
        need = size if kind == "string" else ELEMENT_TYPES[kind].nbytes(count)
        # OpenVINO itself gives a constant without elements one byte
        if size != need and not (size == 1 and need == 0):
            raise r.bad(
                "R103",
                f"the constant has {size} bytes, but {kind} of shape [{shape}] needs {need}",
                data,
            )
        layer.blobs["value"] = LazyTensor(self.slice(r, data, offset, size)[:need])
        del layer.data["offset"], layer.data["size"]

    def _elements(self, r: Reader, e: XmlElement, shape: str) -> int:
        dims = shape.split(",") if shape.strip() else []
        if len(dims) > MOST_AXES:
            raise r.bad(
                "R110",
                f"a constant has {len(dims)} dimensions, limit {MOST_AXES}",
                e,
            )
        return math.prod(r.as_integer(e, d, "a dimension of shape") for d in dims)

    def _connections(
        self, r: Reader, body: SubNet, ports: XmlElement | None, back: XmlElement | None
    ) -> None:
        body.inputs = [self._port_map(r, e) for e in children(ports, "input")]
        body.outputs = [self._port_map(r, e) for e in children(ports, "output")]
        for e in children(back, "edge"):
            edge = BackEdge(r.integer(e, "from-layer"), r.integer(e, "to-layer"))
            if self.legacy:
                edge.from_port, edge.to_port = r.integer(e, "from-port"), r.integer(e, "to-port")
            body.back_edges.append(edge)

    def _port_map(self, r: Reader, e: XmlElement) -> PortMap:
        result = PortMap(
            r.integer(e, "external_port_id", least=-1),
            r.integer(e, "internal_layer_id"),
            purpose=str(e.get("purpose", "")),
        )
        if self.legacy:
            result.internal_port_id = r.integer(e, "internal_port_id")
        for name in ("axis", "start", "end", "stride", "part_size"):
            setattr(result, name, r.integer_or_none(e, name))
        return result


def _pre_process(parts: _Parts, r: Reader, e: XmlElement) -> PreProcess:
    channels = []
    for c in children(e, "channel"):
        channel = Channel(r.integer(c, "id"))
        if (mean := c.find("mean")) is not None:
            if "offset" in mean.attrib:
                channel.mean = parts.blob(r, mean)
            else:
                channel.mean = r.as_number(mean, r.text(mean, "value"), "the mean")
        if (scale := c.find("scale")) is not None:
            channel.scale = r.as_number(scale, r.text(scale, "value"), "the scale")
        channels.append(channel)
    return PreProcess(
        str(e.get("reference-layer-name", "")), str(e.get("mean-precision", "")), channels
    )


def _statistic(r: Reader, e: XmlElement) -> Statistic:
    def numbers(tag: str) -> tuple[float, ...]:
        text = e.findtext(tag) or ""
        parts = text.split(",") if text.strip() else []
        return tuple(r.as_number(e, part, f"<{tag}> of the statistics") for part in parts)

    return Statistic(str(e.findtext("name") or ""), numbers("min"), numbers("max"))
