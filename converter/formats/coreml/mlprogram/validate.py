"""Validation of an ML Program beyond the checks of reading it: versions, identifiers, constants of
another type than declared, the storage of weights, and a description that contradicts the program.

coremltools' loader of programs accepts all of these silently; the system that runs the model does
not.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from converter.errors import Diagnostic, ReadError, Where
from converter.formats.coreml.features import sizes_of
from converter.formats.coreml.mlprogram.blobs import SENTINEL, Blobs
from converter.formats.coreml.mlprogram.lift import PIPELINES, VERSIONS
from converter.formats.coreml.mlprogram.values import TYPES, dims_of

VERSION_RANGE = range(min(VERSIONS.values()), max(VERSIONS.values()) + 1)
_IDENTIFIER = re.compile(r"[A-Za-z_@][A-Za-z0-9_@]*")
D = ir.DataType
ARRAYS = {65568: D.FLOAT, 65600: D.DOUBLE, 131104: D.INT32, 65552: D.FLOAT16, 131080: D.INT8}
_TABLES = ("dictionaryType", "int64Type", "stringType")  # results of a classifier
_STORAGE = 2  # version


@dataclass(frozen=True)
class Checked:
    """One model: a program, or a member of a pipeline, which is at `path` in the file."""

    model: Any
    file: str
    path: str = ""

    def error(self, code: str, message: str, location: str, layer: str = "") -> Diagnostic:
        """Return an error at a path inside the file."""
        where = Where(self.file, path=self.path + location, layer=layer)
        return Diagnostic(code, message, where=where)

    def warning(self, code: str, message: str, location: str, layer: str = "") -> Diagnostic:
        """Return a warning at a path inside the file."""
        where = Where(self.file, path=self.path + location, layer=layer)
        return Diagnostic(code, message, level="warning", where=where)


def findings(model: Any, blobs: Blobs, file: str) -> Iterator[Diagnostic]:
    """Return the findings about a program, or about all programs in a pipeline."""
    yield from _findings(Checked(model, file))
    for name in sorted(set(_blob_files(model))):
        yield from storage(blobs, name, file)


def _findings(c: Checked) -> Iterator[Diagnostic]:
    kind = c.model.WhichOneof("Type") or ""
    if kind in PIPELINES:
        holder = getattr(c.model, kind)
        members = (holder if kind == "pipeline" else holder.pipeline).models
        for i, inner in enumerate(members):
            yield from _findings(Checked(inner, c.file, f"{c.path}{kind}.models[{i}]."))
    if kind != "mlProgram":
        return
    version = c.model.specificationVersion
    if version not in VERSION_RANGE:
        known = f"ML Programs have {VERSION_RANGE[0]} to {VERSION_RANGE[-1]}"
        yield c.error("R104", f"specificationVersion {version}; {known}", "specificationVersion")
    described = {f.name: f for f in c.model.description.functions}
    for name, function in sorted(c.model.mlProgram.functions.items()):
        location = f"mlProgram.functions[{name}]"
        yield from _function(c, function, location)
        description = described.get(name) if described else c.model.description
        if description is not None:
            yield from _described(c, description, function, location)
        else:
            yield c.error("R105", f"the description has no function {name!r}", "description")


def _function(c: Checked, function: Any, location: str) -> Iterator[Diagnostic]:
    opset = function.opset
    version = VERSIONS.get(opset)
    if version is None:
        text = f"the operation set {opset!r} is not known; there are {', '.join(VERSIONS)}"
        yield c.error("R104", text, f"{location}.opset")
    elif version > c.model.specificationVersion:
        text = f"{opset} needs specificationVersion {version}"
        yield c.error("R104", text, f"{location}.opset")
    for given in function.inputs:
        yield from _identifier(c, given.name, location)
    for block in function.block_specializations.values():
        yield from _block(c, block, location)


def _block(c: Checked, block: Any, location: str) -> Iterator[Diagnostic]:
    for given in block.inputs:
        yield from _identifier(c, given.name, location)
    for i, operation in enumerate(block.operations):
        own = f"{location}.operations[{i}]"
        for out in operation.outputs:
            yield from _identifier(c, out.name, own)
        first = operation.outputs[0].name if operation.outputs else operation.type
        if "name" not in operation.attributes:
            text = f"operation {operation.type} has no name"
            yield c.warning("R105", text, own, first)
        if operation.type == "const":
            yield from _constant(c, operation, own)
        for inner in operation.blocks:
            yield from _block(c, inner, own)


def _identifier(c: Checked, name: str, location: str) -> Iterator[Diagnostic]:
    if not _IDENTIFIER.fullmatch(name):
        text = f"{name!r} is not an identifier (letters, digits and underscores)"
        yield c.error("R105", text, location, name)


def _constant(c: Checked, operation: Any, location: str) -> Iterator[Diagnostic]:
    """Check that a constant has the type that it declares."""
    value = operation.attributes.get("val")
    if value is None or len(operation.outputs) != 1:
        yield c.error("R105", "a constant has no value or no name", location)
    elif value.type != operation.outputs[0].type:
        text = "the declared type of a constant is not the type of its value"
        yield c.error("R110", text, location, operation.outputs[0].name)


# the description ---------------------------------------------------------------------------------


def _described(c: Checked, description: Any, function: Any, location: str) -> Iterator[Diagnostic]:
    """Check that description and program have the same inputs, outputs and states, with the same
    types and shapes.
    """
    block = function.block_specializations.get(function.opset)
    if block is None:
        return  # reading reports it
    states = {g.name: g.type for g in function.inputs if g.type.HasField("stateType")}
    inputs = {g.name: g.type for g in function.inputs if g.name not in states}
    made = {o.name: o.type for operation in block.operations for o in operation.outputs}
    outputs = {name: made.get(name) or inputs.get(name) for name in block.outputs}
    for kind, own, features in (
        ("input", inputs, description.input),
        ("state", states, description.state),
        ("output", outputs, description.output),
    ):
        declared = {f.name: f for f in features}
        for name in declared.keys() - own.keys():
            text = f"the description declares {kind} {name!r}, which the program does not have"
            yield c.error("R105", text, f"description.{kind}", name)
        for name in own.keys() - declared.keys():
            text = f"the program has {kind} {name!r}, which the description does not declare"
            yield c.error("R105", text, location, name)
        for name in sorted(declared.keys() & own.keys()):
            if reason := _reason(declared[name], own[name]):
                yield c.error("R110", f"{kind} {name!r} {reason}", f"description.{kind}", name)


def _reason(feature: Any, own: Any) -> str:
    """Return how the type of a feature contradicts the type in the program; "" if it does not."""
    kind = feature.type.WhichOneof("Type")
    if own is None or kind in _TABLES or kind is None:
        return ""
    tensor = own.stateType.wrappedType.tensorType if kind == "stateType" else own.tensorType
    array = feature.type.stateType.arrayType if kind == "stateType" else feature.type.multiArrayType
    dims = dims_of(tensor)
    said, meant = ARRAYS.get(array.dataType), TYPES.get(tensor.dataType)
    if kind != "imageType" and (said is None or said != meant):
        return f"is {_word(said)}, in the program {_word(meant)}"
    if dims is None:
        return ""
    declared = _declared_dims(feature, array, kind)
    if declared is None or (
        not dims and declared in ([1], [])
    ):  # a scalar is declared as one element
        return ""
    if len(declared) > len(dims) or (kind != "imageType" and len(declared) != len(dims)):
        return f"has {len(declared)} axes, in the program {len(dims)}"
    for n, d in zip(declared, dims[len(dims) - len(declared) :], strict=True):
        if d is not None and n is not None and n != d:
            return f"is {_shape(declared)}, in the program {_shape(dims)}"
    return ""


def _declared_dims(feature: Any, array: Any, kind: str) -> list[int | None] | None:
    """Return the sizes that a description declares, None for those that can be chosen; None where
    it declares none.
    """
    if kind == "stateType":
        return [int(n) for n in array.shape]
    sizes = sizes_of(feature)
    declared = [d if isinstance(d, int) else None for d in sizes.dims("", sizes.default)]
    if kind == "imageType":
        channels = 1 if feature.type.imageType.colorSpace in (10, 40) else 3
        return [channels, *declared]
    return list(declared) or None


def _word(dtype: ir.DataType | None) -> str:
    return "of unknown type" if dtype is None else dtype.name


def _shape(dims: list[int | None]) -> str:
    return "[" + ",".join("?" if d is None else str(d) for d in dims) + "]"


# the storage of weights --------------------------------------------------------------------------


def _blob_files(message: Any) -> Iterator[str]:
    """The names of files in all values of a message."""
    if message.DESCRIPTOR.name == "Value" and message.WhichOneof("value") == "blobFileValue":
        yield message.blobFileValue.fileName
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.name in ("ValueType", "TensorValue"):
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for inner in value.values():
                    yield from _blob_files(inner)
        elif field.is_repeated:
            for inner in value:
                yield from _blob_files(inner)
        else:
            yield from _blob_files(value)


def storage(blobs: Blobs, name: str, file: str) -> Iterator[Diagnostic]:
    """Check the header of a weights file, and the number of weights."""
    where = Where(file, path=name)
    try:
        data = blobs.open(name, where).bytes
    except ReadError as e:
        yield from e.diagnostics
        return
    if data.size < 64:
        yield Diagnostic("R103", f"{data.size} bytes are too few for a weights file", where=where)
        return
    count, version = struct.unpack_from("<II", data[:8].tobytes())
    if version != _STORAGE:
        text = f"the weights file has version {version}; {_STORAGE} is supported"
        yield Diagnostic("R104", text, where=where)
        return
    found = _stored(data)
    if found is not None and found != count:
        text = f"the weights file declares {count} weights, but has {found}"
        yield Diagnostic("R110", text, level="warning", where=where)


def _stored(data: Any) -> int | None:
    """Return the number of consecutive weights; None if they are not consecutive."""
    at, found = 64, 0
    while at + 64 <= data.size:
        sentinel, _, size, start = struct.unpack_from("<IIQQ", data[at : at + 24].tobytes())
        if sentinel != SENTINEL or start + size > data.size or start < at + 64:
            return None
        found += 1
        at = -(-(start + size) // 64) * 64
    return found
