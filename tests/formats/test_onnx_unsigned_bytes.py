"""Signed quantized networks of other formats are written to ONNX with unsigned bytes, which give
the same numbers and stay quantized layers in onnxruntime.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import converter


def quantized(tmp_path: Path, stored: bool) -> tuple[Path, np.ndarray]:
    """A TensorFlow Lite model: conv, relu, conv, dense in 8-bit integers, with large weights;
    `stored`: inputs and outputs are integers, too.
    """
    rng = np.random.default_rng(0)
    nodes, tensors = [], []

    def const(name: str, array: np.ndarray) -> str:
        tensors.append(numpy_helper.from_array(array, name))
        return name

    def pair(x: str, scale: float, zero: int) -> str:
        s, z = const(f"{x}_s", np.float32(scale)), const(f"{x}_z", np.int8(zero))
        nodes.append(helper.make_node("QuantizeLinear", [x, s, z], [f"{x}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{x}_q", s, z], [f"{x}_d"]))
        return f"{x}_d"

    def weights(name: str, shape: list[int], axis: int) -> str:
        w = rng.integers(-127, 128, shape).astype(np.int8)
        s = rng.uniform(0.005, 0.01, shape[axis]).astype(np.float32)
        z = const(f"{name}_z", np.zeros(shape[axis], np.int8))
        operands = [const(name, w), const(f"{name}_s", s), z]
        nodes.append(helper.make_node("DequantizeLinear", operands, [f"{name}_d"], axis=axis))
        return f"{name}_d"

    x = pair("x", 0.02, 7)
    for i, count in enumerate((3, 16)):
        w = weights(f"w{i}", [16, count, 3, 3], 0)
        nodes.append(helper.make_node("Conv", [x, w], [f"c{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        x = pair(f"r{i}", (0.1, 2.0)[i], -128)
    nodes.append(helper.make_node("Flatten", [x], ["flat"]))
    dense = weights("wd", [256, 10], 1)
    nodes.append(helper.make_node("MatMul", [pair("flat", 2.0, -128), dense], ["m"]))
    y = pair("m", 40.0, 3)
    nodes.append(helper.make_node("Identity", [y], ["y"]))
    first, last = ("x_q", "m_q") if stored else ("x", "y")
    kind = TensorProto.INT8 if stored else TensorProto.FLOAT
    if stored:
        nodes = [n for n in nodes if n.output[0] not in ("x_q", "m_d", "y")]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(first, kind, [1, 3, 4, 4])],
        [helper.make_tensor_value_info(last, kind, [1, 10])],
        tensors,
    )
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "in.onnx")
    converter.convert(tmp_path / "in.onnx", tmp_path / "m.tflite")
    data = rng.integers(-128, 128, (1, 3, 4, 4))
    numbers = data.astype(np.int8) if stored else (data * 0.02).astype(np.float32)
    return tmp_path / "m.tflite", numbers


@pytest.mark.parametrize("stored", [False, True])
def test_the_layers_stay_quantized_and_exact(stored: bool, tmp_path: Path) -> None:
    path, x = quantized(tmp_path, stored)
    name = converter.load(path).inputs[0].name
    (expected,) = converter.load(path).run({name: x}, "litert").values()
    converter.convert(path, tmp_path / "out.onnx")
    model = onnx.load(tmp_path / "out.onnx")
    signed = [t.name for t in model.graph.initializer if t.data_type == TensorProto.INT8 and t.dims]
    assert signed == []
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx", options)
    (found,) = session.run(None, {session.get_inputs()[0].name: x})
    step = 1 if stored else 40.0
    np.testing.assert_allclose(found.astype(float), expected.astype(float), atol=step)
    kinds = [n.op_type for n in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert kinds.count("QLinearConv") == 2 and not {"Conv", "MatMul"} & set(kinds)


def test_a_model_of_onnx_keeps_its_types(tmp_path: Path) -> None:
    quantized(tmp_path, False)
    converter.convert(tmp_path / "in.onnx", tmp_path / "out.onnx")
    types = {t.name: t.data_type for t in onnx.load(tmp_path / "out.onnx").graph.initializer}
    assert types["w0"] == types["wd"] == TensorProto.INT8
