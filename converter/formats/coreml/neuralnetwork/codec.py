"""Core ML model files (.mlmodel): one serialized `CoreML.Specification.Model` each, weights
included.

Reading maps the file, leaves large weights in it and lets protobuf decode the small rest; writing
computes all lengths first and then streams. A model that is written after reading is an equal
message with equal weights, including layers and fields that are not known.
"""

from __future__ import annotations

import os

from google.protobuf.message import DecodeError

from converter.errors import Diagnostic, ReadError, UnsupportedError, Where, unreadable
from converter.formats.coreml.neuralnetwork.locate_error import path_at, undecodable
from converter.formats.coreml.neuralnetwork.model import NETWORKS, PIPELINES, MLModel
from converter.formats.coreml.package import MODEL, SUFFIX, digest, write_manifest
from converter.formats.coreml.proto import Model_pb2
from converter.io.files import Output
from converter.io.mapped_file import MappedFile
from converter.io.protobuf import LEN, VARINT, WireError, fields, varint

# the highest specificationVersion whose meaning is known here; the network itself is unchanged
# since 5
NEWEST_VERSION = 9
# protobuf, and Core ML with it, refuses longer messages
LONGEST_FILE = (1 << 31) - 1

_MODEL = Model_pb2.Model.DESCRIPTOR
_KINDS: dict[int, str] = {f.number: f.name for f in _MODEL.oneofs_by_name["Type"].fields}
_FIRST_KIND = min(_KINDS)


def read_mlmodel(path: str | os.PathLike[str], opened: MappedFile | None = None) -> MLModel:
    """Read a network or a pipeline (of any members). `opened`: the file, if it is open already.

    Raises ReadError: R100 no such file, R103 damaged or not Core ML, R104 unknown
    specificationVersion, R106 another kind of model.
    """
    if os.path.isdir(path):
        raise unreadable("R100", "cannot read: it is a folder", path)
    file = MappedFile(path) if opened is None else opened
    data, where = file.bytes.data, Where(str(path))
    model = MLModel(str(path))
    try:
        _check_top(data, where)
        skeleton = model.skeleton(data)
    except WireError as e:
        raise _malformed(data, e, where) from None
    try:
        model.proto.ParseFromString(skeleton)
    except (DecodeError, UnicodeDecodeError):  # the latter from protobuf in pure Python
        place = Where(where.file, path=undecodable(memoryview(skeleton), _MODEL))
        raise unreadable("R103", "the file is damaged: protobuf cannot decode it", place) from None
    return model


def write_mlmodel(model: MLModel, out: Output) -> None:
    """Write the model as the target of `out`, weights one by one; into a package, if the target is
    called like one. Raise UnsupportedError X206 if it would be longer than protobuf allows.
    """
    pieces = model.pieces()
    size = sum(piece.nbytes for piece in pieces)
    if size > LONGEST_FILE:
        help = "use coreml+fp16, whose half-precision weights need half the size"
        raise UnsupportedError(
            Diagnostic("X206", f"the Core ML model has {size} bytes, limit 2 GiB", help=help)
        )
    package = out.target.name.endswith(SUFFIX)
    content = digest() if package else None
    with out.open(inside=MODEL if package else "") as f:
        for piece in pieces:
            data = piece if isinstance(piece, memoryview) else piece.bytes()
            f.write(data)
            if content is not None:
                content.update(data)
    if content is not None:
        write_manifest(out, content.hexdigest(), weights=False)


def _check_top(data: memoryview, where: Where) -> None:
    """Reject a file that is not a network or pipeline of a known version, before anything is
    decoded.
    """
    version = kind = unknown_kind = 0
    foreign = set()
    for field in fields(data):
        if field.number in _KINDS and field.wire == LEN:
            kind = field.number
        elif field.number == 1 and field.wire == VARINT:
            version = varint(data, field.start, field.end)[0]
        elif field.number >= _FIRST_KIND and field.wire == LEN:
            unknown_kind = field.number
        elif field.number < 32:
            foreign.add((field.number, field.wire))
    if not kind:
        raise _no_kind(len(data), unknown_kind, foreign, where)
    name = _KINDS[kind]
    if name == "mlProgram":
        raise unreadable(
            "R106",
            "this Core ML file contains an ML Program (mlProgram), not a neural network",
            where,
            "use -f mlprogram to read it",
        )
    if name not in NETWORKS + PIPELINES:
        raise unreadable(
            "R106",
            f"this Core ML file contains a model of kind {name}, not a neural network",
            where,
        )
    if not 1 <= version <= NEWEST_VERSION:
        text = f"specificationVersion {version}" if version else "no specificationVersion"
        raise unreadable("R104", f"{text}; netconv reads 1 to {NEWEST_VERSION}", where)


def _no_kind(
    size: int, unknown_kind: int, foreign: set[tuple[int, int]], where: Where
) -> ReadError:
    if not size:
        return unreadable("R103", "the file is empty", where)
    if unknown_kind:
        return unreadable(
            "R106",
            f"this Core ML file contains an unknown kind of model (field {unknown_kind})",
            where,
        )
    # ModelProto of ONNX: graph is 7, opset_import 8
    if (7, LEN) in foreign or (8, LEN) in foreign:
        return unreadable(
            "R103",
            "this is not a Core ML model; it looks like an ONNX file",
            where,
            "use -f onnx to read it as ONNX",
        )
    return unreadable(
        "R103",
        "this file contains no model: no network or other kind of Core ML model is set",
        where,
    )


def _malformed(data: memoryview, e: WireError, where: Where) -> ReadError:
    if bytes(data[:1]) != b"\x08":
        return unreadable(
            "R103",
            "this is not a Core ML model: it does not begin with a specificationVersion",
            where,
        )
    place = Where(where.file, path=path_at(data, _MODEL, e.offset))
    # only a field of the file itself can reach over its end
    help = "" if place.path else "the file is probably truncated"
    return unreadable("R103", f"the file is damaged at byte {e.offset}: {e}", place, help)
