"""Float networks become networks of integers; expected numbers come from onnxruntime's quantizer,
LiteRT, OpenVINO, or the formula.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import converter
from converter.commands.options.quantize import Quantize
from converter.commands.quantize import run
from converter.commands.quantize.blocks import block_steps
from converter.commands.quantize.blocks import packed as packed_blocks
from converter.commands.quantize.feedback import with_feedback
from converter.commands.quantize.measure import Noise, Quality, interval
from converter.commands.quantize.run import prepared
from converter.commands.quantize.scales import Observer, Range, whole
from converter.commands.quantize.search import Limit
from converter.commands.quantize.weights import palette
from converter.engines import file
from converter.engines.processor import saturates
from converter.errors import UnsupportedError, UsageError
from support import ROOT

SAMPLES = 12
needs_core_ai = pytest.mark.skipif(
    not file.available("coreai"), reason="coreai-core is not installed: pip install '.[coreai]'"
)


def network(path: Path) -> Path:
    """Conv, BatchNormalization, Relu, MaxPool and a second branch, Concat, Gemm, Softmax."""
    rng = np.random.default_rng(1)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        size = 2 * np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array((rng.standard_normal(shape) / size).astype("f4"), name)

    def positive(name: str, size: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.uniform(0.5, 1.5, size).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c1", "s", "b", "m", "v"], ["n1"], "norm"),
        helper.make_node("Relu", ["n1"], ["r1"], "relu"),
        helper.make_node("MaxPool", ["r1"], ["p1"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2"], ["c2"], "conv2"),
        helper.make_node("Sigmoid", ["c2"], ["g"], "gate"),
        helper.make_node("Concat", ["p1", "c2", "g"], ["j"], "join", axis=1),
        helper.make_node("Flatten", ["j"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["d"], "dense", transB=1),
        helper.make_node("Softmax", ["d"], ["y"], "scores"),
    ]
    weights = [
        weight("w1", 8, 3, 3, 3),
        weight("b1", 8),
        *(positive(n, 8) for n in "sbmv"),
        weight("w2", 8, 8, 1, 1),
        weight("w3", 10, 384),
        weight("b3", 10),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        weights,
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A network, and its samples in one .npz file."""
    folder = tmp_path_factory.mktemp("quantize")
    x = np.random.default_rng(2).standard_normal((SAMPLES, 3, 8, 8)).astype(np.float32)
    np.savez(folder / "data.npz", x=x, label=np.arange(SAMPLES) % 10)
    return network(folder / "net.onnx"), folder / "data.npz"


def quantize(source: Path, target: Path, **options: Any) -> Any:
    (found,) = converter.quantize(source, target, **options)
    return found


def is_accurate(found: Any, least: float) -> bool:
    """Return whether all results are that accurate, in dB. Sums of 8-bit products that saturate on
    this processor are coarser: then nothing is known.
    """
    return saturates() or found.quality.least > least


# scales ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "dtype", "scale", "zero"),
    [
        ((0.0, 255.0), "uint8", 1.0, 0),
        ((-128.0, 127.0), "int8", 1.0, 0),
        ((0.0, 2.55), "int8", 0.01, -128),
        ((1.0, 5.1), "uint8", 0.02, 0),  # 0 is always represented
        ((-0.5, 2.0), "int16", 2.0 / 32767, 0),
        ((0.0, 0.0), "int8", 1.0, 0),
    ],
)
def test_scale_of_a_range(ends: tuple[float, float], dtype: str, scale: float, zero: int) -> None:
    found = Range(*ends).scale(dtype)
    assert (found.step, found.zero) == (pytest.approx(scale), zero)


def test_a_channel_of_zeros_has_the_range_of_all() -> None:
    low, high = np.array([0.0, -1.0, 0.0]), np.array([2.0, 3.0, 0.0])
    found = Range(low, high).scale("int8")
    assert found.step == pytest.approx([2 / 255, 4 / 255, 4 / 255])
    assert found.zero.tolist() == [-128, -64, -64]


def test_percentile_is_that_of_numpy() -> None:
    rng = np.random.default_rng(0)
    observer, numbers = Observer("percentile"), rng.standard_normal((4, 50000)).astype(np.float32)
    for row in numbers:
        observer.add({"x": row})
    found = observer.ranges("int8")["x"]
    low, high = np.percentile(numbers, [0.005, 99.995])
    assert (found.low, found.high) == (pytest.approx(low, rel=0.03), pytest.approx(high, rel=0.03))


def test_an_outlier_does_not_stretch_the_range() -> None:
    rng = np.random.default_rng(0)
    numbers = np.append(rng.standard_normal(20000), 60.0).astype(np.float32)
    observer = Observer("entropy")
    observer.add({"x": numbers})
    assert 1 < observer.ranges("int8")["x"].high < 40


def test_mse_loses_least() -> None:
    numbers = np.random.default_rng(0).standard_normal(100000).astype(np.float32) ** 3
    observer = Observer("mse")
    observer.add({"x": numbers})

    def lost(high: float) -> float:
        step = 2 * high / 255
        return float(np.square(np.clip(np.rint(numbers / step), -128, 127) * step - numbers).sum())

    found, whole = observer.ranges("int8")["x"], float(np.abs(numbers).max())
    best = min(lost(whole * i / 40) for i in range(8, 41))
    assert lost(max(-found.low, found.high)) < 1.1 * best < lost(whole)


