"""Data without elements or axes, axes in any order, masks and binary networks: written files
give the numbers of onnxruntime or the specification's formula in the runtime.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime import InferenceSession, SessionOptions

import converter
from converter.api import Model
from converter.errors import ConverterError
from converter.graph.build import new_model
from converter.graph.value import FLOAT

ov = pytest.importorskip("openvino")

from openvino_runtime import built, close, infer  # noqa: E402

F = np.float32
RNG = np.random.default_rng(7)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def one_operator(
    kind: str, operands: list[Any], constant: tuple[int, ...], outputs: int = 1, **attributes: Any
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model of one operator, and its inputs; operands at `constant` are initializers."""
    names = [f"x{i}" for i in range(len(operands))]
    results = [f"y{i}" for i in range(outputs)]
    feeds = {
        n: a for i, (n, a) in enumerate(zip(names, operands, strict=True)) if i not in constant
    }
    graph = helper.make_graph(
        [helper.make_node(kind, names, results, **attributes)],
        "edges",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ],
        [onnx.ValueInfoProto(name=n) for n in results],
        [numpy_helper.from_array(operands[i], names[i]) for i in constant],
    )
    opset = 26 if kind == "BitCast" else 21
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    inferred = {v.name: v for v in onnx.shape_inference.infer_shapes(model).graph.output}
    for v in model.graph.output:
        v.CopyFrom(inferred[v.name])
    model.ir_version = 13 if opset > 21 else 10
    return model, feeds


def expected_of(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = SessionOptions()
    options.log_severity_level = 4
    session = InferenceSession(model.SerializeToString(), options)
    return list(session.run(None, feeds))


X, EMPTY = floats(2, 3, 4), floats(2, 0, 4)
CASES: dict[str, tuple[Any, ...]] = {
    # without elements
    "Expand to size 0": ("Expand", [floats(2, 1, 1), ints(2, 1, 0)], (1,)),
    "Expand of size 0": ("Expand", [floats(0, 1), ints(0, 3)], (1,)),
    "Gather nothing": ("Gather", [floats(4, 3), ints()], (1,)),
    "Gather nothing, computed": ("Gather", [floats(4, 3), ints()], ()),
    "Gather from size 0": ("Gather", [floats(3, 0), ints(1, 2)], (1,)),
    "TopK of 0": ("TopK", [floats(3, 4), ints(0)], (1,), 2, {"axis": 1}),
    "MatMul over size 0": ("MatMul", [floats(2, 0), floats(0, 3)], ()),
    "Gemm over size 0": ("Gemm", [floats(2, 0), floats(0, 3), floats(3)], (1,)),
    "MaxPool of no images": ("MaxPool", [floats(0, 2, 5, 5)], (), 1, {"kernel_shape": [2, 2]}),
    "Unique of nothing": ("Unique", [floats(0)], ()),
    **{
        f"{kind} over size 0": (kind, [EMPTY, ints(1)], (1,), 1, {"keepdims": 0})
        for kind in ("ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceLogSumExp")
    },
    # without axes
    "Expand of a scalar": ("Expand", [floats(), ints()], (1,)),
    "Tile of a scalar": ("Tile", [floats(), ints()], (1,)),
    # axes that are computed, in falling order
    **{
        f"{kind} over computed axes": (kind, [abs(X) + F(0.1), ints(2, -2)], (), 1, {"keepdims": 0})
        for kind in ("ReduceLogSum", "ReduceMean", "ReduceMax", "ReduceL2")
    },
}


@pytest.mark.parametrize("name", CASES)
def test_data_without_elements_or_axes_and_computed_axes(name: str, tmp_path: Path) -> None:
    kind, operands, constant, outputs, attributes = (*CASES[name], 1, {})[:5]
    model, feeds = one_operator(kind, operands, constant, outputs, **attributes)
    onnx.save(model, tmp_path / "m.onnx")
    converter.convert(tmp_path / "m.onnx", tmp_path / "m.xml", target="openvino")
    close(infer(tmp_path / "m.xml", list(feeds.values())), expected_of(model, feeds), 1e-5)


def test_a_scalar_is_padded_by_nothing(tmp_path: Path) -> None:
    model, feeds = one_operator("Pad", [floats(), ints()], (1,))
    onnx.save(model, tmp_path / "m.onnx")
    converter.convert(tmp_path / "m.onnx", tmp_path / "m.xml", target="openvino")
    close(infer(tmp_path / "m.xml", list(feeds.values())), list(feeds.values()), 0)


@pytest.mark.parametrize(
    "kind, operands, constant",
    [
        ("Unsqueeze", [X, ints(3, 0)], ()),
        ("BitCast", [np.array([1.5, -2.0])], ()),
        ("BitCast", [np.array([2**40, -3])], ()),
    ],
)
def test_models_that_the_runtime_cannot_run_are_refused(
    kind: str, operands: list[Any], constant: tuple[int, ...], tmp_path: Path
) -> None:
    to = {"to": 7 if operands[0].dtype == np.float64 else 11} if kind == "BitCast" else {}
    model, _ = one_operator(kind, operands, constant, 1, **to)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ConverterError, match=r"axes are computed|64-bit integers"):
        converter.convert(tmp_path / "m.onnx", tmp_path / "m.xml", target="openvino")


