"""ONNX files: bytes to and from ModelProto, weights mapped on reading and streamed on writing.

`read_proto` and `write_proto` are the plain pair (equal messages). `read_onnx` cuts the weights out
before protobuf sees the file (wire.py) and `Weights` hands them out as views of the mapped file;
`write_onnx` splices them back in, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from converter.errors import Diagnostic, Where, WriteError, unreadable
from converter.formats.onnx.wire import FLOATS, SPAN, header, skeleton
from converter.graph.lazy_tensor import LazyTensor, lazy
from converter.graph.value import type_name
from converter.io.chunks import write_array
from converter.io.files import Output, open_side_file
from converter.io.limits import MOST_AXES
from converter.io.mapped_file import MappedFile

INLINE_LIMIT = (
    1 << 30
)  # bytes of weights above which they get a separate file (protobuf's limit is 2 GiB)
ALIGNMENT = 64
_TYPES = {int(t): t for t in ir.DataType if t != ir.DataType.UNDEFINED}
_STRING = ir.DataType.STRING
_COMPLEX = (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128)


def read_proto(path: Path) -> onnx.ModelProto:
    """Return the ModelProto as in the file, weights included; external data stays a reference."""
    return _parse(MappedFile(path).bytes.tobytes(), path)


def write_proto(proto: onnx.ModelProto, path: Path) -> None:
    """Write a ModelProto unchanged. Raise WriteError if it exceeds protobuf's limit of 2 GiB."""
    try:
        data = proto.SerializeToString(deterministic=True)
    except (EncodeError, ValueError) as e:
        raise WriteError(
            Diagnostic("W301", f"the model cannot be serialized: {e}", where=Where(str(path)))
        ) from None
    with Output(path) as out, out.open() as f:
        f.write(data)


def read_onnx(path: Path) -> tuple[onnx.ModelProto, TensorFiles]:
    """Return the ModelProto without large weights, and the source of these weights."""
    file = MappedFile(path)
    proto = _parse(skeleton(file.bytes), path)
    if not proto.HasField("graph"):
        raise unreadable("R103", "the model has no graph", path)
    return proto, TensorFiles(path, file)


def _parse(data: bytes, path: Path) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, ValueError, RuntimeError) as e:
        raise unreadable("R103", f"this is not a readable ONNX model: {e}", path) from None
    place = _broken_text(proto)
    if place is not None:
        raise unreadable(
            "R103",
            "this is not a readable ONNX model: the text is not UTF-8",
            Where(str(path), path=place),
        )
    return proto


def _broken_text(message: Message) -> str | None:
    """Return the path of the first text that is not UTF-8, which protobuf hands out as bytes; None
    when there is none.
    """
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            if isinstance(value, bytes) or (
                not isinstance(value, str) and any(isinstance(v, bytes) for v in value)
            ):
                return str(field.name)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for index, inner in enumerate([value] if isinstance(value, Message) else value):
                place = _broken_text(inner)
                if place is not None:
                    return (
                        f"{field.name}.{place}"
                        if inner is value
                        else f"{field.name}[{index}].{place}"
                    )
    return None


