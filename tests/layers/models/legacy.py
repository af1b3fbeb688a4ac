"""One layer of legacy OpenVINO IR, whose ports decide types and shapes, and the inference engine of
2020 that computes its numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from converter.formats.openvino.codec import read_ir, write_ir
from converter.formats.openvino.ir import Edge, Layer, Net, Port
from converter.formats.openvino.legacy.lift import constant_of, numbers_of
from converter.formats.openvino.legacy.lift import lift as lift
from converter.formats.openvino.legacy.mapping import MAPPING as MAPPING
from converter.formats.openvino.legacy.types import PRECISIONS
from converter.graph.lazy_tensor import LazyTensor
from converter.io.files import Output
from layers.cases import Case, Tensor, chosen
from layers.models.judged import JudgeEngine

TARGET, LAYOUT, SUFFIX = "openvino+ir=7", "", ".xml"
VERSION = "7"
_PLAIN = ["FP32", "FP16", "I64", "I32", "I16", "U16", "I8", "U8", "BOOL"]
_NAMES = {PRECISIONS[name].numpy(): name for name in _PLAIN}


def build(case: Case) -> Net:
    """A net of the layer, with an Input or a Const for each of its inputs."""
    own, layers, edges, ports = len(case.inputs), [], [], []
    for i, t in enumerate(case.inputs):
        port = Port(0, t.shape, _NAMES[t.dtype])
        kind = "Const" if t.constant else "Input"
        blobs = {"custom": LazyTensor(t.values, element=port.precision)} if t.constant else {}
        layers.append(Layer(i, f"x{i}", kind, outputs=[port], blobs=blobs))
        ports.append(Port(i, t.shape, port.precision))
        edges.append(Edge(i, 0, own, i))
    outputs = [Port(own + i, t.shape, _NAMES[t.dtype]) for i, t in enumerate(case.outputs)]
    blobs = {
        name: LazyTensor(t.values, element=_NAMES[t.dtype]) for name, t in case.weights.items()
    }
    layer = Layer(own, "layer", case.kind, data=dict(case.attributes), inputs=ports, blobs=blobs,
                  outputs=outputs)  # fmt: skip
    return Net(name="one", version=int(case.version), layers=[*layers, layer], edges=edges)


def read(path: Path) -> Net:
    return read_ir(path)


def write(net: Net, path: Path) -> None:
    with Output(path) as out:
        write_ir(net, out)


def taken(path: Path, kind: str) -> Case | str:
    """The only layer of a file, or that of a kind with its neighbors cut off; or why there is
    none.
    """
    net = read_ir(path)
    own = [x for x in net.layers if x.type not in ("Input", "Const")]
    layer = chosen(own, kind, lambda x: x.type)
    if isinstance(layer, str):
        return layer
    if layer.bodies:
        return "a layer with bodies"
    by_id, producers, inputs = net.by_id(), net.producers(), []
    for port in layer.inputs:
        id, place = producers[layer.id, port.id]
        source, output = by_id[id], by_id[id].output(place)
        assert output is not None
        inputs.append(
            Tensor.of(constant_of(source), constant=True)
            if source.type == "Const"
            else _tensor(output)
        )
    weights = {name: Tensor.of(numbers_of(blob, layer)) for name, blob in layer.blobs.items()}
    return Case(layer.type, str(net.version), attributes=dict(layer.data), weights=weights,
                inputs=inputs, outputs=[_tensor(p) for p in layer.outputs])  # fmt: skip


def _tensor(port: Port) -> Tensor:
    return Tensor(PRECISIONS[port.precision].numpy().name, port.dims)


class Engine(JudgeEngine):
    judge, name, release = "legacy-engine", "OpenVINO 2020.4", "4.4.0.0"

    def arguments(self) -> tuple[Any, ...]:
        return (self.release,)

    def run(self, path: Path, case: Case) -> dict[str, Any] | str:
        """The older release loads layers that the newer one no longer knows."""
        found, self.name = super().run(path, case), type(self).name
        if isinstance(found, str) and self.release != Older.release:
            found = Older().run(path, case)
            self.name = Older.name
        return found

    def named(self, name: str, case: Case) -> str:
        return "layer" if len(case.outputs) == 1 else f"layer.{name[1:]}"


class Older(Engine):
    name, release = "OpenVINO 2020.2", "4.2.0.4"