def test_columns_become_images_with_every_attribute(tmp_path: Path) -> None:
    """The layer's strides and dilations are written although they are 1."""
    columns, sizes = floats(1, 8, 16), (ints(5, 5), ints(2, 2))
    model, feeds = one_operator("Col2Im", [columns, *sizes], ())
    onnx.save(model, tmp_path / "m.onnx")
    converter.convert(tmp_path / "m.onnx", tmp_path / "m.xml", target="openvino")
    assert 'strides="1, 1" dilations="1, 1"' in (tmp_path / "m.xml").read_text()
    expected = np.zeros((1, 2, 5, 5), F)
    blocks = columns.reshape(2, 2, 2, 4, 4)
    for i in range(2):
        for j in range(2):
            expected[0, :, i : i + 4, j : j + 4] += blocks[:, i, j]
    close(infer(tmp_path / "m.xml", list(feeds.values())), [expected], 1e-5)


@pytest.mark.parametrize("infinite", ["Equal", "IsInf"])
def test_rows_that_a_mask_hides_are_found(infinite: str, tmp_path: Path) -> None:
    """The CPU plugin's largest of minus infinities is a finite number."""
    model, b = new_model("main")
    x = b.input("x", FLOAT, [3, 4])
    most = b.ReduceMax(x, [1])
    hidden = b.Equal(most, -np.inf) if infinite == "Equal" else b.IsInf(most)
    b.output(b.Where(hidden, 0.0, b.Softmax(x, axis=1)))
    Model(model, "onnx").save(tmp_path / "m.xml", "openvino")
    rows = np.array([[-np.inf] * 4, [0, -np.inf, 0, -np.inf], [-np.inf, 1, -np.inf, -np.inf]], F)
    expected = np.array([[0] * 4, [0.5, 0, 0.5, 0], [0, 1, 0, 0]], F)
    close(infer(tmp_path / "m.xml", [rows]), [expected], 1e-6)


@pytest.mark.parametrize("nested", [False, True])
def test_loops_that_read_dequantized_weights(nested: bool, tmp_path: Path) -> None:
    stored = RNG.integers(-90, 90, (4, 4)).astype(np.int8)
    x, h, scale = floats(5, 1, 4), floats(1, 4), F(0.01)
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[5,1,4] x, float[1,4] h) => (float[1,4] y)
        <float s = {{{scale}}}, int8 z = {{0}}, int64 turns = {{5}}, bool go = {{1}}> {{
            w = DequantizeLinear (stored, s, z)
            y = Loop (turns, go, h) <body: graph = step (int64 i, bool c, float[1,4] old)
                    => (bool again, float[1,4] next) {{
                part = Gather <axis: int = 0> (x, i)
                product = MatMul (part, w)
                total = Add (product, old)
                next = Tanh (total)
                again = Identity (c)
            }}>
        }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(stored, "stored"))
    if nested:
        wrap_in_choice(model)
    onnx.save(model, tmp_path / "m.onnx")
    converter.convert(tmp_path / "m.onnx", tmp_path / "m.xml", target="openvino")
    weights, state = stored * scale, h
    for part in x:
        state = np.tanh(part @ weights + state)
    feeds = [x, h, np.array(True)][: 2 + nested]
    close(infer(tmp_path / "m.xml", feeds), [state], 1e-5)


def wrap_in_choice(model: onnx.ModelProto) -> None:
    """Put the last node of a model into one branch of an If."""
    graph = model.graph
    loop = graph.node.pop()
    output = graph.output[0]
    then = helper.make_graph([loop], "then", [], [output])
    same = helper.make_graph(
        [helper.make_node("Identity", ["h"], ["same"])],
        "other",
        [],
        [helper.make_tensor_value_info("same", 1, [1, 4])],
    )
    choice = helper.make_node("If", ["yes"], ["chosen"], then_branch=then, else_branch=same)
    graph.node.append(choice)
    graph.input.append(helper.make_tensor_value_info("yes", 9, []))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("chosen", 1, [1, 4]))


# quotients and binary networks -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("down", [True, False])
def test_quotients_of_integers_are_those_of_the_plugin(
    kind: str, down: bool, tmp_path: Path
) -> None:
    feeds = [np.array(v, kind) for v in ([-10, -10, 10, 10, -9], [-3, 3, -3, 3, 3])]
    options = {"auto_broadcast": "numpy", "m_pythondiv": down}
    path = built(tmp_path / "m.xml", 1, "Divide", feeds, options)
    found = converter.load(path).run({f"in{i}": x for i, x in enumerate(feeds)})
    close(list(found.values()), infer(path, feeds), 0)


