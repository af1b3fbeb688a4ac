"""Types and shapes of one node's outputs.

onnx's own inference handles the standard operators (7 us per node). Values that are known without
running the network (known.py) are cached on the value, so that Reshape(x, Concat(Shape(..), ..))
has a shape as soon as it is built.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sized
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.shape_inference
import onnx_ir as ir

from converter.graph import CHANNELS_LAST_DOMAIN, EXTENSION_DOMAIN, IR_VERSION, OPSET
from converter.graph.catalogue import lookup
from converter.graph.channels_last import plain_node, take_types
from converter.graph.known import (
    KNOWN_LIMIT,
    RANDOM,
    SIZES,
    Array,
    Arrays,
    InferenceError,
    constant,
    evaluate,
    evaluate_outputs,
    forget_known,
    has_constant,
    known,
    rank_of,
    set_known,
    set_type,
    shape_of,
)
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.pools import ROUNDED, without_windows_in_padding
from converter.graph.verify.node import check_attributes, verify_node
from converter.io.limits import MOST_AXES

__all__ = [  # known values are part of the result of inference
    "KNOWN_LIMIT",
    "RANDOM",
    "Array",
    "Arrays",
    "InferenceError",
    "constant",
    "demand_few_axes",
    "evaluate",
    "forget_known",
    "has_constant",
    "infer",
    "known",
    "question",
    "rank_of",
    "schema_of",
    "set_known",
    "set_type",
    "shape_of",
    "static_question",
    "type_proto",
]
_OPSETS = [onnx.helper.make_opsetid("", OPSET)]
_MORE_IS_KNOWN = {"GatherND", "SequenceAt", "Resize", "NonZero", "Unique"}
_LIKE_INPUT = {"GroupNormalization", "MeanVarianceNormalization"}


@functools.lru_cache(1024)
def schema_of(op_type: str, domain: str = "") -> onnx.defs.OpSchema | None:
    """Return the schema of an operator: at opset 21 for ONNX, the newest one that is not deprecated
    for ai.onnx.ml, or None.
    """
    for version in (
        (OPSET,) if domain == "" else (5, 3, 1)
    ):  # for ai.onnx.ml the newest version that has the operator
        with contextlib.suppress(onnx.defs.SchemaError):
            schema = onnx.defs.get_schema(op_type, version, domain)
            if domain == "" or not schema.deprecated:
                return schema
    return None


def infer(node: ir.Node) -> None:
    """Infer the type and shape of the outputs, in place, as far as the inputs determine them."""
    if node.op_type in ("If", "Loop", "Scan") and node.domain == "":
        from converter.graph import infer_control

        infer_control.infer(node)
    elif node.domain == EXTENSION_DOMAIN:
        _infer_extension(node)
    elif node.domain == CHANNELS_LAST_DOMAIN:
        plain = plain_node(node)
        infer(plain)
        take_types(node, plain)
    else:
        if node.domain == "" and (reason := check_attributes(node)) is not None:
            raise InferenceError(f"{node.op_type}: {reason}")
        _infer_standard(node)
        if node.domain == "" and (reason := verify_node(node)) is not None:
            raise InferenceError(f"{node.op_type}: {reason}")
        if node.domain == "" and _is_dynamic(node):
            from converter.graph import symbolic_dimensions

            symbolic_dimensions.infer(node)
    for out in node.outputs:
        demand_few_axes(() if out.shape is None else out.shape)
    evaluate_outputs(node)


def _infer_extension(node: ir.Node) -> None:
    entry = lookup(node.op_type)
    if entry is None:
        return
    if reason := entry.contradiction(node):
        raise InferenceError(reason)
    entry.infer(node)


def _is_dynamic(node: ir.Node) -> bool:
    """Return whether dimensions of a result are unknown, or an operand is computed from such."""
    return any(shape_of(o) is None for o in node.outputs) or any(
        shape_of(v) is None or SIZES in v.meta for v in node.inputs if v is not None
    )


def demand_few_axes(shape: Sized) -> None:
    """Raise InferenceError for ranks that exceed those of engines and formats."""
    if len(shape) > MOST_AXES:
        raise InferenceError(f"a tensor has {len(shape)} axes, limit {MOST_AXES}")


def type_proto(value: ir.Value) -> onnx.TypeProto | None:
    """Return the type and the shape of a value as ONNX has them, None if the type is unknown.
    Raises InferenceError for dimensions of more than 64 bits.
    """
    if value.type is None:
        return None
    proto = ir.serde.serialize_type(value.type)
    if value.shape is not None and isinstance(value.type, ir.TensorType):
        try:
            ir.serde.serialize_shape_into(proto, value.shape)
        except ir.serde.SerdeError:
            raise InferenceError(
                f"the shape {list(value.shape)} of {value.name!r} exceeds 64 bits"
            ) from None
    return proto


def _infer_standard(node: ir.Node) -> None:
    schema = schema_of(node.op_type, node.domain)
    if schema is None or any(v is not None and v.type is None for v in node.inputs):
        return
    if (
        node.op_type in _LIKE_INPUT and node.inputs and node.inputs[0] is not None
    ):  # onnx has no inference for these two
        node.outputs[0].type, node.outputs[0].shape = node.inputs[0].type, node.inputs[0].shape
        return
    if (tensor := _own_tensor(node)) is not None:
        set_type(node.outputs[0], tensor.dtype, list(tensor.shape))
        return
    key = question(node)
    found = None if key is None else _ANSWERS.get(key)
    if found is None:
        found = _ask(node, schema)
        if key is not None and all(
            type_ is None or isinstance(type_, ir.TensorType) for type_, _ in found
        ):
            if len(_ANSWERS) >= _MOST_ANSWERS:
                _ANSWERS.clear()
            _ANSWERS[key] = found
    for out, (type_, dims) in zip(node.outputs, found, strict=True):
        if type_ is not None:
            out.type = ir.TensorType(type_.dtype) if isinstance(type_, ir.TensorType) else type_
        if dims is not None:
            out.shape = ir.Shape(dims)
    if node.op_type in _MORE_IS_KNOWN:
        from converter.graph import infer_sizes

        infer_sizes.MORE[node.op_type](node)
    if node.op_type in ROUNDED:
        without_windows_in_padding(node)


def _own_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the tensor of a Constant that is an array in memory: its type needs no question to
    onnx. Definitions of operators consist of such constants to a third.
    """
    if node.op_type != "Constant" or node.domain or len(node.attributes) != 1:
        return None
    attribute = node.attributes.get("value")
    tensor = attribute.value if attribute is not None else None
    if not isinstance(tensor, LazyTensor) or not isinstance(tensor.source, np.ndarray):
        return None
    return tensor if tensor.source.shape == tuple(tensor.shape) else None


