"""ONNX files: ModelProto, weights inline or in external files. Bytes to and from onnx_ir, weights mapped, not copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from converter.diagnostics import Where
from converter.errors import unreadable
from converter.files import MappedFile, Output, side_file

INLINE_LIMIT = 1 << 30  # bytes of weights above which they are written beside the model


def read_onnx(path: Path) -> onnx.ModelProto:
    """The ModelProto, with references to external data still in it (`external` resolves them)."""
    data = MappedFile(path)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data.bytes.tobytes())
    except (DecodeError, ValueError, RuntimeError) as e:
        raise unreadable("R103", f"not a readable ONNX model: {e}", Where(str(path))) from None
    if not proto.HasField("graph"):
        raise unreadable("R103", "the model has no graph", Where(str(path)))
    resolve_external(proto, path)
    return proto


class ExternalWeights:
    """External tensors of one model: one map per side file, checked slices of it."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self._files: dict[Path, MappedFile] = {}

    def tensor(self, proto: onnx.TensorProto) -> ir.TensorProtocol:
        entries = {e.key: e.value for e in proto.external_data}
        where = Where(str(self.model), path=f"initializer {proto.name}")
        try:
            offset, length = int(entries.get("offset", 0)), entries.get("length")
            location = side_file(self.model, entries["location"], where)
        except (KeyError, ValueError):
            raise unreadable("R103", "external data without a valid location, offset and length", where) from None
        file = self._files.setdefault(location, MappedFile(location)) if location in self._files or location.exists() else None
        if file is None:
            raise unreadable("R102", f"the weights file {entries['location']} is missing", where)
        return tensor_from_bytes(file.slice(offset, int(length) if length else len(file) - offset, where), proto, where)


def tensor_from_bytes(raw: Any, proto: onnx.TensorProto, where: Where) -> ir.TensorProtocol:
    dtype = ir.DataType(proto.data_type)
    shape = [int(d) for d in proto.dims]
    count = int(np.prod([float(d) for d in shape])) if shape else 1
    if min(shape, default=0) < 0 or (count * dtype.bitwidth + 7) // 8 != raw.size:
        raise unreadable("R103", f"{raw.size} bytes do not hold {dtype}{shape}", where)
    if dtype.bitwidth < 8:
        return ir.PackedTensor(raw, dtype, shape=ir.Shape(shape), name=proto.name)
    return ir.Tensor(raw.view(dtype.numpy()).reshape(shape), dtype, name=proto.name)


def resolve_external(proto: onnx.ModelProto, path: Path) -> None:
    """Checks all external references now, so that a damaged model fails on reading; the bytes stay where they are."""
    weights = ExternalWeights(path)
    for t in proto.graph.initializer:
        if t.data_location == onnx.TensorProto.EXTERNAL:
            weights.tensor(t)


def write_onnx(model: ir.Model, path: Path) -> None:
    """Writes atomically; weights beyond 1 GiB go to NAME.onnx.data (protobuf itself ends at 2 GiB)."""
    size = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
    with Output(path) as out:
        if size < INLINE_LIMIT:
            data = ir.to_proto(model).SerializeToString(deterministic=True)
            with out.open() as f:
                f.write(data)
            return
        offset, protos = 0, []
        name = path.stem + ".data"
        with out.open(".data") as f:
            for v in model.graph.initializers.values():
                assert v.const_value is not None
                offset += f.write(b"\0" * (-offset % 64))
                raw = v.const_value.tobytes()
                protos.append(_reference(v, name, offset, len(raw)))
                offset += f.write(raw)
        skeleton = _without_weights(model)
        skeleton.graph.initializer.extend(protos)
        with out.open() as f:
            f.write(skeleton.SerializeToString(deterministic=True))


def _reference(value: ir.Value, location: str, offset: int, length: int) -> onnx.TensorProto:
    assert value.const_value is not None
    proto = onnx.TensorProto(name=value.name, data_type=int(value.const_value.dtype), dims=value.const_value.shape.numpy())
    proto.data_location = onnx.TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", str(offset)), ("length", str(length))):
        proto.external_data.add(key=key, value=text)
    return proto


def _without_weights(model: ir.Model) -> onnx.ModelProto:
    clone = model.clone()
    clone.graph.initializers.clear()
    return ir.to_proto(clone)
