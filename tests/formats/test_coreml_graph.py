"""Whole Core ML models through the graph: boundaries, regimes, weights, control flow, kinds of
models, limits.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.errors import ReadError, UnsupportedError
from converter.formats.coreml.neuralnetwork.codec import read_mlmodel
from converter.formats.coreml.neuralnetwork.format import FORMAT
from converter.formats.coreml.neuralnetwork.network import all_layers, kind_of
from converter.formats.coreml.neuralnetwork.weights import WeightData
from converter.formats.coreml.proto import NeuralNetwork_pb2
from converter.graph.build import new_model
from converter.graph.lazy_tensor import LazyTensor
from formats.coreml_models import Array, layer, network, saved
from support import HANG, corpus_cases

rng = np.random.default_rng(11)


def kinds(path: Path) -> list[str]:
    model = read_mlmodel(path)
    return [kind_of(x) for x in all_layers(getattr(model.proto, model.kind))]


def again(tmp_path: Path, model: Any, target: str = "coreml") -> Path:
    """The model written, read, and written once more as `target`."""
    converter.convert(
        saved(model, tmp_path / "first.mlmodel"), tmp_path / "second.mlmodel", target=target
    )
    return tmp_path / "second.mlmodel"


def ops(model: Any) -> list[str]:
    return [n.op_type for n in model.ir.graph]


def test_every_layer_of_the_specification_is_known() -> None:
    assert set(FORMAT.kinds()) == {
        f.name
        for f in NeuralNetwork_pb2.NeuralNetworkLayer.DESCRIPTOR.oneofs_by_name["layer"].fields
    }


# boundaries and regimes --------------------------------------------------------------------------


def test_a_rank5_cnn_is_plain_nchw(tmp_path: Path) -> None:
    weights = rng.normal(size=(2, 3, 1, 1)).astype(np.float32)
    layers = [
        layer(
            "convolution",
            "image",
            "a",
            {"weights": weights},
            outputChannels=2,
            kernelChannels=3,
            kernelSize=[1, 1],
            valid={},
        ),
        layer("activation", "a", "b", ReLU={}),
        layer("pooling", "b", "c", type="AVERAGE", globalPooling=True, valid={}),
    ]
    model = converter.load(
        saved(network(layers, {"image": (3, 4, 4)}, ["c"], exact=False), tmp_path / "m.mlmodel")
    )
    assert ops(model) == ["Unsqueeze", "Conv", "Relu", "GlobalAveragePool", "Squeeze"]
    assert (str(model.inputs[0]), str(model.outputs[0])) == (
        "image float32[3,4,4]",
        "c float32[2,1,1]",
    )
    x = rng.normal(size=(3, 4, 4)).astype(np.float32)
    want = np.maximum(np.einsum("oc,chw->ohw", weights[..., 0, 0], x), 0).mean((1, 2))
    np.testing.assert_allclose(model.run({"image": x})["c"].reshape(-1), want, rtol=1e-5, atol=1e-6)


def test_rank5_recurrent_inputs_are_sequences(tmp_path: Path) -> None:
    blobs = {
        "weightMatrix": np.eye(2),
        "recursionMatrix": np.zeros((2, 2)),
        "biasVector": np.zeros(2),
    }
    made = layer(
        "simpleRecurrent",
        "x h",
        "y z",
        blobs,
        inputVectorSize=2,
        outputVectorSize=2,
        activation={"linear": {}},
        sequenceOutput=True,
    )
    model = converter.load(
        saved(network([made], {"x": (2,), "h": (2,)}, ["y"], exact=False), tmp_path / "m.mlmodel")
    )
    x = rng.normal(size=(5, 1, 2, 1, 1)).astype(np.float32)
    np.testing.assert_allclose(
        model.run({"x": x, "h": np.zeros((1, 1, 2, 1, 1))})["y"], x, rtol=1e-6
    )
    one = model.run({"x": np.array([3.0, 4.0]), "h": np.zeros(2)})["y"]
    assert one.reshape(-1).tolist() == [3.0, 4.0]


def test_permute_moves_the_sequence_axis(tmp_path: Path) -> None:
    model = converter.load(
        saved(
            network(
                [layer("permute", "x", "y", axis=[3, 1, 2, 0])],
                {"x": (2, 3, 4)},
                ["y"],
                exact=False,
            ),
            tmp_path / "m.mlmodel",
        )
    )
    x = rng.normal(size=(2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(model.run({"x": x})["y"].reshape(4, 2, 3), x.transpose(2, 0, 1))


def test_images_are_scaled_by_color(tmp_path: Path) -> None:
    made = network(
        [layer("activation", "image", "y", linear={"alpha": 1.0, "beta": 0.0})],
        {"image": (3, 2, 2)},
        ["y"],
        exact=False,
    )
    image = made.proto.description.input[0].type.imageType
    image.height, image.width, image.colorSpace = 2, 2, 30
    entry = made.proto.neuralNetwork.preprocessing.add(featureName="image").scaler
    entry.channelScale, entry.blueBias, entry.greenBias, entry.redBias = 0.5, 1, 2, 3
    picture = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    want = picture.transpose(2, 0, 1) * 0.5 + np.array([1, 2, 3]).reshape(3, 1, 1)
    first = converter.load(saved(made, tmp_path / "m.mlmodel"))
    np.testing.assert_allclose(first.run({"image": picture})["y"].reshape(3, 2, 2), want)
    converter.save(first, tmp_path / "n.mlmodel")
    np.testing.assert_allclose(
        converter.load(tmp_path / "n.mlmodel").run({"image": picture})["y"].reshape(3, 2, 2), want
    )
    assert (
        read_mlmodel(tmp_path / "n.mlmodel").proto.description.input[0].type.imageType.colorSpace
        == 30
    )


def test_mean_image(tmp_path: Path) -> None:
    made = network([layer("activation", "x", "y", ReLU={})], {"x": (1, 2, 2)}, ["y"], exact=False)
    made.proto.neuralNetwork.preprocessing.add(featureName="x").meanImage.meanImage.extend(
        [0, 1, 2, 3]
    )
    got = converter.load(saved(made, tmp_path / "m.mlmodel")).run({"x": np.full((1, 2, 2), 2)})["y"]
    assert got.reshape(-1).tolist() == [2, 1, 0, 0]


def test_flexible_and_optional_inputs(tmp_path: Path) -> None:
    made = network([layer("addBroadcastable", "x z", "y")], {"x": (2, 3), "z": (1,)}, ["y"])
    shape = made.proto.description.input[0].type.multiArrayType.shapeRange
    shape.sizeRanges.add(lowerBound=1, upperBound=-1)
    shape.sizeRanges.add(lowerBound=3, upperBound=3)
    optional = made.proto.description.input[1].type
    optional.isOptional, optional.multiArrayType.floatDefaultValue = True, 5.0
    for path in (saved(made, tmp_path / "m.mlmodel"), again(tmp_path, made)):
        model = converter.load(path)
        assert model.inputs[0].shape == ("x_0", 3)
        assert (model.run({"x": np.ones((4, 3))})["y"] == 6).all()


def test_int32_and_double_features_keep_their_types(tmp_path: Path) -> None:
    made = network([layer("gather", "x i", "y")], {"x": (3,), "i": (2,)}, ["y"], dtype=131104)
    made.proto.description.input[0].type.multiArrayType.dataType = 65600
    for path in (saved(made, tmp_path / "m.mlmodel"), again(tmp_path, made)):
        assert [str(i) for i in converter.load(path).inputs] == ["x float64[3]", "i int32[2]"]


def test_classifier_with_texts(tmp_path: Path) -> None:
    made = network(
        [layer("softmaxND", "x", "scores", axis=-1)],
        {"x": (1, 3)},
        [],
        kind="neuralNetworkClassifier",
    )
    made.proto.neuralNetworkClassifier.stringClassLabels.vector.extend(["cat", "dog", "eel"])
    description = made.proto.description
    description.output.add(name="scores").type.dictionaryType.stringKeyType.SetInParent()
    description.output.add(name="label").type.stringType.SetInParent()
    description.predictedFeatureName, description.predictedProbabilitiesName = "label", "scores"
    first = saved(made, tmp_path / "m.mlmodel")
    converter.convert(first, tmp_path / "m.onnx")
    converter.convert(tmp_path / "m.onnx", tmp_path / "n.mlmodel")
    for path in (first, tmp_path / "m.onnx", tmp_path / "n.mlmodel"):
        got = converter.load(path).run({"x": np.array([[0, 3, 1]], np.float32)})
        assert got["label"].tolist() == ["dog"]
        assert got["scores"].argmax() == 1
    back = read_mlmodel(tmp_path / "n.mlmodel")
    assert back.kind == "neuralNetworkClassifier"
    assert list(back.proto.neuralNetworkClassifier.stringClassLabels.vector) == [
        "cat",
        "dog",
        "eel",
    ]
    assert back.proto.description.predictedFeatureName == "label"


def test_a_pipeline_is_one_graph(tmp_path: Path) -> None:
    from converter.formats.coreml.neuralnetwork.model import MLModel

    first = network([layer("unary", "x", "boxes", type="ABS", scale=1.0)], {"x": (3, 4)}, ["boxes"])
    pipeline = MLModel()
    pipeline.proto.specificationVersion = 5
    pipeline.proto.description.input.add().CopyFrom(first.proto.description.input[0])
    scores = pipeline.proto.description.input.add(name="scores").type.multiArrayType
    scores.shape.extend([3, 2])
    scores.dataType = 65568
    for name in ("kept", "where"):
        pipeline.proto.description.output.add(name=name).type.multiArrayType.dataType = 65568
    pipeline.proto.pipeline.models.add().CopyFrom(first.proto)
    nms = pipeline.proto.pipeline.models.add().nonMaximumSuppression
    nms.pickTop.perClass, nms.iouThreshold, nms.confidenceThreshold = True, 0.5, 0.2
    nms.confidenceInputFeatureName, nms.coordinatesInputFeatureName = "scores", "boxes"
    nms.confidenceOutputFeatureName, nms.coordinatesOutputFeatureName = "kept", "where"
    x = np.array([[1, 1, 2, 2], [1, 1, 2, 2], [9, 9, -1, 1]], np.float32)
    s = np.array([[0.3, 0.1], [0.6, 0.2], [0.1, 0.9]], np.float32)
    got = converter.load(saved(pipeline, tmp_path / "p.mlmodel")).run({"x": x, "scores": s})
    np.testing.assert_array_equal(got["kept"], s[[2, 1]])
    np.testing.assert_array_equal(got["where"], np.abs(x)[[2, 1]])


def test_update_parameters_are_named(tmp_path: Path) -> None:
    made = network([layer("activation", "x", "y", ReLU={})], {"x": (3,)}, ["y"])
    made.proto.isUpdatable = True
    made.proto.neuralNetwork.updateParams.epochs.defaultValue = 3
    assert [n.code for n in converter.load(saved(made, tmp_path / "m.mlmodel")).notes] == ["X207"]


def test_random_and_custom_layers_are_carried(tmp_path: Path) -> None:
    custom = layer(
        "custom",
        "r",
        "y",
        {"weights[0]": np.arange(3)},
        className="Mine",
        description="what",
        parameters={"k": {"intValue": 3}},
    )
    made = network(
        [layer("randomNormalLike", "x", "r", mean=1.0, stdDev=2.0, seed=5), custom],
        {"x": (2, 3)},
        ["y"],
    )
    path = again(tmp_path, made)
    message = read_mlmodel(path).proto.neuralNetwork.layers
    assert kinds(path) == ["randomNormalStatic", "custom"]
    assert (message[0].randomNormalStatic.stdDev, message[0].randomNormalStatic.seed) == (2.0, 5)
    assert (message[1].custom.className, message[1].custom.parameters["k"].intValue) == ("Mine", 3)
    with pytest.raises(UnsupportedError, match="X208"):
        converter.load(path).run({"x": np.zeros((2, 3))})


def test_layers_after_a_custom_layer(tmp_path: Path) -> None:
    """All blobs of an old network have five axes or four: a neighbor finds its rank."""
    mine = layer("custom", "c", "s", className="Swish", description="")
    made = network(
        [
            layer("activation", "x", "c", ReLU={}),
            mine,
            layer("pooling", "s", "p", type=1, globalPooling=True, valid={}),
            layer("softmax", "p", "y"),
        ],
        {"x": (3, 4, 4)},
        ["y"],
        exact=False,
    )
    path = again(tmp_path, made)
    written = kinds(path)
    assert written.index("custom") < len(written) - 2 and "softmaxND" in written
    with pytest.raises(UnsupportedError, match="CustomLayer") as refused:
        converter.convert(path, tmp_path / "m.xml")
    assert refused.value.diagnostics[0].where.kind == "custom"


# weights -----------------------------------------------------------------------------------------


def packed(codes: Array, bits: int) -> Array:
    """A stream of numbers, most significant bit first: written with text, unlike the code under
    test.
    """
    text = "".join(f"{c:0{bits}b}" for c in codes.reshape(-1))
    text += "0" * (-len(text) % 8)
    return np.array([int(text[i : i + 8], 2) for i in range(0, len(text), 8)], np.uint8)


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("table", [False, True])
def test_quantized_weights_stay_as_they_are(bits: int, table: bool, tmp_path: Path) -> None:
    codes = rng.integers(0, 1 << bits, size=(3, 5))
    raw = packed(codes, bits)
    lut = rng.normal(size=1 << bits).astype(np.float32)
    scale, bias = rng.normal(size=3).astype(np.float32), rng.normal(size=3).astype(np.float32)
    data = WeightData(
        "quantised",
        LazyTensor(raw),
        bits,
        **({"lut": lut} if table else {"scale": scale, "bias": bias}),
    )
    weights = lut[codes] if table else codes * scale[:, None] + bias[:, None]
    made = network(
        [layer("innerProduct", "x", "y", {"weights": data}, inputChannels=5, outputChannels=3)],
        {"x": (2, 5)},
        ["y"],
    )
    x = rng.normal(size=(2, 5)).astype(np.float32)
    path = again(tmp_path, made)
    np.testing.assert_allclose(
        converter.load(path).run({"x": x})["y"], x @ weights.T, rtol=1e-4, atol=1e-4
    )
    back = read_mlmodel(path)
    found = back.weights(back.proto.neuralNetwork.layers[0].innerProduct.weights)
    assert (found.kind, found.bits, found.array().tobytes()) == ("quantised", bits, raw.tobytes())
    np.testing.assert_array_equal(found.lut if table else found.scale, lut if table else scale)


def test_half_precision_and_dynamic_int8_stay_as_they_are(tmp_path: Path) -> None:
    half = rng.normal(size=(3, 5)).astype(np.float16)
    whole = rng.integers(-128, 128, size=(2, 3)).astype(np.int8)
    dynamic = WeightData("int8", LazyTensor(whole), 8, scale=np.array([0.25], np.float32))
    layers = [
        layer(
            "innerProduct",
            "x",
            "a",
            {"weights": WeightData.of(half)},
            inputChannels=5,
            outputChannels=3,
        ),
        layer(
            "innerProduct",
            "a",
            "y",
            {"weights": dynamic},
            inputChannels=3,
            outputChannels=2,
            int8DynamicQuantize=True,
        ),
    ]
    path = again(tmp_path, network(layers, {"x": (1, 5)}, ["y"]))
    back = read_mlmodel(path)
    found = [back.weights(x.innerProduct.weights) for x in back.proto.neuralNetwork.layers]
    assert [(w.kind, w.array().tobytes()) for w in found] == [
        ("float16", half.tobytes()),
        ("int8", whole.tobytes()),
    ]
    x = rng.normal(size=(1, 5)).astype(np.float32)
    want = x @ half.astype(np.float32).T @ (whole * 0.25).T
    np.testing.assert_allclose(converter.load(path).run({"x": x})["y"], want, rtol=1e-4, atol=1e-4)


def test_a_quantized_embedding_is_one_again(tmp_path: Path) -> None:
    codes = rng.integers(0, 16, size=(2, 6))
    raw = packed(codes, 4)
    data = WeightData("quantised", LazyTensor(raw), 4, scale=np.array([0.5], np.float32))
    made = network(
        [layer("embeddingND", "i", "y", {"weights": data}, vocabSize=6, embeddingSize=2)],
        {"i": (3, 1)},
        ["y"],
    )
    path = again(tmp_path, made)
    assert kinds(path) == ["squeeze", "expandDims", "embeddingND"]
    back = read_mlmodel(path)
    assert (
        back.weights(back.proto.neuralNetwork.layers[-1].embeddingND.weights).array().tobytes()
        == raw.tobytes()
    )
    np.testing.assert_allclose(
        converter.load(path).run({"i": [[5], [0], [2]]})["y"], codes.T[[5, 0, 2]] * 0.5
    )


def test_fp16_flavor(tmp_path: Path) -> None:
    made = network(
        [
            layer(
                "innerProduct",
                "x",
                "y",
                {"weights": np.ones((3, 5)) / 3},
                inputChannels=5,
                outputChannels=3,
            )
        ],
        {"x": (1, 5)},
        ["y"],
    )
    back = read_mlmodel(again(tmp_path, made, "coreml+fp16"))
    assert back.weights(back.proto.neuralNetwork.layers[0].innerProduct.weights).kind == "float16"


# control flow ------------------------------------------------------------------------------------


def test_loop_with_break_and_swap(tmp_path: Path) -> None:
    """Fibonacci until a number exceeds the limit: two carried values that are exchanged, and a way
    out.
    """
    body = [
        layer("addBroadcastable", "a b", "sum"),
        layer("greaterThan", "sum limit", "enough"),
        layer("branch", "enough", "", ifBranch={"layers": []}),
        layer("copy", "b", "a"),
        layer("copy", "sum", "b"),
    ]
    layers = [
        layer("loadConstantND", "", "a", {"data": np.zeros(1)}, shape=[1]),
        layer("loadConstantND", "", "b", {"data": np.ones(1)}, shape=[1]),
        layer("loop", "", "", maxLoopIterations=20, bodyNetwork=body),
        layer("copy", "b", "y"),
    ]
    made = network(layers, {"limit": (1,)}, ["y"])
    branch = made.proto.neuralNetwork.layers[2].loop.bodyNetwork.layers[2].branch
    branch.ifBranch.layers.add(name="out").loopBreak.SetInParent()
    for path in (saved(made, tmp_path / "m.mlmodel"), again(tmp_path, made)):
        model = converter.load(path)
        assert [float(model.run({"limit": [limit]})["y"][0]) for limit in (1, 10, 100, 1e9)] == [
            1,
            8,
            89,
            10946,
        ]


def test_while_loop_and_branches(tmp_path: Path) -> None:
    """Collatz: the number of steps to 1."""
    odd = [
        layer("multiply", "n", "t", alpha=3.0),
        layer("add", "t", "u", alpha=1.0),
        layer("copy", "u", "n"),
    ]
    even = [layer("multiply", "n", "t", alpha=0.5), layer("copy", "t", "n")]
    body = [
        layer("loadConstantND", "", "two", {"data": np.full(1, 2)}, shape=[1]),
        layer("modBroadcastable", "n two", "rest"),
        layer("branch", "rest", "", ifBranch={"layers": []}, elseBranch={"layers": []}),
        layer("add", "steps", "more", alpha=1.0),
        layer("copy", "more", "steps"),
    ]
    layers = [
        layer("copy", "x", "n"),
        layer("fillLike", "x", "steps", value=0.0),
        layer(
            "loop",
            "",
            "",
            conditionVar="going",
            conditionNetwork=[layer("notEqual", "n", "going", alpha=1.0)],
            bodyNetwork=body,
        ),
        layer("copy", "steps", "y"),
    ]
    made = network(layers, {"x": (1,)}, ["y"])
    from formats.coreml_models import fill

    branch = made.proto.neuralNetwork.layers[2].loop.bodyNetwork.layers[2].branch
    fill(made, branch.ifBranch, odd)
    fill(made, branch.elseBranch, even)
    for path in (saved(made, tmp_path / "m.mlmodel"), again(tmp_path, made)):
        model = converter.load(path)
        assert [int(model.run({"x": [n]})["y"][0]) for n in (1, 2, 6, 27)] == [0, 1, 8, 111]
    assert "loop" in kinds(path) and "branch" in kinds(path)


def test_a_collecting_onnx_loop(tmp_path: Path) -> None:
    """Running totals as a collected output: x[0], x[0]+x[1], ..."""
    nodes = [
        oh.make_node("Gather", ["x", "i"], ["v"]),
        oh.make_node("Add", ["s", "v"], ["t"]),
        oh.make_node("Identity", ["k"], ["k2"]),
        oh.make_node("Identity", ["t"], ["u"]),
    ]
    scalar = {
        n: oh.make_tensor_value_info(n, t, [])
        for n, t in (("i", 7), ("k", 9), ("s", 1), ("k2", 9), ("t", 1), ("u", 1))
    }
    body = oh.make_graph(
        nodes,
        "body",
        [scalar["i"], scalar["k"], scalar["s"]],
        [scalar["k2"], scalar["t"], scalar["u"]],
    )
    trips, zero = oh.make_tensor("trips", 7, [], [4]), oh.make_tensor("zero", 1, [], [0])
    loop = oh.make_node("Loop", ["trips", "", "zero"], ["last", "all"], body=body)
    graph = oh.make_graph(
        [loop],
        "g",
        [oh.make_tensor_value_info("x", 1, [4])],
        [oh.make_tensor_value_info("all", 1, [4])],
        [trips, zero],
    )
    onnx.save(
        oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10),
        tmp_path / "m.onnx",
    )
    converter.convert(tmp_path / "m.onnx", tmp_path / "m.mlmodel")
    got = converter.load(tmp_path / "m.mlmodel").run({"x": np.array([1, 2, 3, 4], np.float32)})
    assert got["all"].tolist() == [1, 3, 6, 10]


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_a_gru_that_resets_after_the_matrix(direction: str, tmp_path: Path) -> None:
    """PyTorch's: no layer says it, a loop does. onnxruntime is the witness."""
    d = 2 if direction == "bidirectional" else 1
    w, r, c = (rng.normal(size=(d, *s)).astype(np.float32) for s in ((9, 2), (9, 3), (18,)))
    source = one_node(
        tmp_path,
        "GRU",
        {"x": [4, 1, 2]},
        [4, d, 1, 3],
        {"w": w, "r": r, "b": c},
        direction=direction,
        hidden_size=3,
        linear_before_reset=1,
    )
    converter.convert(source, tmp_path / "m.mlmodel")
    x = rng.normal(size=(4, 1, 2)).astype(np.float32)
    want = converter.load(source).run({"x": x})["y"]
    np.testing.assert_allclose(
        converter.load(tmp_path / "m.mlmodel").run({"x": x})["y"], want, rtol=1e-4, atol=1e-5
    )


