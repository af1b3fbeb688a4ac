"""Insert a height axis for operators with one spatial axis, for targets with 2-D operators only:
[N, C, L] becomes an image of height 1.

Only one Reshape is needed on either side, whereas collapse_dims would also affect adjacent layers;
where sizes are dynamic it is an Unsqueeze and a Squeeze.

before:  Y = Conv(X[N,C,L], W[M,C,k], strides=[s])
after:   I = Reshape(X, [N,C,1,L]); J = Conv(I, W[M,C,1,k], strides=[1,s]); Y = Reshape(J, ..)
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.infer import constant, rank_of, shape_of
from converter.graph.value import Value, operand

_SPATIAL = ("kernel_shape", "strides", "dilations", "output_padding", "output_shape")


def image_of(node: ir.Node, b: Builder) -> tuple[Value, list[int]] | None:
    """Return the data as images, and the shape of the result; None unless the shapes are static and
    have one spatial axis.
    """
    shape, target = shape_of(operand(node)), shape_of(node.outputs[0])
    if shape is None or target is None or len(shape) != 3:
        return None
    return b.Reshape(operand(node), [*shape[:2], 1, shape[2]]), list(target)


def with_height(node: ir.Node, b: Builder) -> tuple[Value, Callable[[Value], Value]] | None:
    """Return the data as images, and the function that removes the height of the result; None
    unless there is one spatial axis.
    """
    found = image_of(node, b)
    if found is not None:
        image, target = found
        return image, lambda y: b.Reshape(y, target)
    if rank_of(operand(node)) != 3:
        return None
    return b.Unsqueeze(operand(node), [2]), lambda y: b.Squeeze(y, [2])


def window_over_images(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a convolution, a pooling or a normalization over one spatial axis."""
    found = with_height(node, b)
    if found is None:
        return None
    (image, result), rest, a = found, list(node.inputs[1:]), attrs_of(node)
    a |= {k: [int(k != "output_padding"), *a[k]] for k in _SPATIAL if a.get(k)}
    if a.get("pads"):
        before, after = a["pads"]
        a["pads"] = [0, before, 0, after]
    if node.op_type in ("Conv", "ConvTranspose"):
        w = operand(node, 1)
        # computed weights, for example dequantized ones, stay computed
        array = constant(w) if w.producer() is None else None
        high = None if array is None else b.const(array[:, :, None], str(w.name))
        rest[0] = b.Unsqueeze(w, [2]) if high is None else high
    return result(b.op(node.op_type, image, *rest, **a))
