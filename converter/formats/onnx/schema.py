"""Checks of nodes against onnx's operator schemas, and the functions in these schemas."""

from __future__ import annotations

import functools
from typing import Any

import onnx
import onnx.checker
import onnx.defs
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.op import Op, missing
from converter.graph.build import attribute
from converter.graph.infer import type_proto

_EXPERIMENTS = (
    "MeanVarianceNormalization",
    "ThresholdedRelu",
)  # of the first versions, which became standard later
_PLAIN: dict[str, Any] = {
    "INT": int,
    "FLOAT": float,
    "STRING": str,
    "TENSOR": ir.TensorProtocol,
    "GRAPH": onnx.GraphProto,
}


def check_declared(op: Op) -> None:
    """Raise MappingError if the file's version of ai.onnx does not have the operator, or if the
    node does not conform to its schema. The node is as in the file.
    """
    schema = schema_at(op.kind, op.version)
    if schema is None:
        if (
            op.kind not in _EXPERIMENTS
            and schema_at(op.kind, onnx.defs.onnx_opset_version()) is not None
        ):
            missing(op)
        return
    _check_node(op, schema)
    kinds, _ = _attributes(schema.name, schema.since_version, schema.domain)
    for name, value in op.attrs.items():
        if not _is(value, kinds.get(name)):
            raise MappingError(
                f"attribute {name!r} of {op.kind} must be of type {kinds[name].name}",
                "R110",
            )


def check(op: Op, schema: Any) -> None:
    """Raise MappingError where attributes or the numbers of inputs and outputs are not the
    operator's.
    """
    _check_node(op, schema)
    for name, value in op.attrs.items():
        if isinstance(value, onnx.GraphProto):  # kept unchanged; If, Loop and Scan are read earlier
            _check_body(op, name, value)


def _check_node(op: Op, schema: Any) -> None:
    kinds, required = _attributes(schema.name, schema.since_version, schema.domain)
    unknown = (
        op.attrs.keys() - kinds.keys() - {"consumed_inputs"}
    )  # which opset 1 had, and old exporters went on to write
    if unknown:
        raise MappingError(f"{op.kind} has the unknown attribute {min(unknown)!r}", "R111")
    absent = [n for n in required if n not in op.attrs]
    if absent:
        raise MappingError(f"{op.kind} lacks the attribute {absent[0]!r}", "R105")
    if (
        not schema.min_input <= len(op.inputs) <= schema.max_input
        or not schema.min_output <= len(op.outputs) <= schema.max_output
    ):
        raise MappingError(
            f"{op.kind} has {len(op.inputs)} inputs and {len(op.outputs)} "
            "outputs, but its schema allows other numbers",
            "R105",
        )


def _is(value: Any, kind: Any) -> bool:
    """Return whether a decoded attribute has the schema's type; lists without elements have every
    type of a list.
    """
    wanted = None if kind is None else _PLAIN.get(kind.name.removesuffix("S"))
    if wanted is None or value is None:
        return True
    if kind.name.endswith("S"):
        return isinstance(value, list) and all(isinstance(v, wanted) for v in value)
    return isinstance(value, wanted)


def _check_body(op: Op, name: str, graph: onnx.GraphProto) -> None:
    """Check that a body that is preserved uses no values from outside, which would be lost."""
    try:
        onnx.checker.check_graph(graph)
    except (onnx.checker.ValidationError, ValueError) as e:
        raise MappingError(
            f"{name} of {op.kind} is invalid: {' '.join(str(e).split())[:200]}", "R105"
        ) from None


@functools.lru_cache(1024)
def schema_at(kind: str, version: int, domain: str = "") -> Any:
    """Return the operator's schema in a version of a domain; None if it does not exist."""
    try:
        return onnx.defs.get_schema(kind, version, domain)
    except onnx.defs.SchemaError:
        return None


@functools.lru_cache(1024)
def _attributes(kind: str, version: int, domain: str) -> tuple[dict[str, Any], list[str]]:
    """Return the types of the attributes of an operator of a version, and the names of those that
    it must have.
    """
    attributes = onnx.defs.get_schema(kind, version, domain).attributes
    return {n: a.type for n, a in attributes.items()}, [
        n for n, a in attributes.items() if a.required
    ]


def function_of(schema: Any, op: Op) -> onnx.FunctionProto | None:
    """Return the function that defines the operator for these inputs and attributes; None when it
    has none.
    """
    function = onnx.FunctionProto()
    if schema.has_context_dependent_function:
        node = onnx.NodeProto(op_type=op.kind, domain=op.domain)
        node.input.extend("" if v is None else f"i{i}" for i, v in enumerate(op.inputs))
        node.output.extend(o and f"o{i}" for i, o in enumerate(op.outputs))
        node.attribute.extend(
            ir.serde.serialize_attribute(attribute(k, v))
            for k, v in op.attrs.items()
            if v is not None
        )
        types = [
            p.SerializeToString() if v is not None and (p := type_proto(v)) is not None else b""
            for v in op.inputs
        ]
        version = max(schema.context_dependent_function_opset_versions)
        function.ParseFromString(
            schema.get_context_dependent_function_with_opset_version(
                version, node.SerializeToString(), types
            )
        )
    elif schema.has_function:
        function.CopyFrom(schema.function_body)
    return function if function.node else None