# writing -----------------------------------------------------------------------------------------


def one_node(
    tmp_path: Path,
    op: str,
    shapes: dict[str, list[Any]],
    out: list[Any],
    constants: dict[str, Array] | None = None,
    **attrs: Any,
) -> Path:
    """An ONNX model of one operator; the inputs in the order of `shapes`, then `constants`."""
    given = constants or {}
    node = oh.make_node(op, [*shapes, *given], ["y"], **attrs)
    graph = oh.make_graph(
        [node],
        "g",
        [oh.make_tensor_value_info(n, 1, s) for n, s in shapes.items()],
        [oh.make_tensor_value_info("y", 1, out)],
        [onnx.numpy_helper.from_array(v, n) for n, v in given.items()],
    )
    onnx.save(
        oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10),
        tmp_path / "one.onnx",
    )
    return tmp_path / "one.onnx"


@pytest.mark.parametrize(
    ("op", "constants", "attrs", "kind"),
    [
        (
            "Gemm",
            {"w": np.ones((4, 2), np.float32), "b": np.ones(2, np.float32)},
            {},
            ["innerProduct"],
        ),
        ("Gelu", {}, {}, ["gelu"]),
        ("Softmax", {}, {"axis": 1}, ["softmaxND"]),
        (
            "LayerNormalization",
            {"s": np.ones(4, np.float32), "b": np.ones(4, np.float32)},
            {},
            ["layerNormalization"],
        ),
        ("Pad", {"p": np.array([0, 1, 0, 1])}, {}, ["constantPad"]),
        ("Mul", {"c": np.float32(3)}, {}, ["multiply"]),
        ("Transpose", {}, {"perm": [1, 0]}, ["transpose"]),
        ("ReduceMax", {"a": np.array([1])}, {}, ["reduceMax"]),
    ],
)
def test_the_obvious_layer(
    op: str, constants: dict[str, Array], attrs: dict[str, Any], kind: list[str], tmp_path: Path
) -> None:
    source = one_node(tmp_path, op, {"x": [3, 4]}, [None, None], constants, **attrs)
    converter.convert(source, tmp_path / "m.mlmodel")
    assert kinds(tmp_path / "m.mlmodel") == kind
    assert read_mlmodel(tmp_path / "m.mlmodel").proto.specificationVersion == 4


