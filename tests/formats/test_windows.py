"""Windows of convolutions and pools, alike in every format: what each writes computes what
onnxruntime computes of the source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import converter
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
RNG = np.random.default_rng(33)


def network(path: Path, kind: str, shape: list[Any], *weights: Any, **attributes: Any) -> Path:
    """A model file of one operator, whose operands after the first are constant."""
    names = [f"w{i}" for i in range(len(weights))]
    constants = [numpy_helper.from_array(w, n) for w, n in zip(weights, names, strict=True)]
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


@pytest.mark.parametrize("target", FILES)
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


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
def test_four_spatial_axes_are_refused(target: str, kind: str, tmp_path: Path) -> None:
    """No engine has such a layer."""
    shape = [1, 2, 4, 4, 4, 4]
    source = network(tmp_path / "m.onnx", kind, shape, floats(2, 2, 2, 2, 2, 2))
    with pytest.raises(UnsupportedError):
        converter.convert(source, tmp_path / FILES[target], target=target)