# cached answers of onnx for an operator with these attributes and inputs, because networks repeat
# them
Answer = list[tuple[ir.TypeProtocol | None, list[Any] | None]]
_ANSWERS: dict[Any, Answer] = {}
_MOST_ANSWERS = 4096
_HASHABLE = {
    getattr(ir.AttributeType, n) for n in ("INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS")
}
_FLOATS = (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS)
_SMALL = 64  # elements of float constants that may determine shapes (scales, ends of a range)


def question(node: ir.Node) -> Any:
    """Return everything on which the outputs' types and shapes depend, as a key; None if it is more
    than a few numbers.
    """
    attributes: list[Any] = []
    for a in node.attributes.data.values():
        if a.type not in _HASHABLE or a.is_ref():
            return None
        attributes.append((a.name, a.type, a.value))
    inputs: list[Any] = []
    for v in node.inputs:
        if v is not None and not isinstance(v.type, ir.TensorType):
            return None
        data = _data(v)
        inputs.append(
            None
            if v is None
            else (
                v.type.dtype,  # type: ignore[union-attr]
                _dims(v.shape),
                data if data is None else (data.dtype.str, data.tobytes()),
            )
        )
    return node.op_type, node.domain, len(node.outputs), tuple(attributes), tuple(inputs)


def static_question(node: ir.Node) -> Any:
    """Return everything on which the outputs depend, known values included, as a key; None if it
    is more than a few numbers or a size is open.
    """
    for v in node.inputs:
        if v is not None and (shape_of(v) is None or (known(v) is not None and _data(v) is None)):
            return None
    texts = [str(a.value) for a in node.attributes.values() if a.type in _FLOATS]  # -0.0 == 0.0
    key = question(node)
    return None if key is None else (key, *texts)


def _dims(shape: ir.Shape | None) -> tuple[Any, ...] | None:
    return None if shape is None else tuple(d if isinstance(d, int) else d.value for d in shape)


def _data(value: ir.Value | None) -> Array | None:
    """Return the value of an input if inference may need it."""
    array = known(value)
    return (
        array
        if array is not None
        and (array.dtype.kind in "iub" or (array.dtype.kind == "f" and array.size <= _SMALL))
        else None
    )


def _ask(node: ir.Node, schema: onnx.defs.OpSchema) -> Answer:
    """Run onnx's own inference."""
    proto, names = onnx.NodeProto(op_type=node.op_type, domain=node.domain), {}
    for i, v in enumerate(node.inputs):  # foreign names may be empty or repeated
        proto.input.append("" if v is None else f"i{i}")
        if v is not None:
            names[f"i{i}"] = v
    proto.output.extend(f"o{i}" for i in range(len(node.outputs)))
    try:
        proto.attribute.extend(
            ir.serde.serialize_attribute(a) for a in node.attributes.values() if not a.is_ref()
        )
    except ir.serde.SerdeError as e:
        raise InferenceError(f"{node.op_type}: {e}") from None
    types = {n: p for n, v in names.items() if (p := type_proto(v)) is not None}
    data = {
        n: onnx.numpy_helper.from_array(array)
        for n, v in names.items()
        if (array := _data(v)) is not None
    }
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema, proto, types, input_data=data, opset_imports=_OPSETS, ir_version=IR_VERSION
        )
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError) as e:
        raise InferenceError(f"{node.op_type}: {str(e).splitlines()[0]}") from None
    return [_answer(found.get(f"o{i}")) for i in range(len(node.outputs))]


def _answer(proto: onnx.TypeProto | None) -> tuple[ir.TypeProtocol | None, list[Any] | None]:
    if proto is None:
        return None, None
    shape = ir.serde.deserialize_type_proto_for_shape(proto)
    return ir.serde.deserialize_type_proto_for_type(proto), None if shape is None else list(shape)