def test_matmul_and_bias_are_one_layer(tmp_path: Path) -> None:
    w, c = (
        onnx.numpy_helper.from_array(v, n)
        for v, n in ((np.ones((4, 2), np.float32), "w"), (np.ones(2, np.float32), "c"))
    )
    nodes = [oh.make_node("MatMul", ["x", "w"], ["m"]), oh.make_node("Add", ["m", "c"], ["y"])]
    graph = oh.make_graph(
        nodes,
        "g",
        [oh.make_tensor_value_info("x", 1, [3, 5, 4])],
        [oh.make_tensor_value_info("y", 1, [3, 5, 2])],
        [w, c],
    )
    onnx.save(
        oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10),
        tmp_path / "m.onnx",
    )
    converter.convert(tmp_path / "m.onnx", tmp_path / "m.mlmodel")
    assert kinds(tmp_path / "m.mlmodel") == ["innerProduct"]
    x = rng.normal(size=(3, 5, 4)).astype(np.float32)
    np.testing.assert_allclose(
        converter.load(tmp_path / "m.mlmodel").run({"x": x})["y"],
        np.repeat(x.sum(2, keepdims=True) + 1, 2, 2),
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    ("op", "shapes", "out", "constants", "code"),
    [
        ("Relu", {"x": [1] * 6}, [1] * 6, {}, "X202"),
        ("GatherElements", {"x": [1 << 26]}, [1], {"i": np.array([1 << 25])}, "X204"),
        ("Det", {"x": [5, 5]}, [], {}, "X201"),
    ],
)
def test_models_that_core_ml_cannot_express_are_refused(
    op: str,
    shapes: dict[str, Any],
    out: list[Any],
    constants: dict[str, Array],
    code: str,
    tmp_path: Path,
) -> None:
    with pytest.raises(UnsupportedError) as e:
        converter.convert(one_node(tmp_path, op, shapes, out, constants), tmp_path / "m.mlmodel")
    assert [d.code for d in e.value.diagnostics] == [code]
    assert not (tmp_path / "m.mlmodel").exists()


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64, np.int32, np.int64])
@pytest.mark.parametrize("end", ["min", "max"])
def test_the_ends_of_the_integers_are_no_slices_where_they_are_results(
    dtype: Any, end: str, tmp_path: Path
) -> None:
    number = int(getattr(np.iinfo(dtype), end))
    m, b = new_model()
    b.output(
        b.op("Identity", b.const(np.array([1, number], dtype))),
        b.op("Relu", b.input("x", ir.DataType.FLOAT, [2])),
    )
    model = Model(m, "test")
    if number:
        with pytest.raises(UnsupportedError, match=f"X204.*{number}"):
            model.save(tmp_path / "m.mlmodel")
    else:
        model.save(tmp_path / "m.mlmodel")
        assert next(
            iter(
                converter.load(tmp_path / "m.mlmodel").run({"x": np.zeros(2, np.float32)}).values()
            )
        ).tolist() == [1, number]


