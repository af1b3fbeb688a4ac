"""Small TensorFlow Lite files, written with the schema's own package, and the results of LiteRT for
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import tflite as schema

from converter.formats.tflite.codec import read_flat

TYPES = {
    np.dtype(k): getattr(schema.TensorType, name)
    for k, name in (
        ("float32", "FLOAT32"),
        ("int8", "INT8"),
        ("uint8", "UINT8"),
        ("int16", "INT16"),
        ("int32", "INT32"),
        ("int64", "INT64"),
        ("uint64", "UINT64"),
        ("bool", "BOOL"),
        ("complex64", "COMPLEX64"),
        ("object", "STRING"),
    )
}


@dataclass
class Tensor:
    """`kind` is a numpy type or the number of one of the schema; -1 in `shape` is not known."""

    kind: Any
    shape: Sequence[int] = ()
    data: Any = None
    scale: float = 0.0
    zero_point: int = 0
    variable: bool = False

    @property
    def type(self) -> int:
        return self.kind if isinstance(self.kind, int) else int(TYPES[np.dtype(self.kind)])


def const(data: Any, kind: Any = None) -> Tensor:
    array = np.asarray(data, kind)
    return Tensor(array.dtype, array.shape, array)


@dataclass
class Op:
    """An operator; `union` is the number of the union that its table of options is in."""

    builtin: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    table: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    custom: str = ""
    content: bytes = b""
    union: str = ""
    intermediates: Sequence[int] = ()


@dataclass
class Graph:
    tensors: Sequence[Tensor]
    operators: Sequence[Op]
    inputs: Sequence[int]
    outputs: Sequence[int]


class Writer:
    def __init__(self) -> None:
        self.b: Any = flatbuffers.Builder(1024)

    def table(self, kind: str, **fields: Any) -> int:
        getattr(schema, f"{kind}Start")(self.b)
        for name, value in fields.items():
            if value is not None:
                getattr(schema, f"{kind}Add{name}")(self.b, value)
        return int(getattr(schema, f"{kind}End")(self.b))

    def vector(self, values: Any, kind: str) -> int | None:
        array = np.asarray(values, kind)
        return int(self.b.CreateNumpyVector(array)) if array.size else None

    def offsets(self, found: Sequence[int]) -> int:
        self.b.StartVector(4, len(found), 4)
        for offset in reversed(found):
            self.b.PrependUOffsetTRelative(offset)
        return int(self.b.EndVector())

    def buffer(self, data: bytes) -> int:
        return self.table("Buffer", Data=self.vector(np.frombuffer(data, np.uint8), "u1"))

    def tensor(self, t: Tensor, index: int, buffer: int) -> int:
        quantization = None
        if t.scale:
            quantization = self.table(
                "QuantizationParameters",
                Scale=self.vector([t.scale], "<f4"),
                ZeroPoint=self.vector([t.zero_point], "<i8"),
            )
        return self.table(
            "Tensor",
            Shape=self.vector([max(n, 1) for n in t.shape], "<i4"),
            ShapeSignature=self.vector(t.shape, "<i4") if -1 in t.shape else None,
            Type=t.type,
            IsVariable=t.variable or None,
            Buffer=buffer,
            Name=self.b.CreateString(f"t{index}"),
            Quantization=quantization,
            HasRank=True,
        )

    def option(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            return self.b.CreateString(value)
        if isinstance(value, bytes):
            return self.vector(np.frombuffer(value, np.uint8), "u1")
        if isinstance(value, list):
            return self.vector(value, "<f4" if name in FLOATS else "<i4")
        return value

    def operator(self, o: Op, code: int) -> int:
        options = None
        if o.table:
            given = {k: self.option(k, v) for k, v in o.options.items()}
            options = self.table(o.table, **given)
        kinds = getattr(schema, f"BuiltinOptions{o.union}")
        fields = (
            {}
            if options is None
            else {
                f"BuiltinOptions{o.union}": options,
                f"BuiltinOptions{o.union}Type": getattr(kinds, o.table),
            }
        )
        return self.table(
            "Operator",
            OpcodeIndex=code,
            Inputs=self.vector(o.inputs, "<i4"),
            Outputs=self.vector(o.outputs, "<i4"),
            CustomOptions=self.vector(np.frombuffer(o.content, np.uint8), "u1"),
            Intermediates=self.vector(o.intermediates, "<i4"),
            **fields,
        )


FLOATS = ("Boundaries",)  # options that are lists of floats


def packed(data: Any) -> bytes:
    """The bytes of a constant; strings are a count, offsets and the characters."""
    if data is None:
        return b""
    array = np.asarray(data)
    if array.dtype != object:
        return array.tobytes()
    words = [w.encode() for w in array.reshape(-1)]
    first = 4 * (len(words) + 2)
    ends = first + np.cumsum([0, *map(len, words)])
    return np.array([len(words), *ends], "<i4").tobytes() + b"".join(words)


def write(path: Path, *graphs: Graph) -> Path:
    w, buffers, found, codes = Writer(), [b""], [], list[tuple[str, str]]()
    for graph in graphs:
        tensors = []
        for i, t in enumerate(graph.tensors):
            buffers.append(packed(t.data))
            tensors.append(w.tensor(t, i, len(buffers) - 1))
        operators = []
        for o in graph.operators:
            if (o.builtin, o.custom) not in codes:
                codes.append((o.builtin, o.custom))
            operators.append(w.operator(o, codes.index((o.builtin, o.custom))))
        found.append(
            w.table(
                "SubGraph",
                Tensors=w.offsets(tensors),
                Inputs=w.vector(graph.inputs, "<i4"),
                Outputs=w.vector(graph.outputs, "<i4"),
                Operators=w.offsets(operators),
            )
        )
    numbers = [
        w.table(
            "OperatorCode",
            BuiltinCode=getattr(schema.BuiltinOperator, name),
            DeprecatedBuiltinCode=min(getattr(schema.BuiltinOperator, name), 127),
            CustomCode=w.b.CreateString(custom) if custom else None,
            Version=1,
        )
        for name, custom in codes
    ]
    root = w.table(
        "Model",
        Version=3,
        OperatorCodes=w.offsets(numbers),
        Subgraphs=w.offsets(found),
        Buffers=w.offsets([w.buffer(b) for b in buffers]),
    )
    w.b.Finish(root, file_identifier=b"TFL3")
    path.write_bytes(w.b.Output())
    return path


def in_litert(path: Path, feeds: Sequence[Any], times: int = 1, shapes: bool = False) -> list[Any]:
    """The outputs of a file in LiteRT, with its own kernels, when it was run so often. `shapes`:
    all tensors have the shapes that the file declares.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(str(path), num_threads=1, experimental_op_resolver_type=kind)
    details = interpreter.get_input_details()
    for detail, value in zip(details, feeds, strict=True):
        interpreter.resize_tensor_input(detail["index"], np.shape(value))
    interpreter.allocate_tensors()
    for detail, value in zip(details, feeds, strict=True):
        interpreter.set_tensor(detail["index"], value)
    for _ in range(times):
        interpreter.invoke()
    found = {d["index"]: list(d["shape"]) for d in interpreter.get_tensor_details()}
    for i, tensor in enumerate(read_flat(path).graphs[0].tensors if shapes else ()):
        pairs = zip(tensor.shape, found[i], strict=True)
        assert all(n in (-1, m) for n, m in pairs), (tensor.name, tensor.shape, found[i])
    return [interpreter.get_tensor(d["index"]).copy() for d in interpreter.get_output_details()]
