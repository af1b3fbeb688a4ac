"""AttributeProto -> Python values."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.codec import TensorFiles

Attributes = dict[str, Any]
_A = onnx.AttributeProto


def decoded(node: onnx.NodeProto, bound: Attributes, weights: TensorFiles) -> Attributes:
    """Return the attributes of a node that are set, by name."""
    if len({a.name for a in node.attribute}) < len(node.attribute):
        raise MappingError(f"{node.op_type} has the same attribute twice", "R105")
    return {
        a.name: found for a in node.attribute if (found := decode(a, bound, weights)) is not None
    }


def decode(a: onnx.AttributeProto, bound: Attributes, weights: TensorFiles) -> Any:
    """Return an attribute as a Python value: numbers, str, lists of them, onnx_ir tensors; graphs,
    sparse tensors and types as protobufs; None if it is not set. `bound` are the attributes of the
    enclosing function call, to which `ref_attr_name` refers.
    """
    if not isinstance(a.name, str):  # protobuf gives bytes for invalid UTF-8
        raise MappingError(f"attribute name {a.name!r} is not valid UTF-8", "R103")
    if a.ref_attr_name:
        return bound.get(a.ref_attr_name)
    kind = a.type or _guess(a)
    if kind == _A.INT:
        return a.i
    if kind == _A.FLOAT:
        return a.f
    if kind == _A.STRING:
        return _text(a, a.s)
    if kind == _A.STRINGS:
        return [_text(a, s) for s in a.strings]
    if kind in (_A.INTS, _A.FLOATS):
        return list(a.ints if kind == _A.INTS else a.floats)
    if kind == _A.TENSOR:
        return weights.tensor(a.t, f"attribute {a.name}")
    if kind == _A.TYPE_PROTO:
        return ir.serde.deserialize_attribute(a)
    if kind in (_A.GRAPH, _A.SPARSE_TENSOR):
        return a.g if kind == _A.GRAPH else a.sparse_tensor
    raise MappingError(f"attribute {a.name!r} has a type that no operator uses", "R110")


def _text(a: onnx.AttributeProto, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise MappingError(f"attribute {a.name!r} is not valid UTF-8", "R110") from None


def _guess(a: onnx.AttributeProto) -> int:
    """Return the type of an attribute of IR version 1 or 2, which did not declare it."""
    for field, kind in (
        ("f", _A.FLOAT),
        ("i", _A.INT),
        ("s", _A.STRING),
        ("t", _A.TENSOR),
        ("g", _A.GRAPH),
    ):
        if a.HasField(field):
            return kind
    return _A.FLOATS if a.floats else _A.STRINGS if a.strings else _A.INTS
