"""Weights of two and four bits stay as small as they are in formats that have such types."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from test_tflite_operators import needs_litert

import converter
from converter.formats.tflite.codec import LiteTensor, read_flat
from converter.formats.tflite.tensors import (
    FLOAT8_E4M3FN,
    INT2,
    UINT4,
    constant_of,
    is_quantized,
)

NUMBERS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
X = np.random.default_rng(1).normal(size=(1, 64)).astype(np.float32)


def source(folder: Path, kind: str, scale: str = "FLOAT", block: int = 32) -> tuple[Path, object]:
    """Write x @ weights and return the product in doubles."""
    random = np.random.default_rng(0)
    choices = {"INT2": np.arange(-2, 2), "UINT2": np.arange(4)}.get(kind, NUMBERS)
    weights = random.choice(choices, (64, 32)).astype(np.float32)
    scales = random.uniform(0.1, 1, (2, 32) if block else (32,)).astype(np.float32)
    if scale == "FLOAT8E8M0":
        scales = np.exp2(random.integers(-4, 3, scales.shape)).astype(np.float32)
    types = {k: getattr(TensorProto, k) for k in (kind, scale)}
    attributes = {"axis": 0, "block_size": block} if block else {"axis": 1}
    if scale != "FLOAT":
        attributes["output_dtype"] = TensorProto.FLOAT
    node = helper.make_node("DequantizeLinear", ["w", "s"], ["d"], **attributes)
    graph = helper.make_graph(
        [node, helper.make_node("MatMul", ["x", "d"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32])],
        [
            helper.make_tensor("w", types[kind], weights.shape, weights.reshape(-1)),
            helper.make_tensor("s", types[scale], scales.shape, scales.reshape(-1)),
        ],
    )
    opset = [helper.make_opsetid("", min(25, onnx.defs.onnx_opset_version()))]
    model = helper.make_model(graph, opset_imports=opset, ir_version=min(13, onnx.IR_VERSION))
    onnx.save(model, folder / "source.onnx")
    factor = np.repeat(scales, block, 0) if block else scales
    return folder / "source.onnx", X.astype(np.float64) @ (weights * factor)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 25, reason="needs opset 25 of onnx")
@pytest.mark.parametrize("kind", ["INT2", "UINT2"])
def test_two_bits_in_opset_25(kind: str, tmp_path: Path) -> None:
    path, expected = source(tmp_path, kind)
    written = tmp_path / "written.onnx"
    converter.convert(path, written, target="onnx+opset=25")
    tensors = {t.data_type: len(t.raw_data) for t in onnx.load(written).graph.initializer}
    assert tensors[getattr(TensorProto, kind)] <= 512
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (actual,) = onnxruntime.InferenceSession(written, options).run(None, {"x": X})
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    converter.convert(path, written, target="onnx+opset=24", force=True)
    assert {t.data_type for t in onnx.load(written).graph.initializer} <= {
        TensorProto.INT4,
        TensorProto.UINT4,
        TensorProto.FLOAT,
    }


@pytest.mark.parametrize(("scale", "block"), [("FLOAT8E8M0", 32), ("FLOAT", 32), ("FLOAT", 0)])
def test_four_bit_floats_in_openvino(scale: str, block: int, tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    path, expected = source(tmp_path, "FLOAT4E2M1", scale, block)
    written = tmp_path / "written.xml"
    converter.convert(path, written)
    text = written.read_text()
    assert text.count('element_type="f4e2m1"') == 1
    assert text.count('element_type="f8e8m0"') == (scale != "FLOAT")
    assert written.with_suffix(".bin").stat().st_size <= 1024 + (80 if scale != "FLOAT" else 272)
    compiled = openvino.Core().compile_model(written, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    np.testing.assert_allclose(compiled({"x": X})[0], expected, atol=1e-4)
    (actual,) = converter.load(written).run({"x": X}).values()
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_eight_bit_floats_that_need_their_bits_keep_them(tmp_path: Path) -> None:
    path, _ = source(tmp_path, "FLOAT8E4M3FN")
    model = onnx.load(path)
    values = np.linspace(-7, 7, 64 * 32).astype(np.float32)
    model.graph.initializer[0].CopyFrom(
        helper.make_tensor("w", TensorProto.FLOAT8E4M3FN, [64, 32], values)
    )
    onnx.save(model, path)
    converter.convert(path, tmp_path / "written.xml")
    assert 'element_type="f8e4m3"' in (tmp_path / "written.xml").read_text()


def _tflite(folder: Path, kind: str) -> tuple[Path, object]:
    path, expected = source(folder, kind)
    converter.convert(path, folder / "written.tflite")
    return folder / "written.tflite", expected


def test_two_bits_in_tensorflow_lite(tmp_path: Path) -> None:
    path, expected = _tflite(tmp_path, "INT2")
    kinds = {t.type: t for t in read_flat(path).graphs[0].tensors}
    assert len(kinds[INT2].data) == 512
    (actual,) = converter.load(path).run({"x": X}).values()
    np.testing.assert_allclose(actual, expected, atol=1e-4)


@needs_litert
def test_two_bits_in_litert(tmp_path: Path) -> None:
    path, expected = _tflite(tmp_path, "INT2")
    (actual,) = converter.run(path, {"x": X}, engine="litert").values()
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_new_types_of_tensorflow_lite_are_read() -> None:
    """The numbers are those of ml_dtypes, packed from the lowest bits of a byte on."""
    two = LiteTensor("t", INT2, [5], np.array([0b11_10_01_00, 0b01], np.uint8))
    assert np.asarray(constant_of(two).numpy(), int).tolist() == [0, 1, -2, -1, 1]
    four = LiteTensor("t", UINT4, [3], np.array([0xF8, 0x01], np.uint8), [0.5], [8])
    assert is_quantized(four)
    assert np.asarray(constant_of(four).numpy(), int).tolist() == [8, 15, 1]
    numbers = np.array([0.5, -6, 448], ml_dtypes.float8_e4m3fn)
    eight = LiteTensor("t", FLOAT8_E4M3FN, [3], numbers.view(np.uint8))
    assert constant_of(eight).astype(float).tolist() == [0.5, -6, 448]