class TensorFiles:
    """The tensors of one file: one map per side file, bounds-checked slices of it, without
    copies.
    """

    def __init__(self, model: Path, file: MappedFile | None = None) -> None:
        self.model = model
        self._own = file
        self._files: dict[str, MappedFile] = {}

    def tensor(self, proto: onnx.TensorProto, place: str = "") -> ir.TensorProtocol:
        """Return the tensor of a TensorProto. ReadError R102 (missing bytes), R103 (sizes), R107
        (outside the folder).
        """
        where = Where(str(self.model), path=place or f"initializer {proto.name}")
        dtype, shape = _TYPES.get(proto.data_type), [int(d) for d in proto.dims]
        if dtype is None:
            raise unreadable(
                "R103", f"tensor {proto.name!r} has the unknown type {proto.data_type}", where
            )
        if min(shape, default=0) < 0 or len(shape) > MOST_AXES:
            raise unreadable(
                "R103", f"tensor {proto.name!r} has the invalid shape {str(shape)[:200]}", where
            )
        external = proto.data_location == onnx.TensorProto.EXTERNAL
        if (
            external
            + proto.HasField("raw_data")
            + any(len(getattr(proto, field)) for field in _FIELDS)
            > 1
        ):
            raise unreadable("R103", f"tensor {proto.name!r} stores its values twice", where)
        if external:
            return _from_bytes(self._external(proto, where), dtype, shape, proto.name, where)
        if proto.HasField("raw_data"):
            return _from_bytes(
                np.frombuffer(proto.raw_data, np.uint8), dtype, shape, proto.name, where
            )
        return _from_fields(proto, dtype, shape, where)

    def _external(self, proto: onnx.TensorProto, where: Where) -> np.ndarray:
        entries = {e.key: e.value for e in proto.external_data}
        key = SPAN if SPAN in entries else FLOATS
        if key in entries and self._own is not None:
            if "location" in entries:
                raise unreadable("R103", f"tensor {proto.name!r} stores its values twice", where)
            start, _, size = entries[key].partition(":")
            if key == FLOATS and proto.data_type not in (
                onnx.TensorProto.FLOAT,
                onnx.TensorProto.COMPLEX64,
            ):
                raise unreadable(
                    "R103",
                    f"tensor {proto.name!r} stores its values in a field of another type",
                    where,
                )
            return self._own.slice(int(start), int(size), where)
        try:
            name, offset, length = (
                entries["location"],
                int(entries.get("offset", 0)),
                entries.get("length"),
            )
            count = None if length is None else int(length)
        except (KeyError, ValueError):
            raise unreadable(
                "R103", "external data need a valid location, offset and length", where
            ) from None
        file = self._file(name, where)
        return file.slice(offset, len(file) - offset if count is None else count, where)

    def _file(self, name: str, where: Where) -> MappedFile:
        if name not in self._files:
            file = open_side_file(self.model, name, where)
            if file is None:
                raise unreadable("R102", f"weights file {name!r} was not found", where)
            self._files[name] = file
        return self._files[name]


_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


def _from_bytes(
    raw: np.ndarray, dtype: ir.DataType, shape: list[int], name: str, where: Where
) -> ir.TensorProtocol:
    count = math.prod(shape)
    if dtype == _STRING or (count * dtype.bitwidth + 7) // 8 != raw.size:
        raise unreadable(
            "R103", f"{raw.size} bytes are stored for {type_name(dtype)}{shape}", where
        )
    return LazyTensor(raw if dtype.bitwidth < 8 else raw.view(dtype.numpy()), dtype, shape, name)


