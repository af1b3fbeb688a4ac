"""Rewrites, by feature level, of canonical operators that have no operation at that level.

Each docstring states the advantage over the common decomposition, where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import constant, known, shape_of
from converter.graph.value import Value, operand, optional
from converter.graph.walk import release, subgraphs
from converter.passes.collapse_dims import with_fewer_axes
from converter.passes.decompositions.activations import is_finite
from converter.passes.decompositions.bitwise import BITS, by_digits
from converter.passes.decompositions.suppression import non_max_suppression, suppression_mask
from converter.passes.equal_shapes import equal_shapes
from converter.passes.legalize import Rewrite, Rewrites, either
from converter.passes.lite.functions import FLOATS, FUNCTIONS
from converter.passes.lite.images import dilated_groups, grouped_transpose, resize, two_spatial
from converter.passes.lite.integers import (
    JOINS,
    joined,
    moved,
    product,
    quotient,
    reduced,
    relu,
    remainder,
    sign,
    wrapped,
    wrapped_around,
)
from converter.passes.lite.picking import booleans_as_floats, gather, top_k
from converter.passes.lite.small_integers import in_floats, one_index, quotient_in_floats
from converter.passes.split_directions import forward_alone
from converter.passes.unroll import copy_body

# Below level 3 a bound is added and subtracted again: for small bounds the rounding error is
# irrelevant.
LARGEST_BOUND = 256.0
MOST = 4  # axes


def rewrites(level: int) -> Rewrites:
    """Return the rewrites for a level. Below level 3 some of them replace a missing operation by
    several existing ones.
    """
    found = {**REWRITES, **(BELOW_3 if level < 3 else {}), **(BELOW_4 if level < 4 else {})}
    table = {("", op): rewrite for op, rewrite in found.items()}
    return with_fewer_axes({**table, **EXTENSIONS}, MOST)


def between(b: Builder, x: Value, low: float, high: float) -> Value:
    """Clamp to constants of the type of `x`."""
    return b.Clip(x, b.like(x, low), b.like(x, high))


def clip(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite Clip for level 1: max(x, low) = relu(x - low) + low; min(x, high) = high - relu(high
    - x). The common Max and Min need level 3.
    """
    x = operand(node)
    bounds = [optional(node, i) for i in (1, 2)]
    arrays = [known(v) for v in bounds]
    unknown = (v is not None and a is None for v, a in zip(bounds, arrays, strict=True))
    if x.dtype not in FLOATS or any(unknown):
        return None
    low, high = (None if a is None else float(a.reshape(-1)[0]) for a in arrays)
    given = [v for v in (low, high) if v is not None]
    if not given or any(abs(v) > LARGEST_BOUND for v in given):
        return None
    if low is not None:
        x = b.Relu(x + -low) + low if low else b.Relu(x)
    if high is not None:
        x = b.Relu(x * -1 + high) * -1 + high
    return x


def leaky_relu(node: ir.Node, b: Builder) -> Value:
    """Rewrite LeakyRelu as PRelu, which is one operation from level 3 on."""
    x = operand(node)
    slope = np.array(
        [attrs_of(node).get("alpha", 0.01)], x.dtype.numpy() if x.dtype else np.float32
    )
    return b.PRelu(x, slope)


def prelu(node: ir.Node, b: Builder) -> Value | None:
    """Compute relu(x) + -slope * relu(-x), with the slope negated in advance: one operation less
    than the common decomposition.
    """
    x, slope = operand(node), operand(node, 1)
    array = constant(slope)
    if not is_finite(slope):
        return None
    negated = slope * -1 if array is None else b.const(-array)
    return b.Relu(x) + b.Relu(x * -1) * negated


def hard_sigmoid(node: ir.Node, b: Builder) -> Value:
    """Compute relu(relu1(alpha * x + beta)), which fuses into three operations: half of the common
    decomposition.
    """
    a = {"alpha": 0.2, "beta": 0.5, **attrs_of(node)}
    return b.Relu(between(b, operand(node) * a["alpha"] + a["beta"], -1, 1))


def hard_swish(node: ir.Node, b: Builder) -> Value:
    """Compute x * (relu6(x + 3) / 6), three operations of level 1 instead of four. In this order a
    large x is exact.
    """
    x = operand(node)
    return x * (between(b, x + 3, 0, 6) * (1 / 6))


