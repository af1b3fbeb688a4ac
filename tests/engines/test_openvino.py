"""OpenVINO and Core ML as engines: the same numbers as the default engine, or a refusal with a
reason.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.errors import ConverterError, UnsupportedError, UsageError
from converter.graph.build import new_model

pytest.importorskip("openvino", reason="the extra `openvino` is not installed")


def small() -> Model:
    model, b = new_model()
    rng = np.random.default_rng(2)
    x = b.input("x", ir.DataType.FLOAT, [1, 3, 8, 8])
    h = b.op(
        "Relu", b.op("Conv", x, rng.normal(size=(4, 3, 3, 3)).astype(np.float32), pads=[1, 1, 1, 1])
    )
    y = b.op(
        "MatMul",
        b.op("Reshape", b.op("MaxPool", h, kernel_shape=[2, 2], strides=[2, 2]), [1, 64]),
        rng.normal(size=(64, 5)).astype(np.float32),
    )
    b.output(b.op("Softmax", y, axis=-1), h)
    return Model(model, "test")


X = {"x": np.random.default_rng(3).normal(size=(1, 3, 8, 8)).astype(np.float32)}


def test_the_same_numbers_as_the_default_engine() -> None:
    model = small()
    first, second = model.run(X), model.run(X, engine="openvino")
    assert list(first) == list(second)
    for name, array in first.items():
        np.testing.assert_allclose(second[name], array, rtol=1e-4, atol=1e-5)


def test_a_file_of_the_format_is_run_itself(tmp_path: Path) -> None:
    expected = list(small().run(X).values())
    converter.save(small(), tmp_path / "net.xml")
    model = converter.load(tmp_path / "net.xml")
    assert model.source == tmp_path / "net.xml"
    found = list(model.run({model.inputs[0].name: X["x"]}, engine="openvino").values())
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def test_feeds_that_do_not_fit() -> None:
    with pytest.raises(UsageError, match=r"the given array has the shape \[1,3,9,9\]"):
        small().run({"x": np.zeros((1, 3, 9, 9), np.float32)}, engine="openvino")


def test_models_that_cannot_be_written_are_refused() -> None:
    model, b = new_model()
    b.output(b.op("ImageDecoder", b.input("x", ir.DataType.UINT8, [None])))
    with pytest.raises(ConverterError) as refusal:
        Model(model, "test").run({"x": np.zeros(3, np.uint8)}, engine="openvino")
    assert "ImageDecoder" in str(refusal.value)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS executes Core ML models")
def test_core_ml_needs_macos() -> None:
    with pytest.raises(UnsupportedError, match="macOS"):
        small().run(X, engine="coreml")
