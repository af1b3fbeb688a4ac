"""Loops over a dynamic number of steps that stack rows of dynamic sizes, against onnxruntime's
numbers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.engines import litert
from converter.graph.build import new_model

T = ir.DataType


def running_sums(batch: int | str, limit: float | None = None) -> ir.Model:
    """Stack the state s + x[t] after each step, and its sums over the features; until a state is
    above the limit.
    """
    model, b = new_model()
    x = b.input("x", T.FLOAT, ["T", batch, 3])
    s = b.input("s", T.FLOAT, [batch, 3])
    with b.loop(b.Gather(b.Shape(x), 0), s) as body:
        after = body.Add(body.states[0], body.Gather(x, body.iteration, axis=0))
        sums = body.ReduceSum(after, [1], keepdims=0)
        going = None if limit is None else body.ReduceMax(after, keepdims=0) < limit
        found = body.end(after, body.Mul(after, 2.0), sums, going=going)
    b.output(*(b.Neg(v) for v in found))
    return model


@pytest.mark.parametrize("batch", [2, "N"])
@pytest.mark.parametrize(
    "suffix",
    [".tflite", ".xml", ".mlpackage", ".mlmodel"],
    ids=["tflite", "openvino", "mlprogram", "coreml"],
)
def test_rows_of_dynamic_sizes(suffix: str, batch: int | str, tmp_path: Path) -> None:
    model, path = running_sums(batch), tmp_path / f"m{suffix}"
    converter.save(Model(model.clone(), "onnx"), path)
    written = converter.load(path)
    for steps, rows in ((4, 2), (5, 2 if batch == 2 else 1)):
        rng = np.random.default_rng(steps)
        feeds = {
            "x": rng.standard_normal((steps, rows, 3)).astype(np.float32),
            "s": rng.standard_normal((rows, 3)).astype(np.float32),
        }
        expected = Model(model.clone(), "onnx").run(feeds).values()
        for a, b in zip(written.run(feeds).values(), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("suffix", [".tflite", ".xml", ".mlpackage"])
def test_rows_until_a_limit(suffix: str, tmp_path: Path) -> None:
    model, path = running_sums(2, 2.5), tmp_path / f"m{suffix}"
    converter.save(Model(model.clone(), "onnx"), path)
    feeds = {"x": np.ones((5, 2, 3), np.float32), "s": np.float32([[0, 1, 0], [-1, 0, -3]])}
    expected = list(Model(model.clone(), "onnx").run(feeds).values())
    assert expected[1].shape == (2, 2, 3)
    found = [list(converter.load(path).run(feeds).values())]
    if suffix == ".tflite" and litert.available():
        from tflite_files import in_litert

        found.append(in_litert(path, list(feeds.values())))
    for results in found:
        for a, b in zip(results, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
