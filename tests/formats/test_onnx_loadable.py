"""Written ONNX files load in onnxruntime with its default options, and compute there the
intended results.
"""

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
from converter.formats import get
from converter.formats.onnx.loadable import APART
from converter.graph.build import Builder, new_model
from converter.graph.extensions import CATALOGUE, extension

T = ir.DataType
rng = np.random.default_rng(3)
STEP, POINT = np.array(0.05, np.float32), np.array(3, np.int8)


def native(path: Path, feeds: dict[str, np.ndarray], optimized: bool = True) -> list[Any]:
    options = onnxruntime.SessionOptions()
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(
            None, feeds
        )
    )


def kinds(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path).graph.node]


def written(model: ir.Model, path: Path, target: str = "onnx") -> Path:
    converter.save(Model(model, "test"), path, target)
    return path


MOVERS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "Transpose": ([], {"perm": [0, 2, 3, 1]}),
    "MaxPool": ([], {"kernel_shape": [2, 2]}),
    "Reshape": ([np.array([1, -1])], {}),
    "Squeeze": ([np.array([0])], {}),
    "Unsqueeze": ([np.array([0])], {}),
    "Slice": ([np.array([0]), np.array([2]), np.array([1])], {}),
}
X8 = rng.integers(-128, 128, (1, 4, 6, 6), np.int8)


@pytest.mark.parametrize("target", ["onnx", "onnx+opset=22", "onnx+opset=17"])
@pytest.mark.parametrize("behind", ["an operator", "an output", "another mover"])
@pytest.mark.parametrize("kind", MOVERS)
def test_dequantized_bytes_are_moved(kind: str, behind: str, target: str, tmp_path: Path) -> None:
    """From opset 21 on, where QuantizeLinear names its type, onnxruntime's own pair after the
    mover does not load.
    """
    model, b = new_model()
    y = b.op("DequantizeLinear", b.input("x", T.INT8, X8.shape), STEP, POINT)
    operands, attributes = MOVERS[kind]
    y = b.op(kind, y, *operands, **attributes)
    if behind != "an output":
        y = b.op("Sin", y) if behind == "an operator" else b.op("Reshape", y, [-1])
    b.output(y)
    path = written(model, tmp_path / "m.onnx", target)
    (found,), (wanted,) = native(path, {"x": X8}), native(path, {"x": X8}, optimized=False)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    names = kinds(path)
    place = names.index(kind, 1)
    assert (names[place + 1 : place + 3] == ["QuantizeLinear", "DequantizeLinear"]) == (
        target != "onnx+opset=17"
    )


def test_a_definition_that_moves_moved_data(tmp_path: Path) -> None:
    """onnxruntime inlines definitions first: its own pair would stand in there."""

    @extension
    def TestHalf(b: Builder, x: ir.Value) -> ir.Value:
        """The sines of the first three of each row."""
        return b.op("Sin", b.op("Slice", x, [0], [3], [1]))

    try:
        model, b = new_model()
        real = b.op("DequantizeLinear", b.input("x", T.INT8, X8.shape), STEP, POINT)
        b.output(b.ext("TestHalf", b.op("Reshape", real, [24, 6])))
        path = written(model, tmp_path / "m.onnx")
    finally:
        del CATALOGUE["TestHalf"]
    wanted = np.sin(0.05 * (X8.reshape(24, 6)[:, :3].astype(np.float64) - 3))
    np.testing.assert_allclose(native(path, {"x": X8})[0], wanted, atol=1e-6)


