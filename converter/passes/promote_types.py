"""Compute in wider types if a target lacks an operator for the node's types.

before:  y = Add(a: int8, b: int8)
after:   y = Cast(Add(Cast(a, int32), Cast(b, int32)), int8)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import onnx.defs
import onnx_ir as ir

from converter.graph.build import builder_before
from converter.graph.infer import schema_of
from converter.graph.names import Names
from converter.graph.walk import replace_inputs, take_over

Signature = Mapping[
    str, AbstractSet[ir.DataType]
]  # type parameter of the operator's schema -> types that the target supports
_T = ir.DataType
FLOAT8 = (_T.FLOAT8E4M3FN, _T.FLOAT8E4M3FNUZ, _T.FLOAT8E5M2, _T.FLOAT8E5M2FNUZ)
# type -> wider types, in order of preference; if possible, they represent every value
WIDER: dict[ir.DataType, tuple[ir.DataType, ...]] = {
    **dict.fromkeys((_T.FLOAT16, _T.BFLOAT16, *FLOAT8), (_T.FLOAT, _T.DOUBLE)),
    _T.FLOAT: (_T.DOUBLE,),
    _T.DOUBLE: (_T.FLOAT,),
    _T.INT4: (_T.INT8, _T.INT32, _T.INT64),
    _T.UINT4: (_T.UINT8, _T.INT32, _T.INT64),
    _T.BOOL: (_T.UINT8, _T.INT32, _T.INT64, _T.FLOAT),
    _T.INT8: (_T.INT32, _T.INT64, _T.FLOAT, _T.DOUBLE),
    _T.UINT8: (_T.INT32, _T.UINT32, _T.INT64, _T.FLOAT, _T.DOUBLE),
    _T.INT16: (_T.INT32, _T.INT64, _T.FLOAT, _T.DOUBLE),
    _T.UINT16: (_T.INT32, _T.UINT32, _T.INT64, _T.FLOAT, _T.DOUBLE),
    _T.INT32: (_T.INT64, _T.DOUBLE, _T.FLOAT),
    _T.UINT32: (_T.UINT64, _T.INT64, _T.DOUBLE, _T.FLOAT),
    _T.INT64: (_T.DOUBLE, _T.FLOAT, _T.INT32),
    _T.UINT64: (_T.INT64, _T.DOUBLE, _T.FLOAT),
}
# values of the first type that the second cannot represent
NARROWER = {
    (_T.DOUBLE, _T.FLOAT),
    *((t, w) for t in (_T.INT64, _T.UINT64) for w in WIDER[t]),
    (_T.INT32, _T.FLOAT),
    (_T.UINT32, _T.FLOAT),
}


Types = Sequence[ir.DataType | None]


def parameters(node: ir.Node, schema: Any = None) -> dict[str, ir.DataType]:
    """Return the type parameters of the node's schema (of opset 21 by default) and their tensor
    types.
    """
    schema = schema or schema_of(node.op_type)
    return (
        {}
        if schema is None
        else parameters_among(schema, tensor_types(node.inputs), tensor_types(node.outputs))
    )


def tensor_types(values: Sequence[ir.Value | None]) -> tuple[ir.DataType | None, ...]:
    """Return the types of those values that are tensors."""
    return tuple(
        v.type.dtype if v is not None and isinstance(v.type, ir.TensorType) else None
        for v in values
    )


def parameters_among(schema: Any, inputs: Types, outputs: Types) -> dict[str, ir.DataType]:
    """Return the type parameters of a schema and their types, for these types of inputs and
    outputs.
    """
    found: dict[str, ir.DataType] = {}
    for formals, types in ((schema.inputs, inputs), (schema.outputs, outputs)):
        for i, type_ in enumerate(types):
            if type_ is not None and (p := parameter(formals, i)):
                found.setdefault(p, type_)
    return found


def parameter(formals: Sequence[Any], index: int) -> str:
    """Return the type parameter of an input or output; "" if the schema has none, or if a later
    version added the operand.
    """
    if index < len(formals):
        return str(formals[index].type_str)
    return (
        str(formals[-1].type_str)
        if formals and formals[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
        else ""
    )


def takes(signature: Signature, types: Mapping[str, ir.DataType]) -> bool:
    """Return whether a signature permits these types of its parameters."""
    return all(t in signature[p] for p, t in types.items() if p in signature)


def promote_types(
    node: ir.Node, signatures: Sequence[Signature], names: Names, schema: Any = None
) -> bool:
    """Insert Casts around the node for the signature that needs the least change; return whether
    there was one.
    """
    schema = schema or schema_of(node.op_type)
    plan = wider(parameters(node, schema), signatures)
    if plan is not None:
        _cast(node, plan, names, schema)
    return plan is not None


def wider(
    types: Mapping[str, ir.DataType], signatures: Sequence[Signature]
) -> dict[str, ir.DataType] | None:
    """Return other types for some parameters, those of the signature that needs the least change;
    None if there is none.
    """
    found = []
    for signature in signatures:
        plan, cost = {}, 0
        for p, t in types.items():
            if p not in signature or t in signature[p]:
                continue
            choice = next(
                ((i, w) for i, w in enumerate(WIDER.get(t, ())) if w in signature[p]), None
            )
            if choice is None:
                break
            plan[p], cost = choice[1], cost + 1 + choice[0]
        else:
            found.append((cost, plan))
    return min(found, key=lambda f: f[0])[1] if found else None


def _cast(node: ir.Node, plan: Mapping[str, ir.DataType], names: Names, schema: Any) -> None:
    b = builder_before(node, names)
    done: dict[ir.Value, ir.Value] = {}
    changes: dict[int, ir.Value | None] = {}
    for i, value in enumerate(node.inputs):
        target = plan.get(parameter(schema.inputs, i))
        if value is not None and target is not None and isinstance(value.type, ir.TensorType):
            if value not in done:
                done[value] = b.Cast(value, to=target)
            changes[i] = done[value]
    replace_inputs(node, changes)
    for i, out in enumerate(node.outputs):
        target = plan.get(parameter(schema.outputs, i))
        if target is not None and isinstance(out.type, ir.TensorType):
            _narrow(node, out, target, names)
    if (
        "dtype" in node.attributes
        and node.attributes["dtype"].as_int() != 0
        and node.outputs[0].dtype is not None
    ):
        node.attributes["dtype"] = ir.AttrInt64("dtype", int(node.outputs[0].dtype))


def _narrow(node: ir.Node, out: ir.Value, target: ir.DataType, names: Names) -> None:
    """Compute `out` as `target`, and insert a Cast to the old type for its consumers."""
    assert isinstance(node.graph, ir.Graph) and out.dtype is not None
    cast = ir.Node("", "Cast", [out], [ir.AttrInt64("to", int(out.dtype))], num_outputs=1)
    result = cast.outputs[0]
    result.type, result.shape = out.type, out.shape
    name, out.type = out.name, ir.TensorType(target)
    take_over(out, result)
    cast.replace_input_with(0, out)
    out.name = names.fresh(f"{name}_wide")
    result.name = name
    result.metadata_props.update(out.metadata_props)
    node.graph.insert_after(node, cast)