def test_numbers_that_are_not_finite_are_counted_and_left_out() -> None:
    observer = Observer("minmax")
    observer.add({"x": np.array([1.0, np.nan, -np.inf, 2.0], np.float32)})
    assert observer.seen["x"] == (1.0, 2.0, 2)
    found = observer.ranges("int8")["x"]
    assert (found.low, found.high) == (1.0, 2.0)


# whole networks ----------------------------------------------------------------------------------


def scales_of(model: onnx.ModelProto) -> list[float]:
    known = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    nodes = [n for n in model.graph.node if n.op_type == "QuantizeLinear"]
    return sorted(float(known[n.input[1]]) for n in nodes if known[n.input[1]].size == 1)


def test_scales_are_those_of_onnxruntime(made: tuple[Path, Path], tmp_path: Path) -> None:
    from onnxruntime import quantization as ort

    source, data = made
    samples = iter([{"x": x[None]} for x in np.load(data)["x"]])

    class Reader(ort.CalibrationDataReader):
        def get_next(self) -> Any:
            return next(samples, None)

    # without BatchNormalization, which onnxruntime does not fold here
    converter.convert(source, tmp_path / "plain.onnx", outputs=["p1", "c2"])
    model = converter.load(tmp_path / "plain.onnx")
    prepared(model).save(tmp_path / "plain.onnx")
    ort.quantize_static(
        str(tmp_path / "plain.onnx"),
        str(tmp_path / "theirs.onnx"),
        Reader(),
        per_channel=True,
        activation_type=ort.QuantType.QInt8,
        weight_type=ort.QuantType.QInt8,
        op_types_to_quantize=["Conv", "Relu", "MaxPool"],
    )
    quantize(tmp_path / "plain.onnx", tmp_path / "mine.onnx", data=data)
    mine, theirs = (onnx.load(tmp_path / f"{n}.onnx") for n in ("mine", "theirs"))
    expected = scales_of(theirs)
    assert len(expected) >= 3
    for scale in expected:
        assert min(abs(s / scale - 1) for s in scales_of(mine)) < 1e-5


@pytest.mark.parametrize("activations", ["int8", "uint8", "int16"])
def test_litert_computes_integers(
    made: tuple[Path, Path], tmp_path: Path, activations: str
) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    source, data = made
    found = quantize(source, tmp_path / "q.tflite", data=data, activations=activations)
    assert found.quality.engine == "litert"
    assert found.quality.least > (30 if activations != "int16" else 50)
    assert not found.floats
    plain = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    lite = interpreter.Interpreter(str(tmp_path / "q.tflite"), experimental_op_resolver_type=plain)
    lite.allocate_tensors()
    types = {t["index"]: t["dtype"] for t in lite.get_tensor_details()}
    operators = [(o["op_name"], types[i]) for o in lite._get_ops_details() for i in o["outputs"]]
    # the axes of the input change before it is quantized, and the result is floats
    floats = [kind for kind, dtype in operators if dtype == np.float32]
    assert sorted(floats) == ["DEQUANTIZE", "TRANSPOSE"]
    stored = np.int16 if activations == "int16" else np.int8  # weights of channels are signed
    assert {dtype for _, dtype in operators} == {np.float32, stored}


@pytest.mark.parametrize(
    ("target", "suffix"),
    [
        ("openvino", ".xml"),
        ("nnapi", ".nnapi.json"),
        ("zhouyi", ".txt"),
        ("mlprogram", ".mlpackage"),
        pytest.param("coreai", ".aimodel", marks=needs_core_ai),
    ],
)
def test_every_target_keeps_the_numbers(
    made: tuple[Path, Path], tmp_path: Path, target: str, suffix: str
) -> None:
    found = quantize(made[0], tmp_path / f"q{suffix}", data=made[1], targets=[target])
    assert found.quality.least > 30
    assert found.quality.agree >= SAMPLES - 1


@needs_core_ai
def test_core_ai_computes_with_the_scales(made: tuple[Path, Path], tmp_path: Path) -> None:
    """Apple's runtime and onnxruntime, which computes the same pairs of QuantizeLinear and
    DequantizeLinear, differ by less than a step of the last scale.
    """
    path = tmp_path / "q.aimodel"
    quantize(made[0], path, data=made[1])
    model = converter.load(path)
    kinds = [n.op_type for n in model.ir.graph]
    assert kinds.count("QuantizeLinear") == 8 and kinds.count("DequantizeLinear") == 11
    with np.load(made[1]) as data:
        feeds = {"x": data["x"][:1]}
    native = file.run("coreai", path, ["x"], [[feeds["x"]]])
    (expected,) = model.run(feeds).values()
    np.testing.assert_allclose(native.results[0][0], expected, atol=1e-6)


