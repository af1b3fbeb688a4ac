"""com.microsoft operators in standard operators, against onnxruntime's own kernels, and against
formulas where it has none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import converter
from converter import engines
from converter.errors import UnsupportedError
from converter.formats.onnx.codec import TensorFiles
from converter.formats.onnx.lift import lift
from converter.formats.onnx.microsoft import rows
from converter.graph.invariants import violations

rng = np.random.default_rng(0)
i32 = np.int32


def f(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def u8(*shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape).astype(np.int8)


def i7(*shape: int) -> np.ndarray:
    """Signed weights whose products with unsigned bytes no kernel cuts at 16 bits, as those do of
    processors without VNNI.
    """
    return i8(*shape) // 2


def S(number: Any) -> np.ndarray:
    return np.array(number, np.float32)


def Z(number: int, dtype: Any = np.uint8) -> np.ndarray:
    return np.array(number, dtype)


def cached(
    batch: int,
    new: int,
    heads: int,
    groups: int,
    past: int,
    lengths: list[int],
    packed: bool = False,
    rotary: bool = False,
    more: Any = (),
    **attributes: Any,
) -> Any:
    """A case of GroupQueryAttention with heads of 16 features; `more` are the operands from the
    positions on.
    """
    size, total = 16, max(lengths)
    widths = [heads + 2 * groups] if packed else [heads, groups, groups]
    inputs = [*(f(batch, new, n * size) for n in widths), *[None] * (3 - len(widths))]
    inputs += [f(batch, groups, past, size), f(batch, groups, past, size)] if past else [None, None]
    inputs += [np.array(lengths, i32) - 1, np.array(total, i32)]
    inputs += [f(16, size // 2), f(16, size // 2)] if rotary else [None, None]
    inputs += list(more)
    while inputs[-1] is None:
        inputs.pop()
    return (
        inputs,
        {"num_heads": heads, "kv_num_heads": groups, "do_rotary": int(rotary), **attributes},
        3,
    )


def small(*shape: int) -> np.ndarray:
    """Scales of quantized weights."""
    return rng.uniform(0.01, 0.03, shape).astype(np.float32)


def eight_bit_cache(kind: str, rotary: bool = False) -> Any:
    """A case of GroupQueryAttention whose cache is 8-bit integers: 4 heads in 2 groups of 16."""
    scale = small(1) if kind == "PER_TENSOR" else small(32)
    turns = [f(16, 8), f(16, 8)] if rotary else [None, None]
    caches = [i8(2, 2, 3, 16), i8(2, 2, 3, 16)]
    inputs = [f(2, 1, 64), f(2, 1, 32), f(2, 1, 32), *caches, np.array([3, 3], i32), Z(4, i32)]
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": int(rotary)}
    attributes |= {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": 8}
    return [*inputs, *turns, None, None, None, scale, scale.copy()], attributes, 3


SWIGLU = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1}
GPT_OSS = {**SWIGLU, "activation_alpha": 1.702, "activation_beta": 1.0}
BITS_8 = {**SWIGLU, "expert_weight_bits": 8}
EXPERTS_8 = [u8(4, 64, 32), small(4, 64), None, u8(4, 32, 32), small(4, 32)]
GATED = {"gate_activation": "softplus", "beta_activation": "sigmoid"}
words = np.array([[1, 2, 3], [4, 5, 0]], i32)
bits = rng.integers(0, 256, (6, 32)).astype(np.uint8)
# operator (# a variant, @ for ai.onnx) -> inputs (the first is fed, the others are constant),
# attributes, outputs
CASES: dict[str, tuple[list[Any], dict[str, Any], Any]] = {
    "Gelu": ([f(2, 5)], {}, 1),
    "FastGelu": ([f(2, 5), f(5)], {}, 1),
    "BiasGelu": ([f(2, 5), f(5)], {}, 1),
    "QuickGelu": ([f(2, 5)], {"alpha": 1.3}, 1),
    "CDist": ([f(4, 3), f(5, 3)], {"metric": "euclidean"}, 1),
    "ExpandDims": ([f(2, 3), np.array(1, np.int32)], {}, 1),
    "FusedMatMul": ([f(2, 3, 4), f(2, 5, 4)], {"transB": 1, "alpha": 0.5}, 1),
    "FusedMatMul#b": ([f(3, 2, 4), f(2, 4, 5)], {"transBatchA": 1}, 1),
    "FusedMatMul#c": (
        [f(3, 4, 2, 5), f(4, 2, 3, 6)],
        {"transBatchA": 1, "transA": 1, "transBatchB": 0},
        1,
    ),
    "FusedGemm": (
        [f(3, 4), f(4, 5), f(5)],
        {"activation": "LeakyRelu", "activation_alpha": 0.3},
        1,
    ),
    "FusedConv": ([f(1, 3, 7, 7), f(4, 3, 3, 3), f(4), f(1, 4, 5, 5)], {"activation": "Relu"}, 1),
    "FusedConv#c": (
        [f(1, 3, 7, 7), f(4, 3, 3, 3), f(4)],
        {
            "activation": "Clip",
            "activation_params": [-0.5, 0.7],
            "auto_pad": "SAME_UPPER",
            "strides": [2, 2],
        },
        1,
    ),
    "SimplifiedLayerNormalization@": ([f(2, 3, 8), f(8)], {"epsilon": 1e-3, "axis": -1}, 1),
    "SkipLayerNormalization": ([f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)], {"epsilon": 1e-3}, 4),
    "SkipSimplifiedLayerNormalization": (
        [f(2, 3, 8), f(2, 3, 8), f(8)],
        {"epsilon": 1e-3},
        (1, 0, 0, 1),
    ),
    "EmbedLayerNormalization": (
        [
            np.array([[1, 2, 3], [4, 5, 0]], np.int32),
            np.array([[0, 1, 1], [0, 0, 1]], np.int32),
            f(7, 8),
            f(5, 8),
            f(2, 8),
            f(8),
            f(8),
            np.array([[1, 1, 0], [1, 1, 1]], np.int32),
        ],
        {},
        2,
    ),
    "NhwcMaxPool": (
        [i8(1, 8, 8, 3)],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        1,
    ),
    "CropAndResize": (
        [
            f(2, 3, 8, 9),
            S([[0.1, 0.2, 0.8, 0.9], [0.3, 0, 1.2, 0.7]]),
            np.array([0, 1], np.int32),
            np.array([4, 5], np.int32),
        ],
        {"extrapolation_value": -1.5},
        1,
    ),
    "CropAndResize#n": (
        [
            f(2, 3, 8, 9),
            S([[0.1, 0.2, 0.8, 0.9], [0.3, 0, 1.2, 0.7]]),
            np.array([0, 1], np.int32),
            np.array([4, 1], np.int32),
        ],
        {"mode": "nearest"},
        1,
    ),
    "Inverse": ([f(2, 4, 4)], {}, 1),
    "GridSample": (
        [f(1, 2, 5, 5), np.clip(f(1, 4, 4, 2), -1.2, 1.2)],
        {"mode": "bilinear", "padding_mode": "border", "align_corners": 1},
        1,
    ),
    "QLinearAdd": ([u8(2, 5), S(0.02), Z(100), u8(2, 5), S(0.03), Z(128), S(0.05), Z(120)], {}, 1),
    "QLinearMul": ([u8(2, 5), S(0.02), Z(100), u8(2, 5), S(0.03), Z(128), S(0.05), Z(120)], {}, 1),
    "QLinearSigmoid": ([u8(2, 50), S(0.05), Z(100), S(1 / 256), Z(0)], {}, 1),
    "QLinearLeakyRelu": ([u8(2, 50), S(0.05), Z(100), S(0.05), Z(30)], {"alpha": 0.2}, 1),
    "QLinearSoftmax": ([u8(2, 10), S(0.05), Z(100), S(1 / 256), Z(0)], {"axis": 1, "opset": 13}, 1),
    "QLinearAveragePool": (
        [u8(1, 3, 8, 8), S(0.05), Z(100), S(0.04), Z(90)],
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        1,
    ),
    "QLinearAveragePool#l": (
        [u8(1, 8, 8, 3), S(0.05), Z(100), S(0.04), Z(90)],
        {"kernel_shape": [2, 2], "strides": [2, 2], "channels_last": 1},
        1,
    ),
    "QLinearGlobalAveragePool": (
        [u8(1, 3, 8, 8), S(0.05), Z(100), S(0.02), Z(90)],
        {"channels_last": 0},
        1,
    ),
    "QLinearConcat": (
        [S(0.04), Z(90), u8(2, 3), S(0.05), Z(100), u8(2, 4), S(0.03), Z(80)],
        {"axis": 1},
        1,
    ),
    "QLinearWhere": (
        [
            np.array([[True, False, True]]),
            u8(2, 3),
            S(0.05),
            Z(100),
            u8(2, 3),
            S(0.03),
            Z(80),
            S(0.05),
            Z(90),
        ],
        {},
        1,
    ),
    "QGemm": (
        [
            u8(3, 8),
            S(0.02),
            Z(110),
            i7(8, 5),
            S(0.01),
            Z(0, np.int8),
            rng.integers(-500, 500, 5).astype(np.int32),
            S(0.05),
            Z(120),
        ],
        {},
        1,
    ),
    "QGemm#f": (
        [
            u8(3, 8),
            S(0.02),
            Z(110),
            i7(5, 8),
            f(5) ** 2 + 0.01,
            np.zeros(5, np.int8),
            rng.integers(-500, 500, 5).astype(np.int32),
        ],
        {"transB": 1},
        1,
    ),
    "DynamicQuantizeMatMul": ([f(3, 8), u8(8, 5), S(0.02), Z(120), f(5)], {}, 1),
    "DynamicQuantizeMatMul#c": ([f(3, 8), i7(8, 5), f(5) ** 2 + 0.01, i8(5)], {}, 1),
    "MatMulIntegerToFloat": ([u8(3, 8), u8(8, 5), S(0.02), S(0.03), Z(100), Z(120), f(5)], {}, 1),
    "MatMulNBits": (
        [f(3, 40), u8(6, 3, 8), f(6 * 3)],
        {"K": 40, "N": 6, "bits": 4, "block_size": 16},
        1,
    ),
    "MatMulNBits#z": (
        [f(3, 64), u8(6, 4, 8), f(6 * 4), u8(6 * 2)],
        {"K": 64, "N": 6, "bits": 4, "block_size": 16},
        1,
    ),
    "MatMulNBits#8": (
        [f(3, 64), u8(6, 2, 32), f(6 * 2), u8(6 * 2)],
        {"K": 64, "N": 6, "bits": 8, "block_size": 32},
        1,
    ),
    "MatMulNBits#f": (
        [f(3, 64), u8(6, 4, 8), f(6 * 4), np.abs(f(6 * 4))],
        {"K": 64, "N": 6, "bits": 4, "block_size": 16},
        1,
    ),
    "Attention": ([f(2, 5, 8), f(8, 24), f(24)], {"num_heads": 2}, 1),
    "Attention#m": (
        [f(2, 5, 8), f(8, 24), f(24), np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)],
        {"num_heads": 2},
        1,
    ),
    "Attention#l": (
        [f(2, 5, 8), f(8, 24), f(24), np.array([3, 5], np.int32)],
        {"num_heads": 2, "scale": 0.3},
        1,
    ),
    "Attention#u": ([f(2, 5, 8), f(8, 24), f(24)], {"num_heads": 2, "unidirectional": 1}, 1),
    "Attention#p": (
        [f(2, 5, 8), f(8, 24), f(24), None, f(2, 2, 2, 3, 4)],
        {"num_heads": 2, "unidirectional": 1},
        2,
    ),
    "Attention#q": (
        [f(2, 5, 8), f(8, 28), f(28)],
        {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 12]},
        1,
    ),
    "Attention#b": ([f(2, 5, 8), f(8, 24), f(24), None, None, f(2, 2, 5, 5)], {"num_heads": 2}, 1),
    "MultiHeadAttention": ([f(2, 5, 8), f(2, 6, 8), f(2, 6, 8)], {"num_heads": 2}, 1),
    "MultiHeadAttention#b": (
        [
            f(2, 5, 8),
            f(2, 6, 8),
            f(2, 6, 8),
            f(24),
            np.array([[1, 1, 1, 1, 0, 0], [1] * 6], np.int32),
        ],
        {"num_heads": 2},
        1,
    ),
    "MultiHeadAttention#p": (
        [
            f(2, 5, 8),
            f(2, 5, 8),
            f(2, 5, 8),
            None,
            None,
            f(1, 2, 5, 8),
            f(2, 2, 3, 4),
            f(2, 2, 3, 4),
        ],
        {"num_heads": 2},
        3,
    ),
    "MultiHeadAttention#x": ([f(2, 5, 8), f(2, 2, 6, 4), f(2, 2, 6, 4)], {"num_heads": 2}, 1),
    "RotaryEmbedding": (
        [f(2, 4, 5, 8), np.array([[0, 1, 2, 3, 4], [2, 3, 4, 5, 6]]), f(10, 4), f(10, 4)],
        {},
        1,
    ),
    "RotaryEmbedding#i": ([f(2, 5, 32), np.array([2]), f(10, 4), f(10, 4)], {"interleaved": 1}, 1),
    "RotaryEmbedding#p": (
        [f(2, 4, 5, 8), np.array([[0, 1, 2, 3, 4], [2, 3, 4, 5, 6]]), f(10, 2), f(10, 2)],
        {"rotary_embedding_dim": 4, "num_heads": 4},
        1,
    ),
    "Trilu": ([f(4, 4)], {"upper": 0}, 1),
    "Pad": ([f(2, 3), np.array([1, 0, 0, 2])], {}, 1),
    "DequantizeLinear": (
        [rng.integers(0, 65535, (2, 3)).astype(np.uint16), S(0.1), Z(3, np.uint16)],
        {},
        1,
    ),
    "QuantizeLinear": ([f(2, 3), S(0.01), Z(3, np.uint16)], {}, 1),
    "GroupQueryAttention#int8": eight_bit_cache("PER_TENSOR"),
    "GroupQueryAttention#channels": eight_bit_cache("PER_CHANNEL", rotary=True),
    "MoE": (
        [f(5, 16), f(5, 4), f(4, 32, 16), f(4, 32), f(4, 16, 32), f(4, 16)],
        {"k": 2, "activation_type": "silu"},
        1,
    ),
    "MoE#normalized": (
        [f(1, 5, 16), f(5, 4), f(4, 32, 16), None, f(4, 16, 32)],
        {"k": 2, "activation_type": "gelu", "normalize_routing_weights": 1},
        1,
    ),
    "MoE#swiglu": (
        [f(5, 16), f(5, 4), f(4, 64, 16), f(4, 64), f(4, 16, 32), f(4, 16)],
        {**GPT_OSS, "swiglu_limit": 7.0, "normalize_routing_weights": 1},
        1,
    ),
    "QMoE": (
        [
            *(f(5, 32), f(5, 4), u8(4, 64, 16), small(4, 64), f(4, 64), u8(4, 32, 16)),
            *(small(4, 32), f(4, 32)),
        ],
        {**GPT_OSS, "expert_weight_bits": 4},
        1,
    ),
    "QMoE#8": ([f(5, 32), f(5, 4), *EXPERTS_8], {**BITS_8, "normalize_routing_weights": 1}, 1),
    "QMoE#router": (
        [f(5, 32), f(5, 4), *EXPERTS_8, *[None] * 7, np.abs(f(5, 4))],
        BITS_8,
        1,
    ),
    "QMoE#blocks": (
        [
            *(f(5, 32), f(5, 4), u8(4, 64, 16), small(4, 64, 2), None, u8(4, 32, 16)),
            *(small(4, 32, 2), None, None, None, None, u8(4, 64, 1), u8(4, 32, 1)),
        ],
        {**SWIGLU, "expert_weight_bits": 4, "block_size": 16},
        1,
    ),
    "MoEGroupRouter": (
        [f(5, 8), f(8)],
        {"top_k": 3, "n_group": 4, "topk_group": 2, "group_topk": 2},
        1,
    ),
    "LinearAttention": (
        [
            *(f(2, 3, 32), f(2, 3, 32), f(2, 3, 24), f(2, 4, 8, 6)),
            *(-np.abs(f(2, 3, 4)), np.abs(f(2, 3, 4))),
        ],
        {"q_num_heads": 4, "kv_num_heads": 4},
        2,
    ),
    "LinearAttention#gated": (
        [f(2, 3, 32), f(2, 3, 16), f(2, 3, 12), None, -np.abs(f(2, 3, 16))],
        {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "gated"},
        2,
    ),
    "LinearAttention#one": (
        [f(1, 1, 32), f(1, 1, 32), f(1, 1, 32), f(1, 4, 8, 8)],
        {"q_num_heads": 4, "kv_num_heads": 4, "update_rule": "linear", "scale": 0.5},
        2,
    ),
    "LinearAttention#delta": (
        [
            *(f(1, 4, 16), f(1, 4, 32), f(1, 4, 32), f(1, 4, 8, 8), None),
            np.abs(f(1, 4, 1)),
        ],
        {"q_num_heads": 2, "kv_num_heads": 4, "update_rule": "delta"},
        2,
    ),
    "LinearAttentionGate": ([f(2, 3, 4), f(4), -np.abs(f(4)), f(2, 3, 4)], {}, 2),
    "GatedDeltaNet": (
        [
            *(f(6, 2, 8), f(6, 2, 8), f(6, 4, 5), None),
            *(-np.abs(f(6, 4)), np.abs(f(6, 4)), f(2, 4, 5, 8)),
        ],
        {},
        2,
    ),
    "GatedDeltaNet#softplus": (
        [
            *(f(2, 3, 2, 8), f(2, 3, 2, 8), f(2, 3, 4, 5), None, f(2, 3, 4), f(2, 3, 4)),
            *(f(2, 4, 5, 8), f(4), f(4)),
        ],
        {"qk_l2_norm": 1, **GATED},
        2,
    ),
    "GatedDeltaNet#sigmoid": (
        [
            *(f(2, 3, 2, 8), f(2, 3, 2, 8), f(2, 3, 4, 5), None, f(2, 3, 4, 8), f(2, 3, 4)),
            *(f(2, 4, 5, 8), f(4), f(4, 8)),
        ],
        {**GATED, "gate_activation": "sigmoid"},
        2,
    ),
    "BranchwiseRMSNorm": ([f(2, 3, 8), f(8)], {}, 1),
    "BranchwiseRMSNorm#flat": ([f(2, 24), f(24)], {"num_branches": 3, "epsilon": 1e-3}, 1),
    "MRotaryEmbedding": (
        [f(2, 3, 64), rng.integers(0, 9, (3, 2, 3)), f(16, 4), f(16, 4)],
        {"mrope_section": [2, 1, 1], "rotary_embedding_dim": 8, "num_heads": 4},
        1,
    ),
    "MRotaryEmbedding#interleaved": (
        [f(2, 4, 3, 16), rng.integers(0, 9, (3, 2, 3)), f(16, 8), f(16, 8)],
        {"mrope_section": [4, 2, 2], "mrope_layout": 1, "interleaved": 1},
        1,
    ),
    "GroupQueryAttention#prompt": cached(2, 5, 4, 2, 0, [5, 5]),
    "GroupQueryAttention#rotary": cached(1, 5, 4, 2, 0, [5], rotary=True),
    "GroupQueryAttention#step": cached(1, 1, 4, 2, 6, [7], rotary=True),
    "GroupQueryAttention#steps": cached(2, 1, 4, 2, 6, [7, 7], rotary=True, rotary_interleaved=1),
    "GroupQueryAttention#packed": cached(1, 1, 4, 2, 6, [7], rotary=True, packed=True),
    "GroupQueryAttention#chunk": cached(1, 3, 4, 2, 6, [9], rotary=True),
    "GroupQueryAttention#window": cached(1, 6, 4, 4, 0, [6], local_window_size=3),
    "GroupQueryAttention#window_step": cached(1, 1, 4, 4, 6, [7], local_window_size=3),
    "GroupQueryAttention#cap": cached(1, 1, 4, 4, 6, [7], softcap=2.0, scale=0.5),
    "GroupQueryAttention#smooth": cached(1, 4, 4, 4, 0, [4], smooth_softmax=1),
    "GroupQueryAttention#bias": cached(1, 1, 4, 2, 6, [7], more=[None, f(1, 4, 1, 7)]),
    "GroupQueryAttention#sink": cached(1, 4, 4, 4, 0, [4], more=[None, None, f(4)]),
    "QAttention": (
        [u8(2, 5, 8), i7(8, 24), f(24), S(0.02), S(0.01), None, Z(110), Z(0, np.int8)],
        {"num_heads": 2},
        1,
    ),
    "QAttention#m": (
        [u8(2, 5, 8), u8(8, 24), f(24), S(0.02), S(0.01), np.array([3, 5], i32), Z(110), Z(120)],
        {"num_heads": 2, "unidirectional": 1},
        1,
    ),
    "QLinearConv#l": (
        [
            u8(1, 7, 7, 3),
            S(0.03),
            Z(120),
            i7(4, 3, 3, 3),
            S(0.02),
            Z(0, np.int8),
            S(0.1),
            Z(100),
            rng.integers(-99, 99, 4).astype(i32),
        ],
        {"channels_last": 1, "pads": [1, 1, 1, 1]},
        1,
    ),
    "MatMulBnb4#f": (
        [f(3, 64), bits.reshape(-1), np.abs(f(6))],
        {"K": 64, "N": 6, "block_size": 64, "quant_type": 0},
        1,
    ),
    "MatMulBnb4#n": (
        [f(3, 64), bits.reshape(-1), np.abs(f(12))],
        {"K": 64, "N": 6, "block_size": 32, "quant_type": 1},
        1,
    ),
    "MatMulInteger16": (
        [
            rng.integers(-900, 900, (3, 8)).astype(np.int16),
            rng.integers(-900, 900, (8, 4)).astype(np.int16),
        ],
        {},
        1,
    ),
    "QEmbedLayerNormalization": (
        [
            words,
            words % 2,
            u8(7, 8),
            u8(5, 8),
            u8(2, 8),
            u8(8),
            u8(8),
            None,
            *(S(0.01 * i) for i in range(1, 6)),
            *(Z(100 + i) for i in range(5)),
        ],
        {},
        2,
    ),
    "Range": ([S(1), S(5), S(0.5)], {}, 1),
    "SampleOp": ([f(2, 3)], {}, 1),
    "UnfoldTensor": ([f(2, 3, 9)], {"dim": 2, "size": 4, "step": 2}, 1),
    "UnfoldTensor#a": ([f(2, 7, 3)], {"dim": 1, "size": 3, "step": 1}, 1),
    "ScaledSiLU": ([f(2, 9)], {"alpha": 1.7}, 1),
    "GatedAdd": ([f(2, 3, 8), f(2, 3, 8), f(2, 3, 1)], {}, 1),
    "GatedRMSNorm": ([f(2, 3, 8), f(4), f(2, 3, 8)], {"epsilon": 1e-3}, 1),
    "CausalConvWithState": ([f(2, 3, 7), f(3, 1, 4), f(3), f(2, 3, 3)], {"activation": "silu"}, 2),
}


LOOSE: dict[str, Any] = {
    "GatherBlockQuantized": (
        [bits[:, :16], np.array([[1, 5, 0]]), f(6, 2), bits[:, -1:]],
        {"block_size": 16, "bits": 4},
        1,
    ),
    "GatherBlockQuantized#8": ([bits, np.array([2, 3]), f(6, 2)], {"block_size": 16, "bits": 8}, 1),
}


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def conv(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Channels-last data, plain filters, nothing around."""
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(1, 2))
    return np.einsum("nyxcij,ocij->nyxo", windows, w)


