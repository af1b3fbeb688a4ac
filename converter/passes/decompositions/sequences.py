"""Operations on sequences of known members, replaced by operations on the members."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attributes
from converter.graph.infer import known, rank_of
from converter.graph.infer_sizes import sizes_of_parts
from converter.graph.value import optional, producer_of
from converter.passes.decompositions.table import Table
from converter.passes.unroll import copy_body

MOST = 1024


def _members(value: ir.Value | None, b: Builder) -> list[ir.Value] | None:
    """Return the tensors of a sequence, as values of the graph; None if they are known only at run
    time.
    """
    node = producer_of(value)
    if node is None or node.domain:
        return None
    if node.op_type == "SequenceConstruct":
        return [v for v in node.inputs if v is not None]
    if node.op_type == "SequenceEmpty":
        return []
    if node.op_type == "Identity":
        return _members(node.inputs[0], b)
    if node.op_type == "SplitToSequence":
        return _parts(node, b)
    if node.op_type == "SequenceMap" and value is not None:
        return _mapped(node, list(node.outputs).index(value), b)
    return _edited(node, b) if node.op_type in ("SequenceInsert", "SequenceErase") else None


def _mapped(node: ir.Node, output: int, b: Builder) -> list[ir.Value] | None:
    """Return the results of the body for each member; an operand that is a tensor is the same for
    all.
    """
    body = node.attributes["body"].as_graph()
    operands: list[list[ir.Value] | None] = []
    for i, value in enumerate(node.inputs):
        is_sequence = i == 0 or (value is not None and isinstance(value.type, ir.SequenceType))
        operands.append(_members(value, b) if is_sequence else None)
        if is_sequence and operands[-1] is None:
            return None
    count = len(operands[0] or ())
    if count * len(body) > MOST or any(o is not None and len(o) != count for o in operands):
        return None
    found = []
    for i in range(count):
        given = [
            own if members is None else members[i]
            for own, members in zip(node.inputs, operands, strict=True)
        ]
        if any(v is None for v in given):
            return None
        env = {formal: v for formal, v in zip(body.inputs, given, strict=True) if v is not None}
        found.append(copy_body(body, env, b)[output])
    return found


def _edited(node: ir.Node, b: Builder) -> list[ir.Value] | None:
    members, insert = _members(node.inputs[0], b), node.op_type == "SequenceInsert"
    at = optional(node, 2 if insert else 1)
    number = known(at)
    if members is None or (at is not None and number is None):
        return None
    position = (
        int(number.reshape(())) if number is not None else len(members) - (0 if insert else 1)
    )
    position += len(members) if position < 0 else 0
    if insert and node.inputs[1] is not None:
        return [*members[:position], node.inputs[1], *members[position:]]
    return [*members[:position], *members[position + 1 :]]


def _parts(node: ir.Node, b: Builder) -> list[ir.Value] | None:
    x, axis = node.inputs[0], attributes(node)["axis"]
    given = optional(node, 1)
    counts = sizes_of_parts(node)
    if x is None or not counts or len(counts) > MOST:
        return None
    ends = np.cumsum(counts)
    parts: list[ir.Value] = [
        b.Slice(x, [int(e - n)], [int(e)], [axis]) for n, e in zip(counts, ends, strict=True)
    ]
    if given is None and not attributes(node)["keepdims"]:
        return [b.Squeeze(p, [axis]) for p in parts]
    return parts


def sequence_at(node: ir.Node, b: Builder) -> ir.Value | None:
    """Rewrite SequenceAt as the member itself, if members and position are known."""
    position = known(node.inputs[1])
    members = _members(node.inputs[0], b) if position is not None else None
    return (
        None
        if members is None or position is None
        else b.Identity(members[int(position.reshape(()))])
    )


def sequence_length(node: ir.Node, b: Builder) -> ir.Value | None:
    """Rewrite SequenceLength as a constant, if the members are known."""
    members = _members(node.inputs[0], b)
    return None if members is None else b.Identity(np.array(len(members), np.int64))


def concat_from_sequence(node: ir.Node, b: Builder) -> ir.Value | None:
    """Concatenate the members; with `new_axis`, stack them."""
    members, attrs = _members(node.inputs[0], b), attributes(node)
    if not members:
        return None
    axis = attrs["axis"]
    if attrs["new_axis"]:
        rank = rank_of(members[0])
        if rank is None:
            return None
        axis %= rank + 1
        members = [b.Unsqueeze(v, [axis]) for v in members]
    return b.Concat(*members, axis=axis)


TABLE: Table = {
    ("", "SequenceAt"): sequence_at,
    ("", "SequenceLength"): sequence_length,
    ("", "ConcatFromSequence"): concat_from_sequence,
}
