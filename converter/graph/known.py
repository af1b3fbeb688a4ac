"""Values that are known without running the network: shapes, constants, and shape arithmetic.

They are cached on the value.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from converter.graph.walk import subgraphs

Array = npt.NDArray[Any]
Arrays = dict[str, Array]  # by name
KNOWN_LIMIT = 4096  # elements; shape arithmetic is small, weights are not evaluated here
_KNOWN = "netconv.known"
SIZES = "netconv.sizes"  # elements that are expressions, see symbolic.py
# operators of ONNX whose results differ in every run
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
_NOT_EVALUATED = {"If", "Loop", "Scan", "Dropout", *RANDOM}
_PACKED = (ir.DataType.INT4, ir.DataType.UINT4)  # compact weights, not shape arithmetic


class InferenceError(Exception):
    """A node whose inputs contradict its operator; the message is onnx's. `node` is that node, if a
    whole graph was inferred.
    """

    node: ir.Node | None = None


def shape_of(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the static shape; None if the rank or a dimension is unknown, or there is no value."""
    if value is None or value.shape is None:
        return None
    dims = value.shape.dims
    for d in dims:  # an explicit loop, because this is called more often than any other function
        if not isinstance(d, int):
            return None
    return dims  # type: ignore[return-value]


def rank_of(value: ir.Value | None) -> int | None:
    """Return the rank of a value, None if there is no value or its rank is unknown."""
    return None if value is None or value.shape is None else value.shape.rank()


def known(value: ir.Value | None) -> Array | None:
    """Return the value as an array if it is a small constant or computed from such; None
    otherwise.
    """
    if value is None:
        return None
    if value.const_value is not None:
        return value.const_value.numpy() if value.const_value.size <= KNOWN_LIMIT else None
    found = value.meta.get(_KNOWN)
    return found if found is None else np.asarray(found)


def set_known(value: ir.Value, array: Array) -> None:
    """Record the elements of a value that is known without running the network."""
    value.meta[_KNOWN] = array


def forget_known(value: ir.Value) -> None:
    """Drop the cached value, because an operand of the node was replaced."""
    value.meta.pop(_KNOWN, None)
    value.meta.pop(SIZES, None)


def constant(value: ir.Value | None) -> Array | None:
    """Return the array of an initializer of any size (a view, not a copy), or a known value; None
    for activations.
    """
    if value is not None and value.const_value is not None:
        return value.const_value.numpy()
    return known(value)


def has_constant(value: ir.Value | None) -> bool:
    """Return whether `constant` returns an array; weights that are computed on use are not
    computed.
    """
    if value is not None and value.const_value is not None:
        return True
    return known(value) is not None


def set_type(value: ir.Value, dtype: ir.DataType | None, shape: Any) -> None:
    """Set the type and the shape, except those that are None; dimensions are ints, names or
    None.
    """
    if dtype is not None:
        value.type = ir.TensorType(dtype)
    if shape is not None:
        if any(
            isinstance(d, int) and d < 0 for d in shape
        ):  # onnx's inference crashes on some of these
            raise InferenceError(
                f"the shape {list(shape)} of {value.name!r} has a negative dimension"
            )
        value.shape = shape if isinstance(shape, ir.Shape) else ir.Shape(shape)


def evaluate_outputs(node: ir.Node) -> None:
    """Cache the outputs' values if they follow from known inputs and are small."""
    if node.domain or not node.inputs:
        return
    if node.op_type in _NOT_EVALUATED or any(subgraphs(node)):
        return
    if node.op_type == "Cast" and node.inputs[0] is not None and node.inputs[0].dtype in _PACKED:
        return
    if node.op_type in ("Shape", "Size"):
        _evaluate_shape(node)
        return
    values = [known(v) for v in node.inputs]
    if any(v is not None and k is None for v, k in zip(node.inputs, values, strict=True)):
        return
    sizes = [
        int(np.prod(s)) if (s := shape_of(o)) is not None else KNOWN_LIMIT + 1 for o in node.outputs
    ]
    if max(sizes) > KNOWN_LIMIT:
        return
    for out, array in zip(node.outputs, evaluate(node, values), strict=False):
        set_known(out, array)


def _evaluate_shape(node: ir.Node) -> None:
    """Evaluate the sizes of a value, or a part of them, whether or not the others are known."""
    x, out = node.inputs[0], node.outputs[0]
    if x is None or x.shape is None:
        return
    sizes = [d if isinstance(d, int) else None for d in x.shape]
    if node.op_type == "Shape":
        sizes = sizes[_int(node, "start", 0) : _int(node, "end", None)]
    numbers = [n for n in sizes if n is not None]
    if len(numbers) == len(sizes):
        found = math.prod(numbers) if node.op_type == "Size" else numbers
        set_known(out, np.array(found, np.int64))


def _int(node: ir.Node, name: str, default: int | None) -> int | None:
    return node.attributes[name].as_int() if name in node.attributes else default


def evaluate(node: ir.Node, inputs: list[Array | None]) -> list[Array]:
    """Run one standard node on arrays with onnx's reference; return an empty list if the reference
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
    except Exception:  # limits of the reference: the value merely stays unknown
        return []
    return [np.asarray(r) for r in results] if all(not isinstance(r, list) for r in results) else []


def may_copy(shape: ir.Value | None) -> bool:
    """Return whether a shape operand of Reshape may contain zeros, which copy a size.

    Constants are inspected, an input may contain zeros, and computed sizes are assumed to be sizes.
    """
    found = known(shape)
    if found is not None:
        return 0 in found
    node = None if shape is None else shape.producer()
    if node is None:
        return True
    if node.op_type == "Concat":
        return any((part := known(v)) is not None and 0 in part for v in node.inputs)
    return node.op_type in ("Cast", "Identity") and may_copy(node.inputs[0])
