"""Windows of convolutions and pools, and resized images, alike in every format: the file of each
computes the same as onnxruntime of the source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tflite_files import Graph, Op, Tensor, const, in_litert, write

import converter
from converter.engines import file
from converter.errors import UnsupportedError

FILES = {
    "coreai": "m.aimodel",
    "coreml": "m.mlmodel",
    "mlprogram": "m.mlpackage",
    "nnapi": "m.nnapi.json",
    "openvino": "m.xml",
    "openvino+ir=7": "m.xml",
    "tflite": "m.tflite",
    "zhouyi": "m.txt",
}
TARGETS = [
    pytest.param(
        target,
        marks=pytest.mark.skipif(
            target == "coreai" and not file.available("coreai"), reason="coreai-core is missing"
        ),
    )
    for target in FILES
]
RNG = np.random.default_rng(33)


def network(path: Path, kind: str, shape: list[Any], *weights: Any, **attributes: Any) -> Path:
    """A model file of one operator, whose operands after the first are constant or left out."""
    names = ["" if w is None else f"w{i}" for i, w in enumerate(weights)]
    constants = [numpy_helper.from_array(w, n) for w, n in zip(weights, names, strict=True) if n]
    node = helper.make_node(kind, ["x", *names], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    opset = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), str(path))
    return path


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def run_source(path: Path, x: Any) -> Any:
    """The output that onnxruntime computes."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def run_written(path: Path, x: Any) -> Any:
    return next(iter(converter.load(path).run({"x": x}).values()))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("scheme", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("wanted", [[8, 8], [7, 10]])
def test_an_output_shape_becomes_pads_when_the_input_is_fixed(
    target: str, scheme: str, wanted: list[int], tmp_path: Path
) -> None:
    """An odd number of elements is cut off: more at the end with SAME_UPPER, else at the begin."""
    attributes = {"output_shape": wanted, "strides": [2, 2], "auto_pad": scheme}
    source = network(
        tmp_path / "m.onnx", "ConvTranspose", [1, 2, "h", "w"], floats(2, 3, 3, 3), **attributes
    )
    x, written = floats(1, 2, 4, 4), tmp_path / FILES[target]
    converter.convert(source, written, target=target, inputs={"x": [1, 2, 4, 4]})
    np.testing.assert_allclose(run_written(written, x), run_source(source, x), atol=1e-4)


@pytest.mark.parametrize("scheme", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_an_output_shape_of_a_dynamic_input_is_kept(scheme: str, tmp_path: Path) -> None:
    attributes = {"output_shape": [8, 8], "strides": [2, 2], "auto_pad": scheme}
    source = network(
        tmp_path / "m.onnx", "ConvTranspose", [1, 2, "h", "w"], floats(2, 3, 3, 3), **attributes
    )
    x = floats(1, 2, 4, 4)
    np.testing.assert_allclose(run_written(source, x), run_source(source, x), atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
def test_four_spatial_axes_are_refused(target: str, kind: str, tmp_path: Path) -> None:
    """No engine has such a layer."""
    shape = [1, 2, 4, 4, 4, 4]
    source = network(tmp_path / "m.onnx", kind, shape, floats(2, 2, 2, 2, 2, 2))
    with pytest.raises(UnsupportedError):
        converter.convert(source, tmp_path / FILES[target], target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["AveragePool", "MaxPool", "LpPool"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_pools_that_round_up_and_count_padding(
    target: str, kind: str, axes: int, tmp_path: Path
) -> None:
    """The last windows reach beyond the padding, which does not count in an average."""
    x = floats(1, 2, *[8, 6, 7][:axes])
    pads = [1, 0, 1][:axes] + [0, 1, 0][:axes]
    attributes: dict[str, Any] = {"kernel_shape": [3] * axes, "strides": [2] * axes, "pads": pads}
    attributes |= {"ceil_mode": 1} | ({"count_include_pad": 1} if kind == "AveragePool" else {})
    source, written = tmp_path / "m.onnx", tmp_path / FILES[target]
    network(source, kind, list(x.shape), **attributes)
    converter.convert(source, written, target=target)
    np.testing.assert_allclose(run_written(written, x), run_source(source, x), atol=1e-4)


def same_window(path: Path, shape: list[int]) -> Path:
    """A TensorFlow Lite file of a convolution whose padding is SAME."""
    tensors = [Tensor(np.float32, [1, *shape, 2]), const(floats(3, 3, 2, 2)), const(floats(3))]
    out = [-(-n // 2) if n > 0 else -1 for n in shape]
    options = {"StrideH": 2, "StrideW": 2, "Padding": 0}
    convolution = Op("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", options)
    return write(path, Graph([*tensors, Tensor(np.float32, [1, *out, 3])], [convolution], [0], [3]))


@pytest.mark.parametrize("target", ["onnx", "openvino", "mlprogram", "coreml", "tflite"])
@pytest.mark.parametrize("size", [(5, 6), (6, 5)])
def test_same_of_a_dynamic_size_is_written_by_name(
    target: str, size: tuple[int, int], tmp_path: Path
) -> None:
    source = same_window(tmp_path / "source.tflite", [-1, -1])
    written = tmp_path / ({"onnx": "m.onnx"} | FILES)[target]
    converter.convert(source, written, target=target)
    x = floats(1, *size, 2)
    (expected,) = in_litert(source, [x])
    model = converter.load(written)
    feed = x if list(model.inputs[0].shape)[-1] == 2 else x.transpose(0, 3, 1, 2)
    actual = next(iter(model.run({model.inputs[0].name: feed}).values()))
    actual = actual if actual.shape == expected.shape else actual.transpose(0, 2, 3, 1)
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_same_padding_of_a_dynamic_size_agrees_with_openvino(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    source = same_window(tmp_path / "source.tflite", [-1, -1])
    converter.convert(source, tmp_path / "m.xml")
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(str(tmp_path / "m.xml"), "CPU", exact)
    for size in ((5, 6), (6, 5)):
        x = floats(1, *size, 2)
        (expected,) = in_litert(source, [x])
        np.testing.assert_allclose(compiled([x])[0], expected, atol=1e-4)


@pytest.mark.parametrize("target", ["zhouyi", "nnapi", "openvino+ir=7"])
def test_same_of_a_dynamic_size_is_refused_with_a_way_out(target: str, tmp_path: Path) -> None:
    source = same_window(tmp_path / "source.tflite", [-1, -1])
    with pytest.raises(UnsupportedError, match="--inputs"):
        converter.convert(source, tmp_path / FILES[target], target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("size", [[8, 9], [10, 12]])
def test_images_that_keep_their_aspect(
    target: str, policy: str, mode: str, size: list[int], tmp_path: Path
) -> None:
    """Both axes have one factor, of which the rounded sizes may not be the ratios."""
    source, x = tmp_path / "m.onnx", floats(1, 1, 5, 6)
    how = {"mode": mode, "axes": [2, 3], "keep_aspect_ratio_policy": policy}
    network(source, "Resize", list(x.shape), None, None, np.array(size), **how)
    written = tmp_path / FILES[target]
    converter.convert(source, written, target=target)
    np.testing.assert_allclose(run_written(written, x), run_source(source, x), atol=1e-4)
    if size == [10, 12] and target in ("tflite", "nnapi"):
        assert "Resize" in {n.op_type for n in converter.load(written).ir.graph}


def test_amounts_of_padding_that_are_an_input_can_be_frozen(tmp_path: Path) -> None:
    """The help of the refusal names the option, and following it works."""
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4, 4]),
        helper.make_tensor_value_info("pads", TensorProto.INT64, [8]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(
        [helper.make_node("Pad", ["x", "pads"], ["y"], mode="edge")], "g", inputs, outputs
    )
    source, opset = tmp_path / "m.onnx", [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), str(source))
    with pytest.raises(UnsupportedError, match="--freeze pads=VALUE"):
        converter.convert(source, tmp_path / "m.mlmodel")
    amounts = [0, 0, 1, 2, 0, 0, 3, 0]
    converter.convert(source, tmp_path / "m.mlmodel", freeze={"pads": amounts})
    x = floats(1, 2, 4, 4)
    expected = np.pad(x, ((0, 0), (0, 0), (1, 3), (2, 0)), "edge")
    np.testing.assert_array_equal(run_written(tmp_path / "m.mlmodel", x), expected)
