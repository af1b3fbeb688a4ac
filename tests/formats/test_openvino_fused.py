"""Operations that OpenVINO's own passes fuse: RoPE and RMS against the networks that its runtime
fuses to them, GatedDeltaNet and MOE against their definitions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import converter
from converter.errors import UnsupportedError

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


def test_other_rotary_embeddings_are_refused(tmp_path: Path) -> None:
    path = layer_alone(tmp_path / "m.xml", "RoPE", 'is_qwen="true"', [drawn(1, 2, 3, 4)] * 3)
    with pytest.raises(UnsupportedError, match="RoPE with is_qwen is not supported"):
        converter.load(path)


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
    (actual,) = read(tmp_path / "m.xml", "RMS", attrs, [given, scale])
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


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


def test_mixture_of_experts(tmp_path: Path) -> None:
    """Of three experts two are chosen for each of the five tokens."""
    x, gate, up, down = drawn(5, 4), drawn(3, 6, 4), drawn(3, 6, 4), drawn(3, 4, 6)
    chosen = np.argsort(RNG.random((5, 3)), -1)[:, :2]
    weights = np.zeros((3, 5, 1), np.float32)
    expected = np.zeros((5, 4), np.float32)
    for token in range(5):
        for expert in chosen[token]:
            share = weights[expert, token, 0] = RNG.random()
            inner = gate[expert] @ x[token]
            inner = inner / (1 + np.exp(-inner)) * (up[expert] @ x[token])
            expected[token] += share * (down[expert] @ inner)
    given = [x, weights, chosen, gate, up, down]
    attrs = 'expert_type="gemm3_swiglu" expert_alpha="0" expert_beta="1"'
    (actual,) = read(tmp_path / "m.xml", "MOE", attrs, given)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
