"""Weights that several layers read are in the written file once, or the file's size is warned
of.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import converter
from converter.formats.model_files import GROWTH, larger
from support import SAMPLES

WIDTH = 600
TARGETS = {
    "onnx": ".onnx",
    "openvino": ".xml",
    "openvino+ir=10": ".xml",
    "openvino+ir=7": ".xml",
    "tflite": ".tflite",
    "mlprogram": ".mlpackage",
    "zhouyi": ".txt",
    "nnapi": ".nnapi.json",
    "nnapi+blob": ".nnapi",
}


def network(
    nodes: list[onnx.NodeProto],
    x: list[int],
    y: list[int],
    whole: bool = False,
    **weights: np.ndarray,
) -> onnx.ModelProto:
    kind = TensorProto.INT64 if whole else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "shared",
        [helper.make_tensor_value_info("x", kind, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32) / 20


def products(**attributes: int) -> onnx.ModelProto:
    """One matrix after another, the same one three times."""
    names = ["x", "a", "b", "y"]
    nodes = [
        helper.make_node("Gemm", [i, "w"], [o], **attributes) for i, o in itertools.pairwise(names)
    ]
    return network(nodes, [1, WIDTH], [1, WIDTH], w=numbers(WIDTH, WIDTH))


def tied() -> onnx.ModelProto:
    """A table that is looked up, and transposed to score each of its rows."""
    nodes = [
        helper.make_node("Gather", ["w", "x"], ["e"]),
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["e", "t"], ["y"]),
    ]
    return network(nodes, [1, 4], [1, 4, 6000], whole=True, w=numbers(6000, 64))


def steps(time: int = 8, size: int = 256) -> onnx.ModelProto:
    """A GRU, whose steps have to be written out for some targets."""
    nodes = [helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=size)]
    weights = {n: numbers(1, 3 * size, size) for n in ("w", "r")}
    return network(nodes, [time, 1, size], [time, 1, 1, size], **weights)


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "products": products,
    "transposed": lambda: products(transB=1),
    "tied": tied,
    "steps": steps,
}


def written(
    tmp_path: Path, model: onnx.ModelProto, target: str, suffix: str
) -> tuple[float, list[str]]:
    """Bytes of the written weights for each byte of the source's; codes of the warnings."""
    onnx.save(model, tmp_path / "source.onnx")
    out = tmp_path / "out"
    out.mkdir()
    result = converter.convert(tmp_path / "source.onnx", out / f"m{suffix}", target=target)
    files = [p for p in out.rglob("*") if p.is_file() and p.suffix not in (".xml", ".txt", ".json")]
    weights = sum(len(t.raw_data) for t in model.graph.initializer)
    return sum(p.stat().st_size for p in files) / weights, [d.code for d in result]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NETWORKS)
def test_weights_are_stored_once(name: str, target: str, tmp_path: Path) -> None:
    growth, codes = written(tmp_path, NETWORKS[name](), target, TARGETS[target])
    assert growth < 1.1 and "X212" not in codes


def test_a_format_without_shared_weights_warns(tmp_path: Path) -> None:
    growth, codes = written(tmp_path, products(), "coreml", ".mlmodel")
    assert growth > GROWTH and codes.count("X212") == 1


@pytest.mark.slow
def test_steps_that_are_many_layers_of_text_warn(tmp_path: Path) -> None:
    _, codes = written(tmp_path, steps(100, 8), "nnapi", ".nnapi.json")
    assert codes.count("X212") == 1


def test_a_source_that_packs_its_weights_is_measured_by_its_file(tmp_path: Path) -> None:
    model = converter.save(converter.load(SAMPLES / "digits_cnn.mlmodel"), tmp_path / "m.onnx")
    network, packed = converter.load(tmp_path / "m.onnx"), tmp_path / "packed"
    large = tmp_path / "large.onnx"
    large.write_bytes(bytes(1 << 18))
    assert not model and larger(network, [tmp_path / "m.onnx"]) == []
    packed.write_bytes(bytes(1000))
    told = larger(network, [large], [packed])
    assert [d.code for d in told] == ["X212"] and "1.0 kB in the source" in told[0].message


@pytest.mark.parametrize("target", ["onnx", "openvino", "tflite", "coreml", "mlprogram"])
@pytest.mark.parametrize("source", ["openvino+fp16", "openvino+ir=7+fp16", "coreml+fp16"])
def test_halves_stay_halves(source: str, target: str, tmp_path: Path) -> None:
    """Of a format that computes in full precision with weights in half."""
    first, suffix = tmp_path / "first", {**TARGETS, "coreml": ".mlmodel"}
    first.mkdir()
    network = products(transB=1)
    onnx.save(network, tmp_path / "source.onnx")
    middle = first / f"m{suffix[source.removesuffix('+fp16')]}"
    converter.convert(tmp_path / "source.onnx", middle, target=source)
    out = tmp_path / "second" / f"m{suffix[target]}"
    out.parent.mkdir()
    result = converter.convert(middle, out, target=target)
    assert "X212" not in [d.code for d in result] or target == "coreml"  # which shares nothing
    files = [p for p in out.parent.rglob("*") if p.is_file() and p.suffix != ".xml"]
    copies = 3 if source.startswith("coreml") or target == "coreml" else 1
    assert sum(p.stat().st_size for p in files) < 1.1 * copies * WIDTH * WIDTH * 2
    x = np.random.default_rng(1).normal(size=(1, WIDTH)).astype(np.float32)
    wanted = converter.load(middle).run({"x": x})
    given = converter.load(out).run({"x": x})
    for a, b in zip(wanted.values(), given.values(), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)