def test_openvino_computes_convolutions_in_int8(made: tuple[Path, Path], tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    quantize(made[0], tmp_path / "q.xml", data=made[1])
    compiled = openvino.Core().compile_model(tmp_path / "q.xml", "CPU")
    kinds = [
        n.get_rt_info()["runtimePrecision"]
        for n in compiled.get_runtime_model().get_ops()
        if n.get_rt_info()["layerType"] == "Convolution"
    ]
    assert kinds and {str(k.astype(str)).lower() for k in kinds} <= {"u8", "i8"}


def layers_of(path: Path, *convolutions: tuple[str, int, int, int]) -> Path:
    """Write a chain of Conv nodes (name, channels of the result, size of the window, group) with a
    PRelu after each.
    """
    rng, size, nodes, weights = np.random.default_rng(3), 8, [], []
    last = "x"
    for name, channels, window, group in convolutions:
        shape = (channels, size // group, window, window)
        kernel = rng.standard_normal(shape) * rng.uniform(0.02, 1, (channels, 1, 1, 1))
        weights += [
            numpy_helper.from_array(kernel.astype(np.float32), f"{name}.w"),
            numpy_helper.from_array(rng.uniform(-1, 1, (channels, 1, 1)).astype("f4"), f"{name}.s"),
        ]
        nodes += [
            helper.make_node("Conv", [last, f"{name}.w"], [f"{name}.c"], name, group=group),
            helper.make_node("PRelu", [f"{name}.c", f"{name}.s"], [f"{name}.y"]),
        ]
        last, size = f"{name}.y", channels
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 6, 6])
    y = helper.make_tensor_value_info(last, TensorProto.FLOAT, None)
    opset = [helper.make_opsetid("", 17)]
    graph = helper.make_graph(nodes, "chain", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    rng = np.random.default_rng(4)
    np.savez(path.with_suffix(".npz"), x=rng.standard_normal((6, 8, 6, 6)).astype(np.float32))
    return path


def test_openvino_quantizes_operands_alone(tmp_path: Path) -> None:
    """A PRelu has no integer kernel there, and a result that none reads stays in floats; channels
    of the data of a depthwise convolution have their own scales.
    """
    chain = layers_of(tmp_path / "n.onnx", ("a", 16, 1, 1), ("b", 16, 3, 16), ("c", 4, 1, 1))
    found = quantize(chain, tmp_path / "q.xml", data=tmp_path / "n.npz")
    assert is_accurate(found, 35)
    fakes = [n for n in converter.load(tmp_path / "q.xml").ir.graph if n.op_type == "FakeQuantize"]
    high = [n.inputs[2].const_value for n in fakes if n.inputs[2] is not None]
    assert sorted(t.size for t in high if t is not None) == [1, 1, 16]


def test_openvino_has_whole_ranges_for_dynamic_shapes(tmp_path: Path) -> None:
    """With AMX it ends the process on scales of channels there."""
    rng = np.random.default_rng(0)
    text = """<ir_version: 9, opset_import: ["" : 21]>
        net (float[n, 32, 2, 2] x) => (float[n, 4, 2, 2] y) {
        c = Conv (x, w, b) a = Relu (c)
        d = Conv <group = 192, pads = [1, 1, 1, 1]> (a, v, b) e = Relu (d) y = Conv (e, u) }"""
    model = onnx.parser.parse_model(text)
    sizes = {"w": (192, 32, 1, 1), "b": (192,), "v": (192, 1, 3, 3), "u": (4, 192, 1, 1)}
    for name, shape in sizes.items():
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "n.onnx")
    data = [{"x": rng.standard_normal((1, 32, 2, 2)).astype(np.float32)} for _ in range(4)]
    found = quantize(tmp_path / "n.onnx", tmp_path / "q.xml", data=data)
    assert is_accurate(found, 30)
    fakes = [n for n in converter.load(tmp_path / "q.xml").ir.graph if n.op_type == "FakeQuantize"]
    high = [n.inputs[2].const_value for n in fakes if n.inputs[2] is not None]
    assert [t.size for t in high if t is not None] == [1, 1, 1]


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("batch", ["n", "1"])
def test_a_product_of_rows_of_sequences(batch: str, biased: bool, tmp_path: Path) -> None:
    """A Dense layer of Keras. OpenVINO reshapes a product of integers wrongly for dynamic shapes,
    but not after its bias, which is a part of the kernel then.
    """
    rng = np.random.default_rng(0)
    text = f"""<ir_version: 9, opset_import: ["" : 21]>
        net (float[{batch}, 10, 12] x) => (float[{batch}, 10, 6] y)
        <int64[2] rows = {{-1, 12}}, int64[3] sequences = {{-1, 10, 6}}> {{
        r = Reshape (x, rows) m = MatMul (r, w)
        v = {"LeakyRelu (m)" if not biased else "Identity (m)"} t = Reshape (v, sequences)
        a = {"Add (b, t)" if biased else "Relu (t)"}
        y = MatMul (a, u) }}"""
    model = onnx.parser.parse_model(text)
    for name, shape in {"w": (12, 6), "b": (1, 6), "u": (6, 6)}.items():
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "n.onnx")
    data = [{"x": rng.standard_normal((1, 10, 12)).astype(np.float32)} for _ in range(4)]
    found = quantize(tmp_path / "n.onnx", tmp_path / "q.xml", data=data)
    assert is_accurate(found, 35)
    kinds = [n.op_type for n in prepared(converter.load(tmp_path / "n.onnx")).ir.graph]
    assert "Add" not in kinds[kinds.index("Reshape", 1) :]
    assert any("reshapes" in why for why in found.floats.values()) == (batch == "n" and not biased)


