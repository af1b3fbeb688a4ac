"""Unusual but valid graphs as TensorFlow Lite files: no elements, one operand, steps and bounds at
the limits of integers, numbers of four bits. onnxruntime says the numbers, LiteRT computes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import converter
from converter.engines import litert

pytest.importorskip("tflite", reason="the schema package tflite is not installed")
from tflite_files import in_litert

pytestmark = pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")
F, I32, I64 = np.float32, np.int32, np.int64


def assert_as_onnxruntime(
    folder: Path,
    nodes: Any,
    feeds: dict[str, Any],
    out: Any = F,
    known: Any = None,
    **constants: Any,
) -> list[Any]:
    """`known`: the result, where onnxruntime does not run the graph or is not exact."""
    kinds = {n: oh.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()}
    inputs = [oh.make_tensor_value_info(n, kinds[n], v.shape) for n, v in feeds.items()]
    result = oh.make_tensor_value_info("y", oh.np_dtype_to_tensor_dtype(np.dtype(out)), None)
    given = [
        v if isinstance(v, onnx.TensorProto) else numpy_helper.from_array(np.asarray(v), n)
        for n, v in constants.items()
    ]
    graph = oh.make_graph(list(nodes), "g", inputs, [result], given)
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10)
    source, target = folder / "m.onnx", folder / "m.tflite"
    onnx.save(onnx.shape_inference.infer_shapes(model), source)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = [known] if known is not None else None
    if expected is None:
        expected = ort.InferenceSession(str(source), options).run(None, feeds)
    converter.convert(source, target)
    for kernels in (in_litert, delegated):
        for actual, value in zip(kernels(target, list(feeds.values())), expected, strict=True):
            assert actual.shape == value.shape and actual.dtype == value.dtype
            if value.dtype.kind == "f":
                np.testing.assert_allclose(actual, value, 1e-4, 1e-4)
            else:
                np.testing.assert_array_equal(actual, value)
    return expected


def delegated(path: Path, feeds: Any) -> list[Any]:
    """The outputs of a file in LiteRT with XNNPACK, its default."""
    return litert.invoke(path, feeds)


def floats(*shape: int) -> Any:
    return np.random.default_rng(4).normal(size=shape).astype(F)


SHAPES = {
    "one": [(2, 3)],
    "one number": [()],
    "two": [(2, 3), (2, 3)],
    "broadcast": [(2, 3), (3,)],
    "three broadcast": [(2, 1), (3,), (2, 3)],
    "other ranks": [(4, 2, 3), (2, 1), (1,)],
    "no elements": [(0, 3), (3,)],
    "five": [(2, 3)] * 5,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min"])
def test_operands_of_any_number_and_shape(tmp_path: Path, op: str, shapes: Any) -> None:
    feeds = {f"x{i}": floats(*s) for i, s in enumerate(shapes)}
    assert_as_onnxruntime(tmp_path, [oh.make_node(op, list(feeds), ["y"])], feeds)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("kind", [F, I32, I64])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd"])
def test_reductions_of_nothing(tmp_path: Path, op: str, kind: Any, keep: int) -> None:
    x, node = np.zeros((2, 0, 4), kind), oh.make_node(op, ["x", "axes"], ["y"], keepdims=keep)
    assert_as_onnxruntime(tmp_path, [node], {"x": x}, kind, axes=np.array([1], I64))


@pytest.mark.parametrize("op", ["ReduceLogSumExp", "ReduceL2", "ReduceSumSquare"])
def test_other_reductions_of_nothing(tmp_path: Path, op: str) -> None:
    node = oh.make_node(op, ["x"], ["y"], keepdims=0)
    assert_as_onnxruntime(tmp_path, [node], {"x": np.zeros((2, 0), F)})


def test_a_reduction_over_no_axes_changes_nothing(tmp_path: Path) -> None:
    node = oh.make_node("ReduceMax", ["x", "axes"], ["y"], noop_with_empty_axes=1)
    assert_as_onnxruntime(tmp_path, [node], {"x": floats(2, 3)}, axes=np.zeros(0, I64))


@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 0), (0, 3)), ((0, 4), (4, 3)), ((2, 4), (4, 0)), ((2, 2, 0), (2, 0, 3)), ((0,), (0,))],
)
def test_products_of_nothing(tmp_path: Path, left: Any, right: Any) -> None:
    feeds = {"a": floats(*left), "b": floats(*right)}
    assert_as_onnxruntime(tmp_path, [oh.make_node("MatMul", ["a", "b"], ["y"])], feeds)


def test_a_gemm_of_nothing_is_its_addend(tmp_path: Path) -> None:
    node = oh.make_node("Gemm", ["a", "b", "c"], ["y"], beta=2.0)
    assert_as_onnxruntime(tmp_path, [node], {"a": floats(2, 0)}, b=np.zeros((0, 3), F), c=floats(3))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("rule", ["half_pixel", "asymmetric", "align_corners"])
def test_an_image_resized_to_nothing(tmp_path: Path, mode: str, rule: str) -> None:
    attrs = {"mode": mode, "coordinate_transformation_mode": rule}
    node = oh.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attrs)
    sizes = np.array([1, 1, 0, 3], I64)
    assert_as_onnxruntime(
        tmp_path, [node], {"x": floats(1, 1, 2, 3)}, known=np.zeros((1, 1, 0, 3), F), sizes=sizes
    )


LOW, HIGH = -(2**31), 2**31 - 1
RANGES = [
    (0, HIGH, HIGH), (3, LOW, LOW), (-1, LOW, -1), (4, LOW, -HIGH), (LOW, HIGH, 2), (-10, -20, -1),
    (0, 2**63 - 1, 2**63 - 1), (4, -(2**63), -(2**63)), (2, -100, -3), (-(2**63), 2**63 - 1, 1),
    (5, 2, 1),
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bounds", RANGES)
def test_slices_at_the_limits(tmp_path: Path, bounds: Any) -> None:
    node = oh.make_node("Slice", ["x", "start", "end", "axes", "step"], ["y"])
    start, end, step = (np.array([n], I64) for n in bounds)
    given = {"start": start, "end": end, "axes": np.array([1], I64), "step": step}
    assert_as_onnxruntime(tmp_path, [node], {"x": floats(2, 5)}, **given)


@pytest.mark.parametrize("kind", [np.float16, F])
@pytest.mark.parametrize("four", [onnx.TensorProto.INT4, onnx.TensorProto.UINT4])
def test_blocks_of_four_bits_in_any_precision(tmp_path: Path, four: int, kind: Any) -> None:
    """So many that they stay packed; LiteRT casts them to float32 alone."""
    numbers = np.random.default_rng(1).integers(0, 8, 1024).tolist()
    weights = oh.make_tensor("w", four, [64, 16], numbers)
    nodes = [
        oh.make_node("DequantizeLinear", ["w", "scale"], ["d"], axis=0, block_size=32),
        oh.make_node("Cast", ["d"], ["f"], to=1),
        oh.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    # powers of two, whose products halves hold exactly
    scale = 2.0 ** -np.arange(32).reshape(2, 16).astype(kind) % 4
    feeds = {"x": floats(2, 64)}
    assert_as_onnxruntime(tmp_path, nodes, feeds, w=weights, scale=scale.astype(kind))


@pytest.mark.parametrize("to", [I32, np.int8, np.float16])
def test_a_cast_of_four_bits(tmp_path: Path, to: Any) -> None:
    kind = oh.np_dtype_to_tensor_dtype(np.dtype(to))
    weights = oh.make_tensor("w", onnx.TensorProto.INT4, [512], [i % 16 - 8 for i in range(512)])
    nodes = [
        oh.make_node("Cast", ["w"], ["c"], to=kind),
        oh.make_node("Cast", ["c"], ["f"], to=1),
        oh.make_node("Add", ["x", "f"], ["y"]),
    ]
    assert_as_onnxruntime(tmp_path, nodes, {"x": floats(512)}, w=weights)


WIDE = np.array([3 * 10**9, -3 * 10**9, 5, -7, 2**40 + 1, 0, -(2**62)], I64)
OTHER = np.array([7, 7, -2, 2, 2**32, 3, 5], I64)


@pytest.mark.parametrize("op", ["Abs", "Sign", "ArgMax", "ArgMin", "ReduceMax"])
def test_integers_of_64_bits_stay_exact(tmp_path: Path, op: str) -> None:
    attrs = {"axis": 0} if op.startswith("Arg") else {}
    node = oh.make_node(op, ["x"], ["y"], **attrs)
    assert_as_onnxruntime(tmp_path, [node], {"x": WIDE}, I64)


@pytest.mark.parametrize("op", ["Mod", "Max", "Sub", "Less"])
@pytest.mark.parametrize("fmod", [0, 1])
def test_pairs_of_64_bits_stay_exact(tmp_path: Path, op: str, fmod: int) -> None:
    attrs = {"fmod": fmod} if op == "Mod" else {}
    node = oh.make_node(op, ["a", "b"], ["y"], **attrs)
    out = np.bool_ if op == "Less" else I64
    assert_as_onnxruntime(tmp_path, [node], {"a": WIDE, "b": OTHER}, out)


def test_a_divisor_of_64_bits_does_not_end_the_process(tmp_path: Path) -> None:
    """2^32 is 0 in the 32 bits in which the kernel divides."""
    node = oh.make_node("Div", ["a", "b"], ["y"])
    feeds = {"a": np.array([7, -9, 0], I64), "b": np.array([2**32, -(2**33), 3], I64)}
    assert_as_onnxruntime(tmp_path, [node], feeds, I64)


def quantized(kind: Any, zero: int, scale: float = 0.25) -> dict[str, Any]:
    return {"scale": np.asarray(scale, F), "zero": np.asarray(zero, kind)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "zero"), [(np.int8, -100), (np.uint8, 100), (np.int16, 0)])
@pytest.mark.parametrize("to", [I32, I64, bool])
def test_quantized_values_are_cast_as_the_numbers_they_stand_for(
    tmp_path: Path, kind: Any, zero: int, to: Any
) -> None:
    nodes = [
        oh.make_node("DequantizeLinear", ["x", "scale", "zero"], ["real"]),
        oh.make_node("Cast", ["real"], ["y"], to=oh.np_dtype_to_tensor_dtype(np.dtype(to))),
    ]
    x = (zero + np.array([0, 3, -9, 20])).astype(kind)
    assert_as_onnxruntime(tmp_path, nodes, {"x": x}, to, **quantized(kind, zero))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "TopK", "Max", "Neg"])
def test_a_result_of_another_scale_is_rescaled(tmp_path: Path, op: str, kind: Any) -> None:
    """The kernels compare quantized values, or negate them, with any scale of the result."""
    more = {"ReduceMax": ["axes"], "ReduceMin": ["axes"], "TopK": ["axes"], "Max": ["real"]}
    results = ["r", "places"] if op == "TopK" else ["r"]
    nodes = [
        oh.make_node("DequantizeLinear", ["x", "scale", "zero"], ["real"]),
        oh.make_node(op, ["real", *more.get(op, [])], results),
        oh.make_node("QuantizeLinear", ["r", "other", "far"], ["y"]),
    ]
    x = (50 + np.array([[0, 3, -8], [40, 8, -40]])).astype(kind)
    rest = {} if op in ("Neg", "Max") else {"axes": np.array([1])}
    rest |= {"other": np.asarray(0.5, F), "far": np.asarray(9, kind)}
    assert_as_onnxruntime(tmp_path, nodes, {"x": x}, kind, **quantized(kind, 50), **rest)


@pytest.mark.parametrize("op", ["Sub", "Equal", "Concat", "Relu", "Expand"])
def test_quantized_values_of_two_types(tmp_path: Path, op: str) -> None:
    """A constant of another type, and a result of another: no kernel takes both."""
    attributes, second = ({"axis": 0} if op == "Concat" else {}), {"Relu": [], "Expand": ["shape"]}
    nodes = [
        oh.make_node("DequantizeLinear", ["x", "scale", "zero"], ["a"]),
        oh.make_node("DequantizeLinear", ["c", "scale", "far"], ["b"]),
        oh.make_node(op, ["a", *second.get(op, ["b"])], ["r"], **attributes),
        oh.make_node("QuantizeLinear", ["r", "scale", "far"], ["y"]),
    ]
    rest: dict[str, Any] = {"c": np.array([3, 9, 200], np.uint8), "far": np.asarray(9, np.uint8)}
    rest |= {"shape": np.array([2, 3])} if op == "Expand" else {}
    kind: Any = np.uint8
    if op == "Equal":
        nodes, kind = nodes[:3], bool
        nodes[2].output[0] = "y"
    feeds = {"x": np.array([-6, 0, 7], np.int16 if op == "Expand" else np.int8)}
    scales = quantized(feeds["x"].dtype, 0)
    assert_as_onnxruntime(tmp_path, nodes, feeds, kind, **scales, **rest)


def test_dynamic_sizes_are_those_of_the_inputs(tmp_path: Path) -> None:
    """With the sizes of 1 that a file has for unknown ones, LiteRT could not prepare it."""
    node = oh.make_node("Concat", ["x", "c"], ["y"], axis=-1)
    graph = oh.make_graph(
        [node],
        "g",
        [oh.make_tensor_value_info("x", 1, ["a", "b"])],
        [oh.make_tensor_value_info("y", 1, [3, None])],
        [numpy_helper.from_array(floats(3, 2), "c")],
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    converter.convert(tmp_path / "m.onnx", tmp_path / "m.tflite")
    x = floats(3, 4)
    (out,) = delegated(tmp_path / "m.tflite", [x])
    np.testing.assert_array_equal(out, np.concatenate([x, floats(3, 2)], 1))


def test_an_output_that_is_a_quantized_constant(tmp_path: Path) -> None:
    """LiteRT's delegate does not write the result of a DEQUANTIZE of a constant."""
    node = oh.make_node("DequantizeLinear", ["c", "scale", "zero"], ["y"])
    constants = {"c": np.array([[-3, 4]], np.int8), **quantized(np.int8, 3)}
    assert_as_onnxruntime(tmp_path, [node], {"x": floats(2)}, **constants)
