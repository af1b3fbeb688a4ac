"""Files of TensorFlow Lite: LiteRT runs written files, damage is refused, weights are views."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nnapi_models import MODELS

import converter
from converter.engines import litert
from converter.engines.file import run
from converter.errors import ConverterError, ReadError
from converter.formats.format import Flavor
from converter.formats.nnapi.codec import write_table
from converter.formats.tflite import codec
from converter.formats.tflite.codec import LiteModel, read_flat
from converter.formats.tflite.format import sniff
from converter.formats.tflite.lower import write_model
from converter.graph.build import Builder, new_model
from converter.graph.network import Network
from converter.io.files import Output

needs_litert = pytest.mark.skipif(not litert.available(), reason="LiteRT is not installed")
NAMES = ["network", "quantised", "branches"]
FLOAT = ir.DataType.FLOAT


def saved(name: str, folder: Path) -> Path:
    """An operand table, and the file that it becomes."""
    with Output(folder / "net.nnapi.json") as out:
        write_table(MODELS[name](), out)
    converter.convert(folder / "net.nnapi.json", folder / "net.tflite", force=True)
    return folder / "net.tflite"


def written(b: Builder, path: Path, **interface: Any) -> LiteModel:
    write_model(Network(ir.Model(b.graph, ir_version=10), "onnx", [], interface), path, TFLITE)
    return read_flat(path)


TFLITE = Flavor("tflite")


def kinds(model: LiteModel) -> list[str]:
    return [o.builtin for o in model.graphs[0].operators]


@needs_litert
@pytest.mark.parametrize("behind", [False, True], ids=["inside", "behind"])
@pytest.mark.parametrize("name", NAMES)
def test_litert_runs_written_files(
    name: str, behind: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of more bytes than a flatbuffer can contain lie after it."""
    if behind:
        monkeypatch.setattr(codec, "LARGEST", 0)
    path, rng = saved(name, tmp_path), np.random.default_rng(5)
    assert sniff(path.read_bytes()[:64])
    source, model = converter.load(tmp_path / "net.nnapi.json"), converter.load(path)
    assert [i.name for i in model.inputs] == [i.name for i in source.inputs]
    feeds = {
        i.name: rng.uniform(0, 9, [int(n) for n in i.shape or ()]).astype(i.dtype)
        for i in model.inputs
    }
    got = litert.invoke(path, list(feeds.values()))
    wanted, read = source.run(feeds).values(), model.run(feeds).values()
    for found, again, want in zip(got, read, wanted, strict=True):
        assert found.dtype == again.dtype == want.dtype
        step = 1 if want.dtype == np.uint8 else 1e-4
        np.testing.assert_allclose(found.astype(float), want.astype(float), rtol=1e-4, atol=step)
        np.testing.assert_allclose(again.astype(float), want.astype(float), rtol=1e-4, atol=1e-4)


def test_a_buffer_that_grows_is_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = saved("network", tmp_path).read_bytes()
    monkeypatch.setattr(codec, "_FILE_OVERHEAD", 64)
    assert saved("network", tmp_path).read_bytes() == whole


