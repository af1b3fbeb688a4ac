"""Transforms of signals of open length or number, in targets without such an operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import converter
from converter.api import Model
from converter.graph.build import new_model

WINDOW = np.hanning(16).astype(np.float32)
CASES: dict[str, tuple[dict[str, Any], list[Any], list[int]]] = {
    # attributes, declared shape, the shape that is fed
    "STFT": ({}, ["n", "length", 1], [2, 61, 1]),
    "STFT of two sides": ({"onesided": 0}, [1, "length", 1], [1, 61, 1]),
    "STFT of complex numbers": ({"onesided": 0}, [1, "length", 2], [1, 61, 2]),
    "DFT": ({"axis": 1, "onesided": 1}, ["n", 16, 1], [2, 16, 1]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("target", "name"), [("coreml", "m.mlmodel"), ("tflite", "m.tflite")])
def test_dynamic_sizes(case: str, target: str, name: str, tmp_path: Path) -> None:
    attributes, declared, fed = CASES[case]
    kind, extra = case.split()[0], []
    if kind == "STFT":
        extra = [np.array(5, np.int64), WINDOW]
    names = [f"c{i}" for i in range(len(extra))]
    node = helper.make_node(kind, ["x", *names], ["y"], **attributes)
    x = np.random.default_rng(0).standard_normal(fed).astype(np.float32)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", 1, declared)],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(v, n) for v, n in zip(extra, names, strict=True)],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    (wanted,) = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})
    converter.convert(tmp_path / "m.onnx", tmp_path / name, target=target)
    model = converter.load(tmp_path / name)
    (found,) = model.run({model.inputs[0].name: x}).values()
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [10, 9, 6, 13])
@pytest.mark.parametrize("axis", [1, 2])
def test_one_side_becomes_a_real_signal(length: int, axis: int, tmp_path: Path) -> None:
    bins = np.random.default_rng(1).standard_normal((2, 6, 6, 2)).astype(np.float32)
    model, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, list(bins.shape))
    with b:
        y = b.op("DFT", x, np.array(length), np.array(axis), inverse=1, onesided=1)
    b.output(y)
    converter.save(Model(model, "test"), tmp_path / "m.mlmodel")
    (found,) = converter.load(tmp_path / "m.mlmodel").run({"x": bins}).values()
    wanted = np.fft.irfft(bins[..., 0] + 1j * bins[..., 1], length, axis)
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)
