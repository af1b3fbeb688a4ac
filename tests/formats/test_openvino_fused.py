"""Operations that OpenVINO's own passes fuse: RoPE and RMS against the networks that its runtime
fuses to them, GatedDeltaNet and MOE against their definitions.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from converter.errors import ReadError, UnsupportedError

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def sizes(array: Array) -> str:
    return "".join(f"<dim>{n}</dim>" for n in array.shape)


def layer_alone(path: Path, kind: str, attrs: str, inputs: list[Array], count: int = 1) -> Path:
    """A file with one layer, whose outputs have the sizes of the first inputs."""
    layers, edges, last = [], [], len(inputs)
    names = {"float32": ("FP32", "f32"), "int64": ("I64", "i64")}
    for i, x in enumerate(inputs):
        precision, element = names[x.dtype.name]
        shape = ",".join(map(str, x.shape))
        layers.append(
            f'<layer id="{i}" name="p{i}" type="Parameter" version="opset1">'
            f'<data shape="{shape}" element_type="{element}"/><output>'
            f'<port id="0" precision="{precision}" names="p{i}">{sizes(x)}</port></output></layer>'
        )
        edges.append(f'<edge from-layer="{i}" from-port="0" to-layer="{last}" to-port="{i}"/>')
    given = "".join(f'<port id="{i}">{sizes(x)}</port>' for i, x in enumerate(inputs))
    made = ""
    for i in range(count):
        like = inputs[0] if count == 1 else inputs[2 + i]
        made += f'<port id="{last + i}" precision="FP32" names="o{i}">{sizes(like)}</port>'
        layers.append(
            f'<layer id="{last + 1 + i}" name="r{i}" type="Result" version="opset1">'
            f'<input><port id="0">{sizes(like)}</port></input></layer>'
        )
        ends = f'to-layer="{last + 1 + i}" to-port="0"'
        edges.append(f'<edge from-layer="{last}" from-port="{last + i}" {ends}/>')
    layers.append(
        f'<layer id="{last}" name="fused" type="{kind}" version="ie_internal_opset">'
        f"<data {attrs}/><input>{given}</input><output>{made}</output></layer>"
    )
    text = f"<layers>{''.join(layers)}</layers><edges>{''.join(edges)}</edges>"
    path.write_text(f'<?xml version="1.0"?><net name="m" version="11">{text}</net>')
    return path


def read(path: Path, kind: str, attrs: str, inputs: list[Array], count: int = 1) -> list[Array]:
    """The results of one layer."""
    model = converter.load(layer_alone(path, kind, attrs, inputs, count))
    feeds = {f"p{i}": x for i, x in enumerate(inputs) if f"p{i}" in {v.name for v in model.inputs}}
    return list(model.run(feeds).values())


def fused(model: Any, kind: str, inputs: list[Array]) -> Array:
    """The results of a network that the runtime fuses to one operation."""
    import openvino

    config = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(model, "CPU", config)
    kinds = {
        op.get_rt_info()["layerType"].astype(str) for op in compiled.get_runtime_model().get_ops()
    }
    if kind not in kinds:
        pytest.skip(f"this version of the runtime does not fuse to {kind}")
    return np.array(compiled(inputs)[0])


def test_rotary_embeddings(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    ops = openvino.opset13
    given = [drawn(1, 2, 3, 8), drawn(1, 1, 3, 8), drawn(1, 1, 3, 8)]
    x, cosine, sine = (ops.parameter(v.shape, openvino.Type.f32) for v in given)

    def part(start: int, stop: int) -> Any:
        return ops.slice(x, *(ops.constant([n]) for n in (start, stop, 1, 3)))

    minus = ops.constant(np.full((1, 1, 1, 1), -1, np.float32))
    turned = ops.concat([ops.multiply(part(4, 2**31 - 1), minus), part(0, 4)], -1)
    y = ops.add(ops.multiply(x, cosine), ops.multiply(turned, sine))
    expected = fused(openvino.Model([y], [x, cosine, sine]), "RoPE", given)
    attrs = 'rotary_ndims="8" cos_sin_ndims="8" is_interleaved="false" gather_position_arg_id="0"'
    (actual,) = read(tmp_path / "m.xml", "RoPE", attrs, given)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_rotary_embeddings_of_neighbors(tmp_path: Path) -> None:
    """Of [B,S,N,D] the first four are rotated in pairs, like complex numbers."""
    x, both = drawn(2, 3, 2, 6), drawn(2, 3, 4)
    turn = both[:, :, None, 2:] + 1j * both[:, :, None, :2]
    pairs = (x[..., 0:4:2] + 1j * x[..., 1:4:2]) * turn
    expected = np.concatenate(
        [np.stack([pairs.real, pairs.imag], -1).reshape(2, 3, 2, 4), x[..., 4:]], -1
    )
    attrs = 'config.rotary_ndims="4" config.is_interleaved="true" config.output_trans0213="true"'
    (actual,) = read(tmp_path / "m.xml", "RoPE", attrs, [x, both])
    np.testing.assert_allclose(actual, expected.transpose(0, 2, 1, 3), rtol=1e-5, atol=1e-6)


def by_angles(x: Array, cosine: Array, sine: Array) -> Array:
    """Rotate pairs [.., count, 2] as complex numbers."""
    turned = (x[..., 0] + 1j * x[..., 1]) * (cosine + 1j * sine)
    return np.stack([turned.real, turned.imag], -1).astype(np.float32)


def of_halves(x: Array, cosine: Array, sine: Array) -> Array:
    """Rotate the first numbers, whose cosines come twice."""
    count = cosine.shape[-1]
    pairs = np.stack([x[..., : count // 2], x[..., count // 2 : count]], -1)
    pairs = by_angles(pairs, cosine[..., : count // 2], sine[..., : count // 2])
    return np.concatenate([pairs[..., 0], pairs[..., 1], x[..., count:]], -1)


def angles(*shape: int) -> tuple[Array, Array]:
    """Cosines and sines, each twice."""
    given = drawn(*shape[:-1], shape[-1] // 2)
    twice = np.concatenate([given, given], -1)
    return np.cos(twice), np.sin(twice)


@pytest.mark.parametrize("rank", [2, 4])
def test_rotary_embeddings_of_gathered_positions(rank: int, tmp_path: Path) -> None:
    """Rows of the cosines [1,1,K,4] are chosen for each position, or each head and position."""
    x, (cosine, sine) = drawn(2, 3, 5, 6), angles(1, 1, 9, 4)
    positions = RNG.integers(0, 9, (2, 5) if rank == 2 else (2, 3, 5, 1))
    rows = positions[:, None] if rank == 2 else positions[..., 0]
    expected = of_halves(x, cosine[0, 0][rows], sine[0, 0][rows])
    attrs = 'config.rotary_ndims="4" config.gather_position_arg_id="3"'
    (actual,) = read(tmp_path / "m.xml", "RoPE", attrs, [x, cosine, sine, positions])
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gathered", [False, True])
def test_rotary_embeddings_of_packed_halves(gathered: bool, tmp_path: Path) -> None:
    """The keys of [B,S,3*N*D]; at the last S of K positions, or at given ones."""
    x, (cosine, sine) = drawn(2, 5, 3 * 2 * 6), angles(1, 9, 1, 4)
    positions = RNG.integers(0, 9, (2, 5)) if gathered else np.arange(4, 9)[None].repeat(2, 0)
    keys = x[..., 12:24].reshape(2, 5, 2, 6)
    rows = [f[0][positions] for f in (cosine, sine)]
    expected = of_halves(keys, *rows)
    attrs = 'is_qwen="true" head_cnt="2" head_size="6" slice_start="12" slice_stop="24" '
    attrs += f'rotary_ndims="4" gather_position_arg_id="{3 if gathered else 0}"'
    given = [x, cosine, sine, *([positions] if gathered else [])]
    (actual,) = read(tmp_path / "m.xml", "RoPE", attrs, given)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["length first", "images", "images without pairs"])
def test_rotary_embeddings_of_packed_neighbors(form: str, tmp_path: Path) -> None:
    """Of [S,B,3*N*D] or [B,S,3*N*D] the queries; pairs of cosines and sines, or two operands."""
    x, angle = drawn(5, 2, 3 * 2 * 6), drawn(5, 2 if form != "images without pairs" else 1, 2)
    angle = angle if form != "images without pairs" else angle[:, :, None]
    queries = x[..., :12].reshape(5, 2, 2, 6)
    pairs = queries[..., :4].reshape(5, 2, 2, 2, 2)
    over_heads = angle[:, :, None] if angle.ndim == 3 else angle
    turned = by_angles(pairs, np.cos(over_heads), np.sin(over_heads)).reshape(5, 2, 2, 4)
    expected = np.concatenate([turned, queries[..., 4:]], -1)
    given = [x, np.stack([np.cos(angle), np.sin(angle)], -1)]
    attrs = 'is_chatglm="true" head_cnt="2" head_size="6" slice_start="0" slice_stop="12" '
    attrs += 'rotary_ndims="4" '
    if form != "length first":
        expected = expected.transpose(0, 2, 1, 3)
        attrs += 'support_2d_rope="true" '
    if form == "images":
        attrs += 'use_rope_cache="true"'
    if form == "images without pairs":
        given = [x, np.cos(angle), np.sin(angle)]
    (actual,) = read(tmp_path / "m.xml", "RoPE", attrs, given)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_rotary_embeddings_of_neighbors_with_a_factor_each(tmp_path: Path) -> None:
    """LTX video rotates [B,S,D] in pairs; both numbers of a pair have a cosine and a sine."""
    x, cosine, sine = drawn(2, 3, 8), drawn(1, 3, 8), drawn(1, 3, 8)
    expected = np.empty_like(x)
    expected[..., 0::2] = cosine[..., 0::2] * x[..., 0::2] - sine[..., 0::2] * x[..., 1::2]
    expected[..., 1::2] = sine[..., 1::2] * x[..., 0::2] + cosine[..., 1::2] * x[..., 1::2]
    attrs = 'is_ltx_video="true" rotary_ndims="8"'
    (actual,) = read(tmp_path / "m.xml", "RoPE", attrs, [x, cosine, sine])
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_rotary_embeddings_of_three_axes(tmp_path: Path) -> None:
    """Images of vision transformers have no batch: [S,N,D]."""
    x, (cosine, sine) = drawn(5, 2, 6), angles(5, 1, 6)
    attrs = 'support_3d_rope="true" rotary_ndims="6"'
    (actual,) = read(tmp_path / "m.xml", "RoPE", attrs, [x, cosine, sine])
    np.testing.assert_allclose(actual, of_halves(x, cosine, sine), rtol=1e-5, atol=1e-6)


def test_rotary_embeddings_of_halves_that_are_interleaved_before(tmp_path: Path) -> None:
    x, (cosine, sine) = drawn(2, 3, 5, 6), angles(1, 1, 5, 6)
    apart = np.concatenate([x[..., 0::2], x[..., 1::2]], -1)
    attrs = 'config.input_interleaved="true" config.rotary_ndims="6"'
    (actual,) = read(tmp_path / "m.xml", "RoPE", attrs, [x, cosine, sine])
    np.testing.assert_allclose(actual, of_halves(apart, cosine, sine), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [0, 5, 8])
def test_a_part_that_cannot_be_rotated_is_refused(count: int, tmp_path: Path) -> None:
    x, (cosine, sine) = drawn(2, 3, 5, 6), angles(1, 1, 5, 6)
    attrs = f'config.rotary_ndims="{count}"'
    with pytest.raises(ReadError, match="rotary_ndims must be even and at most the size"):
        read(tmp_path / "m.xml", "RoPE", attrs, [x, cosine, sine])


def test_root_mean_square(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    ops = openvino.opset13
    given, scale = drawn(2, 3, 8), drawn(8)
    x = ops.parameter(given.shape, openvino.Type.f32)
    mean = ops.reduce_mean(ops.power(x, ops.constant(np.float32(2))), ops.constant([-1]), True)
    root = ops.sqrt(ops.add(mean, ops.constant(np.float32(1e-5))))
    y = ops.multiply(x, ops.divide(ops.constant(np.float32(1)), root))
    model = openvino.Model([ops.multiply(y, ops.constant(scale))], [x])
    expected = fused(model, "RMS", [given])
    attrs = 'epsilon="1e-05" output_type="f32" elementwise_affine="true"'
    without = given / np.sqrt((given**2).mean(-1, keepdims=True)) * scale
    for some, wanted in ((attrs, expected), ('epsilon="1e-05"', expected), ("", without)):
        (actual,) = read(tmp_path / "m.xml", "RMS", some, [given, scale])
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("normalized", ["false", "true"])
def test_gated_delta_net(normalized: str, tmp_path: Path) -> None:
    """https://arxiv.org/abs/2412.06464, equation 10, for each head."""
    q, k, v = drawn(2, 5, 3, 4), drawn(2, 5, 3, 4), drawn(2, 5, 3, 6)
    state, gate, beta = drawn(2, 3, 4, 6), -np.abs(drawn(2, 5, 3)), np.abs(drawn(2, 5, 3))
    a, c = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    a, c = (a, c) if normalized == "true" else (q, k)
    h, expected = state.astype(np.float64), np.zeros(v.shape)
    for t in range(5):
        h = h * np.exp(gate[:, t])[..., None, None]
        change = v[:, t] - np.einsum("bnk,bnkv->bnv", c[:, t], h)
        h = h + np.einsum("bnk,bnv->bnkv", c[:, t], change * beta[:, t, :, None])
        expected[:, t] = np.einsum("bnk,bnkv->bnv", a[:, t] / 2, h)
    attrs = f'fuse_qk_l2norm="{normalized}" q_l2_norm_eps="1e-06" k_l2_norm_eps="1e-06"'
    given = [q, k, v, state, gate, beta]
    y, last = read(tmp_path / "m.xml", "GatedDeltaNet", attrs, given, 2)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(last, h, rtol=1e-4, atol=1e-5)