def test_weights_are_aligned_and_views(tmp_path: Path) -> None:
    path = saved("network", tmp_path)
    content, found = path.read_bytes(), 0
    for tensor in read_flat(path).graphs[0].tensors:
        if tensor.data is not None and tensor.data.nbytes > 64:
            assert content.find(np.asarray(tensor.data).tobytes()) % 16 == 0
            assert not np.asarray(tensor.data).flags.owndata
            found += 1
    assert found


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (b"", "R103", "this is not a TensorFlow Lite model: byte 4 does not begin TFL3"),
        (b"\x18\0\0\0TFL3" + bytes(40), "R10", ""),
        (b"x" * 99, "R103", "this is not a TensorFlow Lite model: byte 4 does not begin TFL3"),
    ],
)
def test_files_that_are_no_model(content: bytes, code: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.tflite").write_bytes(content)
    with pytest.raises(ReadError, match=f"{code}.*{message}"):
        converter.load(tmp_path / "x.tflite", "tflite")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_damage_is_a_refusal_or_a_network(tmp_path: Path, data: st.DataObject) -> None:
    path = saved(data.draw(st.sampled_from(NAMES)), tmp_path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            # the tables lie before and after the weights
            near = st.integers(0, min(len(content), 1500) - 1)
            place = data.draw(near | st.integers(0, len(content) - 1))
            content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    try:
        converter.load(path, "tflite")
    except ConverterError as e:
        assert {d.code[:2] for d in e.diagnostics} <= {"R1", "X2"}


# quantized networks ------------------------------------------------------------------------------


def quantized_layer(kind: ir.DataType, weights: type[Any], perchannel: bool) -> Builder:
    """x -> Q -> DQ -> Conv(DQ(w), DQ(b)) -> Relu -> Q -> DQ, as exporters write it."""
    _, b = new_model()
    rng, dtype = np.random.default_rng(4), kind.numpy()
    x = b.input("x", FLOAT, [1, 3, 6, 6])
    zero = np.array(128 if np.dtype(dtype).kind == "u" else 0, dtype)
    scale = np.float32(0.05)
    inner = b.DequantizeLinear(b.QuantizeLinear(x, scale, zero), scale, zero)
    w = rng.integers(-90, 90, (4, 3, 3, 3))
    middle = 128 if weights is np.uint8 else 0
    scales = np.linspace(0.01, 0.02, 4).astype(np.float32) if perchannel else np.float32(0.01)
    zeros = np.full(np.shape(scales), middle, weights)
    filter_ = b.DequantizeLinear((w + middle).astype(weights), scales, zeros, axis=0)
    steps = rng.integers(-200, 200, 4).astype(np.int32)
    products = np.broadcast_to(scales * scale, 4).astype(np.float32)
    bias = b.DequantizeLinear(steps, products, np.zeros(4, np.int32), axis=0)
    y = b.Relu(b.Conv(inner, filter_, bias, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    out, low = np.float32(0.1), np.array(0 if np.dtype(dtype).kind == "u" else -128, dtype)
    b.output(b.DequantizeLinear(b.QuantizeLinear(y, out, low), out, low))
    return b


@needs_litert
@pytest.mark.parametrize(
    ("kind", "weights", "perchannel"),
    [
        (ir.DataType.INT8, np.int8, True),
        (ir.DataType.INT8, np.uint8, False),
        (ir.DataType.UINT8, np.int8, True),
        (ir.DataType.UINT8, np.uint8, False),
    ],
)
def test_a_quantized_layer_is_one_operator(
    kind: ir.DataType, weights: type[Any], perchannel: bool, tmp_path: Path
) -> None:
    b, path = quantized_layer(kind, weights, perchannel), tmp_path / "q.tflite"
    lite = written(b, path)
    moves = {"TRANSPOSE", "QUANTIZE", "DEQUANTIZE"}
    assert [k for k in kinds(lite) if k not in moves] == ["CONV_2D"]
    conv = next(o for o in lite.graphs[0].operators if o.builtin == "CONV_2D")
    assert conv.options["fused_activation_function"] == 1
    tensors = [lite.graphs[0].tensors[i] for i in conv.inputs]
    assert len(tensors[1].scales) == (4 if perchannel else 1)
    x = np.random.default_rng(1).normal(size=(1, 3, 6, 6)).astype(np.float32)
    (got,) = litert.invoke(path, [x])
    model = converter.Model(ir.Model(b.graph, ir_version=10), "onnx")
    (want,) = model.run({"x": x}).values()
    np.testing.assert_allclose(got, want, atol=0.1001)  # a step


@needs_litert
def test_a_layer_between_fake_quantizations_is_one_operator(tmp_path: Path) -> None:
    """As int8 files of OpenVINO have it: weights after a DequantizeLinear, a bias after the
    product.
    """
    _, b = new_model()
    x, rng = b.input("x", FLOAT, [1, 3, 6, 6]), np.random.default_rng(2)
    low, high = np.float32(-128 / 64), np.float32(127 / 64)
    inner = b.FakeQuantize(x, low, high, low, high, levels=256)
    weights = rng.integers(-100, 100, (4, 3, 1, 1)).astype(np.int8)
    filter_ = b.DequantizeLinear(weights, np.float32(0.01))
    y = b.Conv(inner, filter_, kernel_shape=[1, 1])
    y = b.Relu(b.Add(y, rng.normal(size=(1, 4, 1, 1)).astype(np.float32)))
    b.output(
        b.FakeQuantize(y, np.float32(0), np.float32(4), np.float32(0), np.float32(4), levels=256)
    )
    path = tmp_path / "f.tflite"
    lite = written(b, path)
    assert sorted(set(kinds(lite))) == ["CONV_2D", "DEQUANTIZE", "QUANTIZE", "TRANSPOSE"]
    conv = next(o for o in lite.graphs[0].operators if o.builtin == "CONV_2D")
    assert lite.graphs[0].tensors[conv.outputs[0]].type == 9  # INT8
    data = rng.normal(size=(1, 3, 6, 6)).astype(np.float32)
    (got,) = litert.invoke(path, [data])
    (want,) = converter.Model(ir.Model(b.graph, ir_version=10), "onnx").run({"x": data}).values()
    np.testing.assert_allclose(got, want, atol=4 / 255 + 1e-5)  # a step


# states, loops, names ----------------------------------------------------------------------------


@needs_litert
def test_a_state_is_a_variable(tmp_path: Path) -> None:
    """Each run adds its input to the state of the runs before."""
    _, b = new_model()
    x, before = b.input("x", FLOAT, [2]), b.input("sum", FLOAT, [2])
    total = b.Add(x, before)
    b.output(b.Mul(total, np.float32(2)), total)
    for value, name in zip(b.graph.outputs, ("y", "sum_out"), strict=True):
        value.name = name
    path = tmp_path / "state.tflite"
    start = np.array([10, 20], np.float32)
    lite = written(b, path, states={"sum": "sum_out"}, defaults={"sum": start})
    assert {"CALL_ONCE", "READ_VARIABLE", "ASSIGN_VARIABLE"} <= set(kinds(lite))
    model = converter.load(path)
    assert [i.name for i in model.inputs] == ["x", "sum"]
    one = np.ones(2, np.float32)
    (y,) = litert.invoke(path, [one])
    np.testing.assert_allclose(y, [22, 42])


@needs_litert
@pytest.mark.parametrize("stacks", [False, True])
def test_a_loop_is_a_while(stacks: bool, tmp_path: Path) -> None:
    """x doubles as long as its sum is below a limit, or three hundred times, stacked."""
    _, b = new_model()
    x = b.input("x", FLOAT, [2])
    body = b.body("step")
    body.input("turn", ir.DataType.INT64, [])
    again, state = body.input("again", ir.DataType.BOOL, []), body.input("state", FLOAT, [2])
    if stacks:
        after = body.Mul(state, np.float32(1.01))
        body.output(again, after, body.Add(after, x))
        results = b.Loop(np.int64(300), None, x, body=body.graph, outputs=2)
    else:
        after = body.Add(state, x)
        total = body.ReduceSum(after, [0], keepdims=0)
        body.output(body.Less(total, np.float32(20)), after)
        results = b.Loop(np.int64(1000), np.array(True), x, body=body.graph, outputs=1)
    b.output(*results)
    path = tmp_path / "loop.tflite"
    assert "WHILE" in kinds(written(b, path))
    given_ = np.array([1, 1.5], np.float32)
    got = litert.invoke(path, [given_])
    if stacks:
        powers = given_ * np.float32(1.01) ** np.arange(1, 301, dtype=np.float32)[:, None]
        np.testing.assert_allclose(got[0], powers[-1], rtol=1e-4)
        np.testing.assert_allclose(got[1], powers + given_, rtol=1e-4)
    else:
        np.testing.assert_allclose(got[0], [8, 12])


def test_names_are_those_of_the_signature(tmp_path: Path) -> None:
    _, b = new_model()
    x = b.input("image", FLOAT, [1, 3, 4, 4])
    b.output(b.Relu(x))
    b.graph.outputs[0].name = "found"
    (signature,) = written(b, tmp_path / "n.tflite").signatures
    assert (signature.inputs, signature.outputs) == ({"image": 0}, {"found": 1})


@needs_litert
def test_a_chosen_signature_agrees_with_the_file(tmp_path: Path) -> None:
    """Another than the file's first, with inputs in an order of its own."""
    graphs, signatures = [], []
    for key, op in (("first", "Add"), ("second", "Sub")):
        _, b = new_model()
        x, y = (b.input(n, FLOAT, [2]) for n in "xy")
        b.output(getattr(b, op)(x, y))
        lite = written(b, tmp_path / "one.tflite")
        graphs += lite.graphs
        number, (inputs, outputs) = len(graphs) - 1, (lite.graphs[0].inputs, lite.graphs[0].outputs)
        names = {"right": inputs[1], "left": inputs[0]}
        signatures.append(codec.LiteSignature(key, number, names, {"result": outputs[0]}))
    path = tmp_path / "two.tflite"
    with Output(path) as out:
        codec.write_flat(LiteModel(graphs, {}, signatures), out)
    second = converter.load(path, signature="second")
    assert second.run({"left": [5, 6], "right": [1, 2]})["result"].tolist() == [4, 4]
    result = converter.verify(second, second, native="on")
    assert result.passed and {(n.engine, n.status) for n in result.native} == {("litert", "same")}
    feed = [np.array(a, np.float32) for a in ([5, 6], [1, 2])]
    found = run("litert", path, ["left", "right"], [feed], function="second")
    assert found.results[0][0].tolist() == [4, 4]


def test_halves_are_stored_as_halves(tmp_path: Path) -> None:
    _, b = new_model()
    x = b.input("x", FLOAT, [4, 64])
    b.output(b.MatMul(x, np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)))
    network = Network(ir.Model(b.graph, ir_version=10), "onnx", [], {})
    sizes = []
    for options in ({}, {"fp16": ""}):
        write_model(network, tmp_path / "h.tflite", Flavor("tflite", options))
        sizes.append((tmp_path / "h.tflite").stat().st_size)
    assert sizes[1] < sizes[0] - 64 * 32
    assert "DEQUANTIZE" in kinds(read_flat(tmp_path / "h.tflite"))


def test_labels_stay_with_the_model(tmp_path: Path) -> None:
    """They are in an archive after the flatbuffer; other formats get texts as metadata."""
    _, b = new_model()
    b.output(b.Relu(b.input("x", FLOAT, [4])))
    path, labels = tmp_path / "l.tflite", {"labels.txt": b"cat\ndog\n", "b": b"\xff"}
    written(b, path, associated=(b"M001", labels))
    with zipfile.ZipFile(path) as archive:
        assert archive.read("labels.txt") == labels["labels.txt"]
    converter.convert(path, tmp_path / "again.tflite")
    assert path.read_bytes() == (tmp_path / "again.tflite").read_bytes()
    assert read_flat(path).metadata == {"TFLITE_METADATA": b"M001"}
    converter.convert(path, tmp_path / "l.onnx")
    props = onnx.load(tmp_path / "l.onnx").metadata_props
    assert {p.key: p.value for p in props}["labels.txt"] == "cat\ndog\n"


@needs_litert
def test_of_several_updates_of_one_element_the_last_wins(tmp_path: Path) -> None:
    _, b = new_model()
    x, updates = b.input("x", FLOAT, [4]), b.input("u", FLOAT, [3])
    places = b.input("i", ir.DataType.INT64, [3, 1])
    b.output(b.ScatterND(x, places, updates))
    path = tmp_path / "s.tflite"
    written(b, path)
    feeds = [np.zeros(4, np.float32), np.float32([1, 2, 3]), np.array([[2], [0], [-2]])]
    (got,) = litert.invoke(path, feeds)
    np.testing.assert_array_equal(got, [2, 0, 3, 0])
