"""Operators in unusual forms, computed by ONNX Runtime and by the written layers, and refusals with
their messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.errors import ConverterError, UnsupportedError
from converter.formats.coreml.neuralnetwork.codec import read_mlmodel
from converter.formats.coreml.neuralnetwork.weights import WeightData
from converter.graph.build import Builder, new_model
from converter.graph.lazy_tensor import LazyTensor
from formats.coreml_models import Array, layer, network, saved
from layers import cases, test_layers
from layers.models import coreml

Build = Callable[..., Any]
FAR = np.iinfo(np.int64).max
rng = np.random.default_rng(23)


def floats(*shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


def network_of(
    build: Build, feeds: dict[str, Any], shapes: dict[str, list[Any] | None] | None = None
) -> Model:
    """The results of a function of inputs with the types and shapes of the feeds; other declared
    shapes are given by name.
    """
    model, b = new_model("main")
    made = [
        b.input(k, ir.DataType.from_numpy(v.dtype), (shapes or {}).get(k, list(v.shape)))
        for k, v in feeds.items()
    ]
    found = build(b, *made)
    b.output(*found if isinstance(found, tuple) else (found,))
    return Model(model, "onnx")


def cell(op: str, gates: int, *chosen: str, directions: int = 1, **attrs: Any) -> Build:
    """A recurrent operator with two units on vectors of three, with these activations."""

    def build(b: Builder, x: ir.Value) -> Any:
        weights = floats(directions, 2 * gates, 3), floats(directions, 2 * gates, 2)
        bias = floats(directions, 4 * gates)
        options = {"activations": list(chosen)} if chosen else {}
        return b.ops(op, x, *weights, bias, outputs=2, hidden_size=2, **options, **attrs)[:2]

    return build


def scan(trips: Any, *, until: float | None = None) -> Build:
    """A loop that collects a doubled state; `until`: as long as its sum is below this number."""

    def build(b: Builder, x: ir.Value, *n: ir.Value) -> Any:
        body = b.loop(n[0] if n else trips, x)
        y = body.Mul(body.states[0], 2.0)
        going = None if until is None else body.Less(body.ReduceSum(y, keepdims=0), until)
        return body.end(y, y, going=going)

    return build


def _halved(b: Builder, x: ir.Value) -> Any:
    sizes = b.Concat(b.Shape(x, end=2), [2, 3], axis=0)
    return b.Resize(x, None, None, sizes, mode="linear")


STEPS = {"x": floats(4, 2, 3)}
HALF = {"activation_alpha": [0.2], "activation_beta": [0.5]}
COUNT = np.array(3)
FORMS: dict[str, tuple[Build, dict[str, Any], dict[str, Any]]] = {
    "volumes of dynamic size with the padding SAME": (
        lambda b, x: b.Conv(x, floats(3, 2, 2, 3, 2), auto_pad="SAME_UPPER", strides=[2, 1, 2]),
        {"x": floats(1, 2, 5, 4, 6)},
        {"x": [1, 2, None, None, None]},
    ),
    "a transposed convolution of one axis": (
        lambda b, x: b.ConvTranspose(
            x, floats(3, 4, 3), floats(4), strides=[2], pads=[1, 0], output_padding=[1]
        ),
        {"x": floats(2, 3, 5)},
        {},
    ),
    "elements after the last window of one axis": (
        lambda b, x: b.ConvTranspose(
            x, floats(3, 4, 2), floats(4), strides=[3], output_padding=[2]
        ),
        {"x": floats(2, 3, 5)},
        {},
    ),
    "negative powers of integers": (
        lambda b, x: b.Pow(x, np.array(-1)),
        {"x": np.array([1, 2, -1, -3])},
        {},
    ),
    "blocks of one pixel": (
        lambda b, x: (b.DepthToSpace(x, blocksize=1), b.SpaceToDepth(x, blocksize=1)),
        {"x": floats(2, 4, 2, 3)},
        {},
    ),
    "more axes than Core ML has, reshaped at once": (
        lambda b, x: b.Relu(b.Reshape(b.Unsqueeze(b.Abs(x), [0, 2, 4]), [6, 4])),
        {"x": floats(2, 3, 4)},
        {},
    ),
    "a slice that begins before the first element": (
        lambda b, x: b.Slice(x, [-100, -2], [3, 9], [0, 1]),
        {"x": floats(4, 3)},
        {},
    ),
    "a backward slice of everything": (
        lambda b, x: b.Slice(x, [100], [-100], [0], [-2]),
        {"x": floats(4, 3)},
        {},
    ),
    "a product with a computed matrix": (
        lambda b, x, w, v: (b.Gemm(x, w), b.Gemm(x, v, transB=1)),
        {"x": floats(2, 3), "w": floats(3, 4), "v": floats(5, 3)},
        {},
    ),
    "a product and a matrix": (
        lambda b, x: b.Gemm(x, floats(3, 4), floats(2, 1)),
        {"x": floats(2, 3)},
        {},
    ),
    "a GRU with hard sigmoids": (cell("GRU", 3, "HardSigmoid", "Tanh"), STEPS, {}),
    "a GRU with the numbers of hard sigmoids": (
        cell("GRU", 3, "HardSigmoid", "Tanh", **HALF),
        STEPS,
        {},
    ),
    "a GRU with other hard sigmoids": (
        cell("GRU", 3, "HardSigmoid", "Tanh", activation_alpha=[0.3]),
        STEPS,
        {},
    ),
    "an LSTM with three activations": (
        cell(
            "LSTM",
            4,
            *("HardSigmoid", "ScaledTanh", "Affine"),
            activation_alpha=[0.2, 1.7159, 1.0],
            activation_beta=[0.5, 2 / 3, 0.0],
        ),
        STEPS,
        {},
    ),
    "an RNN with a function that no layer has": (cell("RNN", 1, "Elu"), STEPS, {}),
    "an LSTM whose directions differ": (
        cell(
            "LSTM",
            4,
            *("Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Tanh", "Tanh"),
            directions=2,
            direction="bidirectional",
        ),
        STEPS,
        {},
    ),
    "a GRU of two directions": (
        cell("GRU", 3, directions=2, direction="bidirectional"),
        STEPS,
        {},
    ),
    "a clipped GRU": (cell("GRU", 3, clip=0.5), STEPS, {}),
    "an RNN for any number of sequences": (cell("RNN", 1), STEPS, {"x": [4, None, 3]}),
    "a loop that collects": (scan(None), {"x": floats(2), "n": COUNT}, {}),
    "a loop that collects a known number": (scan(3), {"x": floats(2)}, {}),
    "the last axis of dynamic images, halved": (
        lambda b, x: b.Resize(x, None, [1.0, 1.0, 1.5, 0.5], mode="linear"),
        {"x": floats(1, 2, 4, 6)},
        {"x": [1, 2, None, None]},
    ),
    "a smoothed smaller image": (
        lambda b, x: b.Resize(x, None, [1.0, 1.0, 0.5, 0.25], mode="linear", antialias=1),
        {"x": floats(1, 2, 4, 8)},
        {},
    ),
    "an Expand of a dynamic size to more than a million": (
        lambda b, x: b.Expand(x, [1 << 10, 1 << 11]),
        {"x": floats(1, 1)},
        {"x": [None, 1]},
    ),
    "reflections of a vector": (
        lambda b, x: b.Pad(x, [1, 2], mode="reflect"),
        {"x": floats(5)},
        {},
    ),
    "parts that are not equal": (
        lambda b, x: b.ops("Split", x, outputs=3, num_outputs=3, axis=1),
        {"x": floats(2, 7)},
        {},
    ),
    "parts of computed sizes": (
        lambda b, x, n: b.ops("Split", x, n, outputs=2),
        {"x": floats(5), "n": np.array([2, 3])},
        {},
    ),
    "a computed shape in which zeros copy nothing": (
        lambda b, x, s: b.Reshape(x, s, allowzero=1),
        {"x": floats(2, 2), "s": np.array([4, 1])},
        {},
    ),
    "an Expand of a dynamic size to many columns": (
        lambda b, x: b.Expand(x, [1, (1 << 20) + 1]),
        {"x": floats(2, 1)},
        {"x": [None, 1]},
    ),
    "weights of a cell that are computed": (
        lambda b, x, w: b.ops("RNN", x, w, floats(1, 2, 2), outputs=1, hidden_size=2),
        {**STEPS, "w": floats(1, 2, 3)},
        {"w": [1, None, 3]},
    ),
    "half the size": (
        lambda b, x: b.Resize(x, None, None, [1, 2, 2, 3], mode="linear"),
        {"x": floats(1, 2, 4, 6)},
        {},
    ),
    "half the size of as many images as there are": (
        lambda b, x, c: _halved(b, b.Compress(x, c, axis=0)),
        {"x": floats(3, 2, 4, 6), "c": np.array([True, False, True])},
        {},
    ),
    "twice the size": (
        lambda b, x: b.Resize(
            x,
            *(None, None, [1, 2, 4, 9]),
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        {"x": floats(1, 2, 2, 3)},
        {},
    ),
    "slices of a dynamic axis": (
        lambda b, x: tuple(
            b.Slice(x, [start], [end], [0], [step])
            for start, end, step in (
                *((-1, -FAR, -1), (FAR, 1, -1), (3, -FAR, -2), (-2, 0, -1), (FAR, -4, -2)),
                *((1, FAR, 1), (-2, FAR, 1), (0, -1, 1), (-FAR, 3, 2), (0, FAR, 3), (1, 4, 2)),
            )
        ),
        {"x": floats(5, 3)},
        {"x": [None, 3]},
    ),
    "a computed number of zeros": (
        lambda b, x, s: b.Add(x, b.ConstantOfShape(s)),
        {"x": floats(2, 3), "s": np.array([2, 3])},
        {},
    ),
    "one row": (lambda b, x: b.Flatten(x, axis=0), {"x": floats(2, 3)}, {}),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_layers_compute_what_the_operator_does(name: str, tmp_path: Path) -> None:
    build, feeds, shapes = FORMS[name]
    model = network_of(build, feeds, shapes)
    expected = model.run(feeds)
    model.save(tmp_path / "m.mlmodel")
    actual = converter.run(tmp_path / "m.mlmodel", feeds)
    for x, y in zip(expected.values(), actual.values(), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-5)


X3, X5 = {"x": floats(1, 2, 3, 4)}, {"x": floats(1, 2, 3, 4, 3)}
REFUSED: dict[str, tuple[Build, dict[str, Any], str]] = {
    "computed weights of volumes": (
        lambda b, x, w: b.Conv(x, w),
        {**X5, "w": floats(2, 2, 1, 2, 2)},
        "computed weights are not supported by convolutions of volumes",
    ),
    "computed weights of a transposed convolution": (
        lambda b, x, w: b.ConvTranspose(x, w),
        {**X3, "w": floats(2, 3, 2, 2)},
        "computed weights are not supported by transposed convolutions",
    ),
    "text": (
        lambda b, x: b.Cast(x, to=int(ir.DataType.STRING)),
        X3,
        "Cast: strings are not supported by Core ML",
    ),
    "computed scales": (
        lambda b, x, s: b.Resize(x, None, s, mode="linear"),
        {**X3, "s": np.array([1, 1, 2, 2], np.float32)},
        "Resize: computed scales are not supported",
    ),
    "the length of a shape": (
        lambda b, x, s: b.Expand(x, s),
        {**X3, "s": np.array([1, 2, 3, 4])},
        "Expand: the rank of expand is unknown",
    ),
    "computed axes": (
        lambda b, x, a: b.Squeeze(x, a),
        {**X3, "a": np.array([0])},
        "Squeeze: the axes must be constant",
    ),
    "an empty part": (
        lambda b, x: b.ops("Split", x, [0, 2], outputs=2, axis=1),
        X3,
        "Slice (made for Split): a Slice without elements is not supported",
    ),
    "a computed value of a Pad": (
        lambda b, x, v: b.Pad(x, [0, 0, 1, 0, 0, 0, 0, 0], v),
        {**X3, "v": floats()},
        "Pad: the value of a Pad must be constant",
    ),
    "a loop that collects until a condition": (
        scan(None, until=10.0),
        {"x": floats(2), "n": COUNT},
        "Loop: the loop's iteration count is not known at conversion time, so its stacked output "
        "has no shape",
    ),
    "a loop without an end": (
        lambda b, x: b.ops("Loop", None, None, x, outputs=1, body=_endless(b, x)),
        {"x": floats(2)},
        "Loop: an infinite loop is not supported",
    ),
}
DYNAMIC = {"the length of a shape": {"s": [None]}}


def _endless(b: Builder, x: ir.Value) -> ir.Graph:
    body = b.loop(None, x)
    body.output(body.const(True), body.Mul(body.states[0], 2.0))
    return body.graph


@pytest.mark.parametrize("name", REFUSED)
def test_operators_are_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    build, feeds, reason = REFUSED[name]
    model = network_of(build, feeds, DYNAMIC.get(name))
    with pytest.raises(UnsupportedError, match=re.escape(reason)):
        model.save(tmp_path / "m.mlmodel")
    assert not (tmp_path / "m.mlmodel").exists()


DAMAGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "three strides": (
        "convolution",
        {"stride": [1, 2, 1]},
        "[1, 2, 1] must have two elements (height, width)",
    ),
    "three borders": (
        "padding",
        {"paddingAmounts": {"borderAmounts": [{}, {}, {}]}},
        "the border must have 2 amounts (height, width), got 3",
    ),
    "three amounts of a pool": (
        "pooling-includeLastPixel",
        {"includeLastPixel": {"paddingAmounts": [1, 1, 1]}},
        "[1, 1, 1] must have two elements (height, width)",
    ),
    "a target of five sizes": (
        "reshape",
        {"targetShape": [1, 1, 2, 3, 4]},
        "targetShape must have 3 or 4 elements, got 5",
    ),
    "a function that no cell has": (
        "simpleRecurrent",
        {"activation": {"leakyReLU": {"alpha": 0.5}}},
        "activation leakyReLU is not supported in a recurrent layer",
    ),
}


@pytest.mark.parametrize(
    "file",
    [
        "concatND-interleave",
        "squeeze-all",
        "constantPad-output-size",
        "pooling-average-includeLastPixel",
        "innerProduct-rank-5",
        "crop-like",
    ],
)
def test_a_layer_is_read_alike_for_other_sizes(file: str) -> None:
    """Code for dynamic sizes alone, which the sampled tests of all layers may leave out."""
    path = cases.FOLDER / "coreml" / f"{file}.toml"
    test_layers.test_a_layer_is_read_alike_for_other_sizes("coreml", path)


@pytest.mark.parametrize("name", DAMAGED)
def test_layers_are_refused_with_a_reason(name: str) -> None:
    file, attributes, reason = DAMAGED[name]
    case = cases.read(cases.FOLDER / "coreml" / f"{file}.toml")
    case.attributes |= attributes
    with pytest.raises(ConverterError, match=re.escape(reason)):
        coreml.lift(coreml.build(case))


def test_activations_with_the_numbers_of_core_ml_are_one_layer(tmp_path: Path) -> None:
    build, feeds, _ = FORMS["an LSTM with three activations"]
    network_of(build, feeds).save(tmp_path / "m.mlmodel")
    layers = read_mlmodel(tmp_path / "m.mlmodel").proto.neuralNetwork.layers
    assert "uniDirectionalLSTM" in {x.WhichOneof("layer") for x in layers}


def test_classes_are_drawn_by_logarithms(tmp_path: Path) -> None:
    draw = network_of(lambda b, x: b.Multinomial(x, sample_size=4), {"x": floats(2, 3)})
    draw.save(tmp_path / "m.mlmodel")
    found = read_mlmodel(tmp_path / "m.mlmodel").proto.neuralNetwork.layers[0]
    assert found.categoricalDistribution.isLogits
    assert found.categoricalDistribution.numSamples == 4


def test_a_range_without_an_end_is_refused() -> None:
    case = cases.read(cases.FOLDER / "coreml" / "rangeDynamic.toml")
    case.inputs = []
    with pytest.raises(ConverterError, match="the end of the range is missing"):
        coreml.lift(coreml.build(case))


def test_a_loop_whose_body_reads_its_condition(tmp_path: Path) -> None:
    def build(b: Builder, x: ir.Value, n: ir.Value) -> Any:
        body = b.loop(n, x)
        going = body.graph.inputs[1]
        return body.end(body.Where(going, body.Mul(body.states[0], 2.0), body.states[0]))

    feeds = {"x": floats(2), "n": COUNT}
    network_of(build, feeds).save(tmp_path / "m.mlmodel")
    (y,) = converter.run(tmp_path / "m.mlmodel", feeds).values()
    np.testing.assert_allclose(y, feeds["x"] * 8)


@pytest.mark.parametrize(("size", "wanted"), [(3, 7), (5, 7), (13, 29), (7, 3)])
def test_a_factor_gives_the_size_however_it_is_rounded(
    size: int, wanted: int, tmp_path: Path
) -> None:
    """Core ML rounds size * factor down, with float32 numbers or with doubles."""
    x = floats(1, 1, size, 2)
    scales = [1.0, 1.0, wanted / size, 1.5]
    model = network_of(lambda b, x: b.Resize(x, None, scales, mode="linear"), {"x": x})
    assert model.outputs[0].shape == (1, 1, wanted, 3)
    model.save(tmp_path / "m.mlmodel")
    (message,) = read_mlmodel(tmp_path / "m.mlmodel").proto.neuralNetwork.layers
    factor = np.float32(message.upsample.fractionalScalingFactor[0])
    assert int(float(factor) * size) == int(factor * np.float32(size)) == wanted


def test_one_element_at_a_computed_place_has_a_known_size(tmp_path: Path) -> None:
    chosen = layer("sliceDynamic", "x b e", "y", strides=[1, 1], squeezeMasks=[True, True])
    model = network([chosen], {"x": (3, 4), "b": (2,), "e": (2,)}, ["y"])
    found = converter.load(saved(model, tmp_path / "m.mlmodel"))
    assert found.outputs[0].shape == (1,)
    x, at = floats(3, 4), np.array([2, 1], np.float32)
    (y,) = found.run({"x": x, "b": at, "e": at + 1}).values()
    np.testing.assert_array_equal(y, x[2, 1:2])


@pytest.mark.parametrize("count", [2, 4])
def test_slopes_are_one_for_each_channel(count: int, tmp_path: Path) -> None:
    slopes = layer("activation", "x", "y", {"PReLU.alpha": floats(count)}, PReLU={})
    path = saved(network([slopes], {"x": [2, 3, 1, 2]}, ["y"]), tmp_path / "m.mlmodel")
    reason = f"PRelu: the slope [{count}, 1, 1] does not fit the shape [2, 3, 1, 2]"
    with pytest.raises(ConverterError, match=re.escape(reason)):
        converter.load(path)


def test_a_quantized_constant_has_the_axes_of_the_network(tmp_path: Path) -> None:
    """In a network of rank 5, [C,H,W] is a sequence of one and a batch of one."""
    codes = np.arange(6, dtype=np.uint8)
    data = WeightData("quantised", LazyTensor(codes), 8, scale=np.array([0.5], np.float32))
    layers = [
        layer("loadConstant", "", "c", {"data": data}, shape=[1, 2, 3]),
        layer("add", "x c", "y"),
    ]
    model = network(layers, {"x": [1, 2, 3]}, ["y"], exact=False)
    x = floats(1, 1, 1, 2, 3)
    found = converter.load(saved(model, tmp_path / "m.mlmodel"))
    (expected,) = (x + codes.reshape(1, 1, 1, 2, 3) * np.float32(0.5),)
    (actual,) = found.run({"x": x.reshape([int(n) for n in found.inputs[0].shape])}).values()
    np.testing.assert_allclose(actual.reshape(expected.shape), expected)


def test_a_cast_to_eight_bits_of_a_float_is_computed(tmp_path: Path) -> None:
    def build(b: Builder, x: ir.Value) -> ir.Value:
        return b.Cast(b.Cast(x, to=int(ir.DataType.FLOAT8E4M3FN)), to=int(ir.DataType.FLOAT))

    x = np.array([0.3, 17.0, -1.06, 600.0], np.float32)
    network_of(build, {"x": x}).save(tmp_path / "m.mlmodel")
    assert read_mlmodel(tmp_path / "m.mlmodel").kind == "neuralNetwork"
    # the nearest numbers with 3 bits of a fraction; larger ones are the largest
    (y,) = converter.run(tmp_path / "m.mlmodel", {"x": x}).values()
    np.testing.assert_array_equal(y, np.array([0.3125, 16, -1.0, 448], np.float32))
