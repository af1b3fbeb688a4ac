"""Attention as one operator."""

from __future__ import annotations

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension
from converter.graph.infer import rank_of


@extension
def ScaledDotProductAttention(
    b: Builder, q: Value, k: Value, v: Value, mask: Value | None = None, *, scale: float
) -> Value:
    """softmax(q k' * scale + mask) v along the last axis.

    q[.., L, E], k[.., S, E], v[.., S, D] and mask, which is added and broadcasts to [.., L, S]; the
    result is [.., L, D]. Source: PyTorch, scaled_dot_product_attention; OpenVINO,
    ScaledDotProductAttention-13.
    """
    rank = rank_of(k) or 2
    transposed = b.Transpose(k, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = (q * float(scale)) @ transposed
    scores = scores if mask is None else scores + mask
    return b.Softmax(scores, axis=-1) @ v
