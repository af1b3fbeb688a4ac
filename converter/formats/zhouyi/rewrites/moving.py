"""Moving data in ways that the format lacks."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.rewrites.register import attributes, operand, optional, rewrites, static
from converter.graph.build import Builder
from converter.graph.infer import Array, constant, evaluate


@rewrites("Trilu")
def trilu(node: ir.Node, b: Builder) -> ir.Value | None:
    """A constant triangle chooses between the data and zeros."""
    x, shape = operand(node), static(operand(node))
    k = constant(optional(node, 1)) if optional(node, 1) is not None else np.array(0)
    if k is None:
        return None
    cut = np.triu if attributes(node)["upper"] else np.tril
    mask = np.broadcast_to(cut(np.ones(shape[-2:], bool), int(k.reshape(-1)[0])), shape)
    return b.op("Where", b.const(mask, "triangle"), x, b.const(np.zeros(shape, x.dtype.numpy() if x.dtype else np.float32), "zeros"))


@rewrites("Compress")
def flattened(node: ir.Node, b: Builder) -> ir.Value | None:
    """A known condition is a Gather."""
    x, condition, axis = operand(node), constant(operand(node, 1)), attributes(node).get("axis")
    if condition is None:
        return None
    if axis is None:
        x, axis = b.op("Reshape", x, [-1]), 0
    return b.op("Gather", x, np.flatnonzero(condition), axis=axis)


@rewrites("OneHot")
def one_hot(node: ir.Node, b: Builder) -> ir.Value | None:
    """ONNX counts negative indices from behind: a Mod by the depth brings them forward, those out of range stay off."""
    x, depth, values = operand(node), constant(operand(node, 1)), operand(node, 2)
    if depth is None:
        return None
    n, axis, out = int(depth.reshape(-1)[0]), attributes(node)["axis"], static(node.outputs[0])
    axis += len(out) if axis < 0 else 0
    x = x if x.dtype is not None and x.dtype.is_integer() else b.op("Cast", x, to=int(ir.DataType.INT64))
    thin = [1 if i == axis else d for i, d in enumerate(out)]
    column = b.op("Reshape", x, thin)
    classes = np.broadcast_to(np.arange(n).reshape([n if i == axis else 1 for i in range(len(out))]), out).astype(x.dtype.numpy() if x.dtype else np.int64)
    tiled = b.op("Tile", column, [n if i == axis else 1 for i in range(len(out))])
    hit = b.op("Equal", tiled, b.const(classes, "classes"))
    wrapped = b.op("Equal", tiled, b.const(classes - n, "classes"))
    pair = [b.op("Tile", b.op("Reshape", b.op("Slice", values, [i], [i + 1], [0]), [1] * len(out)), out) for i in (1, 0)]
    return b.op("Where", b.op("Or", hit, wrapped), *pair)


@rewrites("Pad")
def repeated(node: ir.Node, b: Builder) -> ir.Value | None:
    """Padding with the edge or with the other end takes elements once more."""
    x, a, amounts = operand(node), attributes(node), constant(optional(node, 1))
    if a["mode"] not in ("edge", "wrap") or amounts is None or amounts.min() < 0:
        return None
    rank = len(static(x))
    chosen = constant(optional(node, 3)) if optional(node, 3) is not None else np.arange(rank)
    if chosen is None:
        return None
    for i, axis in enumerate(int(v) % rank for v in chosen):
        before, behind = int(amounts[i]), int(amounts[i + len(chosen)])
        if before or behind:
            x = b.op("Gather", x, np.pad(np.arange(static(x)[axis]), (before, behind), mode=a["mode"]), axis=axis)
    return x


@rewrites("EyeLike")
def eye_like(node: ir.Node, b: Builder) -> ir.Value:
    shape, a = static(operand(node)), attributes(node)
    dtype = node.outputs[0].dtype
    return b.const(np.eye(shape[0], shape[1], k=a.get("k", 0)).astype(dtype.numpy() if dtype else np.float32))


@rewrites("MaxUnpool")
def max_unpool(node: ir.Node, b: Builder) -> ir.Value | None:
    """Zeros, with the data at their indices over N, C, spatial."""
    x, index, shape = operand(node), operand(node, 1), static(node.outputs[0])
    if optional(node, 2) is not None:  # the indices are those of the smaller output that the attributes give
        return None
    zeros = b.const(np.zeros(int(np.prod(shape)), x.dtype.numpy() if x.dtype else np.float32), "zeros")
    filled = b.op("ScatterElements", zeros, b.op("Reshape", index, [-1]), b.op("Reshape", x, [-1]), axis=0)
    return b.op("Reshape", filled, shape)


@rewrites("Resize")
def resize(node: ir.Node, b: Builder) -> ir.Value | None:
    """What the format's own layer cannot say is a matrix product along each axis that changes: resizing is linear and separable."""
    x, out = operand(node), static(node.outputs[0])
    if node.outputs[0].dtype is None or not node.outputs[0].dtype.is_floating_point():
        return None
    for axis, (size, target) in enumerate(zip(static(x), out, strict=True)):
        matrix = axis_matrix(node, axis, size, target)
        if matrix is None:
            return None
        if size == target and np.array_equal(matrix, np.eye(size)):
            continue
        rank = len(out)
        last = [*range(axis), *range(axis + 1, rank), axis]
        turned = b.op("MatMul", b.op("Transpose", x, perm=last), b.const(matrix.astype(node.outputs[0].dtype.numpy()), "matrix"))
        x = b.op("Transpose", turned, perm=[last.index(i) for i in range(rank)])
    return x


def axis_matrix(node: ir.Node, axis: int, size: int, target: int) -> Array | None:
    """[size, target]: what the resize makes of each unit vector along `axis`; the other axes stay."""
    a = attributes(node)
    rank = len(static(operand(node)))
    axes = [i + rank if i < 0 else i for i in a.pop("axes", None) or range(rank)]
    if axis not in axes:
        return np.eye(size)
    at = axes.index(axis)
    scales, roi = constant(optional(node, 2)), constant(optional(node, 1))
    if (scales is None and optional(node, 2) is not None) or (roi is None and optional(node, 1) is not None):
        return None
    if scales is not None and scales.size:
        factor = float(scales[at])
    elif a.pop("keep_aspect_ratio_policy", "stretch") == "stretch":
        factor = 0.0
    else:
        factor = target / size
    if a.get("extrapolation_value", 0.0) and a.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    part = None if roi is None or roi.size == 0 else np.array([0, roi[at], 1, roi[at + len(axes)]], np.float32)
    a.pop("keep_aspect_ratio_policy", None)
    single = ir.Node("", "Resize", [None] * 4, [ir.convenience.convert_attribute(k, v) for k, v in a.items() if v is not None])
    sized = (np.array([1, factor], np.float32), None) if factor else (None, np.array([size, target], np.int64))
    operands = [np.eye(size, dtype=np.float32), part, *sized]
    found = evaluate(single, operands)
    return found[0] if found and found[0].shape == (size, target) else None