def reduce_plane(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a reduction over height and width as a pool over the whole image: level 1 instead of
    3.
    """
    x = operand(node)
    shape, axes = shape_of(x), known(node.inputs[1]) if len(node.inputs) > 1 else None
    if shape is None or len(shape) != 4 or axes is None or x.dtype not in FLOATS:
        return None
    if sorted(int(a) % 4 for a in axes.reshape(-1)) != [2, 3]:
        return None
    n, c, h, w = shape
    kind = "MaxPool" if node.op_type == "ReduceMax" else "AveragePool"
    y = b.operator(kind)(x, kernel_shape=[h, w])
    y = y * float(h * w) if node.op_type == "ReduceSum" else y
    return y if attrs_of(node).get("keepdims", 1) else b.Reshape(y, [n, c])


def lstm(node: ir.Node, b: Builder) -> Sequence[ir.Value] | None:
    """Rewrite an LSTM as one operation for each direction; the common decomposition unrolls every
    step.
    """
    from converter.formats.lite.recurrent import reason_against_lengths

    sized = shape_of(operand(node)) is not None
    reverse = sized and attrs_of(node).get("direction") == "reverse"
    if reverse and (reason := reason_against_lengths(node)):
        raise MappingError(reason)
    return forward_alone(node, b)


def choice(node: ir.Node, b: Builder) -> list[ir.Value] | None:
    """Compute both branches of an If and select from their results: there is no other way."""
    bodies = [node.attributes[k].as_graph() for k in ("then_branch", "else_branch")]
    if any(any(subgraphs(n)) for body in bodies for n in body):
        return None
    results = list(zip(*(copy_body(body, {}, b) for body in bodies), strict=True))
    for x, y in results:
        if shape_of(x) is None or shape_of(x) != shape_of(y) or x.dtype != y.dtype:
            return None
    release(node)
    condition = b.Reshape(operand(node), [1])
    found: list[ir.Value] = []
    for x, y in results:
        own = list(shape_of(x) or ())
        shape = own or [1]
        mask = b.Expand(b.Reshape(condition, [1] * len(shape)), shape)
        found.append(b.Reshape(b.Where(mask, b.Reshape(x, shape), b.Reshape(y, shape)), own))
    return found


INTEGER: dict[str, Rewrite] = {
    **dict.fromkeys(("Add", "Sub", "Mul"), either(wrapped_around, in_floats)),
    **dict.fromkeys(JOINS, reduced),
    **dict.fromkeys(BITS, by_digits),
    **dict.fromkeys(("Split", "Pad", "Tile", "Expand"), booleans_as_floats),
    "Reshape": either(booleans_as_floats, in_floats),
    **dict.fromkeys(("Transpose", "Slice"), either(moved, booleans_as_floats)),
    "Concat": either(joined, booleans_as_floats),
    "Sign": sign,
    "Relu": relu,
    "Div": either(quotient_in_floats, quotient),
    "Mod": remainder,
    "MatMul": product,
    "Cast": wrapped,
}

SHAPES: dict[str, Rewrite] = {
    "Conv": dilated_groups,
    "ConvTranspose": grouped_transpose,
    "Resize": resize,
    **dict.fromkeys(
        ("MaxPool", "AveragePool", "InstanceNormalization", "LRN", "GlobalMaxPool"), two_spatial
    ),
}
REWRITES: dict[str, Rewrite] = {
    **FUNCTIONS,
    **INTEGER,
    **SHAPES,
    "LSTM": lstm,
    "LeakyRelu": leaky_relu,
    "HardSigmoid": hard_sigmoid,
    "TopK": top_k,
    "Where": either(equal_shapes, booleans_as_floats),
    "Gather": either(gather, one_index),
    "If": choice,
}
EXTENSIONS: Rewrites = {
    (EXTENSION_DOMAIN, "SuppressionMask"): suppression_mask,
    (EXTENSION_DOMAIN, "FloorDiv"): quotient_in_floats,
    (EXTENSION_DOMAIN, "FixedNonMaxSuppression"): non_max_suppression,
}
BELOW_3: dict[str, Rewrite] = {
    "Clip": clip,
    "PRelu": prelu,
    **dict.fromkeys(("ReduceMean", "ReduceMax", "ReduceSum"), reduce_plane),
}
BELOW_4: dict[str, Rewrite] = {"HardSwish": hard_swish}
