"""Types and shapes of one node's outputs, and the values of shape arithmetic.

onnx's own inference does the standard operators (7 us a node). Values that are known without
running the network (shape vectors, mostly) are remembered on the value, so that Reshape(x,
Concat(Shape(..), ..)) has a shape as soon as it is built.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sized
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.defs
import onnx.shape_inference
import onnx_ir as ir

from converter.graph import CHANNELS_LAST_DOMAIN, EXTENSION_DOMAIN, IR_VERSION, OPSET
from converter.graph.pools import ROUNDED, without_windows_in_padding
from converter.graph.verify.node import check_attributes, verify_node
from converter.graph.walk import subgraphs
from converter.io.limits import MOST_AXES

Array = npt.NDArray[Any]
Arrays = dict[str, Array]  # by name
KNOWN_LIMIT = 4096  # elements; shape arithmetic is small, weights are not evaluated here
_KNOWN = "netconv.known"
_OPSETS = [onnx.helper.make_opsetid("", OPSET)]
_MORE_IS_KNOWN = {
    *("GatherND", "SequenceAt", "Reshape", "Expand", "ConstantOfShape"),
    *("Resize", "NonZero", "Unique"),
}
_LIKE_INPUT = {"GroupNormalization", "MeanVarianceNormalization"}
# operators of ONNX whose results are other ones each time
RANDOM = frozenset(
    {
        "RandomNormal",
        "RandomUniform",
        "RandomNormalLike",
        "RandomUniformLike",
        "Bernoulli",
        "Multinomial",
    }
)
_CHOICES = {"Gather", "Slice"}
_SAME_SIZES = {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"}  # of one axis or none
_UNKNOWN_SIZE = np.iinfo(np.int64).min
_NOT_EVALUATED = {"If", "Loop", "Scan", "Dropout", *RANDOM}
_PACKED = (ir.DataType.INT4, ir.DataType.UINT4)  # compact weights, no shape arithmetic


class InferenceError(Exception):
    """A node whose inputs contradict its operator; the message is onnx's."""


def shape_of(value: ir.Value | None) -> tuple[int, ...] | None:
    """The static shape, or None when rank or a dimension is unknown, or there is no value."""
    if value is None or value.shape is None:
        return None
    dims = value.shape.dims
    for d in dims:  # a loop: this is asked more often than anything else
        if not isinstance(d, int):
            return None
    return dims  # type: ignore[return-value]


