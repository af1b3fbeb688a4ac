"""Sizes that onnx's own inference leaves unknown although the graph determines them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from converter.graph.known import KNOWN_LIMIT, InferenceError, known, shape_of, sizes_in
from converter.graph.value import optional, producer_of
from converter.graph.verify.shapes_of import attribute

_SIZED = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}  # the operand that specifies the sizes


def _infer_sizes(node: ir.Node) -> None:
    """Infer individual known sizes of operators for which onnx uses a sizes operand only as a
    whole.
    """
    given, out = node.inputs[_SIZED[node.op_type]], node.outputs[0]
    if given is None or out.shape is None or known(given) is not None:
        return
    sizes = sizes_in(given)
    # 1 preserves the operand's size; 0 and -1 have other meanings
    least = 2 if node.op_type == "Expand" else 1
    if sizes is not None and len(sizes) == len(out.shape):
        out.shape = ir.Shape(
            [
                n if isinstance(d, ir.SymbolicDim) and n is not None and n >= least else d
                for n, d in zip(sizes, out.shape, strict=True)
            ]
        )


def sizes_of_parts(split: ir.Node) -> list[int] | None:
    """Return the sizes of the parts of a SplitToSequence along its axis; None if they are known
    only at run time.
    """
    x, given = split.inputs[0], optional(split, 1)
    sizes, axis = known(given), int(attribute(split, "axis", 0))
    if (
        x is None
        or x.shape is None
        or not -len(x.shape) <= axis < len(x.shape)
        or (given is not None and sizes is None)
    ):
        return None
    if sizes is not None and sizes.ndim:
        return [int(n) for n in sizes.reshape(-1)] if (sizes >= 0).all() else None
    extent, step = x.shape[axis], 1 if sizes is None else int(sizes)
    if not isinstance(extent, int) or not step > 0 or extent > KNOWN_LIMIT * step:
        return None
    return [min(step, extent - i) for i in range(0, extent, step)]


def _infer_part(node: ir.Node) -> None:
    """Infer the sizes of parts, which onnx only knows if all are equal."""
    split, place = (
        producer_of(node.inputs[0]),
        known(node.inputs[1]),
    )
    if (
        split is None
        or split.op_type != "SplitToSequence"
        or place is None
        or place.size != 1
        or len(split.inputs) < 2
    ):
        return
    sizes, at = sizes_of_parts(split), int(place.reshape(-1)[0])
    if sizes is not None and -len(sizes) <= at < len(sizes):
        dims = list(split.inputs[0].shape)  # type: ignore[union-attr, arg-type]
        dims[int(attribute(split, "axis", 0))] = sizes[at]
        node.outputs[0].shape = ir.Shape(dims)


def _infer_scalar(node: ir.Node) -> None:
    """Infer the shape () of a GatherND that selects one element, which onnx leaves unknown."""
    data, index = (shape_of(v) for v in node.inputs)
    if (
        node.outputs[0].shape is None
        and data
        and index
        and len(data) + len(index) - 1 - index[-1] == attribute(node, "batch_dims", 0)
    ):
        node.outputs[0].shape = ir.Shape([])


def _infer_sized(node: ir.Node, x: ir.Value | None, sizes: ir.Value) -> None:
    """Infer a Resize by sizes, of which some may be computed; onnx also leaves the result unknown
    if a constant one is 0.
    """
    found, policy = sizes_in(sizes), attribute(node, "keep_aspect_ratio_policy", "stretch")
    if found is None or policy != "stretch" or x is None or x.shape is None:
        return
    dims, axes = list(x.shape), attribute(node, "axes", range(len(x.shape)))
    if len(found) != len(axes):
        return
    for axis, size in zip(axes, found, strict=True):
        dims[axis] = ir.SymbolicDim(None) if size is None else size
    node.outputs[0].shape = ir.Shape(dims)


def _infer_resized(node: ir.Node) -> None:
    """Infer a Resize by factors as engines compute it: in float32, where 6 * 0.8333333 is 5,
    whereas onnx rounds the exact product down to 4. Some sizes may be computed.
    """
    x, factors, sizes = node.inputs[0], known(optional(node, 2)), optional(node, 3)
    if sizes is not None and (known(sizes) is None or shape_of(node.outputs[0]) is None):
        _infer_sized(node, x, sizes)
        return
    if x is None or x.shape is None or factors is None or not factors.size or sizes is not None:
        return
    if not np.isfinite(factors).all():
        raise InferenceError("Resize: scales must be numbers")
    axes = attribute(node, "axes", range(len(x.shape)))
    if len(axes) != factors.size:
        return
    dims = list(x.shape)
    for axis, factor in zip(axes, factors.reshape(-1).astype(np.float32), strict=True):
        size = dims[axis]
        dims[axis] = (
            int(np.floor(np.float32(size) * factor))
            if isinstance(size, int)
            else size
            if factor == 1
            else ir.SymbolicDim(None)
        )
    node.outputs[0].shape = ir.Shape(dims)


def _infer_found(node: ir.Node) -> None:
    """Infer that no element is found in an empty operand; onnx leaves the number unknown."""
    x, axis = node.inputs[0], attribute(node, "axis", None)
    shape = shape_of(x)
    if shape is None or 0 not in shape:
        return
    if node.op_type == "NonZero":
        node.outputs[0].shape = ir.Shape([len(shape), 0])
        return
    if axis is None or (shape[axis] == 0 and math.prod(shape[:axis] + shape[axis:][1:])):
        first = (0,) if axis is None else shape
        for out, dims in zip(node.outputs, (first, (0,), (0,), (0,)), strict=False):
            out.shape = ir.Shape(dims)


MORE: dict[str, Callable[[ir.Node], None]] = {
    "GatherND": _infer_scalar,
    "SequenceAt": _infer_part,
    "Resize": _infer_resized,
    **dict.fromkeys(("NonZero", "Unique"), _infer_found),
    **dict.fromkeys(_SIZED, _infer_sizes),
}
