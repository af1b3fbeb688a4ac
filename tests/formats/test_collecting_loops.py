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
from converter.graph.build import new_model

T = ir.DataType


def running_sums(batch: int | str) -> ir.Model:
    """Stack the state s + x[t] after each step, and its sums over the features."""
    model, b = new_model()
    x = b.input("x", T.FLOAT, ["T", batch, 3])
    s = b.input("s", T.FLOAT, [batch, 3])
    with b.loop(b.Gather(b.Shape(x), 0), s) as body:
        after = body.Add(body.states[0], body.Gather(x, body.iteration, axis=0))
        sums = body.ReduceSum(after, [1], keepdims=0)
        found = body.end(after, body.Mul(after, 2.0), sums)
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