def _from_fields(
    proto: onnx.TensorProto, dtype: ir.DataType, shape: list[int], where: Where
) -> ir.TensorProtocol:
    """Return a tensor whose values are in float_data, int32_data, ...: small ones, as writers store
    them.
    """
    count = math.prod(shape)
    stored = sum(len(getattr(proto, field)) for field in _FIELDS)
    per = 2 if dtype in _COMPLEX else 1
    packed = (
        -(-count * dtype.bitwidth // 8) if dtype != _STRING and dtype.bitwidth < 8 else count * per
    )
    if stored != packed:
        raise unreadable(
            "R103",
            f"tensor {proto.name!r} stores {stored} values for {type_name(dtype)}{shape}",
            where,
        )
    if dtype == _STRING:
        return ir.StringTensor(list(proto.string_data), shape=ir.Shape(shape), name=proto.name)
    try:
        return LazyTensor(np.array(ir.TensorProtoTensor(proto).numpy()), dtype, name=proto.name)
    except (ValueError, TypeError, OverflowError) as e:
        raise unreadable("R103", f"tensor {proto.name!r} is invalid: {e}", where) from None


def write_onnx(
    model: ir.Model,
    path: Path,
    *,
    external: bool | None = None,
    defaults: Mapping[str, Any] | None = None,
    maps: Mapping[str, Sequence[int | str]] | None = None,
) -> None:
    """Write atomically and deterministically; `model` loses its initializers on the way.

    `external`: weights in NAME.data next to the model; None: when they exceed INLINE_LIMIT.
    `defaults`: values of inputs that need not be fed, by the input's name in the file (initializers
    of the same name, as ONNX has it). `maps`: the keys of outputs that are sequences of maps.
    """
    weights: list[tuple[str, ir.TensorProtocol]] = [
        (n, lazy(np.asarray(a))) for n, a in (defaults or {}).items()
    ]
    weights += [
        (str(v.name), v.const_value)
        for v in model.graph.initializers.values()
        if v.const_value is not None
    ]
    if external is None:
        external = sum(t.nbytes for _, t in weights if t.dtype != _STRING) >= INLINE_LIMIT
    model.graph.initializers.clear()
    proto = ir.to_proto(model)
    for name, labels in (maps or {}).items():
        zip_maps(proto, name, labels)
    with Output(path) as out:
        if external:
            with out.open(".data") as f:
                proto.graph.initializer.extend(
                    _put(f, name, tensor, out.path(".data").name) for name, tensor in weights
                )
            weights = []
        with out.open() as f:
            _stream(proto, weights, f)


def zip_maps(proto: onnx.ModelProto, name: str, labels: Sequence[int | str]) -> None:
    """Make the output `name`, whose columns are the scores of classes, a sequence of maps from
    these labels to scores, as ZipMap does.
    """
    graph: Any = proto.graph
    output = next(o for o in graph.output if o.name == name)
    if name in {v.name for v in (*graph.input, *graph.initializer)}:
        return
    taken = {n for node in graph.node for n in (*node.input, *node.output)}
    scores = f"{name}_scores"
    while scores in taken:
        scores += "_"
    _rename(graph, name, scores)
    kind, key = (
        ("strings", onnx.TensorProto.STRING)
        if isinstance(labels[0], str)
        else ("int64s", onnx.TensorProto.INT64)
    )
    given: dict[str, Any] = {f"classlabels_{kind}": labels}
    graph.node.append(
        onnx.helper.make_node("ZipMap", [scores], [name], name, None, "ai.onnx.ml", None, **given)
    )
    number = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    pairs = onnx.helper.make_map_type_proto(key, number)
    output.type.CopyFrom(onnx.helper.make_sequence_type_proto(pairs))
    if all(o.domain != "ai.onnx.ml" for o in proto.opset_import):
        proto.opset_import.add(domain="ai.onnx.ml", version=2)


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Rename a value in the nodes of a graph and of the bodies in it."""
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [new if n == old else n for n in names]
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                _rename(body, old, new)


def _put(f: BinaryIO, name: str, tensor: ir.TensorProtocol, location: str) -> onnx.TensorProto:
    if tensor.dtype == _STRING:
        return _serialized(name, tensor)
    f.write(b"\0" * (-f.tell() % ALIGNMENT))
    offset = f.tell()
    length = _write(f, tensor)
    return reference(
        name, tensor, {"location": location, "offset": str(offset), "length": str(length)}
    )


def _write(f: BinaryIO, tensor: ir.TensorProtocol) -> int:
    """Write the tensor's bytes, a large one in pieces."""
    if tensor.dtype.bitwidth >= 8:
        return write_array(f, tensor.numpy())
    if isinstance(tensor, LazyTensor) and tensor.decode is None:
        return write_array(f, tensor.stored())
    return f.write(tensor.tobytes())


def reference(name: str, tensor: ir.TensorProtocol, entries: dict[str, str]) -> onnx.TensorProto:
    """Return a TensorProto whose bytes are elsewhere."""
    proto = onnx.TensorProto(
        name=name,
        data_type=int(tensor.dtype),
        dims=tensor.shape.numpy(),
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, text in entries.items():
        proto.external_data.add(key=key, value=text)
    return proto


def _serialized(name: str, tensor: ir.TensorProtocol) -> onnx.TensorProto:
    proto = ir.serde.serialize_tensor(tensor)
    proto.name = name
    return proto


def _stream(
    proto: onnx.ModelProto, weights: list[tuple[str, ir.TensorProtocol]], f: BinaryIO
) -> None:
    """Write the model with its weights inserted into the graph's bytes, without a second copy of
    all weights in memory.
    """
    graph = proto.graph.SerializeToString(deterministic=True)
    proto.ClearField("graph")
    heads: list[tuple[bytes, ir.TensorProtocol | None]] = []
    size = len(graph)
    for name, tensor in weights:
        if tensor.dtype == _STRING:
            body = _serialized(name, tensor).SerializeToString(deterministic=True)
            heads.append((header(5, len(body)) + body, None))
            size += len(heads[-1][0])
            continue
        body = onnx.TensorProto(
            name=name, data_type=int(tensor.dtype), dims=tensor.shape.numpy()
        ).SerializeToString(deterministic=True)
        body += header(9, tensor.nbytes)
        heads.append((header(5, len(body) + tensor.nbytes) + body, tensor))
        size += len(heads[-1][0]) + tensor.nbytes
    f.write(proto.SerializeToString(deterministic=True))
    f.write(header(7, size))
    f.write(graph)
    for head, weight in heads:
        f.write(head)
        if weight is not None:
            _write(f, weight)
