"""Types of a few bits (FLOAT4E2M1, FLOAT8E8M0, INT2, UINT2): computed in wider types in every
format, against the expected numbers of ONNX's operator tests and ml_dtypes.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import converter
from onnx_node_cases import as_arrays, differences, quick_node_cases

TYPES = {
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
    "FLOAT8E8M0": ml_dtypes.float8_e8m0fnu,
    "INT2": ml_dtypes.int2,
    "UINT2": ml_dtypes.uint2,
}
NUMBERS = np.array([0.3, 1.2, 2.5, 5, 0.75, 1, 3, 100], np.float32)
NAMES = (
    "cast_FLOAT_to_FLOAT4E2M1",
    "cast_FLOAT4E2M1_to_FLOAT16",
    "cast_e8m0_FLOAT_to_FLOAT8E8M0",
    "cast_e8m0_FLOAT8E8M0_to_FLOAT",
    "cast_FLOAT16_to_UINT2",
    "cast_INT2_to_INT8",
    "castlike_FLOAT_to_INT2",
    "dequantizelinear_float4e2m1",
    "dequantizelinear_int2",
    "quantizelinear_float4e2m1",
    "quantizelinear_uint2",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_operator_tests_of_onnx(name: str, tmp_path: Path) -> None:
    case = quick_node_cases()[name]
    onnx.save(case.model, tmp_path / "in.onnx")
    given, expected = ([as_arrays(v) for v in side] for side in case.data_sets[0])
    for suffix in ("onnx", "xml", "tflite"):
        converter.convert(tmp_path / "in.onnx", tmp_path / f"out.{suffix}")
        model = converter.load(tmp_path / f"out.{suffix}")
        feeds = {i.name: v.astype(i.dtype) for i, v in zip(model.inputs, given, strict=True)}
        found = model.run(feeds, "openvino" if suffix == "xml" else "onnxruntime")
        for wanted, result in zip(expected, found.values(), strict=True):
            wide = wanted.astype(np.float32)
            assert not differences(suffix, wide, result.astype(np.float32), 1e-6, 1e-6)


def through(tmp_path: Path, name: str, shape: tuple[int, ...]) -> Path:
    """A network that converts to a type, moves the numbers, and converts back."""
    to = getattr(TensorProto, name)
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=to),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=[1, 0]),
        helper.make_node("Concat", ["c", "c"], ["d"], axis=0),
        helper.make_node("Cast", ["d"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, shape[0] // 2])],
        [helper.make_tensor("shape", TensorProto.INT64, [2], [-1, 2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)
    onnx.save(model, tmp_path / "in.onnx")
    return tmp_path / "in.onnx"


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(
    "target", ["out.onnx", "out.xml", "ir7.xml", "out.tflite", "out.mlmodel", "zhouyi/out.txt"]
)
@pytest.mark.sampled(8)
def test_numbers_that_are_moved(name: str, target: str, tmp_path: Path) -> None:
    (tmp_path / "zhouyi").mkdir()
    path = through(tmp_path, name, NUMBERS.shape)
    flavor = "openvino+ir=7" if target == "ir7.xml" else None
    converter.convert(path, tmp_path / target, target=flavor)
    (found,) = converter.load(tmp_path / target).run({"x": NUMBERS}).values()
    if name == "FLOAT8E8M0":  # upwards, the default of ONNX
        narrow = np.exp2(np.ceil(np.log2(NUMBERS)))
    elif name == "FLOAT4E2M1":
        narrow = NUMBERS.astype(TYPES[name]).astype(np.float32)
    else:
        narrow = NUMBERS.astype(np.int32).astype(TYPES[name]).astype(np.float32)
    expected = np.concatenate([narrow.reshape(-1, 2).T] * 2)
    np.testing.assert_array_equal(np.asarray(found, np.float32), expected)


@pytest.mark.parametrize("name", TYPES)
def test_inputs_and_outputs_are_presented_in_wider_types(name: str, tmp_path: Path) -> None:
    to = getattr(TensorProto, name)
    ports = [helper.make_tensor_value_info(n, to, [4]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "s"], ["y"])],
        "g",
        ports[:1],
        ports[1:],
        [helper.make_tensor("s", TensorProto.INT64, [1], [4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)
    onnx.save(model, tmp_path / "in.onnx")
    notes = converter.convert(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert [(d.code, name in d.message) for d in notes] == [("X205", True)] * 2
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    given = np.array([0, 1, 1, 0], np.uint8 if name == "UINT2" else np.int8)
    given = given if "INT" in name else given.astype(np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": given})[0], given)


def test_weights_of_two_bits_take_four(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).integers(-2, 2, (64, 64)).astype(ml_dtypes.int2)
    tensor = helper.make_tensor(
        "w", TensorProto.INT2, weights.shape, weights.astype(np.int8).reshape(-1)
    )
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["f"]),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [tensor, helper.make_tensor("s", TensorProto.FLOAT, [], [0.5])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)
    onnx.save(model, tmp_path / "in.onnx")
    x = np.random.default_rng(1).normal(size=(1, 64)).astype(np.float32)
    expected = x @ (weights.astype(np.float32) * 0.5)
    for suffix, engine in (("onnx", "onnxruntime"), ("xml", "openvino"), ("tflite", "litert")):
        path = tmp_path / f"out.{suffix}"
        converter.convert(tmp_path / "in.onnx", path)
        stored = path.with_suffix(".bin") if suffix == "xml" else path
        assert stored.stat().st_size < 64 * 64 // 2 + 2048
        (found,) = converter.load(path).run({"x": x}, engine).values()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