def test_the_spec_flavor_is_a_limit(tmp_path: Path) -> None:
    source = one_node(
        tmp_path,
        "Conv",
        {"x": [1, 2, 3, 3, 3]},
        [1, 1, 2, 2, 2],
        {"w": np.ones((1, 2, 2, 2, 2), np.float32)},
    )
    converter.convert(source, tmp_path / "m.mlmodel")
    assert read_mlmodel(tmp_path / "m.mlmodel").proto.specificationVersion == 5
    with pytest.raises(UnsupportedError, match="X206"):
        converter.convert(source, tmp_path / "n.mlmodel", target="coreml+spec=4")


def test_an_output_under_the_name_of_an_input(tmp_path: Path) -> None:
    made = network([layer("add", "x", "t", alpha=1.0), layer("copy", "t", "x")], {"x": (2,)}, ["x"])
    for path in (saved(made, tmp_path / "m.mlmodel"), again(tmp_path, made)):
        assert converter.load(path).run({"x": [1, 2]})["x"].tolist() == [2, 3]


def test_a_name_without_a_producer(tmp_path: Path) -> None:
    made = network([layer("add", "x", "t", alpha=1.0)], {"x": (2,)}, ["y"])
    with pytest.raises(ReadError, match="R105"):
        converter.load(saved(made, tmp_path / "m.mlmodel"))


