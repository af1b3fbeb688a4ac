"""One operator of TensorFlow Lite in a file, and LiteRT, which computes its numbers.

Attributes are the options by the names of the schema, enumerations as numbers. Inputs are all
tensors of the operator in their order, constants too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from converter.engines import litert
from converter.errors import ConverterError, unreadable
from converter.formats.tflite.codec import (
    BUILTINS,
    LiteGraph,
    LiteModel,
    LiteOperator,
    LiteTensor,
    read_flat,
    write_flat,
)
from converter.formats.tflite.custom import content_of, parameters_of
from converter.formats.tflite.lift import read_model
from converter.formats.tflite.mapping import MAPPING as MAPPING
from converter.formats.tflite.options import table_of
from converter.formats.tflite.schema import schema
from converter.formats.tflite.tensors import constant_of, is_quantized, type_of
from converter.formats.tflite.versions import version_of
from converter.graph.network import Network
from converter.io.files import Output
from formats.tflite_files import TYPES
from layers.cases import Case, Tensor, chosen
from layers.models.judged import presented

TARGET, LAYOUT, SUFFIX = "tflite", "keep", ".tflite"
_NAMES = {v: k for k, v in vars(schema.TensorType).items() if isinstance(v, int)}
# options that the reader takes from the tensors, and kernels from here
_RESULT_TYPES = {
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), ("output_type", 0)),
    "SHAPE": ("out_type", 0),
    "UNIQUE": ("idx_out_type", 1),
}


def build(case: Case) -> LiteModel:
    tensors = [_lite(f"x{i}", t) for i, t in enumerate(case.inputs)]
    tensors += [_lite(f"y{i}", t) for i, t in enumerate(case.outputs)]
    count = len(case.inputs)
    inputs = [-1 if t.absent else i for i, t in enumerate(case.inputs)]
    outputs = list(range(count, len(tensors)))
    options = dict(case.attributes)
    if case.kind in BUILTINS:
        if case.kind in _RESULT_TYPES:
            key, result = _RESULT_TYPES[case.kind]
            options[key] = tensors[count + result].type
        operator = LiteOperator(case.kind, inputs, outputs, table_of(case.kind), options)
    else:
        content = content_of(options)
        operator = LiteOperator("CUSTOM", inputs, outputs, custom=case.kind, content=content)
    operator.version = version_of(operator, tensors)
    graph = LiteGraph("main", tensors, [operator])
    graph.inputs = [int(name[1:]) for name in case.feeds()]
    graph.outputs = [count + int(name[1:]) for name in case.expected()]
    return LiteModel([graph])


def _lite(name: str, t: Tensor) -> LiteTensor:
    if t.absent:
        return LiteTensor(name, schema.TensorType.FLOAT32, [0])
    made = LiteTensor(name, _type(t), list(t.shape))
    if t.constant:
        made.data = np.ascontiguousarray(t.values)
    if t.quantized:
        made.scales = list(t.quantized.get("scales") or [t.quantized["scale"]])
        made.zero_points = [t.quantized.get("zero_point", 0)] * len(made.scales)
        made.axis = t.quantized.get("axis", 0)
    return made


def _type(t: Tensor) -> int:
    return int(TYPES[t.dtype])


def lift(model: LiteModel | Path) -> Network:
    if isinstance(model, Path):
        return read_model(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.tflite"
        try:
            write(model, path)
        except TypeError as e:  # no file can hold such a number
            raise unreadable("R103", str(e), path) from None
        return read_model(path)


def read(path: Path) -> Path:
    """A file stays one: not all options that are read can be written."""
    return path


def write(model: LiteModel, path: Path) -> None:
    with Output(path) as out:
        write_flat(model, out)


def taken(path: Path, kind: str) -> Case | str:
    """The only operator of a file, or that of a kind with its neighbors cut off; or why there is
    none.
    """
    (graph, *bodies) = read_flat(path).graphs
    operator = chosen(graph.operators, kind, kind_of)
    if isinstance(operator, str):
        return operator
    if bodies:
        return "an operator with subgraphs"
    used = [graph.tensors[i] for i in (*operator.inputs, *operator.outputs) if i >= 0]
    if strange := [t for t in used if is_quantized(t) or t.type not in TYPES.values()]:
        return f"a tensor of type {_NAMES[strange[0].type]} with scales {strange[0].scales}"
    custom = operator.builtin == "CUSTOM"
    return Case(
        kind_of(operator),
        attributes=dict(parameters_of(operator) if custom else operator.options),
        inputs=[_given(graph, i) for i in operator.inputs],
        outputs=[_tensor(graph.tensors[i]) for i in operator.outputs],
    )


def kind_of(operator: LiteOperator) -> str:
    return operator.custom if operator.builtin == "CUSTOM" else operator.builtin


def _given(graph: LiteGraph, index: int) -> Tensor:
    if index < 0:
        return Tensor("float32", (), absent=True)
    tensor = graph.tensors[index]
    if tensor.data is None:
        return _tensor(tensor)
    return Tensor.of(np.asarray(constant_of(tensor)), constant=True)


def _tensor(tensor: LiteTensor) -> Tensor:
    return Tensor(type_of(tensor).numpy().name, tuple(tensor.shape))


class Engine:
    """LiteRT's kernels on the CPU, without delegates."""

    def __init__(self) -> None:
        from importlib.metadata import version

        self.name = f"LiteRT {version('ai-edge-litert')}"

    def run(self, path: Path, case: Case) -> dict[str, Any] | str:
        try:
            found = litert.invoke(path, list(case.feeds().values()))
        except ConverterError as e:
            return " ".join(str(e).split())[-300:]
        declared = [t for t in case.outputs if not t.unread]
        pairs = zip(case.expected(), found, declared, strict=True)
        return {name: presented(np.asarray(v), t) for name, v, t in pairs}
