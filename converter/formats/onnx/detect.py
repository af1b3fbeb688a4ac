"""Detection of an ONNX ModelProto among other protobufs by its top-level fields."""

from __future__ import annotations

from pathlib import Path

from converter.io.protobuf import varint

# field number -> wire type, from onnx.proto: ir_version, producer_name, producer_version, domain,
# model_version, doc_string, graph, opset_import, metadata_props, training_info, functions,
# configuration
_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}


def looks_like_onnx(head: bytes, path: Path) -> bool:
    """Walk the top-level fields: only ONNX's, with their wire types, and the graph or an opset
    import among them.
    """
    size, at, seen = path.stat().st_size, 0, set()
    try:
        with open(path, "rb") as f:
            while at < size:
                f.seek(at)
                chunk = memoryview(f.read(24))
                tag, used = varint(chunk, 0, len(chunk))
                if _FIELDS.get(tag >> 3) != tag & 7:
                    return False
                value, used = varint(chunk, used, len(chunk))
                seen.add(tag >> 3)
                at += used + (value if tag & 7 == 2 else 0)
    except ValueError:
        return 7 in seen
    return 7 in seen or (8 in seen and 1 in seen)
