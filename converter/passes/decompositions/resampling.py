"""Resizing as products with constant matrices."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.infer import Array, constant, evaluate, shape_of


def by_matrices(node: ir.Node, b: Builder) -> ir.Value | None:
    """Resize of floats: linear and separable, so one product along each axis that changes.

    before:  Resize(x[1,2,4,6], sizes 1,2,8,6, mode=cubic)        after:  Transpose(Transpose(x) * [4,8])
    """
    x, out, dtype = node.inputs[0], shape_of(node.outputs[0]), node.outputs[0].dtype
    shape = None if x is None else shape_of(x)
    if x is None or shape is None or out is None or dtype is None or not dtype.is_floating_point():
        return None
    rank = len(out)
    for axis, (size, target) in enumerate(zip(shape, out, strict=True)):
        matrix = axis_matrix(node, axis, shape, target)
        if matrix is None:
            return None
        if size == target and np.array_equal(matrix, np.eye(size)):
            continue
        last = [*range(axis), *range(axis + 1, rank), axis]
        turned = b.op("MatMul", b.op("Transpose", x, perm=last), b.const(matrix.astype(dtype.numpy()), "matrix"))
        x = b.op("Transpose", turned, perm=[last.index(i) for i in range(rank)])
    return x if x is not node.inputs[0] else b.op("Identity", x)


def axis_matrix(node: ir.Node, axis: int, shape: tuple[int, ...], target: int) -> Array | None:
    """[size, target]: what the resize makes of each unit vector along `axis`; the other axes stay. None where run time decides."""
    a, rank, size = attrs_of(node), len(shape), shape[axis]
    axes = [i + rank if i < 0 else i for i in a.pop("axes", None) or range(rank)]
    if axis not in axes:
        return np.eye(size)
    at = axes.index(axis)
    roi, scales = (node.inputs[i] if len(node.inputs) > i else None for i in (1, 2))
    factors, region = constant(scales), constant(roi)
    if (factors is None and scales is not None) or (region is None and roi is not None):
        return None
    if factors is not None and factors.size:
        factor = float(factors[at])
    elif a.pop("keep_aspect_ratio_policy", "stretch") == "stretch":
        factor = 0.0
    else:
        factor = target / size
    if a.get("extrapolation_value", 0.0) and a.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    part = None if region is None or region.size == 0 else np.array([0, region[at], 1, region[at + len(axes)]], np.float32)
    a.pop("keep_aspect_ratio_policy", None)
    single = ir.Node("", "Resize", [None] * 4, [ir.convenience.convert_attribute(k, v) for k, v in a.items() if v is not None])
    sized = (np.array([1, factor], np.float32), None) if factor else (None, np.array([size, target], np.int64))
    found = evaluate(single, [np.eye(size, dtype=np.float32), part, *sized])
    return found[0] if found and found[0].shape == (size, target) else None