def test_openvino_keeps_wrong_kernels_in_floats(tmp_path: Path) -> None:
    chain = layers_of(tmp_path / "n.onnx", ("a", 136, 1, 1), ("b", 136, 1, 2), ("c", 8, 1, 1))
    found = quantize(chain, tmp_path / "q.xml", data=tmp_path / "n.npz")
    assert "grouped 1x1" in found.floats["b"] and is_accurate(found, 25)


def test_litert_computes_prelu_of_16_bits_in_floats(tmp_path: Path) -> None:
    """Its own kernel gives wrong numbers."""
    chain = layers_of(tmp_path / "n.onnx", ("a", 8, 1, 1))
    found = quantize(chain, tmp_path / "q.tflite", data=tmp_path / "n.npz", activations="int16")
    assert found.quality.least > 40


def test_the_same_data_give_the_same_bytes(made: tuple[Path, Path], tmp_path: Path) -> None:
    quantize(made[0], tmp_path / "a.onnx", data=made[1])
    quantize(made[0], tmp_path / "b.onnx", data=made[1])
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_metadata_say_how(made: tuple[Path, Path], tmp_path: Path) -> None:
    quantize(made[0], tmp_path / "a.onnx", data=made[1], method="percentile")
    (text,) = (p.value for p in onnx.load(tmp_path / "a.onnx").metadata_props)
    about = json.loads(text)
    assert about["method"] == "percentile" and about["samples"] == SAMPLES
    assert len(about["data"]) == 64 and about["netconv"] == converter.__version__
    for n, suffix in enumerate((".tflite", ".mlpackage", ".nnapi.json", ".txt")):
        converter.convert(tmp_path / "a.onnx", tmp_path / f"{n}{suffix}")
        converter.convert(tmp_path / f"{n}{suffix}", tmp_path / f"{n}again{suffix}")
        for name in (f"{n}{suffix}", f"{n}again{suffix}"):
            props = converter.load(tmp_path / name).ir.metadata_props
            assert json.loads(props["netconv.quantization"]) == about
    converter.convert(tmp_path / "a.onnx", tmp_path / "a.xml")
    assert '<quantization value="{' in (tmp_path / "a.xml").read_text()


def test_several_targets_share_a_calibration(made: tuple[Path, Path], tmp_path: Path) -> None:
    found = converter.quantize(
        made[0], tmp_path / "out", data=made[1], targets=["onnx", "zhouyi+int8"]
    )
    assert [str(q.flavor) for q in found] == ["onnx", "zhouyi+int8"]
    assert all(q.files[0].is_file() for q in found)


def test_a_layer_is_kept_in_floats_with_its_reason(made: tuple[Path, Path], tmp_path: Path) -> None:
    found = quantize(
        made[0], tmp_path / "q.onnx", data=made[1], keep=["conv2"], skip=["Gemm"], native="off"
    )
    assert found.floats["conv2"] == "--keep" and found.floats["dense"] == "--skip Gemm"
    kinds = {n.op_type: n for n in converter.load(tmp_path / "q.onnx").ir.graph}
    weights = kinds["Gemm"].inputs[1]
    assert weights is not None and weights.dtype == ir.DataType.FLOAT and weights.const_value


