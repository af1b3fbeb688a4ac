"""Reduce the rank of tensors with more axes than a target supports: adjacent axes that an operator
treats alike are merged, axes of length 1 are removed.

before:  Transpose(x[2,3,4,5,6], perm 0,1,4,2,3)
after:   Reshape(Transpose(Reshape(x, [6,20,6]), perm 0,2,1), [2,3,6,4,5])

Each operator is wrapped in Reshapes; adjacent Reshapes are then merged, which removes the high rank
between them. Shapes are static, except that elementwise operators and a Transpose may have one
unknown dimension, and windows an unknown batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from converter.graph import RESHAPES
from converter.graph.build import Builder, attrs_of, builder_before, same_attrs
from converter.graph.extensions import replace
from converter.graph.infer import InferenceError, rank_of, shape_of
from converter.graph.names import Names
from converter.graph.symbolic import dimensions
from converter.graph.value import operand, optional, producer_of
from converter.graph.walk import all_graphs
from converter.passes.collapse_dims_rules import ELEMENTWISE, HANDLERS, neighbors, reshaped
from converter.passes.conv3d_to_2d import VOLUMES
from converter.passes.dead_code import remove_dead_code
from converter.passes.legalize import Rewrite, Rewrites
from converter.passes.pipeline import Context, Pass


def collapse_dims(model: ir.Model, most: int) -> None:
    """Reduce ranks to `most` in place.

    Values that cannot be reduced, such as inputs, are left for the target to refuse.
    """
    names = Names(model)
    high = [n for graph in all_graphs(model.graph) for n in graph if highest_rank(n) > most]
    for node in high:
        b = builder_before(node, names)
        try:
            results = on_fewer_axes(node, b, most)
        except InferenceError:  # the shapes do not fit; nodes created so far are dead
            results = None
        if results is not None:
            replace(node, results, b)
    if high:
        join_reshapes(model, most)


def highest_rank(node: ir.Node) -> int:
    """Return the largest known rank of a node's inputs and outputs."""
    return max((rank_of(v) or 0 for v in (*node.inputs, *node.outputs) if v is not None), default=0)


def on_fewer_axes(node: ir.Node, b: Builder, most: int) -> list[ir.Value] | None:
    """Return the node's results, computed on at most `most` axes between Reshapes; None if that is
    not possible.
    """
    handler = None if node.domain else HANDLERS.get(node.op_type)
    if handler is None or optional(node, 0) is None:
        return None
    if any(v is not None and shape_of(v) is None for v in node.inputs):
        if node.op_type == "Transpose":
            return _transpose_of_one_unknown(node, b, most)
        if node.op_type in VOLUMES:
            return _volumes_of_unknown_batch(node, b, most)
        return _elementwise_of_one_unknown(node, b)
    given = [shape_of(v) for v in node.inputs if v is not None]
    wanted = [shape_of(o) for o in node.outputs]
    if None in given or any(s is None or 0 in s for s in (given[0], *wanted)):
        return None
    results = handler(node, b, most)
    if results is None:
        return None
    return [b.Reshape(y, list(s or ())) for y, s in zip(results, wanted, strict=False)]


def _open_shape(value: ir.Value) -> list[int] | None:
    """Return the shape as a Reshape operand, with -1 for the one dimension that may be unknown."""
    found = None if value.shape is None else [d if isinstance(d, int) else -1 for d in value.shape]
    return found if found is not None and 0 not in found and found.count(-1) < 2 else None


def _transpose_of_one_unknown(node: ir.Node, b: Builder, most: int) -> list[ir.Value] | None:
    """Rewrite a Transpose with one unknown dimension, usually the batch."""
    x = operand(node)
    sizes = _open_shape(x)
    if sizes is None:
        return None
    perm = attrs_of(node).get("perm") or range(len(sizes))[::-1]
    target = neighbors(sizes, perm)
    order = sorted(target)
    if len(order) > most:
        return None
    merged = [
        -1 if any(sizes[i] < 0 for i in run) else math.prod(sizes[i] for i in run) for run in order
    ]
    y = b.Transpose(b.Reshape(x, merged), perm=[order.index(run) for run in target])
    return [b.Reshape(y, [sizes[i] for i in perm])]


def _volumes_of_unknown_batch(node: ir.Node, b: Builder, most: int) -> list[ir.Value] | None:
    """Rewrite windows over three axes, which keep the batch."""
    shape, results = _open_shape(node.outputs[0]), VOLUMES[node.op_type](node, b, most)
    return None if shape is None or results is None else [b.Reshape(y, shape) for y in results]


def _elementwise_of_one_unknown(node: ir.Node, b: Builder) -> list[ir.Value] | None:
    """Rewrite an elementwise operator with one unknown dimension on one axis, if the operands have
    the shape of the result or one element.
    """
    given = [v for v in node.inputs if v is not None]
    whole = [v for v in given if shape_of(v) is None]
    shape, own = _open_shape(node.outputs[0]), dimensions(whole[0])
    if node.op_type not in ELEMENTWISE or len(node.outputs) != 1 or shape is None:
        return None
    if any(dimensions(v) != own for v in whole):
        return None
    if any(math.prod(shape_of(v) or ()) != 1 for v in given if v not in whole):
        return None
    operands = [
        v if v is None else b.Reshape(v, [-1]) if v in whole else reshaped(b, v, [])
        for v in node.inputs
    ]
    y = b.op(node.op_type, *operands, **same_attrs(node))
    return [b.Reshape(y, shape)]


def with_fewer_axes(table: Rewrites, most: int) -> Rewrites:
    """Return a target's rewrites, each preceded by the rewrite that reduces the rank of its
    operator.
    """

    def either(other: Rewrite | None) -> Rewrite:
        def rewrite(node: ir.Node, b: Builder) -> ir.Value | Sequence[ir.Value | None] | None:
            found = on_fewer_axes(node, b, most) if highest_rank(node) > most else None
            return found if found is not None or other is None else other(node, b)

        return rewrite

    return {**table, **{("", op): either(table.get(("", op))) for op in HANDLERS}}


def _reshapes(node: ir.Node) -> bool:
    return node.op_type in RESHAPES and not node.domain


def join_reshapes(model: ir.Model, most: int = 0) -> None:
    """Merge consecutive Reshapes that have a value with more than `most` axes between them."""
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            before = producer_of(node.inputs[0]) if _reshapes(node) else None
            shape = _open_shape(node.outputs[0])
            if before is None or not _reshapes(before) or before.graph is not node.graph:
                continue
            if shape is None or (rank_of(before.outputs[0]) or 0) <= most:
                continue
            source = before.inputs[0]
            if source is not None:
                b = builder_before(node, names)
                same = shape_of(source) == tuple(shape) and not node.outputs[0].is_graph_output()
                replace(node, [source if same else b.Reshape(source, shape)], b)
    remove_dead_code(model)


def lower_ranks(most: int) -> Pass[Context]:
    """Return the pass of a pipeline; see `collapse_dims`."""
    return Pass(
        "lower-ranks",
        f"Reduce tensors of more than {most} axes, between Reshapes",
        lambda model, _: collapse_dims(model, most),
    )


def join_reshape_chains(most: int = 0) -> Pass[Context]:
    """Return the pass of a pipeline; see `join_reshapes`."""
    return Pass(
        "join-reshapes",
        "Merge consecutive Reshapes",
        lambda model, _: join_reshapes(model, most),
    )
