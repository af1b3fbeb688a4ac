"""Old spellings whose meaning is decided at run time, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import converter
from converter import engines
from converter.formats.onnx.codec import TensorFiles
from converter.formats.onnx.lift import lift
from converter.graph.invariants import violations

rng = np.random.default_rng(0)


def compared(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    model = lift(proto, TensorFiles(Path("model.onnx")))
    assert violations(model.ir) == []
    expected = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, feeds)
    for wanted, found in zip(expected, engines.run(model, feeds).values(), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("with_lengths", [True, False])
def test_scan_8(with_lengths: bool, backward: int) -> None:
    """The samples of a batch have lengths of their own; after them the results are zero."""
    pair = [helper.make_tensor_value_info(n, T.FLOAT, [2]) for n in "sxty"]
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Mul", ["t", "t"], ["y"])],
        "body",
        pair[:2],
        pair[2:],
    )
    operands = ["lengths" if with_lengths else "", "first", "xs"]
    node = helper.make_node(
        "Scan", operands, ["final", "ys"], body=body, num_scan_inputs=1, directions=[backward]
    )
    feeds = {
        "first": rng.normal(size=(3, 2)).astype(np.float32),
        "xs": rng.normal(size=(3, 5, 2)).astype(np.float32),
    }
    inputs = [
        helper.make_tensor_value_info("first", T.FLOAT, [3, 2]),
        helper.make_tensor_value_info("xs", T.FLOAT, [3, 5, 2]),
    ]
    if with_lengths:
        feeds["lengths"] = np.array([3, 5, 1])
        inputs.append(helper.make_tensor_value_info("lengths", T.INT64, [3]))
    outputs = [
        helper.make_tensor_value_info("final", T.FLOAT, [3, 2]),
        helper.make_tensor_value_info("ys", T.FLOAT, [3, 5, 2]),
    ]
    graph = helper.make_graph([node], "g", inputs, outputs)
    compared(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3), feeds
    )


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [[1, 1, 2, 3], [1, 1, 0.5, 0.4], [1, 1, 2, 0.5], [1, 1, 1, 1]])
def test_resize_10_with_scales_of_run_time(scales: list[float], mode: str) -> None:
    node = helper.make_node("Resize", ["x", "scales"], ["y"], mode=mode)
    inputs = [
        helper.make_tensor_value_info("x", T.FLOAT, [1, 2, 6, 5]),
        helper.make_tensor_value_info("scales", T.FLOAT, [4]),
    ]
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info("y", T.FLOAT, [1, 2, None, None])]
    )
    feeds = {
        "x": rng.normal(size=(1, 2, 6, 5)).astype(np.float32),
        "scales": np.array(scales, np.float32),
    }
    compared(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=5), feeds
    )


@pytest.mark.parametrize("target", ["openvino", "openvino+ir=7", "coreml", "nnapi"])
@pytest.mark.parametrize("scales", [[1, 1, 2, 1], [1, 1, 5 / 6, 9 / 5]])
def test_resize_as_tf2onnx_writes_it(scales: list[float], target: str, tmp_path: Path) -> None:
    """A mode that opset 13 no longer lists, and factors whose product is whole in float32 alone:
    both as onnxruntime has them.
    """
    more = {
        "coordinate_transformation_mode": "tf_half_pixel_for_nn",
        "mode": "nearest",
        "nearest_mode": "floor",
    }
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], **more)
    x = rng.normal(size=(1, 2, 6, 5)).astype(np.float32)
    value = numpy_helper.from_array(np.array(scales, np.float32), "scales")
    ends = (
        helper.make_tensor_value_info("x", T.FLOAT, x.shape),
        helper.make_tensor_value_info("y", T.FLOAT, None),
    )
    proto = helper.make_model(
        helper.make_graph([node], "g", ends[:1], ends[1:], [value]),
        opset_imports=[helper.make_opsetid("", 15)],
        ir_version=8,
    )
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (wanted,) = session.run(None, {"x": x})
    model = lift(proto, TensorFiles(Path("model")))
    path = tmp_path / {"coreml": "a.mlmodel", "nnapi": "a.nnapi.json"}.get(target, "a.xml")
    converter.save(model, path, target)
    back = converter.load(path)
    (found,) = engines.run(back, {back.inputs[0].name: x}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_states_of_a_loop_that_declare_no_shape(tmp_path: Path) -> None:
    """As functions written in Python leave them: the first value and the body say it, so that Core
    ML can have the loop.
    """
    body = "{ keep2 = Identity (keep) t = Mul (s, s) s2 = Add (t, x) }"
    loop = (
        "y = Loop <body = b (int64 i, bool keep, float s) => (bool keep2, float s2) "
        f"{body}> (k, go, x)"
    )
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g (float[2,3] x, int64 k) => (float[2,3] '
        f"y) <bool go = {{1}}> {{ {loop} }}"
    )
    proto.graph.node[0].attribute[0].g.input[2].type.tensor_type.ClearField("shape")
    model = lift(proto, TensorFiles(Path("model")))
    assert list(next(iter(model.ir.graph)).attributes["body"].as_graph().inputs[2].shape) == [2, 3]
    feeds = {"x": rng.normal(size=(2, 3)).astype(np.float32) / 2, "k": np.array(3)}
    compared(proto, feeds)
    converter.save(model, tmp_path / "a.mlmodel")
    (found,) = engines.run(converter.load(tmp_path / "a.mlmodel"), feeds).values()
    np.testing.assert_allclose(found, engines.run(model, feeds)["y"], rtol=1e-5)