def pairs(x: np.ndarray) -> np.ndarray:
    return np.stack([x.real, x.imag], axis=-1)


def nibbles(data: np.ndarray) -> np.ndarray:
    return np.stack([data & 15, data >> 4], axis=-1).reshape(*data.shape[:-1], -1)


def fours(data: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """4-bit weights in blocks of 16, lowest bits first, as they are multiplied."""
    centered = nibbles(data).astype(np.float32) - 8
    return (centered * scales[..., None]).reshape(len(data), -1).T


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
rows32, skip32, norm32 = f(3, 32), f(3, 32), f(32)
summed = rows32 + skip32
normal = summed / np.sqrt((summed**2).mean(-1, keepdims=True) + 1e-5) * norm32
packs = [(u8(8, 2, 8), small(8, 2), f(8)) for _ in range(3)]
BLOCKS = {"K": 32, "block_size": 16, "bits": 4}
half_rows = f(3, 32).astype(np.float16)
fp8 = f(4, 32).astype(ml_dtypes.float8_e4m3fn)
fp4, fp4_scales = u8(4, 16), small(4, 2).astype(ml_dtypes.float8_e4m3fn)
fp4_real = np.concatenate([E2M1, -E2M1])[nibbles(fp4)].reshape(4, 2, 16)
fp4_real = (fp4_real * fp4_scales.astype(np.float32)[..., None] * 0.5).reshape(4, 32)
fp8_scales = small(4, 2)
fp8_real = fp8.astype(np.float32) * np.repeat(fp8_scales, 16, axis=1)
angles, states = f(2, 3, 8), [f(2, 4, 3, 8) for _ in range(4)]
turn = [np.cos(angles)[:, None], np.sin(angles)[:, None]]
x, w, c, d = f(2, 6, 7, 4), f(3, 4, 3, 3), f(2, 5, 2), f(2, 5, 2)
left, right, real, a8, b8 = f(2, 3), f(3, 4), f(4, 8), u8(2, 3), u8(2, 3)
parts = [v[..., 0] + 1j * v[..., 1] for v in (c, d)]
# no kernel of onnxruntime's CPU provider computes these: (case, the result by the
# documentation)
FORMULAS: dict[str, Any] = {
    "NhwcConv": (([x, w], {}, 1), [conv(x, w)]),
    "NhwcFusedConv": (
        ([x, w, f(3) * 0, np.ones((2, 4, 5, 3), np.float32)], {"activation": "Relu"}, 1),
        [np.maximum(conv(x, w) + 1, 0)],
    ),
    "SwiGLU": (
        ([real, real[::-1].copy()], {"activation_alpha": 1.5, "limit": 0.5}, 1),
        [
            (g := np.minimum(real, 0.5)) / (1 + np.exp(-1.5 * g)) * real[::-1].clip(-0.5, 0.5),
        ],
    ),
    "SwiGLU#halves": (([real], {}, 1), [silu(real[:, :4]) * real[:, 4:]]),
    "MatMulNBitsMlp": (
        (
            [rows32, skip32, norm32, *packs[0], *packs[1]],
            {**BLOCKS, "N": 8, "activation": "silu"},
            2,
        ),
        [
            silu(normal @ fours(*packs[0][:2]) + packs[0][2])
            * (normal @ fours(*packs[1][:2]) + packs[1][2]),
            summed,
        ],
    ),
    "MatMulNBitsQkv": (
        (
            [rows32, skip32, norm32, *packs[0], *packs[1], *packs[2]],
            {**BLOCKS, "Nq": 8, "Nkv": 8},
            4,
        ),
        [*(normal @ fours(*p[:2]) + p[2] for p in packs), summed],
    ),
    "MatMulBlockQuantizedFp8Weight": (
        ([half_rows, fp8, fp8_scales], {"block_size": 16}, 1),
        [(half_rows @ fp8_real.astype(np.float16).T)],
    ),
    "MatMulBlockQuantizedFp4Weight": (
        ([half_rows, fp4, fp4_scales.view(np.uint8), S(0.5)], {}, 1),
        [(half_rows @ fp4_real.astype(np.float16).T)],
    ),
    "GemmaRotaryEmbedding": (
        ([angles, *states], {}, 2),
        [states[i] * turn[0] + states[i + 1] * turn[1] for i in (0, 2)],
    ),
    "GemmFastGelu": (([left, right], {}, 1), [gelu(left @ right)]),
    "FusedMatMulActivation": (
        ([left, right.T.copy()], {"transB": 1, "alpha": 2.0, "activation": "Relu"}, 1),
        [np.maximum(2 * left @ right, 0)],
    ),
    "ComplexMul": (([c, d], {}, 1), [pairs(parts[0] * parts[1])]),
    "ComplexMulConj": (([c, d], {}, 1), [pairs(parts[0] * parts[1].conj())]),
    "Rfft": (
        ([real], {"signal_ndim": 1, "normalized": 0, "onesided": 1}, 1),
        [pairs(np.fft.rfft(real))],
    ),
    "Irfft": (
        (
            [pairs(np.fft.rfft(real)).astype(np.float32)],
            {"signal_ndim": 1, "normalized": 0, "onesided": 1},
            1,
        ),
        [real],
    ),
    "IsAllFinite": (([left, S([1, np.inf])], {}, 1), [np.array(False)]),
    "IsAllFinite#n": (([left, S([1, np.inf])], {"isnan_only": 1}, 1), [np.array(True)]),
    "MulInteger": (
        ([a8, Z(100), b8, Z(90)], {}, 1),
        [(a8.astype(i32) - 100) * (b8.astype(i32) - 90)],
    ),
    "ReduceSumInteger": (([a8], {"axes": [1], "keepdims": 0}, 1), [a8.astype(i32).sum(1)]),
    "BiasDropout": (([left, right[:, 0].copy(), left], {}, 1), [left + right[:, 0] + left]),
    "SkipGroupNorm": (
        ([x, np.ones(4, np.float32), np.zeros(4, np.float32), -x], {"groups": 2}, 2),
        [x * 0, x * 0],
    ),
}


def table(queries: int, keys: int, buckets: int, furthest: int, both: bool) -> np.ndarray:
    """The bucket of each distance as T5 counts it, one by one."""
    result = np.zeros((queries, keys), np.int64)
    for i in range(queries):
        for j in range(keys):
            distance, count, base = j - i, buckets, 0
            if both:
                count //= 2
                base, distance = (count if distance > 0 else 0), abs(distance)
            else:
                distance = max(-distance, 0)
            half = count // 2
            far = half + int(
                np.log(max(distance, 1) / half) / np.log(furthest / half) * (count - half)
            )
            result[i, j] = base + (distance if distance < half else min(far, count - 1))
    return result


weights = f(16, 3)
for both in (False, True):
    FORMULAS[f"RelativePositionBias#{both}"] = (
        (
            [weights, np.array([20]), np.array([20])],
            {"max_distance": 18, "is_bidirectional": int(both)},
            1,
        ),
        [weights[table(20, 20, 16, 18, both)].transpose(2, 0, 1)[None]],
    )


def proto_of(
    key: str, cases: dict[str, Any] | None = None, fed: int = 0
) -> tuple[onnx.ModelProto, np.ndarray]:
    inputs, attributes, outputs = (CASES if cases is None else cases)[key]
    kind, domain = key.split("#")[0], "com.microsoft"
    if kind.endswith("@"):
        kind, domain = kind[:-1], ""
    wanted = (1,) * outputs if isinstance(outputs, int) else outputs
    names = [
        "" if x is None else f"i{i - fed}" if i >= fed else f"c{i}" for i, x in enumerate(inputs)
    ]
    results = [f"o{i}" if w else "" for i, w in enumerate(wanted)]
    feed = helper.make_tensor_value_info(
        "i0", helper.np_dtype_to_tensor_dtype(inputs[fed].dtype), inputs[fed].shape
    )
    constants = [
        numpy_helper.from_array(x, n)
        for i, (x, n) in enumerate(zip(inputs, names, strict=True))
        if x is not None and i != fed
    ]
    node = helper.make_node(kind, names, results, domain=domain, **attributes)
    graph = helper.make_graph(
        [node], "g", [feed], [onnx.ValueInfoProto(name=r) for r in results if r], constants
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), inputs[fed]


@pytest.mark.parametrize("key", CASES)
def test_against_the_kernel(key: str) -> None:
    against_the_kernel(*proto_of(key))


def against_the_kernel(proto: onnx.ModelProto, x: np.ndarray) -> None:
    model = lift(proto, TensorFiles(Path("model.onnx")))
    assert violations(model.ir) == []
    expected = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, {"i0": x})
    for wanted, found in zip(expected, engines.run(model, {"i0": x}).values(), strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        step = 0 if wanted.dtype.kind == "f" else 1  # a quantized result may round the other way
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), rtol=1e-4, atol=max(2e-4, step)
        )