def test_quantized_bytes_that_are_moved_need_no_other_pair(tmp_path: Path) -> None:
    model, b = new_model()
    real = b.op("DequantizeLinear", b.input("x", T.INT8, X8.shape), STEP, POINT)
    b.output(b.op("QuantizeLinear", b.op("Transpose", real, perm=[0, 2, 3, 1]), STEP, POINT))
    path = written(model, tmp_path / "m.onnx")
    assert kinds(path) == ["DequantizeLinear", "Transpose", "QuantizeLinear"]
    np.testing.assert_array_equal(native(path, {"x": X8})[0], X8.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("dilation", [1, 2])
def test_quantized_averages(dilation: int, tmp_path: Path) -> None:
    """onnxruntime's quantized average has no dilations, not even those that say nothing."""
    model, b = new_model()
    real = b.op("DequantizeLinear", b.input("x", T.INT8, X8.shape), STEP, POINT)
    b.output(
        b.op(
            "QuantizeLinear",
            b.op("AveragePool", real, kernel_shape=[2, 2], dilations=[dilation] * 2),
            STEP,
            POINT,
        )
    )
    path = written(model, tmp_path / "m.onnx")
    windows = np.lib.stride_tricks.sliding_window_view(
        X8.astype(np.float64), (dilation + 1,) * 2, axis=(2, 3)
    )[..., ::dilation, ::dilation]
    (found,) = native(path, {"x": X8})
    assert np.abs(found - windows.mean(axis=(-2, -1))).max() <= 0.51
    assert not any(
        a.name == "dilations"
        for n in onnx.load(path).graph.node
        for a in n.attribute
        if n.op_type == "AveragePool"
    )


@pytest.mark.parametrize("channels", [False, True])
def test_signed_weights_have_a_zero_point(channels: bool, tmp_path: Path) -> None:
    """Without one, releases of onnxruntime quantize moved values as unsigned bytes."""
    weights = rng.integers(-127, 128, (5, 7), np.int8)
    scale = rng.uniform(0.01, 0.1, 5).astype(np.float32) if channels else STEP
    model, b = new_model()
    x = b.input("x", T.FLOAT, [3, 7])
    b.output(
        b.op(
            "MatMul",
            x,
            b.op("Transpose", b.op("DequantizeLinear", weights, scale, axis=0), perm=[1, 0]),
        )
    )
    path = written(model, tmp_path / "m.onnx")
    data = rng.normal(size=(3, 7)).astype(np.float32)
    wanted = data @ (weights * (scale[:, None] if channels else scale)).T
    np.testing.assert_allclose(
        native(path, {"x": data})[0], wanted, atol=0.02 * np.abs(wanted).max()
    )  # bytes of activations by default
    (node,) = [n for n in onnx.load(path).graph.node if n.op_type == "DequantizeLinear"]
    assert len(node.input) == 3


def test_a_type_with_a_zero_point(tmp_path: Path) -> None:
    """`output_dtype` is forgotten when the optimizer makes the bytes unsigned."""
    constants = [numpy_helper.from_array(STEP, "s"), numpy_helper.from_array(POINT, "z")]
    nodes = [
        helper.make_node(
            "QuantizeLinear", ["x", "s", "z"], ["q"], output_dtype=onnx.TensorProto.INT8
        ),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    declared = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", declared[:1], declared[1:], constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
        tmp_path / "in.onnx",
    )
    converter.convert(tmp_path / "in.onnx", tmp_path / "out.onnx")
    np.testing.assert_allclose(
        native(tmp_path / "out.onnx", {"x": np.array([-9, 0, 0.11, 9], np.float32)})[0],
        [-6.55, 0, 0.1, 6.2],
        atol=1e-6,
    )


def test_bodies_of_one_operator_have_names_of_their_own(tmp_path: Path) -> None:
    """Old releases of onnxruntime take one body for all overloads of a name."""
    model, b = new_model()
    x = b.input("x", T.FLOAT, [2, 3])
    for group in (1, 2, 3):
        b.output(b.ext("ShuffleChannels", b.op("Reshape", x, [1, 6, 1, 1]), group=group))
    path = written(model, tmp_path / "m.onnx")
    functions = [f.name for f in onnx.load(path).functions]
    assert len(set(functions)) == len(functions) == 3
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    for group, found in zip((1, 2, 3), native(path, {"x": data}), strict=True):
        np.testing.assert_array_equal(found.reshape(-1), data.reshape(group, -1).T.reshape(-1))
    back = converter.load(path)
    assert [n.op_type for n in back.ir.graph if n.domain] == ["ShuffleChannels"] * 3
    assert not any(APART in name for name in CATALOGUE)


def of(
    kind: str, dtype: T, *more: Any, outputs: int = 1, **attributes: Any
) -> tuple[ir.Model, np.ndarray]:
    data = (rng.integers(0, 2, (3, 4)) if dtype == T.BOOL else rng.integers(0, 9, (3, 4))).astype(
        dtype.numpy()
    )
    model, b = new_model()
    x = b.input("x", dtype, data.shape)
    b.output(
        *b.ops(kind, *(x if m is X8 else m for m in (more or (X8,))), outputs=outputs, **attributes)
    )
    return model, data


CHOICE = np.array([True, False, True, False])
LACKING = {
    "a choice of truths": lambda: of("Where", T.BOOL, CHOICE, X8, np.array(True)),
    "a choice of bytes": lambda: of("Where", T.INT8, CHOICE, X8, np.array(3, np.int8)),
    "a choice of words": lambda: of("Where", T.UINT16, CHOICE, X8, np.array(3, np.uint16)),
    "what is in it": lambda: of("Unique", T.INT32, outputs=4),
    "the larger bytes": lambda: of("Max", T.INT8, X8, np.array(3, np.int8)),
    "the remainder of floats": lambda: of("Mod", T.FLOAT, X8, np.array(3, np.float32)),
    "products of doubles": lambda: of("Elu", T.DOUBLE),
    "a sum of words": lambda: of("ReduceSum", T.UINT32, X8, np.array([1])),
}


@pytest.mark.parametrize("target", ["onnx", "onnx+opset=17"])
@pytest.mark.parametrize("name", LACKING)
def test_operators_without_kernel_are_written_otherwise(
    name: str, target: str, tmp_path: Path
) -> None:
    model, data = LACKING[name]()
    wanted = Model(model, "test").run({"x": data}).values()
    path = written(model, tmp_path / "m.onnx", target)
    for found, expected in zip(native(path, {"x": data}), wanted, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_narrower_computation_is_said(tmp_path: Path) -> None:
    model, _ = LACKING["products of doubles"]()
    assert [
        d.code
        for d in get("onnx").write(
            Model(model, "test"), tmp_path / "m.onnx", converter.formats.format.Flavor("onnx")
        )
    ] == ["X205"]
    model, _ = LACKING["a choice of words"]()
    assert (
        get("onnx").write(
            Model(model, "test"), tmp_path / "n.onnx", converter.formats.format.Flavor("onnx")
        )
        == []
    )


def test_an_operator_that_an_onnx_file_came_with_stays(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Where", ["c", "x", "y"], ["z"])],
        "g",
        [helper.make_tensor_value_info(n, onnx.TensorProto.BOOL, [4]) for n in "cxy"],
        [helper.make_tensor_value_info("z", onnx.TensorProto.BOOL, [4])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
        tmp_path / "in.onnx",
    )
    converter.convert(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert kinds(tmp_path / "out.onnx") == ["Where"]


def test_definitions_are_spelled_so_too(tmp_path: Path) -> None:
    @extension
    def TestChoice(b: Builder, x: ir.Value) -> ir.Value:
        """The booleans at even positions, false elsewhere."""
        return b.op("Where", CHOICE, x, np.array(False))

    try:
        model, b = new_model()
        b.output(b.ext("TestChoice", b.input("x", T.BOOL, [3, 4])))
        path = written(model, tmp_path / "m.onnx")
        (function,) = onnx.load(path).functions
        assert "Where" not in {n.op_type for n in function.node}
        truths = rng.integers(0, 2, (3, 4)).astype(bool)
        np.testing.assert_array_equal(native(path, {"x": truths})[0], truths & CHOICE)
    finally:
        del CATALOGUE["TestChoice"]


def test_values_of_bodies_hide_none_that_a_function_is_given(tmp_path: Path) -> None:
    """A value that the function reads in its loop has the name of a value of the loop."""

    @extension
    def TestSums(b: Builder, x: ir.Value) -> ir.Value:
        """Each row twice, one after the other."""
        body = b.body("rows")
        i = body.input("i", T.INT64, [])
        body.input("go", T.BOOL, [])
        row = body.op("Gather", x, i, name="row")
        body.output(body.const(np.array(True), "again"), body.op("Add", row, row))
        return b.op("Loop", np.array(2), np.array(True), body=body.graph)

    try:
        model, b = new_model()
        b.output(b.ext("TestSums", b.op("Neg", b.input("x", T.FLOAT, [2, 3]), name="row")))
        path = written(model, tmp_path / "m.onnx")
        np.testing.assert_array_equal(native(path, {"x": ROWS})[0], -2 * ROWS)
    finally:
        del CATALOGUE["TestSums"]


ROWS = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
# name -> the operator, its result for ROWS, the operators of the file: the oldest supported
# release refuses the plain one, or computes something else
DEVIATING: dict[str, tuple[Any, np.ndarray, list[str]]] = {
    "a reduction over no axis": (
        lambda b, x: b.op("ReduceSumSquare", x, noop_with_empty_axes=1),
        ROWS**2,
        ["Mul"],
    ),
    "averages that count uneven margins": (
        lambda b, x: b.op(
            "AveragePool",
            b.op("Reshape", x, [1, 1, 2, 3]),
            kernel_shape=[2, 1],
            pads=[0, 0, 1, 0],
            count_include_pad=1,
        ),
        np.stack([ROWS.mean(0), ROWS[1] / 2])[None, None],
        ["Reshape", "Pad", "AveragePool"],
    ),
    "a sequence of nothing": (
        lambda b, x: b.op(
            "ReverseSequence",
            x,
            b.op("Cast", b.op("Gather", x, np.array(0)), to=int(T.INT64)),
            batch_axis=1,
            time_axis=0,
        ),
        np.array([[4, 0, 1], [2, 5, -6]], np.float32),
        ["Gather", "Cast", "Max", "ReverseSequence"],
    ),
    "the last axis resized": (
        lambda b, x: b.op("Resize", x, None, np.array([2], np.float32), axes=[-1], mode="nearest"),
        np.repeat(ROWS, 2, axis=1),
        ["Resize"],
    ),
}


@pytest.mark.parametrize("name", DEVIATING)
def test_operators_that_old_releases_compute_otherwise(name: str, tmp_path: Path) -> None:
    make, wanted, spelling = DEVIATING[name]
    model, b = new_model()
    b.output(make(b, b.input("x", T.FLOAT, ROWS.shape)))
    path = written(model, tmp_path / "m.onnx")
    assert [k for k in kinds(path)] == spelling
    data = ROWS.copy()
    if name == "a sequence of nothing":
        data[0] = [2, 0, 1]
    np.testing.assert_allclose(native(path, {"x": data})[0], wanted, atol=1e-6)
    assert not any(
        i < 0
        for n in onnx.load(path).graph.node
        for a in n.attribute
        if a.name == "axes"
        for i in a.ints
    )


@pytest.mark.parametrize(
    ("kind", "more", "opset", "attributes", "wanted"),
    [
        ("ReduceSum", np.zeros(0, np.int64), 13, {"noop_with_empty_axes": 1}, ROWS),
        ("ReduceMax", None, 20, {"noop_with_empty_axes": 1}, ROWS),
        ("Mod", np.array(4, np.float32), 13, {"fmod": 1}, np.fmod(ROWS, 4)),
    ],
)
def test_spellings_that_changed_with_the_opset(
    kind: str, more: Any, opset: int, attributes: dict[str, Any], wanted: np.ndarray, tmp_path: Path
) -> None:
    declared = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ROWS.shape) for n in "xy"]
    constants = [] if more is None else [numpy_helper.from_array(more, "m")]
    node = helper.make_node(kind, ["x", *(c.name for c in constants)], ["y"], **attributes)
    graph = helper.make_graph([node], "g", declared[:1], declared[1:], constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9),
        tmp_path / "in.onnx",
    )
    converter.convert(tmp_path / "in.onnx", tmp_path / "out.onnx")
    np.testing.assert_allclose(native(tmp_path / "out.onnx", {"x": ROWS})[0], wanted)
    assert not any(
        a.name == "noop_with_empty_axes"
        for n in onnx.load(tmp_path / "out.onnx").graph.node
        for a in n.attribute
    )


@pytest.mark.parametrize("target", ["onnx", "onnx+opset=22"])
@pytest.mark.parametrize("first", [True, False])
def test_products_of_dequantized_bytes_and_a_bias(first: bool, target: str, tmp_path: Path) -> None:
    """Of more than two axes: onnxruntime makes a Gemm after a Reshape, over which it carries the
    DequantizeLinear with a type of its own.
    """
    model, b = new_model()
    x = rng.integers(-128, 128, (2, 3, 4), np.int8)
    # processors without VNNI add two products in 16 bits
    weights, bias = rng.integers(-60, 60, (4, 5), np.int8), rng.integers(-99, 99, 5, np.int32)
    real = b.op("DequantizeLinear", b.input("x", T.INT8, x.shape), STEP, POINT)
    factor = b.op("DequantizeLinear", weights, STEP, np.array(0, np.int8))
    added = b.op("DequantizeLinear", bias, STEP * STEP)
    y = b.op("MatMul", real, factor)
    y = b.op("Add", *((y, added) if first else (added, y)))
    b.output(b.op("Sin", y))
    path = written(model, tmp_path / "m.onnx", target)
    (found,), (wanted,) = native(path, {"x": x}), native(path, {"x": x}, optimized=False)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("stored", [T.INT8, T.UINT8])
def test_dequantized_bytes_from_depth_to_space(stored: ir.DataType, tmp_path: Path) -> None:
    """Releases before 1.24 move signed bytes themselves, and have no kernel for them."""
    model, b = new_model()
    point = np.array(3, stored.numpy())
    x = b.op("DequantizeLinear", b.input("x", stored, X8.shape), STEP, point)
    y = b.op("DepthToSpace", x, blocksize=2, mode="CRD")
    b.output(b.op("QuantizeLinear", y, STEP, point))
    path = written(model, tmp_path / "m.onnx")
    assert ("DepthToSpace" in kinds(path)) == (stored == T.UINT8)
    feed = X8.astype(stored.numpy())
    (found,), (wanted,) = native(path, {"x": feed}), native(path, {"x": feed}, optimized=False)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shape", [(32,), (2, 32), (2, 3, 32), ("n", 32)])
def test_floats_times_weights_of_8_bits_stay_floats(
    shape: tuple[Any, ...], turned: bool, channels: bool, tmp_path: Path
) -> None:
    """Newer releases quantize the factors of such weights, too."""
    x = rng.standard_normal([2 if n == "n" else n for n in shape]).astype(np.float32)
    weights = rng.integers(-128, 128, (32, 16), np.int8)
    scale = rng.uniform(0.01, 0.02, 16 if channels else ()).astype(np.float32)
    model, b = new_model()
    stored, axis = (weights.T.copy(), 0) if turned else (weights, 1)
    factor = b.op("DequantizeLinear", b.const(stored), b.const(scale), axis=axis)
    factor = b.op("Transpose", factor, perm=[1, 0]) if turned else factor
    b.output(b.op("MatMul", b.input("x", T.FLOAT, shape), factor))
    path = written(model, tmp_path / "m.onnx")
    (found,) = native(path, {"x": x})
    np.testing.assert_allclose(found, x @ (weights * scale), rtol=1e-5, atol=1e-4)
    assert path.stat().st_size < 2000, "the weights stay small"


def test_an_onnx_file_keeps_its_product_with_weights_of_8_bits(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["f"]),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    constants = {"w": rng.integers(-128, 128, (32, 16), np.int8), "s": np.float32(0.5)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 32])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 16])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    opset = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "a.onnx")
    converter.convert(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert kinds(tmp_path / "b.onnx") == ["DequantizeLinear", "MatMul"]