@pytest.mark.parametrize("ends", [(0, 1), (-1, 1), (1, 0)])
@pytest.mark.parametrize("levels", [2, 4])
@pytest.mark.parametrize("target", ["openvino", "onnx"])
def test_equal_bounds_are_a_threshold(
    target: str, levels: int, ends: tuple[int, int], tmp_path: Path
) -> None:
    """FakeQuantize-1: at and below the bound the low end, above it the high end."""
    x = floats(1, 3, 4, 4)
    x[0, 0, 0, 0] = 0.5
    bound = np.array([0.5, -0.25, 0], F).reshape(1, 3, 1, 1)
    high = bound + np.array([0, 0, 3], F).reshape(1, 3, 1, 1)
    feeds = [x, bound, high, *(np.array(e, F) for e in ends)]
    attributes = {"levels": levels}
    path = built(tmp_path / "m.xml", 1, "FakeQuantize", feeds, attributes, (1, 2, 3, 4))
    again = tmp_path / ("again.xml" if target == "openvino" else "again.onnx")
    converter.convert(path, again, target=target)
    expected = np.where(x > bound, F(ends[1]), F(ends[0]))
    level = np.round(np.clip(x[:, 2], 0, 3) / 3 * (levels - 1)) / (levels - 1)
    expected[:, 2] = level * (ends[1] - ends[0]) + ends[0]
    found = (
        infer(again, [x])
        if target == "openvino"
        else [*converter.load(again).run({"in0": x}).values()]
    )
    close(found, [expected.astype(F)], 1e-6)


@pytest.mark.parametrize("padding", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("data", [(-1, 1), (0, 1), (-0.5, 0.25)])
def test_binary_convolutions(padding: float, data: tuple[float, float], tmp_path: Path) -> None:
    """Positive numbers count as +1, and the lowest bit of a byte comes first."""
    from openvino.utils.node_factory import NodeFactory  # type: ignore[import-not-found, unused-ignore]

    bits = RNG.integers(0, 2, (4, 8, 3, 3)).astype(np.uint8)
    x = RNG.choice(np.array(data, F), (1, 8, 5, 5))
    weights = ov.Tensor(ov.Type.u1, ov.Shape(bits.shape))
    packed = np.packbits(bits.reshape(-1), bitorder="little")
    weights.data.view(np.uint8).reshape(-1)[: packed.size] = packed
    parameter = ov.op.Parameter(ov.Type.f32, ov.Shape(x.shape))
    parameter.output(0).set_names({"x"})
    attributes = {
        **{"strides": [1, 1], "dilations": [1, 1], "pads_begin": [1, 0], "pads_end": [1, 0]},
        **{"mode": "xnor-popcount", "pad_value": padding, "auto_pad": "explicit"},
    }
    operands = [parameter.output(0), ov.op.Constant(weights).output(0)]
    node = NodeFactory("opset1").create("BinaryConvolution", operands, attributes)
    path, again = tmp_path / "m.xml", tmp_path / "again.xml"
    ov.serialize(ov.Model(node.outputs(), [parameter], "m"), path)
    signs = np.pad(
        np.where(x > 0, F(1), F(-1)), ((0, 0), (0, 0), (1, 1), (0, 0)), constant_values=padding
    )
    expected = np.zeros((1, 4, 5, 3), F)
    for i in range(5):
        for j in range(3):
            window = signs[0, :, i : i + 3, j : j + 3]
            expected[0, :, i, j] = np.einsum("chw,ochw->o", window, bits * F(2) - 1)
    model = converter.load(path)
    close(infer(path, [x]), [expected], 0)
    close([*model.run({"x": x}).values()], [expected], 0)
    model.save(again, "openvino")
    assert 'type="BinaryConvolution"' in again.read_text()
    close(infer(again, [x]), [expected], 0)


def test_binary_convolutions_of_any_number_of_channels_are_right(tmp_path: Path) -> None:
    """Of numbers of channels that are no multiple of 8 the plugin takes other bits."""
    bits = RNG.integers(0, 2, (2, 3, 2, 2)).astype(F)
    model, b = new_model("main")
    x = b.input("x", FLOAT, [1, 3, 4, 4])
    window = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1]}
    b.output(b.BinaryConvolution(x, b.const(bits), **window))
    Model(model, "onnx").save(tmp_path / "m.xml", "openvino")
    data = floats(1, 3, 4, 4)
    signs, expected = np.where(data > 0, F(1), F(-1)), np.zeros((1, 2, 3, 3), F)
    for i in range(3):
        for j in range(3):
            window_of = signs[0, :, i : i + 2, j : j + 2]
            expected[0, :, i, j] = np.einsum("chw,ochw->o", window_of, bits * 2 - 1)
    close(infer(tmp_path / "m.xml", [data]), [expected], 0)
