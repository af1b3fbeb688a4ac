"""Fuse attention from its parts, for targets with an attention operator.

before: s = MatMul(q * 0.5, Transpose(k)); y = MatMul(Softmax(s + mask), v)
after: y = ScaledDotProductAttention(q, k, v, mask, scale=0.5)

The scale may be applied to either operand of the first product, or to its result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from converter.graph.build import Builder, attributes, attrs_of, builder_before
from converter.graph.extensions import replace
from converter.graph.infer import known, rank_of
from converter.graph.names import Names
from converter.graph.value import Value, producer_if, with_operators
from converter.graph.walk import operators
from converter.mapping.fusing import only_user
from converter.passes.dead_code import remove_dead_code
from converter.passes.pipeline import Pass


def fuse_attention(model: ir.Model) -> None:
    """Fuse in place every product after a Softmax whose operands have the same rank of at least
    3.
    """
    names = Names(model)
    for node in operators(model.graph, "MatMul"):
        if (found := parts_of(node)) is not None:
            b = builder_before(node, names)
            replace(node, [found.written(b)], b)
    remove_dead_code(model)


@dataclass
class Parts:
    """The operands of an attention; `transposed` is k with its last two axes exchanged."""

    q: ir.Value
    transposed: ir.Value
    v: ir.Value
    mask: ir.Value | None
    scale: float

    def written(self, b: Builder) -> ir.Value:
        """Emit the attention operator of the parts."""
        return b.ScaledDotProductAttention(
            self.q, key_of(b, self.transposed), self.v, self.mask, scale=self.scale
        )


def key_of(b: Builder, transposed: ir.Value) -> ir.Value:
    """Return k for a transposed k; a Transpose that also permutes other axes is adjusted."""
    node, rank = transposed.producer(), rank_of(transposed) or 2
    swap = [*range(rank - 2), rank - 1, rank - 2]
    if node is None or node.op_type != "Transpose" or node.inputs[0] is None:
        return b.Transpose(transposed, perm=swap)
    own = [int(i) for i in attrs_of(node)["perm"]]
    perm = [own[i] for i in swap]
    if perm == list(range(rank)):
        return node.inputs[0]
    return b.Transpose(node.inputs[0], perm=perm)


def parts_of(node: ir.Node) -> Parts | None:
    """Return the operands of the attention that ends in this product."""
    weights, v = node.inputs
    softmax = made_by(weights, "Softmax")
    if softmax is None or v is None or rank_of(v) is None:
        return None
    rank = rank_of(v) or 0
    if attributes(softmax)["axis"] % rank != rank - 1:
        return None
    scores, mask, scale = softmax.inputs[0], None, 1.0
    added = made_by(scores, "Add")
    if added is not None:
        product = next((i for i in (0, 1) if scaled(added.inputs[i])[0] is not None), None)
        if product is None:
            return None
        scores, mask = added.inputs[product], added.inputs[1 - product]
    inner, factor = scaled(scores)
    if inner is None or inner.inputs[0] is None or inner.inputs[1] is None:
        return None
    scale *= factor
    (q, first), (transposed, second) = (unscaled(v) for v in inner.inputs)
    if (
        q is None
        or transposed is None
        or {rank_of(q), rank_of(transposed), rank} != {rank}
        or rank < 3
    ):
        return None
    return Parts(q, transposed, v, mask, scale * first * second)


def made_by(value: ir.Value | None, kind: str) -> ir.Node | None:
    """Return the producer of a value if it is this operator and the value has a single consumer."""
    node = producer_if(value, kind)
    return node if value is not None and only_user(value) is not None else None


def scaled(value: ir.Value | None) -> tuple[ir.Node | None, float]:
    """Return the MatMul whose result is scaled, or None, and the scale."""
    inner, factor = unscaled(value)
    return made_by(inner, "MatMul"), factor


def unscaled(value: ir.Value | None) -> tuple[Value | None, float]:
    """Return a value without the constant factor of a Mul or Div with a single consumer, and the
    factor.
    """
    for kind in ("Mul", "Div"):
        node = made_by(value, kind)
        if node is None:
            continue
        for i in (0, 1) if kind == "Mul" else (1,):
            factor, other = known(node.inputs[i]), node.inputs[1 - i]
            if factor is not None and factor.size == 1 and other is not None:
                number = float(factor.reshape(-1)[0])
                if rank_of(other) == rank_of(value) and number:
                    return with_operators(other), number if kind == "Mul" else 1 / number
    return (None if value is None else with_operators(value)), 1.0


def fuse_attentions(applies: Callable[[Any], bool] = lambda context: True) -> Pass[Any]:
    """Return the pass of a pipeline; see `fuse_attention`."""
    return Pass(
        "fuse-attention",
        "Fuse attention: matrix products with the Softmax between them",
        lambda model, _: fuse_attention(model),
        applies,
    )
