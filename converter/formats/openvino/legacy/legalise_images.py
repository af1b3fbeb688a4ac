"""Rewrites of operators on images for legacy IR."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.legalise import rewrites
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import Array, evaluate, known, shape_of


@rewrites("Resize")
def resize(node: ir.Node, b: Builder) -> ir.Value | None:
    """Axis by axis: nearest as Gather of constant places, anything else as a product with the constant matrix of that axis."""
    x = node.inputs[0]
    assert x is not None
    attrs, before, after = attrs_of(node), shape_of(x), shape_of(node.outputs[0])
    scales = node.inputs[2] if len(node.inputs) > 2 else None
    if before is None or after is None or attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize" or (scales is not None and known(scales) is None):
        return None
    axes = [a % len(before) for a in attrs.get("axes", range(len(before)))]
    factors = known(scales) if scales is not None else None
    for k, axis in enumerate(axes):
        factor = float(factors[k]) if factors is not None and factors.size else after[axis] / before[axis]
        if before[axis] == after[axis] and factor == 1:
            continue
        matrix = _matrix(attrs, before[axis], after[axis], factor if factors is not None and factors.size else None)
        if matrix is None:
            return None
        if attrs.get("mode", "nearest") == "nearest":
            x = b.op("Gather", x, matrix.argmax(0), axis=axis)
            continue
        order = [*(i for i in range(len(before)) if i != axis), axis]
        turned = b.op("MatMul", b.op("Transpose", x, perm=order), matrix.astype(np.float32))
        x = b.op("Transpose", turned, perm=[int(i) for i in np.argsort(order)])
    return x


def _matrix(attrs: dict[str, object], size: int, wanted: int, factor: float | None) -> Array | None:
    """[size, wanted]: what each source pixel of one axis gives to each pixel of the result: the operator itself on unit vectors."""
    kept = {k: v for k, v in attrs.items() if k not in ("axes", "keep_aspect_ratio_policy")}
    node = ir.node("Resize", [], attributes={k: v for k, v in kept.items()}, num_outputs=1)  # type: ignore[misc]
    rows = np.eye(size, dtype=np.float32)
    if factor is not None:
        found = evaluate(node, [rows, None, np.array([1.0, factor], np.float32)])
    else:
        found = evaluate(node, [rows, None, None, np.array([size, wanted], np.int64)])
    return found[0] if found and found[0].shape == (size, wanted) else None


@rewrites("Conv", "ConvTranspose")
def bias_apart(node: ir.Node, b: Builder) -> ir.Value | None:
    """A bias that is not constant is added behind."""
    if len(node.inputs) < 3 or node.inputs[2] is None or known(node.inputs[2]) is not None or node.inputs[2].const_value is not None:
        return None
    shape = shape_of(node.outputs[0])
    if shape is None:
        return None
    y = b.op(node.op_type, *node.inputs[:2], **attrs_of(node))
    return b.op("Add", y, b.op("Reshape", node.inputs[2], [1, shape[1], *[1] * (len(shape) - 2)]))


@rewrites("Round")
def round_half_even(node: ir.Node, b: Builder) -> ir.Value:
    """floor(x + 0.5), less one where x lies in the middle below an odd number."""
    x = node.inputs[0]
    assert x is not None
    up = b.op("Floor", b.op("Add", x, b.like(x, 0.5)))
    middle = b.op("Equal", b.op("Sub", up, x), b.like(x, 0.5))
    odd = b.op("Sub", up, b.op("Mul", b.op("Floor", b.op("Mul", up, b.like(x, 0.5))), b.like(x, 2)))
    return b.op("Sub", up, b.op("Mul", b.op("Cast", middle, to=int(x.dtype or ir.DataType.FLOAT)), odd))