def test_labels_give_accuracy(made: tuple[Path, Path], tmp_path: Path) -> None:
    found = quantize(made[0], tmp_path / "q.onnx", data=made[1], labels="label")
    model, arrays = converter.load(made[0]), np.load(made[1])
    right = sum(
        int(model.run({"x": x[None]})["y"].argmax()) == n
        for x, n in zip(arrays["x"][1::2], arrays["label"][1::2], strict=True)
    )
    assert (found.quality.before, found.quality.samples) == (right, SAMPLES // 2)


def test_dynamic_inputs(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    w = numpy_helper.from_array(np.random.default_rng(0).standard_normal((4, 5)).astype("f4"), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])
    graph = helper.make_graph(nodes, "net", [x], [y], [w])
    onnx.save(helper.make_model(graph), tmp_path / "net.onnx")
    (tmp_path / "d").mkdir()
    for n in (1, 3, 7):
        np.savez(tmp_path / "d" / f"{n}.npz", x=np.random.default_rng(n).standard_normal((n, 4)))
    found = quantize(tmp_path / "net.onnx", tmp_path / "q.tflite", data=tmp_path / "d")
    assert found.quality.samples == 3 and found.quality.least > 30


def test_biases_keep_the_means_of_channels(made: tuple[Path, Path], tmp_path: Path) -> None:
    source, data = made
    converter.convert(source, tmp_path / "conv.onnx", outputs=["c1"])
    quantize(tmp_path / "conv.onnx", tmp_path / "q.onnx", data=data)
    model = onnx.load(tmp_path / "q.onnx")
    (conv,) = (n for n in model.graph.node if n.op_type == "Conv")
    model.graph.output.append(
        helper.make_tensor_value_info(conv.output[0], TensorProto.FLOAT, None)
    )
    options = onnxruntime.SessionOptions()  # as the operators are written, without integer kernels
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    floats = onnxruntime.InferenceSession(tmp_path / "conv.onnx")
    x = np.load(data)["x"]
    real = np.mean([session.run(None, {"x": v[None]})[1] for v in x], axis=(0, 1, 3, 4))
    expected = np.mean([floats.run(None, {"x": v[None]})[0] for v in x], axis=(0, 1, 3, 4))
    assert np.abs(real - expected).max() < 1e-5


@pytest.mark.parametrize("activation", ["Relu (c)", "Clip (c, low)", "PRelu (c, slope)"])
def test_channels_of_depthwise_convolutions_get_equal_ranges(
    activation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    text = f"""<ir_version: 9, opset_import: ["" : 21]>
        net (float[1, 3, 6, 6] x) => (float[1, 8, 6, 6] y) <float low = {{0}}> {{
        c = Conv (x, w, b) a = {activation}
        d = Conv <group = 8, pads = [1, 1, 1, 1]> (a, v) y = Relu (d) }}"""
    model = onnx.parser.parse_model(text)
    sizes = 0.5 ** np.arange(8).reshape(-1, 1, 1, 1)
    weights = {
        "w": rng.standard_normal((8, 3, 1, 1)) * sizes,
        "b": rng.standard_normal(8) * sizes.ravel(),
        "v": rng.standard_normal((8, 1, 3, 3)) / sizes,
        "slope": rng.random((8, 1, 1)),
    }
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, tmp_path / "n.onnx")
    data = [{"x": rng.standard_normal((1, 3, 6, 6)).astype(np.float32)} for _ in range(8)]
    found = quantize(tmp_path / "n.onnx", tmp_path / "q.onnx", data=data)
    with monkeypatch.context() as patch:
        patch.setattr(run, "equalize", lambda _, ranges: {n: whole(r) for n, r in ranges.items()})
        plain = quantize(tmp_path / "n.onnx", tmp_path / "p.onnx", data=data)
    assert is_accurate(found, plain.quality.least + 5)
    assert min(found.layers.values()) > 25  # compared with floats of the same factors


def test_channels_without_numbers_are_not_equalized(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 21]>
        net (float[1, 3, 6, 6] x) => (float[1, 8, 6, 6] y) {
        c = Conv (x, w) a = Relu (c)
        y = Conv <group = 8, pads = [1, 1, 1, 1]> (a, v) }"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in {"w": (8, 3, 1, 1), "v": (8, 1, 3, 3)}.items():
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "n.onnx")
    data = [{"x": np.zeros((1, 3, 6, 6), np.float32)} for _ in range(8)]
    with np.errstate(all="raise"):
        quantize(tmp_path / "n.onnx", tmp_path / "q.onnx", data=data, native="off")


# doubts and refusals -----------------------------------------------------------------------------


def warnings_of(source: Path, target: Path, data: Any) -> list[str]:
    found = quantize(source, target, data=data, native="off")
    return [d.message for d in found.notes if d.code == "N411"]


