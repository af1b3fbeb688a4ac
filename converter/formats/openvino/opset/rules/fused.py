"""Operations that OpenVINO's own passes fuse, in files that hold a transformed model. OpenVINO
neither documents nor reads them in files; they are read as its CPU plugin computes them.

Source: https://github.com/openvinotoolkit/openvino, src/common/transformations/include/ov_ops,
src/core/dev_api/openvino/op/moe.hpp and src/plugins/intel_cpu/src/nodes/rope.cpp; for LTX video,
which only the GPU plugin has, its kernel rope_opt.cl.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.opset.rules.context import LiftContext, element_type
from converter.graph.build import Builder
from converter.graph.linear_attention import recurrence
from converter.graph.value import Value
from converter.mapping.rules import custom

T = ir.DataType
END = 1 << 30  # of a slice to the end of an axis
CONFIG = "config."  # the structure that attributes are in
SAVED = "save the model before OpenVINO compiles it: openvino.save_model(core.read_model(IN), OUT)"


def option(r: LiftContext, name: str, kind: Any, default: Any) -> Any:
    """Return an attribute, which may be written with the name of its structure."""
    found = r.attr(CONFIG + name, kind, None)
    return r.attr(name, kind, default) if found is None else found


def root_mean_square(r: LiftContext) -> ir.Value:
    """Compute x / sqrt(mean(x^2) + epsilon) over the last axis, times a scale."""
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
    """Compute rotary embeddings of halves or of neighbors, of separate or of packed heads."""
    # the shapes of the operands say the same as these two
    option(r, "support_3d_rope", bool, False)
    option(r, "cos_sin_ndims", int, 0)
    if option(r, "is_ltx_video", bool, False):
        return _numbered_neighbors(r)
    if option(r, "is_qwen", bool, False):
        return _packed_halves(r)
    if option(r, "is_chatglm", bool, False):
        return _packed_neighbors(r)
    b, x = r.b, _sliced(r)
    swapped = option(r, "output_trans0213", bool, False)
    if option(r, "input_trans0213", bool, False):
        x = b.Transpose(x, perm=[0, 2, 1, 3])
    wide, count = r.cast(x, T.FLOAT), _rotated_size(r, x)
    if option(r, "is_interleaved", bool, False):
        both = b.Unsqueeze(r.cast(r.input(1), T.FLOAT), [2])  # [B,S,count]: sines, then cosines
        sine, cosine = (b.Slice(both, [i], [i + count // 2], [-1]) for i in (0, count // 2))
        y = _neighbors(r, wide, cosine, sine)
    else:
        if option(r, "input_interleaved", bool, False):
            wide = b.Concat(
                *_even_and_odd(b, wide, count), b.Slice(wide, [count], [END], [-1]), axis=-1
            )
        y = _halves(r, wide, [_positioned(r, i, 0) for i in (1, 2)], count)
    y = b.Cast(y, to=r.input(0).dtype)
    return b.Transpose(y, perm=[0, 2, 1, 3]) if swapped else y


def _sliced(r: LiftContext) -> Value:
    """Return the part of the data that is rotated."""
    start, stop = (option(r, f"slice_{end}", int, 0) for end in ("start", "stop"))
    return r.b.Slice(r.input(0), [start], [stop], [-1]) if stop > start else r.input(0)


def _rotated_size(r: LiftContext, x: Value) -> int:
    count = int(option(r, "rotary_ndims", int, 0))
    if not 0 < count <= r.static(x)[-1] or count % 2:
        raise MappingError(f"rotary_ndims must be even and at most the size, got {count}", "R110")
    return count


def _positioned(r: LiftContext, i: int, heads: int) -> Value:
    """Return the operand `i`, cosines or sines, at the positions [B,S] or [B,N,S,1] that another
    operand gives; `heads`: where the axis of heads is among the last three.
    """
    b, given = r.b, r.cast(r.input(i), T.FLOAT)
    at = option(r, "gather_position_arg_id", int, 0)
    if not at:
        return given
    sizes, positions = r.static(given), r.cast(r.input(at), T.INT64)
    if any(n != 1 for k, n in enumerate(sizes[:-1]) if k != len(sizes) - 2 - heads):
        raise MappingError(f"RoPE that gathers from {sizes} is not supported", "X202", SAVED)
    table = b.Reshape(given, [-1, sizes[-1]])
    if len(r.static(positions)) == 4:
        rows = b.Gather(table, b.Squeeze(positions, [3]), axis=0)  # [B,N,S,size]
        return b.Transpose(rows, perm=[0, 2, 1, 3]) if heads else rows
    return b.Unsqueeze(b.Gather(table, positions, axis=0), [2 if heads else 1])


def _packed(r: LiftContext) -> Value:
    """Reshape [A,B,heads * size, ...] to [A,B,heads,size]."""
    heads, size = (int(option(r, name, int, 0)) for name in ("head_cnt", "head_size"))
    x = r.b.Slice(_sliced(r), [0], [heads * size], [-1])
    return r.b.Reshape(r.cast(x, T.FLOAT), [0, 0, heads, size])


def _packed_halves(r: LiftContext) -> Value:
    """Rotate [B,S,...] with cosines and sines [1,K,1,count] for the last S of K positions, or for
    the given positions.
    """
    b, x = r.b, _packed(r)
    option(r, "rotary_ndims", int, 0)
    factors = [_positioned(r, i, 1) for i in (1, 2)]
    if not option(r, "gather_position_arg_id", int, 0):
        last = b.Neg(b.Shape(x)[1:2])
        factors = [b.Slice(f, last, [END], [1]) for f in factors]
    y = _halves(r, x, factors, r.static(factors[0])[-1])
    return b.Cast(y, to=r.input(0).dtype)


def _packed_neighbors(r: LiftContext) -> Value:
    """Rotate [S,B,...], or [B,S,...] to [B,N,S,...], with pairs of a cosine and a sine, or with
    separate cosines and sines for the batch.
    """
    b, x, images = r.b, _packed(r), option(r, "support_2d_rope", bool, False)
    count = _rotated_size(r, x)
    if option(r, "use_rope_cache", bool, False) or not images:
        both = b.Unsqueeze(r.cast(r.input(1), T.FLOAT), [2])  # [..,1,count/2,2]
        cosine, sine = (b.Gather(both, np.array(i), axis=-1) for i in (0, 1))
    else:
        cosine, sine = (r.cast(r.input(i), T.FLOAT) for i in (1, 2))
    cosine, sine = (b.Slice(f, [0], [count // 2], [-1]) for f in (cosine, sine))
    y = b.Cast(_neighbors(r, x, cosine, sine), to=r.input(0).dtype)
    return b.Transpose(y, perm=[0, 2, 1, 3]) if images else y


def _halves(r: LiftContext, x: Value, factors: Sequence[Value], count: int) -> Value:
    """Rotate the first `count` numbers, the first half of them with the second; there are as many
    cosines and sines, or half as many.
    """
    b, half = r.b, count // 2
    low, high = b.Slice(x, [0], [half], [-1]), b.Slice(x, [half], [count], [-1])
    rotated, rest = b.Slice(x, [0], [count], [-1]), b.Slice(x, [count], [END], [-1])
    full = [b.Concat(f, f, axis=-1) if r.static(f)[-1] == half else f for f in factors]
    cosine, sine = (b.Slice(f, [0], [count], [-1]) for f in full)
    y = rotated * cosine + b.Concat(-high, low, axis=-1) * sine
    return b.Concat(y, rest, axis=-1)


def _neighbors(r: LiftContext, x: Value, cosine: Value, sine: Value) -> Value:
    """Rotate the first numbers in pairs of neighbors, with one cosine and sine for each pair."""
    b, count = r.b, 2 * r.static(cosine)[-1]
    even, odd = _even_and_odd(b, x, count)
    pair = (cosine * even - sine * odd, cosine * odd + sine * even)
    apart = b.Concat(*(b.Unsqueeze(v, [-1]) for v in pair), axis=-1)
    rest = b.Slice(x, [count], [END], [-1])
    return b.Concat(b.Reshape(apart, [0, 0, 0, count]), rest, axis=-1)


def _even_and_odd(b: Builder, x: Value, count: int) -> list[Value]:
    """Return the numbers at even and at odd positions, of the first `count`."""
    return [b.Slice(x, [i], [count], [-1], [2]) for i in (0, 1)]


def _numbered_neighbors(r: LiftContext) -> Value:
    """Rotate [B,S,size] in pairs of neighbors, with a cosine and a sine for each number."""
    b, x = r.b, r.cast(r.input(0), T.FLOAT)
    option(r, "rotary_ndims", int, 0)
    even, odd = _even_and_odd(b, x, r.static(x)[-1])
    pairs = b.Concat(*(b.Unsqueeze(v, [-1]) for v in (-odd, even)), axis=-1)
    cosine, sine = (r.cast(r.input(i), T.FLOAT) for i in (1, 2))
    y = x * cosine + b.Reshape(pairs, b.Shape(x)) * sine
    return b.Cast(y, to=r.input(0).dtype)


def experts(r: LiftContext) -> ir.Value:
    """(tokens, weights of the experts [E,..,1], their indices, gate [E,I,H], up [E,I,H], down
    [E,H,I]) -> the weighted sum of down(activation(gate(x)) * up(x)). Experts that are not chosen
    have weights of zero.
    """
    kind = option(r, "expert_type", str, "gemm2_bias_swiglu_clamp").lower()
    activation = option(r, "activation_type", str, "swiglu").lower()
    if kind != "gemm3_swiglu" or activation not in ACTIVATIONS or len(r.layer.inputs) != 6:
        # of experts with two products, versions of OpenVINO swapped expert_alpha and expert_beta
        raise MappingError(f"MOE with {kind}, {activation} is not supported", "X202", SAVED)
    for name, default in (("expert_alpha", 0.0), ("expert_beta", 1.0), ("gate_idx", 0.0)):
        option(r, name, float, default)
    b, x = r.b, r.input(0)
    gate, up, down = (r.cast(r.input(i), T.FLOAT) for i in (3, 4, 5))
    r.optional(2)  # the weights of other experts are zero
    count, _, size = r.static(gate, "the experts")
    tokens = b.Reshape(r.cast(x, T.FLOAT), [1, -1, size])
    inner = b.MatMul(tokens, b.Transpose(gate, perm=[0, 2, 1]))
    inner = ACTIVATIONS[activation](b, inner)
    inner = inner * b.MatMul(tokens, b.Transpose(up, perm=[0, 2, 1]))
    each = b.MatMul(inner, b.Transpose(down, perm=[0, 2, 1]))
    weights = b.Reshape(r.cast(r.input(1), T.FLOAT), [count, -1, 1])
    total = b.ReduceSum(each * weights, [0], keepdims=0)
    return b.Cast(b.Reshape(total, b.Shape(x)), to=x.dtype)


ACTIVATIONS: dict[str, Callable[[Builder, Value], Value]] = {
    "swiglu": lambda b, x: x * b.Sigmoid(x),
    "geglu_tanh": lambda b, x: b.Gelu(x, approximate="tanh"),
    "geglu_erf": lambda b, x: b.Gelu(x),
}
RULES = [
    custom("", "RMS", root_mean_square),
    custom("", "GatedDeltaNet", gated_delta_net),
    custom("", "RoPE", rotary),
    custom("", "MOE", experts),
]
