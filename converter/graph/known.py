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
_CHOICES = {"Gather", "Slice"}
_SAME_SIZES = {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"}  # on data of one axis or none
_UNKNOWN_SIZE = np.iinfo(np.int64).min
_NOT_EVALUATED = {"If", "Loop", "Scan", "Dropout", *RANDOM}
_PACKED = (ir.DataType.INT4, ir.DataType.UINT4)  # compact weights, not shape arithmetic


class InferenceError(Exception):
    """A node whose inputs contradict its operator; the message is onnx's."""


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
    value.meta[_KNOWN] = array


def forget_known(value: ir.Value) -> None:
    """Drop the cached value, because an operand of the node was replaced."""
    value.meta.pop(_KNOWN, None)


def constant(value: ir.Value | None) -> Array | None:
    """Return the array of an initializer of any size (a view, not a copy), or a known value; None
    for activations.
    """
    if value is not None and value.const_value is not None:
        return value.const_value.numpy()
    return known(value)


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
    """Evaluate a selection of known sizes even if other sizes are unknown."""
    found, out = _chosen(node, values), node.outputs[0]
    shape = shape_of(out)
    if shape is None or found is None or len(found) != math.prod(shape):
        return
    if _UNKNOWN_SIZE not in found and out.dtype:
        set_known(out, np.array(found, out.dtype.numpy()).reshape(shape))


def sizes_in(value: ir.Value | None, depth: int = 8) -> list[int | None] | None:
    """Return the elements of a vector of sizes, None for unknown ones; None if not even their
    number is known.

    `depth`: how many operators to follow back.
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
    """Return the sizes, as `sizes_in` does, for the result of an operator that only moves sizes."""
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
    """Return the sizes that a Gather or Slice selects; some may be unknown (_UNKNOWN_SIZE)."""
    x = node.inputs[0]
    if x is None or x.dtype not in (ir.DataType.INT64, ir.DataType.INT32):
        return None  # these are not sizes, and there may be thousands
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