@pytest.mark.parametrize("key", LOOSE)
def test_tables_are_constant(key: str) -> None:
    against_the_kernel(*proto_of(key, LOOSE, fed=1))


@pytest.mark.parametrize("key", FORMULAS)
def test_against_the_formula(key: str) -> None:
    case, wanted = FORMULAS[key]
    proto, data = proto_of(key, {key: case})
    for expected, found in zip(
        wanted,
        engines.run(lift(proto, TensorFiles(Path("model.onnx"))), {"i0": data}).values(),
        strict=True,
    ):
        assert found.shape == expected.shape
        np.testing.assert_allclose(
            found.astype(np.float64), expected.astype(np.float64), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("target", ["onnx+opset=13", "openvino", "nnapi", "coreml"])
def test_blocks_of_four_bits_through_formats(target: str, tmp_path: Path) -> None:
    proto, data = proto_of("MatMulNBits#z")
    onnx.save(proto, tmp_path / "in.onnx")
    path = (
        tmp_path
        / {
            "onnx": "out.onnx",
            "openvino": "out.xml",
            "nnapi": "out.nnapi.json",
            "coreml": "out.mlmodel",
        }[target.split("+")[0]]
    )
    converter.convert(tmp_path / "in.onnx", path, target=target)
    (wanted,) = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, {"i0": data})
    model = converter.load(path)
    (found,) = model.run({model.inputs[0].name: data}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


def test_group_norm_by_its_formula() -> None:
    """onnxruntime has no CPU kernel for it."""
    x, gamma, beta = f(2, 4, 5, 8), f(8), f(8)
    attributes = {"groups": 2, "activation": 1, "epsilon": 1e-3}
    proto, _ = proto_of("GroupNorm", {"GroupNorm": ([x, gamma, beta], attributes, 1)})
    groups = x.reshape(2, 20, 2, 4).astype(np.float64)
    centered = groups - groups.mean((1, 3), keepdims=True)
    y = (centered / np.sqrt((centered**2).mean((1, 3), keepdims=True) + 1e-3)).reshape(
        x.shape
    ) * gamma + beta
    (found,) = engines.run(lift(proto, TensorFiles(Path("model.onnx"))), {"i0": x}).values()
    np.testing.assert_allclose(found, y / (1 + np.exp(-y)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("new", "past"), [(1, 39), (20, 0)])
def test_sparse_attention(new: int, past: int) -> None:
    """onnxruntime's kernel wants past and present in the same memory."""
    starts = np.array([[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]], i32)
    columns = np.array([[0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3]], i32)
    feeds = {
        "q": f(1, new, 64), "k": f(1, new, 32), "v": f(1, new, 32),
        "pk": f(1, 2, 64, 16), "pv": f(1, 2, 64, 16),
    }  # fmt: skip
    more = {"rows": starts, "cols": columns, "total": Z(new + past, i32)}
    more |= {"lengths": np.array([new + past], i32), "cos": f(64, 8), "sin": f(64, 8)}
    node = helper.make_node(
        "SparseAttention",
        [*feeds, *more],
        ["y", "nk", "nv"],
        domain="com.microsoft",
        num_heads=4,
        kv_num_heads=2,
        sparse_block_size=16,
        do_rotary=1,
    )
    ports = [helper.make_tensor_value_info(n, 1, x.shape) for n, x in feeds.items()]
    outputs = [onnx.ValueInfoProto(name=n) for n in ("y", "nk", "nv")]
    constants = [numpy_helper.from_array(x, n) for n, x in more.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", ports, outputs, constants)
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    binding = session.io_binding()
    held = {n: onnxruntime.OrtValue.ortvalue_from_numpy(x.copy()) for n, x in feeds.items()}
    for name, value in held.items():
        binding.bind_ortvalue_input(name, value)
    for name, past_name in (("nk", "pk"), ("nv", "pv")):
        binding.bind_ortvalue_output(name, held[past_name])
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    found = engines.run(lift(proto, TensorFiles(Path("model.onnx"))), feeds)
    results = {"nk": held["pk"].numpy(), "nv": held["pv"].numpy()}
    results["y"] = next(v.numpy() for v in binding.get_outputs() if v.shape() == [1, new, 64])
    for name, value in results.items():
        rows = slice(None) if name == "y" else (slice(None), slice(None), slice(0, new + past))
        np.testing.assert_allclose(found[name][rows], value[rows], rtol=1e-4, atol=1e-4)


def test_paged_attention_is_refused_with_a_way_out() -> None:
    proto, _ = proto_of("PagedAttention", {"PagedAttention": ([f(2, 2)], {}, 1)})
    with pytest.raises(UnsupportedError) as refused:
        lift(proto, TensorFiles(Path("model.onnx")))
    assert "GroupQueryAttention" in refused.value.diagnostics[0].help


def test_an_operator_without_a_row_is_refused_by_name() -> None:
    proto, _ = proto_of("BeamSearch", {"BeamSearch": ([f(2, 2)], {}, 1)})
    with pytest.raises(UnsupportedError, match=r"BeamSearch of the domain com\.microsoft"):
        lift(proto, TensorFiles(Path("model.onnx")))


def test_rows_are_tested() -> None:
    of_their_own = {"DynamicQuantizeLSTM", "SparseAttention"}
    without_kernel = {"BiasSplitGelu", "BiasSoftmax", "GroupNorm", "BiasAdd"}
    spellings = {
        "TransposeMatMul",
        "TorchEmbedding",
        "GatherND",
        "LayerNormalization",
        "Unique",
        "QLinearReduceMean",
    }
    tested = {k.split("#")[0].rstrip("@") for k in (*CASES, *FORMULAS, *LOOSE)}
    assert sorted(set(rows().table) - tested - without_kernel - spellings - of_their_own) == []
