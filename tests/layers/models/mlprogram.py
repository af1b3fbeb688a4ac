"""One operation of an ML Program in a bare file, and the kit's interpreter, which computes its
numbers through coremltools' own loader.

Inputs have the names of their parameters, several values of one parameter the same name. Attributes
are parameters, too: text, booleans and small numbers, which are written with the operation.
`version` is the operation set.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from converter.formats.coreml.mlprogram.lift import VERSIONS, read_model
from converter.formats.coreml.mlprogram.mapping import MAPPING as MAPPING
from converter.formats.coreml.package import write_package
from converter.formats.coreml.proto import Model_pb2
from converter.graph.network import Network
from converter.io.files import Output
from formats.mil_files import ARRAYS, Block, Op, Storage, set_block, tensor_type
from layers.cases import Case, Tensor
from layers.models.judged import JudgeEngine

TARGET, LAYOUT, SUFFIX = "mlprogram", "", ".mlpackage"
SEVERAL = ("begins", "ends", "end_masks")  # parameters of which each element is a value


def build(case: Case) -> Any:
    model = Model_pb2.Model(specificationVersion=VERSIONS[case.version])
    program = model.mlProgram
    program.version = 1
    function = program.functions["main"]
    function.opset = case.version
    given: dict[str, Any] = {
        k: np.asarray(v) if isinstance(v, list) and k not in SEVERAL else v
        for k, v in case.attributes.items()
    }
    for i, t in enumerate(case.inputs):
        if not t.constant:
            tensor_type(function.inputs.add(name=f"x{i}").type.tensorType, t.type, t.shape)
            _declare(model.description.input, f"x{i}", t)
        own = t.values if t.constant else f"$x{i}"
        several = sum(other.name == t.name for other in case.inputs) > 1
        given[t.name] = [*given.get(t.name, []), own] if several else own
    outputs = {f"y{i}": (t.type, t.shape) for i, t in enumerate(case.outputs)}
    used = [f"y{i}" for i, t in enumerate(case.outputs) if not t.unread]
    block = Block(ops=[Op(case.kind, given, outputs)], outputs=used)
    set_block(function.block_specializations[case.version], block, Storage())
    for name in used:
        _declare(model.description.output, name, case.outputs[int(name[1:])])
    return model


def _declare(features: Any, name: str, t: Tensor) -> None:
    array = features.add(name=name).type.multiArrayType
    array.shape.extend(t.shape or (1,))
    array.dataType = ARRAYS.get(t.type, ARRAYS["int32"])


def lift(model: Any) -> Network:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.mlmodel"
        path.write_bytes(model.SerializeToString())
        return read_model(path)


def write(model: Any, path: Path) -> None:
    with Output(path) as out:
        write_package(out, model.SerializeToString())


def taken(path: Path, kind: str) -> str:
    """Operations that are written come with constants, so files are made by hand."""
    return "its files are made by hand"


class Engine(JudgeEngine):
    judge = "mil-validate"
    name = "an interpreter in numpy and torch after the texts of the operations"