def gelu(x: Array) -> Array:
    values = np.array([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x.flat], np.float32)
    return values.reshape(x.shape)


ACTIVATIONS = {
    "swiglu": lambda x: x / (1 + np.exp(-x)),
    "geglu_tanh": lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "geglu_erf": gelu,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_mixture_of_experts(activation: str, tmp_path: Path) -> None:
    """Of three experts two are chosen for each of the five tokens."""
    x, gate, up, down = drawn(5, 4), drawn(3, 6, 4), drawn(3, 6, 4), drawn(3, 4, 6)
    chosen = np.argsort(RNG.random((5, 3)), -1)[:, :2]
    weights = np.zeros((3, 5, 1), np.float32)
    expected = np.zeros((5, 4), np.float32)
    for token in range(5):
        for expert in chosen[token]:
            share = weights[expert, token, 0] = RNG.random()
            inner = gate[expert] @ x[token]
            inner = ACTIVATIONS[activation](inner) * (up[expert] @ x[token])
            expected[token] += share * (down[expert] @ inner)
    given = [x, weights, chosen, gate, up, down]
    attrs = 'expert_type="gemm3_swiglu" expert_alpha="0" expert_beta="1" '
    attrs += f'activation_type="{activation}"'
    (actual,) = read(tmp_path / "m.xml", "MOE", attrs, given)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_experts_with_two_products_are_refused(tmp_path: Path) -> None:
    """Versions of OpenVINO give expert_alpha and expert_beta in another order."""
    given = [drawn(5, 4), drawn(3, 5, 1), drawn(5, 2), drawn(3, 12, 4), drawn(3, 1, 12)]
    attrs = 'expert_type="gemm2_bias_swiglu_clamp" expert_alpha="1.7" expert_beta="7"'
    path = layer_alone(tmp_path / "m.xml", "MOE", attrs, [*given, drawn(3, 4, 6), drawn(3, 1, 4)])
    with pytest.raises(UnsupportedError, match="MOE with gemm2_bias_swiglu_clamp") as e:
        converter.load(path)
    assert "openvino.save_model" in str(e.value)
