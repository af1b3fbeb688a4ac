"""One layer of Zhouyi's float IR, and the vendor's executor, which computes its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from converter.formats.zhouyi.codec import read_ir, write_ir
from converter.formats.zhouyi.ir import Constant, Document, Layer, build_document
from converter.formats.zhouyi.ir import Tensor as Declared
from converter.formats.zhouyi.lift_document import lift as lift
from converter.formats.zhouyi.mapping import MAPPING as MAPPING
from converter.formats.zhouyi.values import DType, dtype_of
from converter.io.files import Output
from layers.cases import Case, Tensor, chosen
from layers.models.judged import JudgeEngine

TARGET, LAYOUT, SUFFIX = "zhouyi", "native", ".txt"
_BESIDE = ("Input", "Constant")


def build(case: Case) -> Document:
    """A document of the layer, with an Input or a Constant for each of its inputs."""
    tensors = [_declared(f"x{i}", t) for i, t in enumerate(case.inputs)]
    layers = [
        Layer(f"x{i}", "Constant", [], [tensors[i]], {}, {"weights": Constant.of(t.values)})
        if t.constant
        else Layer(f"x{i}", "Input", [], [tensors[i]])
        for i, t in enumerate(case.inputs)
    ]
    outputs = [_declared(f"y{i}", t) for i, t in enumerate(case.outputs)]
    constants = {name: Constant.of(t.values) for name, t in case.weights.items()}
    attributes = {k: _attribute(v) for k, v in case.attributes.items()}
    layers.append(Layer("layer", case.kind, tensors, outputs, attributes, constants))
    return build_document("one", layers, [*case.feeds()], [*case.expected()])


def _declared(name: str, t: Tensor) -> Declared:
    return Declared(name, t.shape, dtype_of(t.dtype))


def _attribute(value: Any) -> Any:
    """Names of types are a kind of value of their own."""
    return DType(value) if isinstance(value, str) and value in [*DType] else value


def read(path: Path) -> Document:
    return read_ir(path)


def write(document: Document, path: Path) -> None:
    with Output(path) as out:
        write_ir(document, out)


def taken(path: Path, kind: str) -> Case | str:
    """The only layer of a file, or that of a kind with its neighbors cut off; or why there is
    none.
    """
    document = read_ir(path)
    own = [x for x in document.layers if x.type not in _BESIDE]
    layer = chosen(own, kind, lambda x: x.type)
    if isinstance(layer, str):
        return layer
    if document.subgraphs:
        return "a layer with bodies"
    constants = {
        x.outputs[0].name: x.constants["weights"] for x in document.layers if x.type == "Constant"
    }
    inputs = [
        Tensor.of(constants[t.name].array.reshape(t.shape or ()), constant=True)
        if t.name in constants
        else _tensor(t)
        for t in layer.inputs
    ]
    outputs = [_tensor(t) for t in layer.outputs]
    for t, declared in zip(outputs, layer.outputs, strict=True):
        read = [*document.output_tensors, *(t.name for x in own for t in x.inputs)]
        t.unread = declared.name not in read
    weights = {name: Tensor.of(c.array) for name, c in layer.constants.items()}
    if layer.constant_lists:
        return "lists of constants"
    return Case(
        layer.type, attributes=dict(layer.attrs), weights=weights, inputs=inputs, outputs=outputs
    )


def _tensor(t: Declared) -> Tensor:
    assert t.dtype is not None and t.shape is not None
    return Tensor(t.dtype.numpy.name, t.shape)


class Engine(JudgeEngine):
    judge, name = "zhouyi-vendor", "Compass Optimizer d7b2bb7e"
