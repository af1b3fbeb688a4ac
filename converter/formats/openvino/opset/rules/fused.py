"""Operations that OpenVINO's own passes fuse, in files that hold a transformed model. OpenVINO
neither documents nor reads them in files; they are read as its CPU plugin computes them.

Source: https://github.com/openvinotoolkit/openvino, src/common/transformations/include/ov_ops,
src/core/dev_api/openvino/op/moe.hpp and src/plugins/intel_cpu/src/nodes/rope.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.opset.rules.context import LiftContext, element_type
from converter.graph.linear_attention import recurrence
from converter.graph.value import Value
from converter.mapping.rules import custom

T = ir.DataType
CONFIG = "config."  # the structure that attributes are in


def option(r: LiftContext, name: str, kind: Any, default: Any) -> Any:
    """Return an attribute, which may be written with the name of its structure."""
    found = r.attr(CONFIG + name, kind, None)
    return r.attr(name, kind, default) if found is None else found


def root_mean_square(r: LiftContext) -> ir.Value:
    """x / sqrt(mean(x^2) + epsilon) of the last axis, times a scale."""
    b, x = r.b, r.input(0)
    wide = r.cast(x, T.FLOAT)
    mean = b.ReduceMean(wide * wide, [-1], keepdims=1)
    y = wide / b.Sqrt(mean + float(r.attr("epsilon", float, 0.0)))
    if r.attr("elementwise_affine", bool, True) and r.optional(1) is not None:
        y = y * r.cast(r.input(1), T.FLOAT)
    to = r.attr("output_type", element_type, None)
    return b.Cast(y, to=x.dtype if to is None else to)


def gated_delta_net(r: LiftContext) -> Sequence[ir.Value]:
    """(query, key [B,S,N,K], value [B,S,N,V], state [B,N,K,V], gate, beta [B,S,N]) -> the
    attention [B,S,N,V] and the last state. Queries are divided by sqrt(K).
    """
    b = r.b
    q, k, v = (r.cast(r.input(i), T.FLOAT) for i in range(3))
    if option(r, "fuse_qk_l2norm", bool, False):
        few = [float(option(r, f"{name}_l2_norm_eps", float, 1e-6)) for name in "qk"]
        q, k = (
            x / b.Sqrt(b.ReduceSum(x * x, [-1], keepdims=1) + e)
            for x, e in zip((q, k), few, strict=True)
        )
    size = r.static(q, "the query")[-1]
    q, k, v = (b.Transpose(x, perm=[0, 2, 1, 3]) for x in (q * float(1 / np.sqrt(size)), k, v))
    gates = [r.cast(r.input(i), T.FLOAT) for i in (4, 5)]
    decay, beta = (b.Unsqueeze(b.Transpose(x, perm=[0, 2, 1]), [3]) for x in gates)
    y, last = recurrence(b, "gated_delta", r.cast(r.input(3), T.FLOAT), q, k, v, decay, beta)
    y = b.Cast(b.Transpose(y, perm=[0, 2, 1, 3]), to=r.input(2).dtype)
    return [y, b.Cast(last, to=r.input(3).dtype)]


def rotary(r: LiftContext) -> ir.Value:
    """Rotary embeddings of halves, or of neighbors with sines and cosines in one operand."""
    names = ("is_chatglm", "is_qwen", "support_2d_rope", "support_3d_rope", "is_ltx_video")
    found = [name for name in (*names, "use_rope_cache") if option(r, name, bool, False)]
    if found or option(r, "gather_position_arg_id", int, 0):
        message = f"RoPE with {', '.join(found) or 'gathered positions'} is not supported"
        raise MappingError(message, "X202")
    b, x, count = r.b, r.input(0), option(r, "rotary_ndims", int, 0)
    start, stop = (option(r, f"slice_{end}", int, 0) for end in ("start", "stop"))
    if stop > start:
        x = b.Slice(x, [start], [stop], [-1])
    swapped = option(r, "output_trans0213", bool, False)
    if option(r, "input_trans0213", bool, False):
        x = b.Transpose(x, perm=[0, 2, 1, 3])
    if not 0 < count <= r.static(x)[-1] or count % 2:
        raise MappingError(f"rotary_ndims must be even and at most the size, got {count}", "R110")
    wide = r.cast(x, T.FLOAT)
    rotated = b.Slice(wide, [0], [count], [-1])
    if option(r, "is_interleaved", bool, False):
        y = _neighbors(r, rotated, count)
    else:
        y = _halves(r, rotated, count)
        option(r, "cos_sin_ndims", int, 0)
    rest = b.Slice(wide, [count], [1 << 30], [-1])
    y = b.Cast(b.Concat(y, rest, axis=-1), to=r.input(0).dtype)
    return b.Transpose(y, perm=[0, 2, 1, 3]) if swapped else y


def _halves(r: LiftContext, x: Value, count: int) -> Value:
    """[.., count] with cosines and sines of as many, or of half as many."""
    b, half = r.b, count // 2
    low, high = b.Slice(x, [0], [half], [-1]), b.Slice(x, [half], [count], [-1])
    rotated = b.Concat(-high, low, axis=-1)
    factors = []
    for i in (1, 2):
        given = r.cast(r.input(i), T.FLOAT)
        short = r.static(given)[-1] == half
        factors.append(b.Concat(given, given, axis=-1) if short else given)
    cosine, sine = (b.Slice(f, [0], [count], [-1]) for f in factors)
    return x * cosine + rotated * sine


def _neighbors(r: LiftContext, x: Value, count: int) -> Value:
    """[B,S,N,count] with sines and then cosines [B,S,count]."""
    b, half = r.b, count // 2
    both = b.Unsqueeze(r.cast(r.input(1), T.FLOAT), [2])
    sine, cosine = b.Slice(both, [0], [half], [-1]), b.Slice(both, [half], [count], [-1])
    even, odd = (b.Slice(x, [i], [count], [-1], [2]) for i in (0, 1))
    pair = (cosine * even - sine * odd, cosine * odd + sine * even)
    apart = b.Concat(*(b.Unsqueeze(v, [-1]) for v in pair), axis=-1)
    return b.Reshape(apart, [0, 0, 0, count])


def experts(r: LiftContext) -> ir.Value:
    """(tokens, weights of the experts [E,..,1], their indices, gate [E,I,H], up [E,I,H], down
    [E,H,I]) -> the weighted sum of down(silu(gate(x)) * up(x)). Experts that are not chosen have
    weights of zero.
    """
    kind = option(r, "expert_type", str, "gemm2_bias_swiglu_clamp").lower()
    activation = option(r, "activation_type", str, "swiglu").lower()
    if kind != "gemm3_swiglu" or activation != "swiglu" or len(r.layer.inputs) != 6:
        raise MappingError(f"MOE with {kind}, {activation} is not supported", "X202")
    for name, default in (("expert_alpha", 0.0), ("expert_beta", 1.0), ("gate_idx", 0.0)):
        option(r, name, float, default)
    b, x = r.b, r.input(0)
    gate, up, down = (r.cast(r.input(i), T.FLOAT) for i in (3, 4, 5))
    r.optional(2)  # the weights of other experts are zero
    count, _, size = r.static(gate, "the experts")
    tokens = b.Reshape(r.cast(x, T.FLOAT), [1, -1, size])
    inner = b.MatMul(tokens, b.Transpose(gate, perm=[0, 2, 1]))
    inner = inner * b.Sigmoid(inner) * b.MatMul(tokens, b.Transpose(up, perm=[0, 2, 1]))
    each = b.MatMul(inner, b.Transpose(down, perm=[0, 2, 1]))
    weights = b.Reshape(r.cast(r.input(1), T.FLOAT), [count, -1, 1])
    total = b.ReduceSum(each * weights, [0], keepdims=0)
    return b.Cast(b.Reshape(total, b.Shape(x)), to=x.dtype)


RULES = [
    custom("", "RMS", root_mean_square),
    custom("", "GatedDeltaNet", gated_delta_net),
    custom("", "RoPE", rotary),
    custom("", "MOE", experts),
]
