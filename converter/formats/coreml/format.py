"""The Core ML format as one value."""

from __future__ import annotations

import mmap
import os

# Model: everything beside the kinds (all from 200), with the wire types they have
_COMMON = {(1, 0), (2, 2), (10, 0)}
_KINDS = range(200, 4000)


def sniff(head: bytes, path: str | os.PathLike[str]) -> bool:
    """Whether the file is a Core ML model: a bare protobuf message, told by walking its top-level fields.

    ONNX begins with the same byte (0x08, a version) and goes on with a length-delimited field 2 when it names its producer, but has no field
    from 200 on; Core ML has one there, its kind of model, and none of ONNX's 3..9. A truncated model is still recognised if its kind is begun.
    """
    if head[:1] != b"\x08" or os.path.isdir(path):
        return False
    from converter.formats.coreml.wire import WireError, fields

    kind = False
    try:
        with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
            for field in fields(data):
                if field.wire == 2 and field.number in _KINDS:
                    kind = True
                elif (field.number, field.wire) not in _COMMON:
                    return False
    except WireError as e:
        return kind or e.number in _KINDS
    except (OSError, ValueError):  # a pipe cannot be mapped
        return False
    return kind