@pytest.mark.slow
def test_coremltools_reads_written_files(tmp_path: Path) -> None:
    """In a process of its own: coremltools takes seconds and changes logging."""
    weights = rng.normal(size=(2, 3, 3, 3)).astype(np.float32)
    made = network(
        [
            layer(
                "convolution",
                "x",
                "y",
                {"weights": weights},
                outputChannels=2,
                kernelChannels=3,
                valid={},
            )
        ],
        {"x": (1, 3, 8, 8)},
        ["y"],
    )
    path = again(tmp_path, made)
    code = (
        "import sys, coremltools as ct\n"
        "spec = ct.models.MLModel(sys.argv[1], skip_model_load=True).get_spec()\n"
        "layer = spec.neuralNetwork.layers[0]\n"
        "print(layer.WhichOneof('layer'), len(layer.convolution.weights.floatValue), "
        "list(layer.convolution.kernelSize))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=HANG
    )
    assert done.stdout.strip().splitlines()[-1] == "convolution 54 [3, 3]", done.stderr


# the corpus --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", [*corpus_cases("coreml/layers", every=60), *corpus_cases("coreml/nets", every=6)]
)
@pytest.mark.parametrize("through", [False, True], ids=["read", "written"])
@pytest.mark.sampled(5)
def test_corpus(case: Path, through: bool, tmp_path: Path) -> None:
    model = converter.load(case / "model.mlmodel")
    if through:
        converter.save(model, tmp_path / "m.mlmodel")
        model = converter.load(tmp_path / "m.mlmodel")
    with np.load(case / "inputs.npz") as inputs, np.load(case / "outputs.npz") as outputs:
        got = model.run(
            {i.name: inputs[k] for i, k in zip(model.inputs, inputs.files, strict=True)}
        )
        for name, want in outputs.items():
            assert np.squeeze(got[name]).shape == np.squeeze(want).shape
            np.testing.assert_allclose(
                np.squeeze(got[name]).astype(np.float64), np.squeeze(want), rtol=1e-2, atol=2e-3
            )


