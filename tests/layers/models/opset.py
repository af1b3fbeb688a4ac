"""One operation of OpenVINO's opsets: IR 11 in memory, and the runtime that computes its
numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.codec import read_ir, write_ir
from converter.formats.openvino.ir import Edge, Layer, Net, Port
from converter.formats.openvino.opset.codes import CODES
from converter.formats.openvino.opset.constants import DATA_TYPES, NAMES, read_const, write_const
from converter.formats.openvino.opset.lift import lift as lift
from converter.formats.openvino.opset.mapping import MAPPING as MAPPING
from converter.formats.openvino.types import ELEMENT_TYPES
from converter.io.files import Output
from layers.cases import Case, Tensor, chosen

TARGET, LAYOUT, SUFFIX = "openvino", "", ".xml"
_ELEMENTS = {t.precision: name for name, t in ELEMENT_TYPES.items()}


def build(case: Case) -> Net:
    """A net of the layer, with its operands before and results after it."""
    operands, edges, ports = [], [], []
    own = len(case.inputs)
    for i, t in enumerate(case.inputs):
        operands.append(_constant(i, t) if t.constant else _parameter(i, t))
        ports.append(Port(i, t.shape, _precision(t.type)))
        edges.append(Edge(i, 0, own, i))
    outputs = [
        Port(own + i, t.shape, _precision(t.type), (f"y{i}",)) for i, t in enumerate(case.outputs)
    ]
    layer = Layer(own, "layer", case.kind, case.version, data=dict(case.attributes), inputs=ports,
                  outputs=outputs)  # fmt: skip
    results = []
    for i, (t, p) in enumerate(zip(case.outputs, outputs, strict=True)):
        if not t.unread:
            id = own + 1 + i
            port = Port(0, p.dims, p.precision)
            results.append(Layer(id, f"r{i}", "Result", "opset1", inputs=[port]))
            edges.append(Edge(own, p.id, id, 0))
    return Net(name="one", version=11, layers=[*operands, layer, *results], edges=edges)


def _precision(type: str) -> str:
    return "STRING" if type == "string" else ELEMENT_TYPES[element(type)].precision


def element(type: str) -> str:
    dtype = ir.DataType.STRING if type == "string" else ir.DataType.from_numpy(np.dtype(type))
    return NAMES[dtype]


def _parameter(i: int, t: Tensor) -> Layer:
    data = {"element_type": element(t.type), "shape": ",".join(map(str, t.shape))}
    port = Port(0, t.shape, _precision(t.type), (f"x{i}",))
    return Layer(i, f"x{i}", "Parameter", "opset1", data=data, outputs=[port])


def _constant(i: int, t: Tensor) -> Layer:
    return write_const(i, f"x{i}", tensor_of(t))


def tensor_of(t: Tensor) -> ir.TensorProtocol:
    if t.type == "string":
        return ir.StringTensor([str(v).encode() for v in t.values.reshape(-1)],
                               shape=ir.Shape(t.shape))  # fmt: skip
    return ir.Tensor(t.values)


def read(path: Path) -> Net:
    return read_ir(path)


def write(net: Net, path: Path) -> None:
    with Output(path) as out:
        write_ir(net, out)


def taken(path: Path, kind: str) -> Case | str:
    """The only operation of a file, or that of a kind with its neighbors cut off; or why there is
    none.
    """
    net = read_ir(path)
    own = [x for x in net.layers if x.type not in ("Parameter", "Const", "Result")]
    layer = chosen(own, kind, lambda x: x.type)
    if isinstance(layer, str):
        return layer
    by_id, producers = net.by_id(), net.producers()
    if layer.bodies:
        return "a layer with bodies"
    inputs = []
    for port in layer.inputs:
        id, place = producers[layer.id, port.id]
        source, output = by_id[id], by_id[id].output(place)
        assert output is not None
        if source.type == "Const" and source.data["element_type"] in CODES:
            return f"constants of type {source.data['element_type']}"
        if source.type == "Const":
            inputs.append(Tensor.of(read_const(source).numpy(), constant=True))
        else:
            inputs.append(_tensor(output))
    read = set(producers.values())
    outputs = [_tensor(p) for p in layer.outputs]
    for t, p in zip(outputs, layer.outputs, strict=True):
        t.unread = (layer.id, p.id) not in read
    return Case(layer.type, layer.version, "", attributes=dict(layer.data), inputs=inputs,
                outputs=outputs)  # fmt: skip


def _tensor(port: Port) -> Tensor:
    if port.precision == "STRING":
        return Tensor("string", port.dims)
    return Tensor(DATA_TYPES[_ELEMENTS[port.precision]].numpy().name, port.dims)


class Engine:
    """OpenVINO's runtime on the CPU, with 32-bit floats."""

    def __init__(self) -> None:
        import openvino

        self.core: Any = openvino.Core()  # type: ignore[attr-defined, unused-ignore]
        self.name = "OpenVINO " + openvino.__version__.split("-")[0]

    def run(self, path: Path, case: Case) -> dict[str, Any] | str:
        try:
            model = self.core.read_model(path)
            from openvino_runtime import PRECISE

            request = self.core.compile_model(model, "CPU", PRECISE).create_infer_request()
            states = {s.name: s for s in request.query_state()}
            for t in case.inputs:
                if t.state:
                    states[t.state].state = type(states[t.state].state)(t.values)
            own = [f"x{i}" for i, t in enumerate(case.inputs) if t.state]
            found = request.infer({k: _fed(v) for k, v in case.feeds().items() if k not in own})
            return {
                k: np.array(states[t.state].state.data if t.state else found[k])
                for k, t in ((k, case.outputs[int(k[1:])]) for k in case.expected())
            }
        except RuntimeError as e:
            return " ".join(str(e).split())[-300:]


def _fed(array: Any) -> Any:
    return array.astype(str) if array.dtype == object else array