def rank_of(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else value.shape.rank()


def known(value: ir.Value | None) -> Array | None:
    """The value as an array when it is a small constant or computed from such; None otherwise."""
    if value is None:
        return None
    if value.const_value is not None:
        return value.const_value.numpy() if value.const_value.size <= KNOWN_LIMIT else None
    found = value.meta.get(_KNOWN)
    return found if found is None else np.asarray(found)


def set_known(value: ir.Value, array: Array) -> None:
    value.meta[_KNOWN] = array


def forget_known(value: ir.Value) -> None:
    """What was remembered of the value no longer holds: an operand of its node was replaced."""
    value.meta.pop(_KNOWN, None)


def constant(value: ir.Value | None) -> Array | None:
    """The array of an initializer of any size (a view, not a copy), or a known value; None for
    activations.
    """
    if value is not None and value.const_value is not None:
        return value.const_value.numpy()
    return known(value)


def set_type(value: ir.Value, dtype: ir.DataType | None, shape: Any) -> None:
    """Sets what is given and not None; dimensions are ints, names or None."""
    if dtype is not None:
        value.type = ir.TensorType(dtype)
    if shape is not None:
        if any(
            isinstance(d, int) and d < 0 for d in shape
        ):  # onnx's inference does not survive some of these
            raise InferenceError(
                f"the shape {list(shape)} of {value.name!r} has a negative dimension"
            )
        value.shape = shape if isinstance(shape, ir.Shape) else ir.Shape(shape)


@functools.lru_cache(1024)
def schema_of(op_type: str, domain: str = "") -> onnx.defs.OpSchema | None:
    for version in (
        (OPSET,) if domain == "" else (5, 3, 1)
    ):  # of ai.onnx.ml the newest that has the operator
        with contextlib.suppress(onnx.defs.SchemaError):
            schema = onnx.defs.get_schema(op_type, version, domain)
            if domain == "" or not schema.deprecated:
                return schema
    return None


def infer(node: ir.Node) -> None:
    """Sets type and shape of the outputs (in place), as far as the inputs tell."""
    if node.op_type in ("If", "Loop", "Scan") and node.domain == "":
        from converter.graph import infer_control

        infer_control.infer(node)
    elif node.domain == EXTENSION_DOMAIN:
        from converter.graph import extensions

        extensions.infer(node)
    elif node.domain == CHANNELS_LAST_DOMAIN:
        from converter.graph import channels_last

        channels_last.infer_channels_last(node)
    else:
        if node.domain == "" and (reason := check_attributes(node)) is not None:
            raise InferenceError(f"{node.op_type}: {reason}")
        _infer_standard(node)
        if node.domain == "" and (reason := verify_node(node)) is not None:
            raise InferenceError(f"{node.op_type}: {reason}")
    for out in node.outputs:
        demand_few_axes(() if out.shape is None else out.shape)
    _evaluate(node)


def demand_few_axes(shape: Sized) -> None:
    """InferenceError where there are more axes than engines and formats have."""
    if len(shape) > MOST_AXES:
        raise InferenceError(f"a tensor of {len(shape)} axes, at most {MOST_AXES} are read")


def type_proto(value: ir.Value) -> onnx.TypeProto | None:
    if value.type is None:
        return None
    proto = ir.serde.serialize_type(value.type)
    if value.shape is not None and isinstance(value.type, ir.TensorType):
        try:
            ir.serde.serialize_shape_into(proto, value.shape)
        except ir.serde.SerdeError:
            raise InferenceError(
                f"the shape {list(value.shape)} of {value.name!r} is beyond 64 bits"
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
    key = _question(node)
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


# what onnx found for an operator with these attributes and inputs: networks ask the same thing
# again and again
Answer = list[tuple[ir.TypeProtocol | None, list[Any] | None]]
_ANSWERS: dict[Any, Answer] = {}
_MOST_ANSWERS = 4096
_HASHABLE = {
    getattr(ir.AttributeType, n) for n in ("INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS")
}
_SMALL = (
    64  # elements of float constants that may say something about shapes (scales, ends of a range)
)


def _question(node: ir.Node) -> Any:
    """Everything that the outputs' types and shapes depend on, as a key; None where that is more
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


def _dims(shape: ir.Shape | None) -> tuple[Any, ...] | None:
    return None if shape is None else tuple(d if isinstance(d, int) else d.value for d in shape)


def _data(value: ir.Value | None) -> Array | None:
    """The value of an input, where inference may want it."""
    array = known(value)
    return (
        array
        if array is not None
        and (array.dtype.kind in "iub" or (array.dtype.kind == "f" and array.size <= _SMALL))
        else None
    )


def _ask(node: ir.Node, schema: onnx.defs.OpSchema) -> Answer:
    """onnx's own inference."""
    proto, names = onnx.NodeProto(op_type=node.op_type, domain=node.domain), {}
    for i, v in enumerate(node.inputs):  # positional names: foreign names may be empty or repeated
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


def _evaluate(node: ir.Node) -> None:
    """Remembers the outputs' values when they follow from known inputs and are small."""
    if node.domain or node.op_type in _NOT_EVALUATED or any(subgraphs(node)):
        return
    if node.op_type == "Cast" and node.inputs[0] is not None and node.inputs[0].dtype in _PACKED:
        return
    if node.op_type in ("Shape", "Size"):
        _evaluate_shape(node)
        return
    values = [known(v) for v in node.inputs]
    if node.op_type in _CHOICES and values[0] is None:
        _evaluate_choice(node, values)
        return
    if any(v is not None and k is None for v, k in zip(node.inputs, values, strict=True)):
        return
    sizes = [
        int(np.prod(s)) if (s := shape_of(o)) is not None else KNOWN_LIMIT + 1 for o in node.outputs
    ]
    if not node.inputs or max(sizes) > KNOWN_LIMIT:
        return
    for out, array in zip(node.outputs, evaluate(node, values), strict=False):
        set_known(out, array)


def _evaluate_choice(node: ir.Node, values: list[Array | None]) -> None:
    """A choice of sizes that are known does not wait for the others."""
    found, out = _chosen(node, values), node.outputs[0]
    shape = shape_of(out)
    if shape is None or found is None or len(found) != math.prod(shape):
        return
    if _UNKNOWN_SIZE not in found and out.dtype:
        set_known(out, np.array(found, out.dtype.numpy()).reshape(shape))


def sizes_in(value: ir.Value | None, depth: int = 8) -> list[int | None] | None:
    """The elements of a vector of sizes, None for those that are not known; None where not even
    their number is. `depth`: how many operators are looked through.
    """
    array = known(value)
    if array is not None:
        return [int(n) for n in array.reshape(-1)] if array.dtype.kind in "iu" else None
    shape = shape_of(value)
    if value is None or shape is None or len(shape) > 1:
        return None
    count = shape[0] if shape else 1
    if count > KNOWN_LIMIT:
        return None
    node, found = value.producer(), None
    if node is not None and not node.domain and depth:
        found = _sizes_of(node, depth - 1)
    return found if found is not None and len(found) == count else [None] * count


def _sizes_of(node: ir.Node, depth: int) -> list[int | None] | None:
    """The same of the result of an operator that only moves sizes."""
    first = node.inputs[0] if node.inputs else None
    if node.op_type == "Shape" and first is not None and first.shape is not None:
        dims = list(first.shape)[_int(node, "start", 0) : _int(node, "end", None)]
        return [d if isinstance(d, int) else None for d in dims]
    if node.op_type in _SAME_SIZES:
        return sizes_in(first, depth)
    if node.op_type == "Concat":
        parts = [sizes_in(v, depth) for v in node.inputs]
        return None if None in parts else [n for p in parts if p is not None for n in p]
    if node.op_type in _CHOICES:
        values = [known(v) for v in node.inputs]
        found = _chosen(node, values, depth)
        return None if found is None else [None if n == _UNKNOWN_SIZE else n for n in found]
    return None


def _chosen(node: ir.Node, values: list[Array | None], depth: int = 8) -> list[int] | None:
    """What a Gather or Slice takes of sizes, of which some are not known (_UNKNOWN_SIZE)."""
    x = node.inputs[0]
    if x is None or x.dtype not in (ir.DataType.INT64, ir.DataType.INT32):
        return None  # no sizes, of which there may be thousands
    sizes = sizes_in(x, depth)
    if sizes is None or rank_of(x) != 1:
        return None
    whole = np.array([_UNKNOWN_SIZE if n is None else n for n in sizes], np.int64)
    given = zip(node.inputs[1:], values[1:], strict=True)
    if any(v is not None and k is None for v, k in given):
        return None
    found = evaluate(node, [whole, *values[1:]])
    return [int(n) for n in found[0].reshape(-1)] if found else None


def _evaluate_shape(node: ir.Node) -> None:
    shape, sizes, out = shape_of(node.inputs[0]), _sizes_of(node, 0), node.outputs[0]
    if node.op_type == "Size" and shape is not None:
        set_known(out, np.array(math.prod(shape), np.int64))
    elif sizes is not None and None not in sizes:
        set_known(out, np.array(sizes, np.int64))


def _int(node: ir.Node, name: str, default: int | None) -> int | None:
    return node.attributes[name].as_int() if name in node.attributes else default


def evaluate(node: ir.Node, inputs: list[Array | None]) -> list[Array]:
    """Runs one standard node on arrays with onnx's reference; an empty list when the reference
    cannot.
    """
    from onnx.reference import ReferenceEvaluator

    proto = onnx.NodeProto(op_type=node.op_type)
    proto.input.extend("" if v is None else f"i{i}" for i, v in enumerate(inputs))
    proto.output.extend(f"o{i}" for i in range(len(node.outputs)))
    proto.attribute.extend(ir.serde.serialize_attribute(a) for a in node.attributes.values())
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(proto).run(
                None, {f"i{i}": v for i, v in enumerate(inputs) if v is not None}
            )
    except Exception:  # the reference's own limits: the value merely stays unknown
        return []
    return [np.asarray(r) for r in results] if all(not isinstance(r, list) for r in results) else []
