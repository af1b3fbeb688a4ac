"""Other sizes than a file fixes.

The networks are made as exporters trace them, at one size, with the numbers of that size in their
constants. Their networks of another size are compared with onnxruntime on the network
that is made at that size, and with the engine's own reshape.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import netconv
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from converter.api import Model
from converter.cli import app, console
from converter.errors import UsageError
from converter.graph.build import new_model
from converter.passes.sizes.regroup import Pair, regrouped
from openvino_runtime import PRECISE, ov
from support import corpus_cases

F = np.float32
Shape = tuple[int, ...]


class Trace:
    """A network that is written for one size of its input."""

    def __init__(self, shape: Shape, name: str = "x") -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        self.random, self.count = np.random.default_rng(0), 0

    def op(self, kind: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        self.count += 1
        names = [f"t{self.count}_{i}" for i in range(outputs)]
        given = [self.of(v) for v in inputs]
        self.nodes.append(
            helper.make_node(kind, given, names, f"{kind}_{self.count}", **attributes)
        )
        return names[0] if outputs == 1 else names

    def of(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        name = f"c{len(self.constants)}"
        array = value if isinstance(value, np.ndarray) else np.array(value, np.int64)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def weights(self, *shape: int) -> np.ndarray[Any, Any]:
        """Return the same numbers for every size of the input."""
        return np.random.default_rng(shape).standard_normal(shape).astype(F) / F(np.sqrt(shape[0]))

    def model(self, *outputs: str) -> onnx.ModelProto:
        found = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, "main", self.inputs, found, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def flattened(shape: Shape) -> onnx.ModelProto:
    """A convolution, and layers on all elements of a sample."""
    t, (n, _, h, w) = Trace(shape), shape
    y = t.op("Relu", t.op("Conv", "x", t.weights(4, 3, 3, 3), pads=[1, 1, 1, 1]))
    y = t.op("Reshape", t.op("ReduceMean", y, axes=[2, 3]), [n, 4])
    z = t.op("Reshape", "x", [n, 3, h * w])
    z = t.op("Reshape", t.op("Softmax", z, axis=2), [n, 3, h, w])
    return t.model(t.op("MatMul", y, t.weights(4, 5)), z)


def shuffled(shape: Shape) -> onnx.ModelProto:
    """Pixels unshuffled into channels: each size is split, and the convolution that follows shows
    which part of it follows the image.
    """
    t, (n, c, h, w) = Trace(shape), shape
    y = t.op("Reshape", "x", [n, c, h // 2, 2, w // 2, 2])
    y = t.op("Reshape", t.op("Transpose", y, perm=[0, 1, 3, 5, 2, 4]), [n, 4 * c, h // 2, w // 2])
    return t.model(t.op("Conv", y, t.weights(2, 4 * c, 1, 1)))


def attention(shape: Shape) -> onnx.ModelProto:
    """Heads split and merged, a mask of zeros, and positions sliced from a longer table."""
    t, (n, s, c) = Trace(shape), shape
    places = t.op("Slice", t.weights(1, 64, c), [0], [s], [1])
    x = t.op("Add", "x", places)

    def heads(key: int) -> str:
        y = t.op("MatMul", x, t.weights(c, c + key)[:, :c])
        return str(t.op("Transpose", t.op("Reshape", y, [n, s, 2, c // 2]), perm=[0, 2, 1, 3]))

    scores = t.op("MatMul", heads(1), t.op("Transpose", heads(2), perm=[0, 1, 3, 2]))
    mask = t.op("Expand", np.zeros((1, 1, 1, s), F), [n, 1, s, s])
    y = t.op("MatMul", t.op("Softmax", t.op("Add", scores, mask), axis=-1), heads(3))
    return t.model(t.op("Reshape", t.op("Transpose", y, perm=[0, 2, 1, 3]), [n, s, c]))


def pyramid(shape: Shape) -> onnx.ModelProto:
    """Two scales: the smaller one is resized to constant sizes, and added to the larger one."""
    t, (_, _, h, w) = Trace(shape), shape
    a = t.op("Conv", "x", t.weights(4, 3, 3, 3), pads=[1, 1, 1, 1])
    b = t.op("MaxPool", a, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    up = t.op("Resize", b, "", "", [*a_sizes(shape)], mode="nearest")
    y = t.op("Add", a, up)
    cut = t.op("Slice", y, [1, 0], [h, w], [2, 3])
    return t.model(t.op("Concat", cut, cut, axis=1))


def a_sizes(shape: Shape) -> Shape:
    return (shape[0], 4, *shape[2:])


def recurrent(shape: Shape) -> onnx.ModelProto:
    """An LSTM with constant initial states, of sequences in the second axis."""
    t, (n, s, c) = Trace(shape), shape
    x = t.op("Transpose", "x", perm=[1, 0, 2])
    weights, zeros = (t.weights(1, 12, c), t.weights(1, 12, 3)), np.zeros((1, n, 3), F)
    y, *_ = t.op("LSTM", x, *weights, "", "", zeros, zeros, hidden_size=3, outputs=3)
    y = t.op("Reshape", t.op("Transpose", y, perm=[2, 0, 1, 3]), [n, s, 3])
    token = t.op("Concat", np.full((n, 1, 3), 2, F), y, axis=1)
    return t.model(t.op("Mul", token, np.ones((n, s + 1, 1), F)))


def looked_up(shape: Shape) -> onnx.ModelProto:
    """A table of positions, looked up by constant indices that count."""
    t, (_, s, c) = Trace(shape), shape
    places = t.op("Gather", t.weights(40, c), np.arange(s)[None], axis=0)
    y = t.op("Add", "x", places)
    parts = t.op("Split", y, [s // 2, s // 2], axis=1, outputs=2)
    return t.model(t.op("Add", *parts))


def decoded(shape: Shape) -> onnx.ModelProto:
    """Two transposed convolutions with constant sizes of their results, and a skip connection."""
    t, (_, _, h, w) = Trace(shape), shape
    a = t.op("Conv", "x", t.weights(4, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    y = t.op("Conv", a, t.weights(4, 4, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    half = [(h + 1) // 2, (w + 1) // 2]
    y = t.op("ConvTranspose", y, t.weights(4, 4, 3, 3), strides=[2, 2], output_shape=half)
    y = t.op("Relu", t.op("Add", t.op("Relu", y), a))
    y = t.op("ConvTranspose", y, t.weights(4, 2, 4, 4), strides=[2, 2], output_shape=[h, w])
    return t.model(y)


Net = Callable[[Shape], onnx.ModelProto]
CASES: list[tuple[Net, Shape, Shape]] = [
    (flattened, (1, 3, 8, 8), (5, 3, 8, 8)),
    (flattened, (2, 3, 8, 8), (3, 3, 12, 10)),
    (shuffled, (1, 3, 8, 8), (1, 3, 16, 12)),
    (shuffled, (1, 3, 8, 8), (2, 3, 12, 20)),
    (attention, (1, 6, 8), (3, 6, 8)),
    (attention, (1, 6, 8), (1, 10, 8)),
    (attention, (2, 6, 8), (5, 3, 8)),
    (pyramid, (1, 3, 8, 8), (1, 3, 12, 16)),
    (pyramid, (1, 3, 7, 9), (4, 3, 13, 5)),
    (decoded, (1, 3, 8, 12), (2, 3, 16, 20)),
    (recurrent, (1, 7, 4), (3, 7, 4)),
    (recurrent, (2, 7, 4), (5, 3, 4)),
    (looked_up, (1, 6, 4), (1, 10, 4)),
    (looked_up, (2, 6, 4), (7, 4, 4)),
]


def named(cases: list[tuple[Net, Shape, Shape]]) -> list[Any]:
    return [
        pytest.param(*case, id=f"{case[0].__name__}-{'x'.join(map(str, case[2]))}")
        for case in cases
    ]


def data_of(shape: Shape) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(F)


def expected_of(net: Net, shape: Shape) -> list[Any]:
    session = onnxruntime.InferenceSession(net(shape).SerializeToString())
    return list(session.run(None, {"x": data_of(shape)}))


def assert_close(actual: list[Any], expected: list[Any], tolerance: float = 1e-5) -> None:
    assert [np.shape(a) for a in actual] == [np.shape(e) for e in expected]
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("net", "old", "new"), named(CASES))
def test_a_network_is_that_of_the_other_size(net: Net, old: Shape, new: Shape) -> None:
    found = netconv.load(net(old).SerializeToString(), inputs={"x": new})
    assert found.inputs[0].shape == new
    assert_close([*found.run(data_of(new)).values()], expected_of(net, new))


FORMATS = ("m.xml", "m.tflite", "m.mlmodel", "m.mlpackage", "m.txt", "v7/m.xml", "m.nnapi.json")
SHOWN = [CASES[0], CASES[4], CASES[7], CASES[9]]


@pytest.mark.parametrize("file", FORMATS)
@pytest.mark.parametrize(("net", "old", "new"), named(SHOWN))
def test_files_of_all_formats_take_other_sizes(
    net: Net, old: Shape, new: Shape, file: str, tmp_path: Path
) -> None:
    """Right, or refused with the layer: a format may declare the shapes of all layers."""
    (tmp_path / "v7").mkdir()
    source, path = tmp_path / "net.onnx", tmp_path / file
    onnx.save(net(old), source)
    options: Any = {"target": "openvino+ir=7"} if "v7" in file else {}
    netconv.convert(source, path, io_layout="keep", **options)
    fixed = netconv.load(path)
    (name,) = (i.name for i in fixed.inputs)
    try:
        found = netconv.load(path, inputs={name: new})
    except UsageError as e:
        assert "at layer" in str(e) and file in ("m.txt", "v7/m.xml", "m.nnapi.json"), str(e)
        return
    assert_close([*found.run(data_of(new)).values()], expected_of(net, new), 1e-4)


def convolved(shape: Shape) -> onnx.ModelProto:
    """Layers without a constant that a size is in."""
    t = Trace(shape)
    y = t.op("Conv", "x", t.weights(4, 3, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER")
    y = t.op("AveragePool", t.op("Relu", y), kernel_shape=[2, 2], ceil_mode=1, strides=[2, 2])
    return t.model(t.op("Concat", y, y, axis=1), t.op("ReduceMean", y, axes=[2, 3]))


@pytest.mark.parametrize("new", [(4, 3, 9, 8), (1, 3, 14, 11)])
def test_openvino_reshapes_alike(new: Shape, tmp_path: Path) -> None:
    """OpenVINO keeps constants: it takes sizes that no constant of the file contradicts."""
    onnx.save(convolved((1, 3, 8, 8)), tmp_path / "net.onnx")
    ov.save_model(ov.convert_model(tmp_path / "net.onnx"), tmp_path / "net.xml")
    model = ov.Core().read_model(tmp_path / "net.xml")
    model.reshape(list(new))
    expected = ov.Core().compile_model(model, "CPU", PRECISE)([data_of(new)])
    found = netconv.load(tmp_path / "net.xml", inputs={"x": new})
    assert_close([*found.run(data_of(new)).values()], [expected[0], expected[1]], 2e-3)


# --- refusals


def table(shape: Shape) -> onnx.ModelProto:
    t = Trace(shape)
    return t.model(t.op("Add", "x", t.weights(*shape)))


def classified(shape: Shape) -> onnx.ModelProto:
    t, size = Trace(shape), int(np.prod(shape[1:]))
    y = t.op("Reshape", "x", [shape[0], size])
    return t.model(t.op("Gemm", y, t.weights(size, 4)))


def averaged(shape: Shape) -> onnx.ModelProto:
    t = Trace(shape)
    return t.model(t.op("AveragePool", "x", kernel_shape=shape[2:]))


def divided(shape: Shape) -> onnx.ModelProto:
    t = Trace(shape)
    y = t.op("ReduceSum", "x", [2, 3])
    return t.model(t.op("Mul", y, np.array(1 / (shape[2] * shape[3]), F)))


def undecided(shape: Shape) -> onnx.ModelProto:
    t = Trace(shape)
    return t.model(t.op("Reshape", "x", [*shape[:2], shape[2] // 2, 2, shape[3]]))


def cropped(shape: Shape) -> onnx.ModelProto:
    t = Trace(shape)
    return t.model(t.op("Slice", "x", [1], [shape[2] - 1], [2]))


def selected(shape: Shape) -> onnx.ModelProto:
    t = Trace(shape)
    return t.model(t.op("Gather", "x", [0, shape[2] - 1], axis=2))


def looped(shape: Shape) -> onnx.ModelProto:
    """A loop over the rows of an image, with their number as a constant."""
    t = Trace(shape)
    row = helper.make_node("Gather", ["x", "i"], ["row"], "row", axis=2)
    total = helper.make_node("Add", ["sum", "row"], ["more"], "more")
    again = helper.make_node("Identity", ["go"], ["on"], "on")
    body = helper.make_graph(
        [row, total, again],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("more", TensorProto.FLOAT, None),
        ],
    )
    first = np.zeros((shape[0], shape[1], shape[3]), F)
    return t.model(t.op("Loop", shape[2], np.array(True), first, body=body))


def fixed_part(shape: Shape) -> onnx.ModelProto:
    t = Trace(shape)
    return t.model(t.op("Resize", "x", "", "", [*shape[:2], 5, 5], mode="nearest"))


def widened(shape: Shape) -> onnx.ModelProto:
    """Resized along two axes, of which the layer after it shows one."""
    t, (_, c, h, w) = Trace(shape), shape
    up = t.op("Relu", t.op("Resize", "x", "", "", [1, c, h + 3, w + 3], mode="nearest"))
    column = t.op("ReduceMean", "x", axes=[3])
    more = t.op("Concat", column, t.op("Slice", column, [0], [1], [2]), axis=2)
    more = t.op("Concat", more, t.op("Slice", column, [0], [1], [2]), axis=2)
    more = t.op("Concat", more, t.op("Slice", column, [0], [1], [2]), axis=2)
    return t.model(t.op("Add", up, more))


def normalized(shape: Shape) -> onnx.ModelProto:
    """Coordinates as parts of the image."""
    t = Trace(shape)
    return t.model(t.op("Mul", t.op("Relu", "x"), np.array(1 / shape[2], F)))


def halved(shape: Shape) -> onnx.ModelProto:
    t = Trace(shape)
    first = t.op("Slice", "x", [0], [shape[2] // 2], [2])
    return t.model(t.op("Mul", first, t.op("Slice", "x", [shape[2] // 2], [shape[2]], [2])))


def shrunk(shape: Shape) -> onnx.ModelProto:
    t = Trace(shape)
    return t.model(t.op("Resize", "x", "", "", [*shape[:2], 4, 4], mode="nearest"))


def maximum(shape: Shape) -> onnx.ModelProto:
    t = Trace(shape)
    return t.model(t.op("MaxPool", "x", kernel_shape=shape[2:]))


def layer_normalized(shape: Shape) -> onnx.ModelProto:
    t = Trace(shape)
    return t.model(t.op("LayerNormalization", "x", np.ones(shape[2:], F), axis=2))


REFUSED: dict[Net, str] = {
    table: "a constant is a table of 8 entries",
    classified: "Gemm",
    averaged: "may be a global pooling",
    divided: "it divides by 64",
    undecided: "which of its sizes follow",
    cropped: "it takes elements 1 to 7 of 8",
    selected: "constant indices",
    looped: "the loop",
    fixed_part: "it resizes 8 to 5",
    halved: "it takes elements 0 to 4 of 8",
    shrunk: "it resizes 8 to 4",
    maximum: "may be a global pooling",
    layer_normalized: "it has a constant for each of 8 elements",
}


@pytest.mark.parametrize("net", REFUSED, ids=lambda n: n.__name__)
def test_sizes_that_do_not_follow_are_refused_with_the_layer(net: Net) -> None:
    old, new = (1, 3, 8, 8), (1, 3, 16, 8)
    with pytest.raises(UsageError, match=REFUSED[net]) as refused:
        netconv.load(net(old).SerializeToString(), inputs={"x": new})
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.code == "U501" and diagnostic.where.layer and diagnostic.help


def test_each_axis_of_a_resize_has_to_be_shown() -> None:
    old, one, both = (1, 3, 8, 8), (1, 3, 16, 8), (1, 3, 16, 12)
    model = widened(old).SerializeToString()
    found = netconv.load(model, inputs={"x": one})
    assert_close([*found.run(data_of(one)).values()], expected_of(widened, one))
    with pytest.raises(UsageError, match="it resizes 8 to 11"):
        netconv.load(model, inputs={"x": both})


def test_arithmetic_with_a_size_is_refused() -> None:
    model = normalized((1, 3, 32, 32)).SerializeToString()
    with pytest.raises(UsageError, match="which may come from the size 32"):
        netconv.load(model, inputs={"x": (1, 3, 48, 48)})
    netconv.load(model, inputs={"x": (2, 3, 32, 32)})  # the size is the same


def test_a_size_of_1_is_not_repeated_for_other_positions() -> None:
    """A table of one position is not one for five; that of one sample is one for all samples."""
    t = Trace((1, 1, 4))
    model = t.model(t.op("Add", "x", t.weights(1, 1, 4))).SerializeToString()
    with pytest.raises(UsageError, match="has one entry"):
        netconv.load(model, inputs={"x": (1, 5, 4)})
    x = data_of((5, 1, 4))
    found = netconv.load(model, inputs={"x": x.shape})
    np.testing.assert_allclose(next(iter(found.run(x).values())), x + t.weights(1, 1, 4))


def test_samples_are_not_mixed_where_a_size_of_1_was_taken_for_the_batch() -> None:
    """[1, 4] -> [1, 1, 4] may be a sequence of one step: with an LSTM over the first axis it is."""
    t = Trace((1, 4))
    x = t.op("Reshape", "x", [1, 1, 4])
    y, *_ = t.op("LSTM", x, t.weights(1, 12, 4), t.weights(1, 12, 3), hidden_size=3, outputs=3)
    with pytest.raises(UsageError, match="which of its sizes follow"):
        netconv.load(t.model(y).SerializeToString(), inputs={"x": (5, 4)})


def test_a_model_in_memory_is_read_again_for_other_sizes() -> None:
    model, b = new_model()
    b.output(b.Relu(b.input("x", ir.DataType.FLOAT, [1, 3])))
    with pytest.raises(UsageError, match="fixed dimension") as refused:
        netconv.convert(Model(model, "onnx"), "unwritten.onnx", inputs={"x": [2, 3]})
    assert "netconv.load" in refused.value.diagnostics[0].help


# --- commands


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(flattened((1, 3, 8, 8)), "net.onnx")
    onnx.save(flattened((5, 3, 8, 8)), "five.onnx")
    return tmp_path


@pytest.fixture
def call(files: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["netconv", *arguments])
        console.use(console.Console())
        return int(app._guarded())

    return run


def test_commands_take_other_sizes(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    five = ("--inputs", "x:5,3,8,8")
    assert call("convert", "net.onnx", "net.tflite", *five) == 0
    assert "U506" in capsys.readouterr().err
    assert call("verify", "net.onnx", "five.onnx", *five, "--native", "off") == 0
    assert call("run", "net.onnx", *five) == 0


@pytest.mark.slow
def test_commands_that_measure_take_other_sizes(call: Callable[..., int]) -> None:
    five = ("--inputs", "x:5,3,8,8")
    assert call("convert", "net.onnx", "net.tflite", *five, "--verify") == 0
    assert call("verify", "five.onnx", "net.onnx", *five) == 0
    assert call("verify", "net.onnx", "net.tflite", *five) == 0
    np.savez("data.npz", x=data_of((5, 3, 8, 8)))
    assert call("quantize", "net.onnx", "q.onnx", *five, "--data", "data.npz") == 0
    shape = netconv.load("q.onnx").inputs[0].shape
    assert shape is not None and shape[1:] == (3, 8, 8)
    assert netconv.verify("net.onnx", "five.onnx", inputs={"x": (5, 3, 8, 8)}).passed


# --- the order of elements


@pytest.mark.parametrize(("dims", "target", "expected"), [
    ([[(4, 8)], [(56, 56)]], [224], [[448]]),
    ([[(1, 5)], [(512, 512)], [(1, 1)], [(1, 1)]], [1, 512], [[5, 512]]),
    ([[(6, 9)], [(8, 8)]], [6, 2, 4], [[9, 2, 4]]),
    ([[(8, 8), (4, 6)]], [4, 2, 4], [[4, 2, 6]]),
    ([[(8, 8), (4, 6)]], [4, 8], [[4, 12]]),
    ([[(8, 16)]], [4, 2], [[8, 2], [4, 4]]),
    ([[(8, 12)]], [4, 2], [[6, 2], [4, 3]]),
    ([[(8, 20)]], [2, 4], [[5, 4], [2, 10]]),
    ([[(8, 9)]], [2, 4], []),
    ([[(1, 5)], [(4, 4)]], [4], []),
    ([[(1, 5)], [(4, 4)]], [1, 1, 4], [[5, 1, 4], [1, 5, 4]]),
    ([[(3, 4)], [(3, 5)]], [9], [[20]]),
    ([[(3, 4), (5, 6)]], [3, 5], [[4, 6]]),
])  # fmt: skip
def test_sizes_follow_the_order_of_elements(
    dims: list[list[tuple[int, int]]], target: list[int], expected: list[list[int]]
) -> None:
    factors = [tuple(Pair(*p) for p in dim) for dim in dims]
    assert [[p.new for p in option] for option in regrouped(factors, target)] == expected


# --- real networks


def other_sizes(shape: Any) -> list[Shape]:
    """Two other sizes for an input: another batch, and a larger image or a longer sequence."""
    found = [(3 * shape[0], *shape[1:])]
    if len(shape) == 4:
        found.append((*shape[:2], shape[2] + 32, shape[3] + 32))
    elif len(shape) in (2, 3):
        found.append((shape[0], 2 * shape[1], *shape[2:]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", corpus_cases("openvino/nets"))
def test_real_networks_are_reshaped_as_the_engine_reshapes_them(case: Path) -> None:
    """Each is right at two other sizes, or refused."""
    path = case / "model.xml"
    fixed = netconv.load(path)
    shapes = {i.name: i.shape for i in fixed.inputs}
    if any(s is None or not all(isinstance(d, int) for d in s) for s in shapes.values()):
        pytest.skip("its sizes are dynamic")
    if fixed.variables:
        pytest.skip("its states are no inputs of the engine")
    compared = 0
    for number in range(min(len(other_sizes(s)) for s in shapes.values())):
        new = {n: other_sizes(s)[number] for n, s in shapes.items()}
        try:
            found = netconv.load(path, inputs=new)
        except UsageError as e:
            assert e.diagnostics[0].where.layer, str(e)
            continue
        feeds = feeds_for_sizes(case, fixed, new)
        engine = ov.Core().read_model(path)
        try:
            engine.reshape({port_of(engine, n): list(s) for n, s in new.items()})
            compiled = ov.Core().compile_model(engine, "CPU", PRECISE)
        except RuntimeError:
            continue  # a constant that OpenVINO does not change
        expected = compiled([feeds[name_of(port, feeds)] for port in engine.inputs])
        actual = found.run(feeds)
        # results of quantized networks are multiples of a step, 1/255 in this one
        step = 2.5 / 255 if "qdq" in case.name else 0
        for a, b in zip(actual.values(), expected.values(), strict=True):
            most = max(step, 2e-3 * max(1, np.abs(b).max()))
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=most)
        compared += 1
    if not compared:
        pytest.skip("no other size is taken by both")


def port_of(model: Any, name: str) -> Any:
    return next(p for p in model.inputs if name_of(p, [name]))


def name_of(port: Any, names: Iterable[str]) -> str:
    """Return the name of a port of the engine, of those of the network."""
    known = {*port.get_names(), port.get_node().get_friendly_name()}
    return next((n for n in names if n in known), "")


def feeds_for_sizes(case: Path, model: Any, shapes: dict[str, Shape]) -> dict[str, Any]:
    """Return random numbers, and integers that the case has."""
    known = dict(np.load(case / "inputs.npz"))
    found = {}
    for info in model.inputs:
        shape = shapes[info.name]
        if info.dtype.kind == "f":
            found[info.name] = data_of(shape).astype(info.dtype)
        else:
            found[info.name] = np.resize(known.get(info.name, 0), shape).astype(info.dtype)
    return found
