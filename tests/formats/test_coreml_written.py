"""Apple's rules for written files: precisions, copies, ranks, versions, declared sizes;
and numbers that floats do not hold by themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.api import Model
from converter.errors import UnsupportedError
from converter.formats.coreml.features import from_json
from converter.formats.coreml.neuralnetwork.codec import read_mlmodel
from converter.formats.coreml.neuralnetwork.network import all_layers, kind_of
from converter.formats.coreml.neuralnetwork.weights import WeightData
from converter.formats.coreml.proto import Model_pb2
from converter.graph.build import Builder, new_model
from converter.graph.lazy_tensor import LazyTensor
from formats.coreml_models import Array, layer, network, saved
from judged import assert_valid_core_ml, run_in

rng = np.random.default_rng(5)
Build = Callable[..., Any]
GATES = ("inputGate", "forgetGate", "blockInput", "outputGate")


def half(*shape: int) -> WeightData:
    return WeightData.of(rng.normal(size=shape).astype(np.float16))


def bytes_with(scales: Array, *shape: int) -> WeightData:
    codes = rng.integers(0, 255, shape).astype(np.uint8)
    return WeightData("quantised", LazyTensor(codes), 8, scale=scales.astype(np.float32))


def again(tmp_path: Path, model: Any, target: str = "coreml") -> Path:
    """The model written, read, and written once more as `target`."""
    converter.convert(
        saved(model, tmp_path / "first.mlmodel"), tmp_path / "second.mlmodel", target=target
    )
    return tmp_path / "second.mlmodel"


def built(tmp_path: Path, build: Build, target: str = "coreml", **feeds: Any) -> Path:
    """The network of one function as Core ML; inputs as the feeds are, or as given by (type,
    shape).
    """
    model, b = new_model("main")
    made = []
    for name, feed in feeds.items():
        dtype, shape = (
            (ir.DataType.from_numpy(feed.dtype), list(feed.shape))
            if isinstance(feed, np.ndarray)
            else feed
        )
        made.append(b.input(name, dtype, shape))
    found = build(b, *made)
    for value in found if isinstance(found, tuple) else (found,):
        b.output(value)
    path = tmp_path / ("built.mlmodel" if target.startswith("coreml") else "built.xml")
    converter.save(Model(model, "onnx"), path, target)
    return path


def layers_of(path: Path) -> list[Any]:
    model = read_mlmodel(path)
    return all_layers(getattr(model.proto, model.kind))


def kinds(path: Path) -> list[str]:
    return [kind_of(x) for x in layers_of(path)]


def stored(path: Path) -> list[set[str]]:
    """For each layer with weights, the kinds of their content."""
    model = read_mlmodel(path)
    found = []
    for message in all_layers(getattr(model.proto, model.kind)):
        weights = [v for v in _weights(getattr(message, kind_of(message))) if v.ByteSize()]
        if weights:
            found.append({model.weights(v).kind for v in weights})
    return found


def _weights(message: Any) -> list[Any]:
    if message.DESCRIPTOR.name == "WeightParams":
        return [message]
    found = []
    for field, value in message.ListFields():
        if field.message_type is not None:
            found += [w for v in (value if field.is_repeated else [value]) for w in _weights(v)]
    return found


def spec(path: Path) -> int:
    return int(read_mlmodel(path).proto.specificationVersion)


# precisions of one layer -------------------------------------------------------------------------


def half_layers(
    bias: Callable[..., WeightData],
) -> dict[str, tuple[tuple[Any, ...], dict[str, tuple[int, ...]]]]:
    """Layers with weights in half precision and biases of another making, with the shapes of their
    inputs.
    """
    window = {"kernelSize": [1, 1], "stride": [1, 1], "dilationFactor": [1, 1], "nGroups": 1}
    volume = {
        f"{k}{a}": 1 for k in ("kernel", "stride", "dilation") for a in ("Depth", "Height", "Width")
    }
    gates = {f"weightParams.{g}WeightMatrix": half(2, 3) for g in GATES} | {
        f"weightParams.{g}RecursionMatrix": half(2, 2) for g in GATES
    }
    gates |= {f"weightParams.{g}BiasVector": bias(2) for g in GATES}
    steps = {
        "inputVectorSize": 3,
        "outputVectorSize": 2,
        "activations": [{"sigmoid": {}}, {"tanh": {}}, {"tanh": {}}],
    }
    states = {"x": (4, 1, 3, 1, 1), "h": (1, 1, 2, 1, 1), "c": (1, 1, 2, 1, 1)}
    return {
        "convolution": (
            layer(
                "convolution",
                "x",
                "y",
                {"weights": half(2, 3, 1, 1), "bias": bias(2)},
                outputChannels=2,
                kernelChannels=3,
                valid={},
                hasBias=True,
                **window,
            ),
            {"x": (1, 3, 4, 4)},
        ),
        "convolution3d": (
            layer(
                "convolution3d",
                "x",
                "y",
                {"weights": half(2, 3, 1, 1, 1), "bias": bias(2)},
                outputChannels=2,
                inputChannels=3,
                nGroups=1,
                hasBias=True,
                **volume,
            ),
            {"x": (1, 3, 4, 4, 4)},
        ),
        "innerProduct": (
            layer(
                "innerProduct",
                "x",
                "y",
                {"weights": half(2, 3), "bias": bias(2)},
                inputChannels=3,
                outputChannels=2,
                hasBias=True,
            ),
            {"x": (4, 3)},
        ),
        "batchedMatmul": (
            layer(
                "batchedMatmul",
                "x",
                "y",
                {"weights": half(2, 3), "bias": bias(2)},
                weightMatrixFirstDimension=3,
                weightMatrixSecondDimension=2,
                hasBias=True,
            ),
            {"x": (2, 2, 4, 3)},
        ),
        "uniDirectionalLSTM": (
            layer(
                "uniDirectionalLSTM",
                "x h c",
                "y h2 c2",
                gates,
                params={"hasBiasVectors": True, "sequenceOutput": True},
                **steps,
            ),
            states,
        ),
    }


@pytest.mark.parametrize("kind", half_layers(half))
def test_half_weights_keep_half_biases(kind: str, tmp_path: Path) -> None:
    made, inputs = half_layers(half)[kind]
    path = again(tmp_path, network([made], inputs, ["y"]))
    assert [s for s in stored(path) if s] == [{"float16"}]
    feeds = {n: rng.normal(size=s).astype(np.float32) for n, s in inputs.items()}
    np.testing.assert_array_equal(
        converter.run(path, feeds)["y"], converter.run(tmp_path / "first.mlmodel", feeds)["y"]
    )


@pytest.mark.parametrize("kind", half_layers(half))
def test_a_bias_that_is_no_half_makes_the_layer_whole(kind: str, tmp_path: Path) -> None:
    """Nothing changes without being asked for: widening halves is exact."""
    made, inputs = half_layers(lambda n: WeightData.of(np.full(n, 0.1, np.float32)))[kind]
    path = again(tmp_path, network([made], inputs, ["y"]))
    assert [s for s in stored(path) if s] == [{"float32"}]
    feeds = {n: rng.normal(size=s).astype(np.float32) for n, s in inputs.items()}
    np.testing.assert_allclose(
        converter.run(path, feeds)["y"],
        converter.run(tmp_path / "first.mlmodel", feeds)["y"],
        rtol=1e-6,
    )


def test_half_precision_on_demand_takes_a_bias_of_one_number_along(tmp_path: Path) -> None:
    weights, bias = rng.normal(size=(1, 3)).astype(np.float32), np.full(1, 0.1, np.float32)
    made = layer(
        "innerProduct",
        "x",
        "y",
        {"weights": weights, "bias": bias},
        inputChannels=3,
        outputChannels=1,
        hasBias=True,
    )
    assert stored(again(tmp_path, network([made], {"x": (2, 3)}, ["y"]), "coreml+fp16")) == [
        {"float16"}
    ]


def normalised() -> Any:
    blobs = {"gamma": np.full(3, 2, np.float32), "beta": np.ones(3, np.float32)}
    return network(
        [layer("layerNormalization", "x", "y", blobs, normalizedShape=[3], eps=1e-5)],
        {"x": (2, 3)},
        ["y"],
    )


def quantized_volume() -> Any:
    window = {
        f"{k}{a}": 1 for k in ("kernel", "stride", "dilation") for a in ("Depth", "Height", "Width")
    }
    blobs = {"weights": bytes_with(np.ones(1), 2, 3, 1, 1, 1)}
    return network(
        [
            layer(
                "convolution3d",
                "x",
                "y",
                blobs,
                outputChannels=2,
                inputChannels=3,
                nGroups=1,
                **window,
            )
        ],
        {"x": (1, 3, 2, 2, 2)},
        ["y"],
    )


def test_layers_that_take_only_plain_numbers(tmp_path: Path) -> None:
    assert stored(again(tmp_path, normalised(), "coreml+fp16")) == [{"float32"}]
    assert stored(again(tmp_path, quantized_volume())) == [{"float32"}]


def channels() -> tuple[Any, Array]:
    """A table of bytes with a scale and a zero for each row or column, that rows are taken from at
    run time.
    """
    model, b = new_model("main")
    found, want = [], []
    index, codes = (
        b.input("i", ir.DataType.INT32, [2]),
        rng.integers(-128, 127, (3, 4)).astype(np.int8),
    )
    for axis in (0, 1):
        scale, zero = (
            rng.uniform(0.1, 1, codes.shape[axis]).astype(np.float32),
            rng.integers(-9, 9, codes.shape[axis]).astype(np.int8),
        )
        found.append(
            b.op("Gather", b.op("DequantizeLinear", codes, scale, zero, axis=axis), index, axis=0)
        )
        shape = (-1, 1) if axis == 0 else (1, -1)
        want.append(
            ((codes.astype(np.float32) - zero.reshape(shape)) * scale.reshape(shape))[[2, 0]]
        )
    for value in found:
        b.output(value)
    return Model(model, "onnx"), np.stack(want)


def test_a_constant_with_a_scale_for_each_channel_stays_small(tmp_path: Path) -> None:
    model, want = channels()
    converter.save(model, tmp_path / "n.mlmodel")
    constants = [
        x.loadConstantND
        for x in layers_of(tmp_path / "n.mlmodel")
        if kind_of(x) == "loadConstantND"
    ]
    quantized = [c for c in constants if c.data.quantization.numberOfBits]
    assert len(quantized) == 2 and all(
        len(c.data.quantization.linearQuantization.scale) == 1 for c in quantized
    )
    got = converter.run(tmp_path / "n.mlmodel", {"i": np.array([2, 0], np.int32)})
    np.testing.assert_allclose(np.stack(list(got.values())), want, rtol=1e-6)


# layers and names --------------------------------------------------------------------------------


def copied(path: Path) -> list[tuple[str, str]]:
    return [(x.input[0], x.output[0]) for x in layers_of(path) if kind_of(x) == "copy"]


def test_an_output_that_is_an_input_of_that_name_is_two_copies(tmp_path: Path) -> None:
    path = again(
        tmp_path, network([layer("copy", "x", "t"), layer("copy", "t", "x")], {"x": (2,)}, ["x"])
    )
    (first, middle), (same, last) = copied(path)
    assert first == last == "x" and middle == same != "x"


def swapped(tmp_path: Path) -> Path:
    model, b = new_model("main")
    values = [b.input(n, ir.DataType.FLOAT, [2]) for n in ("x", "y")]
    for value, name in zip(values, ("y", "x"), strict=True):
        b.output(b.op("Identity", value, name=name))
        from converter.graph.names import set_public_name

        set_public_name(b.graph.outputs[-1], name)
    converter.save(Model(model, "onnx"), tmp_path / "n.mlmodel")
    return tmp_path / "n.mlmodel"


def test_inputs_that_are_each_others_outputs(tmp_path: Path) -> None:
    blobs = {"x": "first", "y": "second"}
    for source, target in copied(swapped(tmp_path)):
        blobs[target] = blobs[source]
        assert source != target
    assert (blobs["x"], blobs["y"]) == ("second", "first")


def test_a_network_without_inputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no inputs"):
        built(tmp_path, lambda b: b.op("Identity", b.const(np.ones(3, np.float32))))


def test_booleans_of_too_many_axes_are_not_the_numbers_themselves(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="rank 6"):
        built(
            tmp_path,
            lambda b, x: b.op("Cast", x, to=ir.DataType.BOOL),
            x=(ir.DataType.FLOAT, ["N", 2, 4, 5, 6, 5]),
        )


def test_a_rank_preserving_reshape_states_its_ranks(tmp_path: Path) -> None:
    made = layer("rankPreservingReshape", "x", "y", targetShape=[0, -1])
    model = network([made], {"x": (1, 4)}, ["y"])
    ranges = model.proto.description.input[0].type.multiArrayType.shapeRange.sizeRanges
    for _ in range(2):
        ranges.add(lowerBound=1, upperBound=-1)
    (found,) = layers_of(again(tmp_path, model))
    assert kind_of(found) == "rankPreservingReshape"
    assert [t.rank for t in (*found.inputTensor, *found.outputTensor)] == [2, 2]


def sliced(**more: Any) -> Any:
    return network(
        [layer("sliceDynamic", "x b e", "y", **more)], {"x": (4, 5, 6), "b": (3,), "e": (3,)}, ["y"]
    )


def test_masks_of_a_slice_are_said_only_where_they_squeeze(tmp_path: Path) -> None:
    path = again(
        tmp_path,
        sliced(
            strides=[1, 2, 1],
            beginMasks=[False] * 3,
            endMasks=[False] * 3,
            squeezeMasks=[False] * 3,
        ),
    )
    (found,) = [x.sliceDynamic for x in layers_of(path) if kind_of(x) == "sliceDynamic"]
    assert list(found.squeezeMasks) == [] and spec(path) == 4


def test_the_last_element_is_chosen_in_the_openvino_runtime(tmp_path: Path) -> None:
    """It chooses limits as floats, which turn the largest integer into one below zero."""
    pytest.importorskip("openvino")
    from openvino_runtime import infer

    squeezed = dict(strides=[1] * 3, beginMasks=[False] * 3, endMasks=[False] * 3)
    path = saved(sliced(**squeezed, squeezeMasks=[False, True, False]), tmp_path / "m.mlmodel")
    converter.convert(path, tmp_path / "m.xml", target="openvino")
    feeds = [np.arange(120.0).reshape(4, 5, 6), np.array([1.0, -1, 2]), np.array([3.0, 0, 5])]
    (found,) = infer(tmp_path / "m.xml", feeds)
    np.testing.assert_array_equal(found, feeds[0][1:3, -1, 2:5])


def test_masks_for_five_axes_of_fewer(tmp_path: Path) -> None:
    """As coremltools writes them without given masks."""
    path = saved(
        sliced(
            strides=[1, 2, 1, 1, 1],
            beginMasks=[False] * 5,
            endMasks=[False] * 5,
            squeezeMasks=[False] * 5,
        ),
        tmp_path / "m.mlmodel",
    )
    x = rng.normal(size=(4, 5, 6)).astype(np.float32)
    got = converter.run(path, {"x": x, "b": np.array([1, 0, 2]), "e": np.array([3, 4, 6])})["y"]
    np.testing.assert_array_equal(got, x[1:3, 0:4:2, 2:6])


def test_the_version_is_that_of_the_layers_that_are_needed(tmp_path: Path) -> None:
    made = [layer("cumSum", "x", "unread", axis=0), layer("activation", "x", "y", ReLU={})]
    assert spec(again(tmp_path, network(made, {"x": (3,)}, ["y"]))) == 4
    assert spec(again(tmp_path, network(made[:1], {"x": (3,)}, ["unread"]))) == 5


def optional() -> Any:
    model = network([layer("activation", "x", "y", ReLU={})], {"x": (3,)}, ["y"])
    kind = model.proto.description.input[0].type
    kind.isOptional, kind.multiArrayType.floatDefaultValue = True, 2.0
    return model


def test_one_input_has_to_be_given(tmp_path: Path) -> None:
    notes = converter.convert(saved(optional(), tmp_path / "m.mlmodel"), tmp_path / "n.mlmodel")
    assert [n.code for n in notes] == ["X207"]
    kind = read_mlmodel(tmp_path / "n.mlmodel").proto.description.input[0].type
    assert not kind.isOptional and kind.multiArrayType.WhichOneof("defaultOptionalValue") is None


@pytest.mark.parametrize("by", ["", "a.onnx"])
def test_an_input_stays_optional_without_a_value(by: str, tmp_path: Path) -> None:
    """Source: Model.proto, FeatureType.isOptional."""
    made = [layer("add", "a b", "y")]
    model = network(made, {"a": (3,), "b": (3,)}, ["y"])
    model.proto.description.input[1].type.isOptional = True
    path = saved(model, tmp_path / "m.mlmodel")
    if by:
        converter.convert(path, tmp_path / by)
        path = tmp_path / by
    assert converter.convert(path, tmp_path / "n.mlmodel") == []
    written = read_mlmodel(tmp_path / "n.mlmodel").proto
    assert [f.type.isOptional for f in written.description.input] == [False, True]
    array = written.description.input[1].type.multiArrayType
    assert array.WhichOneof("defaultOptionalValue") is None
    assert written.specificationVersion == 4


# operands of any rank ----------------------------------------------------------------------------


def vectors() -> Any:
    """A number of repeats, sizes and limits that are computed, with two axes where others have
    one.
    """
    layers = [
        layer("tile", "x n", "tiled"),
        layer("fillDynamic", "n", "filled", value=2.0),
        layer("broadcastToDynamic", "x m", "spread"),
        layer("reshapeDynamic", "x m", "shaped"),
    ]
    return network(
        layers, {"x": (3,), "n": (1, 1), "m": (1, 1)}, ["tiled", "filled", "spread", "shaped"]
    )


@pytest.mark.parametrize("target", ["onnx", "openvino"])
def test_runtimes_take_the_vectors_of_core_ml(target: str, tmp_path: Path) -> None:
    path = tmp_path / ("n.onnx" if target == "onnx" else "n.xml")
    converter.convert(saved(vectors(), tmp_path / "m.mlmodel"), path, target=target)
    x, n, m = (
        np.arange(3, dtype=np.float32),
        np.array([[2]], np.float32),
        np.array([[3]], np.float32),
    )
    got = _native(path, {"x": x, "n": n, "m": m})
    for name, want in {
        "tiled": np.tile(x, 2),
        "filled": np.full(2, 2.0),
        "spread": x,
        "shaped": x,
    }.items():
        np.testing.assert_array_equal(got[name], want)


def _native(path: Path, feeds: dict[str, Array]) -> dict[str, Array]:
    """The file in the runtime it is for."""
    if path.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return dict(
            zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True)
        )
    openvino = pytest.importorskip("openvino")
    compiled = openvino.compile_model(str(path), "CPU")
    return {o.get_any_name(): v for o, v in compiled(feeds).items()}


def spread(b: Builder, x: ir.Value, shape: ir.Value) -> ir.Value:
    return b.op("Expand", x, shape)


@pytest.mark.parametrize("asked", [[1, 4], [3, 4], [1, 1], [4]])
def test_an_expand_to_less_keeps_the_sizes(asked: list[int], tmp_path: Path) -> None:
    """ONNX leaves an axis as it is where the shape says 1 or nothing; the layer's shape must hold
    the operand's.
    """
    shape = np.array(asked, np.int64)
    path = built(tmp_path, spread, x=(ir.DataType.FLOAT, [3, 1]), shape=shape)
    target = next(x for x in layers_of(path) if kind_of(x) == "broadcastToDynamic").input[1]
    assert next(kind_of(x) for x in layers_of(path) if target in x.output) == "maxBroadcastable"
    x = rng.normal(size=(3, 1)).astype(np.float32)
    np.testing.assert_array_equal(
        converter.run(path, {"x": x, "shape": shape})["expand"], x * np.ones(asked, np.float32)
    )


def test_indices_are_as_many_as_the_data_along_other_axes(tmp_path: Path) -> None:
    """ONNX may omit operands; the layers demand all of them."""
    x, i = (
        rng.normal(size=(3, 4, 5)).astype(np.float32),
        rng.integers(0, 4, (2, 6, 3)).astype(np.int64),
    )
    path = built(tmp_path, lambda b, v, w: b.op("GatherElements", v, w, axis=1), x=x, i=i)
    assert kinds(path) == ["sliceStatic", "gatherAlongAxis"]
    np.testing.assert_array_equal(
        next(iter(converter.run(path, {"x": x, "i": i}).values())),
        np.take_along_axis(x[:2, :, :3], i, 1),
    )


def test_open_data_is_cut_to_the_indices(tmp_path: Path) -> None:
    index = np.zeros((1, 4, 2), np.int64)
    path = built(
        tmp_path,
        lambda b, v: b.op("GatherElements", v, index, axis=1),
        x=(ir.DataType.FLOAT, ["n", 4, 2]),
    )
    x = rng.normal(size=(3, 4, 2)).astype(np.float32)
    np.testing.assert_array_equal(
        next(iter(converter.run(path, {"x": x}).values())), np.take_along_axis(x[:1], index, 1)
    )


def test_one_slope_on_few_axes_needs_no_channels(tmp_path: Path) -> None:
    path = built(
        tmp_path,
        lambda b, v: b.op("PRelu", v, np.array([0.25], np.float32)),
        x=(ir.DataType.FLOAT, [2, 3]),
    )
    assert [x.activation.WhichOneof("NonlinearityType") for x in layers_of(path)] == ["leakyReLU"]


@pytest.mark.parametrize("end", [0, 1, 2])
def test_output_padding_is_less_cut_off_or_bias_alone(end: int, tmp_path: Path) -> None:
    weights, bias, x = (
        rng.normal(size=s).astype(np.float32) for s in ((3, 2, 3, 3), (2,), (1, 3, 4, 5))
    )

    def build(b: Builder, v: ir.Value) -> ir.Value:
        return b.op(
            "ConvTranspose",
            v,
            weights,
            bias,
            strides=[3, 3],
            pads=[1, 1, end, end],
            output_padding=[1, 1],
        )

    path = built(tmp_path, build, x=x)
    assert ("constantPad" in kinds(path)) == (end < 1)
    assert not any(
        list(m.convolution.outputShape) for m in layers_of(path) if kind_of(m) == "convolution"
    )
    want = _native(_as_onnx(tmp_path, build, x), {"x": x})
    np.testing.assert_allclose(
        converter.run(path, {"x": x})["convtranspose"], want["convtranspose"], rtol=1e-5, atol=1e-5
    )


def _as_onnx(tmp_path: Path, build: Build, x: Array) -> Path:
    model, b = new_model("main")
    b.output(build(b, b.input("x", ir.DataType.FLOAT, list(x.shape))))
    converter.save(Model(model, "onnx"), tmp_path / "built.onnx")
    return tmp_path / "built.onnx"


# integers and halves stored as floats ------------------------------------------------------------


def every(dtype: Any, count: int = 64) -> tuple[Array, Array]:
    limits = np.iinfo(dtype)
    ends = np.array(list(itertools.product([limits.min, limits.max, 0, 1], repeat=2)), dtype)
    drawn = rng.integers(limits.min, limits.max + 1, (count, 2)).astype(dtype)
    both = np.concatenate([ends, drawn])
    return both[:, 0].copy(), both[:, 1].copy()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
def test_short_integers_wrap_around(op: str, dtype: Any, tmp_path: Path) -> None:
    x, y = every(dtype)
    if op == "Mul" and np.iinfo(dtype).bits == 16:
        y = (y % 100).astype(dtype)  # floats hold products of 24 bits
    with np.errstate(over="ignore"):
        want = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op](x, y)
    path = built(tmp_path, lambda b, p, q: b.op(op, p, q), x=x, y=y)
    np.testing.assert_array_equal(next(iter(converter.run(path, {"x": x, "y": y}).values())), want)


def shifted(b: Builder, x: ir.Value, n: ir.Value) -> ir.Value:
    return b.op("Mul", x, b.op("Pow", b.const(np.array(2, np.int32)), n))


def shifts() -> tuple[Array, Array, Array]:
    n = np.arange(32, dtype=np.int32).repeat(4)
    x = rng.integers(-(1 << 24), 1 << 24, n.size).astype(np.int32)
    return x, n, (x.astype(np.int64) << n).astype(np.int32)


def test_bits_that_are_shifted_out_are_lost(tmp_path: Path) -> None:
    x, n, want = shifts()
    path = built(tmp_path, shifted, x=x, n=n)
    assert "floor" in kinds(path)
    np.testing.assert_array_equal(next(iter(converter.run(path, {"x": x, "n": n}).values())), want)


def test_exporters_write_unsigned_shifts_with_a_power_of_doubles(tmp_path: Path) -> None:
    def build(b: Builder, x: ir.Value, n: ir.Value) -> ir.Value:
        power = b.op("Pow", b.const(np.array(2.0)), b.op("Cast", n, to=int(ir.DataType.DOUBLE)))
        return b.op("Mul", x, b.op("Cast", power, to=int(ir.DataType.UINT32)))

    x, n = np.array([1, 3, 1 << 23, 5], np.uint32), np.array([31, 31, 9, 0], np.uint32)
    got = converter.run(built(tmp_path, build, x=x, n=n), {"x": x, "n": n})
    np.testing.assert_array_equal(
        next(iter(got.values())),
        (x.astype(np.uint64) << n.astype(np.uint64)).astype(np.uint32).astype(np.int32),
    )


def declared(path: Path) -> tuple[Any, Any]:
    description = read_mlmodel(path).proto.description
    return description.input[0].type, description.output[0].type


# declared sizes and images -----------------------------------------------------------------------


def plain() -> Any:
    return network([layer("activation", "x", "y", ReLU={})], {"x": (1, 3, 4, 6)}, ["y"])


def picture(kind: Any, color: int = 30) -> Any:
    kind.ClearField("multiArrayType")
    kind.imageType.height, kind.imageType.width, kind.imageType.colorSpace = 4, 6, color
    return kind.imageType


def array_ranges() -> Any:
    model = plain()
    for low, high in ((1, 1), (3, 3), (2, 9), (1, -1)):
        model.proto.description.input[0].type.multiArrayType.shapeRange.sizeRanges.add(
            lowerBound=low, upperBound=high
        )
    return model


def array_choices() -> Any:
    model = plain()
    for shape in ((1, 3, 4, 6), (1, 3, 2, 2), (1, 3, 8, 2)):
        model.proto.description.input[
            0
        ].type.multiArrayType.enumeratedShapes.shapes.add().shape.extend(shape)
    return model


def image_ranges() -> Any:
    model = plain()
    image = picture(model.proto.description.input[0].type)
    image.imageSizeRange.heightRange.lowerBound, image.imageSizeRange.heightRange.upperBound = 2, 9
    image.imageSizeRange.widthRange.lowerBound, image.imageSizeRange.widthRange.upperBound = 3, -1
    model.proto.neuralNetwork.imageInputShapeMapping = 1
    return model


def image_choices() -> Any:
    model = plain()
    image = picture(model.proto.description.input[0].type)
    for height, width in ((4, 6), (2, 2)):
        image.enumeratedSizes.sizes.add(height=height, width=width)
    model.proto.neuralNetwork.imageInputShapeMapping = 1
    return model


def image_output() -> Any:
    model = plain()
    picture(model.proto.description.output[0].type)
    return model


def deep_image() -> Any:
    model = network([layer("activation", "x", "y", ReLU={})], {"x": (1, 1, 4, 6)}, ["y"])
    picture(model.proto.description.input[0].type, 40)
    model.proto.specificationVersion, model.proto.neuralNetwork.imageInputShapeMapping = 7, 1
    return model


FLEXIBLE = {
    f.__name__: f for f in (array_ranges, array_choices, image_ranges, image_choices, image_output)
}


@pytest.mark.parametrize("name", [*FLEXIBLE, "deep_image"])
def test_sizes_and_images_stay_declared(name: str, tmp_path: Path) -> None:
    model = FLEXIBLE[name]() if name in FLEXIBLE else deep_image()
    path = again(tmp_path, model)
    first, second = declared(tmp_path / "first.mlmodel"), declared(path)
    assert second[0] == first[0]
    assert second[1].WhichOneof("Type") == first[1].WhichOneof("Type")
    if second[1].WhichOneof("Type") == "imageType":
        assert second[1] == first[1]
        assert kinds(path) == ["activation"]  # an image rounds by itself
    assert spec(path) == (7 if name == "deep_image" else 4)


@pytest.mark.parametrize("name", FLEXIBLE)
def test_other_formats_lose_sizes_with_a_warning_and_onnx_brings_them_back(
    name: str, tmp_path: Path
) -> None:
    path = saved(FLEXIBLE[name](), tmp_path / "m.mlmodel")
    for file in ("n.onnx", "n.xml"):
        assert [
            (n.code, n.level, n.where.layer) for n in converter.convert(path, tmp_path / file)
        ] == [("X207", "warning", "y" if name == "image_output" else "x")]
    converter.convert(tmp_path / "n.onnx", tmp_path / "back.mlmodel")
    assert declared(tmp_path / "back.mlmodel")[0] == declared(path)[0]


@pytest.mark.parametrize("name", [*FLEXIBLE, "planes"])
def test_programs_declare_sizes_and_images_too(name: str, tmp_path: Path) -> None:
    """An image of a program has a batch axis, also where the network has [C,H,W]."""
    model = FLEXIBLE.get(name, image_output)()
    if name == "planes":
        model = network([layer("activation", "x", "y", ReLU={})], {"x": (3, 4, 6)}, ["y"])
        picture(model.proto.description.output[0].type)
    path = saved(model, tmp_path / "m.mlmodel")
    if name == "planes":
        assert converter.load(path).outputs[0].shape == (3, 4, 6)
    notes = converter.convert(path, tmp_path / "n.mlpackage")
    assert [n for n in notes if n.code == "X207"] == []
    written = converter.load(tmp_path / "n.mlpackage").ir
    spec = Model_pb2.Model()
    spec.ParseFromString(
        (tmp_path / "n.mlpackage/Data/com.apple.CoreML/model.mlmodel").read_bytes()
    )
    first = declared(path)
    for mine, own in zip((spec.description.input, spec.description.output), first, strict=True):
        if own.WhichOneof("Type") == "imageType":
            assert mine[0].type.imageType == own.imageType
    if name == "planes":
        assert list(written.graph.outputs[0].shape or ()) == [1, 3, 4, 6]


@pytest.mark.parametrize("name", [n for n in FLEXIBLE if n != "image_output"])
def test_fixed_shapes_lose_sizes_with_a_warning(name: str, tmp_path: Path) -> None:
    path = saved(FLEXIBLE[name](), tmp_path / "m.mlmodel")
    notes = converter.convert(path, tmp_path / "n.mlmodel", inputs={"x": [1, 3, 2, 2]})
    assert [n.code for n in notes] == ["X207"] and "2x2" in notes[0].message
    kind = declared(tmp_path / "n.mlmodel")[0]
    assert "image" not in name or (
        kind.imageType.height,
        kind.imageType.width,
        kind.imageType.WhichOneof("SizeFlexibility"),
    ) == (2, 2, None)


def test_open_dimensions_without_bounds_are_no_loss(tmp_path: Path) -> None:
    model = plain()
    for low, high in ((1, -1), (3, 3), (1, -1), (1, -1)):
        model.proto.description.input[0].type.multiArrayType.shapeRange.sizeRanges.add(
            lowerBound=low, upperBound=high
        )
    assert converter.convert(saved(model, tmp_path / "m.mlmodel"), tmp_path / "n.onnx") == []


STRANGE = [
    None, 5, [], {}, {"default": "x"}, {"default": [1], "ranges": [[1]]},
    {"default": [1], "ranges": 7}, {"default": [1.5], "ranges": [[1, 2]]},
    {"default": [1], "ranges": [[-5, 2]]}, {"default": [1], "ranges": [[1, 1 << 70]]},
    {"default": [1, 2], "choices": [[1, 2], [1]]}, {"default": [True], "choices": [[1]]},
]  # fmt: skip


@pytest.mark.parametrize("data", STRANGE)
def test_sizes_of_a_stranger_are_nothing(data: Any) -> None:
    assert from_json(data) is None


def classed(b: Builder, x: ir.Value) -> ir.Value:
    return b.op("OneHot", x, 4, np.array([0, 1], np.float32), axis=-1)


def test_classes_that_count_from_the_end_are_brought_forward(tmp_path: Path) -> None:
    """The layer knows classes from 0 on; unsigned ones need nothing."""
    signed = {
        kind_of(x) for x in layers_of(built(tmp_path, classed, x=np.array([0, -1, -4], np.int32)))
    }
    unsigned = {
        kind_of(x) for x in layers_of(built(tmp_path, classed, x=np.array([0, 3], np.uint8)))
    }
    assert "oneHot" in signed & unsigned and "lessThan" in signed - unsigned


# outside judges ----------------------------------------------------------------------------------


@pytest.mark.judges
def test_apple_takes_every_form(tmp_path: Path) -> None:
    paths = []

    def keep(path: Path) -> None:
        paths.append(path.rename(tmp_path / f"{len(paths)}.mlmodel"))

    for bias in (half, lambda n: WeightData.of(np.full(n, 0.1, np.float32))):
        for made, inputs in half_layers(bias).values():
            for target in ("coreml", "coreml+fp16", "coreml+spec=5"):
                keep(again(tmp_path, network([made], inputs, ["y"]), target))
    for model in (
        normalised(),
        quantized_volume(),
        optional(),
        deep_image(),
        sliced(strides=[1, 1, 1]),
        *(f() for f in FLEXIBLE.values()),
    ):
        for target in ("coreml", "coreml+fp16"):
            keep(again(tmp_path, model, target))
    keep(
        again(
            tmp_path,
            network([layer("copy", "x", "t"), layer("copy", "t", "x")], {"x": (2,)}, ["x"]),
        )
    )
    keep(swapped(tmp_path))
    converter.save(channels()[0], tmp_path / "n.mlmodel")
    keep(tmp_path / "n.mlmodel")
    assert_valid_core_ml(*paths)


COPIED = {
    "constant": (lambda b, x: b.op("Reshape", x, [0, 4]), {}),
    "computed": (lambda b, x, shape: b.op("Reshape", x, shape), {"shape": np.array([0, 4])}),
    "of more axes": (
        lambda b, x, shape: b.op("Reshape", x, shape),
        {"shape": np.array([0, 1, 2, 2])},
    ),
}


@pytest.mark.parametrize("name", COPIED)
def test_sizes_are_copied_into_another_rank(name: str, tmp_path: Path) -> None:
    """reshapeDynamic knows no zeros."""
    write, more = COPIED[name]
    path = built(tmp_path, write, x=(ir.DataType.FLOAT, ["n", 2, 2]), **more)
    assert "getShape" in {kind_of(x) for x in layers_of(path)}


@pytest.mark.judges
@pytest.mark.parametrize("name", COPIED)
def test_an_independent_interpreter_copies_sizes(name: str, tmp_path: Path) -> None:
    write, more = COPIED[name]
    path = built(tmp_path, write, x=(ir.DataType.FLOAT, ["n", 2, 2]), **more)
    x = rng.normal(size=(3, 2, 2)).astype(np.float32)
    (found,) = run_in("coreml-interp", path, {"x": x, **more}).values()
    assert found.shape == (3, *more.get("shape", np.array([0, 4]))[1:])
    np.testing.assert_array_equal(found.reshape(-1), x.reshape(-1))


@pytest.mark.judges
def test_an_independent_interpreter_agrees(tmp_path: Path) -> None:
    x, n, want = shifts()
    got = run_in("coreml-interp", built(tmp_path, shifted, x=x, n=n), {"x": x, "n": n})
    np.testing.assert_array_equal(next(iter(got.values())), want)
    model, table = channels()
    converter.save(model, tmp_path / "n.mlmodel")
    got = run_in("coreml-interp", tmp_path / "n.mlmodel", {"i": np.array([2, 0], np.int32)})
    np.testing.assert_allclose(np.stack(list(got.values())), table, rtol=1e-6)
    for asked in ([1, 4], [4], [3, 4]):
        shape, ones = np.array(asked, np.int64), rng.normal(size=(3, 1)).astype(np.float32)
        got = run_in(
            "coreml-interp",
            built(tmp_path, spread, x=(ir.DataType.FLOAT, [3, 1]), shape=shape),
            {"x": ones, "shape": shape},
        )
        np.testing.assert_array_equal(next(iter(got.values())), ones * np.ones(asked, np.float32))
    classes = np.array([0, -1, -4], np.int32)
    got = run_in("coreml-interp", built(tmp_path, classed, x=classes), {"x": classes})
    np.testing.assert_array_equal(next(iter(got.values())), np.eye(4, dtype=np.float32)[classes])
    path, pair = swapped(tmp_path), {"x": np.zeros(2, np.float32), "y": np.ones(2, np.float32)}
    got = run_in("coreml-interp", path, pair)
    assert got["x"].tolist() == [1, 1] and got["y"].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [ir.DataType.INT16, ir.DataType.INT32])
@pytest.mark.parametrize("kind", ["BitwiseAnd", "BitwiseXor", "BitwiseNot"])
def test_bits_that_floats_lose_are_warned_of(kind: str, dtype: Any, tmp_path: Path) -> None:
    model, b = new_model("main")
    values = [b.input(n, dtype, [4]) for n in "xy"[: 1 if kind == "BitwiseNot" else 2]]
    b.output(b.op("Cast", b.op(kind, *values), to=int(ir.DataType.FLOAT)))
    ir.save(model, tmp_path / "m.onnx")
    notes = converter.convert(tmp_path / "m.onnx", tmp_path / "m.mlmodel")
    told = [n.code for n in notes if "2^24" in n.message]
    assert told == (["X205"] if dtype == ir.DataType.INT32 else [])


# sizes -------------------------------------------------------------------------------------------


def test_networks_that_are_too_long_are_refused_before_weights_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, b = new_model()
    codes = b.const(np.ones((256, 256), np.uint8))
    scales = b.const(np.ones((8, 256), np.float32))
    real = b.op("DequantizeLinear", codes, scales, axis=0, block_size=32)
    b.output(b.op("MatMul", b.input("x", ir.DataType.FLOAT, [1, 256]), real))
    computed = []
    monkeypatch.setattr("converter.passes.constants.evaluate", lambda *a: computed.append(a) or [])
    monkeypatch.setattr("converter.formats.coreml.neuralnetwork.codec.LONGEST_FILE", 100_000)
    with pytest.raises(UnsupportedError) as error:
        converter.save(Model(model, "test"), tmp_path / "m.mlmodel")
    assert error.value.diagnostics[0].code == "X206"
    assert "has 26" in error.value.diagnostics[0].message
    assert not computed


@pytest.mark.parametrize("whole", [False, True])
def test_numbers_that_become_indices_are_truncated(whole: bool, tmp_path: Path) -> None:
    """Layers round indices, where a Cast truncates; integers need no truncation."""

    def rows(b: Builder, x: ir.Value) -> ir.Value:
        x = b.Floor(x) if whole else x
        table = b.const(np.arange(12, dtype=np.float32).reshape(4, 3))
        return b.Gather(table, b.Cast(x, to=ir.DataType.INT64), axis=0)

    x = np.array([0.2, 1.5, 2.9, 3.0, -0.7], np.float32)
    path = built(tmp_path, rows, x=x)
    assert kinds(path).count("floor") == 1
    assert ("sign" in kinds(path)) == (not whole)
    if not whole:
        expected = np.arange(12).reshape(4, 3)[[0, 1, 2, 3, 0]]
        np.testing.assert_array_equal(
            next(iter(converter.load(path).run({"x": x}).values())), expected
        )


@pytest.mark.judges
def test_truncated_indices_in_an_interpreter_from_outside(tmp_path: Path) -> None:
    def rows(b: Builder, x: ir.Value) -> ir.Value:
        table = b.const(np.arange(12, dtype=np.float32).reshape(4, 3))
        return b.Gather(table, b.Cast(x, to=ir.DataType.INT64), axis=0)

    x = np.array([0.2, 1.5, 2.9, 3.0, -0.7], np.float32)
    path = built(tmp_path, rows, x=x)
    (found,) = run_in("coreml-interp", path, {"x": x}).values()
    np.testing.assert_array_equal(found, np.arange(12).reshape(4, 3)[[0, 1, 2, 3, 0]])


def test_dilations_of_computed_weights_are_refused(tmp_path: Path) -> None:
    """Apple's validator refuses such a layer."""
    m, b = new_model()
    x = b.input("x", ir.DataType.FLOAT, [1, 2, 5, 5])
    weights = b.input("w", ir.DataType.FLOAT, [3, 2, 2, 2])
    b.output(b.Conv(x, weights, dilations=[2, 1]))
    with pytest.raises(UnsupportedError, match="dilations with computed weights"):
        converter.save(Model(m, "onnx"), tmp_path / "m.mlmodel", "coreml")


@pytest.mark.parametrize("upper", [0, 1])
def test_a_triangle_without_a_number_has_the_main_diagonal(upper: int, tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    path = built(tmp_path, lambda b, v: b.Trilu(v, upper=upper), x=x)
    (found,) = converter.load(path).run(x=x).values()
    np.testing.assert_array_equal(found, np.triu(x) if upper else np.tril(x))
