"""Fully connected layers after a flatten: their weights are permuted instead of the activation.

before:  x[N,H,W,C] -> Transpose [N,C,H,W] -> Reshape [N,C*H*W] -> Relu -> MatMul(w[C*H*W,K])
after:   x[N,H,W,C] -> Reshape [N,H*W*C] -> Relu -> MatMul(w'[H*W*C,K])
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from converter.graph import BROADCAST
from converter.graph.build import Builder, attributes
from converter.graph.infer import Array, forget_known, rank_of, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.value import optional
from converter.graph.walk import is_needed
from converter.passes.layout.axes import Perm
from converter.passes.layout.groups import is_constant
from converter.passes.layout.materialized import canonical_dims
from converter.passes.layout.rules import UNARY, dims_of

_Place = tuple[ir.Node, int, int]  # the node, its input, the axis of the flattened features


def flatten_into_dense(
    node: ir.Node, stored: Perm, source: ir.Value, before: Callable[[ir.Node], Builder]
) -> bool:
    """Let a Reshape or Flatten to [N, features] read `source` (its input as stored), if all later
    nodes can compensate for the order.

    Return whether this was done: the features are then permuted, as are the rows of the weights by
    which they are multiplied.
    """
    features = canonical_dims(stored, source)[1:]
    out = node.outputs[0]
    if (
        rank_of(out) != 2
        or stored[0] != 0
        or not all(isinstance(d, int) and d > 0 for d in features)
    ):
        return False
    if dims_of(out)[1] != int(np.prod([int(d or 0) for d in features])):
        return False
    positions = _weights_met(out)
    if not positions:
        return False
    node.replace_input_with(0, source)
    for user, index, axis in positions:
        weights = user.inputs[index]
        assert weights is not None and weights.const_value is not None
        moved = _reordered(
            weights.const_value, axis, [int(d or 0) for d in features], [a - 1 for a in stored[1:]]
        )
        user.replace_input_with(index, before(user).const(moved, str(weights.name)))
        if index == 0:  # the values of a DequantizeLinear with small results are cached
            forget_known(user.outputs[0])
    return True


def _weights_met(value: ir.Value) -> list[_Place]:
    """Return the locations where constant weights multiply the features of `value`; empty if it has
    any other use.
    """
    found: list[_Place] = []
    pending = [value]
    while pending:
        v = pending.pop()
        if v.is_graph_output() or v.graph is not value.graph:
            return []
        for use in v.uses():
            user = use.node
            if user.graph is not value.graph:
                return []
            if _keeps_order(user, v):
                pending.append(user.outputs[0])
            elif (place := _dense(user, use.idx)) is not None:
                found.append(place)
            else:
                return []
    return found


def _keeps_order(node: ir.Node, value: ir.Value) -> bool:
    """Return whether a node is elementwise and its other operands are the same for all features."""
    scalars = all(
        v is None
        or v is value
        or (is_constant(v) and v.const_value is not None and v.const_value.size == 1)
        for v in node.inputs
    )
    per_tensor = node.op_type in ("QuantizeLinear", "DequantizeLinear")
    single = all(not is_needed(o) for o in node.outputs[1:])
    return (
        node.domain == ""
        and scalars
        and single
        and (per_tensor or node.op_type in UNARY or node.op_type in BROADCAST)
    )


def _dense(node: ir.Node, index: int) -> _Place | None:
    weights = optional(node, 1)
    if (
        index != 0
        or node.domain
        or node.op_type not in ("MatMul", "Gemm")
        or weights is None
        or rank_of(weights) != 2
    ):
        return None
    given = attributes(node)  # absent for a MatMul
    if given.get("transA"):
        return None
    return _stored_weights(node, 1, weights, given.get("transB", 0))


def _stored_weights(node: ir.Node, index: int, weights: ir.Value, axis: int) -> _Place | None:
    if is_constant(weights):
        return node, index, axis
    producer = weights.producer()
    if (
        producer is None
        or producer.op_type != "DequantizeLinear"
        or producer.domain
        or len(weights.uses()) != 1
        or weights.is_graph_output()
    ):
        return None
    packed, scale = producer.inputs[0], producer.inputs[1]
    if (
        packed is None
        or scale is None
        or not is_constant(packed)
        or producer.attributes.get("block_size") is not None
    ):
        return None
    along = attributes(producer)["axis"] % 2
    return (
        (producer, 0, axis)
        if rank_of(scale) == 0 or shape_of(scale) == (1,) or along != axis
        else None
    )


def _reordered(
    weights: ir.TensorProtocol, axis: int, features: list[int], order: list[int]
) -> LazyTensor:
    """Return the weights with the entries along `axis` (flattened `features`) in the stored order;
    they are computed lazily.
    """

    def ordered(array: Array) -> Array:
        split = array.reshape([*array.shape[:axis], *features, *array.shape[axis + 1 :]])
        perm = [*range(axis), *(axis + a for a in order), *range(axis + len(features), split.ndim)]
        return split.transpose(perm).reshape(array.shape)

    return LazyTensor.of(weights).derived(ordered)