def test_layers_are_measured_before_and_after_corrections(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    options = Quantize(data=made[1], keep=["conv2"], native="off")
    (found,) = run.quantize(made[0], tmp_path / "q.onnx", options, detailed=True)
    assert {*found.layers} == {*found.rounded} and len(found.layers) > 3
    assert sum(found.layers.values()) > sum(found.rounded.values())  # biases are corrected
    (other,) = run.quantize(made[0], tmp_path / "p.onnx", options)
    assert not other.rounded and other.layers == found.layers
    assert (tmp_path / "p.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes()


def test_doubtful_data(made: tuple[Path, Path], tmp_path: Path) -> None:
    one = {"x": np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)}
    (message,) = warnings_of(made[0], tmp_path / "a.onnx", [one])
    assert message.startswith("one sample")
    found = warnings_of(made[0], tmp_path / "b.onnx", [{"x": np.ones((1, 3, 8, 8))}] * 2)
    assert "input 'x' is 1 in all samples" in found
    found = warnings_of(made[0], tmp_path / "c.onnx", [{"x": one["x"] * 300}] * 2)
    assert any("differ from the training data" in m for m in found)
    assert warnings_of(made[0], tmp_path / "d.onnx", made[1]) == []


def test_refusals(made: tuple[Path, Path], tmp_path: Path) -> None:
    source, data = made
    with pytest.raises(UsageError, match="needs representative data"):
        quantize(source, tmp_path / "q.onnx")
    with pytest.raises(UsageError, match="has no integer kernels"):
        quantize(source, tmp_path / "q.mlmodel", data=data)
    with pytest.raises(UsageError, match="does not support int16 activations"):
        quantize(source, tmp_path / "q.xml", data=data, activations="int16")
    with pytest.raises(UsageError, match="must be like 1%"):
        Limit.parse("five")
    quantize(source, tmp_path / "q.onnx", data=data)
    with pytest.raises(UnsupportedError, match="already"):
        quantize(tmp_path / "q.onnx", tmp_path / "r.onnx", data=data)


@pytest.mark.parametrize("suffix", [".tflite", ".txt"])
def test_a_far_bound_is_clipped(tmp_path: Path, suffix: str) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> net (float[1, 4] x) => (float[1, 4] y)
        <float far = {1.0e12}> { m = Min (x, far) y = Mul (m, m) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "n.onnx")
    data = [{"x": np.random.default_rng(n).standard_normal((1, 4))} for n in range(5)]
    found = quantize(tmp_path / "n.onnx", tmp_path / f"q{suffix}", data=data)
    assert found.quality.least > 25 and not found.floats


@pytest.mark.parametrize(
    "variance",
    ["q = Mul (d, d) v = ReduceMean <keepdims = 1> (q, axes)", "v = ReduceSumSquare (d, axes)"],
)
def test_a_normalization_stays_in_floats(tmp_path: Path, variance: str) -> None:
    """Its reciprocals are from 0.5 to 300, of which no scale of 8 bits holds both."""
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
        net (float[1, 16, 8] x) => (float[1, 16, 8] y)
        <float e = {{0.00001}}, int64[1] axes = {{2}}> {{
            m = ReduceMean <keepdims = 1> (x, axes) d = Sub (x, m) {variance} w = Add (v, e)
            s = Sqrt (w) r = Reciprocal (s) n = Mul (d, r) y = Sigmoid (n) }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "n.onnx")
    scale = np.where(np.arange(16) % 2, 2, 0.003).reshape(1, 16, 1)
    data = [{"x": np.random.default_rng(n).standard_normal((1, 16, 8)) * scale} for n in range(4)]
    found = quantize(tmp_path / "n.onnx", tmp_path / "q.tflite", data=data)
    assert "a part of a normalization" in found.floats.values()
    assert found.quality.least > 12  # half of the rows are less than a step of the input


@pytest.mark.parametrize("form", ["div", "factor", "gate", "sigmoid"])
def test_hard_swish_is_found_in_its_parts(tmp_path: Path, form: str) -> None:
    parts = {
        "div": """h = Add (x, three) g = Clip (h, zero, six) p = Mul (x, g) s = Div (p, six)""",
        "factor": """h = Add (three, x) g = Clip (h, zero, six) p = Mul (g, x)
            s = Mul (p, sixth)""",
        "gate": """h = Add (x, three) g = Clip (h, zero, six) d = Div (g, six) s = Mul (x, d)""",
        "sigmoid": """g = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x) s = Mul (g, x)""",
    }[form]
    text = f"""<ir_version: 8, opset_import: ["" : 17]> net (float[1, 4] x) => (float[1, 4] y)
        <float zero = {{0}}, float three = {{3}}, float six = {{6}}, float sixth = {{0.16666667}}>
        {{ {parts} y = Neg (s) }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "n.onnx")
    model = converter.load(tmp_path / "n.onnx")
    made = prepared(model)
    assert [n.op_type for n in made.ir.graph] == ["HardSwish", "Neg"]
    x = np.array([[-4.0, -1.0, 2.0, 5.0]], np.float32)
    assert np.allclose(made.run({"x": x})["y"], model.run({"x": x})["y"], atol=1e-6)


@pytest.mark.parametrize("suffix", [".tflite", ".txt"])
def test_infinite_constants_stay_in_floats(suffix: str, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> net (float[1, 1] x) => (float[1, 1] y)
        { s = Mul (x, x) m = Max (s, low) y = Mul (m, m) }"""
    model = onnx.parser.parse_model(text)
    low = np.array(-np.inf if suffix == ".txt" else -3e38, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(low, "low"))
    onnx.save(model, tmp_path / "n.onnx")
    data = [{"x": np.random.default_rng(n).standard_normal((1, 1))} for n in range(3)]
    found = quantize(tmp_path / "n.onnx", tmp_path / f"q{suffix}", data=data)
    (reason,) = found.floats.values()
    assert "infinite" in reason and found.quality.least > 30


# the search --------------------------------------------------------------------------------------


def test_max_drop_leaves_the_worst_layers_in_floats(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    plain = quantize(made[0], tmp_path / "a.nnapi.json", data=made[1], max_drop="1dB")
    limit = plain.quality.least + 3
    found = quantize(made[0], tmp_path / "b.nnapi.json", data=made[1], max_drop=f"{limit:.1f}dB")
    assert found.quality.least > plain.quality.least
    reasons = [w for w in found.floats.values() if "--max-drop" in w]
    assert 0 < len(reasons) < 6 and not found.wide
    assert not list(tmp_path.glob("*.search.json"))


@pytest.mark.parametrize(("lost", "limit", "holds"), [(1, "1%", True), (6, "1%", False)])
def test_a_limit_holds_within_the_interval(lost: int, limit: str, holds: bool) -> None:
    """1 of 50 is 2 %, and may well be 1 % of all; 6 of 50 may not (5.6 % to 23.8 %)."""
    quality = Quality(50, "litert", {}, agree=50 - lost)
    found = Limit.parse(limit)
    assert found is not None and not found.holds(quality)
    assert found.holds(quality, likely=True) == holds


@pytest.mark.parametrize("suffix", [".tflite", ".txt"])
def test_max_drop_prefers_16_bits_to_floats(
    made: tuple[Path, Path], tmp_path: Path, suffix: str
) -> None:
    plain = quantize(made[0], tmp_path / f"a{suffix}", data=made[1], max_drop="1dB")
    found = quantize(made[0], tmp_path / f"b{suffix}", data=made[1], max_drop="50dB")
    assert found.quality.least > plain.quality.least + 1
    assert 0 < len(found.wide) < 7 and found.floats == plain.floats
    assert found.size < 1.2 * plain.size


def test_the_search_models_the_rounding_of_onnxruntime(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    """Data of products have 8 bits there by default."""
    found = quantize(made[0], tmp_path / "q.onnx", data=made[1], max_drop="55dB")
    assert "dense" in found.floats and "d" not in found.wide


def test_only_floats_keep_an_impossible_limit(made: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="every quantization exceeds"):
        quantize(made[0], tmp_path / "b.onnx", data=made[1], max_drop="190dB")
    journal = json.loads((tmp_path / "b.onnx.search.json").read_text())
    assert journal["layers"]


# measures ----------------------------------------------------------------------------------------


def test_decibels() -> None:
    noise = Noise()
    noise.add("y", np.array([3.0, 4.0]), np.array([3.0, 4.5]))
    assert noise.decibels()["y"] == pytest.approx(10 * np.log10(25 / 0.25))


def test_interval_of_a_share() -> None:
    # Wilson, 1927, for 8 of 10
    assert interval(8, 10) == pytest.approx((0.490, 0.943), abs=1e-3)
    assert interval(10, 10)[1] == 1.0


# weights alone -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".tflite", ".xml", ".onnx", ".mlpackage", ".txt"])
def test_weights_alone(made: tuple[Path, Path], tmp_path: Path, suffix: str) -> None:
    found = quantize(made[0], tmp_path / f"w{suffix}", data=made[1], weights="int8")
    assert found.quality.least > 35 and found.forms["dense"] == "int8"


@pytest.mark.parametrize(("form", "least"), [("f16", 60), ("bf16", 40), ("palette6", 25)])
def test_other_forms_of_weights(
    made: tuple[Path, Path], tmp_path: Path, form: str, least: float
) -> None:
    found = quantize(made[0], tmp_path / "w.mlpackage", data=made[1], weights=form)
    assert found.quality.least > least


def test_int4_blocks_round_as_the_formula_has_it() -> None:
    # Q4_0 of ggml: the weight that is farthest from 0 is -8
    array = np.array([[8.0, -7.0, 3.4, 0.0, 1.0], [0.7, 0.1, -0.8, 0.2, 0.0]], np.float32)
    steps = block_steps(array, 1, 4)
    assert steps == pytest.approx(np.array([[-1.0, -0.125], [0.1, 0.0]]))
    for shape in ((64, 6), (5, 3)):
        array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        steps = block_steps(array, 0, 32)
        spread = np.repeat(steps, 32, axis=0)[: len(array)]
        expected = np.clip(np.rint(array / spread), -8, 7).reshape(-1).astype(np.int8)
        packed = packed_blocks(steps, 0, 32, array)
        actual = np.stack([packed << 4, packed], 1).reshape(-1).view(np.int8) >> 4
        assert np.array_equal(actual[: array.size], expected)


@pytest.mark.parametrize("suffix", [".tflite", ".xml", ".onnx", ".mlpackage"])
def test_int4_blocks_also_of_unequal_size(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    text = """<ir_version: 9, opset_import: ["" : 21]> net (float[4, 64] x) => (float[4, 40] y) {
        a = MatMul (x, w0) b = Gemm <transB = 1> (a, w1) c = MatMul (b, w2) y = MatMul (c, w3) }"""
    model = onnx.parser.parse_model(text)
    for i, shape in enumerate([(64, 70), (64, 70), (64, 64), (64, 40)]):
        weight = (rng.standard_normal(shape) / 8).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, f"w{i}"))
    onnx.save(model, tmp_path / "n.onnx")
    data = [{"x": rng.standard_normal((4, 64)).astype(np.float32)} for _ in range(3)]
    targets = ["mlprogram+ios=18"] if suffix == ".mlpackage" else []
    options = {"data": data, "weights": "int4", "targets": targets}
    found = quantize(tmp_path / "n.onnx", tmp_path / f"q{suffix}", **options)
    assert found.quality.least > 17


@pytest.mark.parametrize(
    ("form", "suffix", "least", "share"),
    [
        # 31 dB for 3 bits of the mantissa and 6 less for each bit less, 5 less for three layers
        *[("f8e4m3", s, 26.0, 0.35) for s in (".onnx", ".xml")],
        ("f8e5m2", ".xml", 20.0, 0.35),
        *[("f4e2m1", s, 15.0, 0.3) for s in (".onnx", ".xml")],
    ],
)
def test_weights_of_small_floats(
    form: str, suffix: str, least: float, share: float, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    text = """<ir_version: 9, opset_import: ["" : 21]> net (float[4, 64] x) => (float[4, 64] y) {
        a = MatMul (x, w0) b = MatMul (a, w1) y = MatMul (b, w2) }"""
    model = onnx.parser.parse_model(text)
    for i, shape in enumerate([(64, 64), (64, 512), (512, 64)]):
        weight = (rng.standard_normal(shape) / 8).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, f"w{i}"))
    onnx.save(model, tmp_path / "n.onnx")
    data = [{"x": rng.standard_normal((4, 64)).astype(np.float32)} for _ in range(3)]
    found = quantize(tmp_path / "n.onnx", tmp_path / f"q{suffix}", data=data, weights=form)
    assert found.quality.least > least and found.size < share * found.before
    assert form in found.forms.values()


def test_int4_makes_up_for_errors_where_there_are_data(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    text = """<ir_version: 9, opset_import: ["" : 21]> net (float[8, 32] x) => (float[8, 32] y) {
        a = MatMul (x, w0) b = Gemm <transB = 1> (a, w1) c = MatMul (b, w2) y = MatMul (c, w3) }"""
    model = onnx.parser.parse_model(text)
    for i, shape in enumerate([(32, 96), (96, 96), (96, 96), (96, 32)]):
        weight = (rng.standard_normal(shape) / 8).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, f"w{i}"))
    onnx.save(model, tmp_path / "n.onnx")
    data = [{"x": rng.standard_normal((8, 32)).astype(np.float32)} for _ in range(32)]
    unseen = rng.standard_normal((8, 32)).astype(np.float32)
    expected = converter.load(tmp_path / "n.onnx").run({"x": unseen})["y"]
    lost = []
    for options in ({}, {"data": data}, {"data": data[:6]}):
        found = quantize(tmp_path / "n.onnx", tmp_path / "q.onnx", weights="int4", **options)
        assert [*found.forms.values()].count("int4") == 2
        actual = converter.load(tmp_path / "q.onnx").run({"x": unseen})["y"]
        lost.append(np.square(actual - expected).sum())
        (tmp_path / "q.onnx").unlink()
    assert lost[1] < lost[0] / 4  # the 96 columns have rank 32: errors of one are in others
    assert lost[2] == lost[0]  # fewer rows than columns


