"""Sizes that onnx's own inference leaves unknown although the graph determines them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from converter.graph.known import KNOWN_LIMIT, InferenceError, known, shape_of
from converter.graph.value import optional, producer_of
from converter.graph.verify.shapes_of import attribute


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


def _infer_resized(node: ir.Node) -> None:
    """Infer a Resize by factors as engines compute it: in float32, where 6 * 0.8333333 is 5,
    whereas onnx rounds the exact product down to 4.
    """
    x, factors, sizes = node.inputs[0], known(optional(node, 2)), optional(node, 3)
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
}