def test_integers_stay_exact_or_are_refused(tmp_path: Path) -> None:
    """A power with a negative exponent is cut off as integers are; a base that may be negative has
    no unsigned counterpart among floats.
    """
    m, b = new_model()
    b.output(
        b.op("Pow", b.input("x", ir.DataType.INT32, [4]), b.input("n", ir.DataType.INT32, [4]))
    )
    feeds = {"x": np.array([-8, 4, -1, 3], np.int32), "n": np.array([-1, -3, 2, 3], np.int32)}
    Model(m, "test").save(tmp_path / "pow.mlmodel", "coreml")
    (found,) = converter.load(tmp_path / "pow.mlmodel").run(feeds).values()
    np.testing.assert_array_equal(found, [0, 0, 1, 27])
    m, b = new_model()
    b.output(
        b.op("Cast", b.op("Tan", b.input("x", ir.DataType.FLOAT, [4])), to=int(ir.DataType.UINT32))
    )
    with pytest.raises(UnsupportedError, match=r"a Cast .* to uint32 .* wraps around"):
        Model(m, "test").save(tmp_path / "cast.mlmodel", "coreml")


def test_a_fixed_output_of_an_input_without_size_is_refused(tmp_path: Path) -> None:
    """The amount cut off at the begin depends on the size of the input, which is not known."""
    m, b = new_model()
    w = np.ones((4, 2, 3, 3), np.float32)
    b.output(
        b.op(
            "ConvTranspose",
            b.input("x", ir.DataType.FLOAT, [1, 4, 2, "N"]),
            w,
            strides=[2, 2],
            output_shape=[5, 2],
        )
    )
    with pytest.raises(UnsupportedError, match="static sizes") as info:
        Model(m, "test").save(tmp_path / "m.mlmodel", "coreml")
    assert info.value.diagnostics[0].code == "X203" and not (tmp_path / "m.mlmodel").exists()