def test_errors_are_spread_as_the_formula_has_it() -> None:
    # GPTQ, algorithm 1, without blocks of columns: H^-1 is updated after each row
    rng = np.random.default_rng(0)
    weights, x = rng.standard_normal((6, 3)), rng.standard_normal((40, 6))
    moments = x.T @ x
    steps, codes = with_feedback(weights, 0, 6, moments)
    inverse = np.linalg.inv(moments + 0.01 * np.mean(np.diag(moments)) * np.eye(6))
    left, expected = weights.copy(), np.empty((6, 3))
    for i in range(6):
        expected[i] = np.clip(np.rint(left[i] / steps[0]), -8, 7)
        error = (left[i] - expected[i] * steps[0]) / inverse[i, i]
        left -= np.outer(inverse[:, i], error)
        inverse -= np.outer(inverse[:, i], inverse[i]) / inverse[i, i]
    assert np.array_equal(codes, expected)


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    weight = np.full((64, 64), np.inf, np.float32)
    text = '<ir_version: 9, opset_import: ["" : 21]> net (float[1, 64] x) => (float[1, 64] y) {'
    model = onnx.parser.parse_model(f"{text} y = MatMul (x, w) }}")
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "n.onnx")
    for form in ("int4", "int8"):
        with pytest.raises(UnsupportedError, match="not finite"):
            quantize(tmp_path / "n.onnx", tmp_path / "q.onnx", weights=form)


