"""Operators that netconv does not know: refused with a way out, carried, or given a body."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import converter
from converter.errors import ReadError, UnsupportedError

ATTRIBUTES: dict[str, Any] = {"gain": 0.5, "levels": [1, 2], "mode": "bilinear"}
X = np.random.default_rng(0).normal(size=(1, 3, 4, 4)).astype(np.float32)
FLOW = np.ones((1, 2, 4, 4), np.float32)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A network y = Relu(Warp(x, flow)), where Warp is of a domain of its own."""
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape),
        helper.make_tensor_value_info("flow", TensorProto.FLOAT, FLOW.shape),
    ]
    nodes = [
        helper.make_node("Warp", ["x", "flow"], ["a"], "warp", domain="com.acme", **ATTRIBUTES),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, X.shape)
    inner = helper.make_tensor_value_info("a", TensorProto.FLOAT, X.shape)
    graph = helper.make_graph(nodes, "g", ports, [output], value_info=[inner])
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "in.onnx")
    return tmp_path / "in.onnx"


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    """Warp(x, flow) = Elu(x * the mean of the flow), with alpha = gain."""
    elu = helper.make_node("Elu", ["t"], ["y"])
    elu.attribute.append(
        onnx.AttributeProto(name="alpha", ref_attr_name="gain", type=onnx.AttributeProto.FLOAT)
    )
    nodes = [
        helper.make_node("ReduceMean", ["flow"], ["m"], keepdims=1),
        helper.make_node("Mul", ["x", "m"], ["t"]),
        elu,
    ]
    opsets = [helper.make_opsetid("", 13)]
    warp = helper.make_function(
        "com.acme", "Warp", ["x", "flow"], ["y"], nodes, opsets, list(ATTRIBUTES)
    )
    model = helper.make_model(
        helper.make_graph([], "none", [], []), functions=[warp], opset_imports=opsets, ir_version=9
    )
    onnx.save(model, tmp_path / "define.onnx")
    return tmp_path / "define.onnx"


def expected() -> np.ndarray:
    t = X * FLOW.mean()
    return np.maximum(np.where(t > 0, t, 0.5 * (np.exp(t) - 1)), 0)


def test_the_refusal_names_both_ways(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as refused:
        converter.convert(source, tmp_path / "out.xml")
    (found,) = refused.value.diagnostics
    assert "Warp" in found.message and "com.acme" in found.message
    assert "--allow-custom" in found.help and "--define" in found.help


@pytest.mark.parametrize("target", ["out.onnx", "out.xml", "out.tflite", "zhouyi/out.txt"])
def test_a_definition_is_the_body(
    target: str, source: Path, definition: Path, tmp_path: Path
) -> None:
    (tmp_path / "zhouyi").mkdir()
    converter.convert(source, tmp_path / target, define=[definition])
    (found,) = converter.load(tmp_path / target).run({"x": X, "flow": FLOW}).values()
    np.testing.assert_allclose(found, expected(), rtol=1e-5, atol=1e-6)


def test_a_definition_is_used_where_the_target_has_no_custom_operators(
    source: Path, definition: Path, tmp_path: Path
) -> None:
    both = {"allow_custom": True, "define": [definition]}
    converter.convert(source, tmp_path / "out.onnx", **both)
    assert [n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node] == ["Warp", "Relu"]
    converter.convert(source, tmp_path / "out.nnapi.json", **both)
    (found,) = converter.load(tmp_path / "out.nnapi.json").run({"x": X, "flow": FLOW}).values()
    np.testing.assert_allclose(found, expected(), rtol=1e-5, atol=1e-6)


def test_carried_through_every_format_with_custom_operators(source: Path, tmp_path: Path) -> None:
    """Name and attributes are the same at the end; Core ML has no lists, so they become text."""
    path = source
    for name in ("a.xml", "b.tflite", "c.onnx", "d.xml", "e.mlmodel", "f.onnx"):
        target = "openvino+ir=7" if name == "d.xml" else None
        notes = converter.convert(path, tmp_path / name, target=target, allow_custom=True)
        assert [d.code for d in notes if "carried" in d.message] == ["X208"]
        path = tmp_path / name
        if name == "c.onnx":
            onnx.checker.check_model(path)
            node = next(n for n in onnx.load(path).graph.node if n.op_type == "Warp")
            given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            assert given == {"gain": 0.5, "levels": [1, 2], "mode": b"bilinear"}
            assert node.domain == "org.tensorflow.lite"
    assert any(n.op_type == "Warp" for n in onnx.load(path).graph.node)


def test_openvino_runs_a_carried_layer_by_an_extension(source: Path, tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")

    class Warp(openvino.Op):  # type: ignore[misc, name-defined]
        """Twice the first input."""

        def __init__(self, inputs: Any = None) -> None:
            super().__init__(self)
            if inputs is not None:
                self.set_arguments(inputs)
                self.constructor_validate_and_infer_types()

        def validate_and_infer_types(self) -> None:
            shape = self.get_input_partial_shape(0)
            self.set_output_type(0, self.get_input_element_type(0), shape)

        def clone_with_new_inputs(self, inputs: Any) -> Any:
            return Warp(inputs)

        def has_evaluate(self) -> bool:
            return True

        def evaluate(self, outputs: Any, inputs: Any) -> bool:
            outputs[0].shape = inputs[0].shape
            np.copyto(outputs[0].data, inputs[0].data * 2)
            return True

    converter.convert(source, tmp_path / "out.xml", allow_custom=True)
    core = openvino.Core()
    core.add_extension(Warp)
    found = core.compile_model(tmp_path / "out.xml", "CPU")({"x": X, "flow": FLOW})
    np.testing.assert_allclose(found[0], np.maximum(X * 2, 0))


def test_options_of_another_form_stay_bytes(source: Path, tmp_path: Path) -> None:
    """A custom operator of TensorFlow Lite whose options are no map."""
    from flatbuffers import flexbuffers

    from converter.formats.tflite import custom

    converter.convert(source, tmp_path / "a.tflite", allow_custom=True)
    data = (tmp_path / "a.tflite").read_bytes()
    own = bytes(flexbuffers.Dumps({"gain": 0.5, "levels": [1, 2], "mode": "bilinear"}))
    assert own in data
    raw = b"\xff" * len(own)
    (tmp_path / "b.tflite").write_bytes(data.replace(own, raw))
    converter.convert(tmp_path / "b.tflite", tmp_path / "c.tflite", allow_custom=True)
    assert raw in (tmp_path / "c.tflite").read_bytes()
    assert custom.content_of({custom.BYTES: "00ff"}) == b"\x00\xff"


def test_a_file_without_functions_defines_nothing(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="defines no functions"):
        converter.convert(source, tmp_path / "out.xml", define=[source])
