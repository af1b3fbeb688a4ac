"""The parts of wrong tensors and the graph around them, compared with formulas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.commands import report
from converter.commands.report import facts
from converter.commands.verify.stored import result_of
from converter.graph.build import new_model


def net(alpha: float, sizes: tuple[int, ...] = (1, 3, 8, 9), tail: int = 3) -> Model:
    model, b = new_model()
    x = b.op("Sin", b.input("x", ir.DataType.FLOAT, list(sizes)), name="wave")
    y = b.op("LeakyRelu", x, alpha=alpha, name="leak")
    for i in range(tail):
        y = b.op("Tanh", y, name=f"tail_{i}")
    b.output(b.op("Add", y, x, name="sum"))
    return Model(model, "onnx")


def test_the_wrong_tensor_before_and_after(tmp_path: Path) -> None:
    x = np.linspace(-9, 9, 216, dtype=np.float32).reshape(1, 3, 8, 9)
    x[0, 1, 7, 8] = 1.5 * np.pi  # sin = -1: the largest difference
    np.savez(tmp_path / "in.npz", x=x)
    result = converter.verify(net(0.1), net(0.3), str(tmp_path / "in.npz"))
    (sample,) = result.samples
    wave = np.sin(x.astype(np.float64))
    before, after = (np.where(wave < 0, a * wave, wave) for a in (0.1, 0.3))
    assert sample["tensor"] == result.findings[0].tensor and sample["shape"] == (1, 3, 8, 9)
    assert sample["corner"] == (0, 1, 2, 3)
    np.testing.assert_allclose(sample["reference"], before[0, 1, 2:8, 3:9], atol=1e-6)
    np.testing.assert_allclose(sample["candidate"], after[0, 1, 2:8, 3:9], atol=1e-6)
    delta = np.abs(before - after)
    powers = np.floor(np.log10(delta[delta > 0])).astype(int)
    assert dict(sample["errors"])[-1] == (powers == -1).sum()
    assert sample["same"] == (wave >= 0).sum() and sample["infinite"] == 0
    assert sample["same"] + sum(n for _, n in sample["errors"]) == x.size
    stored = result.as_json()
    assert result_of(stored).as_json() == stored


def test_the_graph_around_the_fault() -> None:
    picture = converter.verify(net(0.1), net(0.3), tensors="all").picture
    assert picture is not None and not picture["more"]
    layers = [n["layer"] for n in picture["nodes"]]
    assert layers == ["wave", "leak", "tail_0", "tail_1", "tail_2", "sum"]
    assert [n["status"] for n in picture["nodes"]] == ["equal", "wrong", *["inherited"] * 4]
    edges = {(layers[a], layers[b]) for a, b, _ in picture["edges"]}
    assert {("wave", "leak"), ("wave", "sum"), ("tail_2", "sum")} <= edges and len(edges) == 6
    long = converter.verify(net(0.1, tail=60), net(0.3, tail=60), tensors="all").picture
    assert long is not None and long["more"] and len(long["nodes"]) == 32
    assert "leak" in [n["layer"] for n in long["nodes"]]


def test_an_output_is_shown_where_no_layer_is_wrong(tmp_path: Path) -> None:
    """With chain, no layer is looked at by itself."""
    result = converter.verify(net(0.1, (2, 3)), net(0.3, (2, 3)), mode="chain")
    (sample,) = result.samples
    assert result.findings == () and result.picture is None
    assert sample["tensor"] == result.outputs[0].reference
    assert np.shape(sample["reference"]) == (2, 3) == sample["shape"]


@pytest.mark.parametrize("sizes", [(5,), (), (1, 0, 3)])
def test_every_rank_is_shown(sizes: tuple[int, ...]) -> None:
    result = converter.verify(net(0.1, sizes), net(0.3, sizes), tensors="all")
    for sample in result.samples:
        assert np.shape(sample["reference"]) == np.shape(sample["candidate"])
        assert len(sample["corner"]) == len(sample["shape"])


def test_equal_tensors_are_not_shown() -> None:
    result = converter.verify(net(0.1), net(0.1), tensors="all")
    assert result.passed and result.samples == () and result.picture is None


def test_a_part_is_named_as_each_file_indexes_it(tmp_path: Path) -> None:
    """TensorFlow Lite stores images channels-last, where ONNX has channels first."""

    def pooled(pads: list[int]) -> Model:
        model, b = new_model()
        x = b.input("x", ir.DataType.FLOAT, [1, 3, 8, 8])
        y = b.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=pads, name="pool")
        b.output(b.op("Transpose", b.op("Relu", y, name="last"), perm=[0, 2, 3, 1]))
        return Model(model, "onnx")

    path = tmp_path / "a.tflite"
    converter.convert(pooled([0, 0, 1, 1]), path)
    result = converter.verify(pooled([1, 1, 0, 0]), converter.load(path), tensors="all")
    (sample,) = result.samples
    assert sample["shape"] == (1, 3, 4, 4) and sample["axes"] == ((), (0, 2, 3, 1))
    (entry,) = facts.of_data(result.as_json(), "x")
    page = report.render(facts.Report("t", "1", (entry,)), "html")
    c = sample["corner"][1]
    assert f"[0,{c},0..3,0..3] of [1,3,4,4]" in page and f"[0,0..3,0..3,{c}] of [1,4,4,3]" in page