@pytest.mark.parametrize("suffix", [".tflite", ".mlpackage", ".xml", ".onnx"])
def test_a_recurrent_layer_in_floats_has_weights_of_8_bits(tmp_path: Path, suffix: str) -> None:
    samples = Path(__file__).parents[1] / "samples"
    source, data = samples / "digits_lstm.mlmodel", samples / "digits_lstm.npz"
    found = quantize(source, tmp_path / f"q{suffix}", data=data, labels="labels")
    assert found.forms and found.size < 0.85 * found.before
    assert any("weights have 8 bits" in why for why in found.floats.values())
    assert found.quality.after >= 0.99 * found.quality.before


@pytest.mark.parametrize("form", ["int8", "int4", "palette4"])
def test_half_weights_are_compressed(tmp_path: Path, form: str) -> None:
    rng = np.random.default_rng(0)
    text = """<ir_version: 9, opset_import: ["" : 21]>
        net (float16[1, 70] x) => (float16[1, 40] y) {
        a = MatMul (x, w0) b = MatMul (a, w1) c = MatMul (b, w2) y = Identity (c) }"""
    model = onnx.parser.parse_model(text)
    for i, shape in enumerate([(70, 64), (64, 64), (64, 40)]):
        weight = (rng.standard_normal(shape) / 8).astype(np.float16)
        model.graph.initializer.append(numpy_helper.from_array(weight, f"w{i}"))
    onnx.save(model, tmp_path / "n.onnx")
    data = [{"x": rng.standard_normal((1, 70)).astype(np.float16)} for _ in range(3)]
    found = quantize(tmp_path / "n.onnx", tmp_path / "q.onnx", data=data, weights=form)
    assert found.quality.least > 15 and form in found.forms.values()


def test_a_palette_holds_the_centers_of_clusters() -> None:
    rng = np.random.default_rng(0)
    array = np.concatenate([rng.normal(c, 0.01, 500) for c in (-2.0, 0.0, 0.5, 3.0)])
    assert palette(array, 2) == pytest.approx([-2.0, 0.0, 0.5, 3.0], abs=0.01)


@pytest.mark.parametrize("text", ["", "[1]", '{"a": [1]}', '{"a": "b\\nlayer_type=Add"}', "{"])
@pytest.mark.parametrize("file", ["m.nnapi.json", "m.txt"])
def test_other_texts_instead_of_the_note_are_dropped(text: str, file: str, tmp_path: Path) -> None:
    model = converter.load(ROOT / "samples" / "digits_cnn.mlmodel")
    model.ir.metadata_props["netconv.quantization"] = text
    converter.save(model, tmp_path / file)
    assert "quantization" not in (tmp_path / file).read_text()
