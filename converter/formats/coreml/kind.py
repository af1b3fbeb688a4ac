"""Detection of the kind of model in a Core ML file, without decoding it."""

from __future__ import annotations

import mmap
from pathlib import Path

from converter.formats.coreml.package import is_compiled_program, is_package, open_model
from converter.formats.coreml.package_zip import MAGIC, begin_of_model, is_zip
from converter.io.protobuf import WireError, fields

# Model: all fields other than the kinds (all from 200), with their wire types
_COMMON = {(1, 0), (2, 2), (10, 0)}
_KINDS = range(200, 4000)
ML_PROGRAM = 502
_PIPELINE = 202
_PIPELINES = (200, 201, _PIPELINE)
BEGINS = (b"\x08", MAGIC[:1])  # of a bare model, of a .zip


def kind_of(path: Path) -> int:
    """Return the kind of a file, of a package, or of a package in a .zip. Raise ReadError for a
    package or .zip that is damaged.
    """
    if is_compiled_program(path):
        return ML_PROGRAM
    if path.is_dir():
        return kind_in(open_model(path).bytes.data) if is_package(path) else 0
    if is_zip(path):
        return kind_in(memoryview(begin_of_model(path)))
    try:
        with (
            open(path, "rb") as f,
            mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            return kind_in(data)
    except (OSError, ValueError):  # a pipe cannot be mapped
        return 0


def kind_in(data: memoryview, depth: int = 8) -> int:
    """Return the number of the field that determines the kind of model; 0 for a file that is not a
    Core ML model.

    A bare protobuf message is recognized by its top-level fields. ONNX begins with the same byte
    (0x08, a version) and goes on with a length-delimited field 2 when it names its producer, but
    has no field from 200 on; Core ML has one there, and none of ONNX's 3..9. A truncated model is
    still recognized if the field of its kind is begun. A pipeline that contains a program is of
    that kind.
    """
    kind = 0
    try:
        for field in fields(data):
            if field.wire == 2 and field.number in _KINDS:
                kind = field.number
            elif (field.number, field.wire) not in _COMMON:
                return 0
            if kind in _PIPELINES and _has_program(data[field.start : field.end], kind, depth):
                kind = ML_PROGRAM
    except WireError as e:
        return kind or (e.number if e.number in _KINDS else 0)
    return kind


def _has_program(pipeline: memoryview, kind: int, depth: int) -> bool:
    """Return whether a pipeline, or a classifier around one, contains a program."""
    found = [pipeline[f.start : f.end] for f in fields(pipeline) if (f.number, f.wire) == (1, 2)]
    if kind != _PIPELINE:
        return any(_has_program(inner, _PIPELINE, depth) for inner in found[:1])
    return depth > 0 and any(kind_in(member, depth - 1) == ML_PROGRAM for member in found)
