"""Operators that change the rank, and propagate an order of axes if no data has to be moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from converter.graph import REDUCTIONS
from converter.graph.build import Builder, attributes, same_attrs
from converter.graph.infer import known, rank_of
from converter.graph.value import optional
from converter.passes.layout import axes
from converter.passes.layout.axes import Dim, Perm, Reassociation
from converter.passes.layout.rules import dims_of
from converter.record import record

Carry = Callable[[Builder, ir.Value, Perm, Perm], ir.Value]


@record
class RankChange:
    """An operator that changes the rank.

    `reassociation` maps its axes, `carry(b, x, stored, result)` creates it for a stored input.
    """

    reassociation: Reassociation
    carry: Carry


def rank_change(node: ir.Node) -> RankChange | None:
    """Return how an operator that changes the rank propagates an order; None if it cannot."""
    x = node.inputs[0] if node.inputs else None
    if node.domain or x is None or x.shape is None or node.outputs[0].shape is None:
        return None
    op = node.op_type
    if op in ("Reshape", "Flatten"):
        return _reshape(dims_of(x), dims_of(node.outputs[0]))
    if op in ("Squeeze", "Unsqueeze"):
        return _squeeze(node, x)
    if op in REDUCTIONS:
        return _drop(node, x, known(optional(node, 1)), whole=optional(node, 1) is None)
    if op in ("ArgMax", "ArgMin"):
        return _drop_one(node, x)
    if op == "Gather" and node.inputs[1] is not None and rank_of(node.inputs[1]) == 0:
        return _drop_one(node, x)
    return None


def _reshape(before: list[Dim], after: list[Dim]) -> RankChange | None:
    reassociation = axes.reshape(before, after)
    if reassociation is None or sum(not isinstance(d, int) for d in after) > 1:
        return None

    def carry(b: Builder, x: ir.Value, stored: Perm, result: Perm) -> ir.Value:
        return b.Reshape(
            x,
            b.const([d if isinstance(d := after[a], int) else -1 for a in result], "shape"),
        )

    return RankChange(reassociation, carry)


def _squeeze(node: ir.Node, x: ir.Value) -> RankChange | None:
    low, high = sorted((x, node.outputs[0]), key=lambda v: rank_of(v) or 0)
    rank = rank_of(high)
    given = known(optional(node, 1))
    assert rank is not None
    if given is None and optional(node, 1) is not None:
        return None
    moved = (
        {int(a) % rank for a in given.reshape(-1)}
        if given is not None
        else {i for i, d in enumerate(dims_of(x)) if d == 1}
    )
    if len(moved) != rank - (rank_of(low) or 0):
        return None
    reassociation = axes.kept(rank, moved)
    if node.op_type == "Unsqueeze":
        reassociation = Reassociation(
            tuple((b, a) for a, b in reassociation.runs), reassociation.out_rank, rank
        )

    def carry(b: Builder, x: ir.Value, stored: Perm, result: Perm) -> ir.Value:
        where = axes.inverse(stored if node.op_type == "Squeeze" else result)
        return b.op(node.op_type, x, b.const(sorted(where[a] for a in moved), "axes"))

    return RankChange(reassociation, carry)


def _drop(node: ir.Node, x: ir.Value, given: Any, whole: bool) -> RankChange | None:
    rank = rank_of(x)
    attrs = attributes(node)
    if (
        rank is None
        or (given is None and not whole)
        or attrs["keepdims"]
        or attrs["noop_with_empty_axes"]
    ):
        return None
    gone = (
        sorted({int(a) % rank for a in given.reshape(-1)})
        if given is not None and given.size
        else list(range(rank))
    )

    def carry(b: Builder, x: ir.Value, stored: Perm, result: Perm) -> ir.Value:
        where = axes.inverse(stored)
        found = b.const(sorted(where[a] for a in gone), "axes")
        return b.op(node.op_type, x, found, **same_attrs(node))

    return RankChange(axes.kept(rank, gone), carry)


def _drop_one(node: ir.Node, x: ir.Value) -> RankChange | None:
    """Describe an ArgMax without keepdims, or a Gather with one index."""
    rank = rank_of(x)
    attrs = attributes(node)
    if rank is None or attrs.get("keepdims"):  # absent for a Gather
        return None
    axis = attrs["axis"] % rank

    def carry(b: Builder, x: ir.Value, stored: Perm, result: Perm) -> ir.Value:
        place = axes.inverse(stored)[axis]
        return b.op(node.op_type, x, *node.inputs[1:], axis=place, **same_attrs(node, "axis"))

    return RankChange(axes.kept(rank, [axis]), carry)
