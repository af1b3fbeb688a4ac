"""Types that a file declares, and types that opset 21 or IR version 10 does not have."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir

from converter.errors import MappingError, Place, unreadable
from converter.formats.onnx.op import Op
from converter.graph.build import Builder
from converter.graph.infer import schema_of, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.value import type_name

_T = ir.DataType
NOMINAL = "netconv.nominal"  # the type that the file gives a value, if the graph lacks it
# how schemas spell the types of tensors
NAMED = {f"tensor({t.name.lower()})": t for t in _T}
# types of weights that came after opset 21 -> a type of opset 21 that holds every value of theirs
_HOLDS: dict[_T, Any] = {
    _T.FLOAT4E2M1: ml_dtypes.float8_e4m3fn,
    _T.FLOAT8E8M0: np.float32,
    _T.INT2: ml_dtypes.int4,
    _T.UINT2: ml_dtypes.uint4,
}
# the same for values that are computed
_PRESENTED = {_T.INT2: _T.INT8, _T.UINT2: _T.UINT8}
# types that a newer opset allows for an operator -> the type that opset 21 computes it in
_WIDER = {_T.BFLOAT16: _T.FLOAT, _T.FLOAT16: _T.FLOAT}


def fit_tensor(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return the tensor in a type that IR version 10 has; exact."""
    wider = _HOLDS.get(tensor.dtype)
    return (
        tensor
        if wider is None
        else LazyTensor(np.asarray(tensor.numpy()).astype(wider), name=tensor.name)
    )


def weight(b: Builder, tensor: ir.TensorProtocol, name: str) -> ir.Value:
    """Return a constant of the graph. A type that opset 21 does not have is widened, and
    `check_widened` checks the consumers.
    """
    value = b.const(fit_tensor(tensor), name)
    if tensor.dtype in _HOLDS:
        value.meta[NOMINAL] = tensor.dtype.name
    return value


def nominal_type(number: int) -> str:
    """Return the name of a type of a few bits that the graph lacks, by its number; "" for
    others.
    """
    found = next((t for t in _HOLDS if int(t) == number), None)
    return "" if found is None else found.name


def presented(proto: onnx.TypeProto) -> ir.DataType | None:
    """Return the type that represents a declared one in the graph, if the graph does not support
    that.
    """
    found = next((t for t in _HOLDS if int(t) == proto.tensor_type.elem_type), None)
    return None if found is None else _PRESENTED.get(found, _T.FLOAT)


def check_widened(op: Op) -> None:
    """Check that a widened value gives the same result: its own type must not show in any
    result.
    """
    readers = {"DequantizeLinear": (0, 1, 2), "Cast": (0,), "CastLike": (0,)}.get(op.kind, ())
    for i, value in enumerate(op.inputs):
        if value is not None and NOMINAL in value.meta and i not in readers:
            raise MappingError(f"{op.kind} of {value.meta[NOMINAL]} is not supported")


def merge_type(value: ir.Value, proto: onnx.TypeProto, where: Place = "") -> None:
    """Use the declarations of a file about a value where inference knows less; a contradicting type
    is refused.
    """
    if proto.WhichOneof("value") is None or has_maps(proto):
        return
    try:
        declared = ir.serde.deserialize_type_proto_for_type(proto)
        shape = ir.serde.deserialize_type_proto_for_shape(proto)
    except (ir.serde.SerdeError, ValueError, TypeError):
        raise unreadable(
            "R103", f"the type of {value.name!r} does not exist in ONNX", where
        ) from None
    if declared is not None and declared.dtype not in (_T.UNDEFINED, *_HOLDS):
        if value.type is None:
            value.type = declared
        elif (
            isinstance(declared, ir.TensorType)
            and isinstance(value.type, ir.TensorType)
            and declared != value.type
        ):
            raise unreadable(
                "R105",
                f"{value.name!r} is declared as {type_name(declared.dtype)}, but is "
                f"{type_name(value.type.dtype)}",
                where,
            )
    if shape is None:
        return
    if any(
        isinstance(d, int) and d < 0 for d in shape
    ):  # how some exporters spell that a size is not known
        shape = ir.Shape([None if isinstance(d, int) and d < 0 else d for d in shape])
    if value.shape is None:
        value.shape = shape
    elif shape_of(value) is None and len(value.shape) == len(shape):
        value.shape = ir.Shape([_better(k, d) for k, d in zip(value.shape, shape, strict=True)])


def _better(inferred: int | ir.SymbolicDim, declared: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
    """Return the declared dimension where the inferred one is neither known nor named: exporters
    declare sizes of their example where a dimension is dynamic.
    """
    if isinstance(inferred, int):
        return inferred
    if isinstance(declared, ir.SymbolicDim) and declared.value is not None:
        return declared
    from converter.graph.size_expressions import parse

    named = inferred.value is not None and parse(inferred.value) is not None
    return inferred if named else declared


def has_maps(proto: onnx.TypeProto) -> bool:
    """Return whether values of the type are maps, or sequences of maps (ZipMap), which the graph
    does not support.
    """
    kind = proto.WhichOneof("value")
    if kind == "sequence_type":
        return has_maps(proto.sequence_type.elem_type)
    return kind == "map_type" or (
        kind == "optional_type" and has_maps(proto.optional_type.elem_type)
    )


def too_new(proto: onnx.TypeProto) -> str | None:
    """Return the name of a type that the graph does not have: maps."""
    return "map" if has_maps(proto) else None


def fit_types(op: Op, schema: Any, b: Builder) -> Sequence[ir.Value]:
    """Emit the operator; types that opset 21 does not allow for it are computed in a wider one,
    between Casts.
    """
    inputs, narrowed = list(op.inputs), None
    for i, value in enumerate(inputs):
        allowed = _allowed(schema, i)
        if (
            value is None
            or not isinstance(value.type, ir.TensorType)
            or not allowed
            or value.type.dtype in allowed
        ):
            continue
        dtype = value.type.dtype
        wider = _WIDER.get(dtype)
        if wider is None or wider not in allowed:
            raise MappingError(f"{op.kind} of {type_name(dtype)} does not exist in opset 21")
        inputs[i], narrowed = b.Cast(value, to=wider), dtype
    results = b.ops(
        op.kind,
        *inputs,
        outputs=len(op.outputs),
        names=op.outputs if narrowed is None else (),
        **op.attrs,
    )
    if narrowed is None:
        return results
    return [b.Cast(r, to=narrowed) if r.dtype == _WIDER[narrowed] else r for r in results]


def _allowed(schema: Any, index: int) -> frozenset[ir.DataType]:
    """Return the tensor types of an input; empty if the schema has no constraint."""
    formals = _formals(schema.name)
    return formals[min(index, len(formals) - 1)] if formals else frozenset()


@functools.lru_cache(1024)
def _formals(kind: str) -> list[frozenset[ir.DataType]]:
    """Return the tensor types of each input of an operator of opset 21."""
    schema = schema_of(kind)
    return (
        []
        if schema is None
        else [
            frozenset(t for text in f.types if (t := NAMED.get(text)) is not None)
            for f in schema.inputs
        ]
    )
