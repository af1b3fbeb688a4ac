"""A `.tflite` flatbuffer <-> plain values, through the generated schema of the `tflite` package."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from converter.errors import Diagnostic, ReadError, UnsupportedError, Where, unreadable
from converter.formats.tflite.associated import write_files
from converter.formats.tflite.options import accessor, options_of
from converter.formats.tflite.schema import flatbuffers, schema
from converter.formats.tflite.sparsity import Dimension, Sparsity
from converter.graph.equal_weights import EqualWeights
from converter.graph.lazy_tensor import Array, LazyTensor
from converter.io.chunks import write_array
from converter.io.files import Output
from converter.io.mapped_file import MappedFile

Bytes = npt.NDArray[np.uint8]
Value = Array | LazyTensor

_FILE_OVERHEAD = 1 << 26  # bytes for everything but weights; more are found when they are needed

BUILTINS: dict[str, int] = {
    k: v for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int) and k.isupper()
}
_BUILTIN_NAMES = {v: k for k, v in BUILTINS.items()}
# The old one-byte field of an operator's code holds this for every newer operator.
_GREATER = BUILTINS["PLACEHOLDER_FOR_GREATER_OP_CODES"]
_MOST_RANK = 32
_VECTORS = {v: k for k, v in vars(schema.SparseIndexVector).items() if isinstance(v, int) and v}


@dataclass
class LiteTensor:
    """A tensor; `type` is a number of TensorType, `data` the bytes of a constant.

    A size of -1 in `shape` is not known before the network runs. `scales` and `zero_points` are
    none, one, or one for each index along `axis`. The bytes of a sparse tensor are those of the
    elements that `sparsity` lists.
    """

    name: str
    type: int
    shape: list[int]
    data: Value | None = None
    scales: list[float] = field(default_factory=list)
    zero_points: list[int] = field(default_factory=list)
    axis: int = 0
    variable: bool = False
    sparsity: Sparsity | None = None


@dataclass
class LiteOperator:
    """An operator by its builtin name; an absent optional input is -1.

    `kind` is the table of its options. `options` is complete when read, by the names of the schema
    (`stride_w`). `custom` is the name of a custom operator ("CUSTOM"), and `content` the bytes of
    its options. `intermediates` are tensors that only carry quantization parameters.
    """

    builtin: str
    inputs: list[int]
    outputs: list[int]
    kind: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    custom: str = ""
    content: bytes = b""
    intermediates: list[int] = field(default_factory=list)
    version: int = 1


@dataclass
class LiteGraph:
    """A subgraph: its tensors and operators, and the indices of its inputs and outputs."""

    name: str = "main"
    tensors: list[LiteTensor] = field(default_factory=list)
    operators: list[LiteOperator] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


@dataclass
class LiteSignature:
    """The names of inputs and outputs of a subgraph, each with its tensor index."""

    key: str
    graph: int
    inputs: dict[str, int]
    outputs: dict[str, int]


@dataclass
class LiteModel:
    """The content of a TensorFlow Lite file."""

    graphs: list[LiteGraph] = field(default_factory=list)
    metadata: dict[str, bytes] = field(default_factory=dict)
    signatures: list[LiteSignature] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)


def read_flat(path: str | Path) -> LiteModel:
    """Read the model in a file, constants as views of the file. Raises ReadError R103 for an
    invalid flatbuffer.

    The Python runtime of flatbuffers verifies nothing, so each vector counts against a budget of
    the file's own size.
    """
    try:
        return _Flat(Path(path)).model()
    except ReadError:
        raise
    except (
        struct.error,
        IndexError,
        ValueError,
        TypeError,
        OverflowError,
        AttributeError,
        RuntimeError,
        UnicodeDecodeError,
    ):
        raise unreadable(
            "R103",
            "the flatbuffer is damaged: an offset or a length points outside the file",
            path,
        ) from None


class _Flat:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = MappedFile(path)
        self._budget = len(self.file)

    def fail(self, message: str, place: str = "") -> ReadError:
        return unreadable("R103", message, Where(str(self.path), path=place))

    def count(self, n: int) -> int:
        self._budget -= n
        if n < 0 or self._budget < 0:
            raise self.fail("the flatbuffer is damaged: its lists are longer than the file")
        return n

    def each(self, n: int, get: Callable[[int], Any]) -> Iterator[Any]:
        return (get(i) for i in range(self.count(n)))

    def model(self) -> LiteModel:
        if len(self.file) < 16 or self.file.bytes[4:8].tobytes() != b"TFL3":
            raise self.fail("this is not a TensorFlow Lite model: byte 4 does not begin TFL3")
        root = schema.Model.GetRootAs(self.file.bytes.data, 0)
        if root.Version() != 3:
            raise unreadable(
                "R104",
                f"schema version {root.Version()} of TensorFlow Lite is not "
                "supported; netconv reads version 3",
                Where(str(self.path), path="version"),
            )
        buffers = list(self.each(root.BuffersLength(), root.Buffers))
        codes = [self._code(c) for c in self.each(root.OperatorCodesLength(), root.OperatorCodes)]
        graphs = [
            self._graph(g, f"subgraphs[{i}]", buffers, codes)
            for i, g in enumerate(self.each(root.SubgraphsLength(), root.Subgraphs))
        ]
        if not graphs:
            raise self.fail("the model has no subgraph", "subgraphs")
        metadata = {}
        for item in self.each(root.MetadataLength(), root.Metadata):
            data = self._data(buffers, item.Buffer(), "metadata")
            metadata[_text(item.Name())] = b"" if data is None else data.tobytes()
        signatures = [
            self._signature(s, f"signature_defs[{i}]", graphs)
            for i, s in enumerate(self.each(root.SignatureDefsLength(), root.SignatureDefs))
        ]
        return LiteModel(graphs, metadata, signatures)

    def _signature(self, signature: Any, place: str, graphs: list[LiteGraph]) -> LiteSignature:
        number = signature.SubgraphIndex()
        if not 0 <= number < len(graphs):
            raise self.fail(f"subgraph {number} does not exist", place)
        n = len(graphs[number].tensors)

        def names(count: int, get: Callable[[int], Any]) -> dict[str, int]:
            maps = list(self.each(count, get))
            places = [m.TensorIndex() for m in maps]
            self._indexes(len(places), places.__getitem__, n, place)
            return dict(zip((_text(m.Name()) for m in maps), places, strict=True))

        return LiteSignature(
            _text(signature.SignatureKey()),
            number,
            names(signature.InputsLength(), signature.Inputs),
            names(signature.OutputsLength(), signature.Outputs),
        )

    def _code(self, code: Any) -> tuple[str, str]:
        """Return the names of the builtin, and of the operator that is none."""
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        return _BUILTIN_NAMES.get(number, f"operator {number}"), _text(code.CustomCode())

    def _graph(
        self, graph: Any, place: str, buffers: list[Any], codes: list[tuple[str, str]]
    ) -> LiteGraph:
        result = LiteGraph(_text(graph.Name()))
        for i, tensor in enumerate(self.each(graph.TensorsLength(), graph.Tensors)):
            result.tensors.append(self._tensor(tensor, f"{place}.tensors[{i}]", buffers))
        n = len(result.tensors)
        for i, operator in enumerate(self.each(graph.OperatorsLength(), graph.Operators)):
            at = f"{place}.operators[{i}]"
            if not 0 <= operator.OpcodeIndex() < len(codes):
                raise self.fail(f"operator code {operator.OpcodeIndex()} does not exist", at)
            inputs = self._indexes(operator.InputsLength(), operator.Inputs, n, f"{at}.inputs", -1)
            outputs = self._indexes(operator.OutputsLength(), operator.Outputs, n, f"{at}.outputs")
            builtin, custom = codes[operator.OpcodeIndex()]
            kind, options = options_of(builtin, operator, self.count)
            more = self._indexes(
                operator.IntermediatesLength(), operator.Intermediates, n, f"{at}.intermediates"
            )
            content = self._content(operator, at)
            result.operators.append(
                LiteOperator(builtin, inputs, outputs, kind, options, custom, content, more)
            )
        result.inputs = self._indexes(graph.InputsLength(), graph.Inputs, n, f"{place}.inputs")
        result.outputs = self._indexes(graph.OutputsLength(), graph.Outputs, n, f"{place}.outputs")
        return result

    def _indexes(
        self, n: int, get: Callable[[int], int], most: int, place: str, least: int = 0
    ) -> list[int]:
        found = list(self.each(n, get))
        for i in found:
            if not least <= i < most:
                raise self.fail(f"tensor {i} does not exist, there are {most}", place)
        return found

    def _tensor(self, tensor: Any, place: str, buffers: list[Any]) -> LiteTensor:
        shape = [int(n) for n in self.each(tensor.ShapeLength(), tensor.Shape)]
        if len(shape) > _MOST_RANK or any(n < 0 for n in shape):
            raise self.fail(f"{shape[:9]} is not a shape", place)
        result = LiteTensor(
            _text(tensor.Name()), tensor.Type(), shape, variable=tensor.IsVariable()
        )
        signature = list(self.each(tensor.ShapeSignatureLength(), tensor.ShapeSignature))
        if any(n < 0 for n in signature):
            if len(signature) != len(shape):
                raise self.fail(
                    f"{signature[:9]} is not a valid shape signature of {shape[:9]}", place
                )
            result.shape = [-1 if s < 0 else n for n, s in zip(shape, signature, strict=True)]
        quant = tensor.Quantization()
        if quant is not None:
            result.scales = list(self.each(quant.ScaleLength(), quant.Scale))
            result.zero_points = list(self.each(quant.ZeroPointLength(), quant.ZeroPoint))
            result.axis = quant.QuantizedDimension()
        if tensor.Sparsity() is not None:
            result.sparsity = self._sparsity(tensor.Sparsity())
        result.data = self._data(buffers, tensor.Buffer(), place)
        return result

    def _data(self, buffers: list[Any], index: int, place: str) -> Bytes | None:
        if not 0 <= index < len(buffers):
            raise self.fail(f"buffer {index} does not exist, there are {len(buffers)}", place)
        buffer = buffers[index]
        if buffer.Offset() > 1:  # the bytes of large models follow the flatbuffer
            return self.file.slice(
                buffer.Offset(), buffer.Size(), Where(str(self.path), path=place)
            )
        return buffer.DataAsNumpy() if buffer.DataLength() else None

    def _sparsity(self, sparsity: Any) -> Sparsity:
        def numbers(dimension: Any, name: str) -> Array:
            """Return a union of vectors of three types, each a table with one field `values`."""
            kind = _VECTORS.get(getattr(dimension, f"{name}Type")())
            if kind is None:
                return np.zeros(0, np.int32)
            vector, table = getattr(schema, kind)(), getattr(dimension, name)()
            vector.Init(table.Bytes, table.Pos)
            self.count(vector.ValuesLength())
            return np.asarray(vector.ValuesAsNumpy(), np.int64).reshape(-1)

        def dimension(d: Any) -> Dimension:
            if d.Format() == schema.DimensionType.DENSE:
                return Dimension(d.DenseSize())
            return Dimension(0, numbers(d, "ArraySegments"), numbers(d, "ArrayIndices"))

        order = list(self.each(sparsity.TraversalOrderLength(), sparsity.TraversalOrder))
        blocks = list(self.each(sparsity.BlockMapLength(), sparsity.BlockMap))
        found = self.each(sparsity.DimMetadataLength(), sparsity.DimMetadata)
        return Sparsity(order, blocks, [dimension(d) for d in found])

    def _content(self, operator: Any, place: str) -> bytes:
        """Return the options of a custom operator; in large models they follow the flatbuffer."""
        if operator.LargeCustomOptionsOffset() > 1:
            where = Where(str(self.path), path=place)
            offset, size = operator.LargeCustomOptionsOffset(), operator.LargeCustomOptionsSize()
            return self.file.slice(offset, size, where).tobytes()
        n = self.count(operator.CustomOptionsLength())
        return operator.CustomOptionsAsNumpy().tobytes() if n else b""


def _text(value: bytes | None) -> str:
    return (value or b"").decode()


def write_flat(model: LiteModel, out: Output) -> None:
    """Write a model. Weights that do not fit into a flatbuffer (limit 2 GiB) are appended to it at
    the offsets that their buffers specify (schema.fbs, Buffer.offset).
    """
    weights = (t.data for g in model.graphs for t in g.tensors if t.data is not None)
    size = sum(
        w.nbytes for w in {w if isinstance(w, LazyTensor) else LazyTensor(w) for w in weights}
    )
    builder = _Builder(size) if size <= LARGEST else _AppendedWeights()
    builder.model(model)
    if isinstance(builder, _AppendedWeights):
        builder = builder.with_offsets()
        builder.model(model)
    with out.open() as f:
        builder.write(f)
        if model.files:
            write_files(f, model.files)


LARGEST = 2**31 - 2**27  # bytes of weights inside a flatbuffer
_ALIGNED = 64  # alignment of appended buffers: the size of a memory page
Codes = Mapping[tuple[str, str], int]  # builtin, custom name -> operator code


class _Builder:
    """Flatbuffers grow from the back: children before parents, vectors backwards.

    Only written parts of the buffer take memory; for weights just their location is reserved until
    the file is written.
    """

    def __init__(self, size: int) -> None:
        self.b: Any = flatbuffers.Builder(0)
        try:
            self.b.Bytes = mmap.mmap(-1, size + (size >> 2) + _FILE_OVERHEAD)
        except OSError:  # of its address space
            raise MemoryError from None
        self.b.head = len(self.b.Bytes)
        self.weights: list[tuple[int, LazyTensor]] = []  # distance of the first byte from the end
        self.shared: EqualWeights[int] = EqualWeights()  # indices of buffers
        self.vectors: dict[tuple[str, bytes], int] = {}

    def write(self, f: BinaryIO) -> None:
        """Return the finished buffer with the weights at their locations."""
        content, position = memoryview(self.b.Bytes), self.b.Head()
        for distance, weight in reversed(self.weights):
            start = len(content) - distance
            f.write(content[position:start])
            position = start + write_array(f, weight.stored())
        f.write(content[position:])

    def model(self, model: LiteModel) -> None:
        b = self.b
        buffers = [self._buffer(None)]
        graphs = []
        versions = self._versions(model)
        codes = {name: i for i, name in enumerate(versions)}
        for graph in model.graphs:
            graphs.append(self._graph(graph, codes, buffers))
        metadata = []
        for key, content in sorted(model.metadata.items()):
            buffers.append(self._buffer(LazyTensor(np.frombuffer(content, np.uint8))))
            metadata.append(
                self._table("Metadata", Name=b.CreateString(key), Buffer=len(buffers) - 1)
            )
        operator_codes = []
        for (name, custom), version in versions.items():
            own = {"CustomCode": b.CreateString(custom)} if custom else {}
            numbers = {
                "DeprecatedBuiltinCode": min(BUILTINS[name], _GREATER),
                "BuiltinCode": BUILTINS[name],
            }
            operator_codes.append(self._table("OperatorCode", **own, **numbers, Version=version))
        fields = {
            "Version": 3,
            "OperatorCodes": self._offsets(operator_codes),
            "Subgraphs": self._offsets(graphs),
            "Description": b.CreateString("netconv"),
            "Buffers": self._offsets(buffers),
        }
        if metadata:
            fields["Metadata"] = self._offsets(metadata)
        if model.signatures:
            fields["SignatureDefs"] = self._offsets([self._signature(s) for s in model.signatures])
        b.Finish(self._table("Model", **fields), file_identifier=b"TFL3")

    def _versions(self, model: LiteModel) -> dict[tuple[str, str], int]:
        """Return the operators of a model, each in the version that all its uses need."""
        newest: dict[tuple[str, str], int] = {}
        for o in (o for g in model.graphs for o in g.operators):
            key = (o.builtin, o.custom)
            newest[key] = max(newest.get(key, 1), o.version)
        names = sorted(newest, key=lambda n: (BUILTINS[n[0]], n[1]))
        return {name: newest[name] for name in names}

    def _signature(self, signature: LiteSignature) -> int:
        def names(tensors: dict[str, int]) -> int:
            pairs = sorted(tensors.items())
            maps = [
                self._table("TensorMap", Name=self.b.CreateString(name), TensorIndex=index)
                for name, index in pairs
            ]
            return self._offsets(maps)

        return self._table(
            "SignatureDef",
            Inputs=names(signature.inputs),
            Outputs=names(signature.outputs),
            SignatureKey=self.b.CreateString(signature.key),
            SubgraphIndex=signature.graph,
        )

    def _table(self, kind: str, **fields: Any) -> int:
        """Add a table; the generated functions are called KindStart, KindAddField and KindEnd."""
        getattr(schema, f"{kind}Start")(self.b)
        for name, value in fields.items():
            getattr(schema, f"{kind}Add{name}")(self.b, value)
        return int(getattr(schema, f"{kind}End")(self.b))

    def _offsets(self, offsets: list[int]) -> int:
        self.b.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.b.PrependUOffsetTRelative(offset)
        return int(self.b.EndVector())

    def _bytes(self, weight: LazyTensor, alignment: int) -> int:
        b = self.b
        b.StartVector(1, weight.length, alignment)
        b.head -= weight.length
        self.weights.append((b.Offset(), weight))
        return int(b.EndVector())

    def _ints(self, values: list[int]) -> int:
        if beyond := [v for v in values if not -(1 << 31) <= v < 1 << 31]:
            raise UnsupportedError(
                Diagnostic("X204", f"{beyond[0]} is outside the 32-bit sizes of the format")
            )
        return int(self.b.CreateNumpyVector(np.asarray(values, "<i4")))

    def _buffer(self, data: LazyTensor | None) -> int:
        # kernels may rely on 16 bytes of alignment (schema.fbs, Buffer.data)
        return self._table(
            "Buffer", **({"Data": self._bytes(data, 16)} if data is not None else {})
        )

    def _weight(self, weight: LazyTensor) -> int:
        return self._buffer(weight)

    def _append(self, weight: LazyTensor, buffers: list[int]) -> int:
        buffers.append(self._weight(weight))
        return len(buffers) - 1

    def _graph(self, graph: LiteGraph, codes: Codes, buffers: list[int]) -> int:
        tensors = [self._tensor(t, buffers) for t in graph.tensors]
        operators = [self._operator(o, codes) for o in graph.operators]
        return self._table(
            "SubGraph",
            **{
                "Tensors": self._offsets(tensors),
                "Inputs": self._ints(graph.inputs),
                "Outputs": self._ints(graph.outputs),
                "Operators": self._offsets(operators),
                "Name": self.b.CreateString(graph.name),
            },
        )

    def _tensor(self, tensor: LiteTensor, buffers: list[int]) -> int:
        b = self.b
        fields: dict[str, Any] = {
            "Shape": self._ints(tensor.shape),
            "Type": tensor.type,
            "Name": b.CreateString(tensor.name),
        }
        if tensor.data is not None:
            data = tensor.data
            weight = LazyTensor(data) if isinstance(data, np.ndarray) else data
            fields["Buffer"] = self.shared.once(weight, lambda: self._append(weight, buffers))
        if tensor.scales:
            fields["Quantization"] = self._table(
                "QuantizationParameters",
                Scale=self._vector(np.asarray(tensor.scales, "<f4")),
                ZeroPoint=self._vector(np.asarray(tensor.zero_points, "<i8")),
                QuantizedDimension=tensor.axis,
            )
        if tensor.variable:
            fields["IsVariable"] = True
        if -1 in tensor.shape:  # a dynamic size: 1 in the shape, -1 in the signature
            fields["ShapeSignature"] = fields["Shape"]
            fields["Shape"] = self._ints([max(n, 1) if n else 0 for n in tensor.shape])
        return self._table("Tensor", **fields)

    def _vector(self, numbers: Array) -> int:
        """Write a vector; equal ones are stored once, such as the zero points of channels, which
        take as much room as the weights of small layers.
        """
        key = numbers.dtype.str, numbers.tobytes()
        if key not in self.vectors:
            self.vectors[key] = self.b.CreateNumpyVector(numbers)
        return self.vectors[key]

    def _option(self, kind: str, value: Any) -> Any:
        """Write an option; lists of StableHLO, but those of subgraphs, have 64 bits for each
        number.
        """
        if isinstance(value, list) and kind.startswith("Stablehlo") and "Case" not in kind:
            return int(self.b.CreateNumpyVector(np.asarray(value, "<i8")))
        if isinstance(value, list):
            return self._ints(value)
        return self.b.CreateString(value) if isinstance(value, str) else value

    def _operator(self, operator: LiteOperator, codes: Codes) -> int:
        fields: dict[str, Any] = {
            "OpcodeIndex": codes[operator.builtin, operator.custom],
            "Inputs": self._ints(operator.inputs),
            "Outputs": self._ints(operator.outputs),
        }
        if operator.kind:
            kind = operator.kind
            values = {accessor(k): self._option(kind, v) for k, v in operator.options.items()}
            older = hasattr(schema.BuiltinOptions, kind)
            name = "BuiltinOptions" if older else "BuiltinOptions2"
            fields[name] = self._table(kind, **values)
            fields[f"{name}Type"] = getattr(getattr(schema, name), kind)
        if operator.content:
            content = np.frombuffer(operator.content, np.uint8)
            fields["CustomOptions"] = self.b.CreateNumpyVector(content)
        return self._table("Operator", **fields)


class _AppendedWeights(_Builder):
    """Weights that follow the flatbuffer.

    Their offsets depend on the size of the flatbuffer, so it is built twice; the fields of the
    offsets have the same size both times.
    """

    def __init__(self, start: int = _ALIGNED) -> None:
        super().__init__(0)
        self.start = self.end = start
        self.behind: list[LazyTensor] = []

    def with_offsets(self) -> _AppendedWeights:
        """Return a builder with the offsets after the flatbuffer that was built here."""
        return _AppendedWeights(_aligned(len(self.b.Output())))

    def _weight(self, weight: LazyTensor) -> int:
        self.behind.append(weight)
        place, self.end = self.end, _aligned(self.end + weight.length)
        return self._table("Buffer", Offset=place, Size=weight.length)

    def write(self, f: BinaryIO) -> None:
        super().write(f)
        position = len(self.b.Output())
        for weight in self.behind:
            f.write(bytes(_aligned(position) - position))
            position = _aligned(position) + write_array(f, weight.stored())


def _aligned(position: int) -> int:
    return -(-position // _ALIGNED) * _ALIGNED


def numbers(values: list[int]) -> Array:
    """Return a constant of int32, as shapes, axes and amounts of padding are."""
    return np.asarray(values, np.int32)
