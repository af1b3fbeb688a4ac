"""com.microsoft operators around caches, blocks and quantised weights, against onnxruntime's
kernels, and against formulas where it has none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from test_onnx_microsoft import CASES as NIBBLES
from test_onnx_microsoft import S, Z, against_the_kernel, f, i7, proto_of, rng, u8

import converter
from converter import engines
from converter.formats.onnx.codec import Weights
from converter.formats.onnx.lift import lift

i32 = np.int32


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


words = np.array([[1, 2, 3], [4, 5, 0]], i32)
bits = rng.integers(0, 256, (6, 32)).astype(np.uint8)
CASES: dict[str, Any] = {
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


zeros = np.zeros(1, np.uint8)
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


x, w, c, d = f(2, 6, 7, 4), f(3, 4, 3, 3), f(2, 5, 2), f(2, 5, 2)
left, right, rows, a8, b8 = f(2, 3), f(3, 4), f(4, 8), u8(2, 3), u8(2, 3)
parts = [v[..., 0] + 1j * v[..., 1] for v in (c, d)]
# no kernel of onnxruntime's CPU provider computes these: (case, what comes out by the
# documentation)
FORMULAS: dict[str, Any] = {
    "NhwcConv": (([x, w], {}, 1), [conv(x, w)]),
    "NhwcFusedConv": (
        ([x, w, f(3) * 0, np.ones((2, 4, 5, 3), np.float32)], {"activation": "Relu"}, 1),
        [np.maximum(conv(x, w) + 1, 0)],
    ),
    "GemmFastGelu": (([left, right], {}, 1), [gelu(left @ right)]),
    "FusedMatMulActivation": (
        ([left, right.T.copy()], {"transB": 1, "alpha": 2.0, "activation": "Relu"}, 1),
        [np.maximum(2 * left @ right, 0)],
    ),
    "ComplexMul": (([c, d], {}, 1), [pairs(parts[0] * parts[1])]),
    "ComplexMulConj": (([c, d], {}, 1), [pairs(parts[0] * parts[1].conj())]),
    "Rfft": (
        ([rows], {"signal_ndim": 1, "normalized": 0, "onesided": 1}, 1),
        [pairs(np.fft.rfft(rows))],
    ),
    "Irfft": (
        (
            [pairs(np.fft.rfft(rows)).astype(np.float32)],
            {"signal_ndim": 1, "normalized": 0, "onesided": 1},
            1,
        ),
        [rows],
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


@pytest.mark.parametrize("key", CASES)
def test_against_the_kernel(key: str) -> None:
    against_the_kernel(*proto_of(key, CASES))


@pytest.mark.parametrize("key", LOOSE)
def test_tables_are_constant(key: str) -> None:
    against_the_kernel(*proto_of(key, LOOSE, fed=1))


@pytest.mark.parametrize("key", FORMULAS)
def test_against_the_formula(key: str) -> None:
    case, wanted = FORMULAS[key]
    proto, data = proto_of(key, {key: case})
    for expected, found in zip(
        wanted,
        engines.run(lift(proto, Weights(Path("model.onnx"))), {"i0": data}).values(),
        strict=True,
    ):
        assert found.shape == expected.shape
        np.testing.assert_allclose(
            found.astype(np.float64), expected.astype(np.float64), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("target", ["onnx+opset=13", "openvino", "nnapi", "coreml"])
def test_blocks_of_four_bits_through_formats(target: str, tmp_path: Path) -> None:
    proto, data = proto_of("MatMulNBits#z", NIBBLES)
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
